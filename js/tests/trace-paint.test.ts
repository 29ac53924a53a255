import { beforeAll, describe, expect, it } from "vitest";
import type { Theme } from "../lib/palette.js";
import { DEGREES, type Inks, mix } from "../views/trace/inks.js";
import { crowdOf, longTime } from "../views/trace/lone.js";
import { Momentum } from "../views/trace/motion.js";
import { Pace } from "../views/trace/pace.js";
import { Painter } from "../views/trace/paint.js";

const BG = 0xffffffff;
const FULL = 0xff0000ff;

beforeAll(() => {
  // What a browser has and Node has not.
  globalThis.ImageData ??= class {
    readonly data: Uint8ClampedArray;
    constructor(
      readonly width: number,
      readonly height: number,
    ) {
      this.data = new Uint8ClampedArray(4 * width * height);
    }
  } as unknown as typeof ImageData;
});

function inks(): Inks {
  const fills = new Uint32Array(256 * DEGREES);
  for (let code = 0; code < 256; code++)
    for (let d = 0; d < DEGREES; d++) fills[code * DEGREES + d] = mix(FULL, BG, (d + 1) / DEGREES);
  const rest = new Uint32Array(DEGREES).fill(0xffdddddd);
  const plain = { bg: BG, raise: 1, grid: 2, line: 3, ink: 4, accent: 5 };
  const counters = { bytes: [6, 7], percent: [8, 9], count: [10, 11] } as const;
  return { theme: {} as Theme, ...plain, counters, fills, rest };
}

type Mark = [start: number, end: number, count?: number, busy?: number, hit?: boolean];

/** A row of 20 px over 0…20 ns (or another window) as text: # a slice, + several or short, . nothing, ~ not here. */
function row(marks: Mark[], { from = 0, to = 20, rest = [] as [number, number][], width = 20 } = {}): string {
  const painter = new Painter();
  painter.begin(width, 4, inks(), from, to);
  painter.beginRow(0, 0, Number.POSITIVE_INFINITY);
  painter.clip(from, to);
  for (const [a, b] of rest) painter.rest(a, b, 100);
  marks.forEach(([start, end, count = 1, busy = 255, hit = false], i) => {
    painter.mark(start, end, i, 0, 100, count, busy, hit);
  });
  painter.endRow(3, BG, 1);
  const words = new Uint32Array((painter.image as ImageData).data.buffer);
  const text = (y: number): string =>
    [...words.subarray(y * width, (y + 1) * width)]
      .map((word) => (word === BG ? "." : word === FULL ? "#" : word === 4 ? "^" : word === 0xffdddddd ? "~" : "+"))
      .join("");
  // The lines of a row are the same, but for the foot, which shows hits.
  expect(text(0)).toBe(text(1));
  return marks.some((mark) => mark[4]) ? text(2) : text(0);
}

describe("a row of pixels", () => {
  it("has slices with a gap behind each that has room for one", () => {
    expect(
      row([
        [2, 8],
        [8, 10],
        [10, 20],
      ]),
    ).toBe("..#####.###########.");
  });
  it("keeps a lone short slice as one pixel, beside a long one and between two", () => {
    expect(row([[5.2, 5.3]])).toBe(".....#..............");
    expect(
      row([
        [0, 10],
        [10.1, 10.2],
        [10.4, 20],
      ]),
    ).toBe("#########.#.#######.");
    // Even where it has no pixel of its own.
    expect(
      row([
        [0, 10.4],
        [10.4, 10.5],
        [10.5, 20],
      ]),
    ).toMatch(/^#{8,9}\.#\.#+\.$/);
  });
  it("shows several short ones by how busy they keep the place", () => {
    const text = row([[5, 5.9, 30, 128]]);
    expect(text).toBe(".....+..............");
  });
  it("has what is not here beneath all", () => {
    expect(row([[5.2, 5.3]], { rest: [[3, 9]] })).toBe("...~~#~~~...........");
  });
  it("marks hits at the foot", () => {
    expect(
      row([
        [2, 6, 1, 255, true],
        [10, 12],
      ]),
    ).toBe("..^^^^....##........");
  });
  it("clips what reaches out of the window", () => {
    expect(row([[-1e12, 1e12]], { from: 5, to: 10 })).toBe("#".repeat(20));
  });
  it("is exact a day from the origin", () => {
    const day = 86_400e9;
    expect(row([[day + 4, day + 8]], { from: day, to: day + 20 })).toBe("....###.............");
  });
});

describe("texts", () => {
  it("have all of a slice for room, and come once, though it is painted in pieces", () => {
    const painter = new Painter();
    painter.begin(100, 4, inks(), 0, 100);
    painter.beginRow(7, 0, 18);
    for (const [a, b] of [
      [0, 30],
      [30, 100],
    ] as const) {
      painter.clip(a, b);
      painter.mark(10, 90, 5, 3, 100, 1, 255, false);
    }
    painter.mark(91, 99, 6, 3, 100, 1, 255, false);
    const { texts } = painter;
    expect([texts.length, texts.left[0], texts.right[0], texts.lane[0], texts.duration[0]]).toEqual([1, 10, 90, 7, 80]);
  });
});

describe("a counter", () => {
  const draw = (time: number[], value: number[], end: number, mean = value.map(() => Number.NaN)): string[] => {
    const painter = new Painter();
    painter.begin(8, 4, inks(), 0, 8);
    const values = Float64Array.from(value);
    const means = Float64Array.from(mean);
    const series = { time: Float64Array.from(time), low: values, high: values, last: values, mean: means };
    painter.counter(series, end, 0, 4, 3, [6, 7]);
    const words = new Uint32Array((painter.image as ImageData).data.buffer);
    return [0, 1, 2, 3].map((y) =>
      [...words.subarray(y * 8, y * 8 + 8)].map((w) => (w === 6 ? "#" : w === 7 ? "+" : ".")).join(""),
    );
  };
  it("holds each value until the next, and is nothing before the first and after the end", () => {
    expect(draw([1, 4], [1, 3], 5.5)).toEqual(["........", "....##..", "....##..", ".#####.."]);
  });
  it("reaches from the lowest to the highest value of a pixel", () => {
    expect(draw([1, 2.2, 2.6], [1, 3, 1], 4)).toEqual(["........", "..+.....", "..+.....", ".####..."]);
  });
  it("that is a share of time is filled up to its mean, and its maximum is a line", () => {
    const shares = [0, 3, 0, 3, 0];
    // A third of each of two pixels.
    expect(draw([0, 2, 2.34, 3, 3.34], shares, 5, shares)).toEqual(["........", "..++....", "........", "..##...."]);
  });
});

describe("moving", () => {
  it("starts gently, gets faster up to a limit, and glides out when the key is let go", () => {
    const momentum = new Momentum();
    expect(momentum.down("x", false)).toBe(false);
    expect(momentum.down("d", false)).toBe(true);
    const steps = Array.from({ length: 60 }, () => momentum.pass(1 / 60).pan);
    expect(steps[1]).toBeGreaterThan(steps[0] as number);
    expect(steps[59]).toBeCloseTo(steps[40] as number);
    momentum.up("d");
    const after = momentum.pass(1 / 60).pan;
    expect(after).toBeGreaterThan(0);
    expect(after).toBeLessThan(steps[59] as number);
    for (let i = 0; i < 120; i++) momentum.pass(1 / 60);
    expect(momentum.moving).toBe(false);
  });
  it("moves by a tap that is shorter than a frame", () => {
    const momentum = new Momentum();
    momentum.down("s", false);
    momentum.up("s");
    expect(momentum.pass(1 / 60).zoom).toBeLessThan(0);
    const { speed } = momentum;
    const then = speed.zoom;
    momentum.pass(1 / 60);
    expect(Math.abs(speed.zoom)).toBeLessThan(Math.abs(then));
    for (let i = 0; i < 120; i++) momentum.pass(1 / 60);
    expect(momentum.moving).toBe(false);
  });
  it("goes the other way at once", () => {
    const momentum = new Momentum();
    momentum.down("w", false);
    for (let i = 0; i < 30; i++) momentum.pass(1 / 60);
    momentum.up("w");
    momentum.down("s", false);
    expect(momentum.pass(1 / 60).zoom).toBeLessThan(0);
  });
  it("leaves texts out while frames are slow, and has all of them at rest", () => {
    let now = 0;
    const pace = new Pace(
      () => {},
      () => now,
    );
    const all = pace.leastText();
    for (let i = 0; i < 3; i++, now += 16) {
      pace.moved();
      pace.drew(30);
    }
    expect(pace.leastText()).toBe(8 * all);
    pace.drew(5);
    expect(pace.leastText()).toBeLessThan(8 * all);
    now += 1000;
    expect(pace.leastText()).toBe(all);
    pace.stop();
  });
});

describe("events far from all others", () => {
  const day = 86_400e9;
  const crowd = Float64Array.from({ length: 300 }, (_, i) => i * 1e6);
  const with_ = (...more: number[]): Float64Array => Float64Array.from([...crowd, ...more]);
  const ends = (starts: Float64Array): Float64Array => starts.map((start) => start + 5e5);
  it("are told, and where the others are", () => {
    const starts = with_(day);
    const found = crowdOf(starts, ends(starts), day + 5e5);
    expect(found?.span).toEqual({ from: 0, to: 299.5e6 });
    expect(found?.before).toBeNull();
    expect(found?.after).toEqual({ count: 1, span: { from: day, to: day + 5e5 } });
  });
  it("are not seen in a profile that is one piece, or where most is far from most", () => {
    expect(crowdOf(crowd, ends(crowd), 300e6)).toBeNull();
    const two = Float64Array.from([...crowd, ...crowd.map((start) => start + day)]);
    expect(crowdOf(two, ends(two), day + 300e6)).toBeNull();
  });
  it("are so far away in words", () => {
    expect([longTime(day), longTime(2 * day), longTime(3.6e12 * 5), longTime(90e9), longTime(1500)]).toEqual([
      "1 day",
      "2 days",
      "5 h",
      "2 min",
      "2 µs",
    ]);
  });
});
