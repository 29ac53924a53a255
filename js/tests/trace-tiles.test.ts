import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Asker, Reply, Request } from "../lib/wire.js";
import { LiveSource, levelOf } from "../views/trace/live.js";
import { Model } from "../views/trace/model.js";
import type { Rows, Sink } from "../views/trace/source.js";
import { type Block, Tiles, tileLength } from "../views/trace/tiles.js";
import { lane, trace } from "./lanes.js";
import { sourceOf } from "./saved-source.js";

const block = (bytes: number): Block => ({
  marks: {
    start: new Float32Array(),
    end: new Float32Array(),
    event: new Uint32Array(),
    name: new Uint32Array(),
    fill: new Uint8Array(),
    count: new Uint32Array(),
    busy: new Uint8Array(),
    hit: new Uint8Array(),
  },
  samples: {
    t: new Float32Array(),
    low: new Float64Array(),
    high: new Float64Array(),
    last: new Float64Array(),
    mean: new Float64Array(),
  },
  bytes,
  query: "",
  used: 0,
  keys: [],
});

describe("tiles that are kept", () => {
  const put = (tiles: Tiles, level: number, at: number, bytes = 10): Block => {
    const own = block(bytes);
    tiles.put(1, level, at, { block: own, first: 0, count: 0 });
    tiles.add(own);
    return own;
  };
  const best = (tiles: Tiles, level: number, at: number): [number, number][] => {
    const found: [number, number][] = [];
    tiles.best(1, level, at, (_, own, place) => found.push([own, place]));
    return found;
  };

  it("stand in for what is not here: both halves, else the nearest that it is part of", () => {
    const tiles = new Tiles();
    expect(best(tiles, 3, 5)).toEqual([]);
    put(tiles, 6, 0);
    expect(best(tiles, 3, 5)).toEqual([[6, 0]]);
    put(tiles, 4, 2);
    expect(best(tiles, 3, 5)).toEqual([[4, 2]]);
    put(tiles, 2, 10);
    expect(best(tiles, 3, 5)).toEqual([[4, 2]]);
    put(tiles, 2, 11);
    expect(best(tiles, 3, 5)).toEqual([
      [2, 10],
      [2, 11],
    ]);
    put(tiles, 3, 5);
    expect(best(tiles, 3, 5)).toEqual([[3, 5]]);
  });

  it("go when there are too many bytes, those first that were not looked at for longest", () => {
    const tiles = new Tiles(25);
    put(tiles, 0, 0);
    put(tiles, 0, 1);
    const first = tiles.get(1, 0, 0);
    if (first) tiles.touch(first);
    put(tiles, 0, 2);
    expect([0, 1, 2].map((at) => tiles.get(1, 0, at) !== undefined)).toEqual([true, false, true]);
    expect(tiles.bytes).toBe(20);
  });
});

/** One slice of 100 ns at 1000 ns on lane 0, a counter of 7 on lane 1, as Python would answer. */
class Python implements Asker {
  readonly state = "live";
  readonly reason = "";
  readonly asked: Request[] = [];
  hold: (() => void)[] | null = null;

  constructor(private readonly said: Reply = {}) {}

  onState(): void {}

  async ask(request: Request, signal?: AbortSignal): Promise<Reply> {
    this.asked.push(request);
    if (request.ask === "open") {
      const head = { process: "Host", note: "", folded: false, derived: false, depths: 1, events: 1 };
      const lanes = [
        { ...head, id: 0, name: "main", kind: "host" },
        { ...head, id: 1, name: "memory", kind: "counter" },
      ];
      const strip = { above: new Uint8Array(4), below: new Uint8Array(4), below_is: "host" };
      return { key: "5-ab", version: "", lanes, end_ns: 1e6, total: 1, strip, notes: ["Derived."], ...this.said };
    }
    if (this.hold) {
      const { hold } = this;
      await new Promise<void>((resolve, reject) => {
        hold.push(resolve);
        signal?.addEventListener("abort", () => reject(new Error("gone")));
      });
    }
    const level = request["level"] as number;
    const length = tileLength(level);
    const [row] = request["want"] as [number, number, number, number, number][];
    const tile = Math.floor(1000 / length);
    const here = row?.[0] === 0 && row[3] <= tile && tile <= row[4];
    const some = here ? 1 : 0;
    const counter = row?.[0] === 1 ? [row[3]] : [];
    return {
      rows: { lane: [0], depth: [0], tile: [tile], first: [0], count: [some] },
      start: Float32Array.of(1000 - tile * length),
      end: Float32Array.of(1100 - tile * length),
      event: Uint32Array.of(42),
      name: Uint8Array.of(3),
      fill: Uint8Array.of(104),
      count: Uint16Array.of(1),
      busy: Uint8Array.of(255),
      hit: Uint8Array.from(request["query"] ? [1] : []),
      names: { 3: "void gemm<float>(int)" },
      counters: {
        lane: counter.map(() => 1),
        tile: counter,
        t: Float32Array.from(counter, () => 0),
        low: Float64Array.from(counter, () => 7),
        high: Float64Array.from(counter, () => 7),
        last: Float64Array.from(counter, () => 7),
        mean: Float64Array.from(counter, () => Number.NaN),
      },
    };
  }
}

const saved = (key = "5-ab") => {
  const counter = lane([], { id: 1, name: "memory", kind: "counter", events: 1, depths: 1, unit: "bytes" });
  const lanes = [lane([[1, 1, 0, 0]]), { ...counter, time: Float64Array.of(0), value: Float64Array.of(5) }];
  return sourceOf({ ...trace(lanes, ["kept"], 1000), key, total: 1 });
};
const MAIN: Rows[] = [{ lane: 0, depth: 0, depth_to: 0 }];

function marksOf(
  source: LiveSource,
  from: number,
  to: number,
  pixels: number,
): [event: number, name: string, hit: boolean][] {
  const found: [number, string, boolean][] = [];
  const sink: Sink = {
    clip: () => {},
    rest: () => {},
    mark: (_start, _end, event, name, _fill, _count, _busy, hit) =>
      found.push([event, source.label(name, 0, event), hit]),
  };
  source.visit(0, 0, from, to, pixels, sink);
  return found;
}

describe("a live source", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());
  const open = async (python: Python): Promise<LiveSource> =>
    LiveSource.open(python, saved(), new AbortController().signal);

  it("draws what was saved until the tiles are there, and then those", async () => {
    const python = new Python();
    const source = await open(python);
    const more = vi.fn();
    source.onMore(more);
    expect(marksOf(source, 0, 4096, 1024)).toEqual([[0, "kept", false]]);
    source.want(MAIN, [], 0, 4096, 1024);
    await vi.advanceTimersByTimeAsync(1);
    expect(more).toHaveBeenCalled();
    expect(marksOf(source, 0, 4096, 1024)).toEqual([[42, "gemm", false]]);
    expect(python.asked.at(-1)).toEqual({ ask: "tiles", level: 2, want: [[0, 0, 0, 0, 1]], query: null });
  });

  it("asks for what is missing once, and for what lies beside it when the view rests", async () => {
    const python = new Python();
    const source = await open(python);
    source.want(MAIN, [], 8192, 12_288, 1024);
    source.want(MAIN, [], 8192, 12_288, 1024);
    await vi.advanceTimersByTimeAsync(1);
    source.want(MAIN, [], 8192, 12_288, 1024);
    await vi.advanceTimersByTimeAsync(50);
    expect(python.asked.filter(({ ask }) => ask === "tiles")).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(300);
    expect(python.asked.slice(2)).toEqual([{ ask: "tiles", level: 2, want: [[0, 0, 0, 3, 6]], query: null }]);
  });

  it("waits for an answer before it asks more, unless that is long in coming", async () => {
    const python = new Python();
    const source = await open(python);
    const asked = (): number => python.asked.filter(({ ask }) => ask === "tiles").length;
    python.hold = [];
    source.want(MAIN, [], 0, 4096, 1024);
    source.want(MAIN, [], 2048, 6144, 1024);
    await vi.advanceTimersByTimeAsync(60);
    source.want(MAIN, [], 2048, 6144, 1024);
    expect(asked()).toBe(1);
    await vi.advanceTimersByTimeAsync(60);
    source.want(MAIN, [], 2048, 6144, 1024);
    expect(asked()).toBe(2);
    // Two at a time are enough.
    await vi.advanceTimersByTimeAsync(500);
    source.want(MAIN, [], 4096, 8192, 1024);
    expect(asked()).toBe(2);
    for (const answer of python.hold.splice(0)) answer();
    await vi.advanceTimersByTimeAsync(1);
    source.want(MAIN, [], 4096, 8192, 1024);
    expect(asked()).toBe(3);
    expect(python.asked.slice(1).map((request) => request["want"])).toEqual([
      [[0, 0, 0, 0, 1]],
      [[0, 0, 0, 2, 2]],
      [[0, 0, 0, 3, 3]],
    ]);
  });

  it("takes back what nobody looks at any more", async () => {
    const python = new Python();
    const source = await open(python);
    python.hold = [];
    source.want(MAIN, [], 0, 4096, 1024);
    source.want(MAIN, [], 0, 1e6, 1024);
    await vi.advanceTimersByTimeAsync(1);
    expect(python.asked.filter(({ ask }) => ask === "tiles").map((request) => request["level"])).toEqual([2, 9]);
    for (const answer of python.hold.splice(0)) answer();
    await vi.advanceTimersByTimeAsync(1);
    // The first was aborted: its tiles are asked for again when they are looked at.
    source.want(MAIN, [], 0, 4096, 1024);
    expect(python.asked.at(-1)).toMatchObject({ level: 2 });
  });

  it("marks hits of the present search only", async () => {
    const python = new Python();
    const source = await open(python);
    source.want(MAIN, [], 0, 4096, 1024);
    await vi.advanceTimersByTimeAsync(1);
    source.setQuery("gemm");
    expect(marksOf(source, 0, 4096, 1024)).toEqual([[42, "gemm", false]]);
    source.want(MAIN, [], 0, 4096, 1024);
    await vi.advanceTimersByTimeAsync(1);
    expect(marksOf(source, 0, 4096, 1024)).toEqual([[42, "gemm", true]]);
  });

  it("has a counter over all tiles that are seen", async () => {
    const source = await open(new Python());
    expect(source.counter(1, 0, 2047, 1024)?.last).toEqual(Float64Array.of(5));
    source.want([{ lane: 1, depth: 0, depth_to: 0 }], [], 0, 2047, 2047);
    await vi.advanceTimersByTimeAsync(1);
    expect(source.counter(1, 0, 500, 500)?.last).toEqual(Float64Array.of(7));
  });

  it("has bins no finer and no coarser than Python cuts them", () => {
    expect([levelOf(0, 1, 5000), levelOf(0, 2 ** 53, 100)]).toEqual([-10, 44]);
  });

  it("is that of the saved report where its profile, its nbprof and its lanes are", async () => {
    const source = await open(new Python());
    expect(source.ids).toBe(saved().ids);
    expect(source.notes).toEqual(["Derived."]);
  });

  it("draws nothing of what was saved where that has other numbers", async () => {
    const host = { id: 0, process: "Host", name: "main", note: "", kind: "host", folded: false, derived: false };
    const others: [string, Reply, string?][] = [
      ["key", { key: "5-cd" }],
      ["no key", {}, ""],
      ["version", { version: "9.0" }],
      ["total", { total: 2 }],
      ["lanes", { lanes: [{ ...host, depths: 1, events: 1 }] }],
      ["events of a lane", { lanes: [{ ...host, depths: 1, events: 0 }] }],
    ];
    for (const [what, said, key] of others) {
      const source = await LiveSource.open(new Python(said), saved(key), new AbortController().signal);
      expect(source.ids, what).not.toBe(saved(key).ids);
      expect(marksOf(source, 0, 4096, 1024), what).toEqual([]);
      expect(source.counter(1, 0, 2047, 1024), what).toBeNull();
      source.want(MAIN, [], 0, 4096, 1024);
      await vi.advanceTimersByTimeAsync(1);
      expect(marksOf(source, 0, 4096, 1024), what).toEqual([[42, "gemm", false]]);
    }
  });

  it("keeps what is selected, pinned and opened where the numbers are the same, and drops it where not", async () => {
    const slice = { event: 0, lane: 0, depth: 0, start_ns: 1, duration_ns: 1, name: "kept" };
    for (const [said, kept] of [
      [{}, true],
      [{ version: "9.0" }, false],
    ] as const) {
      const model = new Model(saved());
      model.select(slice);
      model.pin(1);
      const seen: string[] = [];
      model.onChange((change) => seen.push(change));
      model.setSource(await open(new Python(said)));
      expect([model.selection, model.pinned]).toEqual(kept ? [[slice], [1]] : [[], []]);
      expect(seen).toEqual(kept ? ["source", "lanes"] : ["source", "lanes", "slice"]);
      // And back, when the connection is lost.
      model.select({ ...slice, event: 42 });
      model.setSource(saved());
      expect(model.selected?.event ?? null).toBe(kept ? 42 : null);
    }
  });

  it("has bins no wider than a pixel", () => {
    expect([levelOf(0, 1000, 1000), levelOf(0, 1999, 1000), levelOf(0, 2000, 1000), levelOf(0, 1, 1024)]).toEqual([
      0, 0, 1, -10,
    ]);
  });
});
