/** What the tab "HLO & roofline" draws: the twin of nbprof/tools/roofline/payload.py. */

import type { DonutPart } from "./donut.js";
import type { Empty, Figure, Table } from "./payload.js";

/** How fast a memory is at most. */
interface Roof {
  /** "HBM", "Device memory" where that is no HBM, "Main memory" of a CPU, "VMEM Read". */
  label: string;
  bytes_per_second: number;
  /** FLOPs a byte at which it meets the peak; null where that is not known. */
  ridge: number | null;
}

/** All ops together, or those of an average step. */
export interface RoofMark {
  label: string;
  operational_intensity: number | null;
  flops_per_second: number | null;
  bytes_per_second: number | null;
  compute_fraction: number | null;
  bandwidth_fraction: number | null;
}

export interface Hlo {
  empty: Empty | null;
  figures: Figure[];
  /**
   * All columns of `p.hlo.frame` (rates in 10⁹ are called `gflops_per_second`, parts `self_percent`), then roof_percent, compute_percent,
   * bandwidth_percent; of PyTorch's ops columns of `p.roofline.frame` under the same names, `input_shapes`, `precision` and `wasted_us`
   * among them; hidden are `_intensity`, `_flops` and `_bytes` (of main memory; a second), and `_hue`, an index into CATEGORIES.
   */
  table: Table;
  /** What the table leaves out; "" when nothing. */
  left_out: string;
  donuts: { title: string; ms: number; parts: DonutPart[] }[];
  /** FLOP/s; null where it is not known. */
  peak_flops: number | null;
  /** The main memory first. */
  roofs: Roof[];
  marks: RoofMark[];
  device: string;
  /** Which peaks are not known, and the code that gives them. */
  missing: string;
  code: string;
}
