/** The overview strip: the whole profile, with a window that can be dragged. */

import { type Canvas, canvas } from "../../lib/canvas.js";
import { listen, shareAt } from "../../lib/dom.js";
import { categoryColour, type Theme } from "../../lib/palette.js";
import { CATEGORIES, type Trace } from "../../lib/payload.js";
import type { Model } from "./model.js";
import { repeated } from "./saved/lanes.js";
import type { Strip } from "./source.js";

const HEIGHT = 32;
/** How near to an edge of the window a pointer takes hold of it. */
const GRIP = 5;

export function overviewStrip(parent: HTMLElement, model: Model, theme: () => Theme, signal: AbortSignal): Canvas {
  /** The profile's own part, which stays as it is while the window moves. */
  const back = document.createElement("canvas");
  let painted: unknown[] = [];
  function profile(width: number, ratio: number): HTMLCanvasElement {
    const colours = theme();
    const state = [model.source.strip, colours, width, ratio];
    if (state.every((part, i) => part === painted[i])) return back;
    painted = state;
    const pixels = Math.floor(width);
    const { above, below, below_is } = model.source.strip;
    back.width = Math.round(width * ratio);
    back.height = Math.round(HEIGHT * ratio);
    const context = back.getContext("2d");
    context?.scale(ratio, ratio);
    const strip = (values: Uint8Array, fill: string, top: number): void => {
      if (!context) return;
      context.fillStyle = fill;
      for (let x = 0; x < pixels; x++) {
        const busy = meanOf(values, x / pixels, (x + 1) / pixels);
        if (busy <= 0) continue;
        context.globalAlpha = 0.25 + 0.75 * busy;
        context.fillRect(x, top, 1, 10);
      }
    };
    strip(above, categoryColour(colours, "input"), 4);
    strip(below, categoryColour(colours, below_is === "device" ? "device_compute" : "host_compute"), 16);
    return back;
  }

  function draw(context: CanvasRenderingContext2D, width: number): void {
    const pixels = Math.floor(width);
    const colours = theme();
    context.drawImage(profile(width, context.canvas.width / width), 0, 0, width, HEIGHT);
    const x = (time: number): number => (time / Math.max(1, model.end)) * width;
    const [left, right] = [x(model.span.from), x(model.span.to)];
    context.fillStyle = colours.bg;
    context.globalAlpha = 0.62;
    context.fillRect(0, 0, left, HEIGHT);
    context.fillRect(right, 0, width - right, HEIGHT);
    context.globalAlpha = 1;
    context.fillStyle = colours.ink;
    const hits = model.found?.strip;
    for (let x = 0; hits && x < pixels; x++)
      if (meanOf(hits, x / pixels, (x + 1) / pixels)) context.fillRect(x, 28, 1, 4);
    if (model.range) {
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.25;
      context.fillRect(x(model.range.from), 0, Math.max(1, x(model.range.to) - x(model.range.from)), HEIGHT);
      context.globalAlpha = 1;
    }
    context.strokeStyle = colours.accent;
    context.lineWidth = 1;
    context.beginPath();
    context.roundRect(left + 0.5, 0.5, Math.max(3, right - left - 1), HEIGHT - 1, 2);
    context.stroke();
  }

  const below = model.source.strip.below_is === "device" ? "the device" : "how many host threads were busy";
  const strip = canvas(parent, {
    signal,
    height: HEIGHT,
    label: `The whole profile: input above, ${below} below, and the window shown in the lanes.`,
    draw,
  });
  strip.element.classList.add("strip");
  drag(strip, model);
  return strip;
}

/** Mean of the parts that touch from…to (0…1 of all of them), 0…1. */
function meanOf(values: Uint8Array, from: number, to: number): number {
  const first = Math.floor(from * values.length);
  const last = Math.max(first + 1, Math.ceil(to * values.length));
  let sum = 0;
  for (let i = first; i < last; i++) sum += values[i] ?? 0;
  return sum / (last - first) / 255;
}

/** Edges and body of the window can be dragged; beside it a drag opens a new one, a click moves it there. */
function drag(strip: Canvas, model: Model): void {
  const { element } = strip;
  const timeAt = (event: MouseEvent): number => shareAt(event, element) * model.end;
  const part = (event: MouseEvent): "from" | "to" | "body" | "new" => {
    const grip = (GRIP / Math.max(1, strip.width())) * model.end;
    const time = timeAt(event);
    if (Math.abs(time - model.span.from) < grip) return "from";
    if (Math.abs(time - model.span.to) < grip) return "to";
    // The whole profile cannot be moved: there a drag opens a window.
    const complete = model.span.to - model.span.from >= model.end;
    return !complete && time > model.span.from && time < model.span.to ? "body" : "new";
  };
  let held: { part: string; time: number; from: number; to: number; moved: boolean } | null = null;
  listen(element, "pointerdown", (event) => {
    if (event.button !== 0) return;
    held = { part: part(event), time: timeAt(event), ...model.span, moved: false };
    element.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  listen(element, "pointermove", (event) => {
    const time = timeAt(event);
    if (!held) {
      const share = part(event);
      element.style.cursor = share === "body" ? "grab" : share === "new" ? "crosshair" : "ew-resize";
      return;
    }
    const by = time - held.time;
    if (Math.abs(by) * strip.width() > 2 * model.end) held.moved = true;
    if (!held.moved) return;
    if (held.part === "body") model.setSpan({ from: held.from + by, to: held.to + by });
    else {
      const fixed = held.part === "from" ? held.to : held.part === "to" ? held.from : held.time;
      const free = Math.max(0, Math.min(model.end, time));
      model.setSpan({ from: Math.min(fixed, free), to: Math.max(fixed, free) });
    }
  });
  const end = (): void => {
    if (held && !held.moved && held.part === "new") {
      const half = (held.to - held.from) / 2;
      model.setSpan({ from: held.time - half, to: held.time + half });
    }
    held = null;
  };
  listen(element, "pointerup", end);
  listen(element, "pointercancel", () => {
    held = null;
  });
  listen(element, "dblclick", () => model.fitAll());
}

/**
 * Busy share (0…1) of each of `pixels` equal parts of the profile, over the slices that `counts`.
 * `lanes` is how many lanes have to be busy at once to be wholly busy.
 */
export function strip(
  trace: Trace,
  pixels: number,
  counts: (lane: number, index: number) => boolean,
  lanes = 1,
): Float32Array {
  const busy = new Float32Array(Math.max(0, pixels));
  const scale = pixels / Math.max(1, trace.end);
  // Whole pixels inside a slice, as steps up and down; summed at the end.
  const change = new Float64Array(pixels + 2);
  trace.lanes.forEach((lane, l) => {
    for (let i = 0; i < lane.start.length; i++) {
      if (!counts(l, i)) continue;
      const from = (lane.start[i] as number) * scale;
      const to = Math.min(pixels, from + (lane.duration[i] as number) * scale);
      const first = Math.min(pixels - 1, Math.floor(from));
      const last = Math.floor(to);
      if (first >= last) {
        busy[first] = (busy[first] as number) + to - from;
        continue;
      }
      busy[first] = (busy[first] as number) + first + 1 - from;
      if (last < pixels) busy[last] = (busy[last] as number) + to - last;
      change[first + 1] = (change[first + 1] as number) + 1;
      change[last] = (change[last] as number) - 1;
    }
  });
  let total = 0;
  for (let x = 0; x < pixels; x++) {
    total += change[x] as number;
    busy[x] = Math.min(1, ((busy[x] as number) + total) / lanes);
  }
  return busy;
}

/** Shares as bytes; what is busy at all is at least 1. */
const bytes = (shares: Float32Array): Uint8Array => Uint8Array.from(shares, (share) => Math.ceil(share * 255));

const codeOf = (key: string): number => CATEGORIES.findIndex((category) => category.key === key) + 1;

/** Input above; below the device, or where none was recorded, how many of the host's threads were busy. */
export function overview(trace: Trace, pixels: number): Strip {
  const input = codeOf("input");
  const again = repeated(trace.lanes);
  const threads = trace.lanes.filter((lane, l) => lane.kind === "host" && !again.has(l)).length;
  const category = (l: number, i: number): number => trace.category[trace.lanes[l]?.name_code[i] as number] ?? 0;
  const kind = (l: number): string => trace.lanes[l]?.kind ?? "";
  const device = trace.lanes.some((lane) => lane.kind === "device" && lane.start.length > 0);
  return {
    above: bytes(
      strip(trace, pixels, (l, i) => (kind(l) === "host" || kind(l) === "device") && category(l, i) === input),
    ),
    below: device
      ? bytes(strip(trace, pixels, (l, i) => kind(l) === "device" && !again.has(l) && trace.lanes[l]?.depth[i] === 0))
      : bytes(
          strip(
            trace,
            pixels,
            (l, i) => kind(l) === "host" && !again.has(l) && trace.lanes[l]?.depth[i] === 0,
            Math.max(1, threads),
          ),
        ),
    below_is: device ? "device" : "host",
  };
}
