/** Memory of the compiled programs: the twin of nbprof/tools/memory_viewer/payload.py. */

import type { Coded, Empty, Figure, NumberArray, Table } from "./payload.js";

/** The memory of a program in one memory space. */
export interface ProgramSpace {
  /** 0: the device's main memory. */
  space: number;
  figures: Figure[];
  /** Sentences: what could not be followed. */
  notes: string[];
  peak_bytes: number;
  unpadded_bytes: number;
  /** What parameters, results and constants take all the time. */
  throughout_bytes: number;
  total_bytes: number;
  /** Program point at which the peak is reached, -1 where there is no heap. */
  peak: number;
  /** Program points, of which `rows` are in the columns: the largest and the least of each stretch, and the peak. */
  points: number;
  rows: number;
  position: NumberArray;
  instruction: Coded;
  allocated_bytes: NumberArray;
  unpadded: NumberArray;
  /** The largest buffers alive at the peak in program order: buffer, category, size_bytes, unpadded_bytes, padding_ratio, shape,
   *  framework_op, allocation, start, end, opcode, source. */
  buffers: Table;
  /** How many smaller ones are left out, and their bytes. */
  rest_count: number;
  rest_bytes: number;
}

export interface ProgramMemory {
  name: string;
  hosts: number;
  /** The only one of several hosts that recorded it, where its name does not say so; else "". */
  host: string;
  peak_bytes: number;
  /** Time of its ops on devices; null where it is not known. */
  time_ms: number | null;
  spaces: ProgramSpace[];
}

export interface MemoryViewer {
  empty: Empty | null;
  /** The largest peak first. */
  modules: ProgramMemory[];
  /** The module and its memory space to open with, as places in `modules` and `spaces`; the first of each when absent. */
  chosen?: [module: number, space: number];
  /** A sentence about the programs that are not here; "" when all are. */
  left_out: string;
}
