/** The trace as Python sends it: a part of the payload, see payload.ts. */

import type { Coded, Empty } from "./payload.js";

/**
 * One track of the trace: slices sorted by start; `depth` is the level at which each is drawn (slices of one level never
 * overlap). Ticks are `Trace.tick_ns` nanoseconds since the origin of the profile.
 */
export interface Lane {
  /** The same in the saved report and in a live source. */
  id: number;
  /** Section heading ("GPU 0", "Host"). */
  process: string;
  name: string;
  /** Small text at the right of the label ("compute", "main"). */
  note: string;
  kind: "steps" | "device" | "host" | "counter";
  /** Events on this lane in the profile (of a counter: samples); those that are here are as many as `start` is long. */
  events: number;
  /** Levels in the profile. */
  depths: number;
  start: Uint32Array;
  duration: Uint32Array;
  name_code: Uint32Array | Uint16Array | Uint8Array;
  depth: Uint8Array | Uint16Array;
  /** Ticks of what lies inside of each, which is no self time of its own. */
  inside?: Uint32Array | Uint16Array | Uint8Array;
  /** Self time in ticks: in reports of 0.2 and before instead. */
  self?: Uint32Array;
  /** Of work on a device: 1 + the place of its framework op among the names, 0 where none is known. */
  op?: Uint32Array | Uint16Array | Uint8Array;
  /** Number of each event in the profile: what a live source calls it. */
  event: Uint32Array;
  /** Collapsed at first (threads with little in them). */
  folded: boolean;
  /** Made from what was recorded rather than recorded. */
  derived: boolean;
  /** Of a counter: ns since the origin, what it is from then on, and what that is in. */
  time?: Float64Array | Int32Array | Uint32Array;
  value?: Float64Array | Float32Array | Uint32Array | Uint16Array | Uint8Array;
  unit?: "bytes" | "percent" | "count";
}

/** How busy the events keep a row that were left out: one row a lane and level that has such. */
interface Rest {
  /** Equal parts of `from`…`to`. */
  bins: number;
  /** Ticks: from the first to the last event that was left out. */
  from: number;
  to: number;
  /** By row: the id of its lane, its level, how many events were left out of it. */
  lane: Uint32Array;
  depth: Uint16Array;
  count: Uint32Array;
  /** Share of row r's part b that they take, 0…255, at r × bins + b; where there is any, at least 1. */
  busy: Uint8Array;
}

/** The whole profile in equal parts, 0…255; empty where a report does not hold it. */
export interface Strip {
  /** Input. */
  above: Uint8Array;
  /** The device; without one, how many of the host's threads are busy. */
  below: Uint8Array;
  below_is: "device" | "host";
}

/** The longest stretches in which nothing ran on a device, longest first. */
export interface Gaps {
  /** Its section ("GPU 0"). */
  process: Coded;
  /** ns since the origin, and ns. */
  start: Float64Array;
  duration: Float64Array;
}

/** Which slices belong together, by the numbers of their events. */
export interface Links {
  /** By arrow: 0 launch to work, 1 producer to consumer, 2 forward to backward, 3 any other of the file; both ends are here. */
  kind: Uint8Array;
  from: Uint32Array;
  to: Uint32Array;
  /** Arrows that were too many. */
  left_out: number;
  /** Work on a device whose launch is not here: the lane that the launch is on, and by how many ticks the work began later. */
  work: Uint32Array;
  on: Uint32Array | Uint16Array | Uint8Array;
  delay: Int32Array;
}

export interface Trace {
  empty: Empty | null;
  /** What a kernel or server calls this profile; "" where none can be asked. */
  key: string;
  tick_ns: number;
  /** Where the time of the trace begins on the clock of the other views: 0, or less where an event lies before the profile. */
  origin_ns: number;
  /** Length of the profile in ticks. */
  end: number;
  names: string[];
  /** By name: index into CATEGORIES + 1, or 0 when the name belongs to no step-time category. */
  category: Uint8Array;
  lanes: Lane[];
  shown: number;
  total: number;
  rest: Rest;
  strip: Strip;
  gaps: Gaps;
  links: Links;
  /** What was recorded of the slices and is not here: "arguments", "stacks". */
  lacks: string[];
  /** What was derived, stacked or looks wrong, in sentences. */
  notes: string[];
}
