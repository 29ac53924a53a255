/** Process pools that the recorded code waited for: what ran in their workers, and how busy these were. */

import { h } from "../../lib/dom.js";
import { heading, runTag } from "../../lib/parts.js";
import type { Pools, Table } from "../../lib/payload.js";
import { type ColumnSpec, table } from "../../lib/table.js";
import type { ViewContext } from "../../lib/view.js";

export function poolsSection({ tasks, workers, notes }: Pools, { signal }: ViewContext): HTMLElement[] {
  const draw = (all: Table, label: string, columns: (string | ColumnSpec)[]): HTMLElement => {
    const box = h("div", { "data-table": label });
    const rows = table(box, { table: all, label, sort: null, signal, columns });
    rows.setRows(Array.from({ length: all.rows }, (_, row) => row));
    return box;
  };
  const functions = draw(tasks, "Tasks of process pools", [
    { key: "pool", narrow: true },
    { key: "function", grow: true, width: 110 },
    { key: "where", narrow: true },
    "calls",
    "mean_ms",
    { key: "longest_ms", narrow: true },
    "percent",
    { key: "inside", narrow: true },
  ]);
  const processes = draw(workers, "Workers of process pools", [
    { key: "pool", grow: true, width: 90 },
    "process",
    "tasks",
    "busy_ms",
    "busy_percent",
    { key: "waiting_ms", narrow: true },
    { key: "cpu_ms", narrow: true },
    { key: "memory_bytes", narrow: true },
  ]);
  return [
    h(
      "section.of-run",
      heading("Tasks of process pools", "functions that ran in worker processes, timed there", runTag()),
      functions,
      ...notes.map((text) => h("p.more", { text })),
    ),
    h(
      "section.of-run",
      heading("Workers of process pools", "busy = in a task, while any task of the pool is unfinished", runTag()),
      processes,
    ),
  ];
}
