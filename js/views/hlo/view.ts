/** HLO & roofline: ops of compiled programs, how near each comes to what the device can do, and all that is known of them. */

import { textAt } from "../../lib/codec.js";
import { clear, h } from "../../lib/dom.js";
import { count, MISSING, ms } from "../../lib/format.js";
import {
  donut,
  downloadButton,
  emptyView,
  figures,
  heading,
  legend,
  link,
  picker,
  snippet,
  toggle,
} from "../../lib/parts.js";
import type { Hlo } from "../../lib/payload.js";
import { allRows, filterRows, type Sort } from "../../lib/rows.js";
import { type ColumnSpec, type TableHandle, table } from "../../lib/table.js";
import type { Hint, View, ViewHandle } from "../../lib/view.js";
import { filterField } from "../folding.js";
import { hasTrace } from "../jump.js";
import { choices, details, hueNames, labelOf, missing, points, remarks } from "./model.js";
import { type RoofChart, roofChart } from "./plot.js";

/** What the filter looks at. */
const NAMES = ["op", "framework_op", "category", "source", "expression", "input_shapes"];
const CODE = new Set(["op", "source", "shape", "layout", "expression", "input_shapes"]);
const PICKS = ["program", "category", "bound"] as const;

export const render: View = (el, context, hint) => {
  const { hlo } = context.payload;
  const { data } = hlo.table;
  if (hlo.empty) {
    el.append(h("section", emptyView(hlo.empty)));
    return;
  }
  let picked = -1;
  let match: ((text: string) => boolean) | null = null;
  const wanted = new Map<string, string>();
  const every = allRows(hlo.table);
  const holder = h("div");
  const card = h("dl.env.hlo-op", { "aria-label": "Op" });
  const rowsText = h("span");
  const sort: Sort = { key: "self_us", descending: true };
  let wide = false;
  let list: TableHandle;
  let chart: RoofChart;

  const pick = (row: number, scroll = true): void => {
    picked = row;
    chart.select(row);
    if (scroll) list.select(row < 0 ? null : row);
    clear(card);
    if (row < 0) {
      card.append(h("dt", "Click an op in the chart or the table for details."));
      return;
    }
    for (const { key, label, value } of details(hlo, row))
      card.append(h("dt", label), h("dd", CODE.has(key) ? h("code", value) : value));
    if (hasTrace(context.payload))
      card.append(
        h("dt", "Trace"),
        h(
          "dd",
          link("longest call →", () => context.go("trace", toTrace(hlo, row))),
        ),
      );
  };
  const rows = (): Uint32Array => {
    const fits = every.filter((row) => [...wanted].every(([key, text]) => textAt(data[key], row) === text));
    return match ? filterRows(hlo.table, fits, NAMES, match) : fits;
  };
  const refresh = (): void => {
    const found = rows();
    list.setRows(found);
    chart.only(found.length < hlo.table.rows ? new Set(found) : null);
    const part = found.length < hlo.table.rows ? ` of ${count(hlo.table.rows)}` : "";
    rowsText.textContent = `${count(found.length)}${part} ${hlo.table.rows === 1 ? "op" : "ops"}. ${hlo.left_out}`;
  };
  const build = (): void => {
    clear(holder);
    list = table(holder, {
      table: hlo.table,
      columns: wide ? all(hlo) : main(hlo),
      sort,
      label: hlo.table.data["input_shapes"] ? "Ops" : "Ops of compiled programs",
      none: "No op matches.",
      onRow: (row) => pick(row, false),
      signal: context.signal,
    });
    refresh();
    if (picked >= 0) list.select(picked);
  };
  chart = roofChart(hlo, context.signal, pick);
  const filter = filterField("Filter ops", (test) => {
    match = test;
    refresh();
  });
  const lists = PICKS.flatMap((key) => {
    const texts = choices(hlo, key);
    if (texts.length < 2) return [];
    const options = texts.map((text, i) => ({ id: String(i), label: text || "(unknown)" }));
    return picker(labelOf(hlo, key), [{ id: "", label: "Any" }, ...options], "", (id) => {
      if (id) wanted.set(key, texts[Number(id)] as string);
      else wanted.delete(key);
      refresh();
    });
  });
  const more = toggle("All columns", wide, (on) => {
    wide = on;
    build();
  });
  // Only ops whose cost is known have a point.
  const drawn = points(hlo);
  const hues = hueNames(drawn);
  build();
  // That which took most time.
  pick(hlo.table.rows ? 0 : -1);
  el.append(
    figures(hlo.figures),
    h(
      "section",
      heading("Roofline", [hlo.device, "one point per op, its area is the self time"].filter(Boolean).join(", ")),
      hlo.missing && h("div", h("p.dim", `${hlo.missing} Give its peak rates per second:`), snippet(hlo.code)),
      chart.element,
      hues.length > 1 && legend(hues),
      h("p.more", remarks(hlo, drawn)),
    ),
    h(
      "section",
      h(
        "div.toolbar",
        filter.element,
        ...lists,
        more,
        h(
          "span.end",
          downloadButton("nbprof-hlo.csv", () => list.csv()),
        ),
      ),
      card,
      holder,
      h("p.more", rowsText),
    ),
    h(
      "section",
      heading("Self time"),
      h(
        "div.donuts.two",
        ...hlo.donuts.map(({ title, ms: total, parts }) => donut({ title, total: ms(total), hue: "d", parts })),
      ),
    ),
  );
  const follow = (given: Hint): void => {
    const text = given.filter ?? given.search;
    if (text === undefined) return;
    filter.set(text);
    const row = [...list.visibleRows()].find((each) => textAt(data.op, each) === text);
    if (row !== undefined) pick(row);
  };
  if (hint) follow(hint);
  return { hint: follow, focusFilter: () => filter.input.focus() } satisfies ViewHandle;
};

/** To the longest call of an op, by the framework's name where it has one. */
function toTrace(hlo: Hlo, row: number): Hint {
  const { data } = hlo.table;
  const framework = textAt(data.framework_op, row);
  const name = framework || textAt(data.op, row);
  return { search: name, target: framework ? { kind: "op", name, where: "device" } : { kind: "name", name } };
}

/** What is read most; "All columns" has the rest. */
const MAIN: ColumnSpec[] = [
  { key: "rank", dim: true },
  { key: "op", grow: true, width: 170 },
  { key: "input_shapes", kind: "text", narrow: true, width: 120 },
  { key: "category", narrow: true },
  { key: "occurrences", narrow: true },
  { key: "self_us" },
  { key: "self_percent", bar: { css: "device", width: 56 } },
  { key: "gflops_per_second", narrow: true },
  { key: "gmemory_bytes_per_second", narrow: true },
  { key: "operational_intensity", narrow: true },
  { key: "bound" },
  { key: "roof_percent" },
  { key: "wasted_us" },
];

/** Ops of PyTorch have shapes of inputs, ops of programs have none. */
const there = (hlo: Hlo): ColumnSpec[] =>
  MAIN.filter(({ key }) => hlo.table.columns.some((column) => column.key === key)).map((spec) =>
    spec.key === "input_shapes" ? { ...spec, cell: capped(hlo, spec.key) } : spec,
  );

/** Ops of several programs may have one name. */
function main(hlo: Hlo): ColumnSpec[] {
  const program: ColumnSpec = { key: "program", narrow: true, kind: "text", cell: capped(hlo, "program", "program") };
  // Without peaks nobody knows what bounds an op, and how close to its roof it comes.
  const bound = Array.from({ length: hlo.table.rows }, (_, row) => textAt(hlo.table.data["bound"], row)).some(Boolean);
  const shown = there(hlo).filter(({ key }) => bound || !["bound", "roof_percent", "wasted_us"].includes(key));
  return shown
    .map((spec) => ({ ...spec, missing: missing(hlo, spec.key) }))
    .flatMap((spec) => (spec.key === "category" && choices(hlo, "program").length > 1 ? [program, spec] : [spec]));
}

/** Every column; the op stays put. */
function all(hlo: Hlo): ColumnSpec[] {
  const first = there(hlo).map((spec) => ({
    ...spec,
    missing: missing(hlo, spec.key),
    narrow: false,
    ...(spec.key === "op" ? { sticky: 0, grow: false } : {}),
  }));
  const rest = hlo.table.columns.filter((column) => !MAIN.some((spec) => spec.key === column.key));
  return [
    ...first,
    ...rest.map(
      ({ key, kind }): ColumnSpec =>
        kind === "code" || kind === "text" ? { key, kind: "text", cell: capped(hlo, key) } : { key },
    ),
  ];
}

/** A long text, cut at the right. */
const capped =
  (hlo: Hlo, key: string, css = "shape"): ColumnSpec["cell"] =>
  (row, cell) => {
    cell.title = textAt(hlo.table.data[key], row);
    cell.classList.add(css);
    cell.append(h("code", cell.title || MISSING));
  };
