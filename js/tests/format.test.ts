import { describe, expect, it } from "vitest";
import {
  bytesIn,
  bytesText,
  byteUnit,
  count,
  flag,
  kernelName,
  ms,
  num,
  percent,
  signed,
  tailStart,
  us,
} from "../lib/format.js";

describe("a flag", () => {
  it("is yes, no or not known", () => {
    expect([1, 0, Number.NaN, null].map(flag)).toEqual(["✓", "✗", "–", "–"]);
  });
});

describe("numbers", () => {
  it.each([
    [6.2, 2, "6.20"],
    [17053, 0, "17,053"],
    [-2.6, 1, "−2.6"],
    [0, 1, "0.0"],
    [-0, 1, "0.0"],
    [0.04, 1, "< 0.1"],
    [-0.004, 2, "> −0.01"],
    [0.05, 1, "0.1"],
    [Number.NaN, 2, "–"],
    [Number.POSITIVE_INFINITY, 2, "–"],
    [null, 2, "–"],
    [undefined, 2, "–"],
    [-0.4, 0, "0"],
  ])("num(%s, %s) is %s", (value, digits, text) => {
    expect(num(value, digits)).toBe(text);
  });

  it("carry their unit, or none when missing", () => {
    expect([ms(6.2), us(306.61), percent(61), count(1344)]).toEqual(["6.20 ms", "306.6 µs", "61.0%", "1,344"]);
    expect([us(999.9), us(47_618.2), us(-47_618_200)]).toEqual(["999.9 µs", "47.62 ms", "−47.62 s"]);
    expect([ms(9999.94, 1), ms(10_000, 0), ms(81_492.6)]).toEqual(["9,999.9 ms", "10.00 s", "81.49 s"]);
    expect([ms(0), ms(0.01), ms(0.0031), ms(-0.0031)]).toEqual(["0.00 ms", "0.01 ms", "3.1 µs", "−3.1 µs"]);
    expect([ms(null), us(Number.NaN), percent(undefined)]).toEqual(["–", "–", "–"]);
    expect([signed(0.38, 2), signed(-0.38, 2), signed(0, 2)]).toEqual(["+0.38", "−0.38", "0.00"]);
  });

  it("bytes are 1024-based, one unit for all when asked", () => {
    expect(bytesText(43.4 * 2 ** 20)).toBe("43.40 MiB");
    expect(bytesText(1023)).toBe("1,023 B");
    expect(bytesText(1536)).toBe("1.5 KiB");
    expect(byteUnit(14.56 * 2 ** 30)).toBe("GiB");
    expect(bytesIn(2 ** 20, "GiB")).toBe("< 0.01");
    expect(bytesText(null)).toBe("–");
  });
});

describe("names", () => {
  it("are in full colour from the third segment from the end", () => {
    const name = "gradient_tape/sequential/conv2d/Conv2D/Conv2DBackpropFilter";
    expect(name.slice(tailStart(name))).toBe("conv2d/Conv2D/Conv2DBackpropFilter");
    expect(tailStart("a/b/c")).toBe(0);
    expect("Iterator::Root::Map".slice(tailStart("Iterator::Root::Map"))).toBe("Map");
    expect(tailStart("MatMul")).toBe(0);
  });

  it.each([
    ["void ns::gemm<float, 4>(ns::Params, int)", "gemm", "<float, 4>"],
    ["void cutlass::Kernel<cutlass_80::op<(int)3, 4> >(cutlass::P::Q)", "Kernel", "<cutlass_80::op<(int)3, 4> >"],
    ["void (anonymous namespace)::softmax<float>(float*)", "softmax", "<float>"],
    ["at::native::vec<4>::operator()(int)", "operator()", ""],
    ["volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn", ""],
    ["Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)", ""],
    ["Memset (Device)", "Memset (Device)", ""],
    ["[CUDA memcpy HtoD]", "[CUDA memcpy HtoD]", ""],
    ["fusion.12", "fusion.12", ""],
    ["broken<<(", "broken<<(", ""],
    ["a > b", "a > b", ""],
    ["torch/nn/modules/module.py(1750): _call_impl", "torch/nn/modules/module.py(1750): _call_impl", ""],
    ["enumerate(DataLoader)#_Iter.__next__", "enumerate(DataLoader)#_Iter.__next__", ""],
    ["gemm(float*) const", "gemm", ""],
    ["gemm(float*) [clone .kd]", "gemm", ""],
  ])("%s is %s %s", (full, name, template) => {
    expect(kernelName(full)).toEqual({ name, template });
  });
});
