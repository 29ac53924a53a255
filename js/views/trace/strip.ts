/** The whole profile in one strip: how busy each pixel of it is. */

import { CATEGORIES, type Trace } from "../../lib/payload.js";
import { repeated } from "./saved/lanes.js";
import type { Strip } from "./source.js";

/**
 * Busy share (0…1) of each of `pixels` equal parts of the profile, over the slices that `counts`.
 * `lanes` is how many lanes have to be busy at once to be wholly busy.
 */
export function strip(
  trace: Trace,
  pixels: number,
  counts: (lane: number, index: number) => boolean,
  lanes = 1,
): Float32Array {
  const busy = new Float32Array(Math.max(0, pixels));
  const scale = pixels / Math.max(1, trace.end);
  // Whole pixels inside a slice, as steps up and down; summed at the end.
  const change = new Float64Array(pixels + 2);
  trace.lanes.forEach((lane, l) => {
    for (let i = 0; i < lane.start.length; i++) {
      if (!counts(l, i)) continue;
      const from = (lane.start[i] as number) * scale;
      const to = Math.min(pixels, from + (lane.duration[i] as number) * scale);
      const first = Math.min(pixels - 1, Math.floor(from));
      const last = Math.floor(to);
      if (first >= last) {
        busy[first] = (busy[first] as number) + to - from;
        continue;
      }
      busy[first] = (busy[first] as number) + first + 1 - from;
      if (last < pixels) busy[last] = (busy[last] as number) + to - last;
      change[first + 1] = (change[first + 1] as number) + 1;
      change[last] = (change[last] as number) - 1;
    }
  });
  let whole = 0;
  for (let x = 0; x < pixels; x++) {
    whole += change[x] as number;
    busy[x] = Math.min(1, ((busy[x] as number) + whole) / lanes);
  }
  return busy;
}

/** Shares as bytes; what is busy at all is at least 1. */
const bytes = (shares: Float32Array): Uint8Array => Uint8Array.from(shares, (share) => Math.ceil(share * 255));

const codeOf = (key: string): number => CATEGORIES.findIndex((category) => category.key === key) + 1;

/** Input above; below the device, or where none was recorded, how many of the host's threads were busy. */
export function overview(trace: Trace, pixels: number): Strip {
  const input = codeOf("input");
  const again = repeated(trace.lanes);
  const threads = trace.lanes.filter((lane, l) => lane.kind === "host" && !again.has(l)).length;
  const category = (l: number, i: number): number => trace.category[trace.lanes[l]?.name_code[i] as number] ?? 0;
  const kind = (l: number): string => trace.lanes[l]?.kind ?? "";
  const device = trace.lanes.some((lane) => lane.kind === "device" && lane.start.length > 0);
  return {
    above: bytes(
      strip(trace, pixels, (l, i) => (kind(l) === "host" || kind(l) === "device") && category(l, i) === input),
    ),
    below: device
      ? bytes(strip(trace, pixels, (l, i) => kind(l) === "device" && !again.has(l) && trace.lanes[l]?.depth[i] === 0))
      : bytes(
          strip(
            trace,
            pixels,
            (l, i) => kind(l) === "host" && !again.has(l) && trace.lanes[l]?.depth[i] === 0,
            Math.max(1, threads),
          ),
        ),
    below_is: device ? "device" : "host",
  };
}
