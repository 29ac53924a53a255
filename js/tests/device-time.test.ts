import { describe, expect, it } from "vitest";
import { KINDS, kindOf, PARTS, partsOf, pathScope, sum, toPiece, WAITS } from "../views/device-time/model.js";
import { deviceTimeSample } from "./device-time-sample.js";

describe("the time of devices", () => {
  const data = deviceTimeSample();

  it("has the parts of each device, of the whole recording and of a step", () => {
    expect(partsOf(data, 0)).toEqual([
      [5, 2, 0, 3],
      [6, 0, 1, 3],
    ]);
    // A device without that step has no bar, which is not a bar of 0.
    expect(partsOf(data, 1)).toEqual([
      [4, 0, 0, 1],
      [null, null, null, null],
    ]);
  });

  it("names the step of the critical path", () => {
    expect(pathScope("ProfilerStep#6", "", 8)).toBe("of ProfilerStep#6, the step of median length");
    expect(pathScope("0", "", 1)).toBe("of step 0, the only step");
    expect(pathScope("12", "host-3", 2)).toBe("of step 12 on host-3, the step of median length");
  });

  it("adds up what is known", () => {
    expect(sum([1, null, 2])).toBe(3);
  });

  it("names every kind of piece, and one that it does not know as it is called", () => {
    expect(Object.keys(KINDS)).toHaveLength(12);
    expect(kindOf("launch_delay").label).toBe("Launch delay");
    expect(kindOf("new kind")).toEqual({ css: "other", label: "new kind" });
  });

  it("gives every kind a colour that no other kind has", () => {
    for (const parts of [Object.values(KINDS), PARTS, WAITS]) {
      expect(new Set(parts.map(({ css }) => css)).size).toBe(parts.length);
    }
    const [between] = WAITS.filter(({ label }) => label === "Between kernels");
    expect(kindOf("kernel_wait").css).toBe(between?.css);
  });

  it("leads from a row of the critical path to its longest piece", () => {
    const kernel = toPiece(data.path.table, 0);
    expect(kernel.target).toMatchObject({ kind: "kernel", time_ms: 1 });
    expect(kernel.range_ms).toEqual([0, 4]);
    expect(toPiece(data.path.table, 2).target).toMatchObject({ kind: "op", name: "aten::mm", time_ms: 5 });
    // What lies between two events is a time, and no slice.
    expect(toPiece(data.path.table, 1).target).toBeUndefined();
  });
});
