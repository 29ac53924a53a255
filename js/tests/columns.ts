/** Rows as Python wrote them, as a table of a payload. */

import type { Table } from "../lib/payload.js";

type Value = string | number | boolean | null;

export function tableOf(rows: readonly Record<string, Value>[]): Table {
  const keys = Object.keys(rows[0] ?? {});
  const text = (key: string): boolean => typeof rows[0]?.[key] === "string";
  return {
    rows: rows.length,
    columns: keys.map((key) => ({ key, label: key, kind: text(key) ? "text" : "number", help: "" })),
    data: Object.fromEntries(
      keys.map((key) => [
        key,
        text(key)
          ? rows.map((row) => String(row[key]))
          : Float64Array.from(rows, (row) => (row[key] === null ? Number.NaN : Number(row[key]))),
      ]),
    ),
  };
}
