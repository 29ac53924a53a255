/** What the trace shows at this moment, and everything that can be done to it. No drawing. */

import { reason } from "../../lib/dom.js";
import { matcher } from "../../lib/rows.js";
import { History } from "./history.js";
import type { Band, Folding } from "./layout.js";
import { layout, levelTop, reveal } from "./layout.js";
import type { Direction, Found, LaneHead, SliceRef, Source, Under } from "./source.js";
import { around, clamp, pan, type Span, shortest, show, zoom } from "./window.js";

/** What a reader has made of the trace, besides its search and its filter. */
export interface Arranged {
  ids: string;
  span: Span;
  selection: SliceRef[];
  range: Span | null;
  pinned: number[];
  folding: Folding;
}

/** What changed: the window, the tree of lanes, the selection, the range, the search, or where the slices come from. */
export type Change = "span" | "lanes" | "slice" | "range" | "search" | "source";

type LaneBand = Extract<Band, { kind: "lane" }>;

export class Model {
  source: Source;
  /** By id. */
  lanes = new Map<number, LaneHead>();
  /** Bands that scroll, and those above them that don't; `top` counts from the first of each. */
  bands: Band[] = [];
  height = 0;
  pinnedBands: Band[] = [];
  pinnedHeight = 0;
  span: Span;
  /** The last one is the main one. */
  selection: SliceRef[] = [];
  range: Span | null = null;
  query = "";
  /** Null while the search runs, and without one. */
  found: Found | null = null;
  /** Position of the selected slice in the hits, -1 when it is not known to be one. */
  hit = -1;
  /** Lanes that stay at the top, in the order in which they were pinned. */
  pinned: number[] = [];
  laneFilter = "";
  /** The host and device whose lanes are shown beside those that are pinned; null: all. */
  chosen: { host: string | null; device: number | null } = { host: null, device: null };
  private folding: Folding = new Map();
  private matches: ((name: string) => boolean) | null = null;
  private readonly history: History;
  private readonly listeners: ((change: Change) => void)[] = [];
  /** Bands of lanes by lane. */
  private places = new Map<number, { band: LaneBand; pinned: boolean }>();
  /** Counts what was asked for: an answer that comes after the next question is dropped. */
  private turn = 0;

  constructor(source: Source, now?: () => number) {
    this.source = source;
    this.history = new History(now);
    this.span = clamp({ from: 0, to: source.end }, source.end);
    this.take(source);
  }

  get end(): number {
    return this.source.end;
  }

  /** The main one of the selection. */
  get selected(): SliceRef | null {
    return this.selection.at(-1) ?? null;
  }

  onChange(listener: (change: Change) => void): void {
    this.listeners.push(listener);
  }

  private tell(change: Change): void {
    for (const listener of this.listeners) listener(change);
  }

  private take(source: Source): void {
    this.source = source;
    this.lanes = new Map(source.lanes.map((lane) => [lane.id, lane]));
    source.setQuery(this.query);
    this.place();
  }

  /**
   * Draws and asks from another source from now on. What was opened, pinned and selected stays, unless the numbers of its
   * lanes and events mean others there.
   */
  setSource(source: Source): void {
    if (source === this.source) return;
    this.turn++;
    const others = source.ids !== this.source.ids;
    if (others) {
      this.selection = [];
      this.hit = -1;
      this.pinned = [];
      this.folding = new Map();
    }
    const complete = this.span.to - this.span.from >= this.end;
    this.take(source);
    this.span = clamp(complete ? { from: 0, to: this.end } : this.span, this.end);
    this.tell("source");
    this.tell("lanes");
    if (others) this.tell("slice");
    if (this.query) void this.find(this.query);
  }

  get arranged(): Arranged {
    const { span, selection, range, pinned, folding } = this;
    return { ids: this.source.ids, span, selection, range, pinned, folding };
  }

  /** As it was in another model of the same profile. */
  arrange({ ids, span, selection, range, pinned, folding }: Arranged): void {
    if (ids === this.source.ids) {
      this.pinned = pinned;
      this.folding = folding;
      this.place();
      this.tell("lanes");
      this.selection = selection;
      if (selection.length) this.tell("slice");
    }
    this.setRange(range);
    this.setSpan(span);
  }

  private place(): void {
    const pinned = this.pinned.flatMap((id) => this.lanes.get(id) ?? []);
    const rest = this.source.lanes.filter((lane) => !this.pinned.includes(lane.id) && this.fits(lane));
    // A filter shows what it finds: nothing of it is gathered in a closed band.
    const scrolling = layout(this.matches ? rest.map((lane) => ({ ...lane, folded: false })) : rest, this.folding);
    this.bands = scrolling.bands;
    this.height = scrolling.height;
    const top = layout(
      pinned.map((lane) => ({ ...lane, folded: false })),
      this.folding,
      false,
    );
    this.pinnedBands = top.bands;
    this.pinnedHeight = top.height;
    this.places = new Map();
    for (const [bands, fixed] of [
      [this.bands, false],
      [this.pinnedBands, true],
    ] as const)
      for (const band of bands) if (band.kind === "lane") this.places.set(band.lane, { band, pinned: fixed });
  }

  private fits(lane: LaneHead): boolean {
    if (!this.isChosen(lane)) return false;
    return !this.matches || this.matches(lane.name) || this.matches(lane.process) || this.matches(lane.note);
  }

  /** Lanes that say of no host, or of no device, are of all. */
  private isChosen({ host, device }: LaneHead): boolean {
    const { chosen } = this;
    if (chosen.host !== null && host !== undefined && host !== chosen.host) return false;
    return chosen.device === null || device === undefined || device === chosen.device;
  }

  /** Shows the lanes of this host or device alone. */
  choose(chosen: Model["chosen"]): void {
    if (chosen.host === this.chosen.host && chosen.device === this.chosen.device) return;
    this.chosen = chosen;
    this.place();
    this.tell("lanes");
    if (this.range) this.tell("range");
  }

  /** Ids of the lanes that what is summed up is of; null: all of them. */
  get lanesChosen(): number[] | null {
    const { host, device } = this.chosen;
    if (host === null && device === null) return null;
    return this.source.lanes.flatMap((lane) => (this.isChosen(lane) ? [lane.id] : []));
  }

  /** Shows the lanes whose name, note or section has the text, or fits the /expression/; returns what is wrong with it. */
  filterLanes(text: string): string {
    let matches: typeof this.matches;
    try {
      matches = matcher(text.trim());
    } catch (error) {
      return reason(error);
    }
    this.laneFilter = text.trim();
    this.matches = matches;
    this.place();
    this.tell("lanes");
    return matches && !this.bands.length ? "No lane or section matches." : "";
  }

  toggle(band: Band): void {
    this.folding = new Map(this.folding).set(band.key, !band.open);
    this.place();
    this.tell("lanes");
  }

  /** Lets a lane stay at the top, or go back to its place. */
  pin(lane: number): void {
    this.pinned = this.pinned.includes(lane) ? this.pinned.filter((id) => id !== lane) : [...this.pinned, lane];
    this.place();
    this.tell("lanes");
  }

  /** `jump`: one step of the undo stack, whatever movement came just before. */
  setSpan(span: Span, jump = false): void {
    const next = clamp(span, this.end);
    if (next.from === this.span.from && next.to === this.span.to) return;
    this.history.note(this.span, jump);
    this.span = next;
    this.tell("span");
  }

  undo(): void {
    this.restore(this.history.undo(this.span));
  }

  redo(): void {
    this.restore(this.history.redo(this.span));
  }

  private restore(span: Span | null): void {
    if (!span) return;
    this.span = clamp(span, this.end);
    this.tell("span");
  }

  zoomBy(factor: number, share = 0.5): void {
    this.setSpan(zoom(this.span, factor, share, this.end));
  }

  panBy(share: number): void {
    this.setSpan(pan(this.span, share, this.end));
  }

  spanOf(slice: SliceRef): Span {
    return { from: slice.start_ns, to: slice.start_ns + slice.duration_ns };
  }

  /** Selects a slice; with `bring` its lane is opened and it is brought into the window; with `add` beside those selected; `hit` where it is known to be one. */
  select(slice: SliceRef | null, bring = false, add = false, hit = -1): void {
    this.turn++;
    const others = add ? this.selection.filter((each) => each.event !== slice?.event) : [];
    this.selection = slice ? [...others, slice] : others;
    this.hit = hit;
    if (slice && bring) this.bring(slice);
    this.tell("slice");
    if (hit < 0) void this.count();
  }

  /**
   * Selects what was clicked. The picture has times as exact as it needs them, and of several slices in one pixel the
   * longest: its own times come from the source.
   */
  async pick(under: Under | null, add = false): Promise<void> {
    if (!under) {
      if (!add) this.select(null);
      return;
    }
    const { count, ...slice } = under;
    this.select(slice, false, add);
    if (count === 1 && !this.source.live) return;
    const turn = this.turn;
    const exact = (await this.source.slice(slice.event))?.slice;
    if (!exact || turn !== this.turn) return;
    this.selection = [...this.selection.slice(0, -1), exact];
    this.tell("slice");
  }

  /** Which hit the selected slice is, if it is one. */
  private async count(): Promise<void> {
    const { query, found, selected } = this;
    if (!query || !found?.count || !selected) return;
    const here = (): boolean => this.query === query && this.selected?.event === selected.event && this.hit < 0;
    try {
      // The hit before the next one is the slice itself, or one before it.
      const next = await this.source.hit(query, { event: selected.event, by: 1 });
      const index = ((next.index < 0 ? 0 : next.index) - 1 + found.count) % found.count;
      if (!here()) return;
      const current = await this.source.hit(query, { index });
      if (!here() || current.slice?.event !== selected.event) return;
      this.hit = index;
      this.tell("search");
    } catch {
      // Then it has no number.
    }
  }

  /** Opens the lane of a slice and moves the window to it. */
  private bring(slice: SliceRef): void {
    const lane = this.lanes.get(slice.lane);
    if (lane) {
      this.folding = reveal(lane, this.folding);
      // A slice that a filter hides was asked for: the filter gives way.
      if (!this.fits(lane)) {
        this.matches = null;
        this.laneFilter = "";
        // Another host, or all devices, only where this one needs it.
        if (!this.isChosen(lane)) this.chosen = { host: this.chosen.host && (lane.host ?? null), device: null };
      }
      this.place();
      this.tell("lanes");
    }
    this.setSpan(show(this.span, this.spanOf(slice), this.end), true);
  }

  setRange(range: Span | null): void {
    const ordered = range && {
      from: Math.max(0, Math.min(range.from, range.to)),
      to: Math.min(this.end, Math.max(range.from, range.to)),
    };
    this.range = ordered && ordered.to > ordered.from ? ordered : null;
    this.tell("range");
  }

  /** The selected slices, else the range, with room around. */
  fit(): void {
    const [first] = this.selection;
    if (!first && !this.range) return;
    let target = first ? this.spanOf(first) : (this.range as Span);
    for (const slice of this.selection) {
      const { from, to } = this.spanOf(slice);
      target = { from: Math.min(target.from, from), to: Math.max(target.to, to) };
    }
    this.setSpan(around(target, this.end), true);
  }

  fitAll(): void {
    this.setSpan({ from: 0, to: this.end }, true);
  }

  markSelected(): void {
    if (this.selected) this.setRange(this.spanOf(this.selected));
  }

  async find(query: string): Promise<void> {
    const turn = ++this.turn;
    this.query = query;
    this.found = null;
    this.hit = -1;
    this.source.setQuery(query);
    this.tell("search");
    if (!query) return;
    const found = await this.source.search(query);
    if (turn !== this.turn && query !== this.query) return;
    this.found = found;
    this.tell("search");
    void this.count();
  }

  /**
   * The next (1) or previous (-1) hit: after the selected one, after the selected slice where that is in the window, else
   * from the left edge of it; then from the other end.
   */
  async step(by: 1 | -1): Promise<void> {
    const { query, found, selected, span } = this;
    if (!query || !found?.count) return;
    const turn = ++this.turn;
    const seen = selected && selected.start_ns <= span.to && selected.start_ns + selected.duration_ns >= span.from;
    const from = seen ? { event: selected.event, by } : { time_ns: span.from, by };
    let next = await this.source.hit(
      query,
      this.hit < 0 ? from : { index: (this.hit + by + found.count) % found.count },
    );
    if (!next.slice) next = await this.source.hit(query, { index: by > 0 ? 0 : found.count - 1 });
    if (turn !== this.turn || !next.slice) return;
    this.select(next.slice, true, false, next.index);
  }

  /** From the selected slice to its neighbour; without one, to the first slice in the window. */
  async move(direction: Direction): Promise<void> {
    const turn = ++this.turn;
    const { from, to } = this.span;
    // What is folded away is reached too, after what can be seen.
    const open = this.bands.flatMap((band) => (band.kind === "lane" ? [band.lane] : []));
    const closed = this.bands.flatMap((band) => (band.kind === "lane" || band.open ? [] : band.lanes));
    const lanes = [...open, ...closed];
    const next = this.selected
      ? await this.source.step(this.selected.event, direction)
      : await this.source.first(from, to, lanes);
    if (turn === this.turn && next) this.select(next, true);
  }

  /** Top and bottom of a slice among the bands, and whether in those at the top; null while it is folded away. */
  placeOf(slice: SliceRef): { top: number; bottom: number; pinned: boolean } | null {
    const place = this.places.get(slice.lane);
    if (!place) return null;
    const { band, pinned } = place;
    if (slice.depth >= band.depths) return { top: band.top, bottom: band.top + band.height, pinned };
    const top = band.top + levelTop(slice.depth);
    return { top, bottom: top + 16, pinned };
  }

  /** The shortest window there can be, ns. */
  get shortest(): number {
    return shortest(this.end);
  }
}
