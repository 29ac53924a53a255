/** The drawings of Compare: dots of steps, two average steps on one scale, bars from a zero line. */

import { bottomTicks, ticksOf } from "../../lib/chart.js";
import { headsOf } from "../../lib/columns.js";
import { boxOf, h, listen, s, shareAt } from "../../lib/dom.js";
import { ms, num, signed } from "../../lib/format.js";
import { categoryClass, hoverCard, legend, swatch } from "../../lib/parts.js";
import type { ComparedFigure, Meta, Pair } from "../../lib/payload.js";
import { ticks } from "../../lib/scale.js";
import { STEP, type Unit, unitOf } from "../../lib/unit.js";
import { cells, plainTable } from "../breakdown.js";
import {
  axisEnd,
  type CategoryRow,
  changed,
  compact,
  dots,
  fromZero,
  labelEvery,
  MOST_TICKS,
  mean,
  percentOf,
} from "./model.js";

const HEIGHT = 28;
const SIDES = ["Before", "After"] as const;

/** Key figures, each as it was and as it is. */
export function figures(figs: readonly ComparedFigure[]): HTMLElement {
  return h(
    "dl.figs.compared",
    ...figs.map((fig) =>
      h(
        "div.fig",
        h("dt", fig.unit ? `${fig.label}, ${fig.unit}` : fig.label),
        h(
          "dd",
          h("span.v", compact(fig.before, fig.digits), " → ", compact(fig.after, fig.digits)),
          fig.note,
          fig.bar &&
            h(
              "span.mini",
              ...fig.bar.map(({ category, percent }) =>
                h("i", { class: categoryClass(category), style: { width: `${Math.max(0, Math.min(100, percent))}%` } }),
              ),
            ),
        ),
      ),
    ),
  );
}

/** Steps as dots, a row a run, on one axis from 0. */
export function stepDots(
  series: readonly Float64Array[],
  digits: number,
  signal: AbortSignal,
  unit = STEP,
): HTMLElement {
  const end = axisEnd(series);
  const percentAt = (value: number): string => `${((value / end) * 100).toFixed(2)}%`;
  const marks = ticks(end, MOST_TICKS);
  const grid = marks.map((tick) =>
    s("line", { class: tick ? "g" : "g0", x1: percentAt(tick), x2: percentAt(tick), y1: 0, y2: HEIGHT }),
  );
  const chart = h("div.chart.dots");
  const beyondAxis: string[] = [];
  series.forEach((times, i) => {
    const name = SIDES[i] as string;
    const middle = mean(times);
    const label = times.length
      ? `${name}: mean ${ms(middle, digits)} of ${num(times.length)} ${times.length === 1 ? unit.noun : unit.plural}`
      : `${name}: no steps`;
    const { dots: shown, beyond, longest } = dots(times, end);
    if (beyond) beyondAxis.push(`${num(beyond)} ${name.toLowerCase()}, up to ${ms(longest, digits)}`);
    const svg = s(
      "svg",
      { height: HEIGHT, role: "img", "aria-label": label },
      ...grid.map((line) => line.cloneNode() as SVGElement),
      ...shown.map(({ value, off }) =>
        s("circle", {
          class: i ? "after" : "before",
          cx: percentAt(value),
          cy: (HEIGHT / 2 + off * 7).toFixed(1),
          r: 3,
        }),
      ),
      times.length > 0 &&
        middle <= end &&
        s("line", { class: "mean", x1: percentAt(middle), x2: percentAt(middle), y1: 2, y2: HEIGHT - 2 }),
    );
    chart.append(h("span", name), svg);
    hover(svg, times, name, digits, end, signal, unit);
  });
  const labelled = ticksOf(marks, end);
  const texts = labelled.map(({ text }) => text);
  const axis = h("div.axp");
  const label = (): void => {
    const every = axis.clientWidth ? labelEvery(texts, axis.clientWidth) : 1;
    axis.replaceChildren(...bottomTicks(labelled.filter((_, i) => i % every === 0)));
  };
  label();
  const observer = new ResizeObserver(label);
  observer.observe(axis);
  listen(signal, "abort", () => observer.disconnect());
  chart.append(axis);
  if (beyondAxis.length) chart.append(h("div.axt", `Beyond the axis: ${beyondAxis.join("; ")}`));
  return chart;
}

/** The step nearest to the pointer, with what it is among. */
function hover(
  svg: SVGElement,
  times: Float64Array,
  name: string,
  digits: number,
  end: number,
  signal: AbortSignal,
  unit: Unit,
): void {
  if (!times.length) return;
  const card = hoverCard(svg as unknown as HTMLElement, signal);
  const order = Array.from(times).sort((a, b) => a - b);
  const rows = [
    { label: "mean", value: ms(mean(times), digits) },
    { label: "fastest", value: ms(order[0], digits) },
    { label: "median", value: ms(order[Math.floor(order.length / 2)], digits) },
    { label: "slowest", value: ms(order.at(-1), digits) },
  ];
  listen(
    svg,
    "mousemove",
    (event) => {
      const value = shareAt(event as MouseEvent, svg) * end;
      const nearest = order.reduce((best, each) => (Math.abs(each - value) < Math.abs(best - value) ? each : best));
      const box = boxOf(svg);
      const x = box.left + (Math.min(nearest, end) / end) * box.width;
      card.show(
        { left: x - 3, right: x + 3, top: box.top, bottom: box.bottom },
        { title: `${name}: ${unit.a}`, total: ms(nearest, digits), rows },
      );
    },
    { signal },
  );
  listen(svg, "mouseleave", () => card.hide(), { signal });
}

/** Both average steps on one scale. */
export function averages(rows: readonly CategoryRow[], pair: Pair): HTMLElement {
  const parts = rows.filter((row) => row.key !== "step_time");
  const times = (key: "before_ms" | "after_ms"): number[] => parts.map((row) => row[key] ?? 0);
  const sums = (["before_ms", "after_ms"] as const).map((key) => times(key).reduce((a, b) => a + b, 0));
  const most = Math.max(...sums) || 1;
  const bars = (["before_ms", "after_ms"] as const).flatMap((key, i) => {
    const shown = parts.filter((row) => (row[key] ?? 0) > 0);
    const label = `${unitOf(pair).average} ${SIDES[i]?.toLowerCase()}: ${ms(sums[i], pair.digits)}`;
    const segments = shown.map((row) =>
      h("i", {
        class: row.css,
        style: { "--w": `calc(${(((row[key] ?? 0) / most) * 100).toFixed(2)}% - 1px)` },
        title: `${row.label} ${ms(row[key], pair.digits)}`,
      }),
    );
    return [h("span", SIDES[i] as string), h("div.stack", { role: "img", "aria-label": label }, ...segments)];
  });
  // What can be seen; the table has the rest.
  const seen = parts.filter((row) => Math.max(row.before_ms ?? 0, row.after_ms ?? 0) > most * 0.01);
  return h("div", h("div.two-bars", ...bars), h("div.under", legend(seen)));
}

/** A bar from the zero line in the middle; faint where the change may be chance. */
export function changeBar(css: string, change: number | null, most: number, faint = false): SVGElement {
  const bar = fromZero(change, most);
  return s(
    "svg",
    { class: "from-zero", width: 120, height: 12, "aria-hidden": "true" },
    s("line", { class: "g0", x1: "50%", x2: "50%", y1: 0, y2: 12 }),
    bar &&
      s("rect", {
        class: `m ${css}${faint ? " faint" : ""}`,
        x: `${bar.left.toFixed(2)}%`,
        width: `${bar.width.toFixed(2)}%`,
        y: 2,
        height: 8,
      }),
  );
}

/** What the axis of such bars says: "−3.8 ··· 0 ··· +3.8". */
export const zeroAxis = (most: number): string => {
  const digits = most >= 100 ? 0 : most >= 1 ? 1 : most >= 0.1 ? 2 : 3;
  return `${signed(-most, digits)} ··· 0 ··· ${signed(most, digits)}`;
};

/** Categories with what became of them. */
export function categoryTable(rows: readonly CategoryRow[], pair: Pair, meta: Meta): HTMLElement {
  const head = headsOf(meta, "comparison.categories");
  const { digits } = pair;
  const most = Math.max(...rows.map((row) => Math.abs(row.change_ms ?? 0)), 0);
  const lines = rows.map((row) => {
    const step = row.key === "step_time";
    const zero = !row.before_ms && !row.after_ms;
    const title =
      row.margin_ms === null
        ? `One ${unitOf(pair).noun} cannot show the spread of the change`
        : `95% interval: ± ${ms(row.margin_ms, digits)}${row.real ? "" : ", which includes 0"}`;
    return h(
      "tr",
      { class: step ? "sum" : zero ? "zero" : undefined },
      h("td", !step && swatch(row.css, zero), !step && "\u2002", row.label),
      ...cells("n", num(row.before_ms, digits), num(row.after_ms, digits)),
      h("td.n", { title }, changed(row.change_ms, digits)),
      h("td.n.hide-s", changeBar(row.css, row.change_ms, most, row.real === false)),
      h("td.n.dim", percentOf(row, digits)),
    );
  });
  const heads = [
    head("category"),
    head("before_ms", "n"),
    head("after_ms", "n"),
    head("change_ms", "n on"),
    { ...head("bar", "n hide-s"), label: most ? zeroAxis(most) : "" },
    head("change_percent", "n"),
  ];
  return plainTable(heads, lines, "categories");
}
