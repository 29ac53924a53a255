/** What the trace shows at this moment, and everything that can be done to it. No drawing. */

import type { Trace } from "../../lib/payload.js";
import type { Direction, Hits, Slice } from "./find.js";
import { durationOf, hitSums, longestHit, neighbour, search, startOf } from "./find.js";
import type { Band, Folding } from "./layout.js";
import { layout, levelTop, reveal } from "./layout.js";
import { type Row, rowsOf } from "./rows.js";
import { around, clamp, pan, type Span, show, zoom } from "./window.js";

/** What changed: the picture, the tree of lanes, the selected slice, the range or the search. */
export type Change = "span" | "lanes" | "slice" | "range" | "search";

export class Model {
  readonly rows: Row[][];
  bands: Band[] = [];
  height = 0;
  span: Span;
  selected: Slice | null = null;
  range: Span | null = null;
  query = "";
  hits: Hits = { slices: [], names: new Uint8Array(0), error: "" };
  /** Position of the selected slice in the hits, -1 when it is none of them. */
  hitAt = -1;
  private folding: Folding = new Map();
  private sums = new Map<Row, Uint32Array>();
  private readonly listeners: ((change: Change) => void)[] = [];

  constructor(readonly trace: Trace) {
    this.rows = trace.lanes.map(rowsOf);
    this.span = clamp({ from: 0, to: trace.end }, trace.end);
    this.place();
  }

  onChange(listener: (change: Change) => void): void {
    this.listeners.push(listener);
  }

  private tell(change: Change): void {
    for (const listener of this.listeners) listener(change);
  }

  private place(): void {
    const { bands, height } = layout(this.trace.lanes, this.folding);
    this.bands = bands;
    this.height = height;
  }

  toggle(band: Band): void {
    this.folding = new Map(this.folding).set(band.key, !band.open);
    this.place();
    this.tell("lanes");
  }

  setSpan(span: Span): void {
    const next = clamp(span, this.trace.end);
    if (next.from === this.span.from && next.to === this.span.to) return;
    this.span = next;
    this.tell("span");
  }

  zoomBy(factor: number, share = 0.5): void {
    this.setSpan(zoom(this.span, factor, share, this.trace.end));
  }

  panBy(share: number): void {
    this.setSpan(pan(this.span, share, this.trace.end));
  }

  spanOf(slice: Slice): Span {
    const from = startOf(this.trace, slice);
    return { from, to: from + durationOf(this.trace, slice) };
  }

  /** Selects a slice; with `reveal` its lane is opened and it is brought into the window. */
  select(slice: Slice | null, bring = false): void {
    this.selected = slice;
    this.hitAt = slice ? this.hits.slices.findIndex((hit) => hit.lane === slice.lane && hit.index === slice.index) : -1;
    if (slice && bring) {
      this.folding = reveal(this.trace.lanes, this.folding, slice.lane);
      this.place();
      this.tell("lanes");
      this.setSpan(show(this.span, this.spanOf(slice), this.trace.end));
    }
    this.tell("slice");
  }

  setRange(range: Span | null): void {
    const ordered = range && {
      from: Math.max(0, Math.min(range.from, range.to)),
      to: Math.min(this.trace.end, Math.max(range.from, range.to)),
    };
    this.range = ordered && ordered.to > ordered.from ? ordered : null;
    this.tell("range");
  }

  /** The selected slice, else the range, with room around it. */
  fit(): void {
    const target = this.selected ? this.spanOf(this.selected) : this.range;
    if (target) this.setSpan(around(target, this.trace.end));
  }

  fitAll(): void {
    this.setSpan({ from: 0, to: this.trace.end });
  }

  markSelected(): void {
    if (this.selected) this.setRange(this.spanOf(this.selected));
  }

  find(query: string): void {
    this.query = query;
    this.hits = search(this.trace, query);
    this.sums = new Map();
    this.select(this.selected);
    this.tell("search");
  }

  /**
   * Searches for the first of the texts that is found, selects its longest hit and zooms to its surroundings.
   * Returns that text; when none is found, the first stays in the search.
   */
  findLongest(texts: readonly string[]): string {
    const found = texts.find((text) => search(this.trace, text).slices.length > 0) ?? texts[0] ?? "";
    this.find(found);
    const at = longestHit(this.trace, this.hits);
    if (at >= 0) {
      const slice = this.hits.slices[at] as Slice;
      this.setSpan(around(this.spanOf(slice), this.trace.end, 0.1));
      this.select(slice, true);
    }
    return found;
  }

  /** The next (1) or previous (-1) hit: after the selected one, else from the left edge of the window. */
  step(by: 1 | -1): void {
    const { slices } = this.hits;
    if (!slices.length) return;
    let at = this.hitAt < 0 ? -1 : this.hitAt + by;
    if (this.hitAt < 0) {
      const next = slices.findIndex((slice) => startOf(this.trace, slice) >= this.span.from);
      at = by > 0 ? next : (next < 0 ? slices.length : next) - 1;
    }
    this.select(slices[(at + slices.length) % slices.length] as Slice, true);
  }

  /** From the selected slice to its neighbour; without one, to the first slice in the window. */
  move(direction: Direction): void {
    if (!this.selected) {
      const first = this.firstVisible();
      if (first) this.select(first, true);
      return;
    }
    const { lane, index } = this.selected;
    const data = this.trace.lanes[lane];
    if (!data) return;
    const next = neighbour(data, this.rows[lane] ?? [], index, direction);
    if (next !== null) this.select({ lane, index: next }, true);
  }

  private firstVisible(): Slice | null {
    for (const band of this.bands) {
      if (band.kind !== "lane") continue;
      const row = this.rows[band.lane]?.[0];
      const at = row ? row.start.findIndex((start) => start >= this.span.from && start <= this.span.to) : -1;
      if (row && at >= 0) return { lane: band.lane, index: row.slice[at] as number };
    }
    return null;
  }

  /** Hits among the slices first…last of a row. */
  hitsIn(lane: number, row: Row, first: number, last: number): number {
    if (!this.hits.slices.length) return 0;
    let sums = this.sums.get(row);
    const data = this.trace.lanes[lane];
    if (!sums && data) {
      sums = hitSums(row, data, this.hits.names);
      this.sums.set(row, sums);
    }
    return sums ? (sums[last] as number) - (sums[first] as number) : 0;
  }

  /** Top and bottom of a slice on the page of lanes; null while it is folded away. */
  placeOf(slice: Slice): { top: number; bottom: number } | null {
    const band = this.bands.find((b) => b.kind === "lane" && b.lane === slice.lane);
    if (band?.kind !== "lane") return null;
    const depth = this.trace.lanes[slice.lane]?.depth[slice.index] ?? 0;
    if (depth >= band.depths) return { top: band.top, bottom: band.top + band.height };
    const top = band.top + levelTop(depth);
    return { top, bottom: top + 16 };
  }
}
