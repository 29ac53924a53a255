/** Where the events are that a report leaves out. */

import type { Trace } from "../../../lib/payload.js";
import type { Sink } from "../source.js";

/** A function that tells a sink how busy the events that were left out of a row keep it in from…to. */
export function restOf(trace: Trace): (lane: number, depth: number, from: number, to: number, sink: Sink) => void {
  const { bins, lane: lanes, depth: depths, busy } = trace.rest;
  const start = trace.rest.from * trace.tick_ns;
  const length = ((trace.rest.to - trace.rest.from) * trace.tick_ns) / Math.max(1, bins);
  const rows = new Map<string, number>();
  for (let row = 0; row < lanes.length; row++) rows.set(`${lanes[row]} ${depths[row]}`, row);
  return (lane, depth, from, to, sink) => {
    const row = rows.get(`${lane} ${depth}`);
    if (row === undefined || !(length > 0)) return;
    const first = Math.max(0, Math.floor((from - start) / length));
    const last = Math.min(bins, Math.ceil((to - start) / length));
    // Equal neighbours are one: a wide part of a row is then one piece.
    for (let bin = first; bin < last; ) {
      const share = busy[row * bins + bin] as number;
      let stop = bin + 1;
      while (stop < last && busy[row * bins + stop] === share) stop++;
      if (share) sink.rest(start + bin * length, start + stop * length, share);
      bin = stop;
    }
  };
}
