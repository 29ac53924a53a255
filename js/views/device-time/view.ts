/** Device time with their time, what they waited for, and what the step could not have been shorter without. */

import { textAt } from "../../lib/codec.js";
import { cutOf, cuts } from "../../lib/cut.js";
import { clear, h, listen, marked } from "../../lib/dom.js";
import { ms, num } from "../../lib/format.js";
import { nameNode } from "../../lib/name.js";
import { downloadButton, emptyView, figures, heading, legend, picker, swatch } from "../../lib/parts.js";
import type { Table } from "../../lib/payload.js";
import { type ColumnSpec, table } from "../../lib/table.js";
import { unitOf } from "../../lib/unit.js";
import type { View, ViewContext } from "../../lib/view.js";
import { type Chosen, chosenIn, nameOf } from "../of-host.js";
import { ofRun } from "../whole.js";
import { kindOf, PARTS, type Part, partsOf, pathScope, sum, toPiece, WAITS } from "./model.js";
import { series } from "./series.js";

const NONE = { title: "No device time", text: "This profile has no device work." };

/** Frames as tables: title, what it says, and the columns that a narrow page leaves out. */
const TABLES: readonly (readonly [key: string, title: string, scope: string, narrow: string])[] = [
  ["device_idle_causes", "While the device waited for the host", "what the host did; overlaps counted once", ""],
  [
    "device_overlap",
    "Communication and computation",
    "whole recording",
    "memory_ms compute_ms compute_communication_ms",
  ],
  [
    "device_collectives",
    "Collectives",
    "waiting is the time a rank spends beyond the last one",
    "process_group calls wait_ms algorithm_gb_per_second",
  ],
  [
    "device_stragglers",
    "Last into collectives",
    "which rank the others waited for; the first rows are the whole recording",
    "device collectives",
  ],
  [
    "device_launches",
    "Launches",
    "from the host call to its kernel",
    "max_call_us median_delay_us max_delay_us slow_calls long_delays",
  ],
  ["device_queue", "Queues", "launched but not started", "median_length full_percent"],
  ["device_bandwidth", "Memory bandwidth", "by kind of copy", "copies median_gb_per_second"],
];

export const render: View = (el, context) => {
  const { device_time: data, meta } = context.payload;
  if (data.empty || !data.devices.length) {
    el.append(h("section", emptyView(data.empty ?? NONE)));
    return;
  }
  const chosen = chosenIn(context.store);
  const one = chosen.host !== null || chosen.device !== null;
  const bars = h("div.dt-bars");
  const show = (window: number): void => {
    clear(bars);
    bars.append(...stacked(data.devices, partsOf(data, window), PARTS));
  };
  const windows = data.windows.map((label, i) => ({ id: String(i), label }));
  el.append(
    ofRun(
      h(
        "section",
        one && h("p.dim", scopeText(chosen, data.path.host, meta.hosts !== undefined)),
        h("p.pod-said", ...marked(data.statement)),
        figures(data.figures),
      ),
    ),
    h(
      "section",
      heading(
        "Device time",
        "ms, overlaps counted once",
        windows.length > 1 &&
          h(
            "span.actions",
            picker("Of", windows, "0", (id) => show(Number(id))),
          ),
      ),
      bars,
      legend(PARTS),
    ),
    h(
      "section",
      heading("Idle time breakdown", "ms between two activities"),
      ...stacked(data.devices, data.waits, WAITS),
      legend(WAITS),
    ),
    path(context),
  );
  show(0);
  const [causes, ...others] = TABLES.map((spec) => listed(context, ...spec));
  el.append(causes as HTMLElement, ...chart(context), ...(others as HTMLElement[]));
  if (data.left_out) el.append(h("p.dim", data.left_out));
};

/** Of which devices each part of the view is, while a host or a device is chosen; `path` is the host of the critical path. */
function scopeText(chosen: Chosen, path: string, several: boolean): string {
  const all = `These figures are of all devices${several ? " of all hosts" : ""}.`;
  const below = `Below, bars, curves and tables are of ${nameOf(chosen)}`;
  const cut = "The report holds only the curves and rows that are among the largest of all devices.";
  if (path && path !== chosen.host) return `${all} ${below}; the critical path is of ${path}. ${cut}`;
  return `${all} ${below}${chosen.device === null ? "" : "; the critical path is of all devices"}. ${cut}`;
}

/** A bar a device, in parts, all on one scale. */
function stacked(
  names: readonly string[],
  rows: readonly (readonly (number | null)[])[],
  parts: readonly Part[],
): HTMLElement[] {
  const most = Math.max(...rows.map(sum), 1e-12);
  const shorten = cuts(names);
  return names.map((name, i) => {
    const row = rows[i] ?? [];
    const total = sum(row);
    const sentence = parts
      .map(({ label }, k) => (row[k] ? `${label} ${ms(row[k])}, ${num((100 * row[k]) / total, 1)}%` : ""))
      .filter(Boolean);
    return h(
      "div.dt-row",
      { title: sentence.join("\n") },
      h("bdi", { title: name }, nameNode(name, shorten)),
      h(
        "div.stack",
        { role: "img", "aria-label": `${name}: ${sentence.join("; ") || "unknown"}` },
        ...parts.map(
          ({ css }, k) =>
            (row[k] ?? 0) > 0 &&
            h("i", { class: css, style: { "--w": `calc(${((100 * (row[k] as number)) / most).toFixed(2)}% - 1px)` } }),
        ),
      ),
      h("span.n", row.every((value) => value === null) ? "–" : num(total, 2)),
    );
  });
}

/** The kinds of the critical path as one bar, and all that it runs through. */
function path(context: ViewContext): HTMLElement {
  const { path: data } = context.payload.device_time;
  const scope = data.step
    ? pathScope(data.step, data.host, context.payload.steps.step.length, unitOf(context.payload.meta))
    : "of the whole recording";
  // What is thinner than a pixel is in the table.
  const kinds = data.kinds.filter(({ percent }) => percent >= 0.1);
  const label = kinds.map(({ kind, percent }) => `${kindOf(kind).label} ${num(percent, 1)}%`).join(", ");
  const holder = h("div");
  const element = h(
    "section",
    heading(
      "Critical path",
      scope,
      h(
        "span.actions",
        downloadButton("nbprof-critical-path.csv", () => list.csv()),
      ),
    ),
    h(
      "div.stack",
      { role: "img", "aria-label": `Critical path: ${label}` },
      ...kinds.map(({ kind, percent }) =>
        h("i", {
          class: kindOf(kind).css,
          title: `${kindOf(kind).label} ${num(percent, 1)}%`,
          style: { "--w": `calc(${percent.toFixed(2)}% - 1px)` },
        }),
      ),
    ),
    h(
      "span.legend",
      ...kinds.map(({ kind, percent }) =>
        h("span", swatch(kindOf(kind).css), `${kindOf(kind).label} ${num(percent, 1)}%`),
      ),
    ),
    holder,
    data.rest && h("p.more", data.rest),
  );
  const list = table(holder, {
    table: data.table,
    columns: [
      {
        key: "kind",
        width: 96,
        cell: (row, cell) => {
          const { css, label } = kindOf(textAt(data.table.data.kind, row));
          cell.append(swatch(css), "\u2002", label);
        },
      },
      {
        key: "name",
        kind: "code",
        grow: true,
        width: 150,
        cell: (row, cell) => {
          cell.title = textAt(data.table.data.name, row);
          cell.append(cell.title ? nameNode(cell.title, cutOf(data.table, "name")) : "nothing recorded");
        },
      },
      { key: "op", kind: "code", narrow: true },
      { key: "pieces", narrow: true },
      { key: "total_us" },
      { key: "percent", bar: { css: (row) => kindOf(textAt(data.table.data.kind, row)).css, width: 48 } },
    ],
    sort: { key: "total_us", descending: true },
    height: 320,
    onRow: (row) => context.go("trace", toPiece(data.table, row)),
    label: "What the critical path consists of",
    signal: context.signal,
  });
  return element;
}

/** Queues and copies over time, one at a time. */
function chart(context: ViewContext): HTMLElement[] {
  const { streams } = context.payload.device_time;
  const first = streams[0];
  if (!first) return [];
  const stage = h("div");
  let end = new AbortController();
  listen(context.signal, "abort", () => end.abort());
  const show = (line = first): void => {
    end.abort();
    end = new AbortController();
    clear(stage);
    stage.append(series(line, end.signal));
  };
  const choices = streams.map(({ label }, i) => ({ id: String(i), label }));
  const choice = picker("Of", choices, "0", (id) => show(streams[Number(id)]));
  choice.classList.add("dt-pick");
  show();
  return [h("section", heading("Over time", "maximum of each interval", h("span.actions", choice)), stage)];
}

function listed(context: ViewContext, key: string, title: string, scope: string, narrow: string): HTMLElement | "" {
  const data: Table | undefined = context.payload.device_time.tables[key];
  if (!data?.rows) return "";
  const hidden = narrow.split(" ");
  const several = new Set(context.payload.device_time.devices).size > 1;
  const name = ["kernel", "cause", "copy", "collective"].find((known) => data.data[known]);
  const { host, device } = chosenIn(context.store);
  const all = (host !== null || device !== null) && !data.data["host"] ? "of all devices; " : "";
  const columns = data.columns
    .filter((column) => several || !["host", "device"].includes(column.key) || column.key === name)
    .map(
      (column): ColumnSpec => ({
        key: column.key,
        ...(column.key === name && { grow: true, width: 110 }),
        ...(hidden.includes(column.key) && { narrow: true }),
        ...(column.key === "kernel" && {
          cell: (row, cell) => {
            cell.title = textAt(data.data["kernel"], row);
            cell.append(cell.title ? nameNode(cell.title, cutOf(data, "kernel")) : "All launches");
          },
        }),
      }),
    );
  const holder = h("div");
  const list = table(holder, { table: data, columns, sort: null, height: 270, label: title, signal: context.signal });
  const file = `nbprof-${key.replaceAll("_", "-")}.csv`;
  return h(
    "section",
    heading(
      title,
      all + scope,
      h(
        "span.actions",
        downloadButton(file, () => list.csv()),
      ),
    ),
    holder,
  );
}
