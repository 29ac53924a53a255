import { describe, expect, it } from "vitest";
import { toCsv } from "../lib/csv.js";
import { filterRows, firstDirection, matcher, sortRows, textKeys } from "../lib/rows.js";
import { HOSTILE } from "./hostile.js";
import { makeTable } from "./sample.js";

const table = makeTable(
  [
    ["op", "Operation", "code"],
    ["where", "Where", "text"],
    ["us", "µs", "number", 1],
    ["tc", "Tensor Cores", "bool"],
  ],
  {
    op: ["conv/10", "conv/9", "", '=SUM("a"),1', HOSTILE],
    where: { codes: Uint8Array.of(0, 1, 0, 1, 0), values: ["device", "host"] },
    us: Float64Array.of(1 / 3, 5, Number.NaN, 5, -1),
    tc: Float64Array.of(1, 0, Number.NaN, 1, 0),
  },
);
const all = Uint32Array.of(0, 1, 2, 3, 4);
const sorted = (key: string, descending: boolean) => [...sortRows(table, all, { key, descending })];

describe("sort", () => {
  it("orders numbers, keeps ties in place and missing values last either way", () => {
    expect(sorted("us", true)).toEqual([1, 3, 0, 4, 2]);
    expect(sorted("us", false)).toEqual([4, 0, 1, 3, 2]);
  });

  it("orders text as a person counts, missing last", () => {
    const order = sorted("op", false);
    expect(order.indexOf(1)).toBeLessThan(order.indexOf(0));
    expect(order.at(-1)).toBe(2);
    expect(sorted("op", true).at(-1)).toBe(2);
    expect(sorted("where", false)).toEqual([0, 2, 4, 1, 3]);
    expect(sorted("where", true)).toEqual([1, 3, 0, 2, 4]);
  });

  it("starts with the largest number, or the first text", () => {
    expect([firstDirection(table, "us"), firstDirection(table, "op"), firstDirection(table, "where")]).toEqual([
      true,
      false,
      false,
    ]);
  });
});

describe("filter", () => {
  const filter = (text: string) => {
    const match = matcher(text);
    return match ? [...filterRows(table, all, textKeys(table), match)] : [...all];
  };

  it("takes part of a name in any text column, in any case", () => {
    expect(filter("CONV")).toEqual([0, 1]);
    expect(filter("host")).toEqual([1, 3]);
    expect(filter("  ")).toEqual([0, 1, 2, 3, 4]);
    // Not an expression without slashes.
    expect(filter("conv/.")).toEqual([]);
  });

  it("takes an expression between slashes and throws for a bad one", () => {
    expect(filter("/conv.1\\d/")).toEqual([0]);
    expect(() => matcher("/conv(/")).toThrow(/regular expression/i);
  });
});

describe("CSV", () => {
  it("has raw keys, full precision, true and false, nothing for missing", () => {
    const lines = toCsv(table, Uint32Array.of(0, 2)).split("\r\n");
    expect(lines).toEqual(["op,where,us,tc", "conv/10,device,0.3333333333333333,true", ",device,,", ""]);
  });

  it("quotes, and keeps a spreadsheet from running a name", () => {
    const [, first, second] = toCsv(table, Uint32Array.of(3, 4)).split("\r\n");
    expect(first).toBe(`"'=SUM(""a""),1",host,5,true`);
    expect(second?.startsWith(`"${HOSTILE.replaceAll('"', '""')}"`)).toBe(true);
  });

  it.each([
    ["=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"],
    ["@SUM(1)", "'@SUM(1)"],
    ["-2+3", "'-2+3"],
    ["+1+1", "'+1+1"],
    ["＝1", "'＝1"],
    ["\t=1", "'\t=1"],
    ["-2", "-2"],
    ["-2.5e-3", "-2.5e-3"],
    ["a-b", "a-b"],
    ["a\n=1", `"a\n'=1"`],
    ["a\r\n@x", `"a\r\n'@x"`],
    ["\n=1", `"'\n'=1"`],
    ["a\nb", `"a\nb"`],
  ])("takes %j for no formula", (text, cell) => {
    const one = makeTable([["op", "Operation", "text"]], { op: [text] });
    expect(toCsv(one, Uint32Array.of(0))).toBe(`op\r\n${cell}\r\n`);
  });

  it("has the rows it is given, in their order", () => {
    const cells = toCsv(table, sortRows(table, Uint32Array.of(0, 1), { key: "us", descending: true }));
    expect(
      cells
        .split("\r\n")
        .slice(1, 3)
        .map((line) => line.split(",")[0]),
    ).toEqual(["conv/9", "conv/10"]);
  });
});
