import { describe, expect, it } from "vitest";
import { niceMax, tickDigits, ticks } from "../lib/scale.js";

describe("axes", () => {
  it.each([
    [7.47, 8],
    [8, 8],
    [8.01, 10],
    [0.3, 0.4],
    [0.1, 0.1],
    [123, 200],
    [4.2e-5, 5e-5],
    [0, 1],
    [-3, 1],
    [Number.NaN, 1],
  ])("niceMax(%s) is %s", (value, max) => {
    expect(niceMax(value)).toBe(max);
  });

  it("ticks sit at even values and end at a nice maximum", () => {
    expect(ticks(8)).toEqual([0, 2, 4, 6, 8]);
    expect(ticks(1)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(ticks(100, 2)).toEqual([0, 50, 100]);
    for (const max of [1, 2, 4, 5, 8, 0.002, 40, 80000]) {
      const values = ticks(max);
      expect(values.at(-1)).toBe(max);
      expect(values.length).toBeGreaterThanOrEqual(4);
      expect(values.length).toBeLessThanOrEqual(6);
    }
    expect(ticks(0)).toEqual([0]);
    expect(tickDigits([0, 0.5, 1])).toBe(1);
    expect(tickDigits([0, 20])).toBe(0);
  });
});
