/** Ascend: iterations of a graph on an NPU with their verdict, rules, ops, counters, waits, fusion and calls of the host. */

import { numberAt, textAt } from "../../lib/codec.js";
import { headsOf } from "../../lib/columns.js";
import { clear, h } from "../../lib/dom.js";
import { ms, num } from "../../lib/format.js";
import { categoryClass, donut, downloadButton, emptyView, figures, heading, legend, picker } from "../../lib/parts.js";
import type { Ascend, AscendRule, AscendSection } from "../../lib/payload.js";
import { CATEGORIES, type Steps, type Table } from "../../lib/payload.js";
import { mostOf } from "../../lib/rows.js";
import { createStore } from "../../lib/store.js";
import { type ColumnSpec, type TableHandle, table } from "../../lib/table.js";
import type { View, ViewContext } from "../../lib/view.js";
import { plainTable, statisticsTable } from "../breakdown.js";
import { stepChart } from "../stepchart.js";
import { breakdown, leftOutNote, selectedRows } from "../stepstats.js";
import { toTrace } from "./model.js";

const SEVERITIES = {
  high: ["high", "High"],
  medium: ["med", "Medium"],
  low: ["low", "Low"],
  "": ["low", "–"],
} as const;
/** The category whose colour a kind of core has; all others are the device. */
const HUE: Record<string, string> = {
  "AI CPU": "host",
  Communication: "coll",
  Copy: "d2d",
  "": "other",
  Other: "other",
};
/** Columns that have a bar; and those that narrow outputs leave out. */
const BARS = ["fraction", "wait_fraction"];
const NARROW =
  /^(min|max|avg|sd|mte1|mte3|fixpipe|icache|task_type|block|op_state|host|saturated|longest_before|input_shapes)/;
/** Most rules that are told one by one: the others are in the list of all. */
const MOST_FOUND = 5;

export const render: View = (el, context) => {
  const { ascend } = context.payload;
  if (ascend.empty) {
    el.append(h("section", emptyView(ascend.empty)));
    return;
  }
  el.append(verdict(ascend));
  if (ascend.figures.length) el.append(h("section", figures(ascend.figures)));
  // Of a table that was opened by itself there is neither.
  if (ascend.iterations.length || ascend.iterations_missing) iterations(el, context);
  if (ascend.rules.length) el.append(rules(ascend.rules, context));
  const { sections } = ascend;
  const cores = sections.find(({ id }) => id === "cores");
  for (const section of sections) if (section !== cores) tableSection(el, section, context, cores);
};

function verdict({ verdict: { bound, word, text, detail }, notes }: Ascend): HTMLElement {
  const css = bound ? categoryClass(bound) : undefined;
  return h(
    "section.verdict",
    h(
      "div",
      h("h2", h("em", { class: css }, text ? `${word}:` : word), text && ` ${text}`),
      detail && h("p", detail),
      ...notes.map((note) => h("p.dim", note)),
    ),
  );
}

/** The iterations of one model on one device as a chart with its statistics; other ones can be chosen. */
function iterations(el: HTMLElement, context: ViewContext): void {
  const { iterations: groups, iterations_missing: missing } = context.payload.ascend;
  const first = groups[0];
  if (!first) {
    el.append(h("section", heading("Iterations"), h("p.dim", missing)));
    return;
  }
  const body = h("div");
  const head = h("div");
  el.append(h("section", head, body));
  let end = new AbortController();
  context.signal.addEventListener("abort", () => end.abort());
  const show = (steps: Steps): void => {
    end.abort();
    end = new AbortController();
    clear(body);
    clear(head);
    const shown = CATEGORIES.flatMap(({ key, css }) => {
      const label = steps.labels?.[key];
      return label && steps.categories[key] ? [{ css, label }] : [];
    });
    const choices = groups.map(({ label }, i) => ({ id: String(i), label }));
    const which = String(groups.findIndex((group) => group.steps === steps));
    head.append(heading("Iterations", "end to end: each bar is one", legend(shown)));
    if (groups.length > 1) {
      head.append(
        h(
          "div.toolbar",
          picker("Of", choices, which, (id) => show((groups[Number(id)] ?? first).steps)),
        ),
      );
    }
    // Iterations are no steps: what is selected here is of this chart alone.
    const local = { ...context, payload: { ...context.payload, steps }, store: createStore(), signal: end.signal };
    const [left, side] = [h("div"), h("div")];
    body.append(h("div.split.b", left, side));
    const update = (): void => {
      const selection = local.store.get("selection");
      const { total, parts } = breakdown(steps, selectedRows(steps, selection));
      clear(side);
      side.append(statisticsTable(parts, total, headsOf(context.payload.meta, "ascend.iterations"), steps.noun));
      const left_out = leftOutNote(steps, selection);
      if (left_out) side.append(h("p.more", left_out));
    };
    update();
    local.store.subscribe("selection", update, end.signal);
    stepChart(left, local, { waiting: steps.categories.input !== undefined });
  };
  show(first.steps);
}

/** What to do, with its evidence, and all that was looked at. */
function rules(all: readonly AscendRule[], context: ViewContext): HTMLElement {
  const found = all.filter((rule) => rule.state === "found");
  const known = all.filter((rule) => rule.state !== "unknown");
  const sev = (rule: AscendRule): HTMLElement => {
    const [css, word] = SEVERITIES[rule.severity];
    return h("span", { class: `sev ${css}` }, word);
  };
  const items = found
    .slice(0, MOST_FOUND)
    .map((rule) =>
      h(
        "li",
        h(
          "div",
          h(
            "div.h",
            sev(rule),
            h("b", rule.title),
            rule.percent !== null && h("span.gain", `${num(rule.percent, 1)}%`, " of the time"),
          ),
          h("p.ev", rule.evidence),
          rule.ops && h("p.ev.dim", "Ops: ", h("code", rule.ops)),
        ),
        h("p", rule.fix),
      ),
    );
  const rows = all.map((rule) => {
    const word = { found: sev(rule), clear: "No", unknown: "–" }[rule.state];
    return h(
      "tr",
      { class: rule.state === "unknown" ? "zero" : undefined },
      h("td", word),
      h("td.hide-n", rule.about),
      h("td", rule.title),
      h("td.dim.helps", rule.evidence),
    );
  });
  const head = headsOf(context.payload.meta, "ascend.rules.frame");
  const heads = [head("state"), head("about", "hide-n"), head("title"), head("evidence")];
  return h(
    "section",
    heading("Next steps", found.length ? "rules of Ascend's tools, by the time they affect" : ""),
    found.length ? h("ul.recs", ...items) : h("p.dim", "No rule fired."),
    all.length > 0 &&
      h(
        "details.checks",
        h("summary", `${num(known.length)} of ${num(all.length)} rules ran; ${num(found.length)} fired`),
        plainTable(heads, rows),
      ),
  );
}

function tableSection(el: HTMLElement, section: AscendSection, context: ViewContext, cores?: AscendSection): void {
  const { id, title, scope, missing, note, table: data } = section;
  const body = h("section");
  el.append(body);
  if (missing || !data.rows) {
    body.append(heading(title), h("p.dim", missing));
    return;
  }
  const csv = (): HTMLElement => downloadButton(`nbprof-ascend-${id.replace("_", "-")}.csv`, () => list.csv());
  body.append(heading(title, scope, csv()));
  if (id === "op_types") {
    const side = h("div");
    body.append(h("div.split.b", ring(context.payload.ascend.ring), side));
    if (cores?.table.rows) {
      side.append(heading(cores.title, cores.scope));
      draw(side, cores, context);
    }
  }
  const holder = h("div", { style: id === "op_types" ? { marginTop: "16px" } : {} });
  body.append(holder);
  const list = draw(holder, section, context);
  if (note) body.append(h("p.more", note));
}

const draw = (el: HTMLElement, { id, title, table: data }: AscendSection, context: ViewContext): TableHandle =>
  table(el, {
    table: data,
    columns: columns(id, data),
    label: title,
    height: 340,
    signal: context.signal,
    ...(data.data["_at_ms"] ? { onRow: (row: number) => context.go("trace", toTrace(id, data, row)) } : {}),
  });

/** All columns, the first as the name, shares with bars in the colour of where the time was spent. */
function columns(id: string, data: Table): ColumnSpec[] {
  const cores = data.data["core"];
  const hue = (row: number): string => {
    if (cores) return HUE[textAt(cores, row)] ?? "device";
    return id === "api" ? "host" : "other";
  };
  return data.columns.map(({ key, kind }, i): ColumnSpec => {
    const spec: ColumnSpec = { key, grow: i === 0 && kind !== "number", narrow: NARROW.test(key) };
    if (BARS.includes(key) || (key === "bound_fraction" && id === "pmu_types"))
      spec.bar = { css: hue, max: (mostOf(data, key) || 1) * 1.06, width: 48 };
    // The row of all streams together.
    if (key === "stream" && id === "waits") {
      spec.cell = (row, cell) => {
        const stream = numberAt(data.data["stream"], row);
        cell.append(Number.isFinite(stream) ? String(stream) : h("b", "all"));
      };
    }
    if (spec.grow || key === "longest_before" || key === "original_ops") spec.width = 170;
    return spec;
  });
}

/** The types that take the most as a ring. */
function ring({ ms: total, parts }: Ascend["ring"]): HTMLElement {
  const figure = donut({
    title: "Time by type",
    total: "",
    hue: "d",
    parts,
    size: 160,
    center: [ms(total, 1), "of tasks"],
  });
  figure.classList.add("big");
  figure.querySelector("h4")?.remove();
  return figure;
}
