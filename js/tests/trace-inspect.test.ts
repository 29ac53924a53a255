import { describe, expect, it, vi } from "vitest";
import { foundWords, Queue, rangeWords, sliceWords } from "../views/trace/announce.js";
import { sumOf } from "../views/trace/details.js";
import { curves, follow, headingOf, leaves, type Stage } from "../views/trace/flows.js";
import { nextGap } from "../views/trace/gaps.js";
import { busyCsv, head, nextOrder, sharesCsv, sortBusy, sortShares, unitOf } from "../views/trace/info/shares.js";
import { argsText } from "../views/trace/info/slice.js";
import { exactLength, exactMoment, laneText, missingWords, otherEnd } from "../views/trace/info/words.js";
import { type Actions, KEYS, press } from "../views/trace/keys.js";
import type { Band } from "../views/trace/layout.js";
import { measureText, SNAP, snap } from "../views/trace/measure.js";
import { hitsText, Rest } from "../views/trace/search.js";
import type { Arrow, Drawn, Found, RangeInfo, Share, SliceRef } from "../views/trace/source.js";

const ref = (
  event: number,
  lane: number,
  start_ns: number,
  duration_ns: number,
  name = `slice ${event}`,
): SliceRef => ({
  event,
  lane,
  depth: 0,
  start_ns,
  duration_ns,
  name,
});

describe("times of a slice", () => {
  it("are told to the ns, without zeros that say nothing", () => {
    const lengths = [0, 0.25, 7, 960, 3392, 3400, 9.99e5, 4_380_214, 4_380_000, 12_000_000_001];
    expect(lengths.map(exactLength)).toEqual([
      ...["0 ns", "0.25 ns", "7 ns", "960 ns", "3.392 µs", "3.4 µs", "999.0 µs"],
      ...["4.380214 ms", "4.38 ms", "12.000000001 s"],
    ]);
    expect([0, 66_470_336, 66_470_000, 1].map(exactMoment)).toEqual([
      ...["0.000 ms", "66.470336 ms", "66.470 ms", "0.000001 ms"],
    ]);
  });
});

describe("arrows", () => {
  const launch: Arrow = { kind: "launch", from: ref(1, 0, 100, 50), to: ref(2, 1, 300, 20) };
  const feed: Arrow = { kind: "producer", from: ref(2, 1, 300, 20), to: ref(3, 1, 400, 20) };
  /** 1000 px for 1000 ns; lane n at n × 20 px from the top, 16 high. */
  const stage: Stage = {
    width: 1000,
    top: 0,
    bottom: 100,
    x: (time) => time,
    place: ({ lane }) => (lane < 10 ? { top: lane * 20, bottom: lane * 20 + 16 } : null),
  };

  it("leave as late as they can without going back in time", () => {
    expect(leaves(launch)).toBe(150);
    expect(leaves({ ...launch, to: ref(2, 1, 120, 5) })).toBe(120);
    expect(leaves({ ...launch, to: ref(2, 1, 20, 5) })).toBe(100);
  });
  it("go from edge to edge, down or up, and in an arc within a row", () => {
    const [down] = curves([launch], 1, stage);
    expect(down).toMatchObject({ from: [150, 16], to: [300, 20], down: 1, label: null });
    const [up] = curves([{ ...launch, from: ref(1, 3, 100, 50) }], 1, stage);
    expect(up).toMatchObject({ from: [150, 60], to: [300, 36], down: -1 });
    const [arc] = curves([feed], 2, stage);
    expect(arc).toMatchObject({ from: [320, 20], to: [400, 20] });
    expect(Math.max(arc?.bend[0][1] ?? 99, arc?.bend[1][1] ?? 99)).toBeLessThan(20);
  });
  it("end at the edge with a label where the other end is not in view", () => {
    const late: Arrow = { ...launch, to: ref(2, 1, 5000, 20, "kernel") };
    const [curve] = curves([late], 1, stage);
    expect(curve?.to).toEqual([1000, 20]);
    expect(curve?.label).toMatchObject({ x: 1000, align: "right", text: "→ kernel, 4.9 µs later" });
    // Seen from its other end it is the launch that is missing.
    const [back] = curves([{ ...launch, from: ref(1, 0, -900, 50, "launch") }], 2, stage);
    expect(back?.label).toMatchObject({ x: 0, align: "left", text: "← launch, 1.2 µs earlier" });
    const below: Arrow = { ...launch, to: ref(2, 8, 300, 20) };
    expect(curves([below], 1, stage)[0]).toMatchObject({ to: [300, 100], label: { y: 100 } });
  });
  it("are not drawn where both ends are beyond the same edge, or a lane has no place", () => {
    expect(curves([{ ...launch, from: ref(1, 0, -900, 5), to: ref(2, 1, -100, 5) }], 1, stage)).toEqual([]);
    expect(curves([{ ...launch, to: ref(2, 11, 300, 5) }], 1, stage)).toEqual([]);
  });
  it("end at the closed heading of a lane that is folded away", () => {
    const bands: Band[] = [
      { kind: "process", key: "p", process: "Host", open: true, lanes: [1, 2, 3], top: 0, height: 19 },
      { kind: "rest", key: "r", process: "Host", open: false, lanes: [2, 3], top: 19, height: 19 },
    ];
    expect(headingOf(bands, 3)).toEqual({ top: 19, bottom: 38 });
    expect(headingOf(bands, 1)).toBeNull();
  });
  it("are followed to the nearest other end, forth and back", () => {
    const far: Arrow = { kind: "launch", from: ref(1, 0, 100, 50), to: ref(9, 1, 900, 20) };
    expect(follow([far, launch, feed], 1, 1)?.event).toBe(2);
    expect(follow([launch, feed], 2, -1)?.event).toBe(1);
    expect(follow([launch, feed], 2, 1)?.event).toBe(3);
    expect(follow([launch], 1, -1)).toBeNull();
  });
  it("are told by what the other end is to the slice", () => {
    expect(otherEnd(launch, 1)).toMatchObject({ word: "Launches", out: true, slice: { event: 2 } });
    expect(otherEnd(launch, 2)).toMatchObject({ word: "Launched by", out: false, slice: { event: 1 } });
  });
});

describe("measuring", () => {
  /** Two levels: one slice each, and at the first also many drawn as one. */
  const source: Pick<Drawn, "visit"> = {
    visit(lane, _depth, from, to, _pixels, sink) {
      sink.clip(from, to);
      const mark = (start: number, end: number, count: number): void => {
        if (end >= from && start <= to) sink.mark(start, end, 0, 0, 1, count, 255, false);
      };
      if (lane === 0) {
        mark(1000, 2000, 1);
        mark(2300, 2310, 50);
      } else mark(1040, 3000, 1);
    },
  };
  const row = (lane: number) => ({ lane, depth: 0 });

  it("snaps to the nearest edge within a few pixels", () => {
    expect(snap(1000 + SNAP * 10, 10, { source, own: row(0) })).toBe(1000);
    expect(snap(1000 + SNAP * 10 + 1, 10, { source, own: row(0) })).toBe(1000 + SNAP * 10 + 1);
    expect(snap(1980, 10, { source, own: row(0) })).toBe(2000);
  });
  it("takes an edge of the row under the pointer before a nearer one of another", () => {
    expect(snap(1035, 10, { source, own: row(0), others: [row(1)] })).toBe(1000);
    expect(snap(1035, 10, { source, own: null, others: [row(1)] })).toBe(1040);
  });
  it("does not snap to what is drawn as one", () => {
    expect(snap(2301, 10, { source, own: row(0) })).toBe(2301);
  });
  it("says how long, and how often that fits into a second", () => {
    expect(measureText(1e6, 4.78e6)).toBe("3.78 ms, 265 per second");
    expect(measureText(5, 5)).toBe("0.000 µs");
  });
});

describe("idle gaps", () => {
  const gaps = {
    process: { codes: Uint8Array.of(0, 0, 1), values: ["GPU 0", "GPU 1"] },
    start: Float64Array.of(100, 900, 500),
    duration: Float64Array.of(90, 50, 20),
  };
  it("come longest first, one after the other and round", () => {
    expect(nextGap(gaps, null, 1)).toMatchObject({ from: 100, to: 190 });
    expect(nextGap(gaps, { from: 100, to: 190 }, 1)).toMatchObject({ from: 900, to: 950 });
    expect(nextGap(gaps, { from: 500, to: 520 }, 1)).toMatchObject({ from: 100 });
    expect(nextGap(gaps, null, -1)?.text).toMatch(/^Gap 3 of the 3 longest: GPU 1 idle for/);
    const none = {
      process: { codes: new Uint8Array(), values: [] },
      start: new Float64Array(),
      duration: new Float64Array(),
    };
    expect(nextGap(none, null, 1)).toBeNull();
  });
});

describe("the tables of a range", () => {
  const share = (name: string, count: number, self_ns: number, total_ns: number): Share => ({
    name,
    on: "device",
    fill: 1,
    count,
    self_ns,
    total_ns,
    percent: self_ns / 10,
    longest: ref(0, 0, 0, 1),
  });
  const shares = [share("b", 1, 50, 60), share("a10", 9, 30, 90), share("a9", 2, 20, 20)];

  it("sort by any column; a second click turns round", () => {
    const names = (key: "name" | "count" | "self_ns" | "total_ns", descending: boolean) =>
      sortShares(shares, { key, descending }).map(({ name }) => name);
    expect(names("total_ns", true)).toEqual(["a10", "b", "a9"]);
    expect(names("count", false)).toEqual(["b", "a9", "a10"]);
    // Numbers in names count as numbers.
    expect(names("name", false)).toEqual(["a9", "a10", "b"]);
    const now = { key: "self_ns" as const, descending: true };
    expect(nextOrder<"self_ns" | "name">(now, "self_ns")).toEqual({ key: "self_ns", descending: false });
    expect(nextOrder<"self_ns" | "name">(now, "name")).toEqual({ key: "name", descending: false });
  });
  it("fold the rest into one line that adds up, with what was never listed", () => {
    const info = { shares, others: null };
    expect(head(info, shares, 1).rest).toEqual({ names: 2, count: 11, self_ns: 50, total_ns: 110 });
    // One left over gets its own line.
    expect(head(info, shares, 2)).toEqual({ shown: shares, rest: null });
    const others = { names: 7, count: 70, self_ns: 5 };
    expect(head({ shares, others }, shares, 1).rest).toEqual({ names: 9, count: 81, self_ns: 55, total_ns: null });
    expect(head({ shares, others }, shares, 3).rest).toMatchObject({ names: 7, count: 70 });
  });
  it("have one unit, by the largest time", () => {
    expect([unitOf(2e6).unit, unitOf(9e5).unit, unitOf(9e5).digits, unitOf(900).digits]).toEqual(["ms", "µs", 1, 3]);
  });
  it("are copied in full precision, names as they are", () => {
    expect(sharesCsv([share('say "x", y', 1, 50.5, 60)]).split("\r\n")).toEqual([
      "name,on,count,self_ns,total_ns,percent",
      '"say ""x"", y",device,1,50.5,60,5.05',
      "",
    ]);
    const lanes = [{ lane: 4, busy_ns: 30, percent: 30, count: 2 }];
    const csv = busyCsv(lanes, 100, () => ({ name: "Stream 19", process: "GPU 0" }));
    expect(csv.split("\r\n")[1]).toBe("GPU 0,Stream 19,2,30,70,30");
  });
  it("have the lanes as drawn, or by how busy they are", () => {
    const lanes = [1, 2, 3].map((lane) => ({ lane, busy_ns: lane === 2 ? 9 : lane, percent: 0, count: 0 }));
    const order = (key: "lane" | "busy_ns", descending: boolean) =>
      sortBusy(lanes, { key, descending }).map(({ lane }) => lane);
    expect([order("lane", false), order("busy_ns", true), order("busy_ns", false)]).toEqual([
      [1, 2, 3],
      [2, 3, 1],
      [1, 3, 2],
    ]);
  });
});

describe("several slices", () => {
  it("have a sum, a mean, and the shortest and longest of them", () => {
    const slices = [ref(1, 0, 0, 30), ref(2, 0, 50, 10), ref(3, 1, 0, 20)];
    expect(sumOf(slices)).toMatchObject({ count: 3, sum_ns: 60, mean_ns: 20, min: { event: 2 }, max: { event: 1 } });
  });
});

describe("the search", () => {
  const found = (count: number, more: Partial<Found> = {}): Found => ({
    count,
    error: "",
    strip: new Uint8Array(),
    where: "",
    ...more,
  });
  it("says how many, and which one", () => {
    expect(hitsText(found(21), "a", 7)).toBe("8 of 21 hits");
    expect(hitsText(found(1), "a", 0)).toBe("1 hit");
    expect(hitsText(found(1200), "a", -1)).toBe("1,200 hits");
    expect([hitsText(null, "a", -1), hitsText(found(0, { error: "bad" }), "a", -1), hitsText(found(3), "", 0)]).toEqual(
      ["", "", ""],
    );
    expect(hitsText(found(3, { where: "Not all." }), "a", -1, false)).toBe("3 hits (saved only)");
  });
  it("waits until the hand rests, and searches for the last text only", () => {
    const timers: (() => void)[] = [];
    const run = vi.fn();
    const rest = new Rest(run, (fn) => timers.push(fn));
    rest.put("a");
    rest.put("ab");
    for (const timer of timers) timer();
    expect(run.mock.calls).toEqual([["ab"]]);
    rest.put("abc");
    rest.drop();
    for (const timer of timers) timer();
    expect(run).toHaveBeenCalledTimes(1);
  });
});

describe("announcements", () => {
  it("come with a pause between them, of a kind the last one", () => {
    const timers: { fn: () => void; ms: number }[] = [];
    const out: string[] = [];
    const queue = new Queue(
      (text) => out.push(text),
      (fn, ms) => timers.push({ fn, ms }),
    );
    const tick = (): void => timers.shift()?.fn();
    queue.say("slice", "one");
    queue.say("slice", "two");
    queue.say("range", "wide");
    expect(out).toEqual([]);
    tick();
    expect(out).toEqual(["two wide"]);
    queue.say("view", "zoomed");
    queue.say("view", "zoomed more");
    expect(out).toHaveLength(1);
    expect(timers[0]?.ms).toBeGreaterThanOrEqual(500);
    tick();
    expect(out[1]).toBe("zoomed more");
    tick();
    expect(timers).toEqual([]);
    queue.close();
    queue.say("said", "late");
    expect(timers).toEqual([]);
  });
  it("name the slice, its time and its lane", () => {
    const laneOf = () => ({ name: "Stream 19", process: "GPU 0" });
    expect(sliceWords(ref(1, 0, 48.884e6, 306200, "Conv2D"), laneOf)).toBe(
      "Conv2D, 306.2 µs at 48.884 ms on Stream 19 of GPU 0.",
    );
    expect(laneText(undefined)).toBe("");
  });
  it("name a range by what took most of it", () => {
    const share = {
      name: "Map",
      on: "host" as const,
      fill: 1,
      count: 2,
      self_ns: 2e6,
      total_ns: 3e6,
      percent: 50,
      longest: ref(1, 0, 0, 1),
    };
    const info: RangeInfo = {
      from: 0,
      to: 4e6,
      shares: [share],
      others: null,
      lanes: [],
      idle: [{ process: "GPU 0", percent: 99.6 }],
      count: 2,
      note: "",
    };
    expect(rangeWords(info)).toBe(
      "Range of 4.00 ms from 0.000 ms: 2 slices; most self time in Map, 2.00 ms; GPU 0 idle 100%.",
    );
  });
  it("say what was searched where that is not all", () => {
    const found = { count: 2, error: "", strip: new Uint8Array(), where: "Searched in what is saved." };
    expect(foundWords("x", found, -1)).toBe("2 hits for x. Searched in what is saved.");
    expect(foundWords("x", found, 1)).toBe("Hit 2 of 2.");
    expect(foundWords("/(/", { ...found, error: "Unterminated group" }, -1)).toBe("Unterminated group");
  });
});

describe("arguments", () => {
  it("are copied as lines of two columns", () => {
    const args = [
      { key: "grid", value: "8,8,1" },
      { key: "note", value: "a\tb\nc" },
    ];
    expect(argsText(args)).toBe("grid\t8,8,1\nnote\ta b c");
  });
});

describe("keys", () => {
  function record(): { done: unknown[][]; actions: Actions } {
    const done: unknown[][] = [];
    const actions = new Proxy({} as Actions, {
      get:
        (_, name) =>
        (...args: unknown[]) => {
          done.push([name, ...args]);
          return name === "clear" ? false : undefined;
        },
    });
    return { done, actions };
  }
  const does = (key: string, shift = false): unknown[] | undefined => {
    const { done, actions } = record();
    press(key, shift, actions);
    return done[0];
  };

  it("move, follow, measure and find", () => {
    expect(does("ArrowLeft")).toEqual(["move", "previous", false]);
    expect(does("ArrowRight", true)).toEqual(["move", "next", true]);
    expect(does("ArrowUp")).toEqual(["move", "parent", false]);
    expect(does("ArrowDown", true)).toEqual(["lane", 1]);
    expect([does(","), does(".")]).toEqual([
      ["move", "previous_same", false],
      ["move", "next_same", false],
    ]);
    expect([does("["), does("]")]).toEqual([
      ["follow", -1],
      ["follow", 1],
    ]);
    expect([does("g"), does("G", true)]).toEqual([
      ["gap", 1],
      ["gap", -1],
    ]);
    expect([does("u"), does("U", true)]).toEqual([
      ["undo", -1],
      ["undo", 1],
    ]);
    expect([does("m"), does("t"), does("p"), does("l"), does("/"), does("?")].map((one) => one?.[0])).toEqual([
      "mark",
      "row",
      "pin",
      "flows",
      "search",
      "help",
    ]);
  });
  it("zoom in with W and out with S, farther with Shift", () => {
    const factor = (key: string, shift: boolean): number => does(key, shift)?.[1] as number;
    expect(factor("w", false)).toBeGreaterThan(1);
    expect(factor("W", true)).toBeGreaterThan(factor("w", false));
    expect(factor("s", false) * factor("w", false)).toBeCloseTo(1);
  });
  it("leave Escape to the dashboard when nothing is held, and other keys to the notebook", () => {
    const { actions } = record();
    expect(press("Escape", false, actions)).toBe(false);
    for (const key of ["x", "Enter", "Tab", "j", "1"]) expect(press(key, false, actions)).toBe(false);
  });
  it("are all in the list that ? shows", () => {
    const listed = new Set(KEYS.flatMap(([keys]) => keys));
    for (const key of [
      "W",
      "S",
      "A",
      "D",
      "←",
      "→",
      "↑",
      "↓",
      ",",
      ".",
      "[",
      "]",
      "G",
      "F",
      "0",
      "U",
      "M",
      "L",
      "P",
      "T",
      "/",
      "Esc",
    ])
      expect(listed).toContain(key);
  });
});

describe("what a report does not hold", () => {
  it("is listed", () => {
    expect(missingWords(["stacks"])).toBe("Not saved in a report: stacks. Open the profile to see them.");
    expect(missingWords(["arguments", "arrows", "stacks"])).toMatch(/: arguments, arrows and stacks\. /);
  });
});
