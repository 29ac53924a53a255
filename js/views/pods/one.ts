/** The selected worker beside the median one: where its time goes that others do not spend. */

import { numberAt, textAt } from "../../lib/codec.js";
import { clear, h } from "../../lib/dom.js";
import { MISSING, num, signed } from "../../lib/format.js";
import { heading, link, swatch } from "../../lib/parts.js";
import { CATEGORIES, type Pods } from "../../lib/payload.js";
import { isWhole, STEP, timeTitle, unitOf } from "../../lib/unit.js";
import type { ViewContext } from "../../lib/view.js";
import { columnOf, overText, stepAt, type Told, toldAt, toldText } from "./cells.js";
import type { Shown } from "./shown.js";

export interface Line {
  label: string;
  css: string | null;
  /** ms, means over the steps. */
  mean: number;
  median: number;
  /** In the step on show, and of the median worker; null where the report does not have it. */
  step: { own: Told; median: number } | null;
}

/** The step time, then each recorded category; empty where the report does not have the worker's means. */
export function lines(pods: Pods, worker: number, index: number, unit = STEP): Line[] {
  const name = pods.workers[worker] ?? "";
  const { data, rows } = pods.table;
  const row = Array.from({ length: rows }, (_, i) => i).find((i) => textAt(data["worker"], i) === name);
  if (row === undefined || !pods.typical) return [];
  const { typical } = pods;
  const lineOf = (key: string, column: string, label: string, css: string | null): Line => {
    return {
      label,
      css,
      mean: numberAt(data[column], row),
      median: typical[column] ?? Number.NaN,
      step: stepOf(pods, key, worker, pods.step[index] as number),
    };
  };
  return [
    lineOf("step_time", "mean_step_ms", timeTitle(unit), null),
    ...CATEGORIES.filter(({ key }) => data[`${key}_ms`] && typical[`${key}_ms`] !== undefined).map(
      ({ key, label, css }) => lineOf(key, `${key}_ms`, label, css),
    ),
  ];
}

function stepOf({ heat, ...pods }: Pods, key: string, worker: number, step: number): Line["step"] {
  const layer = heat?.layers.find((each) => each.key === key);
  if (!heat || !layer) return null;
  const [row, column] = [heat.rows.indexOf(worker), columnOf(heat, step)];
  // Of several steps in a column the cell shows one.
  if (row < 0 || column < 0 || stepAt(heat, row, column) !== step) return null;
  return { own: toldAt(pods, heat, layer, row, column), median: layer.median_ms[column] as number };
}

/** A section that is there while a worker is selected. */
export function oneWorker(parent: HTMLElement, { payload: { pods, meta } }: ViewContext, state: Shown): void {
  const unit = unitOf(meta);
  const update = (): void => {
    clear(parent);
    const found = state.worker < 0 ? [] : lines(pods, state.worker, state.at, unit);
    parent.hidden = state.worker < 0;
    if (state.worker < 0) return;
    // A twentieth of the step at least, so that noise is no bar.
    const widest = Math.max(
      1e-9,
      0.05 * (found[0]?.median || 0),
      ...found.map(({ mean, median }) => Math.abs(mean - median) || 0),
    );
    const step = pods.step[state.at];
    const inStep = found.some((line) => line.step);
    const heads = [
      "category",
      "mean ms",
      "median worker",
      "difference",
      "less, more",
      ...(inStep ? [`${unit.noun} ${step}`, "difference"] : []),
    ];
    parent.append(
      heading(
        pods.workers[state.worker] ?? "",
        isWhole(unit) ? "beside the median worker, ms" : `beside the median worker, means over the ${unit.plural}, ms`,
        h(
          "span.pod-links",
          link("close", () => state.select(-1)),
        ),
      ),
      found.length
        ? h(
            "div.tx",
            h(
              "table.t.pod-one",
              h("thead", h("tr", ...heads.map((text) => h("th", { scope: "col" }, text)))),
              h("tbody", ...found.map((line) => row(line, widest, inStep))),
            ),
          )
        : h("p.dim", "Means are not included in this report; see p.pods.frame."),
    );
  };
  state.onChange(update);
  update();
}

function row(line: Line, widest: number, inStep: boolean): HTMLElement {
  const over = line.mean - line.median;
  const width = `${(50 * Math.min(1, Math.abs(over) / widest)).toFixed(1)}%`;
  return h(
    "tr",
    h("th", { scope: "row" }, line.css && swatch(line.css), line.label),
    h("td", num(line.mean, 2)),
    h("td.dim", num(line.median, 2)),
    h("td", signed(over, 2)),
    h("td", { "aria-hidden": "true" }, h("span.aside", h(over < 0 ? "i.less" : "i", { style: { width } }))),
    ...(inStep
      ? [
          h("td", line.step ? toldText(line.step.own) : MISSING),
          h("td", line.step ? overText(line.step.own, line.step.median) : MISSING),
        ]
      : []),
  );
}
