/** What happened in a range: self time by name. */

import type { Trace } from "../../lib/payload.js";
import { processes } from "./layout.js";
import type { Row } from "./rows.js";
import { covered, visible } from "./rows.js";

export interface Share {
  code: number;
  count: number;
  /** Ticks. */
  self: number;
  /** Of the range, 0…100; lanes run at the same time, so the sum may pass 100. */
  percent: number;
}

/**
 * Self time of every name in from…to, most first; slices cut by the ends count with the part inside.
 *
 * For a slice inside the range that is its self time as recorded. For one that is cut it is the part
 * inside less its children there: what was left out of the report counts for the parent then, but
 * never more than its whole self time.
 */
export function aggregate(trace: Trace, rows: readonly (readonly Row[])[], from: number, to: number): Share[] {
  const shares = new Map<number, Share>();
  const repeated = repeats(trace);
  const codes = sameNames(trace.names);
  trace.lanes.forEach((lane, l) => {
    if ((lane.kind !== "device" && lane.kind !== "host") || repeated.has(l)) return;
    const levels = rows[l] ?? [];
    levels.forEach((row, depth) => {
      const [first, last] = visible(row, from, to);
      for (let i = first; i < last; i++) {
        const start = row.start[i] as number;
        const end = row.end[i] as number;
        // Slices that only touch the range are not in it; one without length is, when it starts inside.
        if (end === start ? start < from || start >= to : end <= from || start >= to) continue;
        const index = row.slice[i] as number;
        const whole = lane.self[index] as number;
        const self =
          start >= from && end <= to
            ? whole
            : Math.min(whole, cut(levels[depth + 1], Math.max(start, from), Math.min(end, to)));
        add(shares, codes[lane.name_code[index] as number] as number, self);
      }
    });
  });
  const length = to - from;
  const list = [...shares.values()];
  for (const share of list) share.percent = length > 0 ? (100 * share.self) / length : Number.NaN;
  return list.sort((a, b) => b.self - a.self || b.count - a.count || a.code - b.code);
}

function cut(below: Row | undefined, from: number, to: number): number {
  return to - from - (below ? covered([below], from, to) : 0);
}

function add(shares: Map<number, Share>, code: number, self: number): void {
  const share = shares.get(code);
  if (share) {
    share.count++;
    share.self += self;
  } else shares.set(code, { code, count: 1, self, percent: 0 });
}

/** The first `n` of a list, and the rest as one sum (null when nothing is left, or only one: it gets its own line). */
export function fold(shares: readonly Share[], n: number): { head: Share[]; rest: (Share & { names: number }) | null } {
  if (shares.length <= n + 1) return { head: [...shares], rest: null };
  const rest = { code: -1, count: 0, self: 0, percent: 0, names: shares.length - n };
  for (const share of shares.slice(n)) {
    rest.count += share.count;
    rest.self += share.self;
    rest.percent += share.percent;
  }
  return { head: shares.slice(0, n), rest };
}

/** By name, the first code that reads the same: different ops may be shown under one name. */
export function sameNames(names: readonly string[]): Uint32Array {
  const first = new Map<string, number>();
  return Uint32Array.from(names, (name, code) => {
    const known = first.get(name);
    if (known === undefined) first.set(name, code);
    return known ?? code;
  });
}

/** Lanes that hold the work of a device itself: streams of a GPU, the ops of a TPU core. */
const WORK = /^(stream\b|xla ops$)/i;

/**
 * Device lanes that say again, by op, module or name scope, what the work lanes of the same device say.
 * Counting them would count the work twice, and a scope also covers the gaps between its kernels.
 */
export function repeats(trace: Trace): Set<number> {
  const found = new Set<number>();
  for (const members of processes(trace.lanes).values()) {
    const device = members.filter((l) => trace.lanes[l]?.kind === "device");
    const work = device.filter((l) => WORK.test(trace.lanes[l]?.name ?? ""));
    if (work.length) for (const l of device) if (!work.includes(l)) found.add(l);
  }
  return found;
}

/** Share of from…to, 0…100, in which none of the process's device lanes had a slice; null without such lanes. */
export function idle(
  trace: Trace,
  rows: readonly (readonly Row[])[],
  lanes: readonly number[],
  from: number,
  to: number,
): number | null {
  const repeated = repeats(trace);
  const top = lanes.flatMap((l) =>
    trace.lanes[l]?.kind === "device" && !repeated.has(l) ? (rows[l]?.slice(0, 1) ?? []) : [],
  );
  if (!top.length || !(to > from)) return null;
  return 100 * (1 - covered(top, from, to) / (to - from));
}
