/** Draws the workers of a step as stacked bars. */

import { num } from "../../lib/format.js";
import type { Theme } from "../../lib/palette.js";
import type { PodBar } from "./model.js";

export const ROW = 22;
const BAR = 14;
/** Between the names and the bars, and at the right for the number. */
const GAP = 8;
const VALUE = 58;

/** Where the bars begin and how wide the longest is. */
export function field(width: number): { left: number; length: number } {
  const left = Math.round(Math.min(180, 0.26 * width));
  return { left, length: Math.max(20, width - left - VALUE) };
}

export interface BarScene {
  bars: readonly PodBar[];
  names: readonly string[];
  /** First row that shows, in px from the top of all. */
  scroll: number;
  max: number;
  median: number;
  slowest: number;
  hover: number;
  /** Index into `names`, or -1. */
  marked: number;
  theme: Theme;
}

/** The tail of a name that fits: it tells hosts apart. */
export function tailOf(context: CanvasRenderingContext2D, name: string, room: number): string {
  if (context.measureText(name).width <= room) return name;
  let [low, high] = [0, name.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`…${name.slice(-middle)}`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low ? `…${name.slice(-low)}` : "…";
}

export function drawBars(context: CanvasRenderingContext2D, width: number, height: number, scene: BarScene): void {
  const { bars, theme, max } = scene;
  const { left, length } = field(width);
  const from = Math.max(0, Math.floor(scene.scroll / ROW));
  const to = Math.min(bars.length, Math.ceil((scene.scroll + height) / ROW));
  context.textBaseline = "middle";
  for (let i = from; i < to; i++) {
    const bar = bars[i] as PodBar;
    const top = i * ROW - scene.scroll;
    const middle = top + ROW / 2;
    const ground = i === scene.hover ? theme.raise : bar.worker === scene.marked ? theme.grid : theme.bg;
    context.fillStyle = ground;
    context.fillRect(0, top, width, ROW);
    medianLine(context, scene, left + (length * scene.median) / max, top);
    const hot = bar.worker === scene.slowest;
    context.font = `${hot ? "600 " : ""}12px ${theme.font}`;
    context.fillStyle = hot ? theme.ink : theme.fg;
    context.textAlign = "right";
    context.fillText(tailOf(context, scene.names[bar.worker] ?? "", left - GAP - 2), left - GAP, middle);
    const end = left + length * Math.min(1, bar.time_ms / max);
    drawStack(context, bar, left, length / max, end, middle - BAR / 2, theme);
    if (bar.time_ms > max) {
      context.fillStyle = theme.bg;
      context.fillRect(end - 9, middle - BAR / 2, 3, BAR);
    }
    const text = num(bar.time_ms, 2);
    context.textAlign = "left";
    context.fillStyle = ground;
    context.fillRect(end + 4, middle - BAR / 2, context.measureText(text).width + 4, BAR);
    context.fillStyle = hot ? theme.ink : theme.fg2;
    context.fillText(text, end + 6, middle);
  }
  context.textAlign = "left";
}

/** The piece of the dashed line in one row, so that bars and numbers lie over it. */
function medianLine(context: CanvasRenderingContext2D, scene: BarScene, x: number, top: number): void {
  if (!(scene.median <= scene.max)) return;
  context.globalAlpha = 0.65;
  context.fillStyle = scene.theme.ink;
  for (let y = 0; y < ROW; y += 6) context.fillRect(Math.round(x), top + y, 1, 3);
  context.globalAlpha = 1;
}

function drawStack(
  context: CanvasRenderingContext2D,
  bar: PodBar,
  left: number,
  scale: number,
  end: number,
  top: number,
  theme: Theme,
): void {
  const known = bar.parts_ms.some((part) => part > 0);
  let base = 0;
  // Without categories the bar is neutral.
  (known ? bar.parts_ms : [bar.time_ms]).forEach((part, c) => {
    if (!(part > 0)) return;
    const [x1, x2] = [left + base * scale, Math.min(end, left + (base + part) * scale)];
    base += part;
    // 1 px of background between segments; thin ones keep all of theirs.
    const room = x2 - x1 > 2 ? x2 - x1 - 1 : x2 - x1;
    if (room <= 0) return;
    context.fillStyle = (known ? theme.categories[c] : theme.categories.at(-1)) ?? "";
    context.fillRect(x1, top, room, BAR);
  });
}
