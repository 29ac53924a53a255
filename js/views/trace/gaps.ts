/** The longest stretches in which nothing ran on a device, one after the other. */

import { textAt } from "../../lib/codec.js";
import { count } from "../../lib/format.js";
import type { Gaps } from "../../lib/payload.js";
import { length, moment } from "./info/words.js";

export interface Gap {
  from: number;
  to: number;
  /** "2 of 100: GPU 0 idle for 3.78 ms at 43.400 ms." */
  text: string;
}

/**
 * The gap after (1) or before (−1) the one that is marked, in the order of their length; from none to the longest, and
 * round at the ends. Null where there are none.
 */
export function nextGap(gaps: Gaps, range: { from: number; to: number } | null, by: 1 | -1): Gap | null {
  const n = gaps.start.length;
  if (!n) return null;
  const start = (i: number): number => gaps.start[i] as number;
  const end = (i: number): number => start(i) + (gaps.duration[i] as number);
  // To within a ns, which is lost where a range was written down in ms.
  const is = (i: number): boolean =>
    range !== null && Math.abs(start(i) - range.from) <= 1 && Math.abs(end(i) - range.to) <= 1;
  const index = [...gaps.start.keys()].findIndex(is);
  const i = index < 0 ? (by > 0 ? 0 : n - 1) : (index + by + n) % n;
  const process = textAt(gaps.process, i) || "The device";
  const text = `Gap ${count(i + 1)} of the ${count(n)} longest: ${process} idle for ${length(end(i) - start(i))} at ${moment(start(i))}.`;
  return { from: start(i), to: end(i), text };
}
