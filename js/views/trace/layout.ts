/** Where each lane lies: the tree of processes and lanes, from top to bottom. */

import { lowest } from "../../lib/search.js";
import type { LaneHead } from "./source.js";

export const ROW = 18;
const COUNTER = 34;

export type Band =
  | { kind: "process"; key: string; process: string; open: boolean; lanes: number[]; top: number; height: number }
  | { kind: "lane"; key: string; lane: number; open: boolean; depths: number; top: number; height: number }
  | { kind: "rest"; key: string; process: string; open: boolean; lanes: number[]; top: number; height: number };

/** What the reader has opened or closed; a key that is missing has its first state. */
export type Folding = ReadonlyMap<string, boolean>;

export const processKey = (process: string): string => `p:${process}`;
export const restKey = (process: string): string => `r:${process}`;
export const laneKey = (lane: number): string => `l:${lane}`;

/** Whether a lane is a thread of the host: what was seen of one from outside, or made of other lanes, is none. */
export const isThread = (lane?: { kind: string; derived: boolean }): boolean => lane?.kind === "host" && !lane.derived;

/** Positions of lanes by process, in the order in which they come. */
export function processes(lanes: readonly { process: string }[]): Map<string, number[]> {
  const groups = new Map<string, number[]>();
  lanes.forEach((lane, index) => {
    const group = groups.get(lane.process);
    if (group) group.push(index);
    else groups.set(lane.process, [index]);
  });
  return groups;
}

/**
 * The bands of the trace, top to bottom, without gaps.
 *
 * Lanes that are folded at first gather in one band at the end of their process ("11 more threads");
 * a single one gets its own band, as one line cannot be saved there. Without headings the lanes alone, as they come.
 */
export function layout(
  lanes: readonly LaneHead[],
  folding: Folding,
  headings = true,
): { bands: Band[]; height: number } {
  const bands: Band[] = [];
  let top = 0;
  const push = (band: Band): void => {
    bands.push(band);
    top += band.height;
  };
  const pushLane = (lane: LaneHead): void => {
    const key = laneKey(lane.id);
    const open = folding.get(key) ?? true;
    const depths = Math.max(1, lane.depths);
    const height =
      lane.kind === "counter" ? COUNTER : (open ? depths : 1) * ROW - (open && depths > 1 ? depths - 1 : 0);
    push({ kind: "lane", key, lane: lane.id, open, depths: open ? depths : 1, top, height: height + 1 });
  };
  if (!headings) {
    for (const lane of lanes) pushLane(lane);
    return { bands, height: top };
  }
  const ids = (members: readonly LaneHead[]): number[] => members.map((lane) => lane.id);
  for (const [process, positions] of processes(lanes)) {
    const members = positions.map((position) => lanes[position] as LaneHead);
    const open = folding.get(processKey(process)) ?? true;
    push({ kind: "process", key: processKey(process), process, open, lanes: ids(members), top, height: ROW + 1 });
    if (!open) continue;
    const folded = members.filter((lane) => lane.folded);
    const gathered = folded.length > 1;
    for (const lane of members) if (!(gathered && lane.folded)) pushLane(lane);
    if (gathered) {
      const restOpen = folding.get(restKey(process)) ?? false;
      push({
        kind: "rest",
        key: restKey(process),
        process,
        open: restOpen,
        lanes: ids(folded),
        top,
        height: ROW + 1,
      });
      if (restOpen) for (const lane of folded) pushLane(lane);
    }
  }
  return { bands, height: top };
}

/** Top of a nesting level within its band: slices of 16 px, 17 apart, 1 px from the top. */
export const levelTop = (depth: number): number => 1 + depth * (ROW - 1);

/** The bands that touch top…bottom, by binary search. */
export function bandsIn(bands: readonly Band[], top: number, bottom: number): Band[] {
  const low = lowest(bands.length, (i) => (bands[i] as Band).top + (bands[i] as Band).height > top);
  const found: Band[] = [];
  for (let i = low; i < bands.length && (bands[i] as Band).top < bottom; i++) found.push(bands[i] as Band);
  return found;
}

/** The folding in which a lane can be seen, with all its levels. */
export function reveal(lane: LaneHead, folding: Folding): Folding {
  const next = new Map(folding).set(processKey(lane.process), true).set(laneKey(lane.id), true);
  if (lane.folded) next.set(restKey(lane.process), true);
  return next;
}
