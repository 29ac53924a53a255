/** Under the lanes: what is selected at the left, the marked range at the right. */

import { headCell } from "../../lib/columns.js";
import { type Child, clear, h, reason } from "../../lib/dom.js";
import { count } from "../../lib/format.js";
import { heading, link } from "../../lib/parts.js";
import { rangeView } from "./info/range.js";
import { cutOfShares, HEADS, head, restRow, shareRow, sortShares, unitOf } from "./info/shares.js";
import { briefly, type Go, sliceView } from "./info/slice.js";
import { type LaneOf, length } from "./info/words.js";
import type { Model } from "./model.js";
import type { RangeInfo, SliceInfo, SliceRef } from "./source.js";

/** Names of several slices that are shown. */
const NAMES = 8;

export interface DetailsOptions {
  model: Model;
  go: Go;
  /** To the next idle gap; null where none is known. */
  onGap: (() => void) | null;
  /** Ids of the lanes that can be seen. */
  lanesInView(): number[];
  /** What a step is called. */
  noun?: string | undefined;
  /** All of the main slice is known; null when none is selected. */
  onSlice(info: SliceInfo | null): void;
  onRange(info: RangeInfo): void;
}

export interface Details {
  element: HTMLElement;
  /** The selection changed. */
  drawSlice(): void;
  /** The range, or what it is counted over, changed. */
  drawRange(): void;
}

export function details({ model, go, onGap, lanesInView, noun, onSlice, onRange }: DetailsOptions): Details {
  const left = h("div.slice");
  const laneOf: LaneOf = (id) => model.lanes.get(id);
  const range = rangeView({
    laneOf,
    to: go.to,
    onGap,
    onClear: () => model.setRange(null),
    onScope: () => void drawRange(),
  });
  // An answer that comes after the next question is dropped.
  const asked = { slice: 0, range: 0 };
  let shown: number | null = null;
  let announced = false;
  const tell = (info: SliceInfo | null): void => {
    // That nothing is known, once; and not while the view is still being made.
    if (info || announced) onSlice(info);
    announced = info !== null;
  };

  /** What had the focus when its text went: a link that was followed, a button that was pressed. */
  let held: string | null = null;
  const show = (parts: readonly HTMLElement[]): void => {
    const focused = (left.getRootNode() as Document | ShadowRoot).activeElement ?? null;
    if (focused && left.contains(focused)) held = focused.textContent;
    else if (focused && focused !== document.body) held = null;
    clear(left);
    left.append(...parts);
    // Focus stays in the details: on the same button of the next slice, which may still be asked for.
    const stops = [...left.querySelectorAll<HTMLElement>("a,button")];
    if (held === null || !stops.length) return;
    (stops.find((stop) => stop.textContent === held) ?? stops[0])?.focus({ preventScroll: true });
    held = null;
  };

  async function drawSlice(): Promise<void> {
    const turn = ++asked.slice;
    const { selection, selected, source } = model;
    if (!selected) {
      shown = null;
      show([
        heading("Slice"),
        h("p.dim", "Click a slice, search, or press an arrow key to see its details here. Ctrl+click selects several."),
      ]);
      tell(null);
      return;
    }
    if (selection.length > 1) {
      shown = null;
      tell(null);
      show(manyView(selection, null, go, null));
      const info = await source.many(selection.map((slice) => slice.event)).catch(() => null);
      if (turn === asked.slice && info) show(manyView(selection, info, go, names(info, go)));
      return;
    }
    if (shown !== selected.event) {
      tell(null);
      show(briefly(selected, laneOf(selected.lane)));
    }
    try {
      const info = await source.slice(selected.event);
      if (turn !== asked.slice) return;
      if (!info) throw new Error("This slice is not saved in the report.");
      shown = selected.event;
      show(sliceView({ info, laneOf, go, lacks: source.lacks, noun }));
      tell(info);
    } catch (error) {
      if (turn === asked.slice) left.append(h("p.dim", reason(error)));
    }
  }

  /** Idle devices are told whatever the lanes: only those of the host or device that is chosen. */
  const ofChosen = (info: RangeInfo): RangeInfo => {
    const ids = model.lanesChosen;
    if (!ids) return info;
    const sections = new Set(ids.map((id) => laneOf(id)?.process));
    return { ...info, idle: info.idle.filter(({ process }) => sections.has(process)) };
  };

  async function drawRange(): Promise<void> {
    const turn = ++asked.range;
    const { source } = model;
    const span = model.range;
    if (!span) {
      range.draw(null);
      return;
    }
    const scope = range.scope();
    const scopes = { all: () => model.lanesChosen, pinned: () => model.pinned, view: lanesInView };
    const lanes = scopes[scope]();
    range.wait(span.from, span.to);
    try {
      const info = await source.range(span.from, span.to, lanes);
      if (turn !== asked.range) return;
      const shown = ofChosen(info);
      range.draw(shown);
      onRange(shown);
    } catch (error) {
      if (turn === asked.range) range.fail(`No numbers for this range: ${reason(error)}`);
    }
  }

  void drawSlice();
  void drawRange();
  return {
    element: h("div.details", left, range.element),
    drawSlice: () => void drawSlice(),
    drawRange: () => void drawRange(),
  };
}

/** Self time of several slices by name. */
function names(info: RangeInfo, go: Go): HTMLElement {
  const shares = sortShares(info.shares, { key: "self_ns", descending: true });
  const unit = unitOf(Math.max(0, ...shares.map((share) => share.total_ns)));
  const { shown, rest } = head(info, shares, NAMES);
  const shorten = cutOfShares(shares);
  const rows = shown.map((share) => shareRow(share, unit, go.to, shorten));
  if (rest) rows.push(restRow(rest, info.to - info.from, unit, null));
  const heads = ["Name", "On", "Count", `Self ${unit.unit}`, `Total ${unit.unit}`, "% of it"];
  const helps = [HEADS.name, HEADS.on, HEADS.count, HEADS.self, HEADS.total, HEADS.percent];
  return h(
    "div.tx",
    { tabindex: "0", role: "group", "aria-label": "Self time of the selected slices, by name" },
    h(
      "table.t",
      h(
        "thead",
        h(
          "tr",
          ...heads.map((text, i) => headCell({ class: i > 1 ? "n" : undefined }, text, helps[i] as string, i === 0)),
        ),
      ),
      h("tbody", ...rows),
    ),
  );
}

export interface Sum {
  count: number;
  sum_ns: number;
  mean_ns: number;
  min: SliceRef;
  max: SliceRef;
}

/** Of at least one slice. */
export function sumOf(slices: readonly SliceRef[]): Sum {
  const [first] = slices as [SliceRef];
  let [min, max, sum_ns] = [first, first, 0];
  for (const slice of slices) {
    sum_ns += slice.duration_ns;
    if (slice.duration_ns < min.duration_ns) min = slice;
    if (slice.duration_ns > max.duration_ns) max = slice;
  }
  return { count: slices.length, sum_ns, mean_ns: sum_ns / slices.length, min, max };
}

/** `names` is the table by name, once it is known. */
export function manyView(slices: readonly SliceRef[], info: RangeInfo | null, go: Go, names: Child): HTMLElement[] {
  const { count: n, sum_ns, mean_ns, min, max } = sumOf(slices);
  const to = (slice: SliceRef): HTMLElement => link(length(slice.duration_ns), () => go.to(slice));
  const rows: [string, Child][] = [
    ["Sum", length(sum_ns)],
    ["Mean", length(mean_ns)],
    ["Shortest", to(min)],
    ["Longest", to(max)],
  ];
  if (info) rows.push(["From first to last", length(info.to - info.from)]);
  return [
    heading(`${count(n)} slices`, "Ctrl+click adds and removes, Esc clears"),
    h("dl.env", ...rows.flatMap(([term, part]) => [h("dt", term), h("dd", part)])),
    h("div", names),
  ];
}
