/** Steps & input: the device side, the host side, the tf.data graph and the input ops. */

import { numberAt, textAt } from "../../lib/codec.js";
import { headsOf } from "../../lib/columns.js";
import { clear, h, listen, marked } from "../../lib/dom.js";
import { ms, num, us } from "../../lib/format.js";
import {
  codeBox,
  downloadButton,
  emptyView,
  field,
  figures,
  heading,
  legend,
  link,
  picker,
  runTag,
  segmented,
} from "../../lib/parts.js";
import { CATEGORIES, type Figure, type Input, type Pipeline, type Steps, type Table } from "../../lib/payload.js";
import { type ColumnSpec, table } from "../../lib/table.js";
import { capital, isWhole, timeTitle, type Unit, unitOf } from "../../lib/unit.js";
import type { Hint, View, ViewContext } from "../../lib/view.js";
import { barCell, breakdownTable, cells, missingNote, plainTable, statisticsTable } from "../breakdown.js";
import { stepClock } from "../clock.js";
import { toInput, toStep } from "../jump.js";
import { follows } from "../of-host.js";
import { stepChart } from "../stepchart.js";
import { breakdown, leftOutNote, selectedRows, statistics, stepCount } from "../stepstats.js";
import { drawGraph, TF_DATA, type Words } from "../tfdata.js";
import { ofRun } from "../whole.js";

/** How much longer a step took, and for what; what is no half of that explains nothing. */
export function longestText(step: number, over_ms: number, label: string, more_ms: number, noun = "step"): string {
  const what = label.toLowerCase();
  // Where it takes more than the whole is over, it saves elsewhere.
  const why = more_ms > over_ms ? `; it took ${ms(more_ms)} more for ${what}` : `; ${ms(more_ms)} of that is ${what}`;
  return `${capital(noun)} ${step} took ${ms(over_ms)} longer than the mean${more_ms > over_ms / 2 ? why : ""}.`;
}

/** The calls of a pipeline: how many, how many of them slow, and how long they take. */
export function callsText(pipeline: Pick<Pipeline, "calls" | "slow_calls" | "mean_us" | "min_us" | "max_us">): string {
  if (pipeline.calls === 1) return `There was 1 call, of ${us(pipeline.max_us)}.`;
  const slow = pipeline.slow_calls > 0 ? `, ${num(pipeline.slow_calls)} of them slow` : "";
  return `${num(pipeline.calls)} calls${slow}; a call takes ${us(pipeline.mean_us)} on average, ${us(pipeline.min_us)} to ${us(pipeline.max_us)}.`;
}

/** The longest of the selected steps where it stands out: over the mean by 2 standard deviations and a tenth. */
function longest(context: ViewContext, rows: readonly number[]): HTMLElement | null {
  const { steps } = context.payload;
  const { total } = breakdown(steps, rows);
  const row = rows.reduce((best, next) => {
    return (steps.step_time_ms[next] ?? 0) > (steps.step_time_ms[best] ?? 0) ? next : best;
  }, rows[0] ?? 0);
  const [time, start] = [steps.step_time_ms[row] as number, steps.start_ms[row] as number];
  const over = time - total.mean;
  if (!(over > 2 * total.sd && over > 0.1 * total.mean)) return null;
  const deltas = CATEGORIES.flatMap(({ key, label }) => {
    const values = steps.categories[key];
    const mean = breakdown(steps, rows).parts.find((part) => part.key === key)?.stats.mean;
    return values && mean !== undefined ? [{ label, more: (values[row] as number) - mean }] : [];
  });
  const cause = deltas.reduce((best, next) => (next.more > best.more ? next : best), { label: "", more: 0 });
  const text = `${longestText(steps.step[row] as number, over, cause.label, cause.more, steps.noun)} `;
  return h(
    "p.more",
    h(
      "span",
      text,
      link("Show in trace →", () => context.go("trace", toStep(steps.step[row] as number, start, time))),
    ),
  );
}

function deviceSide(el: HTMLElement, context: ViewContext): void {
  const unit = unitOf(context.payload.meta);
  const title = context.payload.meta.has_device ? "Device side" : timeTitle(unit);
  const { steps } = context.payload;
  if (steps.empty) {
    el.append(h("section", heading(title), emptyView(steps.empty)));
    return;
  }
  const recorded = CATEGORIES.filter(({ key }) => steps.categories[key]?.some((value) => value > 0));
  const left = h("div");
  const side = h("div");
  const scope = steps.step.length > 400 || isWhole(unit) ? "" : `each bar is one ${unit.noun}`;
  const split = h("div.split.b", left, side);
  el.append(h("section", heading(title, scope, legend(recorded)), split));
  const update = (): void => {
    const selection = context.store.get("selection");
    const rows = selectedRows(steps, selection);
    const { total, parts, missing } = breakdown(steps, rows);
    clear(side);
    const { meta } = context.payload;
    // Of one recording there is no spread.
    side.append(
      isWhole(unit) && total.n === 1
        ? breakdownTable(parts, total, headsOf(meta, "overview.step"), unit)
        : statisticsTable(parts, total, headsOf(meta, "steps.summary"), unit.noun, timeTitle(unit)),
    );
    const leftOut = leftOutNote(steps, selection);
    for (const note of [longest(context, rows), missingNote(missing, context.payload.meta.has_device)])
      if (note) side.append(note);
    if (leftOut) side.append(h("p.more", { text: leftOut }));
  };
  update();
  context.store.subscribe("selection", update, context.signal);
  stepChart(left, context, { waiting: steps.categories.input !== undefined && !isWhole(unit) });
  if (steps.clock) el.append(stepClock(steps.clock, context.signal));
}

/** How much of the steps is input, and what to do next. */
function summary(el: HTMLElement, context: ViewContext): void {
  const { input, steps, meta } = context.payload;
  const unit = unitOf(meta);
  if (!input.statement) return;
  const share = h("div");
  el.append(
    h(
      "section",
      ofRun(h("p.said", runTag(), h("b", input.statement), " ", h("span.dim", input.next_step))),
      input.share.length > 0 && share,
    ),
  );
  const update = (): void => {
    const selection = context.store.get("selection");
    const rows = selectedRows(steps, selection);
    const some = selection !== null || (context.store.get("host") !== null && follows("input", context.payload));
    share.replaceChildren(
      figures(some ? input.share.map((fig) => selectedShare(fig, steps, rows, unit)) : input.share),
    );
  };
  update();
  context.store.subscribe("selection", update, context.signal);
}

/** The share of input in the selected steps; other figures are of the whole run. */
function selectedShare(fig: Figure, steps: Steps, rows: readonly number[], unit: Unit): Figure & { ofRun?: boolean } {
  const waited = steps.categories.input;
  if (fig.key !== "input_share" || !waited) return { ...fig, ofRun: true };
  const parts = Float64Array.from(waited, (value, row) => (100 * value) / (steps.step_time_ms[row] as number));
  const { n, mean, sd, min, max } = statistics(parts, rows);
  const bar = [{ category: "input" as const, percent: mean }];
  const note = n > 1 ? `range ${num(min, 1)}–${num(max, 1)}, mean of the ${unit.plural}` : `one ${unit.noun}`;
  return { ...fig, value: mean, spread: n > 1 ? `± ${num(sd, 1)}` : "", note, bar };
}

function hostSide(input: Input, context: ViewContext): HTMLElement {
  const { steps } = context.payload;
  const unit = unitOf(context.payload.meta);
  const counted = stepCount(steps);
  const within = steps.step.length > 0 && counted && input.per_step_ms !== null ? ` in ${counted}` : "";
  const each = input.per_step_ms === null || isWhole(unit) ? "" : `, ${ms(input.per_step_ms)} ${unit.per}`;
  const scope = `${ms(input.total_ms, 1)} spent on input${within}${each}`;
  const scaled = !isWhole(unit) && input.categories.some((category) => category.per_step_ms !== null);
  const span = scaled ? 4 : 3;
  const rows = input.categories.flatMap((category) => [
    h(
      "tr",
      { class: category.time_ms === 0 ? "zero" : undefined },
      h("td", category.label),
      ...cells("n", num(category.time_ms, 1)),
      ...(scaled ? cells("n hide-s", num(category.per_step_ms, 2)) : []),
      ...cells("n", barCell("input", category.percent, 120)),
      h("td.dim.below-n.helps", ...(category.advice ? marked(category.advice) : ["–"])),
    ),
    // Where there is no room beside the numbers, what helps stands below them.
    ...(category.advice ? [h("tr.only-n", h("td.dim", { colspan: span }, ...marked(category.advice)))] : []),
  ]);
  const head = headsOf(context.payload.meta, "input_pipeline.categories");
  const heads = [
    head("label"),
    head("time_ms", "n"),
    ...(scaled ? [head("per_step_ms", "n hide-s")] : []),
    head("percent", "n on"),
    head("advice", "below-n"),
  ];
  const missing = (input.missing ?? []).map((text) => h("p.more", { text }));
  return h("section.of-run", heading("Host side", scope, runTag()), plainTable(heads, rows), ...missing);
}

const DATA_LOADER: Words = {
  graph: (nodes) => `DataLoader pipeline of ${nodes} stages`,
  whole: "of the time of batches",
};

/** The way of a batch of each DataLoader from its dataset to the loop. */
function loaders(el: HTMLElement, context: ViewContext): void {
  const all = context.payload.input.loaders ?? [];
  for (const loader of all) {
    const section = h("section.of-run");
    el.append(section);
    let drawing = new AbortController();
    const draw = (): void => {
      drawing.abort();
      drawing = new AbortController();
      const scope = `${loader.scope}; data flows left to right; each box: time without that of the stages that it calls, and its part of the time in which batches are made`;
      clear(section);
      section.append(heading(`DataLoader pipeline: ${loader.name}`, scope, runTag()));
      drawGraph(section, loader.nodes, DATA_LOADER, section.clientWidth, drawing.signal);
      if (loader.advice) section.append(h("p.more", h("span", ...marked(loader.advice))));
      if (loader.fix.length) section.append(codeBox(loader.fix));
    };
    draw();
    context.onResize(draw);
    listen(context.signal, "abort", () => drawing.abort());
  }
}

/** What makes the batches of loaders, workers or the loop itself: what an item takes its time in, and how busy they were. */
function workers(el: HTMLElement, context: ViewContext): void {
  const { transforms, workers: each } = context.payload.input;
  const draw = (all: Table, title: string, scope: string, columns: Parameters<typeof table>[1]["columns"]): void => {
    const box = h("div");
    el.append(h("section.of-run", heading(title, scope, runTag()), box));
    const rows = table(box, { table: all, label: title, signal: context.signal, columns });
    rows.setRows(Array.from({ length: all.rows }, (_, row) => row));
  };
  if (transforms)
    draw(
      transforms,
      "Stages of the loader",
      "time where batches are made, without that of the stages that a stage calls",
      [
        { key: "loader", narrow: true },
        { key: "stage", grow: true, width: 110 },
        { key: "where", narrow: true },
        "per_call_ms",
        { key: "per_item_ms", narrow: true },
        "percent",
        { key: "calls", narrow: true },
        { key: "longest_ms", narrow: true },
        { key: "inside", narrow: true },
      ],
    );
  if (each)
    draw(each, "Workers of the loader", "busy = making batches; otherwise nothing is asked of it", [
      { key: "loader", grow: true, width: 90 },
      "worker",
      "batches",
      "batch_ms",
      "busy_percent",
      { key: "delayed_ms", narrow: true },
      { key: "restarts", narrow: true },
      { key: "start_ms", narrow: true },
      { key: "pickled_bytes", narrow: true },
      { key: "shared_bytes", narrow: true },
      { key: "memory_bytes", narrow: true },
    ]);
}

/** Rows of a table of pipelines, or of their calls, that are of one pipeline. */
export function rowsOf(table: Table, { host, name }: Pick<Pipeline, "host" | "name">): number[] {
  const { data, rows } = table;
  return Array.from({ length: rows }, (_, row) => row).filter(
    (row) => textAt(data["pipeline"], row) === name && textAt(data["host"], row) === host,
  );
}

/** All pipelines; a row chooses the one that is drawn. */
function pipelineTable(el: HTMLElement, context: ViewContext, choose: (index: number) => void): void {
  const { pipelines, pipeline_table: all } = context.payload.input;
  if (!all || pipelines.length < 2) return;
  const pipelineOfRow = new Map(pipelines.flatMap((item, i) => rowsOf(all, item).map((row) => [row, i] as const)));
  const hosts = new Set(pipelines.map(({ host }) => host)).size > 1;
  const box = h("div");
  el.append(h("section.of-run.by-host", heading("tf.data pipelines", `${num(pipelines.length)}`, runTag()), box));
  const rows = table(box, {
    table: all,
    label: "tf.data pipelines",
    signal: context.signal,
    columns: [
      ...(hosts ? ["host"] : []),
      { key: "pipeline", grow: true, width: 90 },
      "calls",
      "slow_calls",
      "mean_us",
      { key: "min_us", narrow: true },
      "max_us",
      { key: "bottleneck", narrow: true },
      { key: "bottleneck_us", narrow: true },
    ],
    onRow: (row) => choose(pipelineOfRow.get(row) ?? 0),
  });
  rows.setRows([...pipelineOfRow.keys()]);
}

/** The calls of a pipeline, longest first; a row shows its call in the trace. */
function callTable(el: HTMLElement, context: ViewContext, pipeline: Pipeline, signal: AbortSignal): void {
  const { call_table: all } = context.payload.input;
  const nodes = all ? rowsOf(all, pipeline) : [];
  if (!all || nodes.length < 2) return;
  const box = h("div");
  const truncation = pipeline.calls > nodes.length ? `the ${num(nodes.length)} longest of ${num(pipeline.calls)}` : "";
  el.append(heading("Calls", truncation ? `${truncation}; p.tf_data.calls has all` : num(nodes.length)), box);
  const rows = table(box, {
    table: all,
    label: "Calls of the pipeline",
    signal,
    columns: ["start_ms", "duration_us", { key: "bottleneck", grow: true, width: 120 }],
    onRow: (row) => {
      const start = numberAt(all.data["start_ms"], row);
      context.go("trace", { range_ms: [start, start + numberAt(all.data["duration_us"], row) / 1000] });
    },
  });
  rows.setRows(nodes);
}

function graph(el: HTMLElement, context: ViewContext): void {
  const { pipelines } = context.payload.input;
  if (pipelines.length === 0) return;
  const section = h("section.of-run.by-host");
  pipelineTable(el, context, (pipeline) => {
    choose(pipeline, -1);
    section.scrollIntoView({ block: "nearest" });
  });
  el.append(section);
  const hosts = [...new Set(pipelines.map((item) => item.host))];
  let index = 0;
  let call = -1;
  let drawing = new AbortController();
  const choose = (pipeline: number, of: number): void => {
    index = pipeline;
    call = of;
    draw();
  };
  const draw = (): void => {
    const pipeline = pipelines[index];
    if (!pipeline) return;
    drawing.abort();
    drawing = new AbortController();
    clear(section);
    const iterator = pipeline.slowest[call];
    const nodes = iterator?.nodes ?? pipeline.nodes;
    const critical = (iterator ?? pipeline).critical_ms;
    const rows = pipelines.flatMap((item, i) =>
      item.host === pipeline.host ? [{ id: String(i), label: item.name }] : [],
    );
    const calls = pipeline.slowest.map((item, i) => ({
      id: String(i),
      label: `${i ? `no. ${i + 1} slowest` : "slowest"}, ${us(item.duration_us)}`,
    }));
    const scope = `data flows left to right; thick outlines and lines = critical path, ${ms(critical, iterator ? 3 : 1)}, dashed = off it; each box: time in the pipeline's calls, on any thread, without its inputs, and its part of them`;
    section.append(
      heading("tf.data pipeline", scope, runTag()),
      h(
        "div.toolbar",
        hosts.length > 1 &&
          picker(
            "Host",
            hosts.map((id) => ({ id, label: id })),
            pipeline.host,
            (id) =>
              choose(
                pipelines.findIndex((item) => item.host === id),
                -1,
              ),
          ),
        rows.length > 1 && picker("Pipeline", rows, String(index), (id) => choose(Number(id), -1)),
        calls.length > 0 &&
          picker("Call", [{ id: "-1", label: "all combined" }, ...calls], String(call), (id) =>
            choose(index, Number(id)),
          ),
        iterator &&
          link("Show in trace →", () =>
            context.go("trace", { range_ms: [iterator.start_ms, iterator.start_ms + iterator.duration_us / 1000] }),
          ),
      ),
    );
    const follow = (name: string): void => {
      const row = [...Array(context.payload.input.ops.rows).keys()].find(
        (each) => textAt(context.payload.input.ops.data["op"], each) === name,
      );
      const named = { search: name, target: { kind: "input", name } } as const;
      context.go("trace", row === undefined ? named : toInput(context.payload.input.ops, row));
    };
    drawGraph(section, nodes, TF_DATA, section.clientWidth, drawing.signal, follow);
    section.append(
      h("p.more", h("span", ...marked(pipeline.advice), pipeline.advice ? " " : "", callsText(pipeline))),
      pipeline.fix.length ? codeBox(pipeline.fix) : "",
    );
    callTable(section, context, pipeline, drawing.signal);
  };
  draw();
  context.onResize(draw);
  listen(context.signal, "abort", () => drawing.abort());
}

/** Parts of an iterator's name: "Iterator::Root::Zip[0]::Map" has four; the index of an input belongs to no name. */
const segments = (name: string): string[] => name.replace(/\[\d+\]/g, "").split("::");

/** Rows in the order of the iterators' nesting, largest first on each level, and how deep each one lies. */
export function nested(ops: Table): { order: number[]; depth: number[] } {
  const paths = Array.from({ length: ops.rows }, (_, i) => segments(textAt(ops.data["op"], i)));
  const byPath = new Map(paths.map((path, i) => [path.join("::"), i] as const).reverse());
  const children = new Map<number, number[]>();
  paths.forEach((path, i) => {
    let parent = -1;
    for (let n = path.length - 1; n > 0 && parent < 0; n--) {
      const above = byPath.get(path.slice(0, n).join("::"));
      if (above !== undefined && above !== i) parent = above;
    }
    children.set(parent, [...(children.get(parent) ?? []), i]);
  });
  const order: number[] = [];
  const depth: number[] = new Array(ops.rows).fill(0);
  const total = (row: number): number => numberAt(ops.data["total_ms"], row) || 0;
  const walk = (row: number, level: number): void => {
    for (const child of [...(children.get(row) ?? [])].sort((a, b) => total(b) - total(a) || a - b)) {
      depth[child] = level;
      order.push(child);
      walk(child, level + 1);
    }
  };
  walk(-1, 0);
  return { order, depth };
}

/** Returns what follows a link to a row. */
function inputOps(el: HTMLElement, context: ViewContext): (hint: Hint) => void {
  const { ops, bottleneck } = context.payload.input;
  const { order, depth } = nested(ops);
  const noun = context.payload.input.noun ?? "iterator";
  let tree = true;
  const name = (row: number, cell: HTMLTableCellElement): void => {
    const full = textAt(ops.data["op"], row);
    const last = noun === "op" ? full : full.split("::").at(-1) || full;
    cell.title = full;
    cell.style.paddingLeft = `${4 + (tree ? Math.min(depth[row] ?? 0, 24) * 14 : 0)}px`;
    cell.append(h("code", last), " ");
    if (bottleneck[row]) cell.append(h("span.chip.in", "bottleneck"));
  };
  const shown = h("span.dim.small");
  const section = h(
    "section.of-run",
    heading("Input ops", `${num(ops.rows)} ${ops.rows === 1 ? noun : `${noun}s`}`, runTag()),
  );
  el.append(section);
  const box = h("div");
  const toolbar = h("div.toolbar");
  section.append(toolbar, box);
  const rows = table(box, {
    table: ops,
    label: "Input ops",
    signal: context.signal,
    columns: [
      { key: "op", grow: true, cell: name, width: 160 },
      { key: "category", narrow: true, dim: true },
      { key: "occurrences" },
      { key: "total_ms" },
      { key: "total_percent", narrow: true, dim: true },
      { key: "self_ms" },
      { key: "self_percent", bar: { css: "input", width: 88 } },
      { key: "us_per_call" },
    ],
    rowClass: (row) => (bottleneck[row] ? "sel" : ""),
    onRow: (row) => context.go("trace", toInput(ops, row)),
    onChange: (now) => {
      shown.textContent = now.length === ops.rows ? "" : `${num(now.length)} of ${num(ops.rows)}`;
    },
  });
  const show = (asTree: boolean): void => {
    tree = asTree;
    rows.setRows(asTree ? order : null);
    rows.setSort(asTree ? null : { key: "self_ms", descending: true });
  };
  const modes = [
    { id: "tree", label: "As nested" },
    { id: "self", label: "By self time" },
  ] as const;
  show(true);
  const filter = field(`Filter ${noun}s`, (text) => rows.setFilter(text));
  const follow = (hint: Hint): void => {
    const text = hint.filter ?? hint.search;
    if (text === undefined) return;
    filter.set(text);
    const row = [...rows.visibleRows()].find((each) => textAt(ops.data["op"], each) === text);
    if (row === undefined) return;
    rows.select(row);
    rows.element.focus();
  };
  toolbar.append(
    filter.element,
    segmented("Order", modes, "tree", (id) => show(id === "tree")),
    h(
      "span.end",
      shown,
      downloadButton("nbprof-input-ops.csv", () => rows.csv()),
    ),
  );
  return follow;
}

/** Iterations of an inference engine: how long each kind takes, and which parts of the model take it. */
function serving(el: HTMLElement, { kinds, parts }: NonNullable<Input["serving"]>, context: ViewContext): void {
  const { signal } = context;
  const add = (title: string, scope: string, all: Table, columns: (string | ColumnSpec)[]): void => {
    const box = h("div");
    el.append(h("section.of-run", heading(title, scope, runTag()), box));
    table(box, { table: all, label: title, columns, sort: null, signal });
  };
  const rest = kinds.columns.slice(1).map(({ key }) => (key === "percent" ? { key, narrow: true, dim: true } : key));
  add("Engine iterations", "by kind", kinds, [{ key: "kind", grow: true, width: 70 }, ...rest]);
  if (parts.rows) {
    const each = parts.columns.slice(1).map(({ key }) => key);
    add("Parts of the model", "kernel time per iteration, by kind", parts, [{ key: "part", grow: true }, ...each]);
  }
}

export const render: View = (el, context, hint) => {
  const { input } = context.payload;
  summary(el, context);
  deviceSide(el, context);
  if (input.serving) serving(el, input.serving, context);
  if (input.empty) {
    el.append(h("section", heading("Host side"), emptyView(input.empty)));
    return;
  }
  if (input.categories.length > 0) el.append(hostSide(input, context));
  graph(el, context);
  loaders(el, context);
  workers(el, context);
  if (!input.ops.rows) return;
  const follow = inputOps(el, context);
  if (hint) follow(hint);
  return { hint: follow };
};
