/** What Compare draws, without drawing it. */

import { MISSING, num, signed } from "../../lib/format.js";
import type { Compare, ComparedCategory, Pair } from "../../lib/payload.js";
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
