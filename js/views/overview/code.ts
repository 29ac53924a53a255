/** The person's own code, with the time of each line beside it. */

import { numberAt, textAt } from "../../lib/codec.js";
import { barOf, type Head } from "../../lib/columns.js";
import { h } from "../../lib/dom.js";
import { num } from "../../lib/format.js";
import { heading, runTag } from "../../lib/parts.js";
import type { Code, Column, Table } from "../../lib/payload.js";
import { plainTable } from "../breakdown.js";

/** By column: the colour of its bars. */
const COLOURS: Record<string, string> = { host_ms: "host", device_ms: "device", program_ms: "compile" };

export function codeSection({ cells, notes }: Code): HTMLElement {
  const longest = new Map(
    Object.keys(COLOURS).map((key) => [key, Math.max(...cells.map((cell) => most(cell.table, key)))]),
  );
  return h(
    "section.of-run",
    heading("Your code", cells.length ? "time of each line while the cell was recorded" : "", runTag()),
    ...cells.map(({ title, table }) =>
      h("div.lines", { role: "group", "aria-label": title }, h("h4", title), listing(table, longest)),
    ),
    ...notes.map((text) => h("p.more", { text })),
  );
}

function most({ data, rows }: Table, key: string): number {
  const values = Array.from({ length: rows }, (_, row) => numberAt(data[key], row));
  return Math.max(0, ...values.filter(Number.isFinite));
}

function listing(table: Table, longest: ReadonlyMap<string, number>): HTMLElement {
  const { data, rows } = table;
  const known = (key: string, row: number): boolean => numberAt(data[key], row) > 0;
  const column = (key: string): Column[] => table.columns.filter((each) => each.key === key);
  // What a line took stands before it, as in the gutter of an editor.
  const times = Object.keys(COLOURS).flatMap((key) => (most(table, key) > 0 ? column(key) : []));
  const order = [...times, ...(most(table, "calls") > 0 ? column("calls") : []), ...column("line"), ...column("code")];
  const heads: Head[] = order.map((each) => ({ ...each, class: each.key === "code" ? "src" : css(each.key) }));
  const lines = Array.from({ length: rows }, (_, row) =>
    h(
      "tr",
      { class: known("calls", row) || times.some(({ key }) => known(key, row)) ? undefined : "zero" },
      ...order.map(({ key, digits }) => {
        if (key === "code") return h("td.src", h("code", textAt(data[key], row)));
        const value = numberAt(data[key], row);
        const text = Number.isNaN(value) ? "" : num(value, digits);
        const bar = COLOURS[key] && value > 0;
        const share = (100 * value) / (longest.get(key) || 1);
        return h("td", { class: css(key) }, bar ? barOf(COLOURS[key] ?? "", text, share, 56) : text);
      }),
    ),
  );
  return plainTable(heads, lines, "src");
}

const css = (key: string): string => (key === "calls" ? "n dim hide-n" : key === "line" ? "n dim" : "n");
