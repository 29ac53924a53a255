/**
 * One row of saved slices: a nesting level of a lane, with what is needed to draw any window of it
 * at a cost of its pixels, whatever the number of slices. Times are those of the lane (ticks), or all of them ns.
 */

import type { Lane } from "../../lib/payload.js";
import { lowest } from "../../lib/search.js";

export interface Row {
  /** Index of each slice in its lane, by start. */
  slice: Uint32Array;
  start: Float64Array;
  end: Float64Array;
  /** The latest end so far: grows even where slices overlap, so a window can be searched for. */
  reach: Float64Array;
  /** Sum of the durations before each slice; one more entry than slices. */
  busy: Float64Array;
  /** Longest slice of each block of 2^k: level 0 is blocks of two. */
  longest: Uint32Array[];
}

/** The rows of a lane, outermost first. */
export function rowsOf(lane: Lane): Row[] {
  const n = lane.start.length;
  const sizes: number[] = [];
  for (let i = 0; i < n; i++) {
    const depth = lane.depth[i] as number;
    while (sizes.length <= depth) sizes.push(0);
    sizes[depth] = (sizes[depth] as number) + 1;
  }
  const members = sizes.map((size) => new Uint32Array(size));
  const filled = sizes.map(() => 0);
  for (let i = 0; i < n; i++) {
    const depth = lane.depth[i] as number;
    (members[depth] as Uint32Array)[filled[depth] as number] = i;
    filled[depth] = (filled[depth] as number) + 1;
  }
  return members.map((slice) => row(lane, slice));
}

function row(lane: Lane, slice: Uint32Array): Row {
  const n = slice.length;
  const start = new Float64Array(n);
  const end = new Float64Array(n);
  const reach = new Float64Array(n);
  const busy = new Float64Array(n + 1);
  for (let i = 0; i < n; i++) {
    const k = slice[i] as number;
    const from = lane.start[k] as number;
    const duration = lane.duration[k] as number;
    start[i] = from;
    end[i] = from + duration;
    reach[i] = i ? Math.max(reach[i - 1] as number, from + duration) : from + duration;
    busy[i + 1] = (busy[i] as number) + duration;
  }
  return { slice, start, end, reach, busy, longest: pyramid(start, end) };
}

/** By level, the position of the longest slice of each block of two, four, eight… */
function pyramid(start: Float64Array, end: Float64Array): Uint32Array[] {
  const levels: Uint32Array[] = [];
  const longer = (a: number, b: number): number =>
    (end[b] as number) - (start[b] as number) > (end[a] as number) - (start[a] as number) ? b : a;
  let size = start.length;
  let below: Uint32Array | null = null;
  while (size > 1) {
    const half: number = (size + 1) >> 1;
    const level: Uint32Array = new Uint32Array(half);
    for (let i = 0; i < half; i++) {
      const left: number = below ? (below[2 * i] as number) : 2 * i;
      const right: number = 2 * i + 1 < size ? (below ? (below[2 * i + 1] as number) : 2 * i + 1) : left;
      level[i] = longer(left, right);
    }
    levels.push(level);
    below = level;
    size = half;
  }
  return levels;
}

/** Position of the longest slice in first…last (excluded); the first of equals. Needs at least one slice. */
export function longestOf(row: Row, first: number, last: number): number {
  let best = first;
  const length = (i: number): number => (row.end[i] as number) - (row.start[i] as number);
  let i = first;
  while (i < last) {
    // The largest block that begins here and stays inside.
    let level = 0;
    while (level < row.longest.length && i % (2 << level) === 0 && i + (2 << level) <= last) level++;
    const candidate = level ? ((row.longest[level - 1] as Uint32Array)[i >> level] as number) : i;
    if (length(candidate) > length(best)) best = candidate;
    i += 1 << level;
  }
  return best;
}

/** Positions of the slices that touch the window: first, and one past the last. */
export function visible(row: Row, from: number, to: number): [first: number, last: number] {
  const n = row.slice.length;
  const first = lowest(n, (i) => (row.reach[i] as number) >= from);
  const last = lowest(n, (i) => (row.start[i] as number) > to);
  return [first, Math.max(first, last)];
}

/**
 * What is drawn of a row in a window, left to right: `mark(first, last, at, busy)` for the slices first…last (excluded),
 * the longest of which is `at`; `busy` is their share of the bin, 1 for a slice of its own.
 *
 * A slice of a bin or more gets a mark of its own, shorter ones that start in one bin get one together. Bins begin
 * at 0, not at the window: what is drawn does not change while the window moves.
 */
export function eachMark(
  row: Row,
  from: number,
  to: number,
  bin: number,
  mark: (first: number, last: number, longest: number, busy: number) => void,
): void {
  const [first, last] = visible(row, from, to);
  for (let i = first; i < last; ) {
    const start = row.start[i] as number;
    const end = row.end[i] as number;
    if (end < from || end - start >= bin) {
      if (end >= from) mark(i, i + 1, i, 1);
      i++;
      continue;
    }
    // All short ones that start in this bin, found without visiting them; a long one ends the run.
    const border = (Math.floor(start / bin) + 1) * bin;
    const stop = shortRun(row, i, startsFrom(row, i + 1, last, border), bin);
    const busy = stop === i + 1 ? 1 : ((row.busy[stop] as number) - (row.busy[i] as number)) / bin;
    mark(i, stop, longestOf(row, i, stop), Math.min(1, busy));
    i = stop;
  }
}

/** The first in low…high that starts at `time` or later, high if none does; few steps where it is near. */
function startsFrom(row: Row, low: number, high: number, time: number): number {
  let reach = 1;
  while (low + reach < high && (row.start[low + reach] as number) < time) reach *= 2;
  let left = low + (reach >> 1);
  let right = Math.min(high, low + reach);
  while (left < right) {
    const middle = (left + right) >> 1;
    if ((row.start[middle] as number) >= time) right = middle;
    else left = middle + 1;
  }
  return left;
}

/** End of the run of slices shorter than a bin that begins at `first`. */
function shortRun(row: Row, first: number, last: number, bin: number): number {
  const longestIndex = longestOf(row, first, last);
  if ((row.end[longestIndex] as number) - (row.start[longestIndex] as number) < bin) return last;
  // At most one slice of a bin or more can start in a bin unless slices overlap: look for the first.
  return lowest(
    longestIndex,
    (i) => {
      const longest = longestOf(row, first, i + 1);
      return (row.end[longest] as number) - (row.start[longest] as number) >= bin;
    },
    first + 1,
  );
}

/** Busy time of from…to in which at least one of the rows has a slice. */
export function covered(rows: readonly Row[], from: number, to: number): number {
  const parts: [number, number][] = [];
  for (const row of rows) {
    const [first, last] = visible(row, from, to);
    for (let i = first; i < last; i++) {
      const start = Math.max(from, row.start[i] as number);
      const end = Math.min(to, row.end[i] as number);
      if (end > start) parts.push([start, end]);
    }
  }
  parts.sort((a, b) => a[0] - b[0]);
  let sum = 0;
  let until = from;
  for (const [start, end] of parts) {
    if (end <= until) continue;
    sum += end - Math.max(start, until);
    until = end;
  }
  return sum;
}
