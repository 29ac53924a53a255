/** What a report tells of one slice. */

import { textAt } from "../../../lib/codec.js";
import { CATEGORIES, type Coded, type ColumnData, type Lane, type Links } from "../../../lib/payload.js";
import { lowest } from "../../../lib/search.js";
import { MOST_NAME } from "../ask.js";
import type { Arrow, Kind, SliceInfo, Where } from "../source.js";
import { type At, type SavedLanes, type Source, selfTicks } from "./lanes.js";
import { alike, neighbour } from "./step.js";
import { stepIndex, stepName } from "./steps.js";

const holds = (column: ColumnData | undefined, fits: (text: string) => boolean): boolean =>
  column !== undefined && (Array.isArray(column) ? column : ((column as Coded).values ?? [])).some(fits);

/** The tables of a report; an old one may lack that of the input. */
type Tables = Pick<Source, "ops" | "kernels"> & Partial<Pick<Source, "input">>;

/** The view whose table lists a slice's name as kernel, op, type of op or iterator, if any does. */
export function tableOf(payload: Tables, name: string, kind: string): Where | null {
  // Names in the trace are cut, those in the tables are not.
  const sameStart = (text: string): boolean => text.slice(0, MOST_NAME) === name;
  if (kind === "device" && holds(payload.kernels.table.data.kernel, sameStart)) return "kernels";
  const { op, type } = payload.ops.table.data;
  if (kind !== "device" && holds(payload.input?.ops.data.op, sameStart)) return "input";
  return holds(op, sameStart) || holds(type, sameStart) ? "ops" : null;
}

/** The op of a kernel where all launches of it belong to the same one; else "". */
function opOf(payload: Source, kernel: string): string {
  const { data, rows } = payload.kernels.table;
  const found = new Set<string>();
  for (let row = 0; row < rows; row++) {
    if (textAt(data.kernel, row).slice(0, MOST_NAME) === kernel) found.add(textAt(data.op, row));
  }
  return found.size === 1 ? ([...found][0] as string) : "";
}

/** All slices here of that name on lanes like its own. */
export function peers(saved: SavedLanes, slice: At): SliceInfo["same"] {
  const code = saved.code(slice);
  const found: (At & { length: number })[] = [];
  saved.lanes.forEach((lane, l) => {
    if (!alike(saved, lane, slice)) return;
    for (let index = 0; index < lane.start.length; index++)
      if (lane.name_code[index] === code) found.push({ lane: l, index, length: lane.duration[index] as number });
  });
  const count = found.length;
  const sum = found.reduce((all, { length }) => all + length, 0);
  // Of the longest alone, the one in the middle is no median.
  const all = saved.trace.shown >= saved.trace.total;
  const middle = all ? found.sort((a, b) => a.length - b.length)[(count - 1) >> 1] : undefined;
  return {
    count,
    mean_ns: count ? (sum * saved.tick) / count : Number.NaN,
    median: middle ? saved.ref(middle) : null,
  };
}

/** Details of a slice; null where the report does not hold it. Arguments and stacks are never in a report. */
export function sliceInfo(saved: SavedLanes, event: number): SliceInfo | null {
  const where = saved.at(event);
  if (!where) return null;
  const { payload } = saved;
  const lane = saved.lanes[where.lane] as Lane;
  const slice = saved.ref(where);
  const parent = neighbour(saved, where, "parent");
  const { steps } = payload;
  const step = lane.kind === "steps" ? -1 : stepIndex(steps, saved.clock(slice.start_ns));
  const tab = tableOf(payload, slice.name, lane.kind);
  return {
    slice,
    full_name: slice.name,
    process: lane.process,
    thread: lane.name,
    self_ns: selfTicks(lane, where.index) * saved.tick,
    same: peers(saved, where),
    parent: parent && saved.ref(parent),
    op: saved.trace.names[(lane.op?.[where.index] ?? 0) - 1] ?? (tab === "kernels" ? opOf(payload, slice.name) : ""),
    step: stepName(steps, step),
    category: CATEGORIES[(saved.trace.category[saved.code(where)] ?? 0) - 1]?.key ?? "",
    launch: launchOf(saved, where),
    stack: [],
    args: [],
    arrows: arrowsOf(saved, event),
    row: tab && { tab, filter: slice.name },
  };
}

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
export function launchOf(saved: SavedLanes, slice: At): SliceInfo["launch"] {
  const lane = saved.lanes[slice.lane];
  if (lane?.kind !== "device") return null;
  const event = lane.event[slice.index] as number;
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
