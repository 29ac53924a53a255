/** From one slice to another, in what a report holds. */

import type { Lane } from "../../../lib/payload.js";
import { lowest } from "../../../lib/search.js";
import { longestOf, type Row } from "../rows.js";
import type { Direction } from "../source.js";
import type { At, SavedLanes } from "./lanes.js";

/** The slice beside, above or below another, or of the same name before or after it; null where there is none. */
export function neighbour(saved: SavedLanes, slice: At, to: Direction): At | null {
  if (to === "previous_same" || to === "next_same") return sameName(saved, slice, to === "next_same" ? 1 : -1);
  const levels = saved.levels(slice.lane);
  const depth = saved.lanes[slice.lane]?.depth[slice.index] ?? 0;
  const level = levels[depth];
  if (!level) return null;
  const here = (i: number | null | undefined): At | null =>
    i === null || i === undefined ? null : { lane: slice.lane, index: i };
  const place = lowest(level.slice.length, (i) => (level.slice[i] as number) >= slice.index);
  if (to === "previous") return here(level.slice[place - 1]);
  if (to === "next") return here(level.slice[place + 1]);
  const start = saved.start(slice);
  const end = start + saved.duration(slice);
  return to === "parent" ? here(around(levels[depth - 1], start, end)) : here(longestIn(levels[depth + 1], start, end));
}

/** The slice of a level that has all of start…end inside. */
function around(level: Row | undefined, start: number, end: number): number | null {
  if (!level) return null;
  const i = lowest(level.slice.length, (k) => (level.start[k] as number) > start) - 1;
  return i >= 0 && (level.end[i] as number) >= end ? (level.slice[i] as number) : null;
}

/** The longest of those that start inside: the one that explains most of its parent. */
function longestIn(level: Row | undefined, start: number, end: number): number | null {
  if (!level) return null;
  const first = lowest(level.slice.length, (i) => (level.start[i] as number) >= start);
  const last = lowest(level.slice.length, (i) => (level.start[i] as number) >= Math.max(end, start + 1));
  return first < last ? (level.slice[longestOf(level, first, last)] as number) : null;
}

/** Whether a lane is of the same kind as that of a slice; of a step only its own, as a device and its host are not two of a kind. */
export const alike = (saved: SavedLanes, lane: Lane, slice: At): boolean => {
  const current = saved.lanes[slice.lane];
  return current?.kind === "steps" ? lane === current : lane.kind === current?.kind;
};

/** The next or previous slice of the name on lanes like its own, by start. */
function sameName(saved: SavedLanes, slice: At, by: 1 | -1): At | null {
  const code = saved.code(slice);
  const order = (a: At, b: At): number => saved.start(a) - saved.start(b) || a.lane - b.lane || a.index - b.index;
  let best: At | null = null;
  saved.lanes.forEach((lane, l) => {
    if (!alike(saved, lane, slice)) return;
    for (let index = 0; index < lane.start.length; index++) {
      if (lane.name_code[index] !== code) continue;
      const candidate = { lane: l, index };
      if (order(candidate, slice) * by > 0 && (!best || order(candidate, best) * by < 0)) best = candidate;
    }
  });
  return best;
}

/** The first slice that starts in from…to, else the outermost that reaches in, on the first of the lanes that has one. */
export function firstIn(saved: SavedLanes, from: number, to: number, lanes: readonly number[]): At | null {
  for (const id of lanes) {
    const lane = saved.place(id);
    let [best, start] = [-1, Number.POSITIVE_INFINITY];
    let reaching = -1;
    for (const level of saved.levels(lane)) {
      const i = lowest(level.slice.length, (k) => (level.start[k] as number) >= from);
      const begins = level.start[i] ?? Number.POSITIVE_INFINITY;
      if (begins <= to && begins < start) [best, start] = [level.slice[i] as number, begins];
      if (reaching < 0 && i > 0 && (level.end[i - 1] as number) > from) reaching = level.slice[i - 1] as number;
    }
    const index = best < 0 ? reaching : best;
    if (index >= 0) return { lane, index };
  }
  return null;
}
