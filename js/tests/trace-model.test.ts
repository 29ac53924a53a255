import { describe, expect, it, vi } from "vitest";
import type { Lane, Payload, Steps, Trace } from "../lib/payload.js";
import { candidates } from "../views/trace/ask.js";
import { comparison, stepAt, tableOf } from "../views/trace/details.js";
import { press } from "../views/trace/keys.js";
import { Model } from "../views/trace/model.js";
import { sliceUnder } from "../views/trace/pointer.js";
import { coverage, stepsRange } from "../views/trace.js";
import { nothingElse } from "./lanes.js";

function lane(starts: number[], durations: number[], depths: number[], more: Partial<Lane> = {}): Lane {
  return {
    process: "Host",
    name: "main",
    note: "",
    id: 0,
    kind: "host",
    events: starts.length,
    depths: Math.max(...depths) + 1,
    start: Uint32Array.from(starts),
    duration: Uint32Array.from(durations),
    name_code: Uint8Array.from(starts, (_, i) => i % 2),
    depth: Uint8Array.from(depths),
    self: Uint32Array.from(durations),
    event: Uint32Array.from(starts.keys()),
    folded: false,
    derived: false,
    ...more,
  };
}

const data: Trace = {
  empty: null,
  ...nothingElse(),
  tick_ns: 1000,
  end: 10_000,
  names: ["forward", "backward"],
  category: new Uint8Array(2),
  lanes: [
    lane([0, 1000, 5000, 9000], [500, 500, 2000, 100], [0, 0, 0, 0]),
    lane([100, 100], [50, 20], [0, 1], { folded: true, name: "idle thread" }),
    lane([4000], [10], [0], { folded: true, name: "other idle thread" }),
  ],
  shown: 7,
  total: 7,
};

describe("the model", () => {
  it("steps through hits from the left edge of the window, around the end, and back", () => {
    const model = new Model(data);
    model.setSpan({ from: 900, to: 2000 });
    model.find("forward");
    expect(model.hits.slices).toHaveLength(4);
    model.step(1);
    expect(model.selected).toEqual({ lane: 2, index: 0 });
    model.step(1);
    expect(model.selected).toEqual({ lane: 0, index: 2 });
    model.step(1);
    expect(model.selected).toEqual({ lane: 0, index: 0 });
    model.step(-1);
    expect(model.selected).toEqual({ lane: 0, index: 2 });
    expect(model.hitAt).toBe(3);
  });

  it("brings a hit into view: out of the folded threads and into the window", () => {
    const model = new Model(data);
    model.setSpan({ from: 8000, to: 8500 });
    expect(model.placeOf({ lane: 2, index: 0 })).toBeNull();
    model.select({ lane: 2, index: 0 }, true);
    expect(model.placeOf({ lane: 2, index: 0 })).not.toBeNull();
    expect(model.span.from).toBeLessThan(4000);
    expect(model.span.to).toBeGreaterThan(4010);
    expect(model.span.to - model.span.from).toBe(500);
  });

  it("selects the longest hit of a link", () => {
    const model = new Model(data);
    expect(model.findLongest(["no such name", "forward", "backward"])).toBe("forward");
    expect(model.selected).toEqual({ lane: 0, index: 2 });
    expect(model.findLongest(["no such name"])).toBe("no such name");
    expect(model.hits.slices).toEqual([]);
  });

  it("knows how many hits a part of a row has", () => {
    const model = new Model(data);
    const row = model.rows[0]?.[0];
    if (!row) throw new Error("no row");
    expect(model.hitsIn(0, row, 0, 4)).toBe(0);
    model.find("backward");
    expect(model.hitsIn(0, row, 0, 4)).toBe(2);
    expect(model.hitsIn(0, row, 2, 3)).toBe(0);
    model.find("forward");
    expect(model.hitsIn(0, row, 2, 3)).toBe(1);
  });

  it("orders and cuts a range, and drops an empty one", () => {
    const model = new Model(data);
    model.setRange({ from: 500, to: -100 });
    expect(model.range).toEqual({ from: 0, to: 500 });
    model.setRange({ from: 500, to: 500 });
    expect(model.range).toBeNull();
  });

  it("finds the slice under a point by band, level and time", () => {
    const model = new Model(data);
    // Heading of 19 px, then the lane.
    expect(sliceUnder(model, 60, 19 + 8, 100)).toEqual({ lane: 0, index: 2 });
    expect(sliceUnder(model, 30, 19 + 8, 100)).toBeNull();
    expect(sliceUnder(model, 60, 5, 100)).toBeNull();
  });
});

describe("keys", () => {
  const target = (model: Model) => ({ model, share: () => 0.5, focusSearch: vi.fn(), toggleHelp: vi.fn() });

  it("zoom, pan, fit and mark", () => {
    const model = new Model(data);
    const keys = target(model);
    expect(press("w", false, keys)).toBe(true);
    const zoomed = model.span.to - model.span.from;
    expect(zoomed).toBeCloseTo(10_000 / 1.3);
    const left = model.span.from;
    press("A", false, keys);
    expect(model.span.from).toBeLessThan(left);
    press("0", false, keys);
    expect(model.span).toEqual({ from: 0, to: 10_000 });
    model.select({ lane: 0, index: 2 });
    press("m", false, keys);
    expect(model.range).toEqual({ from: 5000, to: 7000 });
    press("f", false, keys);
    expect(model.span).toEqual({ from: 4750, to: 7250 });
  });

  it("lets go with Escape, and leaves Escape to the dashboard when nothing is held", () => {
    const model = new Model(data);
    model.select({ lane: 0, index: 0 });
    model.markSelected();
    expect(press("Escape", false, target(model))).toBe(true);
    expect([model.selected, model.range]).toEqual([null, null]);
    expect(press("Escape", false, target(model))).toBe(false);
  });

  it("leaves keys of the notebook alone", () => {
    for (const key of ["x", "Enter", "Tab", "j", "1"]) expect(press(key, false, target(new Model(data)))).toBe(false);
  });
});

describe("words", () => {
  const steps = {
    step: Int32Array.of(7, 8, 9),
    start_ms: Float64Array.of(0, 10, 20),
    step_time_ms: Float64Array.of(10, 9, 10),
  } as unknown as Steps;

  it("name the step that runs at a time", () => {
    expect([stepAt(steps, 0), stepAt(steps, 12), stepAt(steps, 19.5), stepAt(steps, 30)]).toEqual([7, 8, null, null]);
  });
  it("give the time of the selected steps", () => {
    expect(stepsRange(steps, { first: 8, last: 9 })).toEqual([10, 30]);
    expect(stepsRange(steps, { first: 80, last: 90 })).toBeNull();
    expect(stepsRange(steps, null)).toBeNull();
  });
  it("compare with the mean", () => {
    expect(comparison(110, 100, 21)).toBe("10.0% over the mean of 21");
    expect(comparison(90, 100, 2)).toBe("10.0% under the mean of 2");
    expect(comparison(90, 90, 1)).toBe("the only one");
  });
  it("say when events are left out", () => {
    expect(coverage({ ...data, shown: 12_000, total: 250_000 })).toMatch(
      /^12,000 of 250,000 events are in this report/,
    );
    expect(coverage({ ...data, shown: 9, total: 9 })).toBe("9 events.");
  });
});

describe("links to and from other views", () => {
  const payload = {
    kernels: {
      table: {
        rows: 3,
        columns: [],
        data: {
          op: ["a/Conv2D", "a/Conv2D", "b"],
          kernel: ["pad", "gemm", "copy"],
          total_us: Float64Array.of(1, 9, 99),
        },
      },
    },
    ops: { table: { rows: 2, columns: [], data: { op: ["a/Conv2D", "Get/_1"], type: ["_FusedConv2D", "_Send"] } } },
  } as unknown as Payload;
  it("looks for the op, then its kernels, then its type and the end of its name", () => {
    expect(candidates(payload, "a/Conv2D")).toEqual(["a/Conv2D", "gemm", "pad", "_FusedConv2D", "Conv2D"]);
    expect(candidates(payload, "Get/_1")).toEqual(["Get/_1", "_Send", "Get"]);
    const long = "void kernel<".padEnd(900, "x");
    expect(candidates(payload, long)[0]).toHaveLength(600);
    expect(candidates(payload, "Iterator::Root::Zip[0]")).toContain("Iterator::Zip");
  });
  it("go back to the table that lists the slice", () => {
    expect(tableOf(payload, "gemm", "device")).toBe("kernels");
    expect(tableOf(payload, "gemm", "host")).toBeNull();
    expect(tableOf(payload, "_Send", "host")).toBe("ops");
    expect(tableOf(payload, "a/Conv2D", "device")).toBe("ops");
  });
});
