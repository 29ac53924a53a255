import { describe, expect, it } from "vitest";
import type { Column, Table } from "../lib/payload.js";
import { coresMatch, groups } from "../views/kernels/rows.js";
import { tableOf } from "./columns.js";
import python from "./sums.json" with { type: "json" };

const TEXT = new Set(["kernel", "op", "block", "grid"]);

function table(rows: Record<string, number | string>[]): Table {
  const keys = Object.keys(rows[0] ?? {});
  const kind = (key: string): Column["kind"] => (TEXT.has(key) ? "code" : "number");
  return {
    rows: rows.length,
    columns: keys.map((key) => ({ key, label: key, kind: kind(key), help: "" })),
    data: Object.fromEntries(
      keys.map((key) => [
        key,
        TEXT.has(key) ? rows.map((row) => String(row[key])) : Float64Array.from(rows, (row) => Number(row[key])),
      ]),
    ),
  };
}

const kernel = (name: string, op: string, total_us: number, more: Record<string, number | string> = {}) => ({
  rank: 0,
  kernel: name,
  op,
  total_us,
  occurrences: 2,
  avg_us: total_us / 2,
  min_us: total_us / 4,
  max_us: total_us,
  op_tensor_core_eligible: 1,
  uses_tensor_core: 0,
  occupancy_percent: 50,
  registers: 32,
  shared_bytes: 0,
  block: "8×8×1",
  grid: "1×1×1",
  ...more,
});

const data = table([
  kernel("gemm", "dense", 10),
  kernel("gemm", "dense_1", 30, { registers: 64, min_us: 3, block: "4×4×1" }),
  kernel("relu", "dense", 40, { op_tensor_core_eligible: 0 }),
  kernel("wmma", "dense", 20, { uses_tensor_core: 1 }),
  kernel("copy", "", 5, { op_tensor_core_eligible: Number.NaN, uses_tensor_core: Number.NaN }),
]);
const rows = [0, 1, 2, 3, 4];
const NONE: Table = { columns: [], data: {}, rows: 0 };

describe("Tensor Cores", () => {
  const chosen = (cores: "any" | "used" | "unused") => rows.filter((row) => coresMatch(data, row, cores));
  it("tell used from eligible but not used; what was not recorded is neither", () => {
    expect(chosen("any")).toEqual(rows);
    expect(chosen("used")).toEqual([3]);
    expect(chosen("unused")).toEqual([0, 1]);
  });
});

describe("folding", () => {
  it("by name: sums, means over launches, extremes, and what all have in common", () => {
    const list = groups(data, rows, "kernel", NONE);
    const gemm = list.find((group) => group.key === "gemm");
    expect(gemm?.rows).toEqual([1, 0]);
    expect(gemm?.values).toMatchObject({
      kernel: "gemm",
      op: "2 ops",
      total_us: 40,
      occurrences: 4,
      avg_us: 10,
      min_us: 2.5,
      max_us: 30,
      occupancy_percent: 50,
      registers: Number.NaN,
      block: "",
      grid: "1×1×1",
      op_tensor_core_eligible: 1,
    });
    expect(list.map((group) => group.values.rank)).toEqual([1, 2, 3, 4]);
  });
  it("by op: most time first", () => {
    const list = groups(data, rows, "op", NONE);
    expect(list.map((group) => [group.key, group.values.total_us, group.values.kernel])).toEqual([
      ["dense", 70, "3 kernels"],
      ["dense_1", 30, "gemm"],
      ["", 5, "copy"],
    ]);
  });
});

describe("sums of rows", () => {
  const made = python.kernels;
  const all = tableOf(made.rows);
  const keys = ["total_us", "occurrences", "avg_us", "min_us", "max_us", "occupancy_percent"];
  const numbers = (rows: readonly object[]) =>
    rows.map((row) => keys.map((key) => (row as Record<string, number | null>)[key] ?? Number.NaN));
  const folded = (rows: readonly number[], by: "kernel" | "op", sums = NONE) =>
    groups(all, rows, by, sums).map((group) => keys.map((key) => group.values[key] as number));
  const close = (found: number[][], wanted: number[][]): void => {
    expect(found.map((row) => row.map((value) => Number(value.toFixed(6))))).toEqual(
      wanted.map((row) => row.map((value) => Number(value.toFixed(6)))),
    );
  };
  const every = [...made.rows.keys()];
  it("are those of p.kernels.by_name and by_op, occupancy weighted by time", () => {
    close(folded(every, "kernel"), numbers(made.by_name));
    close(folded(every, "op"), numbers(made.by_op));
  });
  it("are so of the rows that a filter leaves", () => {
    close(folded(made.dense.rows, "kernel"), numbers(made.dense.by_name));
  });
  it("are of the whole profile where all rows of a name are there, though the table is cut", () => {
    const sums = tableOf(made.by_name.map((row) => ({ ...row, total_us: row.total_us + 100 })));
    const totals = (rows: readonly number[]) =>
      groups(all, rows, "kernel", sums).map((group) => [group.key, group.values.total_us]);
    expect(totals(every)[0]).toEqual(["gemm", 147.75]);
    expect(totals(made.dense.rows)[0]).toEqual(["gemm", 40.5]);
  });
});
