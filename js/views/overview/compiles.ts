/** Functions that were compiled while the cell ran, why again, and where their graphs break. */

import { h } from "../../lib/dom.js";
import { heading, runTag } from "../../lib/parts.js";
import type { Compiles, GraphBreaks } from "../../lib/payload.js";
import { type TableOptions, table } from "../../lib/table.js";
import type { ViewContext } from "../../lib/view.js";

export function compilesSection(compiles: Compiles, context: ViewContext): HTMLElement {
  const about = "functions compiled while the cell ran, and why";
  return section("Compilation", about, compiles, context, [
    { key: "function", width: 110 },
    { key: "where", narrow: true },
    "compilations",
    "total_ms",
    { key: "cause", narrow: true },
    { key: "why", grow: true, width: 150 },
  ]);
}

export function graphBreaksSection(breaks: GraphBreaks, context: ViewContext): HTMLElement {
  const about = "lines that split functions of torch.compile";
  const costs = breaks.table.columns.filter(({ kind }) => kind === "number");
  return section("Graph breaks", about, breaks, context, [
    { key: "function", width: 110 },
    "where",
    { key: "reason", grow: true, width: 150 },
    ...costs.map(({ key }) => ({ key, narrow: key !== "ms_per_step" })),
    { key: "cost_reason", width: 130 },
  ]);
}

function section(
  label: string,
  about: string,
  { table: all, notes }: Compiles | GraphBreaks,
  { signal }: ViewContext,
  columns: TableOptions["columns"],
): HTMLElement {
  const box = h("div", { "data-table": label });
  const rows = table(box, { table: all, label, sort: null, signal, columns });
  rows.setRows(Array.from({ length: all.rows }, (_, row) => row));
  return h("section.of-run", heading(label, about, runTag()), box, ...notes.map((text) => h("p.more", { text })));
}
