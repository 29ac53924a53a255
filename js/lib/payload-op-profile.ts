/** The op profile of compiled programs: the twin of nbprof/tools/op_profile/payload.py. */

import type { Coded, Column, Empty, Figure, Marked, NumberArray } from "./payload.js";

/** Of all runs. FLOPs of 8 bits count half, of 4 bits a quarter; bytes are those of main memory. NaN: not known. */
interface Sums {
  rows: number;
  time_us: NumberArray;
  /** The part of the time of which neither FLOPs nor bytes are known. */
  unknown_us: NumberArray;
  flops: NumberArray;
  bytes: NumberArray;
  runs: NumberArray;
}

export interface OpProfile {
  empty: Empty | null;
  /** "cpu": threads of the host ran the ops. */
  where: "device" | "cpu";
  device: string;
  /** Of one device in a second; null where not known. */
  peak_flops: number | null;
  peak_bytes: number | null;
  /** A rate so many times the peak is none. */
  impossible: number;
  /** Time in which devices ran nothing; null where that is not known. */
  idle_us: number | null;
  figures: Figure[];
  statement: Marked;
  notes: string[];
  /** time_fraction, time_us, wasted_us, flops_utilization, bandwidth_utilization, occurrences. */
  heads: Column[];
  /** The ops with most time, most first; `duplicate` is '' where an op has none. */
  ops: Sums & {
    program: Coded;
    name: Coded;
    category: Coded;
    duplicate: Coded;
    framework_op: Coded;
    source: Coded;
    expression: Coded;
    shape: Coded;
    layout: Coded;
    /** What the runs go by in the trace, and the longest of them: ms after the begin of the profile. */
    trace_op: Coded;
    at_ms: NumberArray;
    for_ms: NumberArray;
    in_file: NumberArray;
    /** Ops inside it that `inside` does not have. */
    inside_left_out: NumberArray;
  };
  /** All others, summed by program and category ('' of the last row where there are too many pairs). */
  rest: Sums & { program: Coded; category: Coded; ops: NumberArray };
  /** Ops inside the fusions: `op` is the row of `ops`. */
  inside: {
    rows: number;
    op: NumberArray;
    name: Coded;
    category: Coded;
    flops: NumberArray;
    expression: Coded;
    shape: Coded;
  };
  /** What ops make and read: `padded` is the shape as long as it is in memory, '' where no dimension tells. */
  arrays: {
    rows: number;
    op: NumberArray;
    role: Coded;
    shape: Coded;
    layout: Coded;
    padded: Coded;
    bytes: NumberArray;
    padded_bytes: NumberArray;
  };
}
