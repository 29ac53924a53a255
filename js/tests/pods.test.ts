import { describe, expect, it } from "vitest";
import { barsOf, inside, largest, sentence, stepTable, widest } from "../views/pods/model.js";
import { podsSample } from "./sample.js";

const pods = podsSample(6, 4);

describe("bars of a step", () => {
  it("are those of the step, by worker or by time", () => {
    expect(barsOf(pods, 2, "worker").map((bar) => bar.worker)).toEqual([0, 1, 2, 3]);
    const bars = barsOf(pods, 2, "time");
    expect(bars.map((bar) => bar.worker)).toEqual([3, 0, 1, 2]);
    expect(bars[0]).toMatchObject({ row: 11, time_ms: 7 });
    expect(bars[0]?.parts_ms[5]).toBe(3);
    expect(bars[0]?.parts_ms[3]).toBeNaN();
    expect(barsOf(pods, 6, "worker")).toEqual([]);
  });

  it("know their largest category", () => {
    expect(barsOf(pods, 2, "worker").map(largest)).toEqual([0, 0, 0, 0]);
    expect(largest({ row: 0, worker: 0, time_ms: 1, parts_ms: [Number.NaN, Number.NaN] })).toBe(-1);
  });
});

describe("the widest step", () => {
  it("is found in a range and in a selection", () => {
    expect(widest(pods)).toBe(2);
    expect(widest(pods, 3, 6)).toBe(3);
    expect(widest(pods, 0, 6, { first: 504, last: 505 })).toBe(4);
    expect(widest(pods, 0, 6, { first: 900, last: 901 })).toBe(-1);
  });

  it("is not one whose spread is not known", () => {
    const spread_percent = pods.spread_percent.slice();
    spread_percent[0] = Number.NaN;
    expect(widest({ ...pods, spread_percent })).toBe(2);
  });

  it("is inside without a selection", () => {
    expect(inside(500, null)).toBe(true);
    expect(inside(500, { first: 501, last: 502 })).toBe(false);
    expect(inside(502, { first: 501, last: 502 })).toBe(true);
  });
});

describe("the sentence of a step", () => {
  it("says by how much the slowest is behind, and at what", () => {
    expect(sentence(pods, 2)).toBe(
      "**host-3** is the slowest of 4: 7.00 ms, **2.00 ms** (40.0%) over the median; **2.00 ms** of that is input.",
    );
  });

  it("does not call more of a category a part of less", () => {
    const cause_ms = pods.cause_ms.slice().fill(2.5);
    expect(sentence({ ...pods, cause_ms }, 2)).toContain("it takes **2.50 ms** more for input.");
  });

  it("names nobody alone where others take as long", () => {
    const time_ms = pods.time_ms.slice();
    time_ms[pods.first[2] as number] = 6.999;
    expect(sentence({ ...pods, time_ms }, 2)).toBe(
      "**host-3** and **1 other** are the slowest of 4: 7.00 ms, **2.00 ms** (40.0%) over the median.",
    );
  });

  it("finds no fault where nothing differs, and compares no worker with itself", () => {
    expect(sentence({ ...pods, slowest_ms: pods.median_ms }, 2)).toBe("All 4 workers take the same time: 5.00 ms.");
    expect(sentence({ ...pods, slowest_ms: pods.median_ms, fastest_ms: new Float64Array(6).fill(4) }, 2)).toBe(
      "Most of the 4 workers take as long as the slowest, 5.00 ms; the fastest takes 4.00 ms.",
    );
    expect(sentence({ ...pods, count: new Uint8Array(6).fill(1) }, 2)).toBe(
      "Only **host-3** recorded this step: 7.00 ms.",
    );
  });
});

describe("the table of a step", () => {
  it("has a row a worker, slowest first, with its largest category in words", () => {
    const table = stepTable(pods, 2);
    expect(table.rows).toBe(4);
    expect(table.columns).toBe(pods.heads);
    expect((table.data["worker"] as string[])[0]).toBe("host-3");
    expect(Array.from(table.data["input_ms"] as Float64Array)).toEqual([3, 1, 1, 1]);
    expect((table.data["bottleneck"] as string[])[0]).toBe("Device compute");
  });
});
