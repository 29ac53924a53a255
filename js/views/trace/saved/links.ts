/** Arrows and launches of the slices that a report holds. */

import type { Links } from "../../../lib/payload.js";
import { lowest } from "../rows.js";
import type { Arrow, Kind, SliceInfo } from "../source.js";
import type { At, SavedLanes } from "./lanes.js";

const KINDS: readonly Kind[] = ["launch", "producer", "forward", "flow"];

/** Numbers of the arrows that leave or reach each event. */
const indexes = new WeakMap<Links, Map<number, number[]>>();

function indexOf(links: Links): Map<number, number[]> {
  let index = indexes.get(links);
  if (!index) {
    index = new Map();
    for (let i = 0; i < links.kind.length; i++) {
      for (const event of new Set([links.from[i] as number, links.to[i] as number])) {
        const known = index.get(event);
        if (known) known.push(i);
        else index.set(event, [i]);
      }
    }
    indexes.set(links, index);
  }
  return index;
}

/** The arrows of a slice to others that are here. */
export function arrowsOf(saved: SavedLanes, event: number): Arrow[] {
  const { links } = saved.trace;
  return (indexOf(links).get(event) ?? []).flatMap((i): Arrow[] => {
    const [from, to] = [saved.at(links.from[i] as number), saved.at(links.to[i] as number)];
    const kind = KINDS[links.kind[i] as number];
    return from && to && kind ? [{ kind, from: saved.ref(from), to: saved.ref(to) }] : [];
  });
}

/** Where the work of a device was asked for; of several launches the last. */
export function launchOf(saved: SavedLanes, at: At): SliceInfo["launch"] {
  const lane = saved.lanes[at.lane];
  if (lane?.kind !== "device") return null;
  const event = lane.event[at.index] as number;
  const { links } = saved.trace;
  let last: Arrow | null = null;
  for (const arrow of arrowsOf(saved, event)) {
    if (arrow.kind !== "launch" || arrow.to.event !== event) continue;
    if (!last || arrow.from.start_ns >= last.from.start_ns) last = arrow;
  }
  if (last) return { slice: last.from, delay_ns: last.to.start_ns - last.from.start_ns };
  const i = lowest(links.work.length, (k) => (links.work[k] as number) >= event);
  if (links.work[i] !== event) return null;
  return { slice: null, lane: links.on[i] as number, delay_ns: (links.delay[i] as number) * saved.tick };
}
