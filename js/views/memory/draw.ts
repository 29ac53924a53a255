/** Draws the timeline: stack on heap, free above, peak and marker; and below it fragmentation. */

import { bytesText } from "../../lib/format.js";
import type { MemoryId } from "../../lib/payload.js";
import { type Axis, type Columns, columns } from "./series.js";

export interface PlotScene {
  id: MemoryId;
  from: number;
  to: number;
  left: Axis;
  /** Where fragmentation is drawn, up to `max` percent; null where the allocator does not state it. */
  strip: { top: number; height: number; max: number } | null;
  peak: number;
  hover: number;
  pinned: number;
  colours: Record<"stack" | "heap" | "free" | "line" | "grid" | "bg" | "fg2" | "ink" | "accent" | "font", string>;
}

export function draw(context: CanvasRenderingContext2D, width: number, height: number, scene: PlotScene): void {
  const { id, from, to, left, colours } = scene;
  const pixels = Math.max(1, Math.floor(width));
  const x = (time: number): number => ((time - from) / (to - from)) * width;
  const y = (bytes: number): number => height * (1 - Math.min(1, Math.max(0, bytes / left.max)));
  const line = (values: (i: number) => number): Columns => columns(id.time_ms, values, from, to, pixels);
  const heap = (i: number): number => id.heap_bytes[i] as number;
  const use = (i: number): number => id.in_use_bytes[i] as number;

  if (left.cut) {
    context.fillStyle = colours.free;
    context.fillRect(0, 0, width, height);
  } else
    fill(
      context,
      line((i) => use(i) + (id.free_bytes[i] || 0)),
      y,
      height,
      colours.free,
    );
  fill(context, line(use), y, height, colours.stack);
  fill(context, line(heap), y, height, colours.heap);

  context.globalAlpha = 0.45;
  context.fillStyle = colours.bg;
  for (const tick of left.ticks) {
    if (tick.value > 0 && tick.value < left.max) context.fillRect(0, Math.round(y(tick.value)), width, 1);
  }
  context.globalAlpha = 1;
  const { strip } = scene;
  if (strip) {
    const bottom = strip.top + strip.height;
    context.fillStyle = colours.grid;
    context.fillRect(0, bottom - 1, width, 1);
    const level = (value: number): number => bottom - strip.height * Math.min(1, Math.max(0, value / strip.max));
    fill(
      context,
      line((i) => 100 * (id.fragmentation[i] as number)),
      level,
      bottom,
      colours.line,
      [0.6, 0.3],
    );
  }

  context.font = `11px ${colours.font}`;
  context.textBaseline = "alphabetic";
  if (left.cut) {
    context.fillStyle = colours.fg2;
    context.fillText(left.cut, 8, 16);
  }
  if (scene.peak >= 0) drawPeak(context, scene, width, height, x, y);
  for (const index of [scene.pinned, scene.hover]) {
    if (index < 0) continue;
    const at = x(id.time_ms[index] as number);
    context.fillStyle = colours.accent;
    context.fillRect(Math.round(at), 0, 1, strip ? strip.top + strip.height : height);
    dot(context, at, y(use(index)), 3, colours.accent, colours.accent);
    if (index === scene.pinned) dot(context, at, y(use(index)), 4.5, colours.bg, colours.accent);
  }
}

/** Full up to the least value of a pixel, lighter up to the largest: a spike within a pixel is seen as one. */
function fill(
  context: CanvasRenderingContext2D,
  values: Columns,
  y: (value: number) => number,
  height: number,
  colour: string,
  [solid, spike]: readonly [number, number] = [1, 0.7],
): void {
  context.fillStyle = colour;
  for (let i = 0; i < values.max.length; i++) {
    const high = values.max[i] as number;
    if (!(high > 0)) continue;
    const low = y(values.min[i] as number);
    const top = y(high);
    context.globalAlpha = solid;
    context.fillRect(i, low, 1, height - low);
    if (top < low) {
      context.globalAlpha = spike;
      context.fillRect(i, top, 1, low - top);
    }
    context.globalAlpha = 1;
  }
}

function drawPeak(
  context: CanvasRenderingContext2D,
  scene: PlotScene,
  width: number,
  height: number,
  x: (time: number) => number,
  y: (bytes: number) => number,
): void {
  const { id, peak, colours } = scene;
  const most = id.in_use_bytes[peak] as number;
  const at = x(id.time_ms[peak] as number);
  const top = y(most);
  const text = `peak ${bytesText(Math.max(most, id.peak_bytes || 0))}`;
  context.font = `600 11px ${colours.font}`;
  const half = context.measureText(text).width / 2;
  const centre = Math.min(width - half - 4, Math.max(half + 4, at));
  // Below the note on the cut axis where the two would meet.
  const cut = scene.left.cut ? 8 + context.measureText(scene.left.cut).width : 0;
  const base = centre - half < cut + 8 ? 32 : 18;
  context.fillStyle = colours.ink;
  context.fillRect(Math.round(at), base + 6, 1, height - base - 6);
  dot(context, at, top, 3.5, colours.bg, colours.ink);
  // Over a full plot the words need their own ground.
  if (top < base + 4) {
    context.globalAlpha = 0.8;
    context.fillStyle = colours.bg;
    context.fillRect(centre - half - 4, base - 12, 2 * half + 8, 17);
    context.globalAlpha = 1;
  }
  context.fillStyle = colours.ink;
  context.fillText(text, centre - half, base);
}

function dot(context: CanvasRenderingContext2D, x: number, y: number, r: number, inner: string, outer: string): void {
  context.beginPath();
  context.arc(x, y, r, 0, 2 * Math.PI);
  context.fillStyle = inner;
  context.fill();
  context.strokeStyle = outer;
  context.lineWidth = 1.5;
  context.stroke();
}
