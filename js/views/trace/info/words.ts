/** How times, slices and arrows read in the details and to those who listen. */

import { count, kernelName, lengthText, num } from "../../../lib/format.js";
import type { Arrow, SliceRef } from "../source.js";

/** Names of lanes by id. */
export type LaneOf = (id: number) => { name: string; process: string } | undefined;

export const length = (ns: number): string => lengthText(ns / 1e6);

/** A time since the origin. */
export const moment = (ns: number): string => `${num(ns / 1e6, 3)} ms`;

/** A time to the ns, in ms: two slices that follow each other start at different times. */
export const exactMoment = (ns: number): string => `${trimmed(ns / 1e6, 3)} ms`;

/** A length to the ns: "3.392 µs", "4.380214 ms". */
export function exactLength(ns: number): string {
  if (ns < 1e3) return `${trimmed(ns, 0, 3)} ns`;
  if (ns < 1e6) return `${trimmed(ns / 1e3, 1, 3)} µs`;
  return ns < 1e10 ? `${trimmed(ns / 1e6, 2)} ms` : `${trimmed(ns / 1e9, 2, 9)} s`;
}

/** Up to `most` decimals, of which zeros at the end are left out, down to `least`. */
function trimmed(value: number, least: number, most = 6): string {
  const text = num(value, most);
  const [integer, part] = text.split(".");
  const decimals = part?.replace(/0+$/, "").padEnd(least, "0");
  return decimals ? `${integer}.${decimals}` : `${integer}`;
}

/** "0.9% over the mean of 21", "46× the mean of 22,777". */
export function comparison(duration: number, mean: number, n: number): string {
  if (n < 2 || !(mean > 0)) return n < 2 ? "the only one" : "";
  const part = (100 * duration) / mean - 100;
  if (Math.abs(part) < 0.05) return `the mean of ${count(n)}`;
  if (part >= 100) return `${num(duration / mean, part < 900 ? 1 : 0)}× the mean of ${count(n)}`;
  return `${num(Math.abs(part), 1)}% ${part > 0 ? "over" : "under"} the mean of ${count(n)}`;
}

/** A name in a sentence or on a button: of a kernel without namespaces, template and arguments. */
export function short(full: string, most = 80): string {
  const { name } = kernelName(full);
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

/** "Stream 19 of GPU 0". */
export function laneText(lane: ReturnType<LaneOf>): string {
  return lane ? [lane.name, lane.process].filter(Boolean).join(" of ") : "";
}

const WORDS: Record<Arrow["kind"], [out: string, into: string]> = {
  launch: ["Launches", "Launched by"],
  producer: ["Feeds", "Fed by"],
  forward: ["Backward in", "Forward in"],
  flow: ["Flows to", "Flows from"],
};

/** The other end of an arrow of a slice, and what it is to the slice. */
export function otherEnd(arrow: Arrow, event: number): { word: string; slice: SliceRef; out: boolean } {
  const outgoing = arrow.from.event === event;
  return { word: WORDS[arrow.kind][outgoing ? 0 : 1], slice: outgoing ? arrow.to : arrow.from, out: outgoing };
}

/** What a report does not hold: "Not saved in a report: arguments and stacks. …" */
export function missingWords(lacks: readonly string[]): string {
  const listed = lacks.length > 1 ? `${lacks.slice(0, -1).join(", ")} and ${lacks.at(-1)}` : (lacks[0] ?? "");
  return `Not saved in a report: ${listed}. Open the profile to see them.`;
}
