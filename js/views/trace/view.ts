/** The trace: every track of the run on one time axis. */

import { type Canvas, canvas } from "../../lib/canvas.js";
import { clear, h, handled, listen, modified } from "../../lib/dom.js";
import { count, lengthText, ms, num } from "../../lib/format.js";
import { onTheme, themeReader } from "../../lib/palette.js";
import { emptyView, field, hoverCard, legend, link } from "../../lib/parts.js";
import { CATEGORIES, type Steps, type Trace } from "../../lib/payload.js";
import type { Times } from "../../lib/place.js";
import type { Selection } from "../../lib/store.js";
import { capital, unitOf } from "../../lib/unit.js";
import type { Hint, View, ViewContext, ViewHandle } from "../../lib/view.js";
import { chosenIn, nameOf } from "../of-host.js";
import { rangeText } from "../stepstats.js";
import { connect, coverage } from "./connect.js";
import { drawLanes, fitter, RULER } from "./draw.js";
import { rangeEnds } from "./ends.js";
import { drawArrows } from "./flows.js";
import { inspect } from "./inspect.js";
import { fewKeys, keyRows } from "./keys.js";
import { labels } from "./labels.js";
import { type Band, bandsIn, isThread, processes } from "./layout.js";
import { crowdOf, longTime } from "./lone.js";
import { Model } from "./model.js";
import { motion } from "./motion.js";
import { Pace } from "./pace.js";
import { Painter } from "./paint.js";
import { pointer } from "./pointer.js";
import { room } from "./room.js";
import { stepAt, stepName } from "./saved/steps.js";
import { SavedSource } from "./saved.js";
import type { SliceRef, Under } from "./source.js";
import { overviewStrip } from "./strips.js";
import { around, type Span } from "./window.js";

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

/** What a canvas says to those who do not see it. */
function summary(trace: Trace, drawn: { shown: number; total: number } = trace): string {
  const kinds = [...processes(trace.lanes)].map(([process, lanes]) => `${process} with ${count(lanes.length)} tracks`);
  return `Timeline of ${ms((trace.end * trace.tick_ns) / 1e6)}: ${kinds.join(", ")}; ${coverage(drawn, false)} Arrow keys move between slices.`;
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
  const saved = new SavedSource(context.payload);
  const model = new Model(saved);
  const fit = fitter();
  const painter = new Painter();
  const inNs = (range: readonly [number, number]): Span => ({
    from: range[0] * 1e6 - trace.origin_ns,
    to: range[1] * 1e6 - trace.origin_ns,
  });

  // Toolbar
  const zoomLink = h("span.zoomto");
  const help = h("div.keys", { hidden: true, id: "nbp-trace-keys" }, ...keyRows());
  const helpButton = h(
    "button",
    { class: "btn quiet", "aria-expanded": "false", "aria-label": "List of keys", on: { click: () => toggleHelp() } },
    h("kbd", "?"),
  );
  const toggleHelp = (): void => {
    help.hidden = !help.hidden;
    helpButton.setAttribute("aria-expanded", String(!help.hidden));
    if (!help.hidden) help.scrollIntoView({ block: "nearest" });
  };
  // Strip, lanes, details
  const scope = h("span", null);
  const shown = h("small", null);
  const stripBox = h("div.lane");
  const stage = h("div.stage");
  const notes = new Map<string, string>();
  const tree = labels({
    model,
    note: (process) => notes.get(process) ?? "",
    view: () => ({
      top: scroller.scrollTop,
      bottom: scroller.scrollTop + scroller.clientHeight - RULER - model.pinnedHeight,
    }),
    scrollTo: (top) => {
      scroller.scrollTop = top;
    },
  });
  const scroller = h("div.scroller", h("div.tlab.corner"), tree.pinned, tree.column, stage);
  /** The lanes, once they can be drawn. */
  let picture: Canvas | null = null;
  const desk = inspect({
    context,
    model,
    saved,
    share: () => mouse.share(),
    lanesInView: () => seen().flatMap((band) => (band.kind === "lane" ? [band.lane] : [])),
    redraw: () => picture?.redraw(),
    toggleHelp,
  });
  const chips = h("span.chips");
  const toolbar = h(
    "div.toolbar",
    ...desk.search.elements,
    desk.flows,
    zoomLink,
    chips,
    desk.said,
    h("span.end.dim", h("span.keyhint.hide-n", ...fewKeys()), helpButton),
  );
  const size = room(scroller, () => place(), signal);
  const filter = field("Filter lanes", (text) => model.filterLanes(text), {
    title: "Part of the name of a lane or section, or /a regular expression/",
  });
  scroller.querySelector(".corner")?.append(filter.element);
  const frame = h(
    "div.trace",
    h("div.trow.strips", h("div.tlab", scope, shown), stripBox),
    scroller,
    size.handle,
    desk.details,
    desk.words,
  );
  const line = connect(model, saved, context.asker, signal, () => picture?.redraw());
  const none = h("p.dim", { hidden: true, role: "status" });
  el.append(h("section", toolbar, help, none, frame, h("p.more", line.element, colours(trace))));

  const theme = themeReader(frame);
  const strip = overviewStrip(stripBox, model, theme, signal);
  const lanes = canvas(stage, {
    signal,
    height: RULER,
    opaque: true,
    label: summary(trace),
    onHidden: () => painter.drop(),
    draw: (ctx, width, height) => {
      const began = performance.now();
      const range = mouse.dragged() ?? ends.moved() ?? model.range;
      const scroll = scroller.scrollTop;
      const leastText = pace.leastText();
      drawLanes(ctx, { model, painter, theme: theme(), scroll, range, fit, leastText }, width, height);
      drawArrows(ctx, { model, theme: theme(), scroll, arrows: desk.arrows() }, width, height);
      tree.draw();
      ends.place(range, width);
      pace.drew(performance.now() - began);
      line.drawn();
    },
  });
  picture = lanes;
  const pace = new Pace(lanes.redraw);
  listen(signal, "abort", () => pace.stop());
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
    describe: (slice) => describe(model, steps, slice),
  });
  const held = motion(lanes.element, model, mouse.share, signal);
  const onKey = (event: KeyboardEvent): void => {
    // In the details the arrow keys, Enter and Escape belong to what has the focus.
    if (event.currentTarget !== lanes.element && event.key.length > 1) return;
    const moves = event.currentTarget === lanes.element && !modified(event) && held.press(event);
    if (!moves && !desk.key(event)) return;
    card.hide();
    handled(event);
  };
  const ends = rangeEnds({
    model,
    redraw: lanes.redraw,
    otherKey: onKey,
    onCleared: () => lanes.element.focus({ preventScroll: true }),
  });
  stage.append(ends.element);
  listen(lanes.element, "keydown", onKey);
  listen(desk.details, "keydown", onKey);
  listen(scroller, "scroll", () => {
    card.hide();
    lanes.redraw();
  });

  scope.textContent = `0–${lengthText(model.end / 1e6)}`;

  async function noteProcesses(): Promise<void> {
    for (const [process, members] of processes(model.source.lanes)) {
      const threads = members.filter((lane) => isThread(model.source.lanes[lane])).length;
      if (threads) notes.set(process, `${count(threads)} ${threads === 1 ? "thread" : "threads"}`);
    }
    // Of the longest events alone it would be wrong: then only a live source knows.
    const { source } = model;
    if (source.shown < source.total) return;
    const { idle } = await source.range(0, model.end, null).catch(() => ({ idle: [] }));
    if (source !== model.source) return;
    for (const { process, percent } of idle) notes.set(process, `${num(100 - percent, 1)}% busy`);
    lanes.redraw();
  }

  function place(): void {
    const full = model.pinnedHeight + model.height + RULER;
    const height = size.height(full);
    scroller.style.height = `${height}px`;
    lanes.element.style.height = `${height}px`;
    stage.style.height = `${full}px`;
    lanes.redraw();
  }

  function bring(slice: SliceRef): void {
    const spot = model.placeOf(slice);
    if (!spot || spot.pinned) return;
    const room = scroller.clientHeight - RULER - model.pinnedHeight;
    if (spot.top < scroller.scrollTop) scroller.scrollTop = Math.max(0, spot.top - 40);
    else if (spot.bottom > scroller.scrollTop + room) scroller.scrollTop = spot.bottom - room + 40;
  }

  /** The bands that can be seen. */
  const seen = (): Band[] => {
    const { scrollTop, clientHeight } = scroller;
    return [
      ...model.pinnedBands,
      ...bandsIn(model.bands, scrollTop, scrollTop + clientHeight - RULER - model.pinnedHeight),
    ];
  };

  const inMs = ({ from, to }: Span): Times => [(from + trace.origin_ns) / 1e6, (to + trace.origin_ns) / 1e6];
  /** Says where a reader has come to. A live source numbers slices otherwise. */
  function note(): void {
    const { span, range, selected } = model;
    store.set("trace", {
      window_ms: inMs(span),
      ...(range && { range_ms: inMs(range) }),
      ...(selected && model.source === saved && { slice: selected.event }),
    });
  }

  model.onChange((change) => {
    if (change === "lanes") {
      place();
      none.hidden = model.bands.length > 0 || model.laneFilter !== "";
      none.textContent = none.hidden ? "" : `No lane of ${nameOf(model.chosen)}.`;
      // A slice of another host was asked for.
      store.set("host", model.chosen.host);
      store.set("device", model.chosen.device);
      if (filter.input.value.trim() !== model.laneFilter) filter.set(model.laneFilter);
    }
    if (change === "source") {
      lanes.element.setAttribute("aria-label", summary(trace, model.source));
      scope.textContent = `0–${lengthText(model.end / 1e6)}`;
      void noteProcesses();
    }
    if (change === "span") pace.moved();
    if (change === "span") shown.textContent = `${lengthText((model.span.to - model.span.from) / 1e6)} shown`;
    if (change === "slice" && model.selected) bring(model.selected);
    if (change === "span" || change === "slice" || change === "range") note();
    desk.changed(change);
    lanes.redraw();
    strip.redraw();
  });

  /** A profile with events far from all others opens where those are, and says where the lone ones are. */
  function openAtCrowd(): void {
    const { starts, ends } = saved.times();
    const crowd = crowdOf(starts, ends, model.end);
    if (!crowd) return;
    model.setSpan(around(crowd.span, model.end, 0.96), true);
    const chip = (side: typeof crowd.before, distance: number, where: string): void => {
      if (!side) return;
      const events = `${count(side.count)} ${side.count === 1 ? "event" : "events"} ${longTime(distance)}`;
      const go = (): void => model.setSpan(around(side.span, model.end), true);
      chips.append(
        h("button.chip", { on: { click: go } }, where === "later" ? `${events} later →` : `← ${events} earlier`),
      );
    };
    const { before, after, span } = crowd;
    chip(before, span.from - (before?.span.to ?? 0), "earlier");
    chip(after, (after?.span.from ?? 0) - span.to, "later");
  }

  const showRange = (range: readonly [number, number]): void => {
    model.setRange(inNs(range));
    if (model.range) model.setSpan(around(model.range, model.end), true);
  };
  /** Of several steps it opens on a typical one: the first compiles, and all of them at once show no slice. */
  function openAtStep(): void {
    const typical = steps.typical;
    const { noun = "step" } = steps;
    const spanOf = (row: number): Span => {
      const start = steps.start_ms[row] as number;
      return inNs([start, start + (steps.step_time_ms[row] as number)]);
    };
    if (typical === undefined) return;
    const step = spanOf(typical);
    // A step that is most of what there is, or that lies outside of it, is no better place.
    if (!(step.from >= 0 && step.to <= model.end && step.to - step.from < model.end / 2)) return;
    const chip = (text: string, title: string, go: () => void): void =>
      chips.append(h("button.chip", { title, on: { click: go } }, text));
    const zoom = (span: Span): void => model.setSpan(around(span, model.end), true);
    chip(`typical: ${stepName(steps, typical)}`, `${capital(unitOf(context.payload.meta).a)} of median length`, () =>
      zoom(step),
    );
    const warm = [...(steps.warmup ?? [])].findIndex((flag) => !flag);
    if (warm > 0)
      chip("warm-up", `The first ${noun}s, excluded from averages`, () =>
        zoom({ from: spanOf(0).from, to: spanOf(warm - 1).to }),
      );
    chip(`all ${noun}s`, "The whole profile (key 0)", () => model.fitAll());
    zoom(step);
  }

  const offerSteps = (): void => {
    clear(zoomLink);
    const selection = store.get("selection");
    const range = stepsRange(steps, selection);
    if (selection && range) {
      const text = rangeText(selection.first, selection.last, steps.noun);
      zoomLink.append(link(`zoom to ${text}`, () => showRange(range)));
    }
  };
  const choose = (): void => model.choose(chosenIn(store));
  store.subscribe("host", choose, signal);
  store.subscribe("device", choose, signal);
  store.subscribe("selection", offerSteps, signal);
  store.subscribe("focusRange", (range) => range && showRange(range), signal);
  onTheme(frame, signal, () => {
    lanes.redraw();
    strip.redraw();
  });

  context.keep(
    () => ({ arranged: model.arranged, height: size.chosen, top: scroller.scrollTop }),
    ({ arranged, height, top }) => {
      if (height) size.choose(height);
      model.arrange(arranged);
      scroller.scrollTop = top;
    },
  );
  choose();
  place();
  context.onResize(place);
  void noteProcesses();
  offerSteps();
  shown.textContent = `${lengthText(model.end / 1e6)} shown`;
  openAtCrowd();
  const range = store.get("focusRange");
  if (hint) desk.follow(hint);
  else if (range) showRange(range);
  else if (!store.get("selection")) openAtStep();
  return { hint: desk.follow, focusFilter: desk.search.focus };
}

function describe(model: Model, steps: Steps, slice: Under) {
  const lane = model.lanes.get(slice.lane);
  const start = slice.start_ns / 1e6;
  const running = stepAt(steps, start);
  const { name } = slice;
  return {
    title: name.length > 120 ? `${name.slice(0, 119)}…` : name || "…",
    total: slice.count > 1 ? `the longest of ${count(slice.count)} here` : lengthText(slice.duration_ns / 1e6),
    two: true,
    rows: [
      { label: "Start", value: `${num(start, 3)} ms` },
      { label: "Lane", value: lane?.name ?? "" },
      ...(running ? [{ label: capital(steps.noun ?? "step"), value: running }] : []),
    ],
  };
}

/** The categories that occur, as a legend. */
function colours(trace: Trace): HTMLElement {
  const present = new Set(trace.category);
  const items = CATEGORIES.filter((_, i) => present.has(i + 1)).map(({ css, label }) => ({ css, label }));
  const list = legend(items);
  list.prepend(h("span", items.length ? "Coloured by name, except:" : "Coloured by name."));
  return list;
}
