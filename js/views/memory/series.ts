/** The peak of a timeline of memory, the sample that is pointed at, and the axes. No drawing. */

import { bytesText, byteUnit, num } from "../../lib/format.js";
import type { MemoryId } from "../../lib/payload.js";
import { BYTES, byteAxis, niceMax, tickDigits, ticks } from "../../lib/scale.js";
import { lowest } from "../../lib/search.js";

/** Index of the sample with most in use, the last of equals; -1 without samples. */
export function peakIndex(id: MemoryId): number {
  let best = -1;
  for (let i = 0; i < id.time_ms.length; i++) {
    if (best < 0 || (id.in_use_bytes[i] as number) >= (id.in_use_bytes[best] as number)) best = i;
  }
  return best;
}

/** The sample a pointer means: of those within `slack` of the time the one with most in use, else the one that holds then. */
export function sampleAt(id: MemoryId, time: number, slack: number): number {
  const n = id.time_ms.length;
  const low = lowest(n, (i) => (id.time_ms[i] as number) > time);
  let best = Math.max(0, low - 1);
  if (!n) return -1;
  let near = -1;
  for (let i = low - 1; i >= 0 && time - (id.time_ms[i] as number) <= slack; i--) near = better(id, near, i);
  for (let i = low; i < n && (id.time_ms[i] as number) - time <= slack; i++) near = better(id, near, i);
  if (near >= 0) best = near;
  return best;
}

const better = (id: MemoryId, a: number, b: number): number =>
  a < 0 || (id.in_use_bytes[b] as number) > (id.in_use_bytes[a] as number) ? b : a;

/** By role from the bottom: the bytes of it and of those below, by event. */
export function stacked(id: MemoryId): { tint: number; upTo: Float64Array }[] {
  let below = new Float64Array(id.time_ms.length);
  return (id.roles?.series ?? []).map(({ tint, bytes }) => {
    below = below.map((value, i) => value + (bytes[i] as number));
    return { tint, upTo: below };
  });
}

export type Scope = "use" | "device";

export interface Axis {
  unit: ReturnType<typeof byteUnit>;
  /** Bytes. */
  max: number;
  ticks: { value: number; text: string }[];
  /** Said in the plot where the axis ends below the capacity; "" where it does not. */
  cut: string;
}

const known = (value: number | null): value is number =>
  typeof value === "number" && Number.isFinite(value) && value > 0;

/** What is shown at first: the use alone while it is under half of the capacity (or that is not known). */
export function firstScope(id: MemoryId): Scope {
  return known(id.capacity_bytes) && id.peak_bytes >= id.capacity_bytes / 2 ? "device" : "use";
}

/** Largest use on the timeline, or the peak where that is larger. */
export function largest(id: MemoryId): number {
  const peak = peakIndex(id);
  return Math.max(0, id.peak_bytes || 0, peak < 0 ? 0 : (id.in_use_bytes[peak] as number));
}

/** The left axis: up to the capacity, or cut above the peak. */
export function axis(id: MemoryId, scope: Scope, free_bytes: number): Axis {
  const most = largest(id);
  const capacity = id.capacity_bytes;
  const toCapacity = scope === "device" && known(capacity);
  const top = toCapacity ? Math.max(most, capacity) : most;
  const unit = byteUnit(top);
  const size = BYTES[unit];
  // The whole device ends where the device ends: there is nothing above.
  // Room above the peak for its label.
  const nice = byteAxis((1.12 * top) / size);
  const max = toCapacity ? top / size : nice.max;
  const values = toCapacity ? ticks(max, 5) : nice.ticks;
  const digits = tickDigits(values);
  const end = { value: max * size, text: num(max, 1) };
  return {
    unit,
    max: max * size,
    ticks: [
      ...values.map((value) => ({ value: value * size, text: value === 0 ? "0" : num(value, digits) })),
      // The capacity is seldom round: it gets its own tick where it does not run into the last one.
      ...(toCapacity && (values.at(-1) ?? 0) < 0.93 * max ? [end] : []),
    ],
    cut:
      !toCapacity && known(free_bytes)
        ? `${id.stack_bytes.some((value) => Number.isFinite(value)) ? "free" : "reserved, not allocated"}: ${bytesText(free_bytes)}, axis cut at ${num(max, tickDigits([max]))} ${unit}`
        : "",
  };
}

/** The right axis: fragmentation in %, as high as needed. */
export function fragmentationAxis(id: MemoryId): { max: number; ticks: number[] } {
  let most = 0;
  for (const value of id.fragmentation) if (value > most) most = value;
  const max = Math.min(100, niceMax(100 * most));
  return { max, ticks: ticks(max, 4) };
}

/** x ticks in ms: even steps from 0, few enough to be read. */
export function timeTicks(from: number, to: number, n: number): number[] {
  const span = to - from;
  if (!(span > 0)) return [from];
  return ticks(span, n).map((value) => value + from);
}
