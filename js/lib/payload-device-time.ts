/** The time of devices: the twin of nbprof/tools/device_time/payload.py. */

import type { Empty, Figure, Marked, Table } from "./payload.js";

/** A step function of time, as the largest value of each of so many equal boxes. */
export interface DeviceSeries {
  label: string;
  unit: string;
  from_ms: number;
  to_ms: number;
  most: Float32Array;
}

/** What a step could not have been shorter without. */
interface DevicePath {
  /** Name of the step; "" of the whole recording. */
  step: string;
  /** Where there are several. */
  host: string;
  /** Most time first. */
  kinds: { kind: string; total_us: number; percent: number }[];
  /** kind, name, op, pieces, total_us, percent, longest_us; where the longest piece lies in _at_ms and _for_ms. */
  table: Table;
  /** A sentence about the rows that are left out; "" when none is. */
  rest: string;
}

export interface DeviceTime {
  empty: Empty | null;
  statement: Marked;
  figures: Figure[];
  devices: string[];
  /** The whole recording, then steps. */
  windows: string[];
  /** ms of compute, communication, memory and idle, by window and device. */
  parts_ms: Float32Array;
  /** ms of waits for the host, between kernels and others, by device; null where nothing tells. */
  waits: (number | null)[][];
  streams: DeviceSeries[];
  /** By name of the frame: device_idle_causes, device_overlap, device_queue, device_launches, device_bandwidth, device_collectives, device_stragglers. */
  tables: Record<string, Table>;
  path: DevicePath;
  /** A sentence about rows that are not here; "" when all are. */
  left_out: string;
}
