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

export const IDLE = "IDLE";

/** A sum of the ops; 0 where the side was not recorded. */
export const timeOf = (totals: Ops["totals"], key: keyof Ops["totals"]): number => totals[key] || 0;

/** The table with shares of a side's self time; or, with idle, of its self and idle time, which then has a row of its own. */
export function withShares(table: Table, totals: Ops["totals"], idle: boolean): Table {
  const idles = SIDES.filter(
    (where) => idle && timeOf(totals, `${where}_idle_us`) > 0 && timeOf(totals, `${where}_us`) > 0,
  );
  if (!idles.length) return table;
  const count = table.rows + idles.length;
  const of = (row: number): Where => (row < table.rows ? whereOf(table, row) : (idles[row - table.rows] as Where));
  const selfOf = (row: number): number =>
    row < table.rows ? numberAt(table.data.self_us, row) || 0 : timeOf(totals, `${of(row)}_idle_us`);
  const given = new Map<string, Float64Array>();
  const fresh = (key: string): Float64Array => {
    const values = new Float64Array(count).fill(Number.NaN);
    for (let row = 0; row < table.rows; row++) values[row] = numberAt(table.data[key], row);
    given.set(key, values);
    return values;
  };
  const [rank, share, reached] = [fresh("rank"), fresh("self_percent"), fresh("cumulative_percent")];
  let more = 0;
  for (const where of SIDES) {
    const total_us = timeOf(totals, `${where}_us`) + timeOf(totals, `${where}_idle_us`);
    const order = Array.from({ length: count }, (_, row) => row).filter((row) => of(row) === where);
    order.sort((a, b) => selfOf(b) - selfOf(a) || a - b);
    const ranks = order.map((row) => rank[row] as number).filter((value) => !Number.isNaN(value));
    let [running, last] = [0, ranks.length ? (ranks[0] as number) - 1 : 0];
    for (const row of order) {
      share[row] = (100 * selfOf(row)) / total_us;
      running += share[row] as number;
      reached[row] = running;
      if (row >= table.rows) {
        last += 1;
        rank[row] = last + more;
        more += 1;
      } else {
        last = rank[row] as number;
        rank[row] = last + more;
      }
    }
  }
  const times = ["total_us", "avg_us", "self_us", "avg_self_us"];
  const grown = (key: string, data: Table["data"][string]): Table["data"][string] => {
    const ready = given.get(key);
    if (ready) return ready;
    const rows = Array.from({ length: count }, (_, row) => row);
    const inTable = (row: number): boolean => row < table.rows;
    if ("codes" in data || typeof (data as ArrayLike<unknown>)[0] === "string") {
      const idleText = (row: number): string =>
        key === "where" ? of(row) : key === "op" || key === "type" ? IDLE : "";
      return rows.map((row) => (inTable(row) ? textAt(data, row) : idleText(row)));
    }
    const idleNumber = (row: number): number =>
      times.includes(key) ? selfOf(row) : key === "occurrences" ? 1 : Number.NaN;
    return Float64Array.from(rows, (row) => (inTable(row) ? numberAt(data, row) : idleNumber(row)));
  };
  const data = Object.fromEntries(Object.entries(table.data).map(([key, column]) => [key, grown(key, column)]));
  return { ...table, data, rows: count };
}

const SIDES: readonly Where[] = ["device", "host"];

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
      const [total, self] = [sum(data.total_us, members), sum(data.self_us, members)];
      const types = new Set(members.map((row) => textAt(data.type, row)));
      return {
        where: key.slice(0, key.indexOf("\n")),
        type: types.size === 1 ? ([...types][0] as string) : `${types.size} types`,
        op: key.slice(key.indexOf("\n") + 1),
        occurrences: count,
        total_us: total,
        avg_us: count > 0 ? total / count : Number.NaN,
        self_us: self,
        avg_self_us: count > 0 ? self / count : Number.NaN,
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
