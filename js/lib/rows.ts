/** Which rows of a table are shown, and in what order. */

import { numberAt, textAt } from "./codec.js";
import type { ColumnData, Table } from "./payload.js";

export interface Sort {
  key: string;
  descending: boolean;
}

const isText = (data: ColumnData | undefined): boolean =>
  data !== undefined && (Array.isArray(data) || "codes" in data);

/** Keys of the columns that hold text. */
export function textKeys(table: Table): string[] {
  return table.columns.map((column) => column.key).filter((key) => isText(table.data[key]));
}

/** The test a filter text stands for: part of the text, or /a regular expression/. Throws where that is none. */
export function matcher(text: string): ((value: string) => boolean) | null {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  const expression = /^\/(.+)\/$/s.exec(trimmed);
  if (expression) {
    const pattern = new RegExp(expression[1] as string, "i");
    return (value) => pattern.test(value);
  }
  const part = trimmed.toLowerCase();
  return (value) => value.toLowerCase().includes(part);
}

/** Rows in which any of the columns matches. */
export function filterRows(
  table: Table,
  rows: Uint32Array,
  keys: readonly string[],
  match: (value: string) => boolean,
): Uint32Array {
  const tests = keys.flatMap((key): ((row: number) => boolean)[] => {
    const data = table.data[key];
    if (data === undefined) return [];
    if (Array.isArray(data) || !("codes" in data)) return [(row) => match(textAt(data, row))];
    // A coded column is asked once a value, not once a row.
    const hits = data.values.map(match);
    return [(row) => hits[data.codes[row] as number] ?? false];
  });
  return rows.filter((row) => tests.some((test) => test(row)));
}

/** Rank of each distinct text, so that rows compare as numbers; missing text is NaN. */
function ranks(values: readonly string[]): Float64Array {
  const collator = new Intl.Collator("en", { numeric: true });
  const order = values.map((_, i) => i);
  order.sort((a, b) => collator.compare(values[a] as string, values[b] as string));
  const rank = new Float64Array(values.length);
  order.forEach((index, position) => {
    rank[index] = values[index] === "" ? Number.NaN : position;
  });
  // Equal texts under different codes keep the order of the rows.
  for (let i = 1; i < order.length; i++) {
    const [before, here] = [order[i - 1] as number, order[i] as number];
    if (values[before] === values[here]) rank[here] = rank[before] as number;
  }
  return rank;
}

/** Rows in the order of a column; missing values last either way, ties in their present order. */
export function sortRows(table: Table, rows: Uint32Array, sort: Sort): Uint32Array {
  const data = table.data[sort.key];
  if (data === undefined) return rows;
  let value: (row: number) => number;
  if (Array.isArray(data)) {
    const rank = ranks(data);
    value = (row) => rank[row] as number;
  } else if ("codes" in data) {
    const rank = ranks(data.values);
    value = (row) => rank[data.codes[row] as number] ?? Number.NaN;
  } else value = (row) => numberAt(data, row);
  const keys = Float64Array.from(rows, value);
  const order = Array.from(rows, (_, i) => i);
  const sign = sort.descending ? -1 : 1;
  order.sort((a, b) => {
    const [x, y] = [keys[a] as number, keys[b] as number];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y)) || a - b;
    return (x - y) * sign || a - b;
  });
  return Uint32Array.from(order, (i) => rows[i] as number);
}

/** The first direction of a column when its head is clicked: numbers descending, text ascending. */
export function firstDirection(table: Table, key: string): boolean {
  return !isText(table.data[key]);
}

/** Every row, in the order of the payload. */
export const allRows = (table: Table): Uint32Array => new Uint32Array(table.rows).map((_, i) => i);

/** The largest number of a column, whatever its sign. */
export const largestOf = (table: Table, key: string): number =>
  allRows(table).reduce((most, row) => Math.max(most, Math.abs(numberAt(table.data[key], row)) || 0), 0);

/** The largest number of a column; 0 where there is none above. */
export const mostOf = (table: Table, key: string): number =>
  allRows(table).reduce((most, row) => Math.max(most, numberAt(table.data[key], row) || 0), 0);
