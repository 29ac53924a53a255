/** Lanes for tests, from a list of events. */

import type { Lane, Trace } from "../lib/payload.js";

export type Event = [start: number, duration: number, name: number, depth: number, self?: number];

export function lane(events: Event[], more: Partial<Lane> = {}): Lane {
  const column = (k: number): number[] => events.map((event) => event[k] ?? (event[1] as number));
  return {
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
    self: Uint32Array.from(column(4)),
    folded: false,
    ...more,
  };
}

export function trace(lanes: Lane[], names: string[], end: number): Trace {
  const total = lanes.reduce((sum, each) => sum + each.events, 0);
  return { empty: null, tick_ns: 1000, end, names, category: new Uint8Array(names.length), lanes, shown: total, total };
}
