/** Draws the lanes in view. The cost is pixels × lanes in view, not events. */

import { ms, num } from "../../lib/format.js";
import { fillColour, textColour } from "./colours.js";
import { type Band, bandsIn, levelTop } from "./layout.js";
import type { Model } from "./model.js";
import type { Theme } from "./palette.js";
import { type Mark, marksOf, type Row } from "./rows.js";
import { rulerTicks } from "./window.js";

export const RULER = 20;
const SLICE = 16;
/** Least width of a slice that gets a label, and the room around its text. */
const LABEL = 18;
const PAD = 3;

export interface Scene {
  model: Model;
  theme: Theme;
  fills: Uint8Array;
  labels: string[];
  /** How a step is called in the other views; "" where that is not known. */
  stepLabel(lane: number, index: number): string;
  /** How far the lanes are scrolled. */
  scroll: number;
  /** Range that is being dragged, else that of the model. */
  range: { from: number; to: number } | null;
  fit: Fitter;
}

/** Cuts a text to a width; measures each text once. */
export type Fitter = (context: CanvasRenderingContext2D, text: string, room: number) => string;

export function fitter(): Fitter {
  const widths = new Map<string, number>();
  let font = "";
  const measure = (context: CanvasRenderingContext2D, text: string): number => {
    let width = widths.get(text);
    if (width === undefined) {
      width = context.measureText(text).width;
      widths.set(text, width);
    }
    return width;
  };
  return (context, text, room) => {
    if (context.font !== font || widths.size > 20_000) {
      widths.clear();
      font = context.font;
    }
    const width = measure(context, text);
    if (width <= room) return text;
    for (let letters = Math.floor((text.length * room) / width); letters > 1; letters--) {
      const cut = `${text.slice(0, letters)}…`;
      if (measure(context, cut) <= room) return cut;
    }
    return "";
  };
}

/** Lanes, ruler and range. */
export function drawLanes(context: CanvasRenderingContext2D, scene: Scene, width: number, height: number): void {
  const { model, theme, scroll } = scene;
  context.font = `11px ${theme.font}`;
  context.textBaseline = "middle";
  context.save();
  context.beginPath();
  context.rect(0, RULER, width, height - RULER);
  context.clip();
  context.translate(0, RULER - scroll);
  for (const band of bandsIn(model.bands, scroll, scroll + height - RULER)) drawBand(context, scene, band, width);
  drawSelected(context, scene, width);
  context.restore();
  drawRange(context, scene, width, height);
  drawRuler(context, scene, width);
}

function drawBand(context: CanvasRenderingContext2D, scene: Scene, band: Band, width: number): void {
  const { model, theme } = scene;
  context.fillStyle = theme.grid;
  context.fillRect(0, band.top + band.height - 1, width, 1);
  if (band.kind === "process") {
    context.fillStyle = theme.raise;
    context.fillRect(0, band.top, width, band.height - 1);
  }
  if (band.kind === "lane") {
    const rows = model.rows[band.lane] ?? [];
    for (let depth = 0; depth < band.depths; depth++) {
      const row = rows[depth];
      if (row) drawRow(context, scene, band.lane, row, band.top + levelTop(depth), width);
    }
  } else if (!band.open) {
    for (const lane of band.lanes) {
      const row = model.rows[lane]?.[0];
      if (row && model.trace.lanes[lane]?.kind !== "steps")
        drawRow(context, scene, lane, row, band.top + 1, width, false);
    }
  }
}

function drawRow(
  context: CanvasRenderingContext2D,
  scene: Scene,
  lane: number,
  row: Row,
  top: number,
  width: number,
  labels = true,
): void {
  const { model, theme, fills } = scene;
  const data = model.trace.lanes[lane];
  if (!data) return;
  const steps = data.kind === "steps";
  for (const mark of marksOf(row, model.span.from, model.span.to, width)) {
    const index = row.slice[mark.at] as number;
    const code = data.name_code[index] as number;
    const fill = steps ? 107 : (fills[code] as number);
    const [left, right] = edges(mark);
    context.globalAlpha = mark.density < 1 ? 0.35 + 0.65 * mark.density : 1;
    context.fillStyle = fillColour(theme, fill);
    context.fillRect(left, top, right - left, SLICE);
    context.globalAlpha = 1;
    if (model.hitsIn(lane, row, mark.first, mark.last)) {
      context.fillStyle = theme.ink;
      context.fillRect(left, top + SLICE - 2, right - left, 2);
    }
    if (labels && right - left >= LABEL) {
      const name = (steps && scene.stepLabel(lane, index)) || (scene.labels[code] ?? "");
      const text = steps ? `${name} · ${ms(((data.duration[index] as number) * model.trace.tick_ns) / 1e6)}` : name;
      const shown = scene.fit(context, text, right - left - 2 * PAD);
      if (shown) {
        context.fillStyle = textColour(theme, fill);
        context.fillText(shown, left + PAD, top + SLICE / 2 + 0.5);
      }
    }
  }
}

/** Whole pixels, with half a pixel of the background between wide neighbours. */
function edges(mark: Mark): [number, number] {
  const left = mark.width > 2 ? mark.x : Math.round(mark.x);
  return [left, mark.width > 2 ? mark.x + mark.width - 0.5 : left + Math.max(1, Math.round(mark.width))];
}

function drawSelected(context: CanvasRenderingContext2D, scene: Scene, width: number): void {
  const { model, theme } = scene;
  if (!model.selected) return;
  const place = model.placeOf(model.selected);
  if (!place) return;
  const { from, to } = model.spanOf(model.selected);
  const x = (time: number): number => ((time - model.span.from) / (model.span.to - model.span.from)) * width;
  const left = x(from);
  const right = Math.max(left + 3, x(to));
  if (right < -2 || left > width + 2) return;
  context.strokeStyle = theme.ink;
  context.lineWidth = 2;
  const clipped = Math.max(-4, left);
  context.strokeRect(clipped, place.top, Math.min(width + 4, right) - clipped, place.bottom - place.top);
}

function drawRange(context: CanvasRenderingContext2D, scene: Scene, width: number, height: number): void {
  const { model, theme, range } = scene;
  if (!range) return;
  const x = (time: number): number => ((time - model.span.from) / (model.span.to - model.span.from)) * width;
  const left = Math.max(-1, x(range.from));
  const right = Math.min(width + 1, x(range.to));
  if (right < left) return;
  context.fillStyle = theme.accent;
  context.globalAlpha = 0.08;
  context.fillRect(left, RULER, right - left, height - RULER);
  context.globalAlpha = 0.7;
  context.fillRect(Math.round(left), RULER, 1, height - RULER);
  context.fillRect(Math.round(right) - 1, RULER, 1, height - RULER);
  context.globalAlpha = 1;
}

function drawRuler(context: CanvasRenderingContext2D, scene: Scene, width: number): void {
  const { model, theme, range } = scene;
  const toMs = model.trace.tick_ns / 1e6;
  const [from, to] = [model.span.from * toMs, model.span.to * toMs];
  // One unit for the whole ruler, by what is shown of it.
  const [unit, size] = to - from >= IN_SECONDS ? (["s", 1000] as const) : (["ms", 1] as const);
  context.fillStyle = theme.bg;
  context.fillRect(0, 0, width, RULER);
  context.fillStyle = theme.line;
  context.fillRect(0, RULER - 1, width, 1);
  // The length of the range stands at its middle; a tick whose number would touch it, or the edge, keeps only its line, short below it.
  let label = { text: "", left: width, right: width };
  if (range) {
    const x = ((((range.from + range.to) / 2) * toMs - from) / (to - from)) * width;
    const text = `← ${lengthText((range.to - range.from) * toMs)} →`;
    context.font = `600 11px ${theme.font}`;
    const half = context.measureText(text).width / 2 + 6;
    const left = Math.min(width - 2 * half, Math.max(0, x - half));
    if (x >= 0 && x <= width) label = { text, left, right: left + 2 * half };
  }
  context.font = `11px ${theme.font}`;
  const { at, digits } = rulerTicks(from / size, to / size, width, 84);
  for (const tick of at) {
    const x = Math.round(((tick * size - from) / (to - from)) * width);
    const text = `${num(tick, digits)} ${unit}`;
    context.fillStyle = theme.line;
    const under = x >= label.left && x <= label.right;
    context.fillRect(x, under ? RULER - 4 : 2, 1, RULER);
    context.fillStyle = theme.fg2;
    const end = x + 4 + context.measureText(text).width;
    if (end <= label.left || (x >= label.right && end <= width)) context.fillText(text, x + 4, RULER / 2);
  }
  if (!label.text) return;
  context.font = `600 11px ${theme.font}`;
  context.fillStyle = theme.accent;
  context.fillText(label.text, label.left + 6, RULER / 2);
}

/** A profile this long (ms) is measured in seconds. */
export const IN_SECONDS = 10_000;

/** A length of time in the unit that suits it. */
export function lengthText(value_ms: number): string {
  if (value_ms >= IN_SECONDS) return `${num(value_ms / 1000, 2)} s`;
  if (value_ms >= 1000) return ms(value_ms, 0);
  return value_ms < 1 ? `${num(value_ms * 1000, value_ms < 0.001 ? 3 : 1)} µs` : ms(value_ms);
}
