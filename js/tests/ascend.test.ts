import { describe, expect, it } from "vitest";
import { categoryRows } from "../lib/card.js";
import { CATEGORIES, type Steps, type Table } from "../lib/payload.js";
import { toTrace } from "../views/ascend/model.js";
import { breakdown, rangeText } from "../views/stepstats.js";

const coded = (values: string[]) => ({ codes: Uint8Array.from(values, (_, i) => i), values });
describe("links into the trace", () => {
  const data: Table = {
    columns: [],
    rows: 2,
    data: {
      op: coded(["conv", "add"]),
      _at_ms: Float64Array.of(8, Number.NaN),
      _for_ms: Float64Array.of(4, Number.NaN),
    },
  };
  it("lead to the longest task of an op on the device", () => {
    expect(toTrace("ops", data, 0)).toEqual({
      search: "conv",
      target: { kind: "op", name: "conv", time_ms: 8, where: "device" },
    });
  });
  it("lead to the longest wait of a stream, where there is one", () => {
    expect(toTrace("waits", data, 0)).toEqual({ range_ms: [7, 13] });
    expect(toTrace("waits", data, 1)).toEqual({});
  });
});

describe("iterations as steps", () => {
  const steps: Steps = {
    empty: null,
    step: Int32Array.of(1, 2),
    name: ["", ""],
    start_ms: Float64Array.of(0, 10),
    step_time_ms: Float64Array.of(10, 10),
    categories: { input: Float64Array.of(6, 6), device_compute: Float64Array.of(4, 4) },
    prefix: "",
    hosts: [],
    noun: "iteration",
    labels: { input: "Data Aug Bound", device_compute: "FP to BP Time" },
  };
  it("have labels of their own in tables and in hover cards", () => {
    expect(breakdown(steps, [0, 1]).parts.map((part) => part.label)).toEqual(["Data Aug Bound", "FP to BP Time"]);
    const parts = CATEGORIES.map(({ key }) => (key === "input" ? 6 : 0));
    expect(categoryRows(parts, 10, steps.labels).map((row) => row.label)).toEqual(["Data Aug Bound"]);
    expect(categoryRows(parts, 10).map((row) => row.label)).toEqual(["Input"]);
  });
  it("are called so", () => {
    expect([rangeText(1, 2, "iteration"), rangeText(3, 3, "iteration"), rangeText(3, 4)]).toEqual([
      "iterations 1–2",
      "iteration 3",
      "steps 3–4",
    ]);
  });
});
