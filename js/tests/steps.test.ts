import { describe, expect, it } from "vitest";
import { createStore } from "../lib/store.js";
import { overlaps, selectBars, selectedBars } from "../views/brush.js";
import { cutText, recordedStretches } from "../views/clock.js";
import { anchored, borderLabels, clearest, cutLabels } from "../views/stepchart.js";
import {
  axisLimit,
  axisTop,
  bars,
  breakdown,
  countSteps,
  leftOutNote,
  rangeText,
  selectedRows,
  statistics,
  stepCount,
} from "../views/stepstats.js";
import { tableOf } from "./columns.js";
import { sample } from "./sample.js";
import python from "./sums.json" with { type: "json" };

describe("the clock of the cell", () => {
  it("finds what was recorded", () => {
    expect(recordedStretches([0, 1, 1, 0, 1])).toEqual([
      [1, 2],
      [4, 4],
    ]);
    expect(recordedStretches([0, 0])).toEqual([]);
  });

  it("names the longest step where the axis cuts it", () => {
    expect(cutText([10, 400, 12, 300.5], 20)).toBe("the longest takes 400.00 ms");
    expect(cutText([10, 12], 20)).toBe("");
  });
});

describe("warm-up", () => {
  const steps = { ...sample().steps, warmup: new Uint8Array(sample().steps.step.length) };
  steps.warmup[0] = 1;
  const [first, last] = [steps.step[0] as number, steps.step.at(-1) as number];
  it("is left out while nothing is selected", () => {
    expect(selectedRows(steps, null)).toHaveLength(steps.step.length - 1);
    expect(selectedRows(steps, null)).not.toContain(0);
    expect(leftOutNote(steps, null)).toContain("first step");
  });
  it("counts when it is selected", () => {
    expect(selectedRows(steps, { first, last })).toHaveLength(steps.step.length);
    expect(leftOutNote(steps, { first, last })).toBe("");
  });
});

describe("statistics", () => {
  it("is the sample standard deviation", () => {
    const stats = statistics(Float64Array.of(2, 4, 4, 4, 5, 5, 7, 9), [0, 1, 2, 3, 4, 5, 6, 7]);
    expect([stats.median, stats.p95]).toEqual([4.5, 9]);
    expect(stats).toMatchObject({ n: 8, mean: 5, min: 2, max: 9 });
    expect(stats.sd).toBeCloseTo(Math.sqrt(32 / 7), 12);
  });

  it("leaves out what was not measured, and has no spread for one value", () => {
    const stats = statistics(Float64Array.of(3, Number.NaN, 100), [0, 1]);
    expect(stats).toMatchObject({ n: 1, mean: 3, min: 3, max: 3 });
    expect(stats.sd).toBeNaN();
    expect(statistics(new Float64Array(0), []).mean).toBeNaN();
  });
});

describe("numbers that repeat", () => {
  // Two epochs of three steps on two hosts; the second counts anew and takes twice as long.
  const numbers = [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2];
  const repeated = {
    ...sample().steps,
    step: Int32Array.from(numbers),
    step_time_ms: Float64Array.from(numbers, (_, row) => (row < 6 ? 10 : 20)),
    hosts: ["a", "b"],
    host: Uint16Array.from(numbers, (_, row) => row % 2),
    categories: {},
    count: undefined,
  };

  it("are steps of their own", () => {
    expect(stepCount(repeated)).toBe("6 steps");
    const drawn = bars(repeated, 100);
    expect(drawn.map((bar) => bar.first)).toEqual([0, 1, 2, 0, 1, 2]);
    expect(drawn.map((bar) => bar.time_ms)).toEqual([10, 10, 10, 20, 20, 20]);
    expect(drawn.map((bar) => bar.rows.length)).toEqual([2, 2, 2, 2, 2, 2]);
  });

  it("share no bar with those of another epoch", () => {
    for (const { first, last } of bars(repeated, 2)) expect(first).toBeLessThanOrEqual(last);
  });

  it("are all selected by a range of numbers", () => {
    const rows = selectedRows(repeated, { first: 1, last: 1 });
    expect(countSteps(repeated, rows)).toBe(2);
    expect(bars(repeated, 100).map((bar) => overlaps(bar, { first: 1, last: 1 }))).toEqual([
      false,
      true,
      false,
      false,
      true,
      false,
    ]);
  });
});

describe("labels of cut bars", () => {
  it("are those of the longest where there is no room for all", () => {
    const times = [1, 1, 1, 1, 1, 20, 30, 20, 1, 1, 1, 1, 1, 1, 1, 1, 1, 10, 1, 1];
    expect(cutLabels(times, 4, 400).map(({ text }) => text)).toEqual(["30.00", "10.00"]);
    expect(cutLabels(times, 4, 4000).map(({ text }) => text)).toEqual(["30.00", "20.00", "20.00", "10.00"]);
    expect(cutLabels([1, 2], 4, 400)).toEqual([]);
  });
});

describe("selection", () => {
  const { steps } = sample();

  it("is by step number, both ends included", () => {
    expect(selectedRows(steps, { first: 508, last: 510 })).toEqual([8, 9, 10]);
    expect(selectedRows(steps, null)).toHaveLength(21);
    expect(rangeText(508, 515)).toBe("steps 508–515");
    expect(rangeText(508, 508)).toBe("step 508");
  });

  it("changes the breakdown, sorted by size, and names what was not recorded", () => {
    const rows = selectedRows(steps, { first: 508, last: 510 });
    const { total, parts, missing } = breakdown(steps, rows);
    expect(total.n).toBe(3);
    expect(parts.map((part) => part.key).slice(0, 2)).toEqual(["input", "device_compute"]);
    const sizes = parts.map((part) => part.stats.mean);
    expect(sizes).toEqual([...sizes].sort((a, b) => b - a));
    expect(parts.reduce((sum, part) => sum + part.percent, 0)).toBeCloseTo(100, 9);
    expect(missing).toEqual(["output"]);
  });

  it("has the shares of p.steps.summary, also where one of two hosts recorded no device", () => {
    const { rows, summary } = python.steps;
    const { data } = tableOf(rows);
    const of = (key: string) => data[key] as Float64Array;
    const two = {
      ...steps,
      step: Int32Array.from(of("step")),
      step_time_ms: of("step_time_ms"),
      warmup: Uint8Array.from(rows, (row) => Number(!row.counted)),
      categories: { device_compute: of("device_compute_ms"), input: of("input_ms"), other: of("other_ms") },
    };
    const { total, parts } = breakdown(two, selectedRows(two, null));
    const wanted = new Map(summary.map((row) => [row.category, row]));
    const numbers = ({ mean, sd, median, p95, min, max }: typeof total, percent: number) => [
      ...[mean, sd, median, p95],
      ...[min, max, percent],
    ];
    for (const [key, found] of [
      ["step_time", numbers(total, 100)] as const,
      ...parts.map((part) => [part.key, numbers(part.stats, part.percent)] as const),
    ]) {
      const row = wanted.get(key);
      const middle = [row?.mean_ms, row?.sd_ms, row?.median_ms, row?.p95_ms];
      const expected = [...middle, row?.min_ms, row?.max_ms, row?.percent];
      found.forEach((value, i) => {
        expect(value, `${key} ${i}`).toBeCloseTo(expected[i] as number, 6);
      });
    }
    expect(parts.reduce((sum, part) => sum + part.percent, 0)).toBeCloseTo(100, 9);
  });

  it("goes to bars and back; all bars are no selection", () => {
    const store = createStore();
    const drawn = bars(steps, 500);
    expect(selectedBars(drawn, store)).toBeNull();
    selectBars(drawn, store, 15, 8);
    expect(store.get("selection")).toEqual({ first: 508, last: 515 });
    expect(selectedBars(drawn, store)).toEqual([8, 15]);
    selectBars(drawn, store, -4, 99);
    expect(store.get("selection")).toBeNull();
  });

  it("tells its subscribers once a change, until they leave", () => {
    const store = createStore();
    const leaving = new AbortController();
    const seen: unknown[] = [];
    store.subscribe("selection", (selection) => seen.push(selection), leaving.signal);
    store.set("selection", { first: 1, last: 2 });
    store.set("selection", { first: 1, last: 2 });
    leaving.abort();
    store.set("selection", null);
    expect(seen).toEqual([{ first: 1, last: 2 }]);
  });
});

describe("borders", () => {
  const { steps } = sample({ steps: 40 });
  const drawn = bars(steps, 500);
  const labelled = (boundaries: { row: number; text: string }[], width: number) =>
    borderLabels({ ...steps, boundaries }, drawn, width);

  it("stand before the step of their row, or behind the last one", () => {
    const found = labelled(
      [
        { row: 20, text: "evaluation (12 batches, 411.57 ms), epoch" },
        { row: 40, text: "evaluation (12 batches, 411.57 ms)" },
      ],
      800,
    );
    expect(found.map(({ share }) => share)).toEqual([0.5, 1]);
    expect(found.map(({ label }) => label)).toEqual([
      "evaluation (12 batches, 411.57 ms), epoch",
      // Between the first label and the end there is room for the kind alone.
      "evaluation",
    ]);
    expect(found[1]?.anchor).toBe("end");
  });

  it("go without details, or without their label, where there is no room", () => {
    const close = [10, 12].map((row) => ({ row, text: "evaluation (12 batches, 411.57 ms)" }));
    expect(labelled(close, 800).map(({ label }) => label)).toEqual(["", "evaluation (12 batches, 411.57 ms)"]);
    expect(labelled([{ row: 20, text: "evaluation (12 batches, 411.57 ms)" }], 200)[0]?.label).toBe("evaluation");
  });

  it("stand within a bar of several steps", () => {
    const few = bars(steps, 10);
    const [found] = borderLabels({ ...steps, boundaries: [{ row: 6, text: "epoch" }] }, few, 800);
    expect(found?.share).toBeCloseTo(6 / 40, 6);
  });

  it("are none where nothing is known of them", () => {
    expect(borderLabels(steps, drawn, 800)).toEqual([]);
  });
});

describe("bars", () => {
  it("are one a step while they fit, means of equally many when they do not", () => {
    const { steps } = sample({ steps: 1200 });
    expect(bars(sample().steps, 500)).toHaveLength(21);
    const drawn = bars(steps, 500);
    expect(drawn).toHaveLength(400);
    expect(drawn[0]).toMatchObject({ first: 500, last: 502, rows: [0, 1, 2] });
    expect(drawn[0]?.time_ms).toBeCloseTo(statistics(steps.step_time_ms, [0, 1, 2]).mean, 12);
  });

  it("join the hosts that report the same step", () => {
    const { steps } = sample({ steps: 4 });
    steps.step = Int32Array.of(1, 1, 2, 2);
    steps.hosts = ["a", "b"];
    steps.host = Uint16Array.of(0, 1, 0, 1);
    expect(bars(steps, 500).map((bar) => bar.rows)).toEqual([
      [0, 1],
      [2, 3],
    ]);
  });

  it("cut the axis only for a step over 4× the median", () => {
    expect(axisLimit([5, 6, 7, 19])).toBe(19);
    expect(axisLimit([5, 6, 7, 100])).toBe(7);
    expect(axisTop([5, 6, 7, 100])).toBe(8);
    expect(axisTop([0.2, 0.30000000000000004])).toBeGreaterThanOrEqual(0.30000000000000004);
    expect(axisLimit([100, 6])).toBe(6);
    expect(axisLimit([900, 5, 6, 7, 5, 23, 6])).toBe(23);
    expect(axisLimit([])).toBe(0);
  });
});

describe("labels of the step chart", () => {
  it("puts the mean where no bar reaches it", () => {
    // 10 bars of 40 px: the first four are taller than the line, the rest are lower.
    const tops = [20, 20, 20, 20, 100, 100, 100, 100, 100, 100];
    expect(clearest(tops, 400, 70, 80)).toBe(162);
    expect(clearest([100, 100, 100], 300, 70, 80)).toBe(2);
  });
  it("keeps the label inside a plot that is narrower than itself, and inside an empty one", () => {
    expect(clearest([20], 50, 70, 80)).toBe(0);
    expect(clearest([], 400, 70, 80)).toBe(2);
  });
  it("anchors the value of a cut bar inside the plot", () => {
    expect(anchored(5, 50, 400)).toEqual({ anchor: "start", left: 5, right: 55 });
    expect(anchored(395, 50, 400)).toEqual({ anchor: "end", left: 345, right: 395 });
    expect(anchored(200, 50, 400)).toEqual({ anchor: "middle", left: 175, right: 225 });
  });
});
