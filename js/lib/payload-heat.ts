/** Workers by steps as one picture: the twin of nbprof/tools/pods/heat.py. */

import type { NumberArray } from "./payload.js";

export interface HeatLayer {
  /** "step_time", or the key of a category. */
  key: string;
  /** By row and then by column, in `unit_ms` of the column; 65535 where it was not recorded. */
  codes: NumberArray;
  /** By column: of the median worker. */
  median_ms: Float32Array;
  /** By row: how far it is from the median worker, in percent of the median step time, mean over the columns that count. */
  mean_percent: Float32Array;
  /** Where the colours end. */
  limit_percent: number;
  low_ms: number;
  high_ms: number;
}

export interface Heat {
  /** Workers, by name. */
  rows: NumberArray;
  /** By column: numbers of its first and its last step. */
  first: Int32Array;
  last: Int32Array;
  unit_ms: Float32Array;
  /** By column: the step time of the median worker. */
  median_ms: Float32Array;
  /** By cell: how many steps after the first one of its column is the step that it shows; absent where a column is one step. */
  at?: NumberArray;
  /** By column: 1 where no step counts in averages. Absent: none. */
  warmup?: Uint8Array;
  layers: HeatLayer[];
  /** The layer that is shown first. */
  show: string;
  /** What of the run it leaves out; "" when nothing. */
  note: string;
}
