/** What bounds the step, the proof of it, and what to do. */

import { numberAt, textAt } from "../../lib/codec.js";
import { type Head, headsOf } from "../../lib/columns.js";
import { cutOf } from "../../lib/cut.js";
import { clear, h, marked } from "../../lib/dom.js";
import { ms, num, percent, timeUnit } from "../../lib/format.js";
import { nameNode } from "../../lib/name.js";
import { categoryClass, codeBox, emptyView, figures, heading, link, runTag } from "../../lib/parts.js";
import type { Advice, Figure, Overview, Steps } from "../../lib/payload.js";
import { isWhole, STEP, timeTitle, type Unit, unitOf, whereItGoes } from "../../lib/unit.js";
import type { View, ViewContext } from "../../lib/view.js";
import { averageBar, barCell, breakdownTable, cells, missingNote, plainTable } from "../breakdown.js";
import { toOp, toPrograms } from "../jump.js";
import { follows } from "../of-host.js";
import { stepChart } from "../stepchart.js";
import { breakdown, leftOutNote, rangeText, selectedRows, stepCount } from "../stepstats.js";
import { codeSection } from "./code.js";
import { compilesSection, graphBreaksSection } from "./compiles.js";
import { poolsSection } from "./pools.js";
import { rangesSection } from "./ranges.js";
import { triedSection } from "./tried.js";

const LEVELS = { high: 3, medium: 2, low: 1, none: 0 } as const;
const LEVEL = { high: "High", moderate: "Some", no: "No", unknown: "–" } as const;
const SEVERITIES = { high: ["high", "High"], medium: ["med", "Medium"], low: ["low", "Low"] } as const;

function verdict(overview: Overview, bar: HTMLElement): HTMLElement {
  const { word, text, detail } = overview.verdict;
  const { level, evidence } = overview.confidence;
  const css = overview.bound ? categoryClass(overview.bound) : "";
  const dashes = [1, 2, 3].map((n) => h("i", { class: n > LEVELS[level] ? "off" : undefined }));
  return h(
    "section.verdict",
    h(
      "div.of-run",
      runTag(),
      h("h2", h("em", { class: css }, text ? `${word}:` : word), text && ` ${text}`),
      h("p", detail),
    ),
    !overview.plain &&
      h(
        "div.evid.of-run",
        h("h3", `Confidence: ${level}`, h("span.conf", { "aria-hidden": "true" }, ...dashes)),
        h("ul", ...evidence.map((item) => h("li", { class: item.ok ? undefined : "no" }, item.text))),
      ),
    bar,
  );
}

/** Figures that follow from the steps take the selected ones; the rest describe the whole run. */
function selectedFigures(
  figs: readonly Figure[],
  steps: Steps,
  rows: readonly number[],
  of: Unit,
): (Figure & { ofRun?: boolean })[] {
  const { total, parts } = breakdown(steps, rows);
  return figs.map((fig) => {
    const part = parts.find(({ key }) => key === fig.key);
    if (fig.key === "step_time") {
      // All of the card in one unit.
      const { unit, size } = timeUnit(total.mean);
      const spread = total.n > 1 ? `± ${num(total.sd / size, fig.digits)}` : "";
      const middle = `median ${num(total.median / size, 2)}, p95 ${num(total.p95 / size, 2)}`;
      const range = `${middle}, range ${num(total.min / size, 2)}–${num(total.max / size, 2)}`;
      const note = isWhole(of) && total.n === 1 ? fig.note : range;
      return { ...fig, value: total.mean / size, unit, spread, note };
    }
    if (fig.key === "steps_per_second") return { ...fig, value: total.mean > 0 ? 1000 / total.mean : null };
    // What is no number for the run (input that was not traced) is none for a part of it.
    if (part && fig.value !== null) {
      const bar = [{ category: part.key, percent: part.percent }];
      return {
        ...fig,
        value: part.percent,
        note: isWhole(of) ? ms(part.stats.mean) : `${ms(part.stats.mean)} ${of.per}`,
        bar,
      };
    }
    return { ...fig, ofRun: true };
  });
}

/** "Measured. Wrong if the step takes as long …" */
function certaintyOf({ certainty = "", refuted_by }: Advice): string {
  const sure = `${certainty.charAt(0).toUpperCase()}${certainty.slice(1)}.`;
  return refuted_by ? `${sure} Wrong if ${refuted_by}.` : sure;
}

/** What a gain is of: " per step", ", 15% of the recording". */
function gainOf({ per = STEP.per, gain_percent }: Advice): string {
  return gain_percent === undefined ? ` ${per}` : `, ${num(gain_percent, 0)}% ${per}`;
}

/** What to do, with its evidence; `linked`: this dashboard has the view that shows it. */
export function adviceCard(
  advice: Advice,
  context: ViewContext,
  linked = true,
  attempt: HTMLElement | null = null,
): HTMLElement {
  const [css, word] = SEVERITIES[advice.severity];
  const words = linked ? advice.link.replace(/\s*→$/, "") : "";
  return h(
    "li",
    h(
      "div",
      h(
        "div.h",
        h("span", { class: `sev ${css}` }, word),
        h("b", advice.title),
        advice.gain_ms !== null &&
          h("span.gain", `${advice.gain_is ?? "up to"} `, h("b", `−${ms(advice.gain_ms, 1)}`), gainOf(advice)),
      ),
      h("p.ev", ...marked(advice.evidence)),
      advice.certainty && h("p.sure", certaintyOf(advice)),
      words && link(`${words} →`, () => context.go(advice.view, advice.target ? { target: advice.target } : undefined)),
      attempt,
    ),
    advice.fix.length > 0 && codeBox(advice.fix),
  );
}

function nextSteps(overview: Overview, context: ViewContext): HTMLElement {
  const some = overview.advice.length > 0;
  const { trials, signal } = context;
  const attempt = ({ tries, title }: Advice): HTMLElement | null =>
    tries && trials ? trials.attempt(tries, title, signal) : null;
  return h(
    "section.of-run",
    heading("Next steps", some ? "largest expected gain first; gains do not add up" : "", runTag()),
    overview.contention && h("p.contention", h("b", overview.contention)),
    overview.probe && h("p.contention", h("b", overview.probe.text), h("span.dim", overview.probe.detail)),
    some
      ? h("ul.recs", ...overview.advice.map((advice) => adviceCard(advice, context, !overview.only, attempt(advice))))
      : h("p.dim", overview.no_advice),
    overview.tried && triedSection(overview.tried, context),
    checked(overview, context),
  );
}

/** Every check, found or not, folded: the advice above is what came of them. */
function checked(overview: Overview, context: ViewContext): HTMLElement | null {
  const { checks } = overview;
  if (!checks.length) return null;
  const known = checks.filter((check) => check.level !== "unknown").length;
  const rows = checks.map((check) =>
    h(
      "tr",
      { class: check.level === "unknown" ? "zero" : undefined },
      h("td", h("span", { class: check.level === "high" ? "sev high" : "sev low" }, LEVEL[check.level])),
      h("td", check.label),
      ...cells("n", percent(check.percent)),
      h(
        "td.dim.helps",
        check.statement,
        " ",
        check.level !== "unknown" &&
          check.view !== "overview" &&
          !overview.only &&
          link("Show →", () => context.go(check.view)),
      ),
    ),
  );
  const head = headsOf(context.payload.meta, "overview.checks");
  const heads = [head("level"), head("check"), head("percent", "n"), head("statement")];
  return h(
    "details.checks",
    h("summary", `${num(known)} of ${num(checks.length)} checks ran`),
    plainTable(heads, rows),
  );
}

function topOps(overview: Overview, context: ViewContext): HTMLElement {
  const { data, rows: n } = overview.top_ops;
  const where = overview.top_ops_where;
  const rate = data["gflops_per_second"];
  const percents = Array.from({ length: n }, (_, i) => numberAt(data["percent"], i));
  // The bars share one scale that leaves the longest some air, so that they compare.
  const scale = Math.max(...percents, 0) / 0.8 || 1;
  const rows = percents.map((part, i) => {
    const name = textAt(data["op"], i);
    const type = data["type"] && textAt(data["type"], i);
    return h(
      "tr",
      h("td.n.dim", num(numberAt(data["rank"], i))),
      h(
        "td.name",
        { title: name },
        h(
          "a.plain",
          { href: "#", on: { click: (event: Event) => open(event, i) } },
          nameNode(name, cutOf(overview.top_ops, "op")),
        ),
      ),
      type !== undefined && h("td.dim.hide-n", h("span.short.narrow", { title: type, text: type })),
      ...cells("n", num(numberAt(data["ms_per_step"], i), 3), barCell(where, part, 56, (part / scale) * 100)),
      rate && h("td.n.hide-n", num(numberAt(rate, i), 1)),
      h("td.n.dim.hide-n", num(numberAt(data["cumulative_percent"], i), 1)),
    );
  });
  const open = (event: Event, row: number): void => {
    event.preventDefault();
    context.go("trace", toOp(overview.top_ops, row, where));
  };
  const all = context.payload.ops.table.rows;
  const { columns } = overview.top_ops;
  const head = (key: string, css = "n"): Head[] =>
    columns.filter((column) => column.key === key).map((column) => ({ ...column, class: css }));
  const heads = [
    ...head("rank"),
    ...head("op", ""),
    ...head("type", "hide-n"),
    ...head("ms_per_step"),
    ...head("percent", "n on"),
    ...head("gflops_per_second", "n hide-n"),
    ...head("cumulative_percent", "n hide-n"),
  ];
  return h(
    "div.of-run",
    heading(
      n > 1 ? `Top ${n} ops on ${where}` : `Ops on ${where}`,
      "self time, idle excluded",
      runTag(),
      n > 0 && all > n && link(`All ${num(all)} →`, () => context.go("ops")),
    ),
    n > 0
      ? plainTable(heads, rows)
      : h(
          "p.dim",
          context.payload.meta.pending ? "They appear when the analysis has finished." : "No op was recorded.",
        ),
    toPrograms(context),
  );
}

function stepSection(context: ViewContext, side: HTMLElement): HTMLElement {
  const { steps, meta } = context.payload;
  const left = h("div");
  const unit = unitOf(meta);
  if (steps.empty) {
    left.append(heading(timeTitle(unit)));
    // The notice under the header already says what to add: once is enough.
    const noticed = meta.notice?.kind === "no_steps";
    const short = { title: "No steps to draw", text: "See the line below the header for how to mark them." };
    left.append(emptyView(noticed ? short : steps.empty));
    return h("section", left);
  }
  const [first, last] = [Math.min(...steps.step), Math.max(...steps.step)];
  const range = first === last ? String(first) : `${first}–${last}`;
  const numbers = `${steps.prefix ? `${steps.prefix} ` : first === last ? "number " : ""}${range}`;
  const scope = isWhole(unit) ? stepCount(steps) : `${stepCount(steps)}, ${numbers}`;
  left.append(
    heading(
      timeTitle(unit),
      scope,
      link("Steps & input →", () => context.go("input")),
    ),
  );
  // The chart measures its room, so it is drawn where it will stand.
  const section = h("section.split.a", left, side);
  return section;
}

function facts({ run }: Overview): HTMLElement {
  return h("dl.env", ...run.flatMap(([label, value]) => [h("dt", label), h("dd", value)]));
}

export const render: View = (el, context) => {
  const { overview, steps } = context.payload;
  const unit = unitOf(context.payload.meta);
  if (overview.only) {
    el.append(nextSteps(overview, context));
    return;
  }
  if (overview.plain) {
    el.append(
      verdict(
        overview,
        h(
          "p.more",
          link("Trace →", () => context.go("trace")),
        ),
      ),
      h("section", heading("Run"), facts(overview)),
    );
    return;
  }
  const bar = h("div.wide");
  const strip = h("div");
  const side = h("div");
  const section = stepSection(context, side);
  el.append(verdict(overview, bar), strip, section, nextSteps(overview, context));
  if (overview.ranges) el.append(rangesSection(overview.ranges, unit));
  if (overview.code) el.append(codeSection(overview.code));
  if (overview.compiles) el.append(compilesSection(overview.compiles, context));
  if (overview.graph_breaks) el.append(graphBreaksSection(overview.graph_breaks, context));
  if (overview.pools) el.append(...poolsSection(overview.pools, context));
  el.append(h("section.split.b", topOps(overview, context), h("div", heading("Run"), facts(overview))));

  if (steps.empty) {
    bar.remove();
    strip.replaceWith(figures(overview.figures));
    return;
  }
  const update = (): void => {
    const selection = context.store.get("selection");
    const some = selection !== null || (context.store.get("host") !== null && follows("overview", context.payload));
    const rows = selectedRows(steps, selection);
    const { total, parts, missing } = breakdown(steps, rows);
    for (const element of [bar, strip, side]) clear(element);
    if (parts.length > 0) bar.append(...averageBar(parts, total, unit).childNodes);
    strip.append(figures(some ? selectedFigures(overview.figures, steps, rows, unit) : overview.figures));
    const scope = selection ? rangeText(selection.first, selection.last, unit.noun) : "";
    side.append(
      heading(whereItGoes(unit), scope),
      // They are of all steps that count.
      breakdownTable(
        parts,
        total,
        headsOf(context.payload.meta, "overview.step"),
        unit,
        some ? [] : overview.host_parts,
        some ? null : overview.bare,
      ),
    );
    if (overview.bare && !some) side.append(h("p.more", { text: overview.bare.note }));
    const note = missingNote(missing, context.payload.meta.has_device);
    if (note) side.append(note);
    const leftOut = leftOutNote(steps, selection);
    if (leftOut) side.append(h("p.more", { text: leftOut }));
  };
  update();
  context.store.subscribe("selection", update, context.signal);
  stepChart(section.firstElementChild as HTMLElement, context, {
    hint: isWhole(unit) ? "" : "drag the strip to average over a range",
  });
};
