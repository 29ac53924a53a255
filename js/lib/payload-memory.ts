/** The memory over time: what `payload.ts` names `Memory`. */

import type { Coded, Empty, Figure, Marked, NumberArray, Table } from "./payload.js";

export interface MemoryId {
  memory_id: string;
  figures: Figure[];
  capacity_bytes: number;
  peak_bytes: number;
  peak_time_ms: number;
  peak_step: number | null;
  /** Rows of the timeline in time order; `total` counts those before sampling (the peak is always kept). */
  total: number;
  time_ms: Float64Array;
  /** 1 allocation, 0 deallocation */
  allocation: Uint8Array;
  requested_bytes: NumberArray;
  allocated_bytes: NumberArray;
  op: Coded;
  step: Int32Array;
  region_type: Coded;
  data_type: Coded;
  shape: Coded;
  stack_bytes: NumberArray;
  heap_bytes: NumberArray;
  free_bytes: NumberArray;
  /** 0…1 */
  fragmentation: NumberArray;
  in_use_bytes: NumberArray;
  /** Allocations alive at the peak: op, region_type, data_type, shape, requested_bytes, allocated_bytes, percent, occurrences. */
  peak: Table;
  /** What is alive at every drawn event; null where blocks cannot be told apart. */
  moments: Moments | null;
  /** Bytes that each op took and gave back: op, allocations, allocated_bytes, deallocations, freed_bytes, increase_bytes. */
  ops: Table;
  /** How many ops with less are not in it; absent where it has all. */
  ops_left_out?: string;
}

/** Blocks alive at the drawn events, as what changes from one moment to the next. */
interface Moments {
  /** By moment: index of its event. Moments are in the order of their steps, then in time. */
  point: NumberArray;
  /** Kinds of blocks: op, region_type, data_type, shape, requested_bytes, allocated_bytes. */
  blocks: Table;
  /** At which moment (ascending) how many more or fewer of which row of `blocks` are alive than at the one before. */
  moment: NumberArray;
  block: NumberArray;
  change: NumberArray;
  /** By moment, of the blocks too small to be told one by one: their bytes and how many they are. */
  smaller_bytes: NumberArray;
  smaller_count: NumberArray;
  /** What the bytes of the heap beyond all these are called. */
  rest: string;
}

export interface Memory {
  empty: Empty | null;
  /** The one with the largest peak first. */
  ids: MemoryId[];
  /** Which host these are of, where hosts were read apart; else "". */
  of: Marked;
  /** The peaks of all hosts, the largest first, where hosts were read apart. */
  peaks: Table | null;
}
