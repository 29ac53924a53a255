/** The trace: every track of the run on one time axis. */

import { canvas } from "../lib/canvas.js";
import { clear, h, handled, listen, modified } from "../lib/dom.js";
import { count, kernelName, ms, num } from "../lib/format.js";
import { emptyView, field, hoverCard, legend, link } from "../lib/parts.js";
import { CATEGORIES, type Steps, type Trace } from "../lib/payload.js";
import type { Selection } from "../lib/store.js";
import type { Hint, View, ViewContext, ViewHandle } from "../lib/view.js";
import { candidates } from "./trace/ask.js";
import { fillsOf } from "./trace/colours.js";
import { details, stepAt, stepNames } from "./trace/details.js";
import { drawLanes, fitter, lengthText, RULER } from "./trace/draw.js";
import { durationOf, nameOf, type Slice, startOf } from "./trace/find.js";
import { KEYS, press } from "./trace/keys.js";
import { drawLabels, processNote } from "./trace/labels.js";
import { processes } from "./trace/layout.js";
import { Model } from "./trace/model.js";
import { onTheme, themeReader } from "./trace/palette.js";
import { pointer } from "./trace/pointer.js";
import { overviewStrip } from "./trace/strips.js";
import { around, type Span } from "./trace/window.js";

/** Most height of the lanes; taller traces scroll inside, as tables do. */
const TALLEST = 560;

/** Times of the selected steps in ms: from the start of the first to the end of the last; null when none is among them. */
export function stepsRange(steps: Steps, selection: Selection | null): [number, number] | null {
  if (!selection) return null;
  let from = Number.POSITIVE_INFINITY;
  let to = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < steps.step.length; i++) {
    const step = steps.step[i] as number;
    if (step < selection.first || step > selection.last) continue;
    from = Math.min(from, steps.start_ms[i] as number);
    to = Math.max(to, (steps.start_ms[i] as number) + (steps.step_time_ms[i] as number));
  }
  return from < to ? [from, to] : null;
}

/** How many of how many events are here. */
export function coverage(trace: Trace): string {
  if (trace.shown >= trace.total) return `${count(trace.total)} events.`;
  return `${count(trace.shown)} of ${count(trace.total)} events are in this report: the longest of each track.`;
}

/** What a canvas says to those who do not see it. */
export function summary(trace: Trace): string {
  const kinds = [...processes(trace.lanes)].map(([process, lanes]) => `${process} with ${count(lanes.length)} tracks`);
  return `Timeline of ${ms((trace.end * trace.tick_ns) / 1e6)}: ${kinds.join(", ")}; ${coverage(trace)} Arrow keys move between slices.`;
}

export const render: View = (el, context, hint) => {
  const { trace } = context.payload;
  if (trace.empty) {
    el.append(h("section", emptyView(trace.empty)));
    return;
  }
  return draw(el, context, hint);
};

function draw(el: HTMLElement, context: ViewContext, hint: Hint | undefined): ViewHandle {
  const { signal, store } = context;
  const { trace, steps } = context.payload;
  const model = new Model(trace);
  const toMs = trace.tick_ns / 1e6;
  const fills = fillsOf(trace.names, trace.category);
  const labels = trace.names.map((name) => kernelName(name).name);
  const stepLabel = stepNames(trace, steps);
  const fit = fitter();
  const inTicks = (range: readonly [number, number]): Span => ({ from: range[0] / toMs, to: range[1] / toMs });

  // Toolbar
  const hits = h("span.hits.dim", { role: "status" });
  /** The op a link asked for, while its slices are found under another name. */
  let asked = "";
  const search = field(
    "Search slices",
    (text) => {
      asked = "";
      model.find(text.trim());
      return model.hits.error;
    },
    {
      title: "Part of a name, or /a regular expression/. Enter: next hit, Shift+Enter: previous",
      onKey: (event) => {
        if (event.key !== "Enter") return;
        handled(event);
        model.step(event.shiftKey ? -1 : 1);
      },
    },
  );
  const step = (by: 1 | -1, text: string, label: string): HTMLButtonElement =>
    h("button", { class: "btn quiet", "aria-label": label, on: { click: () => model.step(by) } }, text);
  const previous = step(-1, "‹", "Previous hit");
  const next = step(1, "›", "Next hit");
  const zoomLink = h("span.zoomto");
  const help = h("div.keys", { hidden: true, id: "nbp-trace-keys" }, ...helpRows());
  const helpButton = h(
    "button",
    { class: "btn quiet", "aria-expanded": "false", "aria-label": "List of keys", on: { click: () => toggleHelp() } },
    h("kbd", "?"),
  );
  const toggleHelp = (): void => {
    help.hidden = !help.hidden;
    helpButton.setAttribute("aria-expanded", String(!help.hidden));
  };
  const toolbar = h(
    "div.toolbar",
    search.element,
    hits,
    previous,
    next,
    zoomLink,
    h("span.end.dim", h("span.keyhint.hide-n", ...shortHelp()), helpButton),
  );

  // Strip, lanes, details
  const whole = h("span", null);
  const shown = h("small", null);
  const stripBox = h("div.lane");
  const column = h("div.labels");
  const stage = h("div.stage");
  const scroller = h("div.scroller", h("div.tlab.corner"), column, stage);
  const parts = details(context, model);
  const frame = h("div.trace", h("div.trow.strips", h("div.tlab", whole, shown), stripBox), scroller, parts.element);
  el.append(h("section", toolbar, help, frame, h("p.more", h("span", coverage(trace)), colours(trace))));

  const theme = themeReader(frame);
  const strip = overviewStrip(stripBox, model, theme, signal);
  const lanes = canvas(stage, {
    signal,
    height: RULER,
    label: summary(trace),
    draw: (ctx, width, height) =>
      drawLanes(
        ctx,
        {
          model,
          theme: theme(),
          fills,
          labels,
          stepLabel,
          fit,
          scroll: scroller.scrollTop,
          range: mouse.dragged() ?? model.range,
        },
        width,
        height,
      ),
  });
  lanes.element.tabIndex = 0;
  const card = hoverCard(frame, signal);
  const mouse = pointer({
    canvas: lanes,
    model,
    card,
    scroll: () => scroller.scrollTop,
    scrollBy: (pixels) => {
      scroller.scrollTop += pixels;
    },
    describe: (slice) => describe(trace, steps, slice, stepLabel(slice.lane, slice.index)),
  });
  listen(lanes.element, "keydown", (event) => {
    if (modified(event)) return;
    const focusSearch = (): void => search.input.focus();
    if (!press(event.key, event.shiftKey, { model, share: mouse.share, focusSearch, toggleHelp })) return;
    card.hide();
    handled(event);
  });
  listen(scroller, "scroll", () => {
    card.hide();
    lanes.redraw();
  });

  const notes = new Map([...processes(trace.lanes)].map(([name, members]) => [name, processNote(model, members)]));
  whole.textContent = `0–${lengthText(trace.end * toMs)}`;

  function place(): void {
    drawLabels(column, model, notes);
    const height = Math.min(TALLEST, model.height + RULER);
    scroller.style.height = `${height}px`;
    lanes.element.style.height = `${height}px`;
    stage.style.height = `${model.height + RULER}px`;
    lanes.redraw();
  }

  function bring(slice: Slice): void {
    const spot = model.placeOf(slice);
    if (!spot) return;
    const room = scroller.clientHeight - RULER;
    if (spot.top < scroller.scrollTop) scroller.scrollTop = Math.max(0, spot.top - 40);
    else if (spot.bottom > scroller.scrollTop + room) scroller.scrollTop = spot.bottom - room + 40;
  }

  function showHits(): void {
    const found = model.hits.slices.length;
    const at = model.hitAt >= 0 ? `${count(model.hitAt + 1)} of ` : "";
    hits.textContent = model.query && !model.hits.error ? `${at}${count(found)} ${found === 1 ? "hit" : "hits"}` : "";
    // The slices of an op are called by its kernel or type: say so instead of a silent other name.
    if (asked && found) hits.textContent += ", the slices of this op";
    hits.title = asked;
    previous.disabled = next.disabled = !found;
    previous.hidden = next.hidden = !model.query;
  }

  model.onChange((change) => {
    if (change === "lanes") place();
    if (change === "span") shown.textContent = `${lengthText((model.span.to - model.span.from) * toMs)} shown`;
    if (change === "slice") {
      parts.drawSlice();
      if (model.selected) bring(model.selected);
    }
    if (change === "slice" || change === "search") showHits();
    if (change === "range") parts.drawRange();
    lanes.redraw();
    strip.redraw();
  });

  const showRange = (range: readonly [number, number]): void => {
    model.setRange(inTicks(range));
    if (model.range) model.setSpan(around(model.range, trace.end));
  };
  const offerSteps = (): void => {
    clear(zoomLink);
    const selection = store.get("selection");
    const range = stepsRange(steps, selection);
    if (selection && range) {
      const text =
        selection.first === selection.last ? `step ${selection.first}` : `steps ${selection.first}–${selection.last}`;
      zoomLink.append(link(`zoom to ${text}`, () => showRange(range)));
    }
  };
  store.subscribe("selection", offerSteps, signal);
  store.subscribe("focusRange", (range) => range && showRange(range), signal);
  onTheme(frame, signal, () => {
    lanes.redraw();
    strip.redraw();
  });

  function follow(target: Hint): void {
    if (target.range_ms) showRange(target.range_ms);
    const text = target.search ?? target.filter;
    if (text === undefined) return;
    const found = model.findLongest(candidates(context.payload, text));
    search.input.value = found;
    asked = found === text ? "" : text;
    showHits();
  }

  place();
  showHits();
  offerSteps();
  shown.textContent = `${lengthText(trace.end * toMs)} shown`;
  const range = store.get("focusRange");
  if (hint) follow(hint);
  else if (range) showRange(range);
  return { hint: follow, focusFilter: () => search.input.focus() };
}

function describe(trace: Trace, steps: Steps, slice: Slice, label: string) {
  const lane = trace.lanes[slice.lane];
  const toMs = trace.tick_ns / 1e6;
  const start = startOf(trace, slice) * toMs;
  const running = stepAt(steps, start);
  const name = label || nameOf(trace, slice);
  return {
    title: name.length > 120 ? `${name.slice(0, 119)}…` : name,
    total: lengthText(durationOf(trace, slice) * toMs),
    two: true,
    rows: [
      { label: "Start", value: `${num(start, 3)} ms` },
      { label: "Self time", value: lengthText((lane?.self[slice.index] ?? 0) * toMs) },
      { label: "Lane", value: lane?.name ?? "" },
      ...(running === null ? [] : [{ label: "Step", value: String(running) }]),
    ],
  };
}

/** The categories that occur, as a legend. */
function colours(trace: Trace): HTMLElement {
  const present = new Set(trace.category);
  const items = CATEGORIES.filter((_, i) => present.has(i + 1)).map(({ css, label }) => ({ css, label }));
  const list = legend(items);
  list.prepend(h("span", items.length ? "Colour: by name; step time has its own:" : "Colour: by name."));
  return list;
}

function shortHelp(): Node[] {
  const parts: [string[], string][] = [
    [["W", "S"], "zoom"],
    [["A", "D"], "pan"],
    [["F"], "fit selection"],
    [["M"], "mark range"],
  ];
  return parts.flatMap(([keys, what]) => [...keys.map((key) => h("kbd", key)), h("span", what)]);
}

function helpRows(): Node[] {
  return KEYS.map(([keys, what]) => h("span", ...keys.flatMap((key) => [h("kbd", key), " "]), what));
}
