/** What each core of the TPUs did: the twin of nbprof/tools/pods/cores.py. */

import type { Column, NumberArray, Table } from "./payload.js";

export interface Cores {
  /** Columns of what a core did, in stack order: those on which any core spent time. */
  kinds: string[];
  /** The columns of the table of one step. */
  heads: Column[];
  /** worker (the core), chip, mean_step_ms and the mean of each kind. */
  table: Table;
  /** The rows of step i of `Pods.step` are first[i] … first[i + 1] of these columns; empty where the report has the means alone. */
  first: Uint32Array;
  /** Row of `table`. */
  core: NumberArray;
  time_ms: Float32Array;
  parts: Record<string, Float32Array>;
  /** Sentences on what is not to be seen. */
  note: string;
}
