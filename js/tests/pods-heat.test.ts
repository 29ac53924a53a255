import { describe, expect, it } from "vitest";
import type { Heat, HeatLayer } from "../lib/payload.js";
import {
  BLANK,
  columnOf,
  msAt,
  ordered,
  overAt,
  picture,
  SHADES,
  share,
  shownIn,
  stepAt,
  toldAt,
  toldText,
} from "../views/pods/cells.js";
import { causeAt } from "../views/pods/heat.js";
import { lines } from "../views/pods/one.js";
import { podsSample } from "./sample.js";

/** Codes by worker: three workers, two steps; the unit is half a ms, a step takes 100 ms on the median worker. */
const layer = (key: string, codes: number[], median_ms: number[], mean: number[], limit_percent = 20): HeatLayer => ({
  key,
  codes: Uint16Array.from(codes),
  median_ms: Float32Array.from(median_ms),
  mean_percent: Float32Array.from(mean),
  limit_percent,
  low_ms: 90,
  high_ms: 130,
});
const time = layer("step_time", [200, 200, 240, 65535, 190, 260], [100, 115], [-7.5, 20, Number.NaN]);
const input = layer("input", [20, 20, 56, 65535, 20, 24], [10, 11], [0, 18, 0]);
const heat: Heat = {
  rows: Uint16Array.of(0, 2, 5),
  first: Int32Array.of(500, 504),
  last: Int32Array.of(503, 507),
  unit_ms: Float32Array.of(0.5, 0.5),
  median_ms: Float32Array.of(100, 115),
  at: Uint8Array.of(0, 1, 2, 3, 0, 2),
  layers: [time, input],
  show: "step_time",
  note: "",
};

/** Its step 502 has bars of all workers. */
const pods = podsSample(6, 3);

describe("a cell", () => {
  it("is a time, and how far it is from the median of its step", () => {
    expect(msAt(heat, time, 1, 0)).toBe(120);
    expect(overAt(heat, time, 1, 0)).toBe(20);
    expect(overAt(heat, input, 1, 0)).toBe(18);
    expect(msAt(heat, time, 1, 1)).toBeNaN();
  });

  it("names the step that it shows, and the column of a step is found", () => {
    expect(stepAt(heat, 1, 0)).toBe(502);
    expect(columnOf(heat, 507)).toBe(1);
    expect(columnOf(heat, 508)).toBe(-1);
  });

  it("is told as it was measured where the report has its bar, else to the digits that are known", () => {
    expect(toldText(toldAt(pods, heat, input, 1, 0))).toBe("3.00");
    expect(toldText(toldAt({ ...pods, first: new Uint32Array(7) }, heat, input, 1, 0))).toBe("≈ 28.0");
  });

  it("is late for the category in which it is farthest over the median, and for none by less than 1% of the step", () => {
    const bare = { ...pods, first: new Uint32Array(7) };
    expect(causeAt(bare, heat, 1, 0)).toMatchObject({ layer: input, told: { ms: 28 }, median: 10 });
    expect(causeAt(bare, heat, 2, 1)).toBeNull();
  });
});

describe("rows", () => {
  it("are slowest first, those that are not known last, or as they come", () => {
    expect([...ordered(time, "slow")]).toEqual([1, 0, 2]);
    expect([...ordered(time, "name")]).toEqual([0, 1, 2]);
  });
});

describe("the picture", () => {
  const rows = ordered(time, "name");

  it("has the median in the middle, the ends at the limit, and nothing where nothing was recorded", () => {
    const middle = SHADES / 2;
    const codes = [...picture(heat, time, rows, "over", 2, 3)];
    expect(codes.slice(0, 4)).toEqual([middle, Math.round((1 - 15 / 1.15 / 20) * middle), SHADES, BLANK]);
    const ms = [...picture(heat, time, rows, "ms", 2, 3)];
    expect(ms.slice(0, 4)).toEqual([
      Math.round(1.25 * middle),
      Math.round(1.25 * middle),
      Math.round(1.75 * middle),
      BLANK,
    ]);
  });

  it("shows of cells that share a box the one farthest from the median, which is the one that a pointer finds", () => {
    expect([...picture(heat, time, rows, "over", 1, 1)]).toEqual([SHADES]);
    expect(shownIn(heat, time, "over", rows, [0, 3], [0, 2])).toEqual({ y: 1, column: 0 });
    for (const [n, of] of [
      [480, 1024],
      [3, 7],
      [900, 1000],
      [5, 5],
    ] as const) {
      const boxes = Array.from({ length: n }, (_, i) => share(i, n, of));
      expect(boxes[0]?.[0]).toBe(0);
      expect(boxes.at(-1)?.[1]).toBe(of);
      // One slow cell lights the box that has it, whichever that is.
      for (const at of [0, Math.floor(of / 3), of - 1]) {
        const codes = new Uint16Array(of).fill(200);
        codes[at] = 240;
        const one = { ...time, codes, mean_percent: new Float32Array(of), median_ms: Float32Array.of(100) };
        const column: Heat = { ...heat, first: Int32Array.of(500), last: Int32Array.of(500) };
        const lit = picture(column, one, ordered(one, "name"), "over", 1, n).indexOf(SHADES);
        expect(boxes[lit]?.[0]).toBeLessThanOrEqual(at);
        expect(boxes[lit]?.[1]).toBeGreaterThan(at);
      }
    }
  });
});

describe("one worker", () => {
  it("has its means beside the median worker's, and its step where the heat map has it", () => {
    const four = { ...podsSample(6, 4), heat, typical: { mean_step_ms: 4, input_ms: 1 } };
    four.table.data["input_ms"] = Float64Array.of(1, 1, 3, 1);
    const [first, second] = lines({ ...four, first: new Uint32Array(7) }, 2, 2);
    expect(first).toMatchObject({ label: "Step time", mean: 5, median: 4, step: { own: { ms: 120 }, median: 100 } });
    expect(second).toMatchObject({
      label: "Input",
      css: "input",
      mean: 3,
      median: 1,
      step: { own: { ms: 28 }, median: 10 },
    });
    expect(lines(four, 2, 1)[0]?.step).toBeNull();
    expect(lines(podsSample(6, 4), 2, 0)).toEqual([]);
  });
});
