/** What Compare draws, without drawing it. */

import { numberAt } from "../../lib/codec.js";
import { MISSING, num, signed } from "../../lib/format.js";
import type { Compare, ComparedCategory, Pair, Table } from "../../lib/payload.js";
import { CATEGORIES, type CategoryKey } from "../../lib/payload.js";
import { niceMax, ticks } from "../../lib/scale.js";
import { capital, unitOf } from "../../lib/unit.js";

/** More dots than this say no more: of longer runs every nth step is drawn. */
const MOST_DOTS = 800;

export const MOST_TICKS = 9;

/** A change as it is written: 0.00 where it rounds to that, whatever its sign. */
export const changed = (value: number | null, digits: number): string =>
  value !== null && Number(Math.abs(value).toFixed(digits)) === 0 ? num(0, digits) : signed(value, digits);

/** The pair of two runs. */
export const pairOf = (part: Compare, before: number, after: number): Pair | undefined =>
  part.pairs.find((pair) => pair.before === before && pair.after === after);

/** Both runs after one was picked: picking what the other side has swaps them. */
export function picked(pair: { before: number; after: number }, side: "before" | "after", run: number) {
  const other = side === "before" ? "after" : "before";
  return { ...pair, [side]: run, [other]: pair[other] === run ? pair[side] : pair[other] };
}

const sorted = (values: ArrayLike<number>): number[] => Array.from(values).sort((a, b) => a - b);

export const mean = (values: ArrayLike<number>): number =>
  Array.from(values).reduce((sum, value) => sum + value, 0) / values.length;

/** Where the axis of step times ends: above all, or above 95 of 100 where a few take over four times the median. */
export function axisEnd(runs: readonly ArrayLike<number>[]): number {
  const tops = runs.map((times) => {
    const order = sorted(times);
    const top = order.at(-1) ?? 0;
    const median = order[Math.floor(order.length / 2)] ?? 0;
    const most = order[Math.ceil(0.95 * order.length) - 1] ?? 0;
    return top > 4 * median ? Math.max(most, mean(times)) : top;
  });
  const top = Math.max(0, ...tops);
  const nice = niceMax(top);
  // Not the next of few round numbers: the two runs shall have all the room. The next tick of that axis is enough.
  return ticks(nice, MOST_TICKS).find((tick) => tick >= top * (1 - 1e-9) && tick > 0) ?? nice;
}

/** Of the texts below an axis of `width` px, each how manyth has room: a digit takes 7 px, and the last one ends at the edge. */
export function labelEvery(texts: readonly string[], width: number): number {
  const longest = Math.max(0, ...texts.map((text) => text.length));
  const need = 1.5 * longest * 7 + 8;
  return Math.max(1, Math.ceil((need * (texts.length - 1)) / Math.max(1, width)));
}

export interface Dot {
  value: number;
  /** −1…1, so that equal steps are told apart. */
  off: number;
}

/** The dots of a run that the axis has room for, and how many lie beyond. */
export function dots(times: ArrayLike<number>, end: number): { dots: Dot[]; beyond: number; longest: number } {
  const stride = Math.ceil(times.length / MOST_DOTS);
  const placed: Dot[] = [];
  let beyond = 0;
  let longest = 0;
  for (let i = 0; i < times.length; i++) {
    const value = times[i] as number;
    longest = Math.max(longest, value);
    if (value > end) beyond++;
    // Multiples of the golden ratio fill the height evenly and are the same each time.
    else if (i % stride === 0) placed.push({ value, off: ((i * 0.618034) % 1) * 2 - 1 });
  }
  return { dots: placed, beyond, longest };
}

export interface CategoryRow extends ComparedCategory {
  css: string;
  label: string;
}

/** The categories that a run recorded, largest first, and those that neither did. The step itself stands last. */
export function categoryRows(pair: Pair): { rows: CategoryRow[]; missing: CategoryKey[] } {
  const largest = (row: ComparedCategory): number => Math.max(row.before_ms ?? 0, row.after_ms ?? 0);
  const rows: CategoryRow[] = [];
  const missing: CategoryKey[] = [];
  for (const { key, css, label } of CATEGORIES) {
    const row = pair.categories.find((each) => each.key === key);
    if (row && (row.before_ms !== null || row.after_ms !== null)) rows.push({ ...row, css, label });
    else missing.push(key);
  }
  rows.sort((a, b) => largest(b) - largest(a));
  const step = pair.categories.find((row) => row.key === "step_time");
  if (step && (step.before_ms !== null || step.after_ms !== null))
    rows.push({ ...step, css: "mem", label: capital(unitOf(pair).noun) });
  return { rows, missing };
}

/** Left edge and width in % of a bar that grows from the middle, for a change on a scale of −most…most. */
export function fromZero(change: number | null, most: number): { left: number; width: number } | null {
  if (!change || !Number.isFinite(change) || !(most > 0)) return null;
  const width = Math.min(50, Math.max((Math.abs(change) / most) * 50, 0.8));
  return { left: change < 0 ? 50 - width : 50, width };
}

/** "−97%"; "–" where nothing changed, or nothing was there before. */
export function percentOf(row: ComparedCategory, digits: number): string {
  const { change_percent: percent, change_ms: change } = row;
  if (percent === null || change === null || Number(Math.abs(change).toFixed(digits)) === 0) return MISSING;
  const size = Math.abs(percent);
  return `${signed(percent, size < 10 ? 1 : 0)}%`;
}

/** A figure in the room of a card: 20.0k for 20,000. */
export function compact(value: number | null, digits: number): string {
  if (value !== null && Math.abs(value) >= 10_000) {
    const [scale, letter] = Math.abs(value) >= 1e6 ? ([1e6, "M"] as const) : ([1e3, "k"] as const);
    return `${num(value / scale, 1)}${letter}`;
  }
  return num(value, digits);
}

/** The text of a change, with a plus where it is one: the minus is part of it already. */
export const withSign = (text: string, change: number): string =>
  change > 0 && /[1-9]/.test(text) ? `+${text}` : text;

/** A tree of calls with the time that gives each its width. */
export interface Calls {
  parent(row: number): number;
  /** The calls of a row, longest of both runs first; of -1 the outermost ones. */
  inside(row: number): readonly number[];
  time(row: number): number;
  /** The largest change of self time that is more than chance. */
  most: number;
}

/** The calls of a table with the times of one side. */
export function callsOf({ data, rows }: Table, side: "before" | "after"): Calls {
  const inside = new Map<number, number[]>();
  let most = 0;
  for (let row = 0; row < rows; row++) {
    const caller = numberAt(data["_parent"], row);
    const siblings = inside.get(caller);
    if (siblings) siblings.push(row);
    else inside.set(caller, [row]);
    if (!numberAt(data["_chance"], row)) most = Math.max(most, Math.abs(numberAt(data["self_change_ms"], row)) || 0);
  }
  return {
    parent: (row) => numberAt(data["_parent"], row),
    inside: (row) => inside.get(row) ?? [],
    time: (row) => numberAt(data[`${side}_total_ms`], row) || 0,
    most,
  };
}

export interface CallBox {
  row: number;
  /** Parts of the whole width. */
  left: number;
  width: number;
  level: number;
}

/** Narrower boxes cannot be seen, at least not with what they call. */
const LEAST_WIDTH = 0.002;

/** A box for each call that can be seen below `root` (-1: all), which fills the width. */
export function boxes(calls: Calls, root: number): CallBox[] {
  const first = root < 0 ? calls.inside(-1) : [root];
  const whole = first.reduce((sum, row) => sum + calls.time(row), 0);
  const placed: CallBox[] = [];
  const place = (rows: readonly number[], start: number, level: number): void => {
    let left = start;
    for (const row of rows) {
      const width = calls.time(row) / whole;
      if (width >= LEAST_WIDTH) {
        placed.push({ row, left, width, level });
        place(calls.inside(row), left, level + 1);
      }
      left += width;
    }
  };
  if (whole > 0) place(first, 0, 0);
  return placed;
}

/** What `nameOf` says of a call and its callers, the outermost first. */
export function pathOf(calls: Calls, row: number, nameOf: (row: number) => string): string[] {
  const path: string[] = [];
  for (let each = row; each >= 0; each = calls.parent(each)) path.unshift(nameOf(each));
  return path;
}
