/** Rows as CSV (RFC 4180) with raw column keys and full precision. */

import { numberAt, textAt } from "./codec.js";
import type { Table } from "./payload.js";

/** A text cell. One that a spreadsheet would take for a formula gets an apostrophe in front. */
function quote(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function toCsv(table: Table, rows: ArrayLike<number>): string {
  const lines = [table.columns.map((column) => quote(column.key)).join(",")];
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i] as number;
    lines.push(
      table.columns
        .map((column) => {
          const data = table.data[column.key];
          if (data === undefined) return "";
          if (Array.isArray(data) || "codes" in data) return quote(textAt(data, row));
          const value = numberAt(data, row);
          if (!Number.isFinite(value)) return "";
          return column.kind === "bool" ? (value ? "true" : "false") : String(value);
        })
        .join(","),
    );
  }
  return `${lines.join("\r\n")}\r\n`;
}
