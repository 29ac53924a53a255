import { describe, expect, it } from "vitest";
import type { Cores } from "../lib/payload.js";
import { longest, looks, stepOf } from "../views/pods/cores.js";

const column = (key: string, label: string): Cores["heads"][number] => ({
  key,
  label,
  kind: "number",
  help: "",
  digits: 2,
});
const kinds = [
  column("compute_ms", "Compute"),
  column("all_reduce_compute_ms", "All-reduce compute"),
  column("idle_ms", "Idle"),
];
const cores: Cores = {
  kinds: kinds.map(({ key }) => key),
  heads: [{ ...column("worker", "Core"), kind: "text" }, column("step_time_ms", "Step ms"), ...kinds],
  table: {
    columns: [{ ...column("worker", "Core"), kind: "text" }, column("mean_step_ms", "Step ms"), ...kinds],
    data: {
      worker: { codes: Uint8Array.of(0, 1, 2), values: ["a:0", "a:1", "a:1 SparseCore 0"] },
      chip: Float32Array.of(0, 1, 1),
      mean_step_ms: Float64Array.of(8, 9, Number.NaN),
      compute_ms: Float64Array.of(5, 6, 7),
    },
    rows: 3,
  },
  // The SparseCore has no second step.
  first: Uint32Array.of(0, 3, 5),
  core: Uint8Array.of(0, 1, 2, 0, 1),
  time_ms: Float32Array.of(8, 9, 7, 10, 11),
  parts: { compute_ms: Float32Array.of(5, 6, 7, 8, 9), idle_ms: Float32Array.of(3, 3, 0, 2, 2) },
  note: "",
};

describe("cores", () => {
  it("of a step are those that have it, with their chips", () => {
    const table = stepOf(cores, 1);
    expect(table.rows).toBe(2);
    expect(table.data["worker"]).toEqual(["a:0", "a:1"]);
    expect(Array.from(table.data["chip"] as Float64Array)).toEqual([0, 1]);
    expect(Array.from(table.data["step_time_ms"] as Float32Array)).toEqual([10, 11]);
    expect(Array.from(table.data["compute_ms"] as Float32Array)).toEqual([8, 9]);
    expect(table.columns).toBe(cores.heads);
    expect(stepOf(cores, 0).rows).toBe(3);
    expect(stepOf(cores, 7).rows).toBe(0);
  });
  it("have the colours of the categories, the second kind of one faint", () => {
    expect(looks(cores).map(({ css, faint, label }) => [css, faint, label])).toEqual([
      ["device", false, "Compute"],
      ["coll", false, "All-reduce compute"],
      ["other", true, "Idle"],
    ]);
    expect(looks({ ...cores, kinds: ["later_ms"] })[0]).toMatchObject({ css: "other", label: "later_ms" });
    const both = { ...cores, kinds: ["infeed_ms", "host_transfer_ms"] };
    expect(looks(both).map(({ css, faint }) => [css, faint])).toEqual([
      ["input", false],
      ["input", true],
    ]);
    expect(looks({ ...cores, kinds: ["host_transfer_ms"] })[0]).toMatchObject({ css: "input", faint: false });
  });
  it("are drawn by the longest, whatever is missing", () => {
    expect(longest(cores.table, "mean_step_ms")).toBe(9);
    expect(longest({ ...cores.table, rows: 0 }, "mean_step_ms")).toBe(1);
  });
});
