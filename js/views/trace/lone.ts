/** Where most of a profile is, when a few events lie far from it. */

import type { Span } from "./window.js";

export interface Crowd {
  /** Where most of the events are. */
  span: Span;
  /** How many lie before and after it, and where. */
  before: { count: number; span: Span } | null;
  after: { count: number; span: Span } | null;
}

/** Share of events that may be far away. */
const LONE = 0.01;
/** A profile this many times longer than where most of it is shows nothing of that as a whole. */
const FAR = 20;

/**
 * The part of 0…end in which most events are, when it is a small part; null else. Times are ns.
 *
 * From the middle of the events outwards, the part ends at the first gap that is longer than what it has so far.
 */
export function crowdOf(starts: Float64Array, ends: Float64Array, end: number): Crowd | null {
  const n = starts.length;
  if (n < 8) return null;
  const order = Uint32Array.from(starts.keys()).sort((a, b) => (starts[a] as number) - (starts[b] as number));
  const startOf = (i: number): number => starts[order[i] as number] as number;
  const spare = Math.max(1, Math.floor(n * LONE));
  let [first, last] = [Math.min(spare, n - 1), Math.max(0, n - 1 - spare)];
  const gap = (): number => Math.max(startOf(last) - startOf(first), end * 1e-6);
  while (first > 0 && startOf(first) - startOf(first - 1) <= gap()) first--;
  while (last < n - 1 && startOf(last + 1) - startOf(last) <= gap()) last++;
  if (first === 0 && last === n - 1) return null;
  let to = startOf(last);
  // What reaches far out of it (a whole session) does not make it longer.
  for (let i = first; i <= last; i++) {
    const stop = ends[order[i] as number] as number;
    if (stop - startOf(i) <= gap()) to = Math.max(to, stop);
  }
  const length = to - startOf(first);
  if (length * FAR > end) return null;
  const side = (from: number, until: number): Crowd["before"] => {
    if (from >= until) return null;
    let stop = startOf(until - 1);
    for (let i = from; i < until; i++) stop = Math.max(stop, Math.min(end, ends[order[i] as number] as number));
    return { count: until - from, span: { from: startOf(from), to: stop } };
  };
  return { span: { from: startOf(first), to }, before: side(0, first), after: side(last + 1, n) };
}

/** A length of time in the words of a person: "3 s", "2 h", "1 day". */
export function longTime(ns: number): string {
  const units: [string, number][] = [
    ["day", 86_400e9],
    ["h", 3600e9],
    ["min", 60e9],
    ["s", 1e9],
    ["ms", 1e6],
    ["µs", 1e3],
  ];
  const [unit, size] = units.find(([, length]) => ns >= 0.95 * length) ?? ["ns", 1];
  const value = Math.round(ns / size);
  return `${value} ${unit === "day" && value !== 1 ? "days" : unit}`;
}
