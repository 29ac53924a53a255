/** The slices that a report holds, ready to be asked for: by lane and level, and by the number of an event. */

import { tintOf } from "../../../lib/colours.js";
import type { Lane, Payload, Trace } from "../../../lib/payload.js";
import { type Row, rowsOf } from "../rows.js";
import type { SliceRef } from "../source.js";
import { stepNames } from "./steps.js";

/** Self time of a slice, in ticks. */
export const selfTicks = (lane: Lane, index: number): number =>
  (lane.duration[index] ?? 0) - (lane.inside?.[index] ?? 0);

/** A slice: position of its lane in the payload, and its own in the lane. */
export interface At {
  lane: number;
  index: number;
}

/** Lanes that hold the work of a device itself: streams of a GPU, the ops of a TPU core. */
const WORK = /^(stream\b|xla ops$)/i;

/**
 * Positions of the lanes that say again what others say: of a device by op, module or name scope.
 * Counting them would count the work twice, and a scope also covers the gaps between its kernels.
 */
export function repeated(lanes: readonly Lane[]): Set<number> {
  const devices = new Map<string, number[]>();
  lanes.forEach((lane, i) => {
    if (lane.kind === "device") devices.set(lane.process, [...(devices.get(lane.process) ?? []), i]);
  });
  // So do those of the host that the recorder made, and its spans of itself are no work.
  const found = new Set([...lanes.keys()].filter((i) => lanes[i]?.kind === "host" && lanes[i]?.derived));
  for (const members of devices.values()) {
    const work = members.filter((i) => WORK.test(lanes[i]?.name ?? ""));
    for (const i of members) if (lanes[i]?.derived || (work.length && !work.includes(i))) found.add(i);
  }
  return found;
}

/** What of a report is looked at. */
export type Source = Pick<Payload, "trace" | "steps" | "ops" | "kernels" | "input">;

export class SavedLanes {
  readonly trace: Trace;
  readonly tick: number;
  /** ns of the origin on the clock of the tables and steps: 0, or less. */
  readonly origin: number;
  /** Lanes that say again what others say. */
  readonly repeated: Set<number>;
  private readonly byLane: (readonly Row[] | undefined)[] = [];
  private readonly places = new Map<number, number>();
  private events: Map<number, At> | null = null;
  private readonly stepName: (lane: number, index: number) => string;

  constructor(readonly payload: Source) {
    this.trace = payload.trace;
    this.tick = payload.trace.tick_ns;
    this.origin = payload.trace.origin_ns;
    this.repeated = repeated(payload.trace.lanes);
    this.stepName = stepNames(payload.trace, payload.steps);
    payload.trace.lanes.forEach((lane, i) => {
      this.places.set(lane.id, i);
    });
  }

  get lanes(): readonly Lane[] {
    return this.trace.lanes;
  }

  /** Whether events of the profile are left out here. */
  get part(): boolean {
    return this.trace.shown < this.trace.total;
  }

  /** A time of a table or step (ms) on the clock of the trace (ns). */
  time(ms: number): number {
    return ms * 1e6 - this.origin;
  }

  /** And back. */
  clock(ns: number): number {
    return (ns + this.origin) / 1e6;
  }

  /** Position of a lane; -1 where there is none of this id. */
  place(id: number): number {
    return this.places.get(id) ?? -1;
  }

  /** The levels of the lane at a position, outermost first. */
  levels(place: number): readonly Row[] {
    const known = this.byLane[place];
    if (known) return known;
    const lane = this.trace.lanes[place];
    const levels = lane ? rowsOf(lane).map((row) => inNs(row, this.tick)) : [];
    this.byLane[place] = levels;
    return levels;
  }

  at(event: number): At | null {
    if (!this.events) {
      this.events = new Map();
      for (const [lane, { event: events }] of this.trace.lanes.entries()) {
        for (let index = 0; index < events.length; index++) this.events.set(events[index] as number, { lane, index });
      }
    }
    return this.events.get(event) ?? null;
  }

  code({ lane, index }: At): number {
    return this.trace.lanes[lane]?.name_code[index] ?? 0;
  }

  /** As the other views call it: a step by its number. */
  name(slice: At): string {
    return this.stepName(slice.lane, slice.index) || (this.trace.names[this.code(slice)] ?? "");
  }

  start({ lane, index }: At): number {
    return (this.trace.lanes[lane]?.start[index] ?? 0) * this.tick;
  }

  duration({ lane, index }: At): number {
    return (this.trace.lanes[lane]?.duration[index] ?? 0) * this.tick;
  }

  ref(slice: At): SliceRef {
    const lane = this.trace.lanes[slice.lane] as Lane;
    return {
      event: lane.event[slice.index] as number,
      lane: lane.id,
      depth: lane.depth[slice.index] as number,
      start_ns: this.start(slice),
      duration_ns: this.duration(slice),
      name: this.name(slice),
    };
  }

  /** 1…9: a category, 100…107: a tint. */
  fill(code: number): number {
    return this.trace.category[code] || 100 + tintOf(this.trace.names[code] ?? "");
  }
}

/** A row whose times are ns instead of ticks. */
function inNs(row: Row, tick: number): Row {
  if (tick === 1) return row;
  const [start, end, reach] = [row.start, row.end, row.reach].map((column) => column.map((time) => time * tick));
  return { ...row, start, end, reach } as Row;
}
