import { describe, expect, it } from "vitest";
import { CATEGORIES } from "../lib/payload.js";
import { fillsOf, stem, tintOf } from "../views/trace/colours.js";
import { longestHit, neighbour, peers, search } from "../views/trace/find.js";
import { aggregate, fold, idle, repeats } from "../views/trace/range.js";
import { covered, rowsOf } from "../views/trace/rows.js";
import { overview, strip } from "../views/trace/strip.js";
import { type Event, lane, trace } from "./lanes.js";

describe("colours", () => {
  it("are the same for a kernel whatever its template arguments and number", () => {
    expect(stem("void gemm<float, 4>(int)")).toBe("void gemm");
    expect(stem("dense_12")).toBe("dense");
    expect(stem("123")).toBe("123");
    expect(tintOf("gemm<float>(int)")).toBe(tintOf("gemm<half, 8>(long)"));
    expect(tintOf("sequential/conv2d_1")).toBe(tintOf("sequential/conv2d_27"));
  });
  it("spread over all eight tints", () => {
    const counts = new Array(8).fill(0);
    for (const a of ["Mat", "Conv", "Bias", "Relu", "Max", "Adam", "Cast", "Read"]) {
      for (const b of ["Mul", "Grad", "Add", "Pool", "Op", "Kernel", "Fused", "Filter"]) counts[tintOf(a + b)]++;
    }
    expect(Math.min(...counts)).toBeGreaterThan(1);
  });
  it("follow the category where there is one", () => {
    expect([...fillsOf(["a", "b"], Uint8Array.of(0, 6))]).toEqual([100 + tintOf("a"), 5]);
  });
});

describe("search", () => {
  const data = trace(
    [
      lane([
        [50, 5, 0, 0],
        [60, 9, 1, 0],
      ]),
      lane(
        [
          [0, 7, 1, 0],
          [70, 9, 2, 0],
        ],
        { kind: "device", process: "GPU 0" },
      ),
    ],
    ["Conv2D", "conv2d_grad", "MatMul"],
    100,
  );
  it("finds part of a name whatever the case, by start over all lanes", () => {
    expect(search(data, "conv2d").slices).toEqual([
      { lane: 1, index: 0 },
      { lane: 0, index: 0 },
      { lane: 0, index: 1 },
    ]);
  });
  it("takes /…/ as an expression, and a bad one matches nothing and says why", () => {
    expect(search(data, "/^conv2d$/").slices).toEqual([{ lane: 0, index: 0 }]);
    const bad = search(data, "/(/");
    expect(bad.slices).toEqual([]);
    expect(bad.error).not.toBe("");
    expect(search(data, "").slices).toEqual([]);
  });
  it("knows the longest hit", () => {
    expect(longestHit(data, search(data, "conv2d"))).toBe(2);
    expect(longestHit(data, search(data, "nothing"))).toBe(-1);
  });
  it("compares a slice with those of its name on the same kind of lane", () => {
    expect(peers(data, { lane: 0, index: 1 })).toEqual({ count: 1, mean: 9 });
  });
});

describe("neighbours", () => {
  const data = lane([
    [0, 100, 0, 0],
    [10, 20, 1, 1],
    [12, 2, 2, 2],
    [40, 50, 3, 1],
    [200, 5, 4, 0],
    [210, 1, 5, 1],
  ]);
  const rows = rowsOf(data);
  it("are before and after on the same level", () => {
    expect(neighbour(data, rows, 1, "next")).toBe(3);
    expect(neighbour(data, rows, 4, "previous")).toBe(0);
    expect(neighbour(data, rows, 0, "previous")).toBeNull();
    expect(neighbour(data, rows, 4, "next")).toBeNull();
  });
  it("are the slice around, and the longest within", () => {
    expect(neighbour(data, rows, 3, "parent")).toBe(0);
    expect(neighbour(data, rows, 0, "child")).toBe(3);
    expect(neighbour(data, rows, 1, "child")).toBe(2);
    expect(neighbour(data, rows, 4, "child")).toBeNull();
    // 210 lies after 200–205: not a child of it.
    expect(neighbour(data, rows, 5, "parent")).toBeNull();
  });
});

describe("a range", () => {
  const outer: Event = [0, 100, 0, 0, 60];
  const data = trace([lane([outer, [10, 20, 1, 1, 20], [50, 20, 1, 1, 20]])], ["step", "work"], 200);
  const rows = data.lanes.map(rowsOf);
  it("adds up self time by name, most first", () => {
    expect(aggregate(data, rows, 0, 200)).toMatchObject([
      { code: 0, count: 1, self: 60, percent: 30 },
      { code: 1, count: 2, self: 40, percent: 20 },
    ]);
  });
  it("counts of a slice that is cut the part inside less its children there", () => {
    // 0–60: the first child whole, ten ticks of the second; 30 are left for the parent.
    expect(aggregate(data, rows, 0, 60)).toMatchObject([
      { code: 1, count: 2, self: 30 },
      { code: 0, count: 1, self: 30 },
    ]);
  });
  it("never gives a cut slice more than its whole self time", () => {
    const thin = trace([lane([[0, 100, 0, 0, 5]])], ["busy below"], 100);
    expect(aggregate(thin, thin.lanes.map(rowsOf), 0, 50)[0]?.self).toBe(5);
  });
  it("leaves out what only touches it, and the lanes of steps", () => {
    expect(aggregate(data, rows, 100, 150)).toEqual([]);
    const steps = trace([lane([outer], { kind: "steps" })], ["step"], 100);
    expect(aggregate(steps, steps.lanes.map(rowsOf), 0, 100)).toEqual([]);
  });
  it("counts the streams of a device, not the ops above them again", () => {
    const gpu = { process: "GPU 0", kind: "device" } as const;
    const device = trace(
      [
        lane([[0, 100, 0, 0]], { ...gpu, name: "Name scope" }),
        lane([[0, 20, 1, 0]], { ...gpu, name: "Stream 19" }),
        lane([[10, 30, 1, 0]], { ...gpu, name: "Stream 20" }),
      ],
      ["scope", "kernel"],
      100,
    );
    const levels = device.lanes.map(rowsOf);
    expect([...repeats(device)]).toEqual([0]);
    expect(aggregate(device, levels, 0, 100)).toMatchObject([{ code: 1, count: 2, self: 50 }]);
    // 0–20 and 10–40 overlap: 40 of 100 ticks are busy.
    expect(idle(device, levels, [0, 1, 2], 0, 100)).toBeCloseTo(60);
    expect(idle(data, rows, [0], 0, 100)).toBeNull();
  });
  it("has one line for different codes that read the same", () => {
    const twins = trace(
      [
        lane([
          [0, 10, 0, 0],
          [20, 10, 2, 0],
          [40, 5, 1, 0],
        ]),
      ],
      ["Sqrt", "Add", "Sqrt"],
      100,
    );
    expect(aggregate(twins, twins.lanes.map(rowsOf), 0, 100)).toMatchObject([
      { code: 0, count: 2, self: 20 },
      { code: 1, count: 1, self: 5 },
    ]);
  });
  it("folds the rest into one line that adds up", () => {
    const shares = [5, 4, 3, 2].map((self, code) => ({ code, count: 1, self, percent: self }));
    expect(fold(shares, 2).rest).toMatchObject({ names: 2, self: 5, count: 2, percent: 5 });
    expect(fold(shares, 3).rest).toBeNull();
    expect(fold(shares, 3).head).toHaveLength(4);
  });
  it("has the covered time of overlapping rows once", () => {
    const levels = rowsOf(
      lane([
        [0, 10, 0, 0],
        [5, 10, 0, 1],
        [30, 10, 0, 0],
      ]),
    );
    expect(covered(levels, 0, 100)).toBe(25);
    expect(covered(levels, 8, 34)).toBe(11);
  });
});

describe("the strip", () => {
  it("has the busy share of each pixel", () => {
    const data = trace(
      [
        lane([
          [0, 250, 0, 0],
          [300, 50, 0, 0],
          [900, 100, 0, 0],
        ]),
      ],
      ["a"],
      1000,
    );
    const busy = strip(data, 10, () => true);
    expect([...busy].map((v) => Number(v.toFixed(3)))).toEqual([1, 1, 0.5, 0.5, 0, 0, 0, 0, 0, 1]);
  });
  it("counts overlapping slices once at most, and only those asked for", () => {
    const data = trace(
      [
        lane([
          [0, 100, 0, 0],
          [0, 100, 1, 1],
        ]),
      ],
      ["a", "b"],
      100,
    );
    expect([...strip(data, 4, () => true)]).toEqual([1, 1, 1, 1]);
    expect([...strip(data, 4, (_, i) => i > 1)]).toEqual([0, 0, 0, 0]);
  });
});

describe("the overview", () => {
  const category = (key: string): number => CATEGORIES.findIndex((each) => each.key === key) + 1;
  it("has input above and the work of the device below", () => {
    const data = trace(
      [
        lane([[0, 50, 0, 0]]),
        lane([[50, 50, 1, 0]], { process: "GPU 0", kind: "device", name: "Stream 7" }),
        lane([[0, 100, 1, 0]], { process: "GPU 0", kind: "device", name: "Name scope" }),
      ],
      ["wait", "kernel"],
      100,
    );
    data.category = Uint8Array.of(category("input"), 0);
    const { above, below, belowIs } = overview(data, 4);
    expect([[...above], [...below], belowIs]).toEqual([[1, 1, 0, 0], [0, 0, 1, 1], "device"]);
  });
  it("has the share of busy threads below where there is no device", () => {
    const data = trace(
      [
        lane([[0, 100, 0, 0]]),
        lane([
          [0, 50, 0, 0],
          [10, 10, 0, 1],
        ]),
      ],
      ["op"],
      100,
    );
    expect(overview(data, 2)).toMatchObject({ below: Float32Array.of(1, 0.5), belowIs: "host" });
  });
});
