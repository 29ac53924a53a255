/** Lanes for tests, from a list of events. */

import type { Lane, Links, Trace } from "../lib/payload.js";

export type Event = [start: number, duration: number, name: number, depth: number, self?: number];

export function lane(events: Event[], more: Partial<Lane> = {}): Lane {
  const column = (k: number): number[] => events.map((event) => event[k] ?? (event[1] as number));
  return {
    id: 0,
    process: "Host",
    name: "main",
    note: "",
    kind: "host",
    events: events.length,
    depths: Math.max(0, ...events.map((event) => event[3])) + 1,
    start: Uint32Array.from(column(0)),
    duration: Uint32Array.from(column(1)),
    name_code: Uint16Array.from(column(2)),
    depth: Uint8Array.from(column(3)),
    inside: Uint32Array.from(events, ([, duration, , , self]) => duration - (self ?? duration)),
    event: Uint32Array.from(events.keys()),
    folded: false,
    derived: false,
    ...more,
  };
}

/** Lanes and events with the numbers that Python would give them: each its own. */
export function numbered(lanes: Lane[]): Lane[] {
  let first = 0;
  return lanes.map((each, id) => {
    const from = first;
    first += each.start.length;
    return { ...each, id, event: Uint32Array.from(each.start, (_, i) => from + i) };
  });
}

/** What a trace holds beside its lanes: nothing. */
export function nothingElse(): Pick<
  Trace,
  "key" | "origin_ns" | "rest" | "strip" | "gaps" | "links" | "lacks" | "notes"
> {
  const [lane, count] = [new Uint32Array(), new Uint32Array()];
  const [depth, busy] = [new Uint16Array(), new Uint8Array()];
  return {
    key: "",
    origin_ns: 0,
    rest: { bins: 0, from: 0, to: 0, lane, depth, count, busy },
    strip: { above: new Uint8Array(), below: new Uint8Array(), below_is: "device" },
    gaps: { process: { codes: new Uint8Array(), values: [] }, start: new Float64Array(), duration: new Float64Array() },
    links: linked([]),
    lacks: [],
    notes: [],
  };
}

/** Arrows between slices: kind, and the numbers of the slices that it leaves and reaches. */
export function linked(arrows: [kind: number, from: number, to: number][], more: Partial<Links> = {}): Links {
  const column = (k: 0 | 1 | 2): number[] => arrows.map((arrow) => arrow[k]);
  return {
    kind: Uint8Array.from(column(0)),
    from: Uint32Array.from(column(1)),
    to: Uint32Array.from(column(2)),
    left_out: 0,
    work: new Uint32Array(),
    on: new Uint8Array(),
    delay: new Int32Array(),
    ...more,
  };
}

export function trace(lanes: Lane[], names: string[], end: number): Trace {
  const total = lanes.reduce((sum, each) => sum + each.events, 0);
  const category = new Uint8Array(names.length);
  const own = numbered(lanes);
  return { empty: null, ...nothingElse(), tick_ns: 1000, end, names, category, lanes: own, shown: total, total };
}
