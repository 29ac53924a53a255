/** Several slices together: how many, how long, and their self time by name. */

import { type Child, h } from "../../../lib/dom.js";
import { count } from "../../../lib/format.js";
import { heading, link } from "../../../lib/parts.js";
import type { RangeInfo, SliceRef } from "../source.js";
import type { Go } from "./slice.js";
import { length } from "./words.js";

export interface Sum {
  count: number;
  sum_ns: number;
  mean_ns: number;
  min: SliceRef;
  max: SliceRef;
}

/** Of at least one slice. */
export function sumOf(slices: readonly SliceRef[]): Sum {
  const [first] = slices as [SliceRef];
  let [min, max, sum_ns] = [first, first, 0];
  for (const slice of slices) {
    sum_ns += slice.duration_ns;
    if (slice.duration_ns < min.duration_ns) min = slice;
    if (slice.duration_ns > max.duration_ns) max = slice;
  }
  return { count: slices.length, sum_ns, mean_ns: sum_ns / slices.length, min, max };
}

/** `names` is the table by name, once it is known. */
export function manyView(slices: readonly SliceRef[], info: RangeInfo | null, go: Go, names: Child): HTMLElement[] {
  const { count: n, sum_ns, mean_ns, min, max } = sumOf(slices);
  const to = (slice: SliceRef): HTMLElement => link(length(slice.duration_ns), () => go.to(slice));
  const rows: [string, Child][] = [
    ["Sum", length(sum_ns)],
    ["Mean", length(mean_ns)],
    ["Shortest", to(min)],
    ["Longest", to(max)],
  ];
  if (info) rows.push(["From first to last", length(info.to - info.from)]);
  return [
    heading(`${count(n)} slices`, "Ctrl+click adds and removes, Esc lets go"),
    h("dl.env", ...rows.flatMap(([term, part]) => [h("dt", term), h("dd", part)])),
    h("div", names),
  ];
}
