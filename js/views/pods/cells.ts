/** The cells of the heat map as numbers and as a picture. No drawing. */

import { known, num, signed } from "../../lib/format.js";
import type { Heat, HeatLayer, Pods } from "../../lib/payload.js";
import { exactly } from "./model.js";

/** How far from the median of the step, or ms. */
export type Scale = "over" | "ms";
export type RowOrder = "slow" | "name";

const NOT_RECORDED = 65535;
/** Shades of a picture, from `-1` to `1`; the last code is a cell that was not recorded. */
export const SHADES = 254;
export const BLANK = 255;

export const columnsIn = (heat: Heat): number => heat.first.length;

/** ms of a cell, to about a thousandth of the step; NaN where it was not recorded. */
export function msAt(heat: Heat, layer: HeatLayer, row: number, column: number): number {
  const code = layer.codes[row * heat.first.length + column] as number;
  return code === NOT_RECORDED ? Number.NaN : code * (heat.unit_ms[column] as number);
}

/** How far a cell is from the median of its column, in percent of the median step time. */
export function overAt(heat: Heat, layer: HeatLayer, row: number, column: number): number {
  const over = msAt(heat, layer, row, column) - (layer.median_ms[column] as number);
  return (100 * over) / (heat.median_ms[column] as number);
}

/** The number of the step that a cell shows. */
export const stepAt = (heat: Heat, row: number, column: number): number => {
  const [first, last] = [heat.first[column] as number, heat.last[column] as number];
  const after = heat.at?.[row * heat.first.length + column] ?? 0;
  return Math.min(last, first + after);
};

/** Decimals that cells of this unit have. */
export const digitsOf = (unit_ms: number): number =>
  unit_ms > 0 ? Math.max(0, Math.min(2, Math.floor(-Math.log10(unit_ms)) + 1)) : 0;

/** A time as text, and with its sign: as it was measured, or about, to as many digits as are known. */
export interface Told {
  ms: number;
  about: boolean;
  digits: number;
}

/** What a cell shows, as it was measured where the report has its bar. */
export function toldAt(pods: Pods, heat: Heat, layer: HeatLayer, row: number, column: number): Told {
  const index = pods.step.indexOf(stepAt(heat, row, column));
  const exact = index < 0 ? Number.NaN : exactly(pods, index, heat.rows[row] as number, layer.key);
  if (!Number.isNaN(exact)) return { ms: exact, about: false, digits: 2 };
  return { ms: msAt(heat, layer, row, column), about: true, digits: digitsOf(heat.unit_ms[column] as number) };
}

export const toldText = ({ ms, about, digits }: Told): string => `${about && known(ms) ? "≈ " : ""}${num(ms, digits)}`;

export const overText = ({ ms, about, digits }: Told, median: number): string =>
  `${about && known(ms) ? "≈ " : ""}${signed(ms - median, digits)}`;

/** The column of a step number; -1 where no column has it. */
export const columnOf = (heat: Heat, step: number): number =>
  heat.first.findIndex((first, k) => step >= first && step <= (heat.last[k] as number));

/** Rows from top to bottom. Names are in natural order as they come. */
export function ordered(layer: HeatLayer, order: RowOrder): Uint32Array {
  const rows = Uint32Array.from(layer.mean_percent, (_, i) => i);
  if (order === "name") return rows;
  const key = (row: number): number => {
    const value = layer.mean_percent[row] as number;
    return Number.isNaN(value) ? Number.NEGATIVE_INFINITY : value;
  };
  return rows.sort((a, b) => key(b) - key(a) || a - b);
}

/** Where the layer's value lies in its colours: -1…1 about the median, or 0…1 of ms; NaN where it was not recorded. */
export function shadeAt(heat: Heat, layer: HeatLayer, scale: Scale, row: number, column: number): number {
  if (scale === "over") return overAt(heat, layer, row, column) / layer.limit_percent;
  const range = layer.high_ms - layer.low_ms;
  return range > 0 ? (msAt(heat, layer, row, column) - layer.low_ms) / range : 0;
}

/** The part of `of` things that the i-th of `n` boxes has: from, to (without the last). */
export const share = (i: number, n: number, of: number): [from: number, to: number] => {
  const from = Math.floor((i * of) / n);
  return [from, Math.max(from + 1, Math.floor(((i + 1) * of) / n))];
};

/**
 * A picture of width × height boxes, no more than there are cells. Of cells that share a box the one farthest from the median shows,
 * or of ms the longest.
 */
export function picture(
  heat: Heat,
  layer: HeatLayer,
  rows: Uint32Array,
  scale: Scale,
  width: number,
  height: number,
): Uint8Array {
  const columns = heat.first.length;
  const pixels = new Uint8Array(width * height).fill(BLANK);
  const farthest = new Float32Array(width * height).fill(-1);
  const box = Uint32Array.from({ length: columns }, (_, column) => boxOfCell(column, width, columns));
  // One look at each cell: what is the same in a column is worked out once.
  const [factor, less] = [new Float64Array(columns), new Float64Array(columns)];
  const range = layer.high_ms - layer.low_ms;
  for (let column = 0; column < columns; column++) {
    const per = scale === "over" ? 100 / ((heat.median_ms[column] as number) * layer.limit_percent) : 1 / range;
    const from = scale === "over" ? (layer.median_ms[column] as number) : layer.low_ms;
    factor[column] = (heat.unit_ms[column] as number) * per;
    less[column] = from * per;
    if (scale === "ms" && !(range > 0)) {
      factor[column] = 0;
      less[column] = 0;
    }
  }
  for (let y = 0; y < rows.length; y++) {
    const line = boxOfCell(y, height, rows.length) * width;
    const from = (rows[y] as number) * columns;
    for (let column = 0; column < columns; column++) {
      const code = layer.codes[from + column] as number;
      if (code === NOT_RECORDED) continue;
      const shade = code * (factor[column] as number) - (less[column] as number);
      const far = scale === "over" ? Math.abs(shade) : Math.max(0, shade);
      const pixel = line + (box[column] as number);
      if (!(far > (farthest[pixel] as number))) continue;
      farthest[pixel] = far;
      pixels[pixel] = Math.round(((Math.max(-1, Math.min(1, shade)) + 1) / 2) * SHADES);
    }
  }
  return pixels;
}

/** The box of a thing, where `n` boxes share `of` things as `share` says. */
const boxOfCell = (i: number, n: number, of: number): number => Math.min(n - 1, Math.ceil(((i + 1) * n) / of) - 1);

/** Of the cells that share a box, the one that it shows. */
export function shownIn(
  heat: Heat,
  layer: HeatLayer,
  scale: Scale,
  rows: Uint32Array,
  [top, bottom]: [number, number],
  [left, right]: [number, number],
): { y: number; column: number } {
  let best = { y: top, column: left };
  let most = Number.NEGATIVE_INFINITY;
  for (let y = top; y < bottom; y++) {
    for (let column = left; column < right; column++) {
      const shade = shadeAt(heat, layer, scale, rows[y] as number, column);
      const far = scale === "over" ? Math.abs(shade) : shade;
      if (far > most) {
        most = far;
        best = { y, column };
      }
    }
  }
  return best;
}
