/**
 * The trace as a kernel or server answers it: all events, in tiles fit for the zoom.
 *
 * Drawing takes the best tiles that are here and never waits; after each frame what is missing of it is asked for in one
 * request. What is neither here nor under way is drawn from the saved report.
 */

import { kernelName } from "../../lib/format.js";
import type { Asker, Reply } from "../../lib/wire.js";
import { Fetcher } from "./fetch.js";
import type { SavedSource } from "./saved.js";
import {
  type Answers,
  type Found,
  type Hit,
  idsOf,
  type LaneHead,
  type Located,
  type RangeInfo,
  type Rows,
  type Series,
  type Sink,
  type SliceInfo,
  type SliceRef,
  type Source,
  type Strip,
} from "./source.js";
import { pour, rowKey, type Samples, type Tile, Tiles, tileLength } from "./tiles.js";

/** Name codes of the saved report are told from those of Python by this. */
const SAVED = 2 ** 32;
/** Fill of a step: the last tint. */
const STEP = 107;

/** The levels that there are: from bins of about a picosecond to tiles of 104 days. */
const LEVELS = { finest: -10, coarsest: 44 };

/** The level whose bins are no wider than a pixel, and more than half of one; or the nearest that there is. */
export const levelOf = (from: number, to: number, pixels: number): number =>
  Math.min(LEVELS.coarsest, Math.max(LEVELS.finest, Math.floor(Math.log2((to - from) / Math.max(1, pixels)))));

/** Passes what the saved report has to another sink, its names told apart. */
class FromSaved implements Sink {
  private sink: Sink | null = null;

  to(sink: Sink): this {
    this.sink = sink;
    return this;
  }

  clip(from: number, to: number): void {
    this.sink?.clip(from, to);
  }

  readonly mark: Sink["mark"] = (start, end, event, name, fill, count, busy, hit) =>
    this.sink?.mark(start, end, event, SAVED + name, fill, count, busy, hit);

  rest(start: number, end: number, busy: number): void {
    this.sink?.rest(start, end, busy);
  }
}

export class LiveSource implements Source {
  readonly live = true;
  readonly lacks: readonly string[] = [];
  readonly ids: string;
  readonly notes: readonly string[];
  readonly lanes: readonly LaneHead[];
  readonly end: number;
  readonly strip: Strip;
  readonly total: number;
  readonly shown: number;
  private readonly tiles = new Tiles();
  private readonly names = new Map<number, string>();
  private readonly kinds: Map<number, LaneHead["kind"]>;
  private readonly fetcher: Fetcher;
  private readonly fromSaved = new FromSaved();
  /** What stands in for tiles that are not here; null where its numbers of lanes and events mean others. */
  private readonly saved: SavedSource | null;
  private readonly gone = new AbortController();
  private readonly more: (() => void)[] = [];
  private query = "";

  /** The source behind an asker, once it has said what there is. */
  static async open(asker: Asker, saved: SavedSource, signal: AbortSignal): Promise<LiveSource> {
    const reply = await asker.ask({ ask: "open" }, signal);
    return new LiveSource(asker, saved, reply);
  }

  private constructor(
    private readonly asker: Asker,
    saved: SavedSource,
    opened: Reply,
  ) {
    this.end = Number(opened["end_ns"]);
    this.total = Number(opened["total"]);
    this.shown = this.total;
    this.notes = (opened["notes"] ?? []) as string[];
    const heads = opened["lanes"] as Omit<LaneHead, "shown">[];
    this.ids = idsOf(String(opened["key"]), String(opened["version"]), this.total, heads);
    this.saved = saved.ids === this.ids ? saved : null;
    const known = new Map(this.saved?.lanes.map(({ id, most }) => [id, most]));
    this.lanes = heads.map((head) => {
      const most = known.get(head.id);
      return { ...head, ...(most !== undefined && { most }), shown: head.events };
    });
    this.kinds = new Map(this.lanes.map((lane) => [lane.id, lane.kind]));
    this.strip = opened["strip"] as Strip;
    this.fetcher = new Fetcher({
      asker,
      tiles: this.tiles,
      signal: this.gone.signal,
      onMore: () => {
        for (const fn of this.more) fn();
      },
      onNames: (names) => {
        for (const [code, text] of Object.entries(names)) this.names.set(Number(code), kernelName(text).name);
      },
    });
  }

  /** Whether something of the last frame is under way for longer than one would not notice. */
  get waiting(): boolean {
    return this.fetcher.waiting;
  }

  get complete(): boolean {
    return this.fetcher.complete;
  }

  want(rows: readonly Rows[], near: readonly Rows[], from: number, to: number, pixels: number): void {
    const { end } = this;
    this.fetcher.want(rows, near, Math.max(0, from), Math.min(to, end), levelOf(from, to, pixels));
  }

  visit(lane: number, depth: number, from: number, to: number, pixels: number, sink: Sink): void {
    const level = levelOf(from, to, pixels);
    const length = tileLength(level);
    const row = rowKey(lane, depth);
    const fill = this.kinds.get(lane) === "steps" ? STEP : 0;
    const last = Math.ceil(to / length) - 1;
    let missing = Number.NaN;
    const flush = (until: number): void => {
      if (Number.isNaN(missing)) return;
      const share = (until - missing) / (to - from);
      this.saved?.visit(lane, depth, missing, until, Math.max(1, pixels * share), this.fromSaved.to(sink));
      missing = Number.NaN;
    };
    for (let tileIndex = Math.floor(from / length); tileIndex <= last; tileIndex++) {
      const begin = Math.max(from, tileIndex * length);
      const stop = Math.min(to, (tileIndex + 1) * length);
      const here = this.tiles.best(row, level, tileIndex, (tile, finer, place) => {
        flush(begin);
        this.tiles.touch(tile);
        const fine = tileLength(finer);
        const [a, b] = [Math.max(begin, place * fine), Math.min(stop, (place + 1) * fine)];
        if (!(b > a)) return;
        sink.clip(a, b);
        pour(tile, finer, place, a, b, this.query, sink, fill);
      });
      if (!here && Number.isNaN(missing)) missing = begin;
    }
    flush(to);
  }

  counter(lane: number, from: number, to: number, pixels: number): Series | null {
    const level = levelOf(from, to, pixels);
    const length = tileLength(level);
    const parts: { samples: Samples; first: number; count: number; base: number }[] = [];
    let size = 0;
    for (let tileIndex = Math.floor(from / length); tileIndex < Math.ceil(to / length); tileIndex++) {
      const found = this.tiles.best(rowKey(lane, 0), level, tileIndex, (tile: Tile, finerTile, place) => {
        this.tiles.touch(tile);
        const { samples } = tile.block;
        const base = place * tileLength(finerTile);
        // Of a coarser tile only the part that is wanted here.
        const inside = (i: number): number => base + (samples.t[i] as number);
        let first = tile.first;
        let last = tile.first + tile.count;
        while (first < last && inside(first) < tileIndex * length) first++;
        while (last > first && inside(last - 1) >= (tileIndex + 1) * length) last--;
        if (finerTile > level && first > tile.first) first--;
        parts.push({ samples, first, count: last - first, base });
        size += last - first;
      });
      if (!found) return this.saved?.counter(lane, from, to, pixels) ?? null;
    }
    const series: Series = {
      time: new Float64Array(size),
      low: new Float64Array(size),
      high: new Float64Array(size),
      last: new Float64Array(size),
      mean: new Float64Array(size),
    };
    let k = 0;
    for (const { samples, first, count, base } of parts) {
      for (let i = first; i < first + count; i++, k++) {
        series.time[k] = base + (samples.t[i] as number);
        series.low[k] = samples.low[i] as number;
        series.high[k] = samples.high[i] as number;
        series.last[k] = samples.last[i] as number;
        series.mean[k] = samples.mean[i] as number;
      }
    }
    return series;
  }

  label(name: number, lane: number, event: number): string {
    if (name >= SAVED) return this.saved?.label(name - SAVED, lane, event) ?? "";
    return this.names.get(name) ?? "";
  }

  onMore(fn: () => void): void {
    this.more.push(fn);
  }

  setQuery(query: string): void {
    this.query = query;
    this.saved?.setQuery(query);
    this.fetcher.setQuery(query);
  }

  close(): void {
    this.gone.abort();
  }

  private ask(request: { ask: string; [key: string]: unknown }): Promise<Reply> {
    return this.asker.ask(request, this.gone.signal);
  }

  async slice(event: number): Promise<SliceInfo | null> {
    const reply = await this.ask({ ask: "slice", event });
    return reply["slice"] ? (reply as unknown as SliceInfo) : null;
  }

  step: Answers["step"] = async (event, to) => (await this.ask({ ask: "step", event, to }))["slice"] as SliceRef | null;

  first: Answers["first"] = async (from, to, lanes) =>
    (await this.ask({ ask: "first", from, to, lanes }))["slice"] as SliceRef | null;

  range: Answers["range"] = async (from, to, lanes) =>
    (await this.ask({ ask: "range", from, to, lanes })) as unknown as RangeInfo;

  many: Answers["many"] = async (events) => (await this.ask({ ask: "many", events })) as unknown as RangeInfo;

  search: Answers["search"] = async (query) => (await this.ask({ ask: "search", query })) as unknown as Found;

  hit: Answers["hit"] = async (query, anchor) => (await this.ask({ ask: "hit", query, ...anchor })) as unknown as Hit;

  async locate(target: Parameters<Answers["locate"]>[0]): Promise<Located | null> {
    const reply = await this.ask({ ask: "locate", ...target });
    return typeof reply["from"] === "number" ? (reply as unknown as Located) : null;
  }
}
