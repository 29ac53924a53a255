/** The kernels as the donut and the table need them. */

import { numberAt, textAt } from "../../lib/codec.js";
import type { Column, Table } from "../../lib/payload.js";
import { allRows } from "../../lib/rows.js";
import { common, extreme, type Group, groupRows, sum } from "../fold.js";

export type Cores = "any" | "used" | "unused";
export type By = "row" | "kernel" | "op";

/** Whether a row belongs to a choice of TensorCore use; what was not recorded belongs to "any" only. */
export function coresMatch(table: Table, row: number, cores: Cores): boolean {
  if (cores === "any") return true;
  const used = numberAt(table.data.uses_tensor_core, row);
  if (cores === "used") return used === 1;
  return numberAt(table.data.op_tensor_core_eligible, row) === 1 && used === 0;
}

/** Whether any row has an occupancy. */
export function hasOccupancy({ data, rows }: Table): boolean {
  for (let row = 0; row < rows; row++) if (!Number.isNaN(numberAt(data.occupancy_percent, row))) return true;
  return false;
}

/** Where the occupancies of a table come from, in a sentence with a space before it. */
export function occupancyNote(table: Table, recorded = "as recorded"): string {
  if (!hasOccupancy(table)) return " Occupancy was not recorded.";
  let computed = 0;
  let all = 0;
  for (let row = 0; row < table.rows; row++) {
    if (Number.isNaN(numberAt(table.data.occupancy_percent, row))) continue;
    all++;
    if (textAt(table.data.occupancy_source, row) === "computed") computed++;
  }
  const source = "computed from the launch shape and the limits of the device";
  if (!computed) return ` Occupancy is ${recorded}.`;
  return computed === all ? ` Occupancy is ${source}.` : ` Occupancy is ${recorded}, or, where faint, ${source}.`;
}

/** Columns in which the rows of a group add up, as `p.kernels.by_name()` has them. */
const SUMS = ["total_us", "occurrences", "avg_us", "min_us", "max_us", "occupancy_percent"] as const;
const SUMMED: ReadonlySet<string> = new Set(SUMS);
const isText = (kind: Column["kind"]): boolean => kind === "text" || kind === "code";

/** Mean over rows, each weighted by its time; missing where no row has a value. */
function weighted({ data }: Table, key: string, rows: readonly number[]): number {
  let [sum, time] = [0, 0];
  for (const row of rows) {
    const value = numberAt(data[key], row);
    const weight = numberAt(data.total_us, row);
    if (Number.isNaN(value) || !(weight > 0)) continue;
    sum += value * weight;
    time += weight;
  }
  return time > 0 ? sum / time : Number.NaN;
}

/**
 * Rows folded by kernel name or by op, most time first. What differs within a group is missing in its line.
 *
 * A group of all rows of its name has the sums of the profile, `sums`; of those that a filter leaves they are made here, alike.
 */
export function groups(table: Table, rows: ArrayLike<number>, by: "kernel" | "op", sums: Table): Group[] {
  const { data } = table;
  const time = (row: number): number => numberAt(data.total_us, row) || 0;
  const order = Array.from(rows).sort((a, b) => time(b) - time(a) || a - b);
  const other = by === "kernel" ? "op" : "kernel";
  const rest = table.columns.filter(({ key }) => key !== "rank" && key !== by && key !== other && !SUMMED.has(key));
  const byKernel = new Map<string, number>();
  for (const row of allRows(table)) byKernel.set(textAt(data[by], row), (byKernel.get(textAt(data[by], row)) ?? 0) + 1);
  const known = new Map(Array.from(allRows(sums), (row) => [textAt(sums.data[by], row), row]));
  const list = groupRows(
    order,
    (row) => textAt(data[by], row),
    (members, key) => {
      const others = new Set(members.map((row) => textAt(data[other], row)));
      const row = members.length === byKernel.get(key) ? known.get(key) : undefined;
      const sumOf = row === undefined ? added(table, members) : SUMS.map((name) => numberAt(sums.data[name], row));
      return {
        [by]: key,
        [other]:
          others.size === 1 ? ([...others][0] as string) : `${others.size} ${other === "op" ? "ops" : "kernels"}`,
        ...Object.fromEntries(SUMS.map((name, i) => [name, sumOf[i] as number])),
        ...Object.fromEntries(rest.map(({ key, kind }) => [key, common(data[key], members, isText(kind))])),
      };
    },
  );
  list.sort((a, b) => (b.values.total_us as number) - (a.values.total_us as number));
  list.forEach((group, i) => {
    group.values.rank = i + 1;
  });
  return list;
}

/** What some rows add up to, in the order of SUMS. */
function added(table: Table, rows: readonly number[]): number[] {
  const { data } = table;
  const [total, count] = [sum(data.total_us, rows), sum(data.occurrences, rows)];
  const mean = count > 0 ? total / count : Number.NaN;
  const ends = [extreme(data.min_us, rows, -1), extreme(data.max_us, rows, 1)];
  return [total, count, mean, ...ends, weighted(table, "occupancy_percent", rows)];
}
