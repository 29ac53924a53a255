import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

const css = readFileSync(new URL("../lib/base.css", import.meta.url), "utf8");

type Triple = [number, number, number];

/** Colours of categories in the rule with this selector. */
function colours(selector: string): Map<string, Triple> {
  // The dark ones are those of screens: they stand inside a rule.
  const start = css.search(new RegExp(`\\n *${selector.replace(/[.[\]]/g, "\\$&")} \\{`));
  const rule = css.slice(start).split("}")[0] as string;
  const found = [...rule.matchAll(/--c-(\w+):#([0-9a-f]{3,6})/gi)].map(([, name, hex]): [string, Triple] => {
    const six = hex?.length === 3 ? hex.replace(/./g, "$&$&") : (hex as string);
    return [name as string, [0, 2, 4].map((i) => Number.parseInt(six.slice(i, i + 2), 16) / 255) as Triple];
  });
  return new Map(found);
}

const times = (matrix: number[][], [x, y, z]: Triple): Triple =>
  matrix.map(([a = 0, b = 0, c = 0]) => a * x + b * y + c * z) as Triple;

// Machado, Oliveira and Fernandes (2009), severity 1, in linear RGB.
const VISION = {
  normal: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protan: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deutan: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritan: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};
const LMS = [
  [0.4122214708, 0.5363325363, 0.0514459929],
  [0.2119034982, 0.6806995451, 0.1073969566],
  [0.0883024619, 0.2817188376, 0.6299787005],
];
const LAB = [
  [0.210454255, 0.793617785, -0.0040720468],
  [1.9779984951, -2.428592205, 0.4505937099],
  [0.0259040371, 0.7827717662, -0.808675766],
];

const seen = (colour: Triple, vision: number[][]): Triple => {
  const linear = colour.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)) as Triple;
  const shown = times(vision, linear).map((v) => Math.min(Math.max(v, 0), 1)) as Triple;
  return times(LAB, times(LMS, shown).map(Math.cbrt) as Triple);
};

/** Smallest OKLab distance between any two, times 100, over all kinds of vision. */
function apart(palette: Map<string, Triple>): number {
  let least = Number.POSITIVE_INFINITY;
  for (const vision of Object.values(VISION)) {
    const points = [...palette.values()].map((colour) => seen(colour, vision));
    points.forEach((one, i) => {
      for (const other of points.slice(i + 1))
        least = Math.min(least, 100 * Math.hypot(...one.map((v, k) => v - (other[k] as number))));
    });
  }
  return least;
}

it.each([
  [".nbp", 7.3],
  [".nbp[data-theme=dark]", 9.8],
  [".nbp[data-palette=safe]", 11],
  [".nbp[data-palette=safe][data-theme=dark]", 11],
])("the nine colours of %s can be told apart in every kind of vision", (selector, least) => {
  const palette = colours(selector);
  expect(palette.size).toBe(9);
  expect(apart(palette)).toBeGreaterThan(least);
});
