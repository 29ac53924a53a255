/** A plot that pointer and keys move over from row to row, with a card beside the row that is shown; and the axis of bytes beside it. */

import type { Canvas } from "../lib/canvas.js";
import { boxOf, h, handled, listen, modified } from "../lib/dom.js";
import { byteUnit, num } from "../lib/format.js";
import { type CardContent, hoverCard } from "../lib/parts.js";
import { tickDigits } from "../lib/scale.js";
import { BYTES, byteAxis } from "./memory/series.js";
import { onTheme } from "./trace/palette.js";

/** The axis of a plot of up to `most` bytes: its unit, its end in bytes, its ticks in that unit, and the ticks as text beside the plot. */
export function bytesBeside(most: number, room: number, height: number) {
  const unit = byteUnit(most);
  const axis = byteAxis((room * most) / BYTES[unit]);
  const element = h(
    "div.ax",
    { style: { height: `${height}px` } },
    ...axis.ticks.map((tick) =>
      h("span", { style: { top: `${height * (1 - tick / axis.max)}px` } }, num(tick, tickDigits(axis.ticks))),
    ),
  );
  return { unit, axis, top: axis.max * BYTES[unit], element };
}

export interface PointedOptions {
  rows: number;
  /** The row at a part of the width, of which a pixel is the part `pixel`. */
  at(share: number, pixel: number): number;
  /** Where a row is, as a part of the width. */
  share(row: number): number;
  card(row: number): CardContent;
  /** What is said of a row that keys came to. */
  say?(row: number): void;
  /** The row that keys begin at while none is shown, and whether an arrow moves on from it at once. */
  begin?(): { row: number; moves: boolean };
  /** Other keys; whether it was one of them. */
  key?(event: KeyboardEvent): boolean;
}

export interface Pointed {
  /** The row that is shown, or -1. */
  row: number;
  show(row: number): void;
}

export function pointed(area: Canvas, stage: HTMLElement, signal: AbortSignal, options: PointedOptions): Pointed {
  const { rows } = options;
  const { element } = area;
  element.tabIndex = 0;
  onTheme(stage, signal, area.redraw);
  const card = hoverCard(stage, signal);
  const out: Pointed = {
    row: -1,
    show(row) {
      out.row = row;
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
    const box = boxOf(element);
    const pixel = 1 / Math.max(1, box.width);
    out.show(options.at((event.clientX - box.left) * pixel, pixel));
  });
  listen(element, "pointerleave", () => out.show(-1));
  listen(element, "blur", () => out.show(-1));
  listen(element, "keydown", (event) => {
    if (!rows || modified(event)) return;
    const from = out.row < 0 && options.begin ? options.begin() : { row: out.row, moves: true };
    const far = !from.moves ? 0 : event.shiftKey ? 10 : 1;
    const page = Math.ceil(rows / 10);
    const moves: Record<string, number> = {
      ArrowLeft: from.row - far,
      ArrowRight: from.row + far,
      PageUp: from.row - page,
      PageDown: from.row + page,
      Home: 0,
      End: rows - 1,
    };
    const target = moves[event.key];
    if (target !== undefined) {
      const row = Math.max(0, Math.min(rows - 1, target));
      out.show(row);
      options.say?.(row);
    } else if (!options.key?.(event)) {
      if (event.key !== "Escape" || out.row < 0) return;
      out.show(-1);
    }
    handled(event);
  });
  return out;
}
