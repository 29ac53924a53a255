/** The ops as the donuts and the table need them: shares of a side, running sums, groups. */

import { numberAt, textAt } from "../../lib/codec.js";
import type { DonutPart } from "../../lib/parts.js";
import type { Ops, Table } from "../../lib/payload.js";
import { allRows } from "../../lib/rows.js";
import { extreme, type Group, groupRows, sum } from "../fold.js";

export type Where = "device" | "host";
export type By = "op" | "type" | "layer";

/** What 100% is on each side, in µs: the self time, and the idle time too when it is included. */
export function bases(totals: Ops["totals"], idle: boolean): Record<Where, number> {
  const add = (self: number, rest: number): number => (idle && rest > 0 ? self + rest : self);
  return {
    device: add(totals.device_us, totals.device_idle_us),
    host: add(totals.host_us, totals.host_idle_us),
  };
}

const whereOf = (table: Table, row: number): Where => (textAt(table.data.where, row) === "device" ? "device" : "host");

/** Rows by self time, most first; ties in the order of the payload. */
export function bySelf(table: Table): Uint32Array {
  const self = (row: number): number => numberAt(table.data.self_us, row) || 0;
  return allRows(table).sort((a, b) => self(b) - self(a) || a - b);
}

/**
 * The table ranked by self time, with two more columns: self time as % of its side, and the running sum of that.
 * The order of the running sum does not depend on what 100% is.
 */
export function withPercents(table: Table, base: Record<Where, number>): Table {
  const part = new Float64Array(table.rows);
  const cumulative = new Float64Array(table.rows);
  const sums: Record<Where, number> = { device: 0, host: 0 };
  const rank = new Uint32Array(table.rows);
  bySelf(table).forEach((row, i) => {
    rank[row] = i + 1;
    const where = whereOf(table, row);
    const self = numberAt(table.data.self_us, row);
    sums[where] += self || 0;
    part[row] = percent(self, base[where]);
    cumulative[row] = percent(sums[where], base[where]);
  });
  return {
    rows: table.rows,
    columns: [
      ...table.columns,
      {
        key: "self_percent",
        label: "Self %",
        kind: "percent",
        digits: 1,
        help: "Self time as share of all self time on the same side (device or host).",
      },
      {
        key: "cumulative_percent",
        label: "cum. %",
        kind: "percent",
        digits: 1,
        help: "Self time of this row and all longer ones of the same side.",
      },
    ],
    data: { ...table.data, rank, self_percent: part, cumulative_percent: cumulative },
  };
}

const percent = (value: number, base: number): number => (base > 0 ? (100 * value) / base : Number.NaN);

/**
 * The parts of a donut: the `n` largest ops or types of a side, the others, and the idle time if included.
 * What the table leaves out is with the others, so the parts make up the side's total.
 */
export function donutParts(
  ops: Ops,
  where: Where,
  by: "op" | "type",
  idle: boolean,
  n = 5,
): { total_us: number; parts: DonutPart[] } {
  const { table, totals } = ops;
  const base = bases(totals, idle)[where];
  const sums = new Map<string, number>();
  for (let row = 0; row < table.rows; row++) {
    if (whereOf(table, row) !== where) continue;
    const key = textAt(table.data[by], row);
    sums.set(key, (sums.get(key) ?? 0) + (numberAt(table.data.self_us, row) || 0));
  }
  const ranked = [...sums].sort((a, b) => b[1] - a[1]);
  // A single other gets its name.
  const head = ranked.length === n + 1 ? n + 1 : n;
  const parts: DonutPart[] = ranked.slice(0, head).map(([label, self]) => ({ label, percent: percent(self, base) }));
  const rest = ranked.slice(head);
  const side = totals[`${where}_us`];
  const left = side - ranked.slice(0, head).reduce((total, [, self]) => total + self, 0);
  if (rest.length)
    parts.push({ label: `${rest.length} others`, percent: percent(Math.max(0, left), base), kind: "others" });
  const idle_us = totals[`${where}_idle_us`];
  if (idle && idle_us > 0) parts.push({ label: "Idle", percent: percent(idle_us, base), kind: "idle" });
  return { total_us: base, parts };
}

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
