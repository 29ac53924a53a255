/** The two ends of the marked range: what of the lanes takes hold of one, and grips in the ruler that the arrow keys move. */

import { h, handled, modified } from "../../lib/dom.js";
import { moment } from "./info/words.js";
import type { Model } from "./model.js";
import { type Span, show } from "./window.js";

export type End = keyof Span;

const ENDS: readonly End[] = ["from", "to"];
const LABELS: Record<End, string> = { from: "Start of the range", to: "End of the range" };
/** How many px an arrow key moves an end, and with Shift. */
const PACE = { near: 1, far: 10 };

export const opposite = (end: End): End => (end === "from" ? "to" : "from");

/** The end of a range within `reach` of a time, the nearer of both; null where neither is. All in ns. */
export function endNear(range: Span | null, time: number, reach: number): End | null {
  if (!range) return null;
  const away = (end: End): number => Math.abs(range[end] - time);
  const nearer = away("from") <= away("to") ? "from" : "to";
  // Of a range shorter than two pointers are wide, each side takes its end.
  if (away("from") <= reach && away("to") <= reach) return time < (range.from + range.to) / 2 ? "from" : "to";
  return away(nearer) <= reach ? nearer : null;
}

/** The range with one end at another time: inside of the profile, and at least `least` ns from the other end. */
export function withEnd(range: Span, end: End, time: number, least: number, last: number): Span {
  if (end === "from") return { from: Math.max(0, Math.min(time, range.to - least)), to: range.to };
  return { from: range.from, to: Math.min(last, Math.max(time, range.from + least)) };
}

export interface Ends {
  element: HTMLElement;
  /** The range while keys move an end of it. */
  moved(): Span | null;
  /** Puts the grips where the ends of a range are drawn. */
  place(range: Span | null, width: number): void;
}

export interface EndsOptions {
  model: Model;
  redraw(): void;
  /** A key that moves no end. */
  otherKey(event: KeyboardEvent): void;
  /** The range was cleared, and its grips with it: focus goes where it came from. */
  onCleared(): void;
}

export function rangeEnds({ model, redraw, otherKey, onCleared }: EndsOptions): Ends {
  let moved: Span | null = null;
  let pixels = 1;

  /** The numbers of the range are counted once the key is let go. */
  const settle = (): void => {
    if (!moved) return;
    const range = moved;
    moved = null;
    model.setRange(range);
  };
  const target = (end: End, range: Span, event: KeyboardEvent): number | null => {
    const pixel = (model.span.to - model.span.from) / Math.max(1, pixels);
    const by = (event.shiftKey ? PACE.far : PACE.near) * pixel;
    switch (event.key) {
      case "ArrowLeft":
      case "ArrowDown":
        return range[end] - by;
      case "ArrowRight":
      case "ArrowUp":
        return range[end] + by;
      case "Home":
        return model.span.from;
      case "End":
        return model.span.to;
      default:
        return null;
    }
  };
  const press = (end: End, event: KeyboardEvent): void => {
    const range = moved ?? model.range;
    if (!range || modified(event)) return;
    const time = target(end, range, event);
    if (time !== null) {
      moved = withEnd(range, end, time, model.shortest, model.end);
      model.setSpan(show(model.span, { from: moved[end], to: moved[end] }, model.end));
      redraw();
      handled(event);
    } else if (event.key === "Escape") {
      moved = null;
      model.setRange(null);
      onCleared();
      handled(event);
    } else otherKey(event);
  };
  const grip = (end: End): HTMLElement =>
    h("i", {
      class: end,
      role: "slider",
      tabindex: "0",
      "aria-label": LABELS[end],
      "aria-orientation": "horizontal",
      on: { keydown: (event: KeyboardEvent) => press(end, event), keyup: settle, blur: settle },
    });
  const grips: Record<End, HTMLElement> = { from: grip("from"), to: grip("to") };
  const row = h("div", grips.from, grips.to);
  const element = h("div.ends", row);
  row.hidden = true;

  return {
    element,
    moved: () => moved,
    place(range, width) {
      pixels = width;
      row.hidden = range === null;
      if (!range) return;
      const { from, to } = model.span;
      for (const end of ENDS) {
        const x = ((range[end] - from) / (to - from)) * width;
        // Of one that is beyond the picture, the grip stays at its edge, within reach of the keys.
        grips[end].style.transform = `translateX(${Math.max(0, Math.min(width, x))}px)`;
        grips[end].classList.toggle("off", x < 0 || x > width);
        const most = { from: range.to - model.shortest, to: model.end }[end];
        const least = { from: 0, to: range.from + model.shortest }[end];
        grips[end].setAttribute("aria-valuemin", String(least / 1e6));
        grips[end].setAttribute("aria-valuemax", String(most / 1e6));
        grips[end].setAttribute("aria-valuenow", String(range[end] / 1e6));
        grips[end].setAttribute("aria-valuetext", moment(range[end]));
      }
    },
  };
}
