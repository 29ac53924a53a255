/** Where a step goes: the one-row bar and the tables of categories, for the selected steps. */

import { barOf, headCell } from "../lib/columns.js";
import { type Child, h } from "../lib/dom.js";
import { num } from "../lib/format.js";
import { categoryLabel, swatch } from "../lib/parts.js";
import type { CategoryKey } from "../lib/payload.js";
import type { Part, Statistics } from "./stepstats.js";

/** A percentage with its bar. */
export const barCell = (css: string, percent: number, width: number, of = percent): HTMLElement =>
  barOf(css, num(percent, 1), of, width);

function categoryCell(part: Part): HTMLTableCellElement {
  return h("td", swatch(part.css, part.stats.mean === 0), "\u2002", part.label);
}

const CATEGORY = "Step-time category: what the step spends its time on. Each moment counts once.";

export interface Head {
  label: string;
  class?: string;
  help: string;
}

/** A small table that needs no sorting: its order is its message. */
export function plainTable(heads: readonly Head[], rows: readonly HTMLTableRowElement[], css = ""): HTMLElement {
  const head = heads.map((item, i) => headCell({ class: item.class }, item.label, item.help, i === 0));
  return h("div.tx", h("table", { class: `t ${css}` }, h("thead", h("tr", ...head)), h("tbody", ...rows)));
}

export function cells(css: string, ...contents: Child[]): HTMLTableCellElement[] {
  return contents.map((content) => h("td", { class: css }, content));
}

/** The average step as one bar, its two largest parts named. */
export function averageBar(parts: readonly Part[], total: Statistics): HTMLElement {
  const shown = parts.filter((part) => part.stats.mean > 0);
  const sum = shown.reduce((all, part) => all + part.stats.mean, 0);
  const width = (part: Part): Record<string, string> => ({
    "--w": `calc(${((part.stats.mean / sum) * 100).toFixed(2)}% - 1px)`,
  });
  const first = shown[0];
  const label = first
    ? `Average step of ${num(total.mean, 2)} ms: ${first.label} ${num(first.percent, 0)}%`
    : "Average step: no category recorded";
  return h(
    "div.wide",
    h(
      "div.stack",
      { role: "img", "aria-label": label },
      ...shown.map((part) =>
        h("i", { class: part.css, style: width(part), title: `${part.label} ${num(part.stats.mean, 2)} ms` }),
      ),
    ),
    h(
      "div.stack-l",
      ...shown.map((part, i) => {
        const room = part.stats.mean / sum;
        if (i < 2 && room > 0.12) {
          const value = h("span", `${num(part.stats.mean, 2)} ms`);
          return h("span", { style: width(part) }, h("b", part.label), value, h("span", `· ${num(part.percent, 0)}%`));
        }
        // A name without its number only where it fits.
        return h("span", { style: width(part) }, room > 0.1 && h("span", part.label));
      }),
    ),
  );
}

/** Categories by size: ms and share of the step. */
export function breakdownTable(parts: readonly Part[], total: Statistics): HTMLElement {
  const rows = parts.map((part) =>
    h(
      "tr",
      { class: part.stats.mean === 0 ? "zero" : undefined },
      categoryCell(part),
      ...cells("n", num(part.stats.mean, 2), barCell(part.css, part.percent, 72)),
    ),
  );
  rows.push(h("tr.sum", h("td", "Step"), ...cells("n", num(total.mean, 2), num(100, 1))));
  return plainTable(
    [
      { label: "Category", help: CATEGORY },
      { label: "ms", class: "n", help: "Mean time a step." },
      { label: "% of step", class: "n on", help: "Part of the mean step time." },
    ],
    rows,
    "stats",
  );
}

/** Categories by size with mean, standard deviation, least and largest. */
export function statisticsTable(parts: readonly Part[], total: Statistics, noun = "step"): HTMLElement {
  // On the narrowest outputs the extremes make room for the names.
  const numbers = (stats: Statistics): HTMLTableCellElement[] => [
    ...cells("n", num(stats.mean, 2), num(stats.sd, 2)),
    ...cells("n hide-s", num(stats.min, 2), num(stats.max, 2)),
  ];
  const rows = [
    h(
      "tr.sum",
      h("td", noun === "step" ? "Step time, ms" : "End to end, ms"),
      ...numbers(total),
      ...cells("n", num(100, 1)),
    ),
    ...parts.map((part) =>
      h(
        "tr",
        { class: part.stats.max === 0 ? "zero" : undefined },
        categoryCell(part),
        ...numbers(part.stats),
        ...cells("n", num(part.percent, 1)),
      ),
    ),
  ];
  const heads = [
    { label: "mean", help: `Mean over the ${noun}s, ms.` },
    { label: "sd", help: "Sample standard deviation (n − 1), ms." },
    { label: "min", class: "n hide-s", help: `Smallest ${noun}, ms.` },
    { label: "max", class: "n hide-s", help: `Largest ${noun}, ms.` },
    { label: "%", help: `Part of the mean ${noun} time.` },
  ];
  const n = total.n === 1 ? `1 ${noun}` : `${num(total.n)} ${noun}s`;
  return plainTable([{ label: n, help: CATEGORY }, ...heads.map((item) => ({ class: "n", ...item }))], rows, "stats");
}

/** Which categories were not recorded, or nothing. With no accelerator most are, and one reason says it for all. */
export function missingNote(missing: readonly CategoryKey[], hasDevice: boolean): HTMLElement | null {
  const odd = missing.filter((key) => hasDevice || key === "input" || key === "host_compute");
  const text = [
    odd.length < missing.length ? "No accelerator in this run: device categories are not recorded." : "",
    odd.length > 0 ? `Not recorded: ${odd.map(categoryLabel).join(", ")}.` : "",
  ];
  return missing.length ? h("p.more", h("span", text.filter(Boolean).join(" "))) : null;
}
