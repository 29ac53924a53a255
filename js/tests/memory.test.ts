import { describe, expect, it } from "vitest";
import type { MemoryId, Table } from "../lib/payload.js";
import { byteAxis, columns } from "../lib/scale.js";
import { cardRows, momentText, ticksText } from "../views/memory/moment.js";
import { aliveAt, bySize, isRest, split, total } from "../views/memory/peak.js";
import {
  axis,
  firstScope,
  fragmentationAxis,
  peakIndex,
  sampleAt,
  stacked,
  timeTicks,
} from "../views/memory/series.js";

const MiB = 1024 ** 2;

function memory(times: number[], use: number[], more: Partial<MemoryId> = {}): MemoryId {
  const n = times.length;
  const none = { codes: new Uint8Array(n), values: [""] };
  return {
    memory_id: "GPU_0_bfc",
    figures: [],
    capacity_bytes: 100 * MiB,
    peak_bytes: Math.max(0, ...use),
    peak_time_ms: 0,
    peak_step: null,
    total: n,
    time_ms: Float64Array.from(times),
    allocation: Uint8Array.from(times, () => 1),
    requested_bytes: new Float64Array(n),
    allocated_bytes: new Float64Array(n),
    op: none,
    step: new Int32Array(n).fill(-1),
    region_type: none,
    data_type: none,
    shape: none,
    stack_bytes: new Float64Array(n),
    heap_bytes: Float64Array.from(use),
    free_bytes: Float64Array.from(use, (value) => 100 * MiB - value),
    fragmentation: new Float64Array(n),
    in_use_bytes: Float64Array.from(use),
    peak: { columns: [], data: {}, rows: 0 },
    moments: null,
    ops: { columns: [], data: {}, rows: 0 },
    ...more,
  };
}

describe("roles", () => {
  const roles = {
    peak: { columns: [], data: {}, rows: 0 },
    series: [
      { role: "parameters", bytes: Uint8Array.of(4, 4, 4), tint: 2 },
      { role: "gradients", bytes: Uint8Array.of(0, 3, 0), tint: 3 },
      { role: "unknown", bytes: Uint8Array.of(1, 0, 2), tint: -1 },
    ],
  };
  const id = memory([0, 1, 2], [5, 7, 6], { roles });
  it("stand on each other up to what is in use", () => {
    expect(stacked(id).map(({ tint, upTo }) => [tint, ...upTo])).toEqual([
      [2, 4, 4, 4],
      [3, 4, 7, 4],
      [-1, 5, 7, 6],
    ]);
    expect(stacked(memory([0], [1]))).toEqual([]);
  });
  it("are named for a moment where there is some of them", () => {
    const rows = cardRows(id, 1).rows ?? [];
    expect(rows.slice(10)).toEqual([
      { label: "Parameters", value: "4 B" },
      { label: "Gradients", value: "3 B" },
    ]);
  });
});

describe("the timeline in pixels", () => {
  const at = (values: number[]) => (i: number) => values[i] as number;
  it("holds a value until the next", () => {
    const { min, max, last } = columns([0, 5], at([10, 20]), 0, 10, 10);
    expect([...last]).toEqual([10, 10, 10, 10, 10, 20, 20, 20, 20, 20]);
    expect([...max]).toEqual([...last]);
    expect([...min]).toEqual([...last]);
  });
  it("never loses a peak that is shorter than a pixel", () => {
    const values = Array.from({ length: 1000 }, (_, i) => (i === 517 ? 99 : i === 800 ? 0 : 5));
    const times = values.map((_, i) => i);
    for (const pixels of [7, 60, 333]) {
      const { min, max } = columns(times, at(values), 0, 999, pixels);
      expect(Math.max(...max)).toBe(99);
      expect(max[Math.floor((517 / 999) * pixels)]).toBe(99);
      expect(Math.min(...min)).toBe(0);
      expect([...max].filter((value) => value === 99)).toHaveLength(1);
    }
  });
  it("keeps the last sample, at the very end", () => {
    const { max, last } = columns([0, 10], at([1, 50]), 0, 10, 5);
    expect([...max]).toEqual([1, 1, 1, 1, 50]);
    expect(last[4]).toBe(50);
  });
  it("has nothing before the first sample, and starts a window with what held then", () => {
    expect([...columns([5], at([3]), 0, 10, 2).max]).toEqual([Number.NaN, 3]);
    expect([...columns([1, 6], at([3, 4]), 5, 7, 2).last]).toEqual([3, 4]);
  });
  it("shows both sides of a change within a pixel", () => {
    const { min, max, last } = columns([0, 5.5], at([10, 2]), 0, 10, 10);
    expect([min[5], max[5], last[5]]).toEqual([2, 10, 2]);
  });
});

describe("peak and samples", () => {
  const id = memory([0, 10, 20, 30], [5, 9, 9, 1]);
  it("mark the last of equal maxima", () => {
    expect(peakIndex(id)).toBe(2);
    expect(peakIndex(memory([], []))).toBe(-1);
  });
  it("are the one that holds, or the highest near the pointer", () => {
    expect(sampleAt(id, 15, 1)).toBe(1);
    expect(sampleAt(id, 29.5, 1)).toBe(3);
    expect(sampleAt(id, 25, 6)).toBe(2);
    expect(sampleAt(id, -5, 1)).toBe(0);
    expect(sampleAt(memory([], []), 1, 1)).toBe(-1);
  });
});

describe("axes", () => {
  it("start with the use alone while the peak is under half of the device", () => {
    expect(firstScope(memory([0], [49 * MiB]))).toBe("use");
    expect(firstScope(memory([0], [50 * MiB]))).toBe("device");
    expect(firstScope(memory([0], [50 * MiB], { capacity_bytes: null as unknown as number }))).toBe("use");
  });
  it("are cut above the peak and say so, or show the whole device", () => {
    const id = memory([0, 1], [3 * MiB, 11.81 * MiB]);
    const cut = axis(id, "use", 88.19 * MiB);
    expect(cut).toMatchObject({ unit: "MiB", max: 16 * MiB, cut: "free: 88.19 MiB, axis cut at 16 MiB" });
    expect(cut.ticks.map((tick) => tick.text)).toEqual(["0", "4", "8", "12", "16"]);
    const whole = axis(id, "device", 88.19 * MiB);
    expect(whole).toMatchObject({ unit: "MiB", max: 100 * MiB, cut: "" });
    expect(whole.ticks.at(-1)?.value).toBe(100 * MiB);
    const odd = axis(memory([0], [MiB], { capacity_bytes: 14.56 * MiB }), "device", MiB);
    expect(odd.ticks.map((tick) => tick.text)).toEqual(["0", "5", "10", "14.6"]);
  });
  it("never end below the peak, also where that lies before the samples", () => {
    expect(axis(memory([0], [MiB], { peak_bytes: 7 * MiB }), "use", Number.NaN).max).toBe(8 * MiB);
    for (const value of [0.013, 0.99, 1, 1.21, 3.3, 9.99, 512, 1023]) {
      const { max, ticks } = byteAxis(value);
      expect(max).toBeGreaterThanOrEqual(value);
      expect(max).toBeLessThanOrEqual(1.7 * value);
      expect(ticks[0]).toBe(0);
      expect(ticks.at(-1)).toBe(max);
    }
    expect(byteAxis(0)).toEqual({ max: 1, ticks: [0, 1] });
  });
  it("of fragmentation is in percent and at most 100", () => {
    expect(fragmentationAxis(memory([0], [1], { fragmentation: Float64Array.of(0.0007) })).max).toBeCloseTo(0.08);
    expect(fragmentationAxis(memory([0], [1], { fragmentation: Float64Array.of(1) })).max).toBe(100);
  });
  it("of time has few even ticks", () => {
    expect(timeTicks(0, 130, 8)).toEqual([0, 20, 40, 60, 80, 100, 120]);
    expect(ticksText([0, 0.5, 1])).toEqual(["0", "0.5", "1.0"]);
  });
});

describe("a moment in words", () => {
  const id = memory([83.3071], [11.33 * MiB], {
    allocated_bytes: Float64Array.of(3_686_400),
    requested_bytes: Float64Array.of(100),
    step: Int32Array.of(513),
    op: { codes: Uint8Array.of(0), values: ["conv/Conv2D"] },
    fragmentation: Float64Array.of(Number.NaN),
  });
  it("has the ten fields, with – for what is missing", () => {
    const card = cardRows(id, 0);
    expect(card.rows.map((row) => row.label)).toEqual([
      ...["Timestamp", "Event", "Requested", "Allocated", "Op", "Step", "Region", "Data type", "Shape"],
      "In use after",
    ]);
    const value = (label: string) => card.rows.find((row) => row.label === label)?.value;
    expect(value("Timestamp")).toBe("83.307 ms");
    expect(value("Allocated")).toBe("3.52 MiB (3,686,400 B)");
    expect(value("Requested")).toBe("100 B");
    expect(value("Step")).toBe("513");
    expect(value("Region")).toBe("–");
    expect(value("In use after")).toBe("11.33 MiB");
  });
  it("names the unit that an event is in, and gives a recording no number", () => {
    expect(momentText(id, 0, "call")).toContain(", call 513:");
    expect(cardRows(id, 0, "call").rows.map(({ label }) => label)).toContain("Call");
    expect(momentText(id, 0, "recording")).not.toContain("513");
    expect(cardRows(id, 0, "recording").rows.map(({ label }) => label)).not.toContain("Recording");
  });
  it("says what was in use and after what, and nothing of what is not known", () => {
    const text = momentText(id, 0);
    expect(text).toContain("At 83.307 ms, step 513: 11.33 MiB in use");
    expect(text).toContain("after the allocation of 3.52 MiB by conv/Conv2D");
    expect(text).not.toMatch(/fragmentation|NaN/);
  });
});

describe("alive at the peak", () => {
  const peak: Table = {
    rows: 3,
    columns: [],
    data: {
      allocated_bytes: Float64Array.of(10, 30, 20),
      requested_bytes: Float64Array.of(9, 29, 19),
      percent: Float64Array.of(20, 30, 20),
      occurrences: Float64Array.of(2, 1, Number.NaN),
    },
  };
  it("is listed by size", () => {
    expect([...bySize(peak)]).toEqual([1, 2, 0]);
  });
  it("adds up, a row as often as it occurs", () => {
    expect(total(peak, [0, 1, 2])).toEqual({ count: 4, requested_bytes: 57, allocated_bytes: 60, percent: 70 });
  });
  it("folds the small ones, but not a single one", () => {
    const order = Uint32Array.from({ length: 20 }, (_, i) => i);
    expect(split(order).shown).toHaveLength(12);
    expect([...split(order, 18).smaller]).toEqual([18, 19]);
    expect(split(order, 19).smaller).toHaveLength(0);
    expect(split(order, 19).shown).toHaveLength(20);
  });
});

describe("what is alive at a moment", () => {
  const kinds: Table = {
    columns: [],
    rows: 2,
    data: {
      op: ["conv", "relu"],
      region_type: ["output", "temp"],
      data_type: ["half", "half"],
      shape: ["[2]", "[3]"],
      requested_bytes: Float64Array.of(100, 30),
      allocated_bytes: Float64Array.of(128, 32),
    },
  };
  const id = memory([0, 1, 2, 3], [160, 288, 160, 500]);
  id.stack_bytes = Float64Array.of(0, 0, 0, 40);
  id.heap_bytes = Float64Array.of(160, 288, 160, 460);
  // The blocks of step 0 are known at three moments; the event of step 1 comes first in the file's order of steps.
  id.moments = {
    point: Int32Array.of(3, 0, 1, 2),
    blocks: kinds,
    moment: Int32Array.of(1, 1, 2, 3, 3),
    block: Int32Array.of(0, 1, 0, 0, 1),
    change: Int32Array.of(1, 1, 1, -1, -1),
    smaller_bytes: new Float64Array(4),
    smaller_count: new Float64Array(4),
    rest: "unused",
  };
  const column = (k: number, key: string): unknown[] => Array.from(aliveAt(id, k).data[key] as string[]);

  it("is the blocks between their allocation and deallocation, equal ones together", () => {
    expect(column(1, "op")).toEqual(["conv", "relu"]);
    expect(column(1, "occurrences")).toEqual([2, 1]);
    expect(column(1, "requested_bytes")).toEqual([200, 30]);
    expect(column(1, "percent")[0]).toBeCloseTo((100 * 256) / 288, 9);
    expect(column(2, "op")).toEqual(["conv", "unused"]);
    expect(column(2, "allocated_bytes")).toEqual([128, 32]);
  });

  it("does not reach into another step, and knows the stack", () => {
    expect(column(3, "op")).toEqual(["unused", "stack"]);
    expect(column(3, "allocated_bytes")).toEqual([460, 40]);
    expect(column(3, "requested_bytes")).toEqual([460, 40]);
    const torch = { ...id, stack_bytes: new Float64Array(4).fill(Number.NaN) };
    expect((aliveAt(torch, 3).data["requested_bytes"] as Float64Array)[0]).toBeNaN();
  });

  it("is one row where blocks are not told apart, and counts those too small to be told", () => {
    const untold = aliveAt({ ...id, moments: null }, 1);
    expect(untold).toMatchObject({ rows: 1, data: { occurrences: Float64Array.of(1) } });
    expect(isRest(untold, 0)).toBe(true);
    expect(isRest(aliveAt(id, 1), 0)).toBe(false);
    const moments = id.moments as NonNullable<typeof id.moments>;
    const smaller = {
      ...moments,
      smaller_bytes: Float64Array.of(0, 0, 0, 8),
      smaller_count: Float64Array.of(0, 0, 0, 2),
    };
    const table = aliveAt({ ...id, moments: smaller }, 2);
    expect(Array.from(table.data["allocated_bytes"] as Float64Array)).toEqual([128, 24, 8]);
    expect(Array.from(table.data["occurrences"] as Float64Array)).toEqual([1, 1, 2]);
  });
});
