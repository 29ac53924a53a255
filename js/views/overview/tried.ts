/** Results of experiments: measured gains, and which changes are recommended. */

import { numberAt, textAt } from "../../lib/codec.js";
import { h } from "../../lib/dom.js";
import { flag, num } from "../../lib/format.js";
import { codeBox, heading, runTag } from "../../lib/parts.js";
import type { Change, Column, Tried } from "../../lib/payload.js";
import type { ViewContext } from "../../lib/view.js";
import { plainTable } from "../breakdown.js";

const WIDE = ["first_ms", "pays_after"];

export function triedSection({ text, table, changes, code }: Tried, context: ViewContext): HTMLElement {
  const heads = table.columns.map((column) => ({ ...column, class: css(column) }));
  const rows = Array.from({ length: table.rows }, (_, row) => {
    const cells = table.columns.map((column) =>
      h("td", { class: css(column) }, cell(column, table.data[column.key], row)),
    );
    const change = changes.find((each) => each.row === row);
    return [h("tr", ...cells), ...(change ? [changeRow(change, heads.length, context)] : [])];
  });
  return h(
    "div.of-run.tried",
    { tabindex: "-1" },
    heading("Tried", "with the change and without in turn, without a profiler", runTag()),
    text && h("p", text),
    table.rows > 0 && plainTable(heads, rows.flat()),
    code.length > 0 && codeBox(code),
  );
}

/** Below its row: the change of the cell, and to insert that. */
function changeRow(
  { experiment, lines }: Change,
  columns: number,
  { trials, signal }: ViewContext,
): HTMLTableRowElement {
  return h(
    "tr.change",
    h("td", { colspan: String(columns) }, codeBox(lines, false), trials?.insertion(experiment, signal)),
  );
}

function css({ key, kind }: Column): string {
  return [kind === "number" && "n", key === "why" && "prose", WIDE.includes(key) && "hide-n"].filter(Boolean).join(" ");
}

function cell({ kind, digits }: Column, data: Parameters<typeof numberAt>[0], row: number): string {
  if (kind === "bool") return flag(numberAt(data, row));
  return kind === "number" ? num(numberAt(data, row), digits ?? 0) : textAt(data, row);
}
