/**
 * Mouse, pen and fingers on the lanes: click selects, drag pans, Shift+drag marks a range, dragging an end of it moves that
 * end, Ctrl+wheel or two fingers zoom.
 */

import type { Canvas } from "../../lib/canvas.js";
import { boxOf, listen, pointIn, zoomOf } from "../../lib/dom.js";
import type { HoverCard } from "../../lib/parts.js";
import { onWheel } from "../../lib/wheel.js";
import { RULER } from "./draw.js";
import { type End, endNear, opposite } from "./ends.js";
import { levelTop } from "./layout.js";
import { snap } from "./measure.js";
import type { Model } from "./model.js";
import type { Under } from "./source.js";
import { rowUnder, sliceUnder } from "./under.js";
import type { Span } from "./window.js";

/** A press that moves less is a click. */
const CLICK = 3;
/** The pointer rests when it has been still for so long, ms. */
const RESTS = 60;
/** How near to an end of the range a mouse, and a finger, take hold of it, px. */
const GRIP = { mouse: 4, touch: 14 };

/** A pointer that is down. */
interface Held {
  x: number;
  y: number;
  /** Where the range begins that is marked; the other end of one that is adjusted. */
  time: number;
  span: Span;
  /** Whether dragging marks or adjusts a range; otherwise it pans. */
  range: boolean;
  /** An end of the range is held. */
  end: boolean;
  shift: boolean;
  add: boolean;
  moved: boolean;
}

export interface Pointer {
  /** The range being dragged. */
  dragged(): Span | null;
  /** Share of the width under the pointer, or the middle. */
  share(): number;
}

export interface PointerOptions {
  canvas: Canvas;
  model: Model;
  card: HoverCard;
  scroll(): number;
  scrollBy(pixels: number): void;
  /** What the card says about a slice. */
  describe(slice: Under): Parameters<HoverCard["show"]>[1];
}

export function pointer(options: PointerOptions): Pointer {
  const { canvas, model, card } = options;
  const { element } = canvas;
  let position: { x: number; y: number } | null = null;
  let held: Held | null = null;
  let dragged: Span | null = null;

  const place = (event: MouseEvent): { x: number; y: number } => pointIn(event, element);
  const timeAt = (x: number): number =>
    model.span.from + (x / Math.max(1, canvas.width())) * (model.span.to - model.span.from);

  /** The time under the pointer; near the edge of a slice that edge. */
  const edgeAt = (x: number, y: number): number => {
    const pixel = (model.span.to - model.span.from) / Math.max(1, canvas.width());
    return snap(timeAt(x), pixel, { source: model.source, own: rowUnder(model, y, options.scroll()) });
  };
  /** The end of the range that the pointer would take hold of. */
  const endAt = (event: PointerEvent): End | null => {
    const pixel = (model.span.to - model.span.from) / Math.max(1, canvas.width());
    const reach = event.pointerType === "touch" ? GRIP.touch : GRIP.mouse;
    return endNear(model.range, timeAt(place(event).x), reach * pixel);
  };

  /** The name of a mark that is too small to have come with one: asked for once the pointer rests on it. */
  let named = { event: -1, name: "" };
  let asking: ReturnType<typeof setTimeout> | undefined;
  const name = (id: number, event: PointerEvent): void => {
    clearTimeout(asking);
    asking = setTimeout(async () => {
      const info = await model.source.slice(id).catch(() => null);
      if (!info) return;
      named = { event: id, name: info.slice.name };
      if (position && place(event).x === position.x && place(event).y === position.y && !held) hover(event);
    }, RESTS);
  };

  function hover(event: PointerEvent): void {
    position = place(event);
    const slice = sliceUnder(model, position.x, position.y, canvas.width(), options.scroll());
    if (slice && !slice.name) {
      if (named.event === slice.event) slice.name = named.name;
      else name(slice.event, event);
    }
    const spot = slice && model.placeOf(slice);
    const cursor = slice ? "pointer" : "default";
    element.style.cursor = endAt(event) ? "ew-resize" : cursor;
    if (!slice || !spot) {
      card.hide();
      return;
    }
    const box = boxOf(element);
    const top = box.top + RULER + (spot.pinned ? 0 : model.pinnedHeight - options.scroll());
    const { from, to } = model.spanOf(slice);
    const scale = canvas.width() / (model.span.to - model.span.from);
    // The pointer, not the whole of a long slice, is what the card keeps clear of.
    const left = Math.max((from - model.span.from) * scale, position.x - 12);
    const right = Math.min((to - model.span.from) * scale, position.x + 12);
    card.show(
      {
        left: box.left + left,
        right: box.left + Math.max(left, right),
        top: top + spot.top,
        bottom: top + spot.top + levelTop(1),
      },
      options.describe(slice),
    );
  }

  /** Fingers on the lanes, by pointer; two of them zoom and pan together. */
  const fingers = new Map<number, number>();
  const pinch = (event: PointerEvent): boolean => {
    if (event.pointerType !== "touch" || !fingers.has(event.pointerId)) return false;
    const before = [...fingers.values()];
    fingers.set(event.pointerId, place(event).x);
    if (fingers.size !== 2) return false;
    const after = [...fingers.values()];
    const [a, b] = before as [number, number];
    const [c, d] = after as [number, number];
    const width = Math.max(1, canvas.width());
    // The time between the fingers stays between them.
    model.panBy(((a + b) / 2 - (c + d) / 2) / width);
    if (Math.abs(a - b) > 8 && Math.abs(c - d) > 8)
      model.zoomBy(Math.abs(c - d) / Math.abs(a - b), (c + d) / 2 / width);
    return true;
  };
  const lift = (event: PointerEvent): void => {
    fingers.delete(event.pointerId);
  };

  function click({ x, y, end, shift, add }: Held): void {
    // Whoever takes hold of an end and lets go keeps the range.
    if (end) return;
    const slice = sliceUnder(model, x, y, canvas.width(), options.scroll());
    const first = model.selected;
    // Shift+click goes on from the selected slice: from the start of the earlier to the end of the later.
    if (shift && first && slice) {
      model.setRange(hull(model.spanOf(first), model.spanOf(slice)));
      return;
    }
    if (!slice && !add && model.range) model.setRange(null);
    // The ruler selects nothing, and leaves what is selected.
    if (y >= RULER) void model.pick(slice, add);
  }

  listen(element, "pointerdown", (event) => {
    if (event.button !== 0) return;
    if (event.pointerType === "touch") fingers.set(event.pointerId, place(event).x);
    if (fingers.size > 1) {
      held = null;
      dragged = null;
      card.hide();
      element.setPointerCapture(event.pointerId);
      return;
    }
    const { x, y } = place(event);
    const end = event.shiftKey ? null : endAt(event);
    let time = event.shiftKey ? edgeAt(x, y) : timeAt(x);
    if (end && model.range) time = model.range[opposite(end)];
    held = {
      x,
      y,
      time,
      span: { ...model.span },
      range: event.shiftKey || end !== null,
      end: end !== null,
      shift: event.shiftKey,
      add: event.ctrlKey || event.metaKey,
      moved: false,
    };
    element.setPointerCapture(event.pointerId);
    // Shift+click would select text in the notebook; focus is set by hand then.
    if (event.shiftKey) {
      event.preventDefault();
      element.focus({ preventScroll: true });
    }
  });
  listen(element, "pointermove", (event) => {
    if (pinch(event)) return;
    if (!held) return hover(event);
    const { x, y } = place(event);
    if (!held.moved && Math.hypot(x - held.x, y - held.y) < CLICK) return;
    held.moved = true;
    card.hide();
    if (held.range) {
      const edge = edgeAt(x, y);
      dragged = { from: Math.min(held.time, edge), to: Math.max(held.time, edge) };
      canvas.redraw();
      return;
    }
    element.style.cursor = "grabbing";
    const by = ((held.x - x) / Math.max(1, canvas.width())) * (held.span.to - held.span.from);
    model.setSpan({ from: held.span.from + by, to: held.span.to + by });
    // A finger scrolls by itself (touch-action: pan-y); a mouse drags the lanes along.
    if (event.pointerType === "mouse") options.scrollBy(-event.movementY / zoomOf(element));
  });
  listen(element, "pointerup", (event) => {
    lift(event);
    const release = held;
    held = null;
    if (!release) return;
    element.style.cursor = "";
    if (dragged) {
      const range = dragged;
      dragged = null;
      model.setRange(range);
    } else if (!release.moved) click(release);
  });
  listen(element, "pointercancel", (event) => {
    lift(event);
    held = null;
    dragged = null;
    canvas.redraw();
  });
  const drop = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || !held?.range) return;
    // The range stays as it was before the drag, and so does what is selected.
    held = null;
    dragged = null;
    canvas.redraw();
    event.stopImmediatePropagation();
    event.preventDefault();
  };
  listen(element, "keydown", drop, { capture: true });
  listen(element, "pointerleave", () => {
    position = null;
    card.hide();
  });
  listen(element, "dblclick", () => model.fit());
  onWheel(element, (event) => {
    // A plain wheel scrolls the page: it is never taken.
    const zooms = event.ctrlKey || event.metaKey;
    if (!zooms && !event.shiftKey) return;
    event.preventDefault();
    card.hide();
    const delta = (event.deltaY || event.deltaX) * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1);
    // A pinch on a trackpad comes as small steps of a wheel with Ctrl.
    const pace = event.ctrlKey && Math.abs(delta) < 40 && event.deltaMode === 0 ? 90 : 300;
    if (zooms) model.zoomBy(Math.exp(-delta / pace), share());
    else model.panBy(delta / Math.max(1, canvas.width()));
  });
  const share = (): number => (position ? position.x / Math.max(1, canvas.width()) : 0.5);
  return { dragged: () => dragged, share };
}

const hull = (a: Span, b: Span): Span => ({ from: Math.min(a.from, b.from), to: Math.max(a.to, b.to) });
