/** What changed, in words, for those who do not see it: one polite line, not more often than it can be read out. */

import { h, listen } from "../../lib/dom.js";
import { count } from "../../lib/format.js";
import { capital } from "../../lib/unit.js";
import { comparison, type LaneOf, laneText, length, moment, short } from "./info/words.js";
import type { Found, RangeInfo, SliceInfo, SliceRef } from "./source.js";

/** What a change is about: a later one of the same kind replaces it while it waits. */
export type About = "slice" | "range" | "search" | "view" | "said";

/** Least time between two announcements, ms. */
const PAUSE = 600;

export interface Announcer {
  element: HTMLElement;
  say(about: About, text: string): void;
}

/** `later` is setTimeout, or what a test puts in its place. */
export function announcer(
  signal: AbortSignal,
  later: (fn: () => void, ms: number) => unknown = (fn, ms) => setTimeout(fn, ms),
): Announcer {
  const element = h("div.sr", { role: "status", "aria-live": "polite" });
  const queue = new Queue((text) => {
    // The same text again is only read out when the line changes.
    element.textContent = element.textContent === text ? `${text}\u00a0` : text;
  }, later);
  listen(signal, "abort", () => queue.close());
  return { element, say: (about, text) => queue.say(about, text) };
}

/** Texts one after the other with a pause; of a kind that waits only the last. */
export class Queue {
  private readonly waiting = new Map<About, string>();
  private resting = false;
  private closed = false;
  private last = "";

  constructor(
    private readonly speak: (text: string) => void,
    private readonly later: (fn: () => void, ms: number) => unknown,
  ) {}

  say(about: About, text: string): void {
    if (!text || this.closed) return;
    this.waiting.delete(about);
    this.waiting.set(about, text);
    if (!this.resting) this.rest(40);
  }

  close(): void {
    this.closed = true;
    this.waiting.clear();
  }

  private rest(pause: number): void {
    this.resting = true;
    this.later(() => {
      this.resting = false;
      if (!this.waiting.size) return;
      // What came together is said together.
      const text = [...this.waiting.values()].join(" ");
      this.waiting.clear();
      if (text !== this.last || pause !== PAUSE) this.speak(text);
      this.last = text;
      this.rest(PAUSE);
    }, pause);
  }
}

/** "Conv2D, 306.2 µs at 48.884 ms on Stream 19 of GPU 0." */
export function sliceWords(slice: SliceRef, laneOf: LaneOf): string {
  const where = laneText(laneOf(slice.lane));
  return `${short(slice.name, 120)}, ${length(slice.duration_ns)} at ${moment(slice.start_ns)}${where ? ` on ${where}` : ""}.`;
}

/** What the details add to it. */
export function infoWords(info: SliceInfo, noun = "step"): string {
  const compared = comparison(info.slice.duration_ns, info.same.mean_ns, info.same.count);
  const arrows = info.arrows.length;
  const parts = [
    compared && `${compared[0]?.toUpperCase()}${compared.slice(1)}`,
    info.step && noun !== "recording" && `${capital(noun)} ${info.step}`,
    info.launch &&
      `launched ${length(Math.abs(info.launch.delay_ns))} ${info.launch.delay_ns < 0 ? "after" : "before"}`,
    arrows > 0 && `${count(arrows)} ${arrows === 1 ? "arrow" : "arrows"}`,
  ].filter(Boolean);
  return parts.length ? `${parts.join(", ")}.` : "";
}

export function manyWords(slices: readonly SliceRef[]): string {
  const sum = slices.reduce((total, slice) => total + slice.duration_ns, 0);
  return `${count(slices.length)} slices selected, ${length(sum)} in total.`;
}

/** "Range of 3.78 ms from 43.400 ms: …" with the names that took most of it. */
export function rangeWords(info: RangeInfo): string {
  const [first] = info.shares;
  const parts = [
    `Range of ${length(info.to - info.from)} from ${moment(info.from)}: ${count(info.count)} ${info.count === 1 ? "slice" : "slices"}`,
    first && `most self time in ${short(first.name, 80)}, ${length(first.self_ns)}`,
    ...info.idle.slice(0, 2).map(({ process, percent }) => `${process} idle ${Math.round(percent)}%`),
  ].filter(Boolean);
  return `${parts.join("; ")}.`;
}

export function foundWords(query: string, found: Found, index: number): string {
  if (found.error) return `${found.error}`;
  const hits = `${count(found.count)} ${found.count === 1 ? "hit" : "hits"}`;
  if (index >= 0) return `Hit ${count(index + 1)} of ${count(found.count)}.`;
  return `${hits} for ${short(query, 60)}.${found.where ? ` ${found.where}` : ""}`;
}

export const viewWords = (from: number, to: number): string => `${length(to - from)} shown from ${moment(from)}.`;
