/** Two runs side by side: is the second one faster, is that more than chance, and what changed. */

import { headsOf } from "../../lib/columns.js";
import { clear, h, marked } from "../../lib/dom.js";
import { MISSING, ms } from "../../lib/format.js";
import { button, copyButton, emptyView, heading, picker } from "../../lib/parts.js";
import type { Compare, ComparedRun, Pair } from "../../lib/payload.js";
import { isWhole, timeTitle, unitOf } from "../../lib/unit.js";
import type { View, ViewContext } from "../../lib/view.js";
import { cells, missingNote, plainTable } from "../breakdown.js";
import { adviceCard } from "../overview/view.js";
import { changes } from "./changes.js";
import { averages, categoryTable, figures, stepDots } from "./draw.js";
import { flame } from "./flame.js";
import { memory } from "./memory.js";
import { categoryRows, pairOf, picked } from "./model.js";

function answer(pair: Pair): HTMLElement {
  return h(
    "div.verdict",
    h("div", h("h2", pair.headline), pair.detail && h("p", pair.detail)),
    h(
      "div.evid",
      h("h3", pair.title),
      h("ul", ...pair.evidence.map((item) => h("li", { class: item.ok ? undefined : "no" }, item.text))),
    ),
  );
}

function sides(part: Compare, pair: Pair): [ComparedRun, ComparedRun] {
  return [part.runs[pair.before] as ComparedRun, part.runs[pair.after] as ComparedRun];
}

/** "run 7 · 14:02" */
function nameOf(run: ComparedRun): string {
  const [clock] = /\d\d:\d\d/.exec(run.created) ?? [];
  return clock ? `${run.label} · ${clock}` : run.label;
}

function times(part: Compare, pair: Pair, context: ViewContext): HTMLElement {
  const runs = sides(part, pair);
  const { rows, missing } = categoryRows(pair);
  const series = runs.map((run) => (pair.bare ? run.bare_ms : run.times_ms));
  const some = series.some((times) => times.length > 0);
  const unit = unitOf(pair);
  const title = isWhole(unit) ? "Durations" : `${timeTitle(unit)}s`;
  if (!some) {
    const text = "Neither run has steps. What can be compared without steps is below.";
    return h("section", heading(title), emptyView({ title: "No steps to draw", text }));
  }
  if (!rows.some((row) => row.key === "step_time")) {
    const text = "Their times refer to different units of work. What can be compared without them is below.";
    return h("section", heading("Times"), emptyView({ title: "No times to compare", text }));
  }
  const recorded = pair.bare ? ", while recorded" : "";
  const dots = `ms, one dot per ${unit.noun}${pair.bare ? " without recording" : ""}, line = mean`;
  const doubtful = rows.some((row) => row.real === false && row.change_ms);
  return h(
    "section.split.c",
    h(
      "div",
      heading(title, isWhole(unit) ? "ms" : dots),
      stepDots(series, pair.digits, context.signal, unit),
      h("div.apart", heading(unit.average, `same scale${recorded}`)),
      averages(rows, pair),
    ),
    h(
      "div",
      heading("By category", `ms ${unit.per}${recorded}`),
      categoryTable(rows, pair, context.payload.meta),
      doubtful && h("p.more", h("span", "A faint bar may be noise: the 95% interval of its change includes 0.")),
      missingNote(missing, context.payload.meta.has_device),
    ),
  );
}

/** The findings of both runs: what was predicted, and whether it is still there. */
function advised(pair: Pair, context: ViewContext): HTMLElement | null {
  const { findings, findings_text: text } = pair;
  if (!findings?.length) return null;
  const head = headsOf(context.payload.meta, "comparison.findings");
  const gain = (kind: string, saved: number | null): string => (saved === null ? MISSING : `${kind} −${ms(saved)}`);
  const rows = findings.map(({ title, state, gain_is: kind = "up to", before_ms, after_ms }) =>
    h("tr", h("td", title), h("td", state), ...cells("n", gain(kind, before_ms), gain(kind, after_ms))),
  );
  return h(
    "section",
    heading("Advice before and after", `predicted gain ${unitOf(pair).per}`),
    text && h("p", ...marked(text)),
    plainTable([head("title"), head("state"), head("before_ms", "n"), head("after_ms", "n")], rows),
  );
}

function nextStep(part: Compare, pair: Pair, context: ViewContext): HTMLElement {
  const run = part.runs[pair.after] as ComparedRun;
  const linked = pair.after === part.home;
  return h(
    "section",
    heading(`Next step for ${run.label}`),
    run.advice.length
      ? h("ul.recs", ...run.advice.map((advice) => adviceCard(advice, context, linked)))
      : h("p.dim", run.no_advice),
  );
}

export const render: View = (el, context) => {
  const part = context.payload.compare;
  if (!part?.pairs.length) {
    el.append(emptyView({ title: "Nothing to compare", text: "This report has only one run." }));
    return;
  }
  let pair = part.pairs[0] as Pair;
  const bar = h("div.toolbar.compare-bar");
  const head = h("section.compare-head", bar);
  const body = h("div.compare-body");
  el.append(head, body);

  const choices = part.runs.map((run, i) => ({ id: String(i), label: nameOf(run) }));
  const choose = (side: "before" | "after", id: string, focus: string): void => {
    const next = picked(pair, side, Number(id));
    pair = pairOf(part, next.before, next.after) ?? pair;
    draw();
    bar.querySelector<HTMLElement>(focus)?.focus();
  };
  const draw = (): void => {
    const copy = copyButton(() => pair.markdown, "Copy as Markdown");
    copy.setAttribute("aria-label", "Copy as Markdown");
    bar.replaceChildren(
      picker("Before", choices, String(pair.before), (id) => choose("before", id, "[aria-label=Before]")),
      h("span.dim", { "aria-hidden": "true" }, "→"),
      picker("After", choices, String(pair.after), (id) => choose("after", id, "[aria-label=After]")),
      button("⇄ swap", () => choose("before", String(pair.after), ".swap"), {
        class: "btn quiet swap",
        "aria-label": "Swap before and after",
      }),
      h("span.end", copy),
    );
    head.replaceChildren(bar, answer(pair));
    clear(body);
    body.append(
      figures(pair.figures),
      times(part, pair, context),
      ...[advised(pair, context)].filter((section) => section !== null),
      changes(pair, context, pair.after === part.home),
      ...flame(pair, context),
      ...memory(pair, context),
      nextStep(part, pair, context),
    );
  };
  draw();
};
