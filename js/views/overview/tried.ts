/** Results of experiments: measured gains, and which changes are recommended. */

import { numberAt, textAt } from "../../lib/codec.js";
import { h } from "../../lib/dom.js";
import { flag, num } from "../../lib/format.js";
import { codeBox, heading, runTag } from "../../lib/parts.js";
import type { Change, Column, Table, Tried } from "../../lib/payload.js";
import type { ViewContext } from "../../lib/view.js";
import { plainTable } from "../breakdown.js";

/** Where there is little room, these make it for what was changed and why it is recommended. */
const WIDE = ["baseline_ms", "first_ms", "pays_after", "took_s"];
/** The ends of the interval stand beside the gain. */
const BESIDE = ["gain_low_ms", "gain_high_ms"];
const WRAPPED = ["title", "why"];

export function triedSection({ text, table, changes, code }: Tried, context: ViewContext): HTMLElement {
  const columns = table.columns.filter(({ key }) => !BESIDE.includes(key));
  const heads = columns.map((column) => ({ ...column, class: css(column) }));
  const rows = Array.from({ length: table.rows }, (_, row) => {
    const cells = columns.map((column) => h("td", { class: css(column) }, cell(column, table.data, row)));
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
  return [kind === "number" && "n", WRAPPED.includes(key) && "prose", WIDE.includes(key) && "hide-n"]
    .filter(Boolean)
    .join(" ");
}

function cell({ key, kind, digits }: Column, data: Table["data"], row: number): string {
  if (kind === "bool") return flag(numberAt(data[key], row));
  if (kind !== "number") return textAt(data[key], row);
  const number = (name: string): string => num(numberAt(data[name], row), digits ?? 0);
  const some = key === "gain_ms" && Number.isFinite(numberAt(data[key], row)) && BESIDE.every((name) => data[name]);
  return some ? `${number(key)} [${BESIDE.map(number).join(", ")}]` : number(key);
}
