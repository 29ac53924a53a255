/** Which step is on show, and the strip of how far apart the workers are in each. */

import { canvas } from "../../lib/canvas.js";
import { boxOf, clear, h, listen, shareAt } from "../../lib/dom.js";
import { num } from "../../lib/format.js";
import { type CardContent, hoverCard } from "../../lib/parts.js";
import { CATEGORIES } from "../../lib/payload.js";
import { niceMax } from "../../lib/scale.js";
import type { ViewContext } from "../../lib/view.js";
import { onTheme, themeReader } from "../trace/palette.js";
import { drawStrip } from "./draw.js";
import { columnsOf, inside, widest } from "./model.js";

const STRIP = 56;
/** Least px of a step in the strip. */
const PITCH = 2.5;

/** The step on show; those who draw it are told when it changes. */
export class Shown {
  at: number;
  private readonly told: (() => void)[] = [];

  constructor(context: ViewContext) {
    const { pods } = context.payload;
    const { store } = context;
    this.at = Math.max(0, widest(pods, 0, pods.step.length, store.get("selection")), 0);
    const follow = (): void => {
      const selection = store.get("selection");
      const next = inside(pods.step[this.at] as number, selection)
        ? this.at
        : widest(pods, 0, pods.step.length, selection);
      this.set(next < 0 ? this.at : next, true);
    };
    store.subscribe("selection", follow, context.signal);
  }

  set(at: number, again = false): void {
    if (at === this.at && !again) return;
    this.at = at;
    for (const fn of this.told) fn();
  }

  onChange(fn: () => void): void {
    this.told.push(fn);
  }
}

/** How far apart the workers are, step by step. */
export function spreadStrip(parent: HTMLElement, context: ViewContext, state: Shown): void {
  const { pods } = context.payload;
  const { store, signal } = context;
  const max = niceMax(Math.max(...Array.from(pods.spread_percent, (value) => value || 0)));
  const axis = h(
    "div.ax",
    { style: { height: `${STRIP}px` } },
    ...[max, max / 2, 0].map((value, i) =>
      h("span", { style: { top: `${(STRIP * i) / 2}px` } }, num(value, max < 2 ? 1 : 0)),
    ),
  );
  const plot = h("div.plot");
  const numbers = h("div.axp");
  parent.append(
    h(
      "div.chart",
      h("div.unit", "spread, % of the slowest; colour: where the slowest loses most"),
      axis,
      plot,
      numbers,
      h("div.axt", "step number"),
    ),
  );
  const theme = themeReader(plot);
  const card = hoverCard(plot, signal);
  let hover = -1;
  let columns = columnsOf(pods, 1);
  const columnOf = (at: number): number => columns.findIndex((column) => at >= column.from && at < column.to);
  const area = canvas(plot, {
    signal,
    height: STRIP,
    label: `Spread between the workers by step, at most ${num(Math.max(...pods.spread_percent), 1)}%`,
    draw(graphics, width, height) {
      columns = columnsOf(pods, Math.floor(width / PITCH));
      drawStrip(graphics, width, height, {
        columns: columns.map(({ at }) => ({ at, faded: !inside(pods.step[at] as number, store.get("selection")) })),
        spread: pods.spread_percent,
        cause: pods.cause,
        max,
        current: columnOf(state.at),
        hover,
        theme: theme(),
      });
      const every = Math.max(1, Math.ceil(columns.length / Math.max(2, Math.floor(width / 64))));
      clear(numbers);
      for (let k = 0; k < columns.length; k += every) {
        const style = { "--x": `${(((k + 0.5) / columns.length) * 100).toFixed(2)}%` };
        numbers.append(h("span", { style }, String(pods.step[columns[k]?.from as number])));
      }
    },
  });
  const show = (k: number): void => {
    const column = columns[k];
    hover = column ? k : -1;
    area.redraw();
    if (!column) {
      card.hide();
      return;
    }
    const box = boxOf(area.element);
    const [left, width] = [box.left + (k / columns.length) * box.width, box.width / columns.length];
    const { at } = column;
    const rows: CardContent["rows"] = [
      { label: `Slowest: ${pods.workers[pods.slowest[at] as number]}`, value: num(pods.slowest_ms[at], 2), note: "ms" },
      { label: "Median", value: num(pods.median_ms[at], 2), note: "ms" },
      { label: "Fastest", value: num(pods.fastest_ms[at], 2), note: "ms" },
    ];
    const cause = CATEGORIES[(pods.cause[at] ?? 0) - 1];
    if (cause)
      rows.push({
        css: cause.css,
        label: `${cause.label}, over the median`,
        value: num(pods.cause_ms[at], 2),
        note: "ms",
      });
    const many = column.to - column.from > 1 ? `, widest of ${column.to - column.from}` : "";
    const total = `${num(pods.spread_percent[at], 1)}%`;
    card.show(
      { left, right: left + width, top: box.top, bottom: box.bottom },
      { title: `Step ${pods.step[at]}${many}`, total, rows },
    );
  };
  const at = (event: MouseEvent): number => {
    return Math.floor(shareAt(event, area.element) * columns.length);
  };
  listen(area.element, "pointermove", (event) => show(at(event)));
  listen(area.element, "pointerleave", () => show(-1));
  listen(area.element, "click", (event) => {
    const column = columns[at(event)];
    if (column) state.set(column.at);
  });
  state.onChange(area.redraw);
  onTheme(plot, signal, area.redraw);
}
