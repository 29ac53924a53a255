/** Where a step goes: the one-row bar and the tables of categories, for the selected steps. */

import { barOf, type Head, headCell, moreColumns } from "../lib/columns.js";
import { type Child, h } from "../lib/dom.js";
import { ms, num } from "../lib/format.js";
import { categoryLabel, swatch } from "../lib/parts.js";
import type { Bare, CategoryKey, HostPart } from "../lib/payload.js";
import { capital, isWhole, STEP } from "../lib/unit.js";
import type { Part, Statistics } from "./stepstats.js";

/** A percentage with its bar. */
export const barCell = (css: string, percent: number | null, width: number, of = percent): HTMLElement =>
  barOf(css, num(percent, 1), of ?? 0, width);

function categoryCell(part: Part): HTMLTableCellElement {
  return h("td", swatch(part.css, part.stats.mean === 0), "\u2002", part.label);
}

/** A small table that needs no sorting: its order is its message. */
export function plainTable(
  heads: readonly Pick<Head, "label" | "help" | "class">[],
  rows: readonly HTMLTableRowElement[],
  css = "",
): HTMLElement {
  const head = heads.map((item, i) => headCell({ class: item.class }, item.label, item.help, i === 0));
  const grid = h("table", { class: `t ${css}` }, h("thead", h("tr", ...head)), h("tbody", ...rows));
  const narrow = heads.filter((item) => item.class?.split(" ").includes("hide-n")).map((item) => item.label);
  return h("div", h("div.tx", grid), narrow.length > 0 && moreColumns(grid, narrow));
}

export function cells(css: string, ...contents: Child[]): HTMLTableCellElement[] {
  return contents.map((content) => h("td", { class: css }, content));
}

/** The average step as one bar, its two largest parts named. */
export function averageBar(parts: readonly Part[], total: Statistics, unit = STEP): HTMLElement {
  const shown = parts.filter((part) => part.stats.mean > 0);
  const sum = shown.reduce((all, part) => all + part.stats.mean, 0);
  const width = (part: Part): Record<string, string> => ({
    "--w": `calc(${((part.stats.mean / sum) * 100).toFixed(2)}% - 1px)`,
  });
  const first = shown[0];
  const named = isWhole(unit) ? capital(unit.the) : unit.average;
  const label = first
    ? `${named} of ${ms(total.mean)}: ${first.label} ${num(first.percent, 0)}%`
    : `${named}: no category recorded`;
  return h(
    "div.wide",
    h(
      "div.stack",
      { role: "img", "aria-label": label },
      ...shown.map((part) =>
        h("i", { class: part.css, style: width(part), title: `${part.label} ${ms(part.stats.mean)}` }),
      ),
    ),
    h(
      "div.stack-l",
      ...shown.map((part, i) => {
        const room = part.stats.mean / sum;
        if (i < 2 && room > 0.12) {
          const value = h("span", ms(part.stats.mean));
          return h("span", { style: width(part) }, h("b", part.label), value, h("span", `· ${num(part.percent, 0)}%`));
        }
        // A name without its number only where it fits.
        return h("span", { style: width(part) }, room > 0.1 && h("span", part.label));
      }),
    ),
  );
}

/** The columns of a table by their keys, as headsOf gives them. */
type Heads = (key: string, css?: string) => Head;

/** Categories by size: ms and share of the step; below each, what the host did in it. */
export function breakdownTable(
  parts: readonly Part[],
  total: Statistics,
  head: Heads,
  unit = STEP,
  host: readonly HostPart[] = [],
  bare: Bare | null = null,
): HTMLElement {
  const digits = head("mean_ms").digits ?? 2;
  const without = new Map(bare?.categories.map(({ category, ms }) => [category, ms]));
  const bareCell = (ms: number | undefined): HTMLTableCellElement[] =>
    bare ? cells("n", ms === undefined ? "" : num(ms, digits)) : [];
  const rows = parts.flatMap((part) => [
    h(
      "tr",
      { class: part.stats.mean === 0 ? "zero" : undefined },
      categoryCell(part),
      ...cells("n", num(part.stats.mean, digits), barCell(part.css, part.percent, 72)),
      ...bareCell(without.get(part.key)),
    ),
    ...host
      .filter(({ category }) => category === part.key)
      .map(({ text, ms, percent }) =>
        h(
          "tr.sub",
          h("td", { title: text }, text),
          ...cells("n", num(ms, digits), num(percent, 1)),
          ...bareCell(undefined),
        ),
      ),
  ]);
  const sum = cells("n", num(total.mean, digits), num(100, 1));
  rows.push(h("tr.sum", h("td", capital(unit.noun)), ...sum, ...bareCell(bare?.step_ms)));
  const heads = [head("category"), head("mean_ms", "n"), head("percent", "n on")];
  if (bare) heads.push(head("bare_ms", "n"));
  return plainTable(heads, rows, "stats");
}

/** Categories by size with mean, standard deviation, median, p95, least and largest. */
export function statisticsTable(
  parts: readonly Part[],
  total: Statistics,
  head: Heads,
  noun = "step",
  time = "End to end",
): HTMLElement {
  const digits = (key: string): number => head(key).digits ?? 2;
  // On the narrowest outputs the extremes make room for the names.
  const numbers = (stats: Statistics): HTMLTableCellElement[] => [
    ...cells("n", num(stats.mean, digits("mean_ms")), num(stats.sd, digits("sd_ms"))),
    ...cells("n", num(stats.median, digits("median_ms")), num(stats.p95, digits("p95_ms"))),
    ...cells("n hide-s", num(stats.min, digits("min_ms")), num(stats.max, digits("max_ms"))),
  ];
  const rows = [
    h("tr.sum", h("td", `${time}, ms`), ...numbers(total), ...cells("n", num(100, 1))),
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
  const n = total.n === 1 ? `1 ${noun}` : `${num(total.n)} ${noun}s`;
  const heads = [
    { ...head("category"), label: n },
    head("mean_ms", "n"),
    head("sd_ms", "n"),
    head("median_ms", "n"),
    head("p95_ms", "n"),
    head("min_ms", "n hide-s"),
    head("max_ms", "n hide-s"),
    head("percent", "n"),
  ];
  return plainTable(heads, rows, "stats");
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
