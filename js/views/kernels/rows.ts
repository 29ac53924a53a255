/** The kernels as the donut and the table need them. */

import { numberAt, textAt } from "../../lib/codec.js";
import type { DonutPart } from "../../lib/parts.js";
import type { Table } from "../../lib/payload.js";
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
export function occupancyNote(table: Table, torch: boolean): string {
  if (!hasOccupancy(table)) return " Occupancy was not recorded.";
  let computed = 0;
  let all = 0;
  for (let row = 0; row < table.rows; row++) {
    if (Number.isNaN(numberAt(table.data.occupancy_percent, row))) continue;
    all++;
    if (textAt(table.data.occupancy_source, row) === "computed") computed++;
  }
  const recorded = torch
    ? "as PyTorch estimated it from the launch"
    : "as recorded: theoretical, from registers and block size";
  const made = "computed from the launch shape and the limits of the device";
  if (!computed) return ` Occupancy is ${recorded}.`;
  return computed === all ? ` Occupancy is ${made}.` : ` Occupancy is ${recorded}, or, set faint, ${made}.`;
}

/** The `n` kernels with most time, by name, and the others; `total_us` is all the time there is. */
export function topKernels(table: Table, total_us: number, n = 10): DonutPart[] {
  const sums = new Map<string, number>();
  for (let row = 0; row < table.rows; row++) {
    const name = textAt(table.data.kernel, row);
    sums.set(name, (sums.get(name) ?? 0) + (numberAt(table.data.total_us, row) || 0));
  }
  const ranked = [...sums].sort((a, b) => b[1] - a[1]);
  const head = ranked.length === n + 1 ? n + 1 : n;
  const parts: DonutPart[] = ranked
    .slice(0, head)
    .map(([label, time]) => ({ label, percent: total_us > 0 ? (100 * time) / total_us : Number.NaN }));
  const left = total_us - ranked.slice(0, head).reduce((total, [, time]) => total + time, 0);
  if (ranked.length > head) {
    parts.push({
      label: `${ranked.length - head} others`,
      percent: total_us > 0 ? (100 * Math.max(0, left)) / total_us : Number.NaN,
      kind: "others",
    });
  }
  return parts;
}

/** Rows folded by kernel name or by op, most time first. What differs within a group is missing in its line. */
export function groups(table: Table, rows: ArrayLike<number>, by: "kernel" | "op"): Group[] {
  const { data } = table;
  const time = (row: number): number => numberAt(data.total_us, row) || 0;
  const order = Array.from(rows).sort((a, b) => time(b) - time(a) || a - b);
  const other = by === "kernel" ? "op" : "kernel";
  const list = groupRows(
    order,
    (row) => textAt(data[by], row),
    (members, key) => {
      const count = sum(data.occurrences, members);
      const total = sum(data.total_us, members);
      const others = new Set(members.map((row) => textAt(data[other], row)));
      return {
        [by]: key,
        [other]:
          others.size === 1 ? ([...others][0] as string) : `${others.size} ${other === "op" ? "ops" : "kernels"}`,
        total_us: total,
        occurrences: count,
        avg_us: count > 0 ? total / count : Number.NaN,
        min_us: extreme(data.min_us, members, -1),
        max_us: extreme(data.max_us, members, 1),
        op_tensor_core_eligible: common(data.op_tensor_core_eligible, members, false),
        uses_tensor_core: common(data.uses_tensor_core, members, false),
        occupancy_percent: common(data.occupancy_percent, members, false),
        occupancy_source: common(data.occupancy_source, members, true),
        registers: common(data.registers, members, false),
        shared_bytes: common(data.shared_bytes, members, false),
        block: common(data.block, members, true),
        grid: common(data.grid, members, true),
      };
    },
  );
  list.sort((a, b) => (b.values.total_us as number) - (a.values.total_us as number));
  list.forEach((group, i) => {
    group.values.rank = i + 1;
  });
  return list;
}
