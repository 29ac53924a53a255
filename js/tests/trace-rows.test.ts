import { describe, expect, it } from "vitest";
import type { Lane } from "../lib/payload.js";
import { bandsIn, isThread, laneKey, layout, processKey, restKey, reveal } from "../views/trace/layout.js";
import { eachMark, longestOf, type Row, rowsOf, visible } from "../views/trace/rows.js";
import type { LaneHead } from "../views/trace/source.js";
import { Finder } from "../views/trace/under.js";
import { around, clamp, pan, rulerTicks, show, zoom } from "../views/trace/window.js";
import { type Event, lane, trace } from "./lanes.js";
import { sourceOf } from "./saved-source.js";

interface Mark {
  first: number;
  last: number;
  at: number;
  busy: number;
}

function marksOf(row: Row, from: number, to: number, bin: number): Mark[] {
  const marks: Mark[] = [];
  eachMark(row, from, to, bin, (first, last, at, busy) => marks.push({ first, last, at, busy }));
  return marks;
}

/** A small generator with a seed, so that a failure can be repeated. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

describe("isThread", () => {
  it("counts no samples of a thread, no device and no counter", () => {
    const lanes = [
      { kind: "host", derived: false },
      { kind: "host", derived: true },
      { kind: "device", derived: false },
      { kind: "counter", derived: false },
    ];
    expect(lanes.map(isThread)).toEqual([true, false, false, false]);
  });
});

function randomLane(seed: number, n: number): Lane {
  const next = random(seed);
  const events: Event[] = [];
  let time = 0;
  for (let i = 0; i < n; i++) {
    time += Math.floor(next() ** 4 * 400);
    const duration = Math.floor(next() ** 6 * 500) + (i % 7 ? 1 : 0);
    events.push([time, duration, i % 5, 0]);
    time += duration;
  }
  return lane(events);
}

describe("rows of a lane", () => {
  it("splits by depth and keeps the index in the lane", () => {
    const [top, below, none] = rowsOf(
      lane([
        [0, 10, 0, 0],
        [1, 3, 1, 1],
        [5, 4, 2, 1],
        [20, 5, 0, 0],
      ]),
    );
    expect([...(top?.slice ?? [])]).toEqual([0, 3]);
    expect([...(below?.slice ?? [])]).toEqual([1, 2]);
    expect(none).toBeUndefined();
  });

  it("finds the longest slice of any part, as a scan does", () => {
    const row = rowsOf(randomLane(3, 300))[0];
    if (!row) throw new Error("no row");
    const length = (i: number): number => (row.end[i] as number) - (row.start[i] as number);
    const next = random(9);
    for (let k = 0; k < 400; k++) {
      const first = Math.floor(next() * 299);
      const last = first + 1 + Math.floor(next() * (300 - first - 1));
      let best = first;
      for (let i = first; i < last; i++) if (length(i) > length(best)) best = i;
      expect(length(longestOf(row, first, last))).toBe(length(best));
    }
  });

  it("finds the visible slices even where a long one began before the window", () => {
    const [row] = rowsOf(
      lane([
        [0, 1000, 0, 0],
        [1, 2, 0, 0],
        [500, 10, 0, 0],
        [900, 10, 0, 0],
      ]),
    );
    if (!row) throw new Error("no row");
    const [first, last] = visible(row, 400, 600);
    expect(first).toBe(0);
    expect(last).toBe(3);
  });
});

describe("marks", () => {
  it("stand for every slice in the window exactly once, whatever the zoom", () => {
    for (const [seed, pixels] of [
      [1, 50],
      [2, 333],
      [5, 900],
    ] as const) {
      const data = randomLane(seed, 2000);
      const [row] = rowsOf(data);
      if (!row) throw new Error("no row");
      const end = (row.end.at(-1) as number) + 1;
      for (const [from, to] of [
        [0, end],
        [end * 0.2, end * 0.4],
        [end * 0.31, end * 0.3105],
      ] as const) {
        const bin = (to - from) / pixels;
        const marks = marksOf(row, from, to, bin);
        const seen = new Set<number>();
        for (const mark of marks) {
          for (let i = mark.first; i < mark.last; i++) {
            expect(seen.has(i)).toBe(false);
            seen.add(i);
            const length = (row.end[i] as number) - (row.start[i] as number);
            if (mark.last - mark.first > 1) expect(length).toBeLessThan(bin);
          }
        }
        for (let i = 0; i < row.slice.length; i++) {
          const inside = (row.end[i] as number) >= from && (row.start[i] as number) <= to;
          if (inside) expect(seen.has(i)).toBe(true);
        }
        // Cost: short slices share bins, long ones fill them.
        expect(marks.length).toBeLessThanOrEqual(2 * pixels + 4);
      }
    }
  });

  it("do not change while the window moves", () => {
    const [row] = rowsOf(randomLane(4, 500));
    if (!row) throw new Error("no row");
    const end = row.end.at(-1) as number;
    const bin = end / 100;
    const inside = (marks: Mark[]): string[] =>
      marks
        .filter(({ first }) => (row.start[first] as number) > end * 0.3 && (row.start[first] as number) < end * 0.5)
        .map(({ first, last }) => `${first} ${last}`);
    const still = inside(marksOf(row, end * 0.2, end * 0.7, bin));
    expect(still.length).toBeGreaterThan(10);
    expect(inside(marksOf(row, end * 0.2337, end * 0.7337, bin))).toEqual(still);
  });

  it("keep a lone short slice and merge crowded ones into one that knows how busy they are", () => {
    const crowd: Event[] = Array.from({ length: 50 }, (_, i) => [1000 + i, 1, i === 20 ? 1 : 0, 0]);
    const [row] = rowsOf(lane([[10, 1, 0, 0], ...crowd]));
    if (!row) throw new Error("no row");
    // 50 of the 100 ticks of that bin are busy.
    expect(marksOf(row, 0, 10_000, 100)).toEqual([
      { first: 0, last: 1, at: 0, busy: 1 },
      { first: 1, last: 51, at: 1, busy: 0.5 },
    ]);
  });

  it("give a long slice its own mark even where short ones crowd around it", () => {
    const [row] = rowsOf(
      lane([
        [0, 1, 0, 0],
        [2, 1, 0, 0],
        [4, 500, 1, 0],
        [506, 1, 0, 0],
        [508, 1, 0, 0],
      ]),
    );
    if (!row) throw new Error("no row");
    expect(marksOf(row, 0, 1000, 10).map(({ first, last }) => [first, last])).toEqual([
      [0, 2],
      [2, 3],
      [3, 5],
    ]);
  });
});

describe("slices under a point", () => {
  const source = sourceOf(
    trace(
      [
        lane([
          [0, 10, 0, 0],
          [12, 1, 0, 0],
          [30, 10, 0, 0],
        ]),
        lane(Array.from({ length: 200 }, (_, i) => [i * 3, i === 77 ? 3 : 1, 0, 0])),
      ],
      ["a"],
      1000,
    ),
  );
  /** Event under a time (ticks of 1000 ns) with pixels of a length. */
  const at = (id: number, time: number, slack: number, pixel = 0.1): number => {
    const finder = new Finder(time * 1000, slack * 1000);
    source.visit(id, 0, (time - 400) * 1000, (time + 400) * 1000, 800 / pixel, finder);
    return finder.event;
  };
  it("are the one there, or the nearest within the slack", () => {
    expect(at(0, 5, 0)).toBe(0);
    expect(at(0, 20, 2)).toBe(-1);
    expect(at(0, 15, 2)).toBe(1);
    expect(at(0, 11.6, 2)).toBe(1);
  });
  it("are the longest where more lie there than can be told apart", () => {
    expect(at(1, 200, 256, 512)).toBe(3 + 77);
  });
});

describe("layout", () => {
  const { lanes } = sourceOf(
    trace(
      [
        lane([[0, 5, 0, 0]], { process: "GPU 0", kind: "device" }),
        lane([
          [0, 5, 0, 0],
          [1, 1, 0, 1],
          [1, 1, 0, 2],
        ]),
        lane([[0, 1, 0, 0]], { folded: true }),
        lane([[0, 1, 0, 0]], { folded: true }),
      ],
      ["a"],
      10,
    ),
  );
  it("puts bands under each other without gaps, and the quiet threads behind one line", () => {
    const { bands, height } = layout(lanes, new Map());
    expect(bands.map((band) => band.kind)).toEqual(["process", "lane", "process", "lane", "rest"]);
    let top = 0;
    for (const band of bands) {
      expect(band.top).toBe(top);
      top += band.height;
    }
    expect(height).toBe(top);
    // Three levels of 17 px and a border, one level of 18.
    expect(bands[3]?.height).toBe(3 * 18 - 2 + 1);
    expect(bands[1]?.height).toBe(19);
  });
  it("closes processes and lanes, opens the rest", () => {
    const closed = layout(lanes, new Map([[processKey("Host"), false]])).bands;
    expect(closed.map((band) => band.kind)).toEqual(["process", "lane", "process"]);
    const flat = layout(lanes, new Map([[laneKey(1), false]])).bands[3];
    expect(flat).toMatchObject({ depths: 1, height: 19 });
    expect(layout(lanes, new Map([[restKey("Host"), true]])).bands).toHaveLength(7);
  });
  it("gives a single quiet thread its own line", () => {
    expect(layout(lanes.slice(0, 3), new Map()).bands.map((band) => band.kind)).not.toContain("rest");
  });
  it("opens what a slice lies in", () => {
    const folding = reveal(lanes[3] as LaneHead, new Map([[processKey("Host"), false]]));
    expect(layout(lanes, folding).bands.some((band) => band.kind === "lane" && band.lane === 3)).toBe(true);
  });
  it("finds the bands of a part of the page", () => {
    const { bands } = layout(lanes, new Map());
    expect(bandsIn(bands, 20, 39).map((band) => band.top)).toEqual([19, 38]);
    expect(bandsIn(bands, 10_000, 10_100)).toEqual([]);
  });
  it("has lanes alone, one under the other, where no heading is wanted", () => {
    const { bands, height } = layout(lanes.slice(0, 2), new Map(), false);
    expect(bands.map((band) => [band.kind, band.top])).toEqual([
      ["lane", 0],
      ["lane", 19],
    ]);
    expect(height).toBe(19 + 53);
  });
});

describe("the window", () => {
  it("stays inside the profile and keeps its length", () => {
    expect(clamp({ from: -50, to: 50 }, 1000)).toEqual({ from: 0, to: 100 });
    expect(clamp({ from: 950, to: 1050 }, 1000)).toEqual({ from: 900, to: 1000 });
    expect(clamp({ from: -5, to: 5000 }, 1000)).toEqual({ from: 0, to: 1000 });
  });
  it("keeps the time under the pointer while zooming", () => {
    const zoomed = zoom({ from: 200, to: 600 }, 2, 0.25, 1000);
    expect(zoomed).toEqual({ from: 250, to: 450 });
    expect(zoomed.from + 0.25 * (zoomed.to - zoomed.from)).toBe(300);
  });
  it("pans by a share of what is shown, up to the end", () => {
    expect(pan({ from: 100, to: 200 }, 0.5, 1000)).toEqual({ from: 150, to: 250 });
    expect(pan({ from: 850, to: 950 }, 1, 1000)).toEqual({ from: 900, to: 1000 });
  });
  it("moves only as far as needed to show a range", () => {
    const span = { from: 100, to: 200 };
    expect(show(span, { from: 120, to: 130 }, 1000)).toBe(span);
    expect(show(span, { from: 500, to: 520 }, 1000)).toEqual({ from: 460, to: 560 });
    expect(show(span, { from: 300, to: 700 }, 1000)).toEqual(around({ from: 300, to: 700 }, 1000));
    expect(around({ from: 400, to: 480 }, 1000, 0.8)).toEqual({ from: 390, to: 490 });
  });
  it("has ruler ticks 1, 2 or 5 apart, with room between and the decimals they need", () => {
    expect(rulerTicks(0, 100, 1000, 84)).toEqual({ at: [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100], digits: 0 });
    const fine = rulerTicks(44.02, 44.3, 600, 84);
    expect(fine.digits).toBe(2);
    expect(fine.at[0]).toBeCloseTo(44.05);
    expect(rulerTicks(5, 5, 600, 84).at).toEqual([]);
  });
});
