/** PyTorch's allocator: the twin of nbprof/tools/allocator/payload.py. */

import type { Coded, Empty, Figure, NumberArray, Table } from "./payload.js";

export interface AllocatorDevice {
  device: number;
  /** "GPU 0", or what else its devices are called. */
  name: string;
  figures: Figure[];
  /** The moment of figures, map and tables: "at the snapshot", or when memory ran out. */
  when: string;
  /** Times that memory ran out, the last first. */
  ooms: { when: string; text: string; remedy: string }[];
  /** Entries of the history, of which some are in the columns: the highest and lowest of each stretch. */
  entries: number;
  /** Whether `x` is ms; else it is the number of the entry. */
  timed: boolean;
  x: NumberArray;
  reserved: NumberArray;
  allocated: NumberArray;
  active: NumberArray;
  action: Coded;
  size: NumberArray;
  where: Coded;
  oom_at: NumberArray;
  /** Most stranded memory first. */
  segments: { rows: number; size: NumberArray; stranded: NumberArray; name: Coded };
  /** By segment and place in it; `state` 0 free, 1 in use, 2 to be freed; `stack` lines, innermost first. */
  blocks: {
    rows: number;
    segment: NumberArray;
    offset: NumberArray;
    size: NumberArray;
    state: NumberArray;
    stranded: NumberArray;
    stack: Coded;
  };
  /** A sentence about segments that are not drawn. */
  map_more: string;
  /** location, pinned_bytes, alone_bytes, blocks, bytes, segments, largest_hole_bytes, stack. */
  stranded: Table;
  stranded_more: number;
  /** location, bytes, blocks. */
  holders: Table;
}

export interface Allocator {
  empty: Empty | null;
  devices: AllocatorDevice[];
  notes: string[];
  left_out: string;
}
