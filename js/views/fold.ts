/**
 * Rows folded into groups that open one by one.
 *
 * The table sorts flat rows. So that members stay under their group, each member carries the values of
 * its group to sort by, and its own to show: ties keep their order, and a group ties with its members.
 */

import { numberAt, textAt } from "../lib/codec.js";
import type { Cut } from "../lib/cut.js";
import { h } from "../lib/dom.js";
import { num } from "../lib/format.js";
import type { ColumnData, Table } from "../lib/payload.js";
import type { ColumnSpec } from "../lib/table.js";
import { fillName } from "./names.js";

export type Value = number | string;

export interface Group {
  key: string;
  /** Rows of the source, in the order in which they are shown. */
  rows: number[];
  values: Record<string, Value>;
}

export interface Folded {
  /** What the table sorts by. */
  table: Table;
  /** What is shown, and what goes into the CSV. */
  real: Table;
  /** By row: its group, and its row in the source (-1: the group itself). */
  group: Group[];
  source: Int32Array;
  groups: Group[];
}

/** Groups rows by a key, in the order of first appearance. `merge` gives the values of a group's line by column. */
export function groupRows(
  rows: ArrayLike<number>,
  keyOf: (row: number) => string,
  merge: (rows: readonly number[], key: string) => Record<string, Value>,
): Group[] {
  const members = new Map<string, number[]>();
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i] as number;
    const key = keyOf(row);
    const list = members.get(key);
    if (list) list.push(row);
    else members.set(key, [row]);
  }
  return [...members].map(([key, list]) => ({ key, rows: list, values: merge(list, key) }));
}

/** The groups as table rows; under a group in `open` come its members. */
export function foldTable(source: Table, groups: readonly Group[], open: ReadonlySet<string>): Folded {
  const group: Group[] = [];
  const origin: number[] = [];
  for (const each of groups) {
    group.push(each);
    origin.push(-1);
    if (!open.has(each.key) || each.rows.length < 2) continue;
    for (const row of each.rows) {
      group.push(each);
      origin.push(row);
    }
  }
  const sorted: Record<string, ColumnData> = {};
  const real: Record<string, ColumnData> = {};
  for (const { key, kind } of source.columns) {
    const data = source.data[key];
    if (kind === "text" || kind === "code") {
      sorted[key] = group.map((each) => String(each.values[key] ?? ""));
      real[key] = group.map((each, i) =>
        (origin[i] as number) < 0 ? String(each.values[key] ?? "") : textAt(data, origin[i] as number),
      );
    } else {
      const ownTime = (each: Group): number =>
        typeof each.values[key] === "number" ? (each.values[key] as number) : Number.NaN;
      sorted[key] = Float64Array.from(group, ownTime);
      real[key] = Float64Array.from(group, (each, i) =>
        (origin[i] as number) < 0 ? ownTime(each) : numberAt(data, origin[i] as number),
      );
    }
  }
  const make = (data: Record<string, ColumnData>): Table => ({ columns: source.columns, data, rows: group.length });
  return { table: make(sorted), real: make(real), group, source: Int32Array.from(origin), groups: [...groups] };
}

/** Sum of a column over rows, without the missing ones; NaN when all are missing. */
export function sum(data: ColumnData | undefined, rows: readonly number[]): number {
  let total = Number.NaN;
  for (const row of rows) {
    const value = numberAt(data, row);
    if (!Number.isNaN(value)) total = Number.isNaN(total) ? value : total + value;
  }
  return total;
}

/** Least (-1) or largest (1) value of a column over rows; NaN when all are missing. */
export function extreme(data: ColumnData | undefined, rows: readonly number[], sign: 1 | -1): number {
  let best = Number.NaN;
  for (const row of rows) {
    const value = numberAt(data, row);
    if (!Number.isNaN(value) && !(value * sign <= best * sign)) best = value;
  }
  return best;
}

/** The value all rows have in common, else missing. */
export function common(data: ColumnData | undefined, rows: readonly number[], text: boolean): Value {
  const read = (row: number): Value => (text ? textAt(data, row) : numberAt(data, row));
  const first = read(rows[0] as number);
  return rows.every((row) => Object.is(read(row), first)) ? first : text ? "" : Number.NaN;
}

/** Whether a row is a member of an open group. */
export const isMember = (folded: Folded, row: number): boolean => (folded.source[row] as number) >= 0;

/** A number that a member leaves empty: ranks and running sums are those of the groups. */
export function groupsOnly(spec: ColumnSpec, folded: () => Folded, digits: number): ColumnSpec {
  return {
    ...spec,
    cell: (row, cell) => {
      if (!isMember(folded(), row)) cell.append(num(numberAt(folded().real.data[spec.key], row), digits));
    },
  };
}

/** Fills the name cell: a group with a triangle and its size, a member set in. */
export function nameCell(
  folded: Folded,
  open: ReadonlySet<string>,
  row: number,
  cell: HTMLTableCellElement,
  name: string,
  shorten?: Cut,
): void {
  const group = folded.group[row] as Group;
  const several = group.rows.length > 1 && !isMember(folded, row);
  const isOpen = open.has(group.key);
  const text = h("span");
  fillName(text, name, shorten);
  cell.title = name;
  if (several) cell.setAttribute("aria-expanded", String(isOpen));
  cell.append(
    h(
      "span",
      { class: isMember(folded, row) ? "fold inset" : "fold" },
      h("span.tri", { "aria-hidden": "true" }, several ? (isOpen ? "▾" : "▸") : ""),
      text,
      several && h("small.dim", num(group.rows.length)),
    ),
  );
}
