import { describe, expect, it } from "vitest";
import { fillsOf, stem, tintOf } from "../lib/colours.js";
import { CATEGORIES } from "../lib/payload.js";
import { overview, strip } from "../views/trace/strips.js";
import { lane, trace } from "./lanes.js";

describe("colours", () => {
  it("are the same for a kernel whatever its template arguments and number", () => {
    expect(stem("void gemm<float, 4>(int)")).toBe("void gemm");
    expect(stem("dense_12")).toBe("dense");
    expect(stem("123")).toBe("123");
    expect(tintOf("gemm<float>(int)")).toBe(tintOf("gemm<half, 8>(long)"));
    expect(tintOf("sequential/conv2d_1")).toBe(tintOf("sequential/conv2d_27"));
  });
  it("spread over all eight tints", () => {
    const counts = new Array(8).fill(0);
    for (const a of ["Mat", "Conv", "Bias", "Relu", "Max", "Adam", "Cast", "Read"]) {
      for (const b of ["Mul", "Grad", "Add", "Pool", "Op", "Kernel", "Fused", "Filter"]) counts[tintOf(a + b)]++;
    }
    expect(Math.min(...counts)).toBeGreaterThan(1);
  });
  it("follow the category where there is one", () => {
    expect([...fillsOf(["a", "b"], Uint8Array.of(0, 6))]).toEqual([100 + tintOf("a"), 6]);
  });
});

describe("the strip", () => {
  it("has the busy share of each pixel", () => {
    const data = trace(
      [
        lane([
          [0, 250, 0, 0],
          [300, 50, 0, 0],
          [900, 100, 0, 0],
        ]),
      ],
      ["a"],
      1000,
    );
    const busy = strip(data, 10, () => true);
    expect([...busy].map((v) => Number(v.toFixed(3)))).toEqual([1, 1, 0.5, 0.5, 0, 0, 0, 0, 0, 1]);
  });
  it("counts overlapping slices once at most, and only those asked for", () => {
    const data = trace(
      [
        lane([
          [0, 100, 0, 0],
          [0, 100, 1, 1],
        ]),
      ],
      ["a", "b"],
      100,
    );
    expect([...strip(data, 4, () => true)]).toEqual([1, 1, 1, 1]);
    expect([...strip(data, 4, (_, i) => i > 1)]).toEqual([0, 0, 0, 0]);
  });
});

describe("the overview", () => {
  const category = (key: string): number => CATEGORIES.findIndex((each) => each.key === key) + 1;
  it("has input above and the work of the device below", () => {
    const data = trace(
      [
        lane([[0, 50, 0, 0]]),
        lane([[50, 50, 1, 0]], { process: "GPU 0", kind: "device", name: "Stream 7" }),
        lane([[0, 100, 1, 0]], { process: "GPU 0", kind: "device", name: "Name scope" }),
      ],
      ["wait", "kernel"],
      100,
    );
    data.category = Uint8Array.of(category("input"), 0);
    const { above, below, below_is } = overview(data, 4);
    expect([[...above], [...below], below_is]).toEqual([[255, 255, 0, 0], [0, 0, 255, 255], "device"]);
  });
  it("has the share of busy threads below where there is no device", () => {
    const data = trace(
      [
        lane([[0, 100, 0, 0]]),
        lane([
          [0, 50, 0, 0],
          [10, 10, 0, 1],
        ]),
      ],
      ["op"],
      100,
    );
    expect(overview(data, 2)).toMatchObject({ below: Uint8Array.of(255, 128), below_is: "host" });
  });
});
