/** What happened in a range, as far as a report tells. */

import { count } from "../../../lib/format.js";
import type { Lane } from "../../../lib/payload.js";
import { covered, type Row, visible } from "../rows.js";
import type { LaneBusy, RangeInfo, Share } from "../source.js";
import { type At, type SavedLanes, selfTicks } from "./lanes.js";

/** Most names that are told one by one. */
const MOST = 400;

/**
 * Self time of every name in from…to (ns), most first; slices cut by the ends count with the part inside.
 *
 * For a slice inside the range that is its self time as recorded. For one that is cut it is the part inside less its
 * children there: what was left out of the report counts for the parent then, but never more than its whole self time.
 */
export function shares(saved: SavedLanes, places: readonly number[], from: number, to: number): Share[] {
  const sums = new Sums(saved, to - from);
  for (const place of places) {
    const lane = saved.lanes[place];
    if (!lane) continue;
    const levels = saved.levels(place);
    levels.forEach((level, depth) => {
      const [first, last] = visible(level, from, to);
      for (let i = first; i < last; i++) {
        const start = level.start[i] as number;
        const end = level.end[i] as number;
        if (!inside(start, end, from, to)) continue;
        const index = level.slice[i] as number;
        const self_ns = selfTicks(lane, index) * saved.tick;
        const [left, right] = [Math.max(start, from), Math.min(end, to)];
        const part_ns =
          start >= from && end <= to ? self_ns : Math.min(self_ns, ownPart(levels[depth + 1], left, right));
        sums.add({ lane: place, index }, part_ns, right - left);
      }
    });
  }
  return sums.list();
}

/** Slices that only touch a range are not in it; one without length is, when it starts inside. */
const inside = (start: number, end: number, from: number, to: number): boolean =>
  end === start ? start >= from && start < to : end > from && start < to;

const ownPart = (below: Row | undefined, from: number, to: number): number =>
  to - from - (below ? covered([below], from, to) : 0);

/** Adds up by kind of lane and by what the names read: different ops may be shown under one name. */
class Sums {
  private readonly byName = new Map<string, Share & { at: At }>();

  constructor(
    private readonly saved: SavedLanes,
    private readonly length: number,
  ) {}

  add(slice: At, self_ns: number, total_ns: number): void {
    const code = this.saved.code(slice);
    const name = this.saved.trace.names[code] ?? "";
    const on = (this.saved.lanes[slice.lane] as Lane).kind;
    let share = this.byName.get(on + name);
    if (!share) {
      const fill = this.saved.fill(code);
      share = {
        name,
        on,
        fill,
        count: 0,
        self_ns: 0,
        total_ns: 0,
        percent: 0,
        longest: this.saved.ref(slice),
        at: slice,
      };
      this.byName.set(on + name, share);
    }
    share.count++;
    share.self_ns += self_ns;
    share.total_ns += total_ns;
    if (this.saved.duration(slice) > this.saved.duration(share.at)) {
      share.at = slice;
      share.longest = this.saved.ref(slice);
    }
  }

  list(): Share[] {
    const all = [...this.byName.values()].sort((a, b) => b.self_ns - a.self_ns || b.count - a.count);
    return all.map(({ at: _, ...share }) => ({
      ...share,
      percent: this.length > 0 ? (100 * share.self_ns) / this.length : Number.NaN,
    }));
  }
}

function busy(saved: SavedLanes, place: number, from: number, to: number): LaneBusy {
  const levels = saved.levels(place);
  const busy_ns = covered(levels, from, to);
  let n = 0;
  for (const level of levels) {
    const [first, last] = visible(level, from, to);
    for (let i = first; i < last; i++) if (inside(level.start[i] as number, level.end[i] as number, from, to)) n++;
  }
  const percent = to > from ? (100 * busy_ns) / (to - from) : Number.NaN;
  return { lane: saved.lanes[place]?.id ?? -1, busy_ns, percent, count: n };
}

/** Share of from…to, 0…100, in which nothing ran on a device, by section. */
export function idle(saved: SavedLanes, from: number, to: number): RangeInfo["idle"] {
  if (!(to > from)) return [];
  const sections = new Map<string, Row[]>();
  saved.lanes.forEach((lane, place) => {
    if (lane.kind !== "device" || saved.repeated.has(place)) return;
    sections.set(lane.process, [...(sections.get(lane.process) ?? []), ...saved.levels(place)]);
  });
  return [...sections].map(([process, levels]) => ({
    process,
    percent: 100 * (1 - covered(levels, from, to) / (to - from)),
  }));
}

/** A range of the given lanes (ids; null: every lane that does not repeat others). */
export function rangeInfo(saved: SavedLanes, from: number, to: number, lanes: readonly number[] | null): RangeInfo {
  const work = (place: number): boolean => {
    const kind = saved.lanes[place]?.kind;
    return kind === "device" || kind === "host";
  };
  const places = (lanes ? lanes.map((id) => saved.place(id)) : [...saved.lanes.keys()]).filter(work);
  const counted = lanes ? places : places.filter((place) => !saved.repeated.has(place));
  const all = shares(saved, counted, from, to);
  return {
    from,
    to,
    ...largest(all),
    lanes: places.map((place) => busy(saved, place, from, to)),
    idle: idle(saved, from, to),
    count: all.reduce((sum, share) => sum + share.count, 0),
    note: note(saved),
  };
}

/** Several slices as one: their numbers in whole, by name. */
export function manyInfo(saved: SavedLanes, events: readonly number[]): RangeInfo {
  const found = events.map((event) => saved.at(event)).filter((slice) => slice !== null);
  const from = Math.min(...found.map((slice) => saved.start(slice)));
  const to = Math.max(...found.map((slice) => saved.start(slice) + saved.duration(slice)));
  const sums = new Sums(saved, to - from);
  for (const slice of found) {
    const lane = saved.lanes[slice.lane];
    if (lane) sums.add(slice, selfTicks(lane, slice.index) * saved.tick, saved.duration(slice));
  }
  return { from, to, ...largest(sums.list()), lanes: [], idle: [], count: found.length, note: "" };
}

function largest(all: Share[]): Pick<RangeInfo, "shares" | "others"> {
  const rest = all.slice(MOST);
  if (!rest.length) return { shares: all, others: null };
  const sum = (read: (share: Share) => number): number => rest.reduce((total, share) => total + read(share), 0);
  const others = { names: rest.length, count: sum((share) => share.count), self_ns: sum((share) => share.self_ns) };
  return { shares: all.slice(0, MOST), others };
}

function note(saved: SavedLanes): string {
  if (!saved.part) return "";
  return `Only the ${count(saved.trace.shown)} of ${count(saved.trace.total)} slices saved here are counted.`;
}
