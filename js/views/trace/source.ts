/**
 * Where the trace comes from: what was saved with the report, or a kernel or server that has all of it.
 *
 * Times are nanoseconds since the origin of the profile. A lane is told by its id, which is the same in every source; an
 * event by its number in the profile.
 */

/** A slice as it is selected and passed around. */
export interface SliceRef {
  event: number;
  /** Id of its lane. */
  lane: number;
  /** Level in the lane, as drawn: slices of one level never overlap. */
  depth: number;
  start_ns: number;
  duration_ns: number;
  name: string;
}

/** What is drawn in one place of a row, in the order of time. */
export interface Marks {
  /** ns since the origin; f8 where the source has them exactly. */
  start: Float64Array;
  end: Float64Array;
  /** The slice; of those merged the longest. */
  event: Uint32Array;
  name: Uint32Array;
  /** 1…9: a category, 100…107: a tint. */
  fill: Uint8Array;
  /** Slices it stands for; 1 for a slice of its own. */
  count: Uint32Array;
  /** Busy share of the place, 0…255. */
  busy: Uint8Array;
  /** 1 where a hit of the search is among them. */
  hit: Uint8Array;
}

export type Kind = "launch" | "producer" | "forward" | "flow";

/** An arrow from one slice to another. */
export interface Arrow {
  kind: Kind;
  from: SliceRef;
  to: SliceRef;
}

export type Where = "ops" | "kernels" | "input" | "memory";

export interface SliceInfo {
  slice: SliceRef;
  /** The name in full. */
  full_name: string;
  process: string;
  thread: string;
  self_ns: number;
  /** Of all slices of this name on lanes of the same kind: how many, and their mean. */
  same: { count: number; mean_ns: number };
  parent: SliceRef | null;
  /** Framework op that it belongs to, "" where that is not known. */
  op: string;
  step: string;
  /** Name of the step-time category, "" where it has none. */
  category: string;
  /** Where the work was asked for: the launch on the host, and how much later it ran. */
  launch: { slice: SliceRef; delay_ns: number } | null;
  /** Innermost first. */
  stack: string[];
  /** Everything else that was recorded with it, in the words of the producer. */
  args: { key: string; value: string }[];
  arrows: Arrow[];
  /** The view whose table has a row for it, and the text to filter by. */
  row: { tab: Where; filter: string } | null;
}

export interface Share {
  name: string;
  fill: number;
  count: number;
  self_ns: number;
  total_ns: number;
  /** Of the range, 0…100; lanes run at the same time, so the sum may pass 100. */
  percent: number;
  /** The longest of them. */
  longest: SliceRef;
}

export interface LaneBusy {
  lane: number;
  busy_ns: number;
  /** 0…100. */
  percent: number;
  count: number;
}

export interface RangeInfo {
  from: number;
  to: number;
  /** By name, most self time first; `others` sums up what is not listed. */
  shares: Share[];
  others: { names: number; count: number; self_ns: number } | null;
  lanes: LaneBusy[];
  /** Share of the range in which nothing ran on a device, 0…100, by section. */
  idle: { process: string; percent: number }[];
  count: number;
  /** A sentence where the answer is of the saved slices only. */
  note: string;
}

export interface Found {
  count: number;
  error: string;
  /** Hits over the whole profile in equal parts. */
  strip: Uint8Array;
  /** What was searched, where that is not all. */
  where: string;
}

export interface Hit {
  index: number;
  slice: SliceRef | null;
}

export type Direction = "previous" | "next" | "parent" | "child" | "previous_same" | "next_same";

export type HitAt =
  | { index: number }
  | { event: number; by: 1 | -1 }
  | { time_ns: number; by: 1 | -1 }
  | { longest: true };

export interface Target {
  kind: "op" | "kernel" | "input" | "function" | "step" | "gap" | "memory_peak" | "name";
  name?: string;
  host?: string;
  device?: string;
  step?: number;
  time_ms?: number;
}

export interface Located {
  slice: SliceRef | null;
  from: number;
  to: number;
  text: string;
}

/** Questions about the trace; the answers of a live source are of all events, those of a saved one of what was saved. */
export interface Answers {
  slice(event: number): Promise<SliceInfo | null>;
  step(event: number, to: Direction): Promise<SliceRef | null>;
  first(from: number, to: number, lanes: readonly number[]): Promise<SliceRef | null>;
  range(from: number, to: number, lanes: readonly number[] | null): Promise<RangeInfo>;
  many(events: readonly number[]): Promise<RangeInfo>;
  search(query: string): Promise<Found>;
  hit(query: string, at: HitAt): Promise<Hit>;
  locate(target: Target): Promise<Located | null>;
}

/** What the drawing asks in every frame; it never waits. */
export interface Drawn {
  /** The best that is here for a row in from…to at about `width` pixels; what is missing is asked for in the background. */
  marks(lane: number, depth: number, from: number, to: number, width: number): Marks;
  /** Text of a name code, "" while it is not known here. */
  label(name: number): string;
}

export interface Source extends Answers, Drawn {
  readonly live: boolean;
  /** Calls back when more can be drawn than before. */
  onMore(fn: () => void): void;
  /** The search whose hits are marked. */
  setQuery(query: string): void;
  close(): void;
}
