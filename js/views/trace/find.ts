/** Search by name, the neighbours of a slice, and its numbers. */

import { reason } from "../../lib/dom.js";
import type { Lane, Trace } from "../../lib/payload.js";
import { matcher } from "../../lib/rows.js";
import type { Row } from "./rows.js";
import { longestOf, lowest, visible } from "./rows.js";

/** A slice: index of its lane and its index in the lane. */
export interface Slice {
  lane: number;
  index: number;
}

export const startOf = (trace: Trace, slice: Slice): number => trace.lanes[slice.lane]?.start[slice.index] ?? 0;
export const durationOf = (trace: Trace, slice: Slice): number => trace.lanes[slice.lane]?.duration[slice.index] ?? 0;
export const codeOf = (trace: Trace, slice: Slice): number => trace.lanes[slice.lane]?.name_code[slice.index] ?? 0;
export const nameOf = (trace: Trace, slice: Slice): string => trace.names[codeOf(trace, slice)] ?? "";

export interface Hits {
  slices: Slice[];
  /** By name: 1 when it matches. */
  names: Uint8Array;
  /** Why the expression cannot be used; then nothing matches. */
  error: string;
}

/** All slices whose name matches, by start. */
export function search(trace: Trace, query: string): Hits {
  const names = new Uint8Array(trace.names.length);
  let matches: ((name: string) => boolean) | null;
  try {
    matches = matcher(query);
  } catch (error) {
    return { slices: [], names, error: reason(error) };
  }
  if (!matches) return { slices: [], names, error: "" };
  for (let code = 0; code < names.length; code++) if (matches(trace.names[code] as string)) names[code] = 1;
  const slices: Slice[] = [];
  trace.lanes.forEach((lane, l) => {
    if (lane.kind === "counter") return;
    for (let i = 0; i < lane.start.length; i++)
      if (names[lane.name_code[i] as number]) slices.push({ lane: l, index: i });
  });
  slices.sort((a, b) => startOf(trace, a) - startOf(trace, b) || a.lane - b.lane || a.index - b.index);
  return { slices, names, error: "" };
}

/** Position of the longest hit, the first of equals; -1 without hits. */
export function longestHit(trace: Trace, hits: Hits): number {
  let best = -1;
  hits.slices.forEach((slice, i) => {
    if (best < 0 || durationOf(trace, slice) > durationOf(trace, hits.slices[best] as Slice)) best = i;
  });
  return best;
}

/** How many hits lie before each slice of a row, so that "any hit in here?" is a subtraction. */
export function hitSums(row: Row, lane: Lane, names: Uint8Array): Uint32Array {
  const sums = new Uint32Array(row.slice.length + 1);
  for (let i = 0; i < row.slice.length; i++) {
    const code = lane.name_code[row.slice[i] as number] as number;
    sums[i + 1] = (sums[i] as number) + (names[code] as number);
  }
  return sums;
}

/** Hits in each of `pixels` equal parts of the profile. */
export function hitStrip(trace: Trace, hits: Hits, pixels: number): Uint8Array {
  const strip = new Uint8Array(Math.max(0, pixels));
  const scale = pixels / Math.max(1, trace.end);
  for (const slice of hits.slices) {
    const at = Math.min(pixels - 1, Math.floor(startOf(trace, slice) * scale));
    if (at >= 0) strip[at] = 1;
  }
  return strip;
}

export type Direction = "previous" | "next" | "parent" | "child";

/** The slice beside, above or below another on its lane; null at the end. `rows` are those of the lane. */
export function neighbour(lane: Lane, rows: readonly Row[], index: number, direction: Direction): number | null {
  const depth = lane.depth[index] as number;
  const row = rows[depth];
  if (!row) return null;
  const start = lane.start[index] as number;
  const end = start + (lane.duration[index] as number);
  const at = lowest(row.slice.length, (i) => (row.slice[i] as number) >= index);
  if (direction === "previous") return at > 0 ? (row.slice[at - 1] as number) : null;
  if (direction === "next") return row.slice[at + 1] ?? null;
  if (direction === "parent") {
    const above = rows[depth - 1];
    if (!above) return null;
    const i = lowest(above.slice.length, (k) => (above.start[k] as number) > start) - 1;
    return i >= 0 && (above.end[i] as number) >= end ? (above.slice[i] as number) : null;
  }
  const below = rows[depth + 1];
  if (!below) return null;
  const [first, last] = visible(below, start, end);
  const inside = lowest(below.slice.length, (i) => (below.start[i] as number) >= start);
  const from = Math.max(first, inside);
  if (from >= last || (below.start[from] as number) >= end) return null;
  // The longest child: the one that explains most of its parent.
  return (
    below.slice[
      longestOf(
        below,
        from,
        Math.max(
          from + 1,
          lowest(last, (i) => (below.start[i] as number) >= end),
        ),
      )
    ] ?? null
  );
}

/** Duration against all slices of that name on lanes of the same kind: how many there are and their mean. */
export function peers(trace: Trace, slice: Slice): { count: number; mean: number } {
  const code = codeOf(trace, slice);
  const kind = trace.lanes[slice.lane]?.kind;
  let count = 0;
  let sum = 0;
  for (const lane of trace.lanes) {
    if (lane.kind !== kind) continue;
    for (let i = 0; i < lane.start.length; i++) {
      if (lane.name_code[i] !== code) continue;
      count++;
      sum += lane.duration[i] as number;
    }
  }
  return { count, mean: count ? sum / count : Number.NaN };
}
