/** Selecting and finding: joins the model with the details, the search, the arrows, the keys and what is said of it all. */

import { h, modified } from "../../lib/dom.js";
import { toggle } from "../../lib/parts.js";
import type { Times } from "../../lib/place.js";
import type { Hint, ViewContext } from "../../lib/view.js";
import { announcer, foundWords, infoWords, manyWords, rangeWords, sliceWords, viewWords } from "./announce.js";
import { details } from "./details.js";
import { follow } from "./flows.js";
import { nextGap } from "./gaps.js";
import type { Go } from "./info/slice.js";
import { type Actions, press } from "./keys.js";
import type { Change, Model } from "./model.js";
import { type Search, searchBar } from "./search.js";
import type { Arrow, Direction, Located, SliceInfo, Source, Target } from "./source.js";
import { around, type Span } from "./window.js";

/** Share of the window that a range fills when it is gone to, and that a slice with its surroundings does. */
const FILL = { range: 0.6, slice: 0.1 };

export interface InspectOptions {
  context: ViewContext;
  model: Model;
  /** What the report itself holds. */
  saved: Pick<Source, "locate" | "ids">;
  /** Where W and S zoom around: the share of the width under the pointer, or the middle. */
  share(): number;
  /** Ids of the lanes that can be seen. */
  lanesInView(): number[];
  redraw(): void;
  toggleHelp(): void;
}

export interface Inspect {
  search: Search;
  /** Slice and range, under the lanes. */
  details: HTMLElement;
  /** The switch of the arrows. */
  flows: HTMLElement;
  /** Where a link or key led, for a toolbar. */
  said: HTMLElement;
  /** What is read out; not seen. */
  words: HTMLElement;
  /** Those of the selected slice, while they are shown. */
  arrows(): readonly Arrow[];
  changed(change: Change): void;
  /** Does what a key stands for; false when it stands for nothing here. */
  key(event: KeyboardEvent): boolean;
  /** A link from another view. */
  follow(hint: Hint): void;
}

/** Whether a link is about the calls of something, rather than about a time. */
const isNamed = ({ kind }: Target): boolean => kind !== "step" && kind !== "gap" && kind !== "memory_peak";

export function inspect(options: InspectOptions): Inspect {
  const { context, model, redraw } = options;
  const { signal } = context;
  const words = announcer(signal);
  const status = h("span.hits.dim.said");
  const search = searchBar(model, signal);
  const laneOf = (id: number) => model.lanes.get(id);
  let info: SliceInfo | null = null;
  let shown = true;
  let announced = "";
  // What a jump asks for; the answer to an earlier one is dropped.
  let jump = 0;
  // A jump whose slice the report lacks, and the range it led to: the whole profile may have it.
  let unmet: { target: Target; text: string; range: Model["range"] } | null = null;

  const go: Go = {
    to: (slice) => model.select(slice, true),
    move: (direction) => void model.move(direction),
    row: (tab, filter) => context.go(tab, { filter, search: filter }),
  };
  const parts = details({
    model,
    go,
    onGap: context.payload.trace.gaps.start.length ? () => gap(1) : null,
    lanesInView: options.lanesInView,
    noun: context.payload.steps.noun,
    onSlice(next) {
      info = next;
      if (next) words.say("slice", `${sliceWords(next.slice, laneOf)} ${infoWords(next, context.payload.steps.noun)}`);
      redraw();
    },
    onRange: (range) => words.say("range", rangeWords(range)),
  });
  const flows = toggle("Flows", shown, (on) => {
    shown = on;
    words.say("said", on ? "Arrows shown." : "Arrows hidden.");
    redraw();
  });
  flows.title = "Arrows of the selected slice: launch to kernel, producer to consumer, forward to backward";

  const tell = (text: string): void => {
    status.textContent = text;
    status.title = text;
    words.say("said", text);
  };
  /** A movement of the window by key is told; one by hand is felt. */
  const moved = (act: () => void): void => {
    act();
    words.say("view", viewWords(model.span.from, model.span.to));
  };

  async function move(direction: Direction, add: boolean): Promise<void> {
    const from = model.selected;
    if (!add || !from) {
      await model.move(direction);
      if (from && model.selected === from) words.say("said", "No further slice this way.");
      return;
    }
    const next = await model.source.step(from.event, direction);
    if (next && model.selected === from) model.select(next, true, true);
  }

  async function lane(by: 1 | -1): Promise<void> {
    const bands = [...model.pinnedBands, ...model.bands];
    const lanes = bands.flatMap((band) => (band.kind === "lane" ? [band.lane] : []));
    const { selected } = model;
    if (!selected) return void model.move("next");
    const index = lanes.indexOf(selected.lane);
    const others = by > 0 ? lanes.slice(index + 1) : lanes.slice(0, Math.max(0, index)).reverse();
    const to = Math.max(model.span.to, selected.start_ns + 1);
    const next = await model.source.first(selected.start_ns, to, others);
    if (model.selected !== selected) return;
    if (next) model.select(next, true);
    else words.say("said", `No slice in view on a lane ${by > 0 ? "below" : "above"}.`);
  }

  function showRange(range: { from: number; to: number }, fill: number): void {
    model.setRange(range);
    model.setSpan(around(range, model.end, fill), true);
  }

  function gap(by: 1 | -1): void {
    const next = nextGap(context.payload.trace.gaps, model.range, by);
    if (next) showRange(next, FILL.range);
    tell(next?.text ?? "No idle gaps of a device are known.");
  }

  const actions: Actions = {
    zoom: (factor) => moved(() => model.zoomBy(factor, options.share())),
    pan: (share) => moved(() => model.panBy(share)),
    move: (direction, add) => void move(direction, add),
    lane: (by) => void lane(by),
    follow(by) {
      const next = info && follow(info.arrows, info.slice.event, by);
      if (next) model.select(next, true);
      else if (!model.selected) words.say("said", "No slice is selected.");
      else words.say("said", by > 0 ? "No arrow leaves this slice." : "No arrow reaches this slice.");
    },
    gap,
    fit: () => moved(() => model.fit()),
    fitAll: () => moved(() => model.fitAll()),
    undo: (by) => moved(() => (by < 0 ? model.undo() : model.redo())),
    mark() {
      if (!model.selection.length) return;
      const spans = model.selection.map((slice) => model.spanOf(slice));
      model.setRange({ from: Math.min(...spans.map((s) => s.from)), to: Math.max(...spans.map((s) => s.to)) });
    },
    flows: () => flows.click(),
    pin() {
      const { selected } = model;
      if (!selected) return;
      model.pin(selected.lane);
      const name = laneOf(selected.lane)?.name ?? "The lane";
      words.say(
        "said",
        model.pinned.includes(selected.lane) ? `${name} is pinned to the top.` : `${name} is unpinned.`,
      );
    },
    row() {
      if (info?.row) go.row(info.row.tab, info.row.filter);
      else words.say("said", "No table has a row for this slice.");
    },
    search: search.focus,
    help: options.toggleHelp,
    clear() {
      if (!model.selected && !model.range) return false;
      model.select(null);
      model.setRange(null);
      words.say("said", "Nothing selected.");
      return true;
    },
  };

  /** Goes to what a link means; null where nothing is known of it. */
  async function locate(target: Target): Promise<Located | null> {
    const turn = ++jump;
    const { selected: before, source } = model;
    const there = (found: Located | null): Located | null => (found && found.found !== false ? found : null);
    const answer = await source.locate(target).catch(() => null);
    // What is saved here answers where the whole profile does not (any more), and knows steps and gaps to the ns.
    const exact = target.kind === "step" || target.kind === "gap";
    const here = exact || !there(answer) ? await options.saved.locate(target) : null;
    // Who selects something meanwhile does not want to be taken away from it.
    if (turn !== jump || model.selected !== before) return null;
    const valid = (located: Located | null, { ids }: { ids: string }): Located | null =>
      located && (ids === model.source.ids ? located : { ...located, slice: null });
    const found = valid(there(answer), source) ?? valid(there(here), options.saved);
    if (!found) {
      tell(answer?.text ?? "");
      return null;
    }
    const { slice } = found;
    const range = slice && isNamed(target) ? model.spanOf(slice) : (exact && there(here)) || found;
    if (range.to > range.from) showRange(range, isNamed(target) ? FILL.slice : FILL.range);
    if (slice) model.select(slice, true);
    tell(found.text);
    return found;
  }

  async function open(target: Target, text: string): Promise<void> {
    unmet = null;
    const asked = model.source;
    const found = await locate(target);
    if (!isNamed(target) || !text) return;
    if (!found?.slice) {
      unmet = { target, text, range: model.range };
      if (model.source !== asked) again();
    }
    const name = found?.slice?.name ?? text;
    // The slices of an op are called by its kernel or type, and others may be too: say whose name it is.
    search.set(name, found?.slice && name !== text ? "by the name of the longest call" : "");
    if (!found && !status.textContent) tell(`No slice of ${text} is available.`);
  }

  async function pick(event: number): Promise<void> {
    const found = await model.source.slice(event).catch(() => null);
    if (found) model.select(found.slice, true);
  }

  /** The whole profile came after the jump: once more, unless one went elsewhere meanwhile. */
  function again(): void {
    if (!unmet || !model.source.live || model.selected || model.range !== unmet.range) return;
    void open(unmet.target, unmet.text);
  }

  return {
    search,
    details: parts.element,
    flows,
    said: status,
    words: words.element,
    arrows: () => (shown && info && info.slice.event === model.selected?.event ? info.arrows : []),
    changed(change) {
      if (change === "slice") {
        status.textContent = "";
        if (model.selection.length > 1) words.say("slice", manyWords(model.selection));
        else if (model.selected) words.say("slice", sliceWords(model.selected, laneOf));
        parts.drawSlice();
      }
      if (change === "range") parts.drawRange();
      if (change === "source") {
        words.say(
          "view",
          model.source.live ? "The full profile is loaded." : "Only the slices saved in the report are available.",
        );
        parts.drawSlice();
        parts.drawRange();
        again();
      }
      if (change === "slice" || change === "search" || change === "source") search.draw();
      const { query, found, hit } = model;
      if (!found || !query) return;
      const text = foundWords(query, found, hit);
      if (text !== announced) words.say("search", text);
      announced = text;
    },
    key(event) {
      return !modified(event) && press(event.key, event.shiftKey, actions);
    },
    follow(hint) {
      const inNs = (times: Times): Span => {
        const [from, to] = times.map((ms) => ms * 1e6 - context.payload.trace.origin_ns) as [number, number];
        return { from, to };
      };
      const { window_ms, range_ms, slice } = hint;
      const look = (): void => {
        if (!window_ms) return;
        model.setRange(range_ms ? inNs(range_ms) : null);
        model.setSpan(inNs(window_ms), true);
      };
      if (range_ms && !window_ms) showRange(inNs(range_ms), FILL.range);
      const text = hint.search ?? hint.filter ?? hint.target?.name ?? "";
      const target = hint.target ?? (text ? ({ kind: "name", name: text } as const) : null);
      if (slice !== undefined) void pick(slice).then(look);
      else if (target) void open(target, text).then(look);
      else look();
    },
  };
}
