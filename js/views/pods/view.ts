/** Pods: the workers of a job beside each other, step by step. */

import { canvas } from "../../lib/canvas.js";
import { bottomTicks, ticksOf } from "../../lib/chart.js";
import { numberAt, textAt } from "../../lib/codec.js";
import { boxOf, clear, h, handled, listen, marked, modified, pointIn } from "../../lib/dom.js";
import { ms, num } from "../../lib/format.js";
import { onTheme, themeReader } from "../../lib/palette.js";
import {
  categoryRows,
  downloadButton,
  emptyView,
  heading,
  hoverCard,
  legend,
  link,
  segmented,
} from "../../lib/parts.js";
import { CATEGORIES, type Pods } from "../../lib/payload.js";
import { mostOf } from "../../lib/rows.js";
import { niceMax, ticks } from "../../lib/scale.js";
import { type ColumnSpec, table } from "../../lib/table.js";
import { capital, isWhole, unitOf } from "../../lib/unit.js";
import type { View, ViewContext } from "../../lib/view.js";
import { hasTrace, toStep } from "../jump.js";
import { axisLimit } from "../stepstats.js";
import { coreTable, nameCell } from "./cores.js";
import { drawBars, field, ROW } from "./draw.js";
import { heatMap } from "./heat.js";
import { barsOf, type Order, type PodBar, sentence, stepTable } from "./model.js";
import { oneWorker } from "./one.js";
import { Shown } from "./shown.js";

/** Most px of bars before they scroll. */
const TALLEST = 396;
/** Workers of which all bars are in view. */
const MANY = 18;

export const render: View = (el, context) => {
  const { pods } = context.payload;
  if (pods.empty || !pods.step.length) {
    const { noun } = unitOf(context.payload.meta);
    const none = { title: "No workers to compare", text: `No ${noun} was recorded by more than one worker.` };
    if (pods.cores) coreTable(el, context, pods.cores, null);
    else el.append(h("section", emptyView(pods.empty ?? none)));
    return;
  }
  const n = pods.step.length;
  const unit = unitOf(context.payload.meta);
  const steps = isWhole(unit) ? "" : `, ${num(n)} ${n === 1 ? unit.noun : unit.plural}`;
  const scope = `${num(pods.total)} workers${steps}`;
  const map = h("div");
  const worker = h("section", { hidden: true });
  const stage = h("div.pod-bars");
  const list = h("section");
  el.append(h("section", heading("Workers", scope), ...summary(pods), map), worker, stage, list);
  const state = new Shown(context);
  // Of recordings that nothing divides, a map would have one column.
  if (pods.heat && !isWhole(unit)) heatMap(map, context, pods.heat, state);
  oneWorker(worker, context, state);
  stepBars(stage, context, state);
  workerTable(list, context, state);
  stragglerTable(el, context, state);
  outlierTable(el, context);
  if (pods.cores) coreTable(el, context, pods.cores, state);
};

/** What holds the job up, then how far apart the workers are. */
const summary = (pods: Pods): HTMLElement[] =>
  [...(pods.findings ?? []), pods.statement].filter(Boolean).map((text) => h("p.pod-said", ...marked(text)));

/** The workers of one step as stacked bars, with the slider that chooses it. */
function stepBars(parent: HTMLElement, context: ViewContext, state: Shown): void {
  const { pods } = context.payload;
  const { store, signal } = context;
  const unit = unitOf(context.payload.meta);
  const isRecording = isWhole(unit);
  const last = pods.step.length - 1;
  // Of many the slow ones matter.
  let order: Order = pods.total > MANY ? "time" : "worker";
  let bars: PodBar[] = [];
  let hover = -1;
  let follows = -1;
  const max = niceMax(axisLimit(Array.from(pods.slowest_ms)));
  const title = h("h3.wrap");
  const slider = h("input", { type: "range", min: 0, max: last, value: state.at, "aria-label": capital(unit.noun) });
  const status = h("p.pod-said", { role: "status" });
  const modes = segmented<Order>(
    "Order",
    [
      { id: "worker", label: "By name" },
      { id: "time", label: "Slowest first" },
    ],
    order,
    (next) => {
      order = next;
      update();
    },
  );
  const step = (by: number): void => state.set(Math.max(0, Math.min(last, state.at + by)));
  const recorded = CATEGORIES.filter(({ key }) => pods.categories[key]?.some((value) => value > 0));
  const scroller = h("div.pod-scroll", {
    tabindex: "0",
    role: "group",
    "aria-label": `Workers of ${unit.the}. Left and right change ${unit.the}.`,
  });
  const room = h("div");
  const axis = h("div.axp.pod-axis");
  scroller.append(room);
  parent.append(
    h(
      "section",
      title,
      last > 0 && h("div.toolbar.pod-tools", slider, modes),
      status,
      scroller,
      axis,
      legend(recorded),
    ),
  );
  const theme = themeReader(scroller);
  const card = hoverCard(scroller, signal);
  const area = canvas(room, {
    signal,
    height: ROW,
    label: `${capital(isRecording ? "duration" : unit.time)} of each worker, stacked by category`,
    draw(graphics, width, height) {
      drawBars(graphics, width, height, {
        bars,
        names: pods.workers,
        scroll: scroller.scrollTop,
        max,
        median: pods.median_ms[state.at] as number,
        slowest: pods.slowest[state.at] as number,
        hover,
        marked: state.worker,
        theme: theme(),
      });
      const { left, length } = field(width);
      const labels = ticksOf(ticks(max, 5), max, (value) => (value === 0 ? "0 ms" : String(value)));
      axis.replaceChildren(...bottomTicks(labels, (share) => `${left + length * share}px`));
    },
  });
  area.element.classList.add("pod-canvas");

  function show(i: number): void {
    const bar = bars[i];
    hover = bar ? i : -1;
    area.redraw();
    if (!bar) {
      card.hide();
      return;
    }
    const box = boxOf(area.element);
    const { left, length } = field(box.width);
    const end = box.left + left + length * Math.min(1, bar.time_ms / max);
    const top = box.top + i * ROW - scroller.scrollTop;
    const rows = categoryRows(bar.parts_ms, bar.time_ms);
    const median = pods.median_ms[state.at] as number;
    const over = bar.time_ms - median;
    rows.push({
      label: over < 0 ? "Under the median" : "Over the median",
      value: num(Math.abs(over), 2),
      note: `${num((Math.abs(over) / median) * 100, 1)}%`,
    });
    card.show(
      { left: box.left + left, right: end, top, bottom: top + ROW },
      { title: pods.workers[bar.worker] ?? "", total: ms(bar.time_ms), rows },
    );
  }

  function update(): void {
    const i = state.at;
    bars = barsOf(pods, i, order);
    slider.value = String(i);
    slider.setAttribute("aria-valuetext", `${unit.noun} ${pods.step[i]}`);
    const all = bars.length * ROW;
    room.style.height = `${all}px`;
    scroller.style.maxHeight = `${TALLEST}px`;
    area.element.style.height = `${Math.min(TALLEST, all)}px`;
    const count = pods.count[i] as number;
    const part =
      bars.length < count ? `${num(bars.length)} of ${num(count)} workers drawn: the slowest, and the fastest` : "";
    const [start, length] = [pods.start_ms[i] as number, pods.slowest_ms[i] as number];
    const number = pods.step[i] as number;
    const chosen = store.get("selection");
    const only = chosen?.first === number && chosen.last === number;
    clear(title);
    title.append(
      ...heading(
        isRecording ? "Recordings" : `${capital(unit.noun)} ${number}`,
        [isRecording ? "" : `${num(i + 1)} of ${num(last + 1)}`, `dashed: median ${ms(pods.median_ms[i])}`, part]
          .filter(Boolean)
          .join("; "),
      ).childNodes,
      h(
        "span.pod-links",
        !isRecording &&
          link(only ? `all ${unit.plural} in every view` : "select in every view", () =>
            store.set("selection", only ? null : { first: number, last: number }),
          ),
        Number.isFinite(start) &&
          hasTrace(context.payload) &&
          link("Show in trace →", () => context.go("trace", toStep(number, start, length))),
      ),
    );
    clear(status);
    // Which of them was recorded for longest says nothing of who is slow.
    if (!isRecording) status.append(...marked(sentence(pods, i, unit.noun)));
    show(-1);
    if (state.worker !== follows) {
      follows = state.worker;
      const row = bars.findIndex((bar) => bar.worker === follows);
      if (row >= 0) scroller.scrollTop = Math.max(0, row * ROW - TALLEST / 2);
    }
    area.redraw();
  }

  listen(slider, "input", () => state.set(Number(slider.value)));
  listen(scroller, "scroll", () => show(-1));
  listen(area.element, "pointermove", (event) => {
    const i = Math.floor((pointIn(event, area.element).y + scroller.scrollTop) / ROW);
    if (i !== hover) show(i);
  });
  listen(area.element, "pointerleave", () => show(-1));
  // One worker's step; "Show in trace" is that of the slowest.
  listen(area.element, "click", (event) => {
    const bar = bars[Math.floor((pointIn(event, area.element).y + scroller.scrollTop) / ROW)];
    if (bar) goTo(context, state.at, bar.worker);
  });
  listen(scroller, "keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -last, End: last }[event.key];
    if (!by || modified(event)) return;
    step(by);
    handled(event);
  });
  state.onChange(update);
  onTheme(scroller, signal, area.redraw);
  update();
}

/** Shows a step of one worker in the trace. */
function goTo(context: ViewContext, index: number, worker: number): void {
  const { pods } = context.payload;
  const start = pods.start_ms[index] as number;
  if (!Number.isFinite(start)) return;
  const [step, length] = [pods.step[index] as number, pods.slowest_ms[index] as number];
  context.go("trace", toStep(step, start, length, pods.workers[worker] ?? ""));
}

/** All workers as numbers: the means of all steps, or one step. */
function workerTable(el: HTMLElement, context: ViewContext, state: Shown): void {
  const { pods } = context.payload;
  const unit = unitOf(context.payload.meta);
  let data = pods.table;
  let complete = true;
  const longest = (key: string): number => (mostOf(pods.table, key) || 1) * 1.06;
  const neutral = { css: "other", width: 40 };
  const columns: ColumnSpec[] = [
    {
      key: "worker",
      grow: true,
      width: 120,
      cell: (row, cell) => nameCell(data, "worker")(row, cell),
    },
    { key: "worker_steps", dim: true, narrow: true },
    { key: "mean_step_ms", bar: { ...neutral, max: longest("mean_step_ms") } },
    { key: "step_time_ms", bar: { ...neutral, max: Math.max(1e-9, ...pods.slowest_ms) * 1.06 } },
    { key: "over_median_percent" },
    { key: "times_slowest", bar: { ...neutral, max: longest("times_slowest") } },
    ...CATEGORIES.filter(({ key }) => pods.categories[key]).map(
      ({ key }): ColumnSpec => ({ key: `${key}_ms`, narrow: true }),
    ),
    { key: "bottleneck" },
  ];
  const holder = h("div");
  const scope = h("small");
  const sorted = (): { key: string; descending: boolean } => ({
    key: complete ? "mean_step_ms" : "step_time_ms",
    descending: true,
  });
  const rows = table(holder, {
    table: data,
    columns,
    label: "Workers",
    sort: sorted(),
    height: 320,
    signal: context.signal,
    // Of one step a row is a cell: its step in the trace.
    onRow: (row) => {
      const worker = pods.workers.indexOf(textAt(data.data["worker"], row));
      if (complete) state.select(worker);
      else goTo(context, state.at, worker);
    },
  });
  const update = (): void => {
    data = complete ? pods.table : stepTable(pods, state.at);
    rows.setTable(data);
    const left = complete && pods.warmup ? ", warm-up excluded" : "";
    const means = isWhole(unit) ? "ms" : `means over the ${unit.plural}, ms${left}`;
    scope.textContent = complete ? means : `${unit.noun} ${pods.step[state.at]}, ms`;
  };
  const mode = segmented(
    "Table",
    [
      { id: "all", label: `All ${unit.plural}` },
      { id: "one", label: `This ${unit.noun}` },
    ],
    "all",
    (id) => {
      complete = id === "all";
      update();
      rows.setSort(sorted());
    },
  );
  el.append(
    h(
      "h3.wrap",
      "By worker",
      scope,
      h(
        "span.pod-links",
        mode,
        downloadButton("nbprof-pods.csv", () => rows.csv()),
      ),
    ),
    holder,
  );
  if (pods.left_out) el.append(h("p.more", pods.left_out));
  state.onChange(() => {
    if (!complete) update();
  });
  update();
}

/** What each rank needs for itself, and what the others wait for it. */
function stragglerTable(el: HTMLElement, context: ViewContext, state: Shown): void {
  const { pods } = context.payload;
  const data = pods.stragglers;
  if (!data) return;
  const holder = h("div");
  const neutral = { css: "other", width: 40 };
  const rows = table(holder, {
    table: data,
    label: "Stragglers",
    sort: null,
    height: 320,
    signal: context.signal,
    columns: [
      { key: "host", grow: true, width: 120, cell: nameCell(data, "host") },
      { key: "device", dim: true, narrow: true },
      { key: "straggler" },
      { key: "own_ms", bar: { ...neutral, max: (mostOf(data, "own_ms") || 1) * 1.06 } },
      { key: "excess_ms" },
      { key: "slowest_in" },
      { key: "chance", narrow: true },
      { key: "pauses", narrow: true },
      { key: "last_in", narrow: true },
      { key: "cost_ms" },
      { key: "saved_ms", narrow: true },
      { key: "cause" },
      { key: "cause_ms", narrow: true },
    ],
    rowClass: (row) => (numberAt(data.data["straggler"], row) ? "sel" : ""),
    onRow: (row) => {
      const host = textAt(data.data["host"], row);
      const device = `${host}:${numberAt(data.data["device"], row)}`;
      const worker = pods.workers.findIndex((name) => name === host || name === device);
      if (worker >= 0) state.select(worker);
    },
  });
  el.append(
    h(
      "section",
      h(
        "h3.wrap",
        "Stragglers",
        h("small", `${unitOf(context.payload.meta).a} without waiting for others, furthest behind first`),
        h(
          "span.pod-links",
          downloadButton("nbprof-stragglers.csv", () => rows.csv()),
        ),
      ),
      holder,
      pods.stragglers_left_out && h("p.more", pods.stragglers_left_out),
    ),
  );
}

/** Ops and kernels that take longer on some hosts than on the others. */
function outlierTable(el: HTMLElement, context: ViewContext): void {
  const { pods } = context.payload;
  const data = pods.outliers;
  if (!data) return;
  const holder = h("div");
  const rows = table(holder, {
    table: data,
    label: "Outliers",
    sort: null,
    height: 320,
    signal: context.signal,
    columns: [
      { key: "name", grow: true },
      { key: "kind", dim: true, narrow: true },
      { key: "host", width: 110, cell: nameCell(data, "host") },
      { key: "time_ms" },
      { key: "median_ms" },
      { key: "excess_ms", bar: { css: "other", width: 40, max: (mostOf(data, "excess_ms") || 1) * 1.06 } },
      { key: "ratio", narrow: true },
      { key: "deviations", narrow: true },
      { key: "hosts_out", narrow: true },
    ],
    onRow: (row) =>
      context.go(textAt(data.data["kind"], row) === "kernel" ? "kernels" : "ops", {
        filter: textAt(data.data["name"], row),
      }),
  });
  el.append(
    h(
      "section",
      h(
        "h3.wrap",
        "Outliers",
        h(
          "small",
          `ops and kernels that take longer on a host than on the others, ms ${unitOf(context.payload.meta).per}`,
        ),
        h(
          "span.pod-links",
          downloadButton("nbprof-outliers.csv", () => rows.csv()),
        ),
      ),
      holder,
      pods.outliers_left_out && h("p.more", pods.outliers_left_out),
    ),
  );
}
