/** Search in what a report holds. */

import { reason } from "../../../lib/dom.js";
import { count } from "../../../lib/format.js";
import type { Lane } from "../../../lib/payload.js";
import { matcher } from "../../../lib/rows.js";
import { lowest } from "../../../lib/search.js";
import type { Row } from "../rows.js";
import type { Found, Hit, HitAt } from "../source.js";
import type { At, SavedLanes } from "./lanes.js";

/** Parts of the profile in which hits are counted. */
export const PARTS = 2048;

export interface Hits {
  /** In the order of time. */
  slices: At[];
  /** By name: 1 where it matches. */
  names: Uint8Array;
  /** Why the expression cannot be used; then nothing matches. */
  error: string;
}

/** All slices whose name matches: part of it, whatever the case, or /a regular expression/. */
export function hitsOf(saved: SavedLanes, query: string): Hits {
  const { trace } = saved;
  const names = new Uint8Array(trace.names.length);
  let matches: ((name: string) => boolean) | null;
  try {
    matches = matcher(query);
  } catch (error) {
    return { slices: [], names, error: reason(error) };
  }
  if (!matches) return { slices: [], names, error: "" };
  for (let code = 0; code < names.length; code++) if (matches(trace.names[code] as string)) names[code] = 1;
  const slices: At[] = [];
  trace.lanes.forEach((data, lane) => {
    if (data.kind === "counter") return;
    for (let index = 0; index < data.start.length; index++)
      if (names[data.name_code[index] as number]) slices.push({ lane, index });
  });
  slices.sort((a, b) => saved.start(a) - saved.start(b) || a.lane - b.lane || a.index - b.index);
  return { slices, names, error: "" };
}

/** What the search says of itself. */
export function foundIn(saved: SavedLanes, hits: Hits): Found {
  const strip = new Uint8Array(PARTS);
  const scale = PARTS / Math.max(1, saved.trace.end * saved.tick);
  for (const slice of hits.slices) {
    const part = Math.max(0, Math.min(PARTS - 1, Math.floor(saved.start(slice) * scale)));
    strip[part] = Math.min(255, (strip[part] as number) + 1);
  }
  const { shown, total } = saved.trace;
  return {
    count: hits.slices.length,
    error: hits.error,
    strip,
    where: saved.part ? `Searched in the names of the ${count(shown)} slices saved here, of ${count(total)}.` : "",
  };
}

/** One hit: by its number, next to a slice or a time, or the longest; none where it would lie beyond the ends. */
export function hitAt(saved: SavedLanes, hits: Hits, anchor: HitAt): Hit {
  const { slices } = hits;
  const index = position(saved, hits, anchor);
  const slice = slices[index];
  return slice ? { index, slice: saved.ref(slice) } : { index: -1, slice: null };
}

function position(saved: SavedLanes, { slices }: Hits, anchor: HitAt): number {
  if ("index" in anchor) return anchor.index;
  if ("longest" in anchor) {
    const longer = (best: number, i: number): number =>
      saved.duration(slices[i] as At) > saved.duration(slices[best] as At) ? i : best;
    return slices.length ? [...slices.keys()].reduce(longer, 0) : -1;
  }
  const selected = "event" in anchor ? saved.at(anchor.event) : null;
  if ("event" in anchor && !selected) return -1;
  const time = selected ? saved.start(selected) : (anchor as { time_ns: number }).time_ns;
  const before = (slice: At): boolean => {
    const start = saved.start(slice);
    if (start !== time || !selected) return start < time;
    return slice.lane < selected.lane || (slice.lane === selected.lane && slice.index < selected.index);
  };
  const next = lowest(slices.length, (i) => !before(slices[i] as At));
  if (anchor.by < 0) return next - 1;
  const found = slices[next];
  return found && selected && found.lane === selected.lane && found.index === selected.index ? next + 1 : next;
}

/** How many hits lie before each slice of a row, so that "any hit in here?" is a subtraction. */
export function hitSums(row: Row, lane: Lane, names: Uint8Array): Uint32Array {
  const sums = new Uint32Array(row.slice.length + 1);
  for (let i = 0; i < row.slice.length; i++) {
    const code = lane.name_code[row.slice[i] as number] as number;
    sums[i + 1] = (sums[i] as number) + (names[code] as number);
  }
  return sums;
}
