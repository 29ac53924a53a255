import { describe, expect, it, vi } from "vitest";
import type { Lane, Payload, Steps, Trace } from "../lib/payload.js";
import { candidates } from "../views/trace/ask.js";
import { coverage } from "../views/trace/connect.js";
import { comparison } from "../views/trace/info/words.js";
import { Model } from "../views/trace/model.js";
import { tableOf } from "../views/trace/saved/slice.js";
import { stepAt } from "../views/trace/saved/steps.js";
import type { SliceRef } from "../views/trace/source.js";
import { sliceUnder } from "../views/trace/under.js";
import { stepsRange } from "../views/trace/view.js";
import { nothingElse, numbered } from "./lanes.js";
import { sourceOf } from "./saved-source.js";

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
    event: Uint32Array.from(starts.keys()),
    folded: false,
    derived: false,
    ...more,
  };
}

const data: Trace = {
  empty: null,
  ...nothingElse(),
  tick_ns: 1,
  end: 10_000,
  names: ["forward", "backward"],
  category: new Uint8Array(2),
  lanes: numbered([
    lane([0, 1000, 5000, 9000], [500, 500, 2000, 100], [0, 0, 0, 0]),
    lane([100, 100], [50, 20], [0, 1], { folded: true, name: "idle thread" }),
    lane([4000], [10], [0], { folded: true, name: "other idle thread" }),
  ]),
  shown: 7,
  total: 7,
};

const modelOf = (now?: () => number): Model => new Model(sourceOf(data), now);

/** A slice of the trace, as it is selected. */
async function ref(event: number): Promise<SliceRef> {
  const info = await sourceOf(data).slice(event);
  if (!info) throw new Error("no such slice");
  return info.slice;
}

describe("a host or device that is chosen", () => {
  const at = (host: string, device?: number): Partial<Lane> => ({
    host,
    process: `${host} · ${device === undefined ? "Host" : `GPU ${device}`}`,
    ...(device !== undefined && { device }),
  });
  const several: Trace = {
    ...data,
    lanes: numbered([
      lane([0, 1000], [500, 500], [0, 0], at("a")),
      lane([5000], [2000], [0], at("a", 0)),
      lane([6000], [100], [0], at("a", 1)),
      lane([7000], [100], [0], at("b")),
      lane([8000], [100], [0], { process: "All" }),
    ]),
  };
  const shown = (model: Model): number[] => model.bands.flatMap((band) => (band.kind === "lane" ? [band.lane] : []));

  it("leaves its lanes, those of its host and those of none, and sums up over them", () => {
    const model = new Model(sourceOf(several));
    expect([shown(model), model.lanesChosen]).toEqual([[0, 1, 2, 3, 4], null]);
    model.choose({ host: "a", device: null });
    expect([shown(model), model.lanesChosen]).toEqual([
      [0, 1, 2, 4],
      [0, 1, 2, 4],
    ]);
    model.choose({ host: "a", device: 1 });
    expect(shown(model)).toEqual([0, 2, 4]);
    model.choose({ host: "c", device: null });
    expect(shown(model)).toEqual([4]);
  });
  it("gives way to a slice of another one that is asked for", async () => {
    const source = sourceOf(several);
    const model = new Model(source);
    model.choose({ host: "b", device: null });
    const there = (await source.slice(2))?.slice as SliceRef;
    model.select(there, true);
    expect(model.chosen).toEqual({ host: "a", device: null });
    expect(model.placeOf(there)).not.toBeNull();
  });
});

describe("the model", () => {
  it("steps through hits from the left edge of the window, around the end, and back", async () => {
    const model = modelOf();
    model.setSpan({ from: 900, to: 2000 });
    await model.find("forward");
    expect(model.found?.count).toBe(4);
    const seen: unknown[] = [];
    for (const by of [1, 1, 1, -1] as const) {
      await model.step(by);
      seen.push([model.selected?.event, model.hit]);
    }
    // Events 0 and 2 on the first lane, 4 and 6 on the threads.
    expect(seen).toEqual([
      [6, 2],
      [2, 3],
      [0, 0],
      [2, 3],
    ]);
  });

  it("numbers a hit that was selected by hand, and goes on from there", async () => {
    const model = modelOf();
    await model.find("forward");
    const settle = () => vi.waitFor(() => expect(model.hit).toBeGreaterThanOrEqual(0));
    model.select(await ref(6));
    await settle();
    expect(model.hit).toBe(2);
    await model.step(1);
    expect([model.selected?.event, model.hit]).toEqual([2, 3]);
    // Between the hits: the next one after it, and none of the window's left edge.
    model.select(await ref(5));
    await model.step(-1);
    expect(model.hit).toBe(1);
    // The last has none behind it.
    model.select(await ref(2));
    await settle();
    expect(model.hit).toBe(3);
    // A search for what is selected knows which one it is.
    await model.find("");
    await model.find("forward");
    await settle();
    expect(model.hit).toBe(3);
  });

  it("brings a hit into view: out of the folded threads and into the window", async () => {
    const model = modelOf();
    model.setSpan({ from: 8000, to: 8500 });
    const slice = await ref(6);
    expect(model.placeOf(slice)).toBeNull();
    model.select(slice, true);
    expect(model.placeOf(slice)).not.toBeNull();
    expect(model.span.from).toBeLessThan(4000);
    expect(model.span.to).toBeGreaterThan(4010);
    expect(model.span.to - model.span.from).toBe(500);
  });

  it("moves to what is folded away where nothing else is in the window", async () => {
    const model = modelOf();
    for (const band of [...model.bands]) if (band.kind === "process") model.toggle(band);
    await model.move("next");
    expect(model.selected?.event).toBe(0);
    expect(model.placeOf(model.selected as SliceRef)).not.toBeNull();
    model.select(null);
    model.setSpan({ from: 3990, to: 4020 });
    await model.move("next");
    expect(model.selected?.event).toBe(6);
  });

  it("orders and cuts a range, and drops an empty one", () => {
    const model = modelOf();
    model.setRange({ from: 500, to: -100 });
    expect(model.range).toEqual({ from: 0, to: 500 });
    model.setRange({ from: 500, to: 500 });
    expect(model.range).toBeNull();
  });

  it("finds the slice under a point by band, level and time", () => {
    const model = modelOf();
    // Ruler of 20 px, heading of 19, then the lane.
    expect(sliceUnder(model, 60, 20 + 19 + 8, 100, 0)).toMatchObject({ event: 2, lane: 0, depth: 0, count: 1 });
    expect(sliceUnder(model, 60, 20 + 8, 100, 11)).toMatchObject({ event: 2 });
    expect(sliceUnder(model, 30, 20 + 19 + 8, 100, 0)).toBeNull();
    expect(sliceUnder(model, 60, 20 + 5, 100, 0)).toBeNull();
  });

  it("selects several slices and fits them all", async () => {
    const model = modelOf();
    model.select(await ref(1));
    model.select(await ref(2), false, true);
    expect(model.selection.map((slice) => slice.event)).toEqual([1, 2]);
    expect(model.selected?.event).toBe(2);
    model.fit();
    expect(model.span).toEqual({ from: 250, to: 7750 });
  });

  it("goes back and forth between windows: a movement of the hand is one step", () => {
    let now = 0;
    const model = modelOf(() => now);
    const spans = [model.span];
    for (let i = 0; i < 5; i++, now += 16) model.zoomBy(1.1);
    spans.push(model.span);
    now += 2000;
    for (let i = 0; i < 5; i++, now += 16) model.panBy(0.1);
    const last = model.span;
    model.undo();
    expect(model.span).toEqual(spans[1]);
    model.undo();
    expect(model.span).toEqual(spans[0]);
    model.undo();
    expect(model.span).toEqual(spans[0]);
    model.redo();
    model.redo();
    expect(model.span).toEqual(last);
  });

  it("keeps a pinned lane at the top and takes it out of its place", async () => {
    const model = modelOf();
    model.pin(0);
    expect(model.placeOf(await ref(2))).toMatchObject({ pinned: true });
    expect(model.bands.some((band) => band.kind === "lane" && band.lane === 0)).toBe(false);
    expect(sliceUnder(model, 60, 20 + 8, 100, 500)).toMatchObject({ event: 2 });
    model.pin(0);
    expect(model.placeOf(await ref(2))).toMatchObject({ pinned: false });
  });

  it("filters lanes, and shows those it finds out of the folded ones", async () => {
    const model = modelOf();
    expect(model.filterLanes("other")).toBe("");
    expect(model.bands.flatMap((band) => (band.kind === "lane" ? [band.lane] : []))).toEqual([2]);
    expect(model.filterLanes("/(/")).not.toBe("");
    expect(model.laneFilter).toBe("other");
    expect(modelOf().filterLanes("nowhere")).toContain("No lane");
    // A slice that is asked for is shown, whatever the filter.
    model.select(await ref(0), true);
    expect(model.placeOf(await ref(0))).not.toBeNull();
    expect(model.laneFilter).toBe("");
  });
});

describe("words", () => {
  const steps = {
    step: Int32Array.of(7, 8, 9),
    name: ["", "train 8", ""],
    start_ms: Float64Array.of(0, 10, 20),
    step_time_ms: Float64Array.of(10, 9, 10),
  } as unknown as Steps;

  it("name the step that runs at a time", () => {
    expect([stepAt(steps, 0), stepAt(steps, 12), stepAt(steps, 19.5), stepAt(steps, 30)]).toEqual([
      "7",
      "train 8",
      "",
      "",
    ]);
  });
  it("give the time of the selected steps", () => {
    expect(stepsRange(steps, { first: 8, last: 9 })).toEqual([10, 30]);
    expect(stepsRange(steps, { first: 80, last: 90 })).toBeNull();
    expect(stepsRange(steps, null)).toBeNull();
  });
  it("compare with the mean", () => {
    expect(comparison(110, 100, 21)).toBe("10.0% over the mean of 21");
    expect(comparison(90, 100, 2)).toBe("10.0% under the mean of 2");
    expect(comparison(46 * 90, 90, 22_777)).toBe("46× the mean of 22,777");
    expect(comparison(225, 90, 3)).toBe("2.5× the mean of 3");
    expect(comparison(90, 90, 1)).toBe("the only one");
  });
  it("say when events are left out", () => {
    const part = { shown: 12_000, total: 250_000 };
    expect(coverage(part, false)).toBe("Saved: 12,000 of 250,000 events, the longest of each track.");
    expect(coverage(part, true)).toContain("the rest is faded");
    expect(coverage({ shown: 9, total: 9 }, true)).toBe("All 9 events.");
    expect(coverage({ shown: 9, total: 9 }, true, 7)).toBe("All 9 events, 2 of them derived.");
    expect(coverage({ shown: 4, total: 9 }, false, 7)).toContain("4 of 9 events (2 derived), the longest");
    expect(coverage({ shown: 9, total: 9 }, true, 9)).toBe("All 9 events.");
    expect(coverage({ shown: 1, total: 1 }, true)).toBe("The only event.");
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
