/** Memory: how much was in use, when it was most, and what was alive then. */

import { numberAt, textAt } from "../../lib/codec.js";
import { filled } from "../../lib/columns.js";
import { toCsv } from "../../lib/csv.js";
import { cutOf } from "../../lib/cut.js";
import { clear, h, listen, marked } from "../../lib/dom.js";
import { bytesText, count, known, ms, num, percent } from "../../lib/format.js";
import { downloadButton, emptyView, figures, heading, link, picker, segmented, tableFilter } from "../../lib/parts.js";
import type { MemoryId, Table } from "../../lib/payload.js";
import { mostOf } from "../../lib/rows.js";
import { swatch } from "../../lib/swatch.js";
import { type ColumnSpec, table } from "../../lib/table.js";
import { capital } from "../../lib/unit.js";
import type { View, ViewContext } from "../../lib/view.js";
import { hasTrace, toMoment } from "../jump.js";
import { fillName } from "../names.js";
import { stepCount } from "../stepstats.js";
import { hostMemory } from "./host.js";
import { aliveAt, bySize, isRest, split, total } from "./peak.js";
import { type Plot, plot } from "./plot.js";
import { peakIndex } from "./series.js";

export const render: View = (el, context) => {
  const { empty, ids, of, peaks, host } = context.payload.memory;
  const first = ids[0];
  if (empty || !first) {
    const none = { title: "No allocations recorded", text: "The profile has no memory events." };
    el.append(h("section", emptyView(empty ?? none)));
    if (host) el.append(hostMemory(host, context.signal));
    return;
  }
  const body = h("div.memory-body");
  let end: AbortController | null = null;
  const also = h("span.dim.also");
  let picture: Plot | null = null;
  context.keep(
    () => picture?.pinned ?? -1,
    (index) => index >= 0 && picture?.pin(index),
  );
  const show = (index: number): void => {
    end?.abort();
    end = new AbortController();
    const id = ids[index] ?? first;
    const rest = ids.filter((each) => each !== id).map((each) => `${each.memory_id} (${bytesText(each.peak_bytes)})`);
    also.textContent = rest.length ? `also: ${rest.join(", ")}` : "";
    clear(body);
    const table = h("section");
    const inside = end.signal;
    body.append(
      figures(id.figures),
      timeline(
        id,
        context,
        inside,
        (index) => alive(table, context, id, index, inside),
        (drawn) => {
          picture = drawn;
        },
      ),
      byRole(id, inside) ?? "",
      table,
    );
    const ops = byOp(id, context, inside);
    if (ops) body.append(ops);
    if (!id.time_ms.length) alive(table, context, id, -1, inside);
  };
  listen(context.signal, "abort", () => end?.abort());
  const choose = picker(
    "Memory",
    ids.map((id, i) => ({ id: String(i), label: `${id.memory_id || "(no name)"}, peak ${bytesText(id.peak_bytes)}` })),
    "0",
    (id) => show(Number(id)),
  );
  el.append(h("div.toolbar.memory-pick", choose, of && h("span.dim", ...marked(of)), also), body);
  if (peaks) el.append(ofHosts(peaks, context.signal));
  if (host) el.append(hostMemory(host, context.signal));
  show(0);
};

function timeline(
  id: MemoryId,
  context: ViewContext,
  signal: AbortSignal,
  onPin: (index: number) => void,
  onPlot: (plot: Plot) => void,
): HTMLElement {
  const n = id.time_ms.length;
  const { steps } = context.payload;
  const scope = [n ? ms((id.time_ms[n - 1] as number) - Math.min(0, id.time_ms[0] as number), 1) : ""];
  if (steps.step.length && stepCount(steps)) scope.push(stepCount(steps));
  if (id.total > n) scope.push(`${count(n)} of ${count(id.total)} events drawn, including every maximum`);
  if (!n) {
    return h("section", heading("Timeline"), h("p.dim", "No event of this allocator was recorded."));
  }
  const area = plot(id, context.width, signal, onPin, steps.noun);
  onPlot(area);
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
  const peak = peakIndex(id);
  const stack = id.stack_bytes[peak];
  // PyTorch's allocators state neither stack nor fragmentation, and hold free memory as a reserve.
  const stacked = known(stack);
  const fragmented = id.fragmentation.some((value) => known(value));
  const held = id.free_bytes.some((value) => known(value));
  const absent = [!stacked && "a stack", !held && "free memory", !fragmented && "fragmentation"].filter(Boolean);
  const key = (css: string, text: string): HTMLElement => h("span", h("i", { class: `sw ${css}` }), text);
  return h(
    "section",
    heading("Timeline", scope.filter(Boolean).join(", "), capacity && modes),
    area.element,
    h(
      "div.legend.memory-legend",
      stacked && key("m-stack", `Stack ${bytesText(stack)} at the peak`),
      ...(id.roles
        ? id.roles.series.map(({ role, tint }) => h("span", square(tint), capital(role)))
        : [key("m-heap", stacked ? "Heap" : "Allocated")]),
      held && key("m-free", stacked ? "Free" : "Reserved, not allocated"),
      fragmented && key("m-frag", "Fragmentation, %, below"),
    ),
    absent.length > 0 &&
      h("p.more", `This allocator doesn't report ${absent.join(", ").replace(/, ([^,]*)$/, " or $1")}.`),
  );
}

/** The square of a role, in its colour in the plot. */
const square = (tint: number): HTMLElement =>
  tint < 0 ? swatch("other") : h("i.sw", { style: { "--c": `var(--t${tint})` } });

/** What the memory at the peak is used for; nothing where next to none of it is known. */
function byRole({ roles }: MemoryId, signal: AbortSignal): HTMLElement | null {
  if (!roles) return null;
  const { peak } = roles;
  const holder = h("div");
  table(holder, {
    table: peak,
    columns: [
      {
        key: "role",
        grow: true,
        cell: (row, cell) => {
          const role = textAt(peak.data.role, row);
          const drawn = roles.series.find((each) => each.role === role);
          cell.append(drawn ? square(drawn.tint) : swatch("m-free"), ` ${capital(role)}`);
        },
      },
      { key: "bytes" },
      { key: "percent", bar: { css: "mem", max: mostOf(peak, "percent") * 1.2 || 100, width: 88 } },
      { key: "blocks", narrow: true },
    ],
    label: "By role at the peak",
    signal,
  });
  return h("section", heading("By role at the peak"), holder);
}

/** The peaks of all hosts. */
function ofHosts(peaks: Table, signal: AbortSignal): HTMLElement {
  const holder = h("div");
  const columns: ColumnSpec[] = [
    { key: "memory_id", grow: true },
    { key: "peak_bytes" },
    { key: "capacity_bytes" },
    { key: "peak_time_ms", narrow: true },
    { key: "peak_fragmentation", narrow: true },
    { key: "allocations", narrow: true },
    { key: "deallocations", narrow: true },
  ];
  const handle = table(holder, {
    table: peaks,
    columns: filled(columns, peaks),
    sort: { key: "peak_bytes", descending: true },
    label: "Peaks of hosts",
    signal,
  });
  const save = downloadButton("nbprof-memory-peaks.csv", () => handle.csv());
  return h("section", heading("Peaks of hosts", `${count(peaks.rows)}, the highest first`, save), holder);
}

/** What each op took and gave back itself; nothing where no op is known. */
function byOp(
  { memory_id, ops, ops_left_out }: MemoryId,
  context: ViewContext,
  signal: AbortSignal,
): HTMLElement | null {
  if (!ops.rows) return null;
  const holder = h("div");
  const handle = table(holder, {
    table: ops,
    columns: [
      {
        key: "op",
        grow: true,
        cell: (row, cell) => {
          const name = textAt(ops.data.op, row);
          if (name) fillName(cell, name, cutOf(ops, "op"));
          else cell.append(h("span.dim", "in no op"));
        },
      },
      { key: "allocations", narrow: true },
      { key: "allocated_bytes" },
      { key: "deallocations", narrow: true },
      { key: "freed_bytes" },
      { key: "increase_bytes" },
    ],
    sort: { key: "allocated_bytes", descending: true },
    onRow: (row) => {
      const name = textAt(ops.data.op, row);
      if (name) context.go("trace", { search: name, target: { kind: "op", name } });
    },
    filterKeys: ["op"],
    label: `What ops allocated and freed in ${memory_id}`,
    signal,
  });
  return h(
    "section",
    heading(
      "By op",
      "what each op itself allocated and freed over the recording",
      h(
        "span.actions",
        tableFilter(ops.rows, "Filter ops", (text) => handle.setFilter(text)),
        downloadButton("nbprof-memory-ops.csv", () => handle.csv()),
      ),
    ),
    holder,
    ops_left_out && h("p.more", ops_left_out),
  );
}

/** What was alive at the peak (`at` -1), or after a drawn event. */
function alive(el: HTMLElement, context: ViewContext, id: MemoryId, index: number, signal: AbortSignal): void {
  const live = index < 0 ? id.peak : aliveAt(id, index);
  const order = bySize(live);
  const all = total(live, order);
  const blocks = total(
    live,
    order.filter((row) => !isRest(live, row)),
  ).count;
  const { shown, smaller } = split(order);
  const name = index < 0 ? "the peak" : `${num(id.time_ms[index], 3)} ms`;
  const time = index < 0 ? (id.peak_time_ms ?? Number.NaN) : (id.time_ms[index] as number);
  const peak = { kind: "memory_peak", name: id.memory_id, time_ms: time } as const;
  const moment = { ...toMoment(context.payload, time), ...(index < 0 && { target: peak }) };
  clear(el);
  if (!live.rows) {
    el.append(heading(`Live at ${name}`), h("p.dim", "No allocation was live, or none was recorded."));
    return;
  }
  const holder = h("div");
  const most = mostOf(live, "percent");
  const columns: ColumnSpec[] = [
    {
      key: "op",
      grow: true,
      cell: (row, cell) => fillName(cell, textAt(live.data.op, row), cutOf(live, "op")),
    },
    { key: "region_type", narrow: true },
    { key: "data_type", narrow: true },
    { key: "shape", align: "right", narrow: true },
    { key: "requested_bytes", narrow: true },
    { key: "allocated_bytes" },
    {
      key: "percent",
      bar: { css: "mem", max: most * 1.2 || 100, width: 88 },
    },
    {
      key: "occurrences",
      cell: (row, cell) => {
        cell.textContent = isRest(live, row) ? "–" : count(numberAt(live.data.occurrences, row));
      },
    },
  ];
  const handle = table(holder, {
    table: live,
    // PyTorch states neither regions nor types.
    columns: filled(columns, live),
    sort: { key: "allocated_bytes", descending: true },
    onRow: (row) => {
      const name = textAt(live.data.op, row);
      if (name) context.go("trace", { search: name, target: { kind: "op", name } });
    },
    filterKeys: ["op"],
    label: `Allocations live at ${name}`,
    signal,
  });
  const line = h("p.more.smaller");
  const filter = (text: string): string | null => {
    // What is looked for may be among the smaller ones.
    fold(!text);
    if (text) clear(line);
    return handle.setFilter(text);
  };
  const fold = (folded: boolean): void => {
    handle.setRows(folded ? shown : null);
    clear(line);
    if (!smaller.length) return;
    const rest = total(live, smaller);
    const text = folded
      ? `${count(rest.count)} smaller: ${bytesText(rest.allocated_bytes)}, ${percent(rest.percent)} of ${index < 0 ? "the peak" : "what is in use"}`
      : `All ${count(live.rows)} rows`;
    line.append(
      h(
        "span",
        `${text} `,
        link(folded ? "show" : "show the largest only", () => fold(!folded)),
      ),
    );
  };
  fold(true);
  el.append(
    heading(
      `Live at ${name}`,
      `${blocks ? `${count(blocks)} ${blocks === 1 ? "allocation" : "allocations"}, ` : ""}${bytesText(all.allocated_bytes)}`,
      h(
        "span.actions",
        known(time) && hasTrace(context.payload) && link("Show in trace →", () => context.go("trace", moment)),
        tableFilter(live.rows, "Filter live ops", filter),
        downloadButton(`nbprof-memory-${index < 0 ? "peak" : "moment"}.csv`, () => toCsv(live, order)),
      ),
    ),
    holder,
    line,
  );
}
