import { describe, expect, it } from "vitest";
import type { Compare, ComparedCategory, Pair, Table } from "../lib/payload.js";
import { largestOf } from "../lib/rows.js";
import {
  axisEnd,
  boxes,
  callsOf,
  categoryRows,
  changed,
  compact,
  dots,
  fromZero,
  labelEvery,
  mean,
  pairOf,
  pathOf,
  percentOf,
  picked,
  withSign,
} from "../views/compare/model.js";

const NO_TABLE = { columns: [], data: {}, rows: 0 };

const category = (key: ComparedCategory["key"], before: number | null, after: number | null): ComparedCategory => {
  const change = before === null || after === null ? null : after - before;
  const change_percent = change === null || !before ? null : (100 * change) / before;
  return { key, before_ms: before, after_ms: after, change_ms: change, margin_ms: 0.1, change_percent, real: true };
};

const made = (before: number, after: number, categories: ComparedCategory[] = []): Pair => ({
  before,
  after,
  kind: "real",
  title: "",
  headline: `${before} to ${after}`,
  detail: "",
  evidence: [],
  bare: false,
  digits: 2,
  figures: [],
  categories,
  findings: [],
  findings_text: "",
  per_step: true,
  ops: NO_TABLE,
  ops_left_out: 0,
  kernels: NO_TABLE,
  kernels_left_out: 0,
  small_us: { ops: 0, kernels: 0 },
  calls: [],
  calls_reason: "",
  memory: { roles: NO_TABLE, moment: "", reason: "", stacks: NO_TABLE, stacks_left_out: 0, stacks_reason: "" },
  markdown: "",
});

describe("the pickers", () => {
  const part: Compare = { runs: [], home: 1, pairs: [made(0, 1), made(1, 0), made(0, 2), made(2, 0)] };

  it("find each pair in its direction", () => {
    expect(pairOf(part, 2, 0)?.headline).toBe("2 to 0");
    expect(pairOf(part, 1, 2)).toBeUndefined();
  });

  it("swap where the other side's run is picked, and keep the other side else", () => {
    expect(picked(made(0, 1), "before", 1)).toMatchObject({ before: 1, after: 0 });
    expect(picked(made(0, 1), "after", 0)).toMatchObject({ before: 1, after: 0 });
    expect(picked(made(0, 1), "after", 2)).toMatchObject({ before: 0, after: 2 });
    expect(picked(made(0, 1), "before", 0)).toMatchObject({ before: 0, after: 1 });
  });
});

describe("the axis of step times", () => {
  it("starts at 0 and ends at the tick above the longest", () => {
    expect(axisEnd([[5, 6.2, 7.4], [3]])).toBe(8);
    expect(axisEnd([[20.1], [3]])).toBe(25);
    expect(axisEnd([[0.034, 0.041], []])).toBe(0.05);
  });

  it("does not follow a few steps over four times the median, but has the mean on it", () => {
    const slow = [...Array.from({ length: 39 }, () => 1), 100];
    expect(axisEnd([slow, [2]])).toBe(3.5);
    expect(mean(slow)).toBeLessThan(3.5);
    expect(dots(slow, 3.5)).toMatchObject({ beyond: 1, longest: 100 });
  });

  it("leaves out numbers that have no room", () => {
    const texts = ["0", "50", "100", "150", "200", "250", "300", "350", "400"];
    expect(labelEvery(texts, 900)).toBe(1);
    expect(labelEvery(texts, 250)).toBe(2);
    expect(labelEvery(["0"], 0)).toBe(1);
  });

  it("of no steps at all is some axis", () => {
    expect(axisEnd([[], []])).toBeGreaterThan(0);
  });
});

describe("dots", () => {
  it("are one a step, apart in height, the same each time", () => {
    const { dots: shown } = dots(new Float64Array(21).fill(5), 8);
    expect(shown).toHaveLength(21);
    expect(new Set(shown.map((dot) => dot.off)).size).toBe(21);
    expect(shown.every((dot) => Math.abs(dot.off) <= 1)).toBe(true);
    expect(dots(new Float64Array(21).fill(5), 8).dots).toEqual(shown);
  });

  it("of very many steps are some of them", () => {
    expect(dots(new Float64Array(100_000).fill(5), 8).dots.length).toBeLessThanOrEqual(800);
  });
});

describe("categories", () => {
  const rows = categoryRows(
    made(0, 1, [
      category("step_time", 6.2, 3.2),
      category("device_compute", 1.54, 1.54),
      category("input", 3.78, 0.12),
      category("output", 0, 0),
      category("compile", null, null),
      category("host_compute", null, 0.38),
    ]),
  );

  it("are in order of size, the step last; what neither run recorded is named", () => {
    expect(rows.rows.map((row) => row.key)).toEqual(["input", "device_compute", "host_compute", "output", "step_time"]);
    expect(rows.missing).toContain("compile");
    expect(rows.missing).not.toContain("output");
  });

  it("have a percentage only where something changed and something was there", () => {
    const percents = Object.fromEntries(rows.rows.map((row) => [row.key, percentOf(row, 2)]));
    expect(percents).toEqual({ input: "−97%", device_compute: "–", host_compute: "–", output: "–", step_time: "−48%" });
    expect(percentOf(category("input", 100, 101), 2)).toBe("+1.0%");
  });
});

describe("bars from the zero line", () => {
  it("grow to the side of the sign, on one scale", () => {
    expect(fromZero(-3.66, 3.66)).toEqual({ left: 0, width: 50 });
    expect(fromZero(1.83, 3.66)).toEqual({ left: 50, width: 25 });
    expect(fromZero(0.0001, 3.66)?.width).toBeGreaterThan(0.5);
  });

  it("are none without a change", () => {
    expect([fromZero(0, 5), fromZero(null, 5), fromZero(Number.NaN, 5), fromZero(1, 0)]).toEqual([
      null,
      null,
      null,
      null,
    ]);
  });
});

describe("numbers", () => {
  it("of a change that rounds to nothing are nothing", () => {
    expect(changed(-0.001, 2)).toBe("0.00");
    expect(changed(-0.01, 2)).toBe("−0.01");
    expect(changed(0.45, 2)).toBe("+0.45");
    expect(changed(null, 2)).toBe("–");
  });

  it("fit into a card", () => {
    expect([compact(20_000, 0), compact(9_999, 0), compact(2.5e6, 0), compact(null, 0), compact(6.2, 2)]).toEqual([
      "20.0k",
      "9,999",
      "2.5M",
      "–",
      "6.20",
    ]);
  });
});

describe("changes of memory", () => {
  const table: Table = {
    columns: [],
    data: { change_bytes: Float64Array.of(1024, -4096, Number.NaN) },
    rows: 3,
  };

  it("are drawn on the scale of the largest in either direction", () => {
    expect(largestOf(table, "change_bytes")).toBe(4096);
    expect(largestOf({ ...table, data: { change_bytes: Float64Array.of(Number.NaN) }, rows: 1 }, "change_bytes")).toBe(
      0,
    );
    expect(largestOf(NO_TABLE, "change_bytes")).toBe(0);
  });

  it("have a plus where they grew", () => {
    expect(withSign("1.0", 1024)).toBe("+1.0");
    expect(withSign("−4.0", -4096)).toBe("−4.0");
    expect(withSign("0.00", 1)).toBe("0.00");
    expect(withSign("–", Number.NaN)).toBe("–");
  });
});

describe("the flame graph of the difference", () => {
  // main calls train, which is slower, and save, which is gone.
  const calls: Table = {
    columns: [],
    rows: 4,
    data: {
      _parent: new Int32Array([-1, 0, 0, -1]),
      _chance: new Uint8Array([0, 0, 0, 1]),
      before_total_ms: new Float64Array([8, 4, 2, 2]),
      after_total_ms: new Float64Array([9, 9, Number.NaN, 1]),
      self_change_ms: new Float64Array([-2, 5, -2, 40]),
    },
  };

  it("has boxes as wide as their time in one run, within their caller", () => {
    expect(boxes(callsOf(calls, "after"), -1)).toEqual([
      { row: 0, left: 0, width: 0.9, level: 0 },
      { row: 1, left: 0, width: 0.9, level: 1 },
      { row: 3, left: 0.9, width: 0.1, level: 0 },
    ]);
    const before = boxes(callsOf(calls, "before"), -1);
    expect(before.map(({ row }) => row)).toEqual([0, 1, 2, 3]);
    expect(before[2]).toMatchObject({ left: 0.4, width: 0.2, level: 1 });
  });

  it("fills the width with the call that was chosen", () => {
    expect(boxes(callsOf(calls, "before"), 0).map(({ left, width }) => [left, width])).toEqual([
      [0, 1],
      [0, 0.5],
      [0.5, 0.25],
    ]);
  });

  it("scales colours by the largest change that is more than chance", () => {
    expect(callsOf(calls, "after").most).toBe(5);
  });

  it("is empty for a run without these calls", () => {
    const none = { ...calls, data: { ...calls.data, after_total_ms: new Float64Array(4).fill(Number.NaN) } };
    expect(boxes(callsOf(none, "after"), -1)).toEqual([]);
  });

  it("knows the callers of a call", () => {
    const names = ["main", "train", "save", "other"];
    expect(pathOf(callsOf(calls, "after"), 2, (row) => names[row] as string)).toEqual(["main", "save"]);
  });
});
