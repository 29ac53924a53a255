import { describe, expect, it } from "vitest";
import type { Lane, Trace } from "../lib/payload.js";
import { covered, rowsOf } from "../views/trace/rows.js";
import { SavedAnswers } from "../views/trace/saved/answers.js";
import { foundIn, hitAt, hitsOf, PARTS } from "../views/trace/saved/find.js";
import { repeated, SavedLanes } from "../views/trace/saved/lanes.js";
import { idle, manyInfo, rangeInfo, shares } from "../views/trace/saved/range.js";
import { peers, sliceInfo } from "../views/trace/saved/slice.js";
import { firstIn, neighbour } from "../views/trace/saved/step.js";
import { SavedSource } from "../views/trace/saved.js";
import { type Event, lane, linked, numbered, trace } from "./lanes.js";
import { sample } from "./sample.js";

/** A report of lanes whose ticks are ns. */
function saved(lanes: Lane[], names: string[], end: number, more: Partial<Trace> = {}): SavedLanes {
  const data = { ...trace(numbered(lanes), names, end), tick_ns: 1, ...more };
  const { steps, ops, kernels, input } = sample();
  return new SavedLanes({ trace: data, steps: { ...steps, step: new Int32Array() }, ops, kernels, input });
}

describe("search in a report", () => {
  const data = saved(
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
  const hits = hitsOf(data, "conv2d");

  it("finds part of a name whatever the case, by start over all lanes", () => {
    expect(hits.slices).toEqual([
      { lane: 1, index: 0 },
      { lane: 0, index: 0 },
      { lane: 0, index: 1 },
    ]);
    const found = foundIn(data, hits);
    expect(found).toMatchObject({ count: 3, error: "", where: "" });
    expect(found.strip.reduce((sum, part) => sum + part, 0)).toBe(3);
    expect(found.strip[PARTS / 2]).toBe(1);
  });
  it("takes /…/ as an expression, and a bad one matches nothing and says why", () => {
    expect(hitsOf(data, "/^conv2d$/").slices).toEqual([{ lane: 0, index: 0 }]);
    const bad = hitsOf(data, "/(/");
    expect(bad.slices).toEqual([]);
    expect(foundIn(data, bad).error).not.toBe("");
    expect(hitsOf(data, "").slices).toEqual([]);
  });
  it("says that only what is saved was searched", () => {
    const part = saved([lane([[0, 5, 0, 0]])], ["a"], 10, { shown: 1, total: 90_000 });
    expect(foundIn(part, hitsOf(part, "a")).where).toBe("Searched in the names of the 1 slices saved here, of 90,000.");
  });
  it("knows the longest hit, and the one at or next to a place; none beyond the ends", () => {
    const at = (where: Parameters<typeof hitAt>[2]) => hitAt(data, hits, where).index;
    expect(at({ longest: true })).toBe(2);
    expect([at({ index: 0 }), at({ index: 2 }), at({ index: 3 }), at({ index: -1 })]).toEqual([0, 2, -1, -1]);
    expect([at({ time_ns: 40, by: 1 }), at({ time_ns: 40, by: -1 }), at({ time_ns: 61, by: 1 })]).toEqual([1, 0, -1]);
    const event = data.ref({ lane: 0, index: 0 }).event;
    expect([at({ event, by: 1 }), at({ event, by: -1 })]).toEqual([2, 0]);
    // 70–79 on the device is no hit: from there back to the one before.
    expect(at({ event: data.ref({ lane: 1, index: 1 }).event, by: -1 })).toBe(2);
    expect(hitAt(data, hitsOf(data, "nothing"), { longest: true })).toEqual({ index: -1, slice: null });
  });
  it("compares a slice with those of its name on the same kind of lane", () => {
    expect(peers(data, { lane: 0, index: 1 })).toMatchObject({ count: 1, mean_ns: 9 });
  });
});

it("knows the call of median length where all calls are there", () => {
  const lanes = [
    lane([
      [0, 9, 0, 0],
      [10, 2, 0, 0],
      [20, 4, 0, 0],
      [30, 5, 0, 0],
    ]),
  ];
  const at = { lane: 0, index: 0 };
  expect(peers(saved(lanes, ["a"], 40), at).median).toMatchObject({ start_ns: 20, duration_ns: 4 });
  expect(peers(saved(lanes, ["a"], 40, { shown: 4, total: 9 }), at).median).toBeNull();
});

it("compares a step with those of its own lane only", () => {
  const steps = { kind: "steps" } as const;
  const data = saved(
    [lane([[0, 9, 0, 0]], { ...steps, process: "GPU 0" }), lane([[0, 7, 0, 0]], steps)],
    ["train 1"],
    10,
  );
  expect(peers(data, { lane: 0, index: 0 })).toMatchObject({ count: 1, mean_ns: 9 });
  expect(neighbour(data, { lane: 0, index: 0 }, "next_same")).toBeNull();
});

describe("neighbours", () => {
  const data = saved(
    [
      lane([
        [0, 100, 0, 0],
        [10, 20, 1, 1],
        [12, 2, 2, 2],
        [40, 50, 3, 1],
        [200, 5, 4, 0],
        [210, 1, 5, 1],
      ]),
      lane([[150, 30, 1, 0]], { name: "other" }),
      lane([[5, 1, 1, 0]], { kind: "device" }),
    ],
    ["a", "b", "c", "d", "e", "f"],
    300,
  );
  const from = (index: number, to: Parameters<typeof neighbour>[2]) => neighbour(data, { lane: 0, index }, to);

  it("are before and after on the same level", () => {
    expect(from(1, "next")?.index).toBe(3);
    expect(from(4, "previous")?.index).toBe(0);
    expect(from(0, "previous")).toBeNull();
    expect(from(4, "next")).toBeNull();
  });
  it("are the slice around, and the longest within", () => {
    expect(from(3, "parent")?.index).toBe(0);
    expect(from(0, "child")?.index).toBe(3);
    expect(from(1, "child")?.index).toBe(2);
    expect(from(4, "child")).toBeNull();
    // 210 lies after 200–205: not a child of it.
    expect(from(5, "parent")).toBeNull();
  });
  it("are of the same name on lanes of the same kind, by start", () => {
    expect(from(1, "next_same")).toEqual({ lane: 1, index: 0 });
    expect(neighbour(data, { lane: 1, index: 0 }, "previous_same")).toEqual({ lane: 0, index: 1 });
    expect(neighbour(data, { lane: 1, index: 0 }, "next_same")).toBeNull();
    expect(from(1, "previous_same")).toBeNull();
  });
  it("begin with the first that starts in the window, on the first lane that has one", () => {
    expect(firstIn(data, 140, 290, [1, 0])).toEqual({ lane: 1, index: 0 });
    expect(firstIn(data, 140, 290, [0, 1])).toEqual({ lane: 0, index: 4 });
    // Nothing starts there: then what reaches in.
    expect(firstIn(data, 95, 96, [1, 0])).toEqual({ lane: 0, index: 0 });
    expect(firstIn(data, 130, 140, [0, 1])).toBeNull();
    // What is nearer comes first, also where only something further away starts there.
    expect(firstIn(data, 95, 160, [0, 1])).toEqual({ lane: 0, index: 0 });
    // Inside a slice the first that starts, not the next of the outermost level.
    expect(firstIn(data, 15, 290, [0])).toEqual({ lane: 0, index: 3 });
  });
});

describe("a range of a report", () => {
  const outer: Event = [0, 100, 0, 0, 60];
  const data = saved([lane([outer, [10, 20, 1, 1, 20], [50, 20, 1, 1, 20]])], ["step", "work"], 200);
  const times = (of: SavedLanes, from: number, to: number) =>
    rangeInfo(of, from, to, null).shares.map(({ name, count, self_ns }) => [name, count, self_ns]);

  it("adds up self time by name, most first, and knows the longest", () => {
    const info = rangeInfo(data, 0, 200, null);
    expect(info.shares).toMatchObject([
      { name: "step", count: 1, self_ns: 60, total_ns: 100, percent: 30 },
      { name: "work", count: 2, self_ns: 40, total_ns: 40, percent: 20, longest: { start_ns: 10 } },
    ]);
    expect(info).toMatchObject({ count: 3, others: null, note: "" });
    expect(info.lanes).toEqual([{ lane: 0, busy_ns: 100, percent: 50, count: 3 }]);
  });
  it("counts of a slice that is cut the part inside less its children there", () => {
    // 0–60: the first child whole, ten of the second; 30 are left for the parent.
    expect(times(data, 0, 60)).toEqual([
      ["work", 2, 30],
      ["step", 1, 30],
    ]);
  });
  it("never gives a cut slice more than its whole self time", () => {
    const thin = saved([lane([[0, 100, 0, 0, 5]])], ["busy below"], 100);
    expect(times(thin, 0, 50)).toEqual([["busy below", 1, 5]]);
  });
  it("leaves out what only touches it, and the lanes of steps; what has no length counts where it starts", () => {
    expect(times(data, 100, 150)).toEqual([]);
    const steps = saved([lane([outer], { kind: "steps" })], ["step"], 100);
    expect(times(steps, 0, 100)).toEqual([]);
    const marks = saved([lane([[10, 0, 0, 0]])], ["mark"], 100);
    expect([times(marks, 0, 10), times(marks, 10, 20)]).toEqual([[], [["mark", 1, 0]]]);
  });
  it("counts the streams of a device, not the ops above them again; those that are asked for it does", () => {
    const gpu = { process: "GPU 0", kind: "device" } as const;
    const device = saved(
      [
        lane([[0, 100, 0, 0]], { ...gpu, name: "Name scope" }),
        lane([[0, 20, 1, 0]], { ...gpu, name: "Stream 19" }),
        lane([[10, 30, 1, 0]], { ...gpu, name: "Stream 20" }),
      ],
      ["scope", "kernel"],
      100,
    );
    expect([...repeated(device.lanes)]).toEqual([0]);
    expect(times(device, 0, 100)).toEqual([["kernel", 2, 50]]);
    expect(rangeInfo(device, 0, 100, [0]).shares).toMatchObject([{ name: "scope", self_ns: 100 }]);
    // 0–20 and 10–40 overlap: 40 of 100 are busy.
    expect(idle(device, 0, 100)).toEqual([{ process: "GPU 0", percent: 60 }]);
    expect(idle(data, 0, 100)).toEqual([]);
  });
  it("does not take the recorder for work of the host", () => {
    const host = saved(
      [lane([[0, 100, 0, 0]], { kind: "host", derived: true }), lane([[10, 20, 1, 0]], { kind: "host" })],
      ["PyTorch Profiler (0)", "aten::mm"],
      100,
    );
    expect(times(host, 0, 100)).toEqual([["aten::mm", 1, 20]]);
  });
  it("has one line for different codes that read the same", () => {
    const twins = saved(
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
    expect(times(twins, 0, 100)).toEqual([
      ["Sqrt", 2, 20],
      ["Add", 1, 5],
    ]);
  });
  it("keeps a launch apart from the kernel that is called like it", () => {
    const gpu = lane([[10, 40, 0, 0]], { kind: "device", process: "GPU 0", name: "Stream 1" });
    const both = saved([gpu, lane([[0, 15, 0, 0]])], ["gemm"], 100);
    const rows = [
      { name: "gemm", on: "device", count: 1, self_ns: 40, percent: 100 },
      { name: "gemm", on: "host", count: 1, self_ns: 5, percent: 12.5 },
    ];
    expect(rangeInfo(both, 10, 50, null).shares).toMatchObject(rows);
    expect(manyInfo(both, [0, 1]).shares).toMatchObject([{ on: "device" }, { on: "host" }]);
  });
  it("sums up the names beyond the most that are listed", () => {
    const n = 450;
    const events = Array.from({ length: n }, (_, i): Event => [i * 10, 1 + (i % 7), i, 0]);
    const many = saved(
      [lane(events)],
      events.map((_, i) => `op ${i}`),
      n * 10,
    );
    const info = rangeInfo(many, 0, n * 10, null);
    const listed = info.shares.reduce((sum, share) => sum + share.self_ns, 0);
    expect(info.others?.names).toBe(n - info.shares.length);
    expect(listed + (info.others?.self_ns ?? 0)).toBe(
      shares(many, [0], 0, n * 10).reduce((sum, s) => sum + s.self_ns, 0),
    );
    expect(info.shares.length + (info.others?.count ?? 0)).toBe(n);
  });
  it("counts in ns whatever a tick is", () => {
    const coarse = saved([lane([[1, 3, 0, 0]])], ["a"], 10, { tick_ns: 4 });
    expect(rangeInfo(coarse, 0, 8, null).shares).toMatchObject([{ self_ns: 4, total_ns: 4, percent: 50 }]);
    expect(coarse.ref({ lane: 0, index: 0 })).toMatchObject({ start_ns: 4, duration_ns: 12 });
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
  it("of several slices is their numbers in whole", () => {
    const info = manyInfo(data, [1, 2]);
    expect(info).toMatchObject({ from: 10, to: 70, count: 2 });
    expect(info.shares).toMatchObject([{ name: "work", count: 2, self_ns: 40, total_ns: 40 }]);
  });
});

describe("the details of a saved slice", () => {
  const { steps, ops, kernels, input } = sample();
  const start = (steps.start_ms[1] as number) * 1e6;
  const names = ["outer", "inner"];
  const lanes = numbered([
    lane([
      [start + 1000, 500, 0, 0, 400],
      [start + 1100, 100, 1, 1],
    ]),
  ]);
  const category = Uint8Array.of(0, 6);
  const data = new SavedLanes({
    trace: { ...trace(lanes, names, start + 5000), tick_ns: 1, category },
    steps,
    ops,
    kernels,
    input,
  });

  it("are what the lanes and steps say, and nothing that a report does not hold", () => {
    expect(sliceInfo(data, 1)).toMatchObject({
      full_name: "inner",
      process: "Host",
      thread: "main",
      self_ns: 100,
      same: { count: 1, mean_ns: 100, median: { event: 1 } },
      parent: { event: 0, name: "outer" },
      step: steps.name[1] || String(steps.step[1]),
      category: "input",
      launch: null,
      args: [],
      arrows: [],
      row: null,
    });
    expect(sliceInfo(data, 99)).toBeNull();
  });
  it("have the step at their time where the origin lies before the profile", () => {
    const shifted = { ...trace(lanes, names, start + 5000), tick_ns: 1, category, origin_ns: -5e9 };
    const moved = new SavedLanes({ trace: shifted, steps, ops, kernels, input });
    expect(sliceInfo(moved, 1)?.step).toBe("");
  });
});

describe("where a link leads in a report", () => {
  const { steps, ops, kernels, input } = sample();
  const text = (values: string[]) => values;
  const table = (more: object) => ({
    ...ops,
    table: {
      columns: [],
      rows: 2,
      data: {
        op: text(["a/Conv2D", "b/MatMul"]),
        type: text(["Conv2D", "MatMul"]),
        ...more,
      },
    },
  });
  const lanes = numbered([
    lane(
      [
        [0, 900, 0, 0],
        [2000, 500, 1, 0],
        [2000, 500, 2, 1],
        [5000, 300, 1, 0],
      ],
      { kind: "host" },
    ),
  ]);
  const of = trace(lanes, ["other", "Conv2D", "nested"], 10_000);
  const answers = (more: object, extra: Partial<Trace> = {}) =>
    new SavedAnswers({ trace: { ...of, ...extra }, steps, ops: table(more), kernels, input });

  it("is the longest call, where the table tells its time", async () => {
    const times = { _at_ms: Float64Array.of(5, 2), _for_ms: Float64Array.of(0.3, 0.5) };
    // Ticks of 1 µs: 5 ms is tick 5000, and shorter than the one at 2000.
    const found = await answers(times).locate({ kind: "op", name: "a/Conv2D" });
    expect(found).toMatchObject({ from: 5e6, to: 5.3e6, slice: { event: 3 } });
    // The call itself is not saved: its range is.
    const gone = await answers({ _at_ms: Float64Array.of(7, 2), _for_ms: Float64Array.of(1, 1) }).locate({
      kind: "op",
      name: "a/Conv2D",
    });
    expect(gone).toMatchObject({ from: 7e6, to: 8e6, slice: null });
  });
  it("is else the longest slice of what it may be called", async () => {
    const found = await answers({}).locate({ kind: "op", name: "a/Conv2D" });
    expect(found?.slice).toMatchObject({ event: 1, name: "Conv2D" });
    expect(await answers({}).locate({ kind: "op", name: "c/Softmax" })).toBeNull();
  });
  it("is of slices as long the one of the name", async () => {
    const times = { _at_ms: Float64Array.of(2, 0), _for_ms: Float64Array.of(0.5, 0) };
    expect((await answers(times).locate({ kind: "op", name: "a/Conv2D" }))?.slice?.name).toBe("Conv2D");
  });
  it("is one of the name that starts there, where the device has a clock of its own", async () => {
    const times = { _at_ms: Float64Array.of(5, 0), _for_ms: Float64Array.of(0.1, 0) };
    const found = await answers(times).locate({ kind: "op", name: "a/Conv2D" });
    expect(found).toMatchObject({ from: 5e6, to: 5.3e6, slice: { event: 3 } });
    expect(found?.text).toBe("The longest call of a/Conv2D, 100.0 µs by the device's own clock.");
  });
  it("counts from the origin", async () => {
    const times = { _at_ms: Float64Array.of(4, 2), _for_ms: Float64Array.of(0.3, 0.5) };
    const found = await answers(times, { origin_ns: -1e6 }).locate({ kind: "op", name: "a/Conv2D" });
    expect(found).toMatchObject({ from: 5e6, slice: { event: 3 } });
  });
  it("is a step, or a gap of a device", async () => {
    const i = 2;
    const found = await answers({}).locate({ kind: "step", step: steps.step[i] as number });
    expect(found?.from).toBeCloseTo((steps.start_ms[i] as number) * 1e6);
    expect((found?.to ?? 0) - (found?.from ?? 0)).toBeCloseTo((steps.step_time_ms[i] as number) * 1e6);
    expect(await answers({}).locate({ kind: "step", step: -99 })).toBeNull();
    const gaps = {
      process: { codes: Uint8Array.of(0, 1), values: ["GPU 0", "GPU 1"] },
      start: Float64Array.of(3e6, 6e6),
      duration: Float64Array.of(1e6, 5e5),
    };
    const gap = await answers({}, { gaps }).locate({ kind: "gap", device: "GPU 1" });
    expect(gap).toMatchObject({ from: 6e6, to: 6.5e6, slice: null });
    expect(await answers({}, { gaps }).locate({ kind: "gap", time_ms: 3.5 })).toMatchObject({ from: 3e6 });
  });
});

describe("what belongs together in a report", () => {
  const op: Event[] = [
    [0, 50, 0, 0],
    [10, 5, 1, 1],
    [12, 3, 1, 2],
  ];
  const work: Event[] = [
    [40, 20, 2, 0],
    [80, 20, 2, 0],
    [120, 20, 2, 0],
  ];
  const names = ["op", "launch", "kernel", "net/MatMul"];
  const links = linked(
    [
      [0, 1, 3],
      [0, 2, 3],
      [1, 0, 1],
      [2, 0, 99],
    ],
    { work: Uint32Array.of(4), on: Uint8Array.of(0), delay: Int32Array.of(-7) },
  );
  const data = saved(
    [lane(op), lane(work, { kind: "device", process: "GPU 0", op: Uint8Array.of(4, 0, 0) })],
    names,
    200,
    { links, tick_ns: 2, lacks: ["stacks"] },
  );
  const arrows = (event: number) =>
    sliceInfo(data, event)?.arrows.map(({ kind, from, to }) => [kind, from.event, to.event]);

  it("is told of both ends, without what is not here", () => {
    expect(arrows(3)).toEqual([
      ["launch", 1, 3],
      ["launch", 2, 3],
    ]);
    expect(arrows(2)).toEqual([["launch", 2, 3]]);
    expect(arrows(0)).toEqual([["producer", 0, 1]]);
    expect(arrows(5)).toEqual([]);
  });
  it("is the last launch of a kernel, and how much later it ran", () => {
    expect(sliceInfo(data, 3)?.launch).toMatchObject({ slice: { event: 2, lane: 0 }, delay_ns: 56 });
    expect(sliceInfo(data, 2)?.launch).toBeNull();
  });
  it("is the lane of a launch that is left out", () => {
    expect(sliceInfo(data, 4)?.launch).toEqual({ slice: null, lane: 0, delay_ns: -14 });
    expect(sliceInfo(data, 5)?.launch).toBeNull();
  });
  it("is the op of a kernel", () => {
    expect([3, 4].map((event) => sliceInfo(data, event)?.op)).toEqual(["net/MatMul", ""]);
  });
  it("says what is not here", () => {
    expect(new SavedSource(data.payload).lacks).toEqual(["stacks"]);
  });
});
