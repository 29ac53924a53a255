/**
 * Draws the lanes in view: slices as pixels (paint.ts), then texts, selection, range and ruler on top.
 * The cost is pixels × lanes in view, not events.
 */

import { textColour } from "../../lib/colours.js";
import { lengthText, num, timeUnit } from "../../lib/format.js";
import type { Theme } from "../../lib/palette.js";
import { inksOf } from "./inks.js";
import { type Band, bandsIn, levelTop, ROW } from "./layout.js";
import type { Model } from "./model.js";
import type { Painter } from "./paint.js";
import type { Rows } from "./source.js";
import { counterMost } from "./units.js";
import { rulerTicks } from "./window.js";

export const RULER = 20;
const SLICE = 16;
/** Least width of a slice that gets a label, and the room around its text. */
export const LABEL = 18;
const PAD = 3;
/** Lanes drawn over each other in a closed band: more are not told apart, and each has to be asked for. */
export const MOST_TOGETHER = 24;

export interface Scene {
  model: Model;
  painter: Painter;
  theme: Theme;
  /** How far the lanes are scrolled. */
  scroll: number;
  /** Range that is being dragged, else that of the model. */
  range: { from: number; to: number } | null;
  fit: Fitter;
  /** Least width of a slice with a text: more while moving where texts are slow. */
  leastText: number;
}

/** Cuts a text to a width, "" where not even two letters fit. */
export type Fitter = (context: CanvasRenderingContext2D, text: string, room: number) => string;

/**
 * Sums up the widths of letters, each measured once: to measure a text takes as long as to draw it, and while the window
 * zooms every text is cut anew in every frame. Kerning makes texts a little narrower than their sum, never wider by much.
 */
export function fitter(): Fitter {
  const widths = new Map<string, number>();
  let font = "";
  const widthOf = (context: CanvasRenderingContext2D, letter: string): number => {
    const known = widths.get(letter);
    if (known !== undefined) return known;
    const { width } = context.measureText(letter);
    widths.set(letter, width);
    return width;
  };
  return (context, text, room) => {
    if (context.font !== font) {
      widths.clear();
      font = context.font;
    }
    const rest = room - widthOf(context, "…");
    let sum = 0;
    let fits = 0;
    let units = 0;
    for (const letter of text) {
      sum += widthOf(context, letter);
      units += letter.length;
      if (sum <= rest) fits = units;
      if (sum > room) return fits > 1 ? `${text.slice(0, fits)}…` : "";
    }
    return text;
  };
}

/** Lanes, ruler and range. */
export function drawLanes(context: CanvasRenderingContext2D, scene: Scene, width: number, height: number): void {
  const { model, painter, theme, scroll } = scene;
  const inks = inksOf(theme);
  const ratio = context.canvas.width / width;
  const pixel = (y: number): number => Math.round(y * ratio);
  const ruler = pixel(RULER);
  painter.begin(context.canvas.width, context.canvas.height - ruler, inks, model.span.from, model.span.to);
  const view: View = { scene, width, ratio };
  const fixed = model.pinnedHeight;
  const seen = bandsIn(model.bands, scroll, scroll + height - RULER - fixed);
  for (const band of seen) paintBand(view, band, fixed - scroll, fixed);
  // What stays at the top lies over what scrolls below it.
  if (fixed) painter.fill(0, pixel(fixed), inks.bg);
  const below = painter.texts.length;
  for (const band of model.pinnedBands) paintBand(view, band, 0, 0);
  if (fixed) painter.fill(pixel(fixed) - pixel(2), pixel(fixed), inks.line);
  const margin = (height - RULER) / 2;
  const near = bandsIn(model.bands, scroll - margin, scroll + height + margin);
  model.source.want(
    [...rowsIn(model, model.pinnedBands, 0, height), ...rowsIn(model, seen, scroll, scroll + height - RULER - fixed)],
    rowsIn(model, near, scroll - margin, scroll + height + margin),
    model.span.from,
    model.span.to,
    painter.width,
  );
  if (painter.image) context.putImageData(painter.image, 0, ruler);
  context.font = `11px ${theme.font}`;
  context.textBaseline = "middle";
  drawTexts(context, view, 0, below, RULER + fixed, height);
  drawTexts(context, view, below, painter.texts.length, RULER, RULER + fixed);
  drawSelected(context, scene, width, height);
  drawRange(context, scene, width, height);
  drawRuler(context, scene, width);
}

/** The levels of lanes that bands show between two heights. */
function rowsIn(model: Model, bands: readonly Band[], top: number, bottom: number): Rows[] {
  return bands.flatMap((band) => {
    if (band.kind !== "lane")
      return band.open ? [] : together(model, band.lanes).map((lane) => ({ lane, depth: 0, depth_to: 0 }));
    const depth = Math.max(0, Math.floor((top - band.top) / (ROW - 1)));
    const depth_to = Math.min(band.depths - 1, Math.floor((bottom - band.top) / (ROW - 1)));
    return depth <= depth_to ? [{ lane: band.lane, depth, depth_to }] : [];
  });
}

interface View {
  scene: Scene;
  /** CSS pixels; `ratio` pixels of the screen in each. */
  width: number;
  ratio: number;
}

/** What was chosen of a band's lanes: there may be thousands, and a frame asks twice. */
const chosen = new WeakMap<readonly number[], number[]>();

/** The lanes of a closed band that are drawn in it: those with the most events. */
function together(model: Model, lanes: readonly number[]): number[] {
  const known = chosen.get(lanes);
  if (known) return known;
  const drawn = lanes.filter((id) => {
    const kind = model.lanes.get(id)?.kind;
    return kind === "host" || kind === "device";
  });
  const events = (id: number): number => model.lanes.get(id)?.events ?? 0;
  const most =
    drawn.length > MOST_TOGETHER ? drawn.sort((a, b) => events(b) - events(a)).slice(0, MOST_TOGETHER) : drawn;
  chosen.set(lanes, most);
  return most;
}

/** A band whose coordinates are `offset` from the top of the picture; nothing of it is above `least`. */
function paintBand(view: View, band: Band, offset: number, least: number): void {
  const { scene, ratio } = view;
  const { model, painter, theme } = scene;
  const inks = inksOf(theme);
  const pixel = (y: number): number => Math.round((y + offset) * ratio);
  const [top, bottom] = [band.top, band.top + band.height];
  const line = Math.max(1, Math.round(ratio));
  const edge = Math.round(least * ratio);
  const back = band.kind === "process" ? inks.raise : inks.bg;
  if (band.kind === "process") painter.fill(Math.max(edge, pixel(top)), pixel(bottom), inks.raise);
  painter.fill(Math.max(edge, pixel(bottom) - line), pixel(bottom), inks.grid);
  if (band.kind === "lane") {
    const lane = model.lanes.get(band.lane);
    if (lane?.kind === "counter") {
      const series = model.source.counter(band.lane, model.span.from, model.span.to, painter.width);
      const colours = inks.counters[lane.unit ?? "count"];
      if (series)
        painter.counter(series, model.end, pixel(top + 2), pixel(bottom) - line, counterMost(lane, series), colours);
      return;
    }
    const first = Math.max(0, Math.floor((least - offset - top) / (ROW - 1)) - 1);
    for (let depth = first; depth < band.depths; depth++) {
      const y = top + levelTop(depth);
      if ((y + offset) * ratio > painter.height) break;
      paintRow(view, [band.lane], depth, pixel(y), pixel(y + SLICE), back, LABEL);
    }
  } else if (!band.open) {
    paintRow(view, together(model, band.lanes), 0, pixel(top + 1), pixel(top + 1 + SLICE), back, 0);
  }
}

function paintRow(
  view: View,
  lanes: readonly number[],
  depth: number,
  top: number,
  bottom: number,
  back: number,
  label: number,
): void {
  const { scene, ratio } = view;
  const { model, painter } = scene;
  if (bottom <= 0 || top >= painter.height) return;
  const { from, to } = model.span;
  painter.beginRow(lanes[0] ?? 0, top, label ? scene.leastText * ratio : Number.POSITIVE_INFINITY);
  for (const lane of lanes) model.source.visit(lane, depth, from, to, painter.width, painter);
  painter.endRow(bottom, back, Math.round(2 * ratio));
}

/** The texts first…last of the picture, between two heights. */
function drawTexts(
  context: CanvasRenderingContext2D,
  view: View,
  first: number,
  last: number,
  top: number,
  bottom: number,
): void {
  const { scene, ratio } = view;
  const { model, painter, theme } = scene;
  const { texts } = painter;
  if (first === last || bottom <= top) return;
  context.save();
  context.beginPath();
  context.rect(0, top, view.width, bottom - top);
  context.clip();
  let ink = -1;
  for (let i = first; i < last; i++) {
    const lane = texts.lane[i] as number;
    const fill = texts.fill[i] as number;
    const left = (texts.left[i] as number) / ratio;
    const room = (texts.right[i] as number) / ratio - left - 2 * PAD;
    const name = model.source.label(texts.name[i] as number, lane, texts.event[i] as number);
    if (!name) continue;
    const steps = model.lanes.get(lane)?.kind === "steps";
    const shown = steps
      ? stepText(name, (texts.duration[i] as number) / 1e6, (text) => scene.fit(context, text, room))
      : scene.fit(context, name, room);
    if (!shown) continue;
    if (fill !== ink) context.fillStyle = textColour(theme, fill);
    ink = fill;
    context.fillText(shown, left + PAD, (texts.top[i] as number) / ratio + RULER + SLICE / 2 + 0.5);
  }
  context.restore();
}

/** A step by name and length; without the length, or by its number alone, where there is no room: a cut number would be wrong. */
function stepText(name: string, length_ms: number, shorten: (text: string) => string): string {
  const number = /\d+$/.exec(name)?.[0] ?? "";
  const texts = [`${name} · ${lengthText(length_ms)}`, name, number];
  return texts.find((text) => text && shorten(text) === text) ?? (number ? "" : shorten(name));
}

function drawSelected(context: CanvasRenderingContext2D, scene: Scene, width: number, height: number): void {
  const { model, theme, scroll } = scene;
  const x = (time: number): number => ((time - model.span.from) / (model.span.to - model.span.from)) * width;
  context.strokeStyle = theme.ink;
  model.selection.forEach((slice, i) => {
    const place = model.placeOf(slice);
    if (!place) return;
    const { from, to } = model.spanOf(slice);
    const left = x(from);
    const right = Math.max(left + 3, x(to));
    if (right < -2 || left > width + 2) return;
    const offset = RULER + (place.pinned ? 0 : model.pinnedHeight - scroll);
    const clipped = Math.max(-4, left);
    context.save();
    context.beginPath();
    const top = place.pinned ? RULER : RULER + model.pinnedHeight;
    context.rect(0, top, width, height - top);
    context.clip();
    context.lineWidth = i === model.selection.length - 1 ? 2 : 1;
    context.strokeRect(clipped, place.top + offset, Math.min(width + 4, right) - clipped, place.bottom - place.top);
    context.restore();
  });
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
  const toMs = 1e-6;
  const [from, to] = [model.span.from * toMs, model.span.to * toMs];
  // One unit for the whole ruler, by what is shown of it.
  const { unit, size } = timeUnit(to - from);
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
  let { at: positions, digits } = rulerTicks(from / size, to / size, width, 84);
  // Deep in a long profile numbers are long: fewer of them, then.
  const widest = context.measureText(`${num(to / size, digits)} ${unit}`).width + 16;
  if (widest > 84) ({ at: positions, digits } = rulerTicks(from / size, to / size, width, widest));
  for (const tick of positions) {
    const x = Math.round(((tick * size - from) / (to - from)) * width);
    const text = `${num(tick, digits)} ${unit}`;
    context.fillStyle = theme.line;
    const under = x >= label.left && x <= label.right;
    const top = under ? RULER - 4 : 2;
    context.fillRect(x, top, 1, RULER - top);
    context.fillStyle = theme.fg2;
    const end = x + 4 + context.measureText(text).width;
    if (end <= label.left || (x >= label.right && end <= width)) context.fillText(text, x + 4, RULER / 2);
  }
  if (!label.text) return;
  context.font = `600 11px ${theme.font}`;
  context.fillStyle = theme.accent;
  context.fillText(label.text, label.left + 6, RULER / 2);
}
