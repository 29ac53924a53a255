/**
 * Where the trace comes from: what was saved with the report, or a kernel or server that has all of it.
 *
 * Times are nanoseconds since the origin of the profile. A lane is told by its id, an event by its number in the profile;
 * these are the same in all sources with the same `ids`.
 */

import type { Lane, Strip } from "../../lib/payload.js";
import type { Target } from "../../lib/view.js";

export type { Strip };

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

/** A slice as drawn, or the longest of those that are drawn as one. */
export interface Under extends SliceRef {
  /** Slices drawn as one, 1 for one of its own. */
  count: number;
}

/** A lane as it is drawn and labelled; its slices are asked for. */
export interface LaneHead
  extends Pick<
    Lane,
    | "id"
    | "process"
    | "name"
    | "note"
    | "kind"
    | "events"
    | "depths"
    | "folded"
    | "derived"
    | "unit"
    | "host"
    | "device"
  > {
  /** Those of its events that this source can show. */
  shown: number;
  /** Of a counter: its largest value, where that is known before it is drawn. */
  most?: number;
}

/** What paints, or looks for, the slices of a row. Nothing is allocated for a mark. */
export interface Sink {
  /** Of the marks that follow only the part in from…to is meant, until the next call. */
  clip(from: number, to: number): void;
  /**
   * A slice, or with count > 1 several shorter than a pixel (or so) together, from the first to the last of them.
   *
   * `event` is the slice, of several the longest; `fill` 1…9 a category, 100…107 a tint; `busy` the share of its time
   * that is taken, 0…255; `hit` whether the search finds it.
   */
  mark(
    start: number,
    end: number,
    event: number,
    name: number,
    fill: number,
    count: number,
    busy: number,
    hit: boolean,
  ): void;
  /** Events from start to end that this source does not have: only how busy they keep the place, 1…255. */
  rest(start: number, end: number, busy: number): void;
}

/**
 * A counter: from each time on it lies between low and high, and at last is `last`; until the next time. Of a share of time `mean` is what
 * it is on average until then, NaN of everything else.
 */
export interface Series {
  time: Float64Array;
  low: Float64Array;
  high: Float64Array;
  last: Float64Array;
  mean: Float64Array;
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
  /** Of all slices of this name on lanes of the same kind: how many, their mean, and one of median length where all are known. */
  same: { count: number; mean_ns: number; median: SliceRef | null };
  parent: SliceRef | null;
  /** Framework op that it belongs to, "" where that is not known. */
  op: string;
  step: string;
  /** Name of the step-time category, "" where it has none. */
  category: string;
  /** Where the work was asked for: the launch on the host, and how much later it ran. Of a launch that is not here its lane is known. */
  launch: { slice: SliceRef; delay_ns: number } | { slice: null; lane: number; delay_ns: number } | null;
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
  /** Kind of its lanes: a launch on the host may be called like its kernel. */
  on: LaneHead["kind"];
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

export type { Target };

export interface Located {
  /** False where there is no such thing: then `text` says so. */
  found?: boolean;
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
  hit(query: string, anchor: HitAt): Promise<Hit>;
  locate(target: Target): Promise<Located | null>;
}

/** Levels depth…depth_to of a lane. */
export interface Rows {
  lane: number;
  depth: number;
  depth_to: number;
}

/** What the drawing asks in every frame; it never waits. */
export interface Drawn {
  /**
   * Gives the sink what is known of a row (a level of a lane) in from…to, left to right, fit for `pixels` pixels: the
   * best that is here. What is missing is asked for in the background.
   */
  visit(lane: number, depth: number, from: number, to: number, pixels: number, sink: Sink): void;
  /** The samples of a counter that say what it is in from…to; null while nothing is known. */
  counter(lane: number, from: number, to: number, pixels: number): Series | null;
  /** Text of a mark, "" while it is not known here. */
  label(name: number, lane: number, event: number): string;
}

/**
 * What the numbers of lanes and events depend on: the profile, the nbprof that read it, and what that made of it. A report
 * may be older than the nbprof of its kernel.
 */
export const idsOf = (key: string, version: string, total: number, lanes: readonly Counted[]): string =>
  JSON.stringify([key, version, total, lanes.map(({ id, kind, events, depths }) => [id, kind, events, depths])]);

type Counted = Pick<LaneHead, "id" | "kind" | "events" | "depths">;

export interface Source extends Answers, Drawn {
  readonly live: boolean;
  /** The same in all sources whose numbers mean the same. */
  readonly ids: string;
  /** What was derived, stacked or looks wrong, in sentences. */
  readonly notes: readonly string[];
  /** In drawing order. */
  readonly lanes: readonly LaneHead[];
  /** Length of the profile. */
  readonly end: number;
  readonly strip: Strip;
  /** All of the profile's events, and those that can be shown. */
  readonly total: number;
  readonly shown: number;
  /** Whether what is asked for is under way for longer than one would not notice. */
  readonly waiting: boolean;
  /** Whether the last frame lacked nothing: what it drew is as good as it gets. */
  readonly complete: boolean;
  /**
   * Tells what a frame was drawn of: levels depth…depth_to of lanes in from…to at `pixels` pixels, and the ones that come
   * next when one scrolls.
   */
  want(rows: readonly Rows[], near: readonly Rows[], from: number, to: number, pixels: number): void;
  /** Calls back when more can be drawn than before. */
  onMore(fn: () => void): void;
  /** What was recorded of slices that this source cannot tell: "arguments", "stacks". */
  readonly lacks: readonly string[];
  /** The search whose hits are marked. */
  setQuery(query: string): void;
  close(): void;
}
