/** What all plots share: axes, painting, the keys that move from point to point, and the card beside the one shown. */

import type { Canvas } from "./canvas.js";
import { boxOf, type Child, h, handled, listen, modified, shareAt } from "./dom.js";
import { byteUnit, num } from "./format.js";
import { onTheme } from "./palette.js";
import { type CardContent, hoverCard } from "./parts.js";
import { BYTES, byteAxis, type Columns, tickDigits } from "./scale.js";

/** A tick: where it sits, from 0 to 1 along its axis, and its text. */
export interface Tick {
  share: number;
  text: string;
}

/** Ticks of an axis from 0 to `max`, with as many decimals as tell them apart. */
export function ticksOf(values: readonly number[], max: number, text?: (value: number) => string): Tick[] {
  const digits = tickDigits(values);
  return values.map((value) => ({ share: value / max, text: text ? text(value) : num(value, digits) }));
}

/** The axis beside a plot of `height` px, from the bottom up. */
export function leftAxis(ticks: readonly Tick[], height: number): HTMLElement {
  return h("div.ax", { style: { height: `${height}px` } }, ...leftTicks(ticks, height));
}

/** The texts of a left axis alone, for an axis that stays while its ticks change. */
export function leftTicks(ticks: readonly Tick[], height: number): HTMLElement[] {
  return ticks.map(({ share, text }) => h("span", { style: { top: `${height * (1 - share)}px` } }, text));
}

/** The axis under a plot; `place` gives a CSS length for a tick's share, per cent of the plot unless given. */
export function bottomAxis(
  ticks: readonly Tick[],
  place: (share: number) => string = (share) => `${100 * share}%`,
): HTMLElement {
  return h("div.axp", ...bottomTicks(ticks, place));
}

/** The texts of a bottom axis alone, for an axis that stays while its ticks change. */
export function bottomTicks(
  ticks: readonly Tick[],
  place: (share: number) => string = (share) => `${100 * share}%`,
): HTMLElement[] {
  return ticks.map(({ share, text }) => h("span", { style: { "--x": place(share) } }, text));
}

/** The axis of a plot of up to `most` bytes: its unit, its end in bytes, its ticks in bytes, and the element beside the plot. */
export function bytesAxis(most: number, headroom: number, height: number) {
  const unit = byteUnit(most);
  const axis = byteAxis((headroom * most) / BYTES[unit]);
  return {
    unit,
    max: axis.max * BYTES[unit],
    ticks: axis.ticks.map((tick) => tick * BYTES[unit]),
    element: leftAxis(ticksOf(axis.ticks, axis.max), height),
  };
}

/** A plot with its unit above, the axis beside it and the one below; `status` speaks for the point shown. */
export function framed(
  kind: string,
  units: readonly string[],
  parts: { left: HTMLElement; stage: HTMLElement; bottom: HTMLElement; status: Child },
): HTMLElement {
  const unit = h("div.unit", ...units.map((text) => h("span", text)));
  return h("div", h(`div.chart.${kind}`, unit, parts.left, parts.stage, parts.bottom), parts.status);
}

/** Paints columns of one pixel up to `y(max)`; the part above `y(min)`, a spike within the pixel, in `spike`'s alpha. */
export function fillColumns(
  context: CanvasRenderingContext2D,
  values: Columns,
  y: (value: number) => number,
  bottom: number,
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
    context.fillRect(i, low, 1, bottom - low);
    if (top < low) {
      context.globalAlpha = spike;
      context.fillRect(i, top, 1, low - top);
    }
  }
  context.globalAlpha = 1;
}

/** Lines of one pixel across the plot at each height. */
export function gridLines(
  context: CanvasRenderingContext2D,
  heights: readonly number[],
  width: number,
  colour: string,
  alpha = 1,
): void {
  context.globalAlpha = alpha;
  context.fillStyle = colour;
  for (const y of heights) context.fillRect(0, Math.round(y), width, 1);
  context.globalAlpha = 1;
}

/** A dot with a rim. */
export function dot(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  radius: number,
  fill: string,
  rim: string,
): void {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = fill;
  context.fill();
  context.strokeStyle = rim;
  context.lineWidth = 1.5;
  context.stroke();
}

/** The row that a key of the arrows, Page up and down, Home and End leads to; undefined for other keys. */
export function rowByKey(event: KeyboardEvent, row: number, rows: number, far = 1): number | undefined {
  const page = Math.ceil(rows / 10);
  const targets: Record<string, number> = {
    ArrowLeft: row - far,
    ArrowRight: row + far,
    PageUp: row - page,
    PageDown: row + page,
    Home: 0,
    End: rows - 1,
  };
  const target = targets[event.key];
  return target === undefined ? undefined : Math.max(0, Math.min(rows - 1, target));
}

export interface PointedOptions {
  rows: number;
  /** The row at a part of the width, of which a pixel is the part `pixel`. */
  at(share: number, pixel: number): number;
  /** Where a row is, as a part of the width. */
  share(row: number): number;
  card(row: number): CardContent;
  /** Announces a row that keys came to. */
  say?(row: number): void;
  /** The row that keys begin at while none is shown, and whether an arrow moves on from it at once. */
  begin?(): { row: number; moves: boolean };
  /** Handles other keys; true if it was one of them. */
  key?(event: KeyboardEvent): boolean;
}

export interface Pointed {
  /** The row that is shown, or -1. */
  row: number;
  show(row: number): void;
}

/** Lets pointer and keys move over a plot from row to row, with a card beside the row that is shown. */
export function pointed(area: Canvas, stage: HTMLElement, signal: AbortSignal, options: PointedOptions): Pointed {
  const { rows } = options;
  const { element } = area;
  element.tabIndex = 0;
  onTheme(stage, signal, area.redraw);
  const card = hoverCard(stage, signal);
  const state: Pointed = {
    row: -1,
    show(row) {
      state.row = row;
      area.redraw();
      if (row < 0) {
        card.hide();
        return;
      }
      const box = boxOf(element);
      const x = box.left + options.share(row) * box.width;
      card.show({ left: x - 4, right: x + 4, top: box.top, bottom: box.bottom }, options.card(row));
    },
  };
  listen(element, "pointermove", (event) => {
    state.show(options.at(shareAt(event, element), 1 / Math.max(1, boxOf(element).width)));
  });
  listen(element, "pointerleave", () => state.show(-1));
  listen(element, "blur", () => state.show(-1));
  listen(element, "keydown", (event) => {
    if (!rows || modified(event)) return;
    const from = state.row < 0 && options.begin ? options.begin() : { row: state.row, moves: true };
    const far = !from.moves ? 0 : event.shiftKey ? 10 : 1;
    const target = rowByKey(event, from.row, rows, far);
    if (target !== undefined) {
      state.show(target);
      options.say?.(target);
    } else if (!options.key?.(event)) {
      if (event.key !== "Escape" || state.row < 0) return;
      state.show(-1);
    }
    handled(event);
  });
  return state;
}
