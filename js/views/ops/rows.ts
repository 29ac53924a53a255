/** The ops as the table needs them: shares of a side, groups. */

import { numberAt, textAt } from "../../lib/codec.js";
import type { Ops, Table } from "../../lib/payload.js";
import { allRows } from "../../lib/rows.js";
import { extreme, type Group, groupRows, sum } from "../fold.js";

export type Where = "device" | "host";
export type By = "op" | "type" | "layer";

const whereOf = (table: Table, row: number): Where => (textAt(table.data.where, row) === "device" ? "device" : "host");

/** Rows by self time, most first; ties in the order of the payload. */
export function bySelf(table: Table): Uint32Array {
  const self = (row: number): number => numberAt(table.data.self_us, row) || 0;
  return allRows(table).sort((a, b) => self(b) - self(a) || a - b);
}

/** The table with shares of a side's self time, or, with idle, of its self and idle time. */
export function withShares(table: Table, totals: Ops["totals"], idle: boolean): Table {
  if (!idle) return table;
  const scale = (where: Where): number => {
    const [work, rest] = [totals[`${where}_us`], totals[`${where}_idle_us`]];
    return rest > 0 ? work / (work + rest) : 1;
  };
  const scales = { device: scale("device"), host: scale("host") };
  const scaled = (key: string): Float64Array =>
    Float64Array.from(allRows(table), (row) => numberAt(table.data[key], row) * scales[whereOf(table, row)]);
  const shares = Object.fromEntries(SHARES.map((key) => [key, scaled(key)]));
  return { ...table, data: { ...table.data, ...shares } };
}

const SHARES = ["self_percent", "cumulative_percent"] as const;

/** The layer of an op: its name scope without the last component; tf.data iterators nest with "::". */
export function layerOf(op: string): string {
  const slash = op.lastIndexOf("/");
  if (slash > 0) return op.slice(0, slash);
  const colons = op.lastIndexOf("::");
  return colons > 0 ? op.slice(0, colons) : "(no scope)";
}

/** Rows folded by type or layer, device and host apart, most self time first. */
export function groups(table: Table, rows: ArrayLike<number>, by: By): Group[] {
  const { data } = table;
  const name = (row: number): string =>
    by === "type" ? textAt(data.type, row) : by === "layer" ? layerOf(textAt(data.op, row)) : textAt(data.op, row);
  const order = Array.from(rows as ArrayLike<number>);
  const self = (row: number): number => numberAt(data.self_us, row) || 0;
  order.sort((a, b) => self(b) - self(a) || a - b);
  const list = groupRows(
    order,
    (row) => `${whereOf(table, row)}\n${name(row)}`,
    (members, key) => {
      const count = sum(data.occurrences, members);
      const [total, own] = [sum(data.total_us, members), sum(data.self_us, members)];
      const types = new Set(members.map((row) => textAt(data.type, row)));
      return {
        where: key.slice(0, key.indexOf("\n")),
        type: types.size === 1 ? ([...types][0] as string) : `${types.size} types`,
        op: key.slice(key.indexOf("\n") + 1),
        occurrences: count,
        total_us: total,
        avg_us: count > 0 ? total / count : Number.NaN,
        self_us: own,
        avg_self_us: count > 0 ? own / count : Number.NaN,
        eager: extreme(data.eager, members, 1),
        self_percent: sum(data.self_percent, members),
      };
    },
  );
  list.sort((a, b) => (b.values.self_us as number) - (a.values.self_us as number));
  const running: Record<string, number> = {};
  list.forEach((group, i) => {
    const where = group.values.where as string;
    running[where] = (running[where] ?? 0) + ((group.values.self_percent as number) || 0);
    group.values.rank = i + 1;
    group.values.cumulative_percent = running[where] as number;
  });
  return list;
}

/** Distinct types, most self time first. */
export function types(table: Table): string[] {
  const sums = new Map<string, number>();
  for (let row = 0; row < table.rows; row++) {
    const type = textAt(table.data.type, row);
    sums.set(type, (sums.get(type) ?? 0) + (numberAt(table.data.self_us, row) || 0));
  }
  return [...sums].sort((a, b) => b[1] - a[1]).map(([type]) => type);
}
