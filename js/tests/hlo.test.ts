import { describe, expect, it } from "vitest";
import type { Hlo } from "../lib/payload.js";
import { CATEGORIES } from "../lib/payload.js";
import { type Box, besides, slanted, textBox } from "../views/hlo/labels.js";
import {
  axes,
  choices,
  decades,
  details,
  hueNames,
  intensityText,
  level,
  markCard,
  missing,
  opCard,
  place,
  points,
  powerText,
  rate,
  remarks,
} from "../views/hlo/model.js";
import { HOSTILE } from "./hostile.js";
import { hloSample } from "./sample.js";

const NO_OPS: Hlo = {
  empty: null,
  figures: [],
  table: { columns: [], data: {}, rows: 0 },
  left_out: "",
  donuts: [],
  peak_flops: null,
  roofs: [],
  marks: [],
  device: "",
  missing: "",
  code: "",
};

describe("points of the roofline", () => {
  const hlo = hloSample();

  it("are the ops that compute, the largest first, areas by time", () => {
    const found = points(hlo);
    expect(found.map((point) => point.row)).toEqual([0, 1, 2, 4]);
    const [first, second] = found as [(typeof found)[0], (typeof found)[0]];
    expect((second.radius / first.radius) ** 2).toBeCloseTo(300 / 400);
  });

  it("give the legend its categories: none of an op that has no point", () => {
    expect(new Set(points(hlo).map(({ hue }) => hue))).toEqual(new Set([0]));
    expect(hueNames(points(hlo))).toEqual(CATEGORIES.slice(0, 1));
  });

  it("without bytes have no end of intensity", () => {
    const last = points(hlo).find((point) => point.row === 4);
    expect(last?.intensity).toBe(Number.POSITIVE_INFINITY);
    expect(intensityText(last?.intensity ?? 0)).toBe("no bytes of main memory");
    expect(place(axes(hlo, points(hlo)).x, Number.POSITIVE_INFINITY)).toBe(1);
  });

  it("that only move bytes lie at the left edge, as far below the line of the memory as their bandwidth", () => {
    const found = points(hlo);
    const { x } = axes(hlo, found);
    const copy = found.find((point) => point.row === 2) as (typeof found)[0];
    expect(place(x, copy.intensity)).toBe(0);
    const line = 1e12 * 10 ** x[0];
    expect(level(copy, x) / line).toBeCloseTo(0.6);
  });

  it("and what is not known is said", () => {
    expect(remarks(hlo, points(hlo))).toBe(
      "1 op (20.0% of the time) computes nothing: the ring at the left edge, as far below the memory line as the bandwidth is " +
        "below its peak. FLOPs or bytes of 1 op (8.0% of the time) are unknown: it is only in the table.",
    );
    expect(remarks({ ...hlo, roofs: [], peak_flops: null }, points(hlo))).toContain(
      "computes nothing: the ring at the left edge, higher means more bytes per second. FLOPs or bytes of 1 op",
    );
    expect(remarks(NO_OPS, [])).toBe("");
    const { data } = hlo.table;
    const idle = {
      ...hlo,
      table: { ...hlo.table, data: { ...data, _flops: new Float64Array(5), _bytes: new Float64Array(5) } },
    };
    expect(remarks(idle as unknown as Hlo, [])).toBe(
      "5 ops (100.0% of the time) neither compute nor move anything: they are only in the table.",
    );
  });

  it("and what is not known reads as unknown", () => {
    expect(missing(hlo, "occurrences")).toBeUndefined();
    const said = missing(hlo, "bound");
    expect([0, 3].map((row) => said?.(row))).toEqual(["–", "unknown"]);
  });

  it("of ops that took no time have a size", () => {
    const none: Hlo = { ...hlo, table: { ...hlo.table, data: { ...hlo.table.data, self_us: new Float64Array(5) } } };
    for (const point of points(none)) expect(point.radius).toBe(3);
    expect(remarks(none, points(none))).toContain("(0.0% of the time)");
  });
});

describe("axes of the roofline", () => {
  it("hold ops, marks, ridge points and the peak", () => {
    const hlo = hloSample();
    const { x, y } = axes(hlo, points(hlo));
    expect(x[0]).toBeLessThan(Math.log10(0.125));
    expect(x[1]).toBeGreaterThan(Math.log10(500));
    expect(y[0]).toBeLessThan(9);
    expect(y[1]).toBeGreaterThan(14);
    for (const { ridge } of hlo.roofs) expect(place(x, ridge ?? 0)).toBeGreaterThan(0);
    expect(place(y, hlo.peak_flops ?? 0)).toBeLessThan(1);
  });

  it("are there without ops, without peaks, and end ten decades below the top", () => {
    expect(axes(NO_OPS, [])).toEqual({ x: [0, 3], y: [0, 3] });
    const far = { row: 0, intensity: 1e-30, flops: 1e-30, bytes: 1, radius: 3, hue: 0 };
    const { x, y } = axes({ ...NO_OPS, peak_flops: 1e12 }, [far]);
    expect(x[1] - x[0]).toBeLessThanOrEqual(10);
    expect(y[1] - y[0]).toBe(10);
    expect(place(y, 1e-30)).toBe(0);
  });

  it("are not stretched for an op of next to no time", () => {
    const long = hloSample();
    const time = Float64Array.of(1e6, 1e6, 0, 0, 1);
    const odd: Hlo = { ...long, table: { ...long.table, data: { ...long.table.data, self_us: time } } };
    const { y } = axes(odd, points(odd));
    expect(y[0]).toBe(10);
    expect(place(y, 1e9)).toBe(0);
  });

  it("have labels at powers of ten", () => {
    expect(decades([-2, 4], 8)).toEqual([-2, -1, 0, 1, 2, 3, 4]);
    expect(decades([-5, 5], 5)).toEqual([-4, -2, 0, 2, 4]);
    expect([-9, -2, 0, 3, 6].map(powerText)).toEqual(["10⁻⁹", "0.01", "1", "1,000", "10⁶"]);
  });
});

describe("what is said of an op", () => {
  const hlo = hloSample();

  it("has rates with the unit that suits them", () => {
    expect([918e12, 1.5e13, 0, null].map((value) => rate(value, "FLOP/s"))).toEqual([
      "918 TFLOP/s",
      "15.0 TFLOP/s",
      "0.00 FLOP/s",
      "–",
    ]);
    const card = opCard(hlo, points(hlo)[0] as ReturnType<typeof points>[0]);
    expect(card.title).toBe("fusion.1");
    // Of what a share is one: of the time, of the peak or of the roof.
    expect(card.rows.map((row) => row.note?.replace(/^[\d.]+% /, ""))).toEqual([
      undefined,
      "of op time",
      undefined,
      "",
      "",
      "of the roof",
    ]);
    const marked = markCard({
      ...(hlo.marks[0] as (typeof hlo.marks)[0]),
      compute_fraction: 0.25,
      bandwidth_fraction: null,
    });
    expect(marked.rows.map((row) => row.note)).toEqual([undefined, "25.0% of peak", ""]);
    expect(card.rows.map((row) => row.value)).toEqual([
      "loop fusion",
      "400.0 µs",
      "0.125 FLOP/B",
      "100 GFLOP/s",
      "800 GB/s",
      "HBM",
    ]);
  });

  it("leaves out what is not known", () => {
    expect(details(hlo, 3).map(({ key, value }) => [key, value])).toEqual([
      ["op", `all-reduce.4 ${HOSTILE}`],
      ["program", "jit_eval(9)"],
      ["framework_op", HOSTILE],
    ]);
  });

  it("lists programs by time", () => {
    expect(choices(hlo, "program")).toEqual(["jit_step(8)", "jit_eval(9)"]);
    expect(choices(hlo, "bound")).toEqual(["HBM", "Latency", ""]);
  });
});

describe("labels of the roofline", () => {
  const plot = { width: 400, height: 200 };
  const overlap = (a: Box, b: Box): boolean =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

  it("stand right of the mark where that is free", () => {
    expect(besides({ x: 100, y: 100 }, 70, plot, [], [])).toEqual({ x: 111, y: 103 });
  });

  it("give way to bubbles, texts and the edge", () => {
    const point = { x: 150, y: 100, radius: 20 };
    const free = besides({ x: 100, y: 100 }, 70, plot, [], [point]);
    const box = textBox(free.x, free.y, 70);
    expect(box.right < 130 || box.bottom < 80 || box.top > 120).toBe(true);
    const other = textBox(111, 103, 70);
    const second = besides({ x: 104, y: 102 }, 70, plot, [other], []);
    expect(overlap(textBox(second.x, second.y, 70), other)).toBe(false);
    const edge = besides({ x: 390, y: 195 }, 70, plot, [], []);
    expect(textBox(edge.x, edge.y, 70)).toMatchObject({ right: 379 });
  });

  it("rather cover a bubble than a text where nothing is free", () => {
    const text = { left: 0, top: 0, right: 400, bottom: 110 };
    const crowd = Array.from({ length: 400 }, (_, i) => ({ x: i, y: 150, radius: 60 }));
    const at = besides({ x: 200, y: 100 }, 70, plot, [text], crowd);
    expect(overlap(textBox(at.x, at.y, 70), text)).toBe(false);
  });

  it("know the letters of a slanted text", () => {
    const boxes = slanted(0, 200, -Math.PI / 4, 8, -5, 80);
    expect(boxes).toHaveLength(10);
    expect(boxes.every((box) => box.right - box.left < 20)).toBe(true);
  });
});
