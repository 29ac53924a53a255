/** Rows as CSV (RFC 4180) with raw column keys and full precision. */

import { numberAt, textAt } from "./codec.js";
import type { Table } from "./payload.js";

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/**
 * A text with an apostrophe before what a spreadsheet would take for a formula, also in a further line; a number as it is.
 * `nbprof frame --csv` does the same.
 */
function noFormula(text: string): string {
  if (NUMBER.test(text)) return text;
  return (/^[\r\n]/.test(text) ? "'" : "") + text.replace(/(^|\r\n?|\n)(?=[=+\-@\t＝＋－＠])/g, "$1'");
}

function quote(text: string): string {
  const safe = noFormula(text);
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
