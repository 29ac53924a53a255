import { describe, expect, it } from "vitest";
import { numberAt, textAt } from "../lib/codec.js";
import type { Column, Ops, Table } from "../lib/payload.js";
import { sortRows } from "../lib/rows.js";
import { common, extreme, foldTable, sum } from "../views/fold.js";
import { groups, layerOf, types, withShares } from "../views/ops/rows.js";
import { opened, tree, visible } from "../views/ops/torch.js";
import { tableOf } from "./columns.js";
import python from "./sums.json" with { type: "json" };

const KINDS: Record<string, Column["kind"]> = { where: "text", type: "text", op: "code" };

function table(rows: Record<string, number | string>[]): Table {
  const keys = Object.keys(rows[0] ?? {});
  return {
    rows: rows.length,
    columns: keys.map((key) => ({ key, label: key, kind: KINDS[key] ?? "number", help: "" })),
    data: Object.fromEntries(
      keys.map((key) => [
        key,
        KINDS[key] ? rows.map((row) => String(row[key])) : Float64Array.from(rows, (row) => Number(row[key])),
      ]),
    ),
  };
}

const op = (where: string, type: string, name: string, self_us: number, occurrences = 1, shares = [0, 0]) => ({
  rank: 0,
  where,
  type,
  op: name,
  occurrences,
  total_us: 2 * self_us,
  avg_us: (2 * self_us) / occurrences,
  self_us,
  avg_self_us: self_us / occurrences,
  eager: 0,
  self_percent: shares[0] as number,
  cumulative_percent: shares[1] as number,
});

const rows = table([
  op("device", "Conv2D", "model/conv_1/Conv2D", 30, 3, [30, 80]),
  op("host", "Dataset", "Iterator::Root::Map", 100, 1, [50, 50]),
  op("device", "MatMul", "model/dense/MatMul", 50, 1, [50, 50]),
  op("device", "Conv2D", "model/conv_2/Conv2D", 20, 1, [20, 100]),
  op("host", "_Send", "send", 60, 1, [30, 80]),
]);
const ops: Ops = {
  empty: null,
  table: rows,
  totals: { device_us: 100, host_us: 200, device_idle_us: 300, host_idle_us: Number.NaN },
  rings: [],
  modules: null,
  shapes: null,
};

describe("the percent columns", () => {
  const column = (key: string, table: Table): number[] =>
    Array.from({ length: table.rows }, (_, i) => numberAt(table.data[key], i));
  it("are those of Python while idle is left out", () => {
    expect(withShares(rows, ops.totals, false)).toBe(rows);
  });
  it("become smaller on a side whose idle time is known, where that is included", () => {
    const idle = withShares(rows, ops.totals, true);
    expect(column("self_percent", idle)).toEqual([7.5, 50, 12.5, 5, 30, 75]);
    expect(column("cumulative_percent", idle)).toEqual([95, 50, 87.5, 100, 80, 75]);
  });
  it("have a row for the idle time of each side that is included, where it falls by its time", () => {
    const ranked = table([
      { ...op("device", "MatMul", "a", 60, 1, [60, 60]), rank: 1 },
      { ...op("device", "Conv2D", "b", 40, 1, [40, 100]), rank: 2 },
      { ...op("host", "Dataset", "c", 100, 1, [100, 100]), rank: 3 },
    ]);
    const totals = { device_us: 100, host_us: 100, device_idle_us: 50, host_idle_us: 300 };
    const idle = withShares(ranked, totals, true);
    expect(idle.rows).toBe(5);
    const texts = (key: string): string[] => Array.from({ length: 5 }, (_, i) => textAt(idle.data[key], i));
    expect(texts("op")).toEqual(["a", "b", "c", "IDLE", "IDLE"]);
    expect(texts("type").slice(3)).toEqual(["IDLE", "IDLE"]);
    expect(texts("where")).toEqual(["device", "device", "host", "device", "host"]);
    expect(column("self_us", idle)).toEqual([60, 40, 100, 50, 300]);
    expect(column("rank", idle)).toEqual([1, 3, 5, 2, 4]);
    expect(column("cumulative_percent", idle).map(Math.round)).toEqual([40, 100, 100, 73, 75]);
    expect(groups(idle, [0, 1, 2, 3, 4], "type").map(({ values }) => values.op)).toContain("IDLE");
    expect(withShares(ranked, { ...totals, device_idle_us: 0, host_idle_us: Number.NaN }, true)).toBe(ranked);
  });
});

describe("folding", () => {
  const full = rows;
  const all = [0, 1, 2, 3, 4];
  it("names the layer of an op", () => {
    expect(layerOf("gradient_tape/sequential/conv2d/Conv2D")).toBe("gradient_tape/sequential/conv2d");
    expect(layerOf("Iterator::Root::BatchV2")).toBe("Iterator::Root");
    expect(layerOf("MatMul")).toBe("(no scope)");
  });
  it("adds up by type, a side at a time, with means by occurrence", () => {
    const list = groups(full, all, "type");
    expect(list.map((group) => [group.values.op, group.values.self_us])).toEqual([
      ["Dataset", 100],
      ["_Send", 60],
      ["MatMul", 50],
      ["Conv2D", 50],
    ]);
    const conv = list[3];
    expect(conv?.rows).toEqual([0, 3]);
    expect(conv?.values).toMatchObject({
      occurrences: 4,
      total_us: 100,
      avg_us: 25,
      avg_self_us: 12.5,
      self_percent: 50,
    });
    expect(list.map((group) => group.values.cumulative_percent)).toEqual([50, 80, 50, 100]);
  });
  it("is that of p.ops.by_type and by_scope, of all rows and of those that a filter leaves", () => {
    const made = python.ops;
    const whole = tableOf(made.rows.map((row) => ({ ...row, self_percent: 100 * row.self_fraction })));
    const found = (by: "type" | "layer", among: readonly number[]) =>
      groups(whole, among, by)
        .map(({ values: v }) => [
          v.where,
          v.op,
          v.occurrences,
          v.total_us,
          v.self_us,
          Number(v.self_percent).toFixed(6),
        ])
        .sort();
    const wanted = (list: typeof made.by_type | typeof made.by_scope) =>
      list
        .map((row) => [
          row.where,
          ("type" in row ? row.type : row.scope) || "(no scope)",
          ...[row.occurrences, row.total_us, row.self_us, (100 * row.self_fraction).toFixed(6)],
        ])
        .sort();
    const every = [...made.rows.keys()];
    expect(found("type", every)).toEqual(wanted(made.by_type));
    expect(found("layer", every)).toEqual(wanted(made.by_scope));
    expect(found("type", made.some.rows)).toEqual(wanted(made.some.by_type));
  });
  it("does not mix device and host", () => {
    const mixed = table([op("device", "_Send", "a/x", 1), op("host", "_Send", "a/y", 1)]);
    expect(groups(mixed, [0, 1], "type")).toHaveLength(2);
    expect(groups(mixed, [0, 1], "layer")).toHaveLength(2);
  });
  it("only has the rows it is given", () => {
    expect(groups(full, [0], "type").map((group) => group.values.self_us)).toEqual([30]);
  });
  it("lists types by self time", () => {
    expect(types(rows)).toEqual(["Dataset", "_Send", "Conv2D", "MatMul"]);
  });
  it("keeps members under their group, whatever the table is sorted by", () => {
    const list = groups(full, all, "type");
    const conv = list.find((group) => group.values.op === "Conv2D");
    const folded = foldTable(full, list, new Set([conv?.key ?? ""]));
    expect(folded.table.rows).toBe(6);
    for (const key of ["self_us", "total_us", "occurrences", "op", "rank", "cumulative_percent"]) {
      for (const descending of [true, false]) {
        const order = [...sortRows(folded.table, Uint32Array.from([0, 1, 2, 3, 4, 5]), { key, descending })];
        const at = order.findIndex((row) => folded.group[row] === conv && folded.source[row] === -1);
        expect(order.slice(at + 1, at + 3).map((row) => folded.source[row])).toEqual([0, 3]);
      }
    }
  });
  it("shows a member's own values, not those of its group", () => {
    const list = groups(full, all, "type");
    const folded = foldTable(full, list, new Set(list.map((group) => group.key)));
    const at = folded.source.indexOf(3);
    expect(numberAt(folded.real.data.self_us, at)).toBe(20);
    expect(numberAt(folded.table.data.self_us, at)).toBe(50);
    expect(textAt(folded.real.data.op, at)).toBe("model/conv_2/Conv2D");
  });
  it("leaves closed groups, and groups of one, as a line", () => {
    const list = groups(full, all, "type");
    expect(foldTable(full, list, new Set()).table.rows).toBe(4);
    const single = list.find((group) => group.rows.length === 1);
    expect(foldTable(full, list, new Set([single?.key ?? ""])).table.rows).toBe(4);
  });
});

describe("merging values", () => {
  const data = Float64Array.of(3, Number.NaN, 1);
  it("leaves missing values out, and is missing when all are", () => {
    expect(sum(data, [0, 1, 2])).toBe(4);
    expect(sum(data, [1])).toBeNaN();
    expect([extreme(data, [0, 1, 2], 1), extreme(data, [0, 1, 2], -1)]).toEqual([3, 1]);
    expect(extreme(data, [1], 1)).toBeNaN();
  });
  it("keeps a value all rows share", () => {
    expect(common(Float64Array.of(2, 2), [0, 1], false)).toBe(2);
    expect(common(Float64Array.of(2, 3), [0, 1], false)).toBeNaN();
    expect(common(data, [1], false)).toBeNaN();
    expect(common(["8×8", "8×8"], [0, 1], true)).toBe("8×8");
    expect(common(["8×8", "1×1"], [0, 1], true)).toBe("");
  });
});

describe("the tree of modules", () => {
  const depth = [0, 1, 2, 2, 1, 0];
  const names = ["Net_0", "Block_0", "Conv_0", "ReLU_0", "(3 more with less time)", "Loss_0"];
  const modules: Table = {
    rows: 6,
    columns: [],
    data: {
      name: names,
      module: ["Net_0", "Net_0/Block_0", "Net_0/Block_0/Conv_0", "Net_0/Block_0/ReLU_0", "", "Loss_0"],
      percent: Float64Array.of(90, 60, 50, 10, 30, 10),
      _depth: Float64Array.from(depth),
    },
  };
  const shape = tree(modules);

  it("has each row in the last one above it that is less deep", () => {
    expect([...shape.parent]).toEqual([-1, 0, 1, 1, 0, -1]);
    expect([...shape.inside]).toEqual([2, 2, 0, 0, 0, 0]);
  });

  it("opens what takes the most time while it stays short", () => {
    expect(opened(modules, shape)).toEqual(new Set([0, 1]));
    const wide: Table = {
      ...modules,
      rows: 60,
      data: { _depth: Float64Array.from({ length: 60 }, (_, i) => (i ? 1 : 0)) },
    };
    expect(opened(wide, tree(wide)).size).toBe(0);
  });

  it("shows what is in an open row only, and what matches with all around it", () => {
    expect(visible(modules, shape, new Set([0]), null)).toEqual([0, 1, 4, 5]);
    // A row that is open in one that is not does not show what is in it.
    expect(visible(modules, shape, new Set([1]), null)).toEqual([0, 5]);
    expect(visible(modules, shape, new Set(), (text) => text.startsWith("ReLU"))).toEqual([0, 1, 3]);
    expect(visible(modules, shape, new Set(), () => false)).toEqual([]);
  });
});
