/** Functions that were compiled while the cell ran, and why they were compiled again. */

import { h } from "../../lib/dom.js";
import { heading, runTag } from "../../lib/parts.js";
import type { Compiles } from "../../lib/payload.js";
import { table } from "../../lib/table.js";
import type { ViewContext } from "../../lib/view.js";

export function compilesSection({ table: all, notes }: Compiles, { signal }: ViewContext): HTMLElement {
  const label = "Compilation";
  const box = h("div", { "data-table": label });
  const columns = [
    { key: "function", width: 110 },
    { key: "where", narrow: true },
    "compilations",
    "total_ms",
    { key: "cause", narrow: true },
    { key: "why", grow: true, width: 150 },
  ];
  const rows = table(box, { table: all, label, sort: null, signal, columns });
  rows.setRows(Array.from({ length: all.rows }, (_, row) => row));
  return h(
    "section.of-run",
    heading(label, "functions compiled while the cell ran, and why", runTag()),
    box,
    ...notes.map((text) => h("p.more", { text })),
  );
}
