import { describe, expect, it } from "vitest";
import { firsts } from "../views/allocator/map.js";
import { rowAt } from "../views/allocator/plot.js";
import { allocatorSample } from "./allocator-sample.js";

describe("the allocator", () => {
  it("finds the entry at a place on the axis", () => {
    const x = [0, 1, 2, 2.5];
    expect([-1, 0, 0.9, 1, 2.4, 99].map((at) => rowAt(x, at))).toEqual([0, 0, 0, 1, 2, 3]);
  });

  it("knows the blocks of each segment, also of one that has none", () => {
    const [device] = allocatorSample().devices;
    if (!device) throw new Error("no device");
    expect(firsts(device)).toEqual([0, 2, 3]);
    device.blocks.segment = Uint8Array.of(0, 0, 2);
    device.segments.rows = 4;
    expect(firsts(device)).toEqual([0, 2, 2, 3, 3]);
  });
});
