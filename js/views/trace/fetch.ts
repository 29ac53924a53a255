/** Asks for tiles: those of a frame together, what is seen first, and nothing that is not looked at any more. */

import type { Asker, Reply } from "../../lib/wire.js";
import type { Rows } from "./source.js";
import { type Block, type Marks, rowKey, type Samples, type Tiles, tileLength } from "./tiles.js";

type Want = [lane: number, depth: number, depth_to: number, tile: number, tile_to: number];

interface Job {
  level: number;
  from: number;
  to: number;
  query: string;
  keys: Set<string>;
  /** Of the sides and the next level, which nobody looks at yet. */
  ahead: boolean;
  gone: AbortController;
  since: number;
}

interface FetcherOptions {
  asker: Asker;
  tiles: Tiles;
  signal: AbortSignal;
  onMore(): void;
  onNames(names: Record<string, string>): void;
}

/** Requests under way at a time. */
const AT_ONCE = 2;
/** Tiles of one request. */
const MOST = 1500;
/** What is not asked again for a while after it failed, ms. */
const PAUSE = 1500;
/** How long the view rests before more than it shows is asked for, ms. */
const IDLE = 300;
/** One notices what takes longer, ms. */
const SLOW = 100;

export class Fetcher {
  private jobs: Job[] = [];
  private query = "";
  private failed = Number.NEGATIVE_INFINITY;
  /** Whether the last frame had every tile that it wanted. */
  complete = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly options: FetcherOptions) {
    options.signal.addEventListener("abort", () => {
      clearTimeout(this.timer);
      for (const job of this.jobs) job.gone.abort();
    });
  }

  get waiting(): boolean {
    const now = performance.now();
    return this.jobs.some((job) => !job.ahead && now - job.since > SLOW);
  }

  setQuery(query: string): void {
    this.query = query;
  }

  /** A frame was drawn of these rows; `near` are those that come next when one scrolls. */
  want(rows: readonly Rows[], near: readonly Rows[], from: number, to: number, level: number): void {
    clearTimeout(this.timer);
    this.complete = false;
    if (this.options.signal.aborted || !(to > from)) return;
    for (const job of this.jobs) {
      const off = Math.abs(job.level - level) > 1 || job.to < from || job.from > to || job.query !== this.query;
      if (off) job.gone.abort();
    }
    if (performance.now() - this.failed < PAUSE) {
      this.timer = setTimeout(this.options.onMore, PAUSE);
      return;
    }
    const length = tileLength(level);
    const seen = this.missing(rows, level, Math.floor(from / length), Math.ceil(to / length) - 1);
    this.complete = !seen.lacks;
    if (seen.want.length) {
      if (this.free()) void this.fetch(seen, level, from, to, false);
      return;
    }
    if (this.jobs.length) return;
    this.timer = setTimeout(() => this.ahead(rows, near, from, to, level), IDLE);
  }

  /**
   * Whether one may ask now. Python answers one question after the other, and two at once take twice as long each: the
   * next one waits for the answer, unless that is long in coming, as over a slow line.
   */
  private free(): boolean {
    const busy = this.jobs.filter((job) => !job.ahead && !job.gone.signal.aborted);
    if (!busy.length) return true;
    const waited = performance.now() - Math.max(...busy.map((job) => job.since));
    return busy.length < AT_ONCE && waited > SLOW;
  }

  /** One tile to each side, the rows above and below, and the next level out. */
  private ahead(rows: readonly Rows[], near: readonly Rows[], from: number, to: number, level: number): void {
    const side = tileLength(level);
    const [first, last] = [Math.floor(from / side), Math.ceil(to / side) - 1];
    const outer = 2 * side;
    const rounds = [
      [rows, level, first - 1, last + 1],
      [near, level, first, last],
      [rows, level + 1, Math.floor(from / outer), Math.ceil(to / outer) - 1],
    ] as const;
    for (const [of, level, begin, stop] of rounds) {
      const found = this.missing(of, level, Math.max(0, begin), stop);
      if (!found.want.length) continue;
      void this.fetch(found, level, from - side, to + side, true);
      return;
    }
  }

  /** What is neither here (for the present search) nor under way; `lacks` where anything is not here. */
  private missing(
    rows: readonly Rows[],
    level: number,
    first: number,
    last: number,
  ): { want: Want[]; keys: Set<string>; lacks: boolean } {
    const want: Want[] = [];
    let lacks = false;
    const keys = new Set<string>();
    for (const { lane, depth, depth_to } of rows) {
      let open: Want | null = null;
      for (let d = depth; d <= depth_to; d++) {
        let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
        const row = rowKey(lane, d);
        for (let tile = first; tile <= last; tile++) {
          if (this.options.tiles.get(row, level, tile)?.block.query === this.query) continue;
          lacks = true;
          const key = `${row} ${level} ${tile}`;
          if (this.jobs.some((job) => job.query === this.query && !job.gone.signal.aborted && job.keys.has(key)))
            continue;
          low = Math.min(low, tile);
          high = Math.max(high, tile);
        }
        if (low > high || keys.size > MOST) {
          open = null;
          continue;
        }
        for (let tile = low; tile <= high; tile++) keys.add(`${row} ${level} ${tile}`);
        // Levels that lack the same are one row of the request.
        if (open && open[3] === low && open[4] === high) open[2] = d;
        else {
          open = [lane, d, d, low, high];
          want.push(open);
        }
      }
    }
    return { want, keys, lacks };
  }

  private async fetch(
    { want, keys }: { want: Want[]; keys: Set<string> },
    level: number,
    from: number,
    to: number,
    ahead: boolean,
  ): Promise<void> {
    const { asker, signal, onMore } = this.options;
    const gone = new AbortController();
    const job: Job = { level, from, to, query: this.query, keys, ahead, gone, since: performance.now() };
    this.jobs.push(job);
    const late = setTimeout(onMore, SLOW + 5);
    try {
      const reply = await asker.ask({ ask: "tiles", level, want, query: job.query || null }, gone.signal);
      if (!signal.aborted) this.keep(reply, job, want);
    } catch {
      if (!gone.signal.aborted) this.failed = performance.now();
    } finally {
      clearTimeout(late);
      this.jobs = this.jobs.filter((each) => each !== job);
      if (!signal.aborted) onMore();
    }
  }

  private keep(reply: Reply, job: Job, want: readonly Want[]): void {
    const { tiles } = this.options;
    const rows = reply["rows"] as Record<"lane" | "depth" | "tile" | "first" | "count", ArrayLike<number>>;
    const samples = reply["counters"] as Samples & { lane: ArrayLike<number>; tile: ArrayLike<number> };
    const marks = reply as unknown as Marks;
    let bytes = 0;
    for (const column of [...Object.values(reply), ...Object.values(samples)])
      if (ArrayBuffer.isView(column)) bytes += column.byteLength;
    const block: Block = { marks, samples, bytes: bytes + 100 * job.keys.size, query: job.query, used: 0, keys: [] };
    // What the answer says nothing of is empty.
    for (const [lane, depth, depth_to, tile, tile_to] of want)
      for (let d = depth; d <= depth_to; d++)
        for (let t = tile; t <= tile_to; t++) tiles.put(rowKey(lane, d), job.level, t, { block, first: 0, count: 0 });
    for (let i = 0; i < rows.lane.length; i++) {
      const tile = tiles.get(
        rowKey(rows.lane[i] as number, rows.depth[i] as number),
        job.level,
        rows.tile[i] as number,
      );
      if (tile?.block !== block) continue;
      tile.first = rows.first[i] as number;
      tile.count = rows.count[i] as number;
    }
    for (let i = 0; i < samples.lane.length; i++) {
      const tile = tiles.get(rowKey(samples.lane[i] as number, 0), job.level, samples.tile[i] as number);
      if (tile?.block !== block) continue;
      if (!tile.count) tile.first = i;
      tile.count = i + 1 - tile.first;
    }
    tiles.add(block);
    this.options.onNames((reply["names"] ?? {}) as Record<string, string>);
  }
}
