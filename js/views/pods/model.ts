/** Steps × workers as the drawings need them. No drawing. */

import { numberAt } from "../../lib/codec.js";
import { ms, num } from "../../lib/format.js";
import { CATEGORIES, type CategoryKey, type Pods, type Table } from "../../lib/payload.js";
import type { Selection } from "../../lib/store.js";

/** One worker in one step. */
export interface PodBar {
  /** Row of the payload's columns. */
  row: number;
  worker: number;
  time_ms: number;
  /** In stack order; NaN where not recorded. */
  parts_ms: number[];
}

export type Order = "worker" | "time";

/** The bars of step `i` that this report has. */
export function barsOf(pods: Pods, i: number, order: Order): PodBar[] {
  const from = pods.first[i] ?? 0;
  const bars = Array.from({ length: (pods.first[i + 1] ?? from) - from }, (_, k): PodBar => {
    const row = from + k;
    return {
      row,
      worker: pods.worker[row] as number,
      time_ms: pods.time_ms[row] as number,
      parts_ms: CATEGORIES.map(({ key }) => pods.categories[key]?.[row] ?? Number.NaN),
    };
  });
  return order === "time" ? bars.sort((a, b) => b.time_ms - a.time_ms || a.worker - b.worker) : bars;
}

/** A time of a worker in step `i` as it was measured, by key of a category or "step_time"; NaN where this report has no bar of it. */
export function exactly(pods: Pods, i: number, worker: number, key: string): number {
  for (let row = pods.first[i] ?? 0; row < (pods.first[i + 1] ?? 0); row++) {
    if (pods.worker[row] !== worker) continue;
    const values = key === "step_time" ? pods.time_ms : pods.categories[key as CategoryKey];
    return values?.[row] ?? Number.NaN;
  }
  return Number.NaN;
}

/** The category with most time of a bar, as an index into CATEGORIES; -1 where none was recorded. */
export const largest = (bar: PodBar): number =>
  bar.parts_ms.reduce((best, part, c) => (part > (bar.parts_ms[best] ?? 0) ? c : best), -1);

/** Whether a step number is inside the selection; all are without one. */
export const inside = (step: number, selection: Selection | null): boolean =>
  !selection || (step >= selection.first && step <= selection.last);

/** The step whose workers differ most, of those from…to (without the last) that count; -1 where there is none. */
export function widest(pods: Pods, from = 0, to = pods.step.length, selection: Selection | null = null): number {
  let best = -1;
  for (let i = from; i < to; i++) {
    if (!inside(pods.step[i] as number, selection)) continue;
    if (best < 0 || (pods.spread_percent[i] ?? 0) > (pods.spread_percent[best] || 0)) best = i;
  }
  return best;
}

/** The same time of a category on every row, or its name: "input". */
const causeName = (pods: Pods, i: number): string => CATEGORIES[(pods.cause[i] ?? 0) - 1]?.label.toLowerCase() ?? "";

/** "**host-3** is the slowest of 4: 8.21 ms, 1.90 ms (30.1%) over the median; **1.70 ms** of that is input." */
export function sentence(pods: Pods, i: number, noun = "step"): string {
  const name = pods.workers[pods.slowest[i] as number] ?? "";
  const [most, median] = [pods.slowest_ms[i] as number, pods.median_ms[i] as number];
  const count = numberAt(pods.count, i);
  if (count < 2) return `Only **${name}** recorded this ${noun}: ${ms(most)}.`;
  const over = most - median;
  // What rounds to nothing is no difference.
  if (!(over >= 0.005)) {
    const least = pods.fastest_ms[i] as number;
    return most - least < 0.005
      ? `All ${num(count)} workers take the same time: ${ms(most)}.`
      : `Most of the ${num(count)} workers take as long as the slowest, ${ms(most)}; the fastest takes ${ms(least)}.`;
  }
  const cause = causeName(pods, i);
  const more = pods.cause_ms[i] as number;
  // Where it takes more than it is behind, it saves elsewhere.
  const why = !cause
    ? ""
    : more > over
      ? `; it takes **${ms(more)}** more for ${cause}`
      : `; **${ms(more)}** of that is ${cause}`;
  const part = median > 0 ? ` (${num((over / median) * 100, 1)}%)` : "";
  const others = barsOf(pods, i, "worker").filter((bar) => most - bar.time_ms < 0.005).length - 1;
  // What the first of them takes more time for says nothing of the rest.
  if (others > 0) {
    const rest = `${num(others)} ${others === 1 ? "other" : "others"}`;
    return `**${name}** and **${rest}** are the slowest of ${num(count)}: ${ms(most)}, **${ms(over)}**${part} over the median.`;
  }
  return `**${name}** is the slowest of ${num(count)}: ${ms(most)}, **${ms(over)}**${part} over the median${why}.`;
}

/** One step as a table: a row a worker, slowest first. */
export function stepTable(pods: Pods, i: number): Table {
  const bars = barsOf(pods, i, "time");
  const data: Table["data"] = {
    worker: bars.map((bar) => pods.workers[bar.worker] ?? ""),
    step_time_ms: Float64Array.from(bars, (bar) => bar.time_ms),
    bottleneck: bars.map((bar) => CATEGORIES[largest(bar)]?.label ?? ""),
  };
  CATEGORIES.forEach(({ key }, c) => {
    data[`${key}_ms`] = Float64Array.from(bars, (bar) => bar.parts_ms[c] as number);
  });
  return { columns: pods.heads, data, rows: bars.length };
}
