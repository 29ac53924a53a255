/** The allocations alive at the peak: the large ones, and how much the rest is. */

import { numberAt } from "../../lib/codec.js";
import type { Table } from "../../lib/payload.js";

/** Rows by allocated bytes, most first. */
export function bySize(peak: Table): Uint32Array {
  const size = (row: number): number => numberAt(peak.data.allocated_bytes, row) || 0;
  return Uint32Array.from({ length: peak.rows }, (_, i) => i).sort((a, b) => size(b) - size(a) || a - b);
}

const occurrences = (peak: Table, row: number): number => {
  const count = numberAt(peak.data.occurrences, row);
  return Number.isNaN(count) ? 1 : count;
};

export interface Sum {
  count: number;
  requested_bytes: number;
  allocated_bytes: number;
  percent: number;
}

/** What rows add up to; a row counts as often as it occurs. */
export function total(peak: Table, rows: ArrayLike<number>): Sum {
  const sum: Sum = { count: 0, requested_bytes: 0, allocated_bytes: 0, percent: 0 };
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i] as number;
    const n = occurrences(peak, row);
    sum.count += n;
    sum.requested_bytes += n * (numberAt(peak.data.requested_bytes, row) || 0);
    sum.allocated_bytes += n * (numberAt(peak.data.allocated_bytes, row) || 0);
    sum.percent += numberAt(peak.data.percent, row) || 0;
  }
  return sum;
}

/** The first rows, and those that are folded: all beyond the twelfth, unless that is only one. */
export function split(order: Uint32Array, first = 12): { shown: Uint32Array; smaller: Uint32Array } {
  const at = order.length <= first + 1 ? order.length : first;
  return { shown: order.slice(0, at), smaller: order.slice(at) };
}
