/**
 * The strip under a step chart: drag its handles, its body or the strip itself to select a range of steps.
 *
 * It is for the pointer alone and hidden from assistive technology: with the keyboard the chart above it does the same
 * (arrows move, Shift+arrows, Home and End extend the selection, Esc clears it).
 */

import { boxOf, clear, h, listen, pointIn, s, shareAt } from "../lib/dom.js";
import type { Selection, Store } from "../lib/store.js";
import type { Bar } from "./stepstats.js";

const HEIGHT = 26;
/** How near to a handle a press takes it, in px. */
const REACH = 7;

/** The first and last bar of the selection; null when it is all of them. */
export function selectedBars(bars: readonly Bar[], store: Store): [number, number] | null {
  const selection = store.get("selection");
  if (!selection || bars.length === 0) return null;
  const first = bars.findIndex((bar) => overlaps(bar, selection));
  return first < 0 ? null : [first, bars.findLastIndex((bar) => overlaps(bar, selection))];
}

/** Whether a bar has numbers of a selection. */
export function overlaps(bar: Bar | undefined, selection: Selection): boolean {
  return !!bar && bar.last >= selection.first && bar.first <= selection.last;
}

/** Selects the bars a…b in either order; all of them is no selection. */
export function selectBars(bars: readonly Bar[], store: Store, a: number, b: number): void {
  const last = bars.length - 1;
  const [from, to] = [Math.max(0, Math.min(a, b)), Math.min(last, Math.max(a, b))];
  const [first, end] = [bars[from], bars[to]];
  if (!first || !end) return;
  store.set("selection", from === 0 && to === last ? null : { first: first.first, last: end.last });
}

export interface Brush {
  element: HTMLElement;
  /** Draws the strip for other bars. */
  draw(bars: readonly Bar[], max: number): void;
  /** Moves the frame to the store's selection. */
  update(): void;
}

export function brush(store: Store): Brush {
  let bars: readonly Bar[] = [];
  const marks = s("g");
  const frame = s("rect.brush", { y: 0.5, height: HEIGHT - 1, rx: 2 });
  const hands = [0, 1].map(() => s("rect.hand", { y: 8, width: 5, height: 10, rx: 2 })) as [
    SVGRectElement,
    SVGRectElement,
  ];
  const svg = s("svg", { height: HEIGHT, "aria-hidden": "true" }, marks, frame, ...hands);
  const element = h("div.strip", svg);

  const range = (): [number, number] => selectedBars(bars, store) ?? [0, bars.length - 1];

  function update(): void {
    const [first, last] = range();
    const n = Math.max(1, bars.length);
    const [left, right] = [(first / n) * 100, ((last + 1) / n) * 100];
    frame.setAttribute("x", `${left}%`);
    frame.setAttribute("width", `${right - left}%`);
    hands[0].setAttribute("x", `${left}%`);
    hands[1].setAttribute("x", `${right}%`);
    for (const hand of hands) hand.setAttribute("transform", "translate(-2.5 0)");
  }

  let drag: { mode: "first" | "last" | "body" | "new"; anchor: number; from: [number, number] } | null = null;
  const barAt = (event: PointerEvent): number => {
    const index = Math.floor(shareAt(event, svg) * bars.length);
    return Math.max(0, Math.min(bars.length - 1, index));
  };
  listen(svg, "pointerdown", (event) => {
    if (event.button !== 0 || bars.length === 0) return;
    const box = boxOf(svg);
    const { x } = pointIn(event, svg);
    const [first, last] = range();
    const edges = [(first / bars.length) * box.width, ((last + 1) / bars.length) * box.width] as const;
    const bar = barAt(event);
    const near = edges.map((edge) => Math.abs(edge - x));
    const mode =
      Math.min(...near) <= REACH
        ? (near[0] as number) <= (near[1] as number)
          ? "first"
          : "last"
        : selectedBars(bars, store) && bar >= first && bar <= last
          ? "body"
          : "new";
    drag = { mode, anchor: bar, from: [first, last] };
    svg.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  listen(svg, "pointermove", (event) => {
    if (!drag) return;
    const bar = barAt(event);
    const [first, last] = drag.from;
    if (drag.mode === "first") selectBars(bars, store, bar, last);
    else if (drag.mode === "last") selectBars(bars, store, first, bar);
    else if (drag.mode === "new") {
      if (bar !== drag.anchor || store.get("selection")) selectBars(bars, store, drag.anchor, bar);
    } else {
      const by = Math.max(-first, Math.min(bars.length - 1 - last, bar - drag.anchor));
      selectBars(bars, store, first + by, last + by);
    }
  });
  const end = (): void => {
    drag = null;
  };
  listen(svg, "pointerup", end);
  listen(svg, "pointercancel", end);
  listen(svg, "dblclick", () => store.set("selection", null));

  return {
    element,
    update,
    draw(next, max) {
      bars = next;
      clear(marks);
      const n = Math.max(1, bars.length);
      bars.forEach((bar, i) => {
        const height = Math.max(1, Math.min(1, (bar.time_ms || 0) / max) * (HEIGHT - 2));
        marks.append(
          s("rect.m.other", {
            x: `${((i + 0.1) / n) * 100}%`,
            width: `${(0.8 / n) * 100}%`,
            y: (HEIGHT - height).toFixed(1),
            height: height.toFixed(1),
          }),
        );
      });
      update();
    },
  };
}
