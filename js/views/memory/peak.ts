/** The allocations alive at the peak: the large ones, and how much the rest is. */

import { numberAt, textAt } from "../../lib/codec.js";
import type { MemoryId, Table } from "../../lib/payload.js";
import { allRows } from "../../lib/rows.js";

/** Rows by allocated bytes, most first. */
export function bySize(peak: Table): Uint32Array {
  const size = (row: number): number => numberAt(peak.data.allocated_bytes, row) || 0;
  return allRows(peak).sort((a, b) => size(b) - size(a) || a - b);
}

const occurrences = (peak: Table, row: number): number => {
  const count = numberAt(peak.data.occurrences, row);
  return Number.isNaN(count) ? 1 : count;
};

/** Names of nbprof/analysis/memory/alive.py for bytes of which it is not known how many blocks they are. */
const UNTOLD = "in use; the file has no addresses to tell blocks apart";
const EARLIER = "allocated before the recording";

/** Whether a row is bytes in use of which no block is known. */
export function isRest(table: Table, row: number): boolean {
  const name = textAt(table.data.op, row);
  return name === UNTOLD || name === EARLIER;
}

export interface Sum {
  count: number;
  requested_bytes: number;
  allocated_bytes: number;
  percent: number;
}

/** What rows add up to: each has the bytes of all its blocks. */
export function total(peak: Table, rows: ArrayLike<number>): Sum {
  const sum: Sum = { count: 0, requested_bytes: 0, allocated_bytes: 0, percent: 0 };
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i] as number;
    sum.count += occurrences(peak, row);
    sum.requested_bytes += numberAt(peak.data.requested_bytes, row) || 0;
    sum.allocated_bytes += numberAt(peak.data.allocated_bytes, row) || 0;
    sum.percent += numberAt(peak.data.percent, row) || 0;
  }
  return sum;
}

/** The first rows, and those that are folded: all beyond the twelfth, unless that is only one. */
export function split(order: Uint32Array, first = 12): { shown: Uint32Array; smaller: Uint32Array } {
  const end = order.length <= first + 1 ? order.length : first;
  return { shown: order.slice(0, end), smaller: order.slice(end) };
}

/** The blocks alive after drawn event `k`: the columns of the table at the peak. What is in use beyond them is one row. */
export function aliveAt(id: MemoryId, k: number): Table {
  const { moments } = id;
  type Row = { texts: string[]; requested: number; allocated: number; count: number };
  const rows: Row[] = [];
  const add = (bytes: number, texts: string[], count = 1): void => {
    // Where the region is not told, neither is what was asked for.
    const requested = texts[1] ? bytes : Number.NaN;
    if (bytes > 0 && count > 0) rows.push({ texts, requested, allocated: bytes, count });
  };
  const stack = id.stack_bytes[k] as number;
  const rest = ["", "unknown"];
  const moment = moments ? moments.point.indexOf(k) : -1;
  let beyond = id.heap_bytes[k] as number;
  if (moments && moment >= 0) {
    const { data } = moments.blocks;
    const counts = new Map<number, number>();
    for (let i = 0; i < moments.moment.length && (moments.moment[i] as number) <= moment; i++) {
      const block = moments.block[i] as number;
      counts.set(block, (counts.get(block) ?? 0) + (moments.change[i] as number));
    }
    for (const [block, count] of counts) {
      if (!(count > 0)) continue;
      const allocated = numberAt(data["allocated_bytes"], block);
      beyond -= count * allocated;
      const texts = TEXTS.map((key) => textAt(data[key], block));
      const requested = count * numberAt(data["requested_bytes"], block);
      rows.push({ texts, requested, allocated: count * allocated, count });
    }
    const small = moments.smaller_bytes[moment] as number;
    add(small, ["blocks too small for this report"], moments.smaller_count[moment]);
    beyond -= small;
  }
  if (!moments) add(beyond, [UNTOLD]);
  // As p.memory.at has it: allocators that state their stack are followed from the begin of a step.
  else add(beyond, Number.isNaN(stack) ? [moments.rest] : [moments.rest, "persist/dynamic", ...rest]);
  add(stack, ["stack", "stack", ...rest]);
  rows.sort((a, b) => b.allocated - a.allocated);
  const use = id.in_use_bytes[k] as number;
  const numbers = (read: (row: Row) => number): Float64Array => Float64Array.from(rows, read);
  return {
    columns: id.peak.columns,
    rows: rows.length,
    data: {
      ...Object.fromEntries(TEXTS.map((key, i) => [key, rows.map((row) => row.texts[i] ?? "")])),
      requested_bytes: numbers((row) => row.requested),
      allocated_bytes: numbers((row) => row.allocated),
      percent: numbers((row) => (use > 0 ? (100 * row.allocated) / use : Number.NaN)),
      occurrences: numbers((row) => row.count),
    },
  };
}

const TEXTS = ["op", "region_type", "data_type", "shape"] as const;
