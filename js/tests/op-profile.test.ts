import { describe, expect, it } from "vitest";
import { padding, si, verdict } from "../views/op-profile/details.js";
import { all, build, isLow, type Node, opened, rows, scopes, use, worst } from "../views/op-profile/model.js";
import { type Op, opProfile } from "./op-profile-sample.js";

const OPS: Op[] = [
  { name: "dot.1", category: "dot", time: 50, flops: 40, bytes: 10, framework_op: "jit(f)/layer_0/attn/dot" },
  { name: "fusion.1", duplicate: "fusion", time: 20, flops: 2, bytes: 16, framework_op: "jit(f)/layer_0/mlp/add" },
  { name: "fusion.2", duplicate: "fusion", time: 10, flops: 1, bytes: 8, framework_op: "jit(f)/layer_0/mlp/mul" },
  { name: "copy-done.1", category: "copy-done", time: 15, program: "jit_g(2)" },
  { name: "tiny", time: 0.05 },
];
const profile = opProfile(OPS, {
  rest: [{ name: "", ops: 7, time: 5, flops: 1 }],
  inside: [{ op: 1, name: "add.9", flops: 2 }],
  idle: 100,
});
const names = (node: Node): string[] => node.children.map(({ name }) => name);
const path = (root: Node, ...ways: string[]): Node =>
  ways.reduce((node, name) => node.children.find((child) => child.name === name) as Node, root);
const tinies = (count: number): Op[] => Array.from({ length: count }, (_, i) => ({ name: `tiny${i}`, time: 0.1 }));
const how = {
  open: new Set<string>(),
  full: new Set<string>(),
  sort: "time" as const,
  descending: true,
  most: 25,
  least: 0,
  fits: null,
};

describe("trees of the op profile", () => {
  it("by program: categories, duplicates, ops, and what is inside", () => {
    const root = build(profile, "program", false);
    expect(names(root)).toEqual(["jit_f(1)", "jit_g(2)"]);
    const fusion = path(root, "jit_f(1)", "fusion");
    expect(names(fusion)).toEqual(["fusion.1 and its duplicate", "tiny", "7 smaller ops"]);
    expect(names(path(fusion, "fusion.1 and its duplicate"))).toEqual(["fusion.1", "fusion.2"]);
    expect(names(path(fusion, "fusion.1 and its duplicate", "fusion.1"))).toEqual(["add.9"]);
    expect(root.time).toBeCloseTo(100.05);
    expect([fusion.time, fusion.flops, fusion.bytes]).toEqual([35.05, 4, 24]);
    expect(fusion.runs).toBe(4);
    // A program runs, but not as often as its ops do.
    expect(root.children[0]?.runs).toBeNaN();
  });

  it("every grouping has the same ops and time", () => {
    for (const by of ["program", "category", "provenance"] as const) {
      const root = build(profile, by, false);
      expect(root.time).toBeCloseTo(100.05);
      const ops = [...all(root)].filter(({ kind }) => kind === "op").map(({ name }) => name);
      expect(ops.sort()).toEqual(OPS.map(({ name }) => name).sort());
      const keys = [...all(root)].map(({ key }) => key);
      expect(new Set(keys).size).toBe(keys.length);
    }
  });

  it("an op says its program where the tree does not, and its category where it is the only one", () => {
    const note = (by: "program" | "category", name: string): string | undefined =>
      [...all(build(profile, by, false))].find((node) => node.name === name)?.note;
    expect(note("category", "dot.1")).toBe("jit_f(1)");
    expect(note("program", "dot.1")).toBe("dot");
    expect(note("program", "fusion.1")).toBe("");
    const single = opProfile([{ name: "a", time: 1 }]);
    expect([...all(build(single, "category", false))].at(-1)?.note).toBe("");
  });

  it("by framework op: scopes in scopes, those with a single one inside in one row", () => {
    const root = build(profile, "provenance", false);
    expect(names(root)).toEqual(["jit(f)/layer_0", "(no framework op)", "(smaller ops)"]);
    expect(names(path(root, "jit(f)/layer_0"))).toEqual(["attn/dot", "mlp"]);
    expect(names(path(root, "jit(f)/layer_0", "attn/dot"))).toEqual(["dot.1"]);
    expect(names(path(root, "jit(f)/layer_0", "mlp"))).toEqual(["add", "mul"]);
    for (const node of all(root)) for (const child of node.children) expect(child.parent).toBe(node);
  });

  it("a slash in brackets parts no scopes", () => {
    expect(scopes("jit(f)/transpose(jvp(a/b))//dot")).toEqual(["jit(f)", "transpose(jvp(a/b))", "dot"]);
    expect(scopes("")).toEqual(["(no framework op)"]);
    expect(scopes("a)/b(/c")).toEqual(["a)", "b(/c"]);
    expect(scopes("x/".repeat(100)).length).toBe(40);
  });

  it("use is of the peaks, and waste what the better of them leaves", () => {
    const root = build(profile, "program", false);
    expect(use(profile, path(root, "jit_f(1)", "dot.1"))).toEqual({
      flops: 0.8,
      bytes: 0.2,
      wasted: 50 * (1 - 0.8),
    });
    // Neither is known of it, so nothing is said.
    expect(use(profile, path(root, "jit_g(2)")).wasted).toBeNaN();
    const odd = opProfile([{ name: "a", time: 1, flops: 0.5, bytes: 1000 }]);
    expect(use(odd, build(odd, "program", false))).toEqual({ flops: 0.5, bytes: Number.NaN, wasted: 0.5 });
    const blind = opProfile([{ name: "a", time: 1, flops: 0.5 }], { peaks: [null, null] });
    expect(use(blind, build(blind, "program", false))).toEqual({
      flops: Number.NaN,
      bytes: Number.NaN,
      wasted: Number.NaN,
    });
  });

  it("low use of FLOPS is marked, but not where memory is the limit or nothing is known", () => {
    const of = opProfile([
      { name: "slow", time: 10, flops: 1, bytes: 1 },
      { name: "fast", time: 10, flops: 9, bytes: 1 },
      { name: "moving", time: 10, flops: 1, bytes: 9 },
      { name: "computing", time: 10, flops: 1 },
      { name: "unknown", time: 10 },
    ]);
    const low = (name: string): boolean =>
      isLow(of, [...all(build(of, "category", false))].find((node) => node.name === name) as Node);
    expect(["slow", "fast", "moving", "computing", "unknown"].map(low)).toEqual([true, false, false, true, false]);
  });

  it("idle is part of the whole, and of no use", () => {
    const [without, root] = [build(profile, "program", false), build(profile, "program", true)];
    expect(root.time).toBeCloseTo(200.05);
    expect(names(root)).toContain("Idle");
    expect(use(profile, root)).toEqual(use(profile, without));
    expect(names(build({ ...profile, idle_us: null }, "program", true))).not.toContain("Idle");
  });

  it("rows: what is open, the largest, and how many more", () => {
    const many = opProfile(Array.from({ length: 30 }, (_, i) => ({ name: `op${i}`, time: 100 - i })));
    const root = build(many, "category", false);
    const open = new Set([...all(root)].map(({ key }) => key));
    const shown = rows(many, root, { ...how, open, most: 10 });
    expect(shown).toHaveLength(2 + 10 + 1);
    expect(shown.at(-1)).toMatchObject({ more: 20, depth: 2, at: 11 });
    expect(shown.at(-1)?.time).toBe(Array.from({ length: 20 }, (_, i) => 90 - i).reduce((a, b) => a + b));
    const category = root.children[0] as Node;
    expect(rows(many, root, { ...how, open, most: 10, full: new Set([category.key]) })).toHaveLength(32);
    expect(rows(many, root, { ...how, open: new Set([root.key]) }).map(({ node }) => node.name)).toEqual([
      "All categories",
      "fusion",
    ]);
    // A single one left out takes the room of the row that would say so.
    expect(rows(many, root, { ...how, open, most: 29 })).toHaveLength(32);
    // What is small is left out, but not where it is the only one.
    const least = (count: number): string[] => {
      const few = opProfile([{ name: "large", time: 1000 }, ...tinies(count)]);
      const tree = build(few, "category", false);
      return rows(few, tree, { ...how, open, least: 0.001 }).map(({ node, more }) =>
        more ? `${more} more` : node.name,
      );
    };
    expect(least(1)).toEqual(["All categories", "fusion", "large", "tiny0"]);
    expect(least(2)).toEqual(["All categories", "fusion", "large", "2 more"]);
  });

  it("rows in the order of what is asked for, missing ones last", () => {
    const root = build(profile, "category", false);
    const open = new Set([root.key]);
    const order = (sort: "time" | "wasted" | "bytes", descending = true): string[] =>
      rows(profile, root, { ...how, open, sort, descending })
        .slice(1)
        .map(({ node }) => node.name);
    expect(order("time")).toEqual(["dot", "fusion", "copy-done"]);
    expect(order("time", false)).toEqual(["copy-done", "fusion", "dot"]);
    expect(order("wasted")).toEqual(["fusion", "dot", "copy-done"]);
    expect(order("bytes")).toEqual(["fusion", "dot", "copy-done"]);
  });

  it("a search shows what fits and what that lies in, whatever is closed or small", () => {
    const root = build(profile, "program", false);
    const fits = ({ name }: Node): boolean => name === "tiny";
    expect(rows(profile, root, { ...how, least: 0.01, fits }).map(({ node }) => node.name)).toEqual([
      "All programs",
      "jit_f(1)",
      "fusion",
      "tiny",
    ]);
    expect(rows(profile, root, { ...how, fits: () => false })).toHaveLength(1);
  });

  it("opens the longest at first, but no op", () => {
    const root = build(profile, "program", false);
    const open = opened(root);
    expect(open).toContain(root.children[0]?.key);
    for (const node of all(root)) if (node.kind === "op") expect(open).not.toContain(node.key);
    expect(opened(root, 2).size).toBe(1);
  });

  it("the worst ops of a node", () => {
    const root = build(profile, "program", false);
    expect(worst(profile, root, 2).map(({ name }) => name)).toEqual(["dot.1", "fusion.1"]);
    const blind = opProfile(OPS, { peaks: [null, null] });
    expect(worst(blind, build(blind, "program", false), 2).map(({ name }) => name)).toEqual(["dot.1", "fusion.1"]);
  });
});

describe("ops of which nobody knows what they cost", () => {
  const blind = opProfile([
    { name: "call", category: "custom-call", time: 60, unknown: 60 },
    { name: "gemm", category: "custom-call", time: 20, flops: 16, bytes: 2 },
    { name: "add", time: 20, flops: 1, bytes: 10 },
  ]);
  const root = build(blind, "category", false);

  it("are left out of use and waste", () => {
    const call = path(root, "custom-call", "call");
    expect(use(blind, call)).toEqual({ flops: Number.NaN, bytes: Number.NaN, wasted: Number.NaN });
    expect(use(blind, path(root, "custom-call"))).toEqual({
      flops: expect.closeTo(0.8),
      bytes: expect.closeTo(0.1),
      wasted: expect.closeTo(4),
    });
    expect([root.time, root.unknown, root.busy]).toEqual([100, 60, 40]);
    expect(use(blind, root).flops).toBeCloseTo(17 / 40);
    expect(worst(blind, root).map(({ name }) => name)).toEqual(["add", "gemm"]);
  });

  it("come last in either order", () => {
    const order = (descending: boolean): string[] =>
      rows(blind, root, { ...how, sort: "flops", descending, open: new Set([...all(root)].map(({ key }) => key)) })
        .filter(({ node }) => node.kind === "op" && node.category === "custom-call")
        .map(({ node }) => node.name);
    expect(order(true)).toEqual(["gemm", "call"]);
    expect(order(false)).toEqual(["gemm", "call"]);
  });
});

describe("details", () => {
  it("says what limits an op", () => {
    const root = build(profile, "category", false);
    expect(verdict(profile, path(root, "dot", "dot.1"))).toContain(
      "80.0% of the peak FLOP/s and 20.0% of the memory bandwidth: near",
    );
    expect(verdict(profile, path(root, "copy-done", "copy-done.1"))).toBe("");
    expect(verdict(profile, path(root, "fusion", "fusion.1 and its duplicate"))).toContain(
      "near the peak. Only moving fewer bytes",
    );
  });

  it("tells the padding of each dimension", () => {
    const padded = opProfile([{ name: "a", time: 1, flops: 0.5, bytes: 0.1 }], {
      arrays: [
        {
          op: 0,
          role: "result",
          shape: "f32[8,100]",
          layout: "{1,0:T(8,128)}",
          padded: "f32[8,128]",
          bytes: 3200,
          padded_bytes: 4096,
        },
        {
          op: 0,
          role: "p",
          shape: "f32[3,4]",
          layout: "{1,0:T(2,128)(2,1)}",
          padded: "",
          bytes: 48,
          padded_bytes: 2048,
        },
        { op: 0, role: "p", shape: "f32[3,4]", layout: "{1,0}", padded: "f32[3,4]", bytes: 48, padded_bytes: 48 },
      ],
    });
    expect(padding(padded, 0)).toBe("3.1 KiB; padded to 4.0 KiB, 1.28 ×; dimension 1: 100 → 128");
    expect(padding(padded, 1)).toBe("48 B; padded to 2.0 KiB, 42.67 ×");
    expect(padding(padded, 2)).toBe("48 B; no padding");
  });

  it("numbers with their prefix", () => {
    expect(si(1.234e12, "FLOP/s")).toBe("1.23 TFLOP/s");
    expect(si(0, "B/s")).toBe("0.00 B/s");
    expect(si(Number.NaN, "B/s")).toBe("–");
    expect(si(9.2e20, "FLOP")).toBe("920,000 PFLOP");
  });
});
