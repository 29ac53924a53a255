/** Colours as the words of an image: what a fill looks like at each degree of busyness. */

import { fillColour } from "../../lib/colours.js";
import { categoryColour, type Theme } from "../../lib/palette.js";
import type { LaneHead } from "./source.js";

/** Degrees of busyness that are told apart. */
export const DEGREES = 32;

export interface Inks {
  theme: Theme;
  bg: number;
  raise: number;
  grid: number;
  line: number;
  ink: number;
  accent: number;
  /** Of a counter by what it counts, where it is filled and where it only reaches now and then. */
  counters: Record<NonNullable<LaneHead["unit"]>, readonly [full: number, pale: number]>;
  /** At fill × DEGREES + degree. */
  fills: Uint32Array;
  /** Events that are not here, by degree. */
  rest: Uint32Array;
}

/** The word of each colour, as a canvas paints it. */
function words(colours: readonly string[]): Uint32Array {
  const element = document.createElement("canvas");
  element.width = colours.length;
  element.height = 1;
  const context = element.getContext("2d", { willReadFrequently: true });
  if (!context) return new Uint32Array(colours.length);
  colours.forEach((colour, x) => {
    context.fillStyle = colour;
    context.fillRect(x, 0, 1, 1);
  });
  return new Uint32Array(context.getImageData(0, 0, colours.length, 1).data.buffer);
}

/** `share` (0…1) of one colour over another. */
export function mix(over: number, under: number, share: number): number {
  let word = 0;
  for (let shift = 0; shift < 24; shift += 8) {
    const [a, b] = [(over >>> shift) & 255, (under >>> shift) & 255];
    word |= Math.round(b + (a - b) * share) << shift;
  }
  return (word | 0xff000000) >>> 0;
}

let known: Inks | null = null;

/** The inks of a theme; asking again for the same theme costs nothing. */
export function inksOf(theme: Theme): Inks {
  if (known?.theme === theme) return known;
  const codes = [...theme.categories.map((_, i) => i + 1), ...theme.tints.map((_, i) => 100 + i)];
  const neutral = [
    theme.bg,
    theme.raise,
    theme.grid,
    theme.line,
    theme.ink,
    theme.accent,
    theme.fg2,
    theme.bytes,
    categoryColour(theme, "device_compute"),
  ];
  const all = words([...neutral, ...codes.map((code) => fillColour(theme, code))]);
  const [bg = 0, raise = 0, grid = 0, line = 0, ink = 0, accent = 0, fg2 = 0, bytes = 0, device = 0] = all;
  const fills = new Uint32Array(256 * DEGREES);
  for (const [i, code] of codes.entries()) {
    for (let degree = 0; degree < DEGREES; degree++) {
      const share = 0.35 + (0.65 * degree) / (DEGREES - 1);
      fills[code * DEGREES + degree] = mix(all[neutral.length + i] as number, bg, share);
    }
  }
  const rest = Uint32Array.from({ length: DEGREES }, (_, d) => mix(fg2, bg, 0.1 + (0.24 * d) / (DEGREES - 1)));
  // Lines that are mixed with transparency would let through what the image had before.
  const opaque = (word: number): number => mix(word, bg, (word >>> 24) / 255);
  const pair = (word: number): readonly [number, number] => [opaque(word), mix(word, bg, (0.45 * (word >>> 24)) / 255)];
  known = {
    theme,
    bg,
    raise: opaque(raise),
    grid: opaque(grid),
    line: opaque(line),
    ink: opaque(ink),
    accent: opaque(accent),
    counters: { bytes: pair(bytes), percent: pair(device), count: pair(fg2) },
    fills,
    rest,
  };
  return known;
}
