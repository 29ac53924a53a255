import { describe, expect, it } from "vitest";
import { cuts, cutTo } from "../lib/cut.js";

/** The names of a list as they are drawn in so many letters. */
function drawn(names: readonly string[], room: number): string[] {
  const cut = cuts(names);
  return names.map((name) =>
    cutTo(cut(name), room)
      .map(({ text, gone }) => (gone ? "…" : text))
      .join("")
      .replace(/…+/g, "…"),
  );
}

const OPS = [
  "gradient_tape/sequential/conv2d/Conv2D/Conv2DBackpropFilter",
  "gradient_tape/sequential/conv2d_1/Conv2D/Conv2DBackpropFilter",
  "gradient_tape/sequential/conv2d_1/Conv2D/Conv2DBackpropInput",
  "sequential/conv2d/Relu",
];
const turing = (end: string): string => `turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_${end}`;
const KERNELS = [
  turing("exp_small_nhwc_tn_v1"),
  turing("exp_small_nhwc2nchw_tn_v1"),
  turing("exp_interior_nhwc_tn_v1"),
];

describe("names that are cut", () => {
  it("are whole where there is room", () => {
    expect(drawn(OPS, 80)).toEqual(OPS);
    expect(drawn(["volta_sgemm_128x64_nt"], 21)).toEqual(["volta_sgemm_128x64_nt"]);
  });

  it("lose in the middle what they share", () => {
    expect(drawn(OPS, 48)).toMatchInlineSnapshot(`
      [
        "gradient_tape/…conv2d/Conv2…Conv2DBackpropFilter",
        "gradient_tape/…conv2d_1/Con…Conv2DBackpropFilter",
        "gradient_tape/…conv2d_1/Conv…Conv2DBackpropInput",
        "sequential/conv2d/Relu",
      ]
    `);
    expect(drawn(OPS, 22)).toMatchInlineSnapshot(`
      [
        "gradie…conv2d/…pFilter",
        "…conv2d_1/…kpropFilter",
        "gradi…conv2d_1/…pInput",
        "sequential/conv2d/Relu",
      ]
    `);
    expect(drawn(KERNELS, 36)).toMatchInlineSnapshot(`
      [
        "turing_fp16_s1688cu…small_nhwc_tn_v1",
        "turing_fp16_…small_nhwc2nchw_tn_v1",
        "turing_fp16_s168…interior_nhwc_tn_v1",
      ]
    `);
    expect(drawn(KERNELS, 20)).toMatchInlineSnapshot(`
      [
        "turing_fp…nhwc_tn_v1",
        "turing…nhwc2nchw_tn…",
        "turing…interior_nhw…",
      ]
    `);
  });

  it.each([80, 50, 40, 30, 25])("differ in %i letters, and take no more", (room) => {
    for (const names of [OPS, KERNELS, ["x/Filter", "x/Filter-0-Transpose", "x/Fill"]]) {
      const all = drawn(names, room);
      expect(new Set(all).size).toBe(names.length);
      expect(Math.max(...all.map((text) => text.length))).toBeLessThanOrEqual(room);
    }
  });

  it("keep the end of a path, and of a name alone", () => {
    expect(drawn(["a_long_model/first_layer/Conv2D", "a_long_model/second_layer/Conv2D"], 20)).toMatchInlineSnapshot(`
      [
        "…first_layer/Conv2D",
        "…second_layer/Conv2D",
      ]
    `);
    expect(drawn(["Iterator::Model::ParallelMapV2::ForeverRepeat"], 20)).toMatchInlineSnapshot(`
      [
        "Iterat…ForeverRepeat",
      ]
    `);
    expect(drawn(["EigenMetaKernel<Eigen::TensorEvaluator<float>, int>"], 24)).toMatchInlineSnapshot(`
      [
        "EigenMetaKernel<Eigen::…",
      ]
    `);
  });

  it("are whole in their parts, also one that is not in the list", () => {
    const cut = cuts(["a/b/c", "a/b/d", ""]);
    for (const name of ["a/b/c", "a/b/e", "", "::", "void f<int, a::b>(c)", "æ/ø/å"]) {
      const parts = cut(name);
      expect(parts.map(({ text }) => text).join("")).toBe(name);
      expect(parts.every(({ text }) => text.length > 0)).toBe(true);
    }
  });
});
