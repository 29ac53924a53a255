/** Axes: where they end and where their ticks sit; and lines of many samples as columns of pixels. */

/** The end of an axis: the next of 1, 2, 4, 5, 8 × 10ⁿ at or above the data; 1 when there is nothing to show. */
export function niceMax(value: number): number {
  if (!(value > 0) || !Number.isFinite(value)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 4, 5, 8, 10]) {
    // 1e-9: 0.3 / 0.1 is 2.9999999999999996.
    if (value / power <= step * (1 + 1e-9)) return Number((step * power).toPrecision(12));
  }
  return 10 * power;
}

/** Tick values from 0 to `max` at even, readable distances: at most `n` intervals. */
export function ticks(max: number, n = 5): number[] {
  if (!(max > 0) || !Number.isFinite(max)) return [0];
  const power = 10 ** Math.floor(Math.log10(max / n));
  const step = ([1, 2, 2.5, 5, 10].find((nice) => max / (nice * power) <= n + 1e-9) ?? 10) * power;
  const values: number[] = [];
  for (let i = 0; i * step <= max * (1 + 1e-9); i++) values.push(Number((i * step).toPrecision(12)));
  return values;
}

/** Decimals that tell the ticks apart: 0 for 0, 2, 4; 1 for 0, 0.5, 1. */
export function tickDigits(values: readonly number[]): number {
  return Math.max(0, ...values.map((value) => (String(Number(value.toPrecision(6))).split(".")[1] ?? "").length));
}

/** Bytes in each unit. */
export const BYTES = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4 } as const;

/** Ends of a byte axis between 1 and 10, and into how many parts each divides evenly: closer than `niceMax`, as areas need room. */
const ENDS: readonly (readonly [end: number, parts: number])[] = [
  [1, 4],
  [1.2, 4],
  [1.6, 4],
  [2, 4],
  [2.4, 4],
  [3.2, 4],
  [4, 4],
  [5, 5],
  [6, 4],
  [8, 4],
  [10, 5],
];

/** The end of a byte axis at or above a value, and its ticks. */
export function byteAxis(value: number): { max: number; ticks: number[] } {
  if (!(value > 0) || !Number.isFinite(value)) return { max: 1, ticks: [0, 1] };
  const power = 10 ** Math.floor(Math.log10(value));
  const [end, parts] = ENDS.find(([nice]) => value / power <= nice * (1 + 1e-9)) ?? [10, 5];
  const tickAt = (i: number): number => Number(((end * power * i) / parts).toPrecision(6));
  return { max: tickAt(parts), ticks: Array.from({ length: parts + 1 }, (_, i) => tickAt(i)) };
}

/** Least, largest and last value of each pixel of a step-after line; NaN before the first sample. */
export interface Columns {
  min: Float64Array;
  max: Float64Array;
  last: Float64Array;
}

/**
 * The line time → value, where a value holds until the next, in `pixels` columns of from…to.
 *
 * A column knows the least and largest value in it, so that a peak shorter than a pixel stays.
 */
export function columns(
  times: ArrayLike<number>,
  valueAt: (i: number) => number,
  from: number,
  to: number,
  pixels: number,
): Columns {
  const make = (): Float64Array => new Float64Array(Math.max(0, pixels)).fill(Number.NaN);
  const [min, max, last] = [make(), make(), make()];
  const n = times.length;
  const width = (to - from) / Math.max(1, pixels);
  let i = 0;
  let held = Number.NaN;
  // The samples before the window only decide what holds at its left edge.
  for (; i < n && (times[i] as number) < from; i++) held = valueAt(i);
  for (let x = 0; x < pixels; x++) {
    const end = x === pixels - 1 ? Number.POSITIVE_INFINITY : from + (x + 1) * width;
    let low = held;
    let high = held;
    // A sample at the very start of the column leaves nothing of the value before it.
    if (i < n && (times[i] as number) <= from + x * width) low = high = Number.NaN;
    for (; i < n && (times[i] as number) < end && (times[i] as number) <= to; i++) {
      held = valueAt(i);
      if (!(held >= low)) low = held;
      if (!(held <= high)) high = held;
    }
    min[x] = low;
    max[x] = high;
    last[x] = held;
  }
  return { min, max, last };
}
