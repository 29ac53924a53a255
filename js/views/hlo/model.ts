/** What the roofline computes of its ops: where they lie, what is said of them. No drawing. */

import { numberAt, textAt } from "../../lib/codec.js";
import { count, MISSING, num, percent, us } from "../../lib/format.js";
import type { CardContent } from "../../lib/parts.js";
import type { Hlo, RoofMark } from "../../lib/payload.js";
import { CATEGORIES } from "../../lib/payload.js";

/**
 * An op in the chart. Without bytes its intensity has no end, and it lies at the right edge. Without FLOPs its intensity is 0: it lies at
 * the left edge, as far below the line of the memory as its bandwidth is below the peak.
 */
export interface Point {
  row: number;
  intensity: number;
  flops: number;
  bytes: number;
  /** Radius in px: the area is the op's part of the time. */
  radius: number;
  hue: number;
}

/** Powers of ten between which an axis lies. */
export type Span = readonly [from: number, to: number];

const LARGEST = 15;
const SMALLEST = 3;
/** Decades that are drawn at most: what is further below lies at the lower edge. */
const DEEPEST = 10;

/** The ops of which it is known what they do in a time that is known, the longest first. */
export function points(hlo: Hlo): Point[] {
  const { data, rows } = hlo.table;
  const time = (row: number): number => numberAt(data.self_us, row) || 0;
  const found: Point[] = [];
  let most = 0;
  for (let row = 0; row < rows; row++) {
    const [flops, bytes] = [numberAt(data._flops, row), numberAt(data._bytes, row)];
    if (!(flops >= 0) || !(bytes >= 0) || flops + bytes === 0) continue;
    const intensity = bytes === 0 ? Number.POSITIVE_INFINITY : flops === 0 ? 0 : numberAt(data._intensity, row);
    found.push({ row, intensity, flops, bytes, radius: 0, hue: numberAt(data._hue, row) });
    most = Math.max(most, time(row));
  }
  for (const point of found) point.radius = Math.max(SMALLEST, LARGEST * Math.sqrt(time(point.row) / (most || 1)));
  return found.sort((a, b) => b.radius - a.radius || a.row - b.row);
}

/** The categories whose colours points have, in their order. */
export function hueNames(found: readonly Point[]): (typeof CATEGORIES)[number][] {
  return CATEGORIES.filter((_, i) => found.some(({ hue }) => hue === i));
}

const COSTS = new Set([
  "gflops_per_second",
  "gmemory_bytes_per_second",
  "operational_intensity",
  "bound",
  "bound_by",
  "roof_percent",
  "wasted_us",
]);

/** What stands in the columns of what an op computes and moves, where nobody knows that; in other columns a dash is right. */
export function missing({ table: { data } }: Hlo, key: string): ((row: number) => string) | undefined {
  if (!COSTS.has(key)) return undefined;
  const none = (row: number): boolean =>
    Number.isNaN(numberAt(data._flops, row)) && Number.isNaN(numberAt(data._bytes, row));
  return (row) => (none(row) ? "unknown" : MISSING);
}

/** What is odd about ops of the chart, and of those that are not in it, in sentences; "" where nothing is. */
export function remarks(hlo: Hlo, found: readonly Point[]): string {
  const { data, rows } = hlo.table;
  const time = (row: number): number => numberAt(data.self_us, row) || 0;
  const inside = new Set(found.map((point) => point.row));
  const every = Array.from({ length: rows }, (_, row) => row);
  const total = every.reduce((sum, row) => sum + time(row), 0) || 1;
  const shareText = (part: readonly number[]): string =>
    `${count(part.length)} ${part.length === 1 ? "op" : "ops"} (${percent((100 * part.reduce((sum, row) => sum + time(row), 0)) / total)} of the time)`;
  const copies = found.filter((point) => point.flops === 0).map((point) => point.row);
  const nothing = (row: number): boolean => numberAt(data._flops, row) === 0 && numberAt(data._bytes, row) === 0;
  const idle = every.filter(nothing);
  const unknown = every.filter((row) => !inside.has(row) && !nothing(row));
  // Without the peak of the memory its line is not drawn, and there is nothing to lie below.
  const where = hlo.roofs.length
    ? "as far below the memory line as the bandwidth is below its peak"
    : "higher means more bytes per second";
  return [
    copies.length &&
      `${shareText(copies)} ${copies.length === 1 ? "computes nothing: the ring" : "compute nothing: rings"} at the left edge, ${where}.`,
    idle.length &&
      `${shareText(idle)} ${idle.length === 1 ? "neither computes nor moves anything: it is" : "neither compute nor move anything: they are"} only in the table.`,
    unknown.length &&
      `FLOPs or bytes of ${shareText(unknown)} are unknown: ${unknown.length === 1 ? "it is" : "they are"} only in the table.`,
  ]
    .filter(Boolean)
    .join(" ");
}

const power = (value: number): number => Math.log10(value);

/** Part of the time whose ops may lie beyond the ends of an axis: one odd op of no time is no reason to squeeze the others. */
const BEYOND = 0.01;

/** Between which powers of ten the values lie that make up all but a hundredth of the time at each end. */
function within(values: readonly [value: number, time: number][]): number[] {
  const order = values.filter(([value]) => value > 0 && Number.isFinite(value)).sort((a, b) => a[0] - b[0]);
  const room = BEYOND * order.reduce((sum, [, time]) => sum + time, 0);
  const end = (list: readonly [number, number][]): number | undefined => {
    let passed = 0;
    return list.find(([, time]) => {
      passed += time;
      return passed > room;
    })?.[0];
  };
  return [end(order), end([...order].reverse())].flatMap((value) => (value === undefined ? [] : power(value)));
}

/** The axes: nearly all ops, the marks, the ridge points and the roof lie inside, with room above the roof for its label. */
export function axes(hlo: Hlo, found: readonly Point[]): { x: Span; y: Span } {
  const time = (point: Point): number => Math.max(1e-9, numberAt(hlo.table.data.self_us, point.row) || 0);
  const known = (values: readonly (number | null)[]): number[] =>
    values.flatMap((value) => (value !== null && value > 0 && Number.isFinite(value) ? power(value) : []));
  const span = (values: number[], below: number, above: number): Span => {
    if (!values.length) return [0, 3];
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const [from, to] = [Math.floor(low - below), Math.ceil(high + above)];
    return [Math.max(Math.min(from, to - 2), to - DEEPEST), to];
  };
  const x = span(
    [
      ...within(found.map((point) => [point.intensity, time(point)])),
      ...known(hlo.marks.map((mark) => mark.operational_intensity)),
      ...known(hlo.roofs.map((roof) => roof.ridge)),
    ],
    0.3,
    0.3,
  );
  const y = span(
    [
      ...within(found.map((point) => [level(point, x), time(point)])),
      ...known([...hlo.marks.map((mark) => mark.flops_per_second), hlo.peak_flops]),
    ],
    0.2,
    0.35,
  );
  return { x, y };
}

/** FLOP/s at which a point lies: what computes nothing lies as if it did the FLOPs of the left edge for each byte. */
export const level = (point: Point, x: Span): number => point.flops || point.bytes * 10 ** x[0];

/** Where a value lies between the ends of an axis, 0…1; what is further out lies at the edge. */
export const place = ([from, to]: Span, value: number): number =>
  value > 0 ? Math.max(0, Math.min(1, (power(value) - from) / (to - from))) : 0;

/** Powers of ten to label, at most about `most`. */
export function decades([from, to]: Span, most: number): number[] {
  const step = Math.max(1, Math.ceil((to - from) / most));
  const found: number[] = [];
  for (let exponent = Math.ceil(from / step) * step; exponent <= to; exponent += step) found.push(exponent);
  return found;
}

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** "0.01", "1,000", "10⁶". */
export function powerText(exponent: number): string {
  if (exponent >= -3 && exponent <= 4) return num(10 ** exponent, Math.max(0, -exponent));
  const digits = String(Math.abs(exponent)).replace(/\d/g, (digit) => RAISED[Number(digit)] as string);
  return `10${exponent < 0 ? "⁻" : ""}${digits}`;
}

const PREFIX = ["", "K", "M", "G", "T", "P"] as const;

/** A rate with the prefix that suits it: "918 TFLOP/s". */
export function rate(value: number | null, unit: string): string {
  if (value === null || !Number.isFinite(value)) return MISSING;
  let step = 0;
  let rest = Math.abs(value);
  for (; rest >= 1000 && step < PREFIX.length - 1; rest /= 1000) step++;
  return `${num(rest, rest >= 100 ? 0 : rest >= 10 ? 1 : 2)} ${PREFIX[step]}${unit}`;
}

/** "12.5 FLOP/B"; words where there is nothing to divide, or to divide by. */
export function intensityText(value: number | null): string {
  if (value === Number.POSITIVE_INFINITY) return "no bytes of main memory";
  if (value === 0) return "no FLOPs";
  if (value === null || !(value >= 0)) return MISSING;
  return `${num(value, value >= 100 ? 0 : value >= 1 ? 1 : 3)} FLOP/B`;
}

/** What the card of an op says. */
export function opCard(hlo: Hlo, point: Point): CardContent {
  const { data } = hlo.table;
  const { row } = point;
  const text = (key: string): string => textAt(data[key], row);
  const number = (key: string): number => numberAt(data[key], row);
  const category = CATEGORIES[point.hue];
  return {
    title: text("op"),
    rows: [
      { label: "Category", value: text("category") || "unknown", ...(category && { css: category.css }) },
      { label: "Self time", value: us(number("self_us")), note: `${percent(number("self_percent"))} of op time` },
      { label: "Intensity", value: intensityText(point.intensity) },
      { label: "FLOP rate", value: rate(point.flops, "FLOP/s"), note: part(number("compute_percent"), "of peak") },
      { label: "Memory", value: rate(number("_bytes"), "B/s"), note: part(number("bandwidth_percent"), "of peak") },
      { label: "Bound by", value: text("bound") || "unknown", note: part(number("roof_percent"), "of the roof") },
    ],
  };
}

const part = (value: number, of: string): string => (Number.isFinite(value) ? `${percent(value)} ${of}` : "");

export function markCard(mark: RoofMark): CardContent {
  const ofPeak = (value: number | null): string => (value === null ? "" : part(100 * value, "of peak"));
  return {
    title: mark.label,
    total: "",
    rows: [
      { label: "Intensity", value: intensityText(mark.operational_intensity) },
      { label: "FLOP rate", value: rate(mark.flops_per_second, "FLOP/s"), note: ofPeak(mark.compute_fraction) },
      { label: "Memory", value: rate(mark.bytes_per_second, "B/s"), note: ofPeak(mark.bandwidth_fraction) },
    ],
  };
}

/** What a column is called. */
export const labelOf = ({ table }: Hlo, key: string): string =>
  table.columns.find((column) => column.key === key)?.label ?? key;

const TOLD = [
  "op",
  "program",
  "framework_op",
  "source",
  "input_shapes",
  "precision",
  "shape",
  "layout",
  "expression",
] as const;

/** What is known of an op. */
export function details(hlo: Hlo, row: number): { key: string; label: string; value: string }[] {
  const all = TOLD.map((key) => ({ key, label: labelOf(hlo, key), value: textAt(hlo.table.data[key], row) }));
  return all.filter(({ value }) => value !== "");
}

/** Distinct texts of a column, those with most self time first. */
export function choices(hlo: Hlo, key: string): string[] {
  const { data, rows } = hlo.table;
  const sums = new Map<string, number>();
  for (let row = 0; row < rows; row++) {
    const text = textAt(data[key], row);
    sums.set(text, (sums.get(text) ?? 0) + (numberAt(data.self_us, row) || 0));
  }
  return [...sums].sort((a, b) => b[1] - a[1]).map(([text]) => text);
}
