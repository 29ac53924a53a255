/** Axes: where they end and where their ticks sit. */

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
