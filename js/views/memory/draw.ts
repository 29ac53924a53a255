/** Draws the timeline: stack on heap, free above, peak and marker; and below it fragmentation. */

import { dot, fillColumns, gridLines } from "../../lib/chart.js";
import { bytesText } from "../../lib/format.js";
import type { MemoryId } from "../../lib/payload.js";
import { type Columns, columns } from "../../lib/scale.js";
import type { Axis } from "./series.js";

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
  /** Parts of the heap from the bottom, each up to its bytes; none where roles are unknown. */
  parts: { upTo: Float64Array; colour: string }[];
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
    fillColumns(
      context,
      line((i) => use(i) + (id.free_bytes[i] || 0)),
      y,
      height,
      colours.free,
    );
  fillColumns(context, line(use), y, height, colours.stack);
  fillColumns(context, line(heap), y, height, colours.heap);
  for (const { upTo, colour } of [...scene.parts].reverse())
    fillColumns(
      context,
      line((i) => upTo[i] as number),
      y,
      height,
      colour,
    );

  const inner = left.ticks.filter((tick) => tick.value > 0 && tick.value < left.max);
  gridLines(
    context,
    inner.map((tick) => y(tick.value)),
    width,
    colours.bg,
    0.45,
  );
  const { strip } = scene;
  if (strip) {
    const bottom = strip.top + strip.height;
    context.fillStyle = colours.grid;
    context.fillRect(0, bottom - 1, width, 1);
    const level = (value: number): number => bottom - strip.height * Math.min(1, Math.max(0, value / strip.max));
    fillColumns(
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
    const x0 = x(id.time_ms[index] as number);
    context.fillStyle = colours.accent;
    context.fillRect(Math.round(x0), 0, 1, strip ? strip.top + strip.height : height);
    dot(context, x0, y(use(index)), 3, colours.accent, colours.accent);
    if (index === scene.pinned) dot(context, x0, y(use(index)), 4.5, colours.bg, colours.accent);
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
  const centreX = x(id.time_ms[peak] as number);
  const top = y(most);
  const text = `peak ${bytesText(Math.max(most, id.peak_bytes || 0))}`;
  context.font = `600 11px ${colours.font}`;
  const half = context.measureText(text).width / 2;
  const centre = Math.min(width - half - 4, Math.max(half + 4, centreX));
  // Below the note on the cut axis where the two would meet.
  const noteWidth = scene.left.cut ? 8 + context.measureText(scene.left.cut).width : 0;
  const base = centre - half < noteWidth + 8 ? 32 : 18;
  context.fillStyle = colours.ink;
  context.fillRect(Math.round(centreX), base + 6, 1, height - base - 6);
  dot(context, centreX, top, 3.5, colours.bg, colours.ink);
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
