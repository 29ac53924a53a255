/** Numbers of a range of steps: what the step chart and the tables beside it show. */

import { num } from "../lib/format.js";
import { CATEGORIES, type CategoryKey, type NumberArray, type Steps } from "../lib/payload.js";
import { niceMax } from "../lib/scale.js";
import type { Selection } from "../lib/store.js";

export interface Statistics {
  n: number;
  mean: number;
  /** Sample standard deviation (n − 1); NaN for fewer than two values. */
  sd: number;
  median: number;
  /** The smallest value that 95 % of all do not exceed. */
  p95: number;
  min: number;
  max: number;
}

/** Mean, sample standard deviation, median, p95, least and largest of the rows; rows without a value do not count. */
export function statistics(values: ArrayLike<number>, rows: ArrayLike<number>): Statistics {
  const sorted: number[] = [];
  let n = 0;
  let sum = 0;
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < rows.length; i++) {
    const value = values[rows[i] as number] as number;
    if (!Number.isFinite(value)) continue;
    n++;
    sorted.push(value);
    sum += value;
    if (value < min) min = value;
    if (value > max) max = value;
  }
  if (n === 0) {
    const none = Number.NaN;
    return { n, mean: none, sd: none, median: none, p95: none, min: none, max: none };
  }
  const mean = sum / n;
  sorted.sort((a, b) => a - b);
  const half = Math.floor(n / 2);
  const upper = sorted[half] as number;
  const median = n % 2 ? upper : ((sorted[half - 1] as number) + upper) / 2;
  const p95 = sorted[Math.ceil(0.95 * n) - 1] as number;
  let squares = 0;
  for (let i = 0; i < rows.length; i++) {
    const value = values[rows[i] as number] as number;
    if (Number.isFinite(value)) squares += (value - mean) ** 2;
  }
  return { n, mean, sd: n > 1 ? Math.sqrt(squares / (n - 1)) : Number.NaN, median, p95, min, max };
}

/** Rows of `steps` inside the selection; without one all but the leading steps that compile or warm up. */
export function selectedRows(steps: Steps, selection: Selection | null): number[] {
  const rows: number[] = [];
  steps.step.forEach((step, row) => {
    const inside = selection ? step >= selection.first && step <= selection.last : !steps.warmup?.[row];
    if (inside) rows.push(row);
  });
  return rows;
}

/**
 * How many earlier steps of its host have the number of each row: a number is a label, which repeats where epochs count anew. With its turn
 * it is the same step on all hosts.
 */
export function turns(steps: Steps): number[] {
  const seen = new Map<string, number>();
  return Array.from(steps.step, (step, row) => {
    const key = `${steps.host?.[row] ?? 0} ${step}`;
    const turn = seen.get(key) ?? 0;
    seen.set(key, turn + 1);
    return turn;
  });
}

/** How many steps some rows are, which several hosts may have each. */
export function countSteps(steps: Steps, rows: readonly number[]): number {
  const turn = turns(steps);
  return new Set(rows.map((row) => `${turn[row]} ${steps.step[row]}`)).size;
}

/** "32 steps", "2 steps on 2 ranks"; nothing of a single recording. */
export function stepCount(steps: Steps): string {
  const n = countSteps(steps, [...steps.step.keys()]);
  const { noun = "step", count } = steps;
  if (noun === "recording") return count ?? "";
  return count ?? `${num(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** "First step left out: compilation, warm-up." where the averages leave some out; "" otherwise. */
export function leftOutNote(steps: Steps, selection: Selection | null): string {
  const count = selection ? 0 : (steps.warmup?.reduce((sum, flag) => sum + (flag ? 1 : 0), 0) ?? 0);
  const { noun = "step" } = steps;
  if (!count) return "";
  return steps.left_out ?? `Averages exclude the first ${count === 1 ? noun : `${count} ${noun}s`} (warm-up).`;
}

export interface Part {
  key: CategoryKey;
  css: string;
  label: string;
  stats: Statistics;
  /** Of the time of all these steps, as in `p.steps.summary`: also where some recorded nothing of it. */
  percent: number;
}

/** The recorded categories over some rows, largest first, and those not recorded. */
export function breakdown(
  steps: Steps,
  rows: readonly number[],
): { total: Statistics; parts: Part[]; missing: CategoryKey[] } {
  const total = statistics(steps.step_time_ms, rows);
  const parts: Part[] = [];
  const missing: CategoryKey[] = [];
  for (const { key, css, label } of CATEGORIES) {
    const values: NumberArray | undefined = steps.categories[key];
    const stats = values && statistics(values, rows);
    if (stats && stats.n > 0) {
      parts.push({
        key,
        css,
        label: steps.labels?.[key] ?? label,
        stats,
        percent: total.mean > 0 ? ((stats.mean * stats.n) / (total.mean * total.n)) * 100 : Number.NaN,
      });
    } else missing.push(key);
  }
  parts.sort((a, b) => b.stats.mean - a.stats.mean);
  return { total, parts, missing };
}

/** One bar of the chart: a step, or the mean of several where there are more steps than room. */
export interface Bar {
  first: number;
  last: number;
  rows: number[];
  time_ms: number;
  /** In stack order, bottom to top; NaN where not recorded. */
  parts_ms: number[];
}

/** At most about `limit` bars, each over equally many consecutive step numbers; numbers that come again have bars of their own. */
export function bars(steps: Steps, limit: number): Bar[] {
  const turn = turns(steps);
  const distance = (a: number, b: number): number =>
    (turn[a] as number) - (turn[b] as number) || (steps.step[a] as number) - (steps.step[b] as number);
  const order = Array.from(steps.step, (_, row) => row).sort((a, b) => distance(a, b) || a - b);
  const groups: number[][] = [];
  for (const row of order) {
    const group = groups.at(-1);
    // Several hosts report the same step: one bar.
    if (group && !distance(group[0] as number, row)) group.push(row);
    else groups.push([row]);
  }
  const per = Math.max(1, Math.ceil(groups.length / Math.max(1, limit)));
  const result: Bar[] = [];
  const turnOf = (group: number[] | undefined): number => turn[group?.[0] ?? -1] ?? -1;
  let end = 0;
  for (let i = 0; i < groups.length; i = end) {
    end = i + 1;
    while (end < groups.length && end < i + per && turnOf(groups[end]) === turnOf(groups[i])) end++;
    const rows = groups.slice(i, end).flat();
    result.push({
      first: steps.step[rows[0] as number] as number,
      last: steps.step[rows.at(-1) as number] as number,
      rows,
      time_ms: statistics(steps.step_time_ms, rows).mean,
      parts_ms: CATEGORIES.map(({ key }) => {
        const values = steps.categories[key];
        return values ? statistics(values, rows).mean : Number.NaN;
      }),
    });
  }
  return result;
}

/** Where the axis ends: above the largest bar that is not over 4× the median; longer ones are cut. */
export function axisLimit(times: readonly number[]): number {
  const sorted = times.filter(Number.isFinite).sort((a, b) => a - b);
  if (sorted.length === 0) return 0;
  const median = sorted[Math.floor((sorted.length - 1) / 2)] as number;
  return sorted.findLast((time) => time <= 4 * median) as number;
}

/** "steps 508–515", "step 508". */
export function rangeText(first: number, last: number, noun = "step"): string {
  return first === last ? `${noun} ${first}` : `${noun}s ${first}–${last}`;
}

/** The value at the top of the axis: a round number, but none below the limit by the last bits of a float, which cut no bar. */
export function axisTop(times: readonly number[]): number {
  const limit = axisLimit(times);
  return Math.max(limit, niceMax(limit));
}
