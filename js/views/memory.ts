/** Memory: how much was in use, when it was most, and what was alive then. */

import { textAt } from "../lib/codec.js";
import { toCsv } from "../lib/csv.js";
import { clear, h, listen } from "../lib/dom.js";
import { bytesText, count, known, ms, percent } from "../lib/format.js";
import { downloadButton, emptyView, figures, heading, link, picker, segmented } from "../lib/parts.js";
import type { MemoryId } from "../lib/payload.js";
import { type ColumnSpec, table } from "../lib/table.js";
import type { View, ViewContext } from "../lib/view.js";
import { bySize, split, total } from "./memory/peak.js";
import { plot } from "./memory/plot.js";
import { peakIndex } from "./memory/series.js";
import { fillName } from "./names.js";

export const render: View = (el, context) => {
  const { empty, ids } = context.payload.memory;
  const first = ids[0];
  if (empty || !first) {
    const none = { title: "No allocations in this run", text: "The profile has no memory events." };
    el.append(h("section", emptyView(empty ?? none)));
    return;
  }
  const body = h("div.memory-body");
  let end: AbortController | null = null;
  const also = h("span.dim.also");
  const show = (index: number): void => {
    end?.abort();
    end = new AbortController();
    const id = ids[index] ?? first;
    const rest = ids.filter((each) => each !== id).map((each) => `${each.memory_id} (${bytesText(each.peak_bytes)})`);
    also.textContent = rest.length ? `also: ${rest.join(", ")}` : "";
    clear(body);
    body.append(figures(id.figures), timeline(id, context, end.signal), alive(id, end.signal));
  };
  listen(context.signal, "abort", () => end?.abort());
  const choose = picker(
    "Memory",
    ids.map((id, i) => ({ id: String(i), label: `${id.memory_id || "(no name)"}, peak ${bytesText(id.peak_bytes)}` })),
    "0",
    (id) => show(Number(id)),
  );
  el.append(h("div.toolbar.memory-pick", choose, also), body);
  show(0);
};

function timeline(id: MemoryId, context: ViewContext, signal: AbortSignal): HTMLElement {
  const n = id.time_ms.length;
  const steps = context.payload.steps.step.length;
  const scope = [n ? ms((id.time_ms[n - 1] as number) - Math.min(0, id.time_ms[0] as number), 1) : ""];
  if (steps) scope.push(`${count(steps)} ${steps === 1 ? "step" : "steps"}`);
  if (id.total > n) scope.push(`${count(n)} of ${count(id.total)} events drawn, every maximum among them`);
  if (!n) {
    return h("section", heading("Timeline"), h("p.dim", "No event of this allocator was recorded."));
  }
  const area = plot(id, context.width, signal);
  const capacity = known(id.capacity_bytes) && id.capacity_bytes > 0;
  const modes = segmented(
    "Axis",
    [
      { id: "use", label: "In use" },
      { id: "device", label: "Whole device" },
    ],
    area.scope,
    (next) => area.setScope(next),
  );
  const at = peakIndex(id);
  const stack = id.stack_bytes[at];
  // PyTorch's allocators state neither stack nor fragmentation, and hold free memory as a reserve.
  const stacked = known(stack);
  const fragmented = id.fragmentation.some((value) => known(value));
  const held = id.free_bytes.some((value) => known(value));
  const key = (css: string, text: string): HTMLElement => h("span", h("i", { class: `sw ${css}` }), text);
  return h(
    "section",
    heading("Timeline", scope.filter(Boolean).join(", "), capacity && modes),
    area.element,
    h(
      "div.legend.memory-legend",
      stacked && key("m-stack", `Stack ${bytesText(stack)} at the peak`),
      key("m-heap", stacked ? "Heap" : "Allocated"),
      held && key("m-free", stacked ? "Free" : "Reserved, not allocated"),
      fragmented && key("m-frag", "Fragmentation (right axis)"),
    ),
  );
}

/** What was alive at the peak. */
function alive(id: MemoryId, signal: AbortSignal): HTMLElement {
  const { peak } = id;
  const order = bySize(peak);
  const all = total(peak, order);
  const { shown, smaller } = split(order);
  if (!peak.rows) {
    return h("section", heading("Live at the peak"), h("p.dim", "No allocation was alive, or none was recorded."));
  }
  const holder = h("div");
  let most = 0;
  for (const row of order) most = Math.max(most, percentOf(id, row));
  const columns: ColumnSpec[] = [
    {
      key: "op",
      label: "Op",
      kind: "code",
      grow: true,
      cell: (row, cell) => fillName(cell, textAt(peak.data.op, row)),
    },
    { key: "region_type", label: "Region", narrow: true },
    { key: "data_type", label: "Type", narrow: true },
    { key: "shape", label: "Shape", align: "right", narrow: true },
    { key: "requested_bytes", label: "Requested", narrow: true },
    { key: "allocated_bytes", label: "Allocated" },
    { key: "percent", label: "% of peak", bar: { css: "mem", max: most * 1.2 || 100, width: 88 } },
    { key: "occurrences", label: "Count" },
  ];
  const handle = table(holder, {
    table: peak,
    columns,
    sort: { key: "allocated_bytes", descending: true },
    label: "Allocations alive at the peak",
    signal,
  });
  const line = h("p.more.smaller");
  const fold = (folded: boolean): void => {
    handle.setRows(folded ? shown : null);
    clear(line);
    if (!smaller.length) return;
    const rest = total(peak, smaller);
    const text = folded
      ? `${count(rest.count)} smaller: ${bytesText(rest.allocated_bytes)}, ${percent(rest.percent)} of the peak`
      : `All ${count(peak.rows)} rows`;
    line.append(
      h(
        "span",
        `${text} `,
        link(folded ? "show" : "show the largest only", () => fold(!folded)),
      ),
    );
  };
  fold(true);
  return h(
    "section",
    heading(
      "Live at the peak",
      `${count(all.count)} ${all.count === 1 ? "allocation" : "allocations"}, ${bytesText(all.allocated_bytes)}`,
      downloadButton("nbprof-memory-peak.csv", () => toCsv(peak, order)),
    ),
    holder,
    line,
  );
}

function percentOf(id: MemoryId, row: number): number {
  const column = id.peak.data.percent;
  const value = column && !Array.isArray(column) && !("codes" in column) ? (column[row] as number) : Number.NaN;
  return Number.isNaN(value) ? 0 : value;
}
