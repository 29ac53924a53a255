import { describe, expect, it } from "vitest";
import {
  details,
  first,
  label,
  lifetime,
  ordered,
  peakRow,
  pointCard,
  pointText,
  rowAt,
} from "../views/memory-viewer/model.js";
import { programSpace } from "./sample.js";

const KiB = 1024;

describe("the rows of a working set that was thinned", () => {
  const space = programSpace({ position: Uint32Array.of(0, 4, 5, 90), rows: 4, points: 101 });
  it("hold until the next one", () => {
    expect([-1, 0, 3, 4, 5, 89.5, 90, 100].map((point) => rowAt(space, point))).toEqual([-1, 0, 0, 1, 2, 2, 3, 3]);
  });
  it("have the peak where it was reached, and none without a heap", () => {
    expect(peakRow({ ...space, peak: 5 })).toBe(2);
    expect(peakRow({ ...space, peak: -1 })).toBe(-1);
  });
});

describe("buffers", () => {
  const space = programSpace();
  it("stay in program order, or go by size with equal ones in program order", () => {
    expect(ordered(space, "program")).toEqual([0, 1, 2]);
    expect(ordered(space, "size")).toEqual([1, 0, 2]);
  });
  it("begin with the largest that comes and goes", () => {
    expect(first(space)).toBe(1);
    expect(first({ ...space, buffers: { ...space.buffers, rows: 1 } })).toBe(0);
    expect(first({ ...space, buffers: { ...space.buffers, rows: 0 } })).toBe(-1);
  });
  it("live from the point after they are taken to the one at which they are given back", () => {
    expect(lifetime(space, 1)).toEqual([2, 4]);
    // Never given back: to the end of the axis.
    expect(lifetime(space, 2)).toEqual([3, 5]);
  });
  it("live on the whole axis where they live throughout", () => {
    expect(lifetime(space, 0)).toEqual([0, 5]);
  });
  it("tell what is known of them, and nothing of what is not", () => {
    const told = Object.fromEntries(details(space, 1));
    expect(told).toMatchObject({
      Buffer: "fusion.1",
      Category: "Temporary",
      Size: "8.0 KiB, 50.0% of the peak",
      Expansion: "2.00 ×, 4.0 KiB more",
      Alive: "from point 2 to 3 of 4",
      Allocation: "7",
    });
    expect(Object.keys(details(space, 0))).not.toContain("Source");
    expect(Object.fromEntries(details(space, 0))).toMatchObject({ Alive: "throughout" });
    expect(Object.keys(Object.fromEntries(details(space, 0)))).not.toContain("Allocation");
  });
});

describe("a program point", () => {
  const space = programSpace();
  it("says instruction, memory and padding", () => {
    const card = pointCard(space, 3);
    expect(card.title).toBe("fusion.2");
    expect(card.total).toBe("16.0 KiB");
    expect(card.rows.map((row) => row.value)).toEqual(["3 of 4", "12.0 KiB", "4.0 KiB"]);
    expect(card.rows[2]?.note).toBe("25.0%");
    expect(pointText(space, 4)).toContain("the end");
  });
  it("of an empty working set has no share of padding", () => {
    const empty = programSpace({ allocated_bytes: new Uint8Array(5), unpadded: new Uint8Array(5) });
    expect(pointCard(empty, 0).rows[2]?.note).toBe("");
  });
});

it("names a program with its peak, and its hosts where there are several", () => {
  const module = { name: "jit_step(8)", hosts: 1, host: "", peak_bytes: 16 * KiB, time_ms: null, spaces: [] };
  expect(label(module)).toBe("jit_step(8), peak 16.0 KiB");
  expect(label({ ...module, host: "host3" })).toBe("jit_step(8), peak 16.0 KiB, on host3");
  expect(label({ ...module, hosts: 4 })).toBe("jit_step(8), peak 16.0 KiB, 4 hosts");
});
