/** The trace as it was saved with the report: all lanes, the longest events, and how busy the rest keeps each row. */

import { fillsOf } from "../../lib/colours.js";
import { kernelName } from "../../lib/format.js";
import type { Payload, Lane as SavedLane, Trace } from "../../lib/payload.js";
import { lowest } from "../../lib/search.js";
import { eachMark, type Row } from "./rows.js";
import { SavedAnswers } from "./saved/answers.js";
import { hitSums } from "./saved/find.js";
import type { SavedLanes } from "./saved/lanes.js";
import { type Answers, idsOf, type LaneHead, type Series, type Sink, type Source, type Strip } from "./source.js";
import { overview } from "./strips.js";

/** What of a payload the trace is made of. */
export type Saved = Pick<Payload, "trace" | "steps" | "ops" | "kernels" | "input"> & {
  meta?: Pick<Payload["meta"], "version" | "footer">;
};

/** Fill of a step of the saved lanes: the last tint. */
const STEP = 107;

/** The bin (ns, a power of two) that suits pixels of a length: neither more than one nor less than half of it. */
const binOf = (pixel_ns: number): number => 2 ** Math.floor(Math.log2(pixel_ns));

export class SavedSource implements Source {
  readonly live = false;
  readonly waiting = false;
  readonly complete = true;
  readonly ids: string;
  readonly notes: readonly string[];
  /** Events of the profile, without those derived from them; undefined where that is not known. */
  readonly recorded: number | undefined;
  readonly total: number;
  readonly shown: number;
  readonly lacks: readonly string[];
  readonly lanes: readonly LaneHead[];
  readonly end: number;
  private readonly fills: Uint8Array;
  private readonly labels: string[];
  private readonly rest: ReturnType<typeof restOf>;
  private readonly answers: SavedAnswers;
  private readonly held: SavedLanes;
  private readonly trace: Trace;
  private sums = new Map<Row, Uint32Array>();
  private drawn: Strip | null = null;

  constructor(readonly saved: Saved) {
    const { trace } = saved;
    this.trace = trace;
    this.total = trace.total;
    this.shown = trace.shown;
    this.lacks = trace.lacks;
    this.end = trace.end * trace.tick_ns;
    this.lanes = trace.lanes.map(head);
    this.ids = idsOf(trace.key, saved.meta?.version ?? "", this.total, this.lanes);
    this.notes = trace.notes;
    this.recorded = saved.meta?.footer.events;
    this.fills = fillsOf(trace.names, trace.category);
    this.labels = trace.names.map((name) => kernelName(name).name);
    this.rest = restOf(trace);
    this.answers = new SavedAnswers(saved);
    this.held = this.answers.lanes;
  }

  /** Whether it is known where the events are that were left out. */
  get hasRest(): boolean {
    return this.trace.rest.bins > 0;
  }

  /** Start and end of every slice, ns; steps and what was derived say nothing of their own. */
  times(): { starts: Float64Array; ends: Float64Array } {
    const lanes = this.trace.lanes.filter((lane) => !lane.derived && lane.kind !== "counter" && lane.kind !== "steps");
    const size = lanes.reduce((sum, lane) => sum + lane.start.length, 0);
    const starts = new Float64Array(size);
    const ends = new Float64Array(size);
    const { tick_ns } = this.trace;
    let k = 0;
    for (const lane of lanes) {
      for (let i = 0; i < lane.start.length; i++, k++) {
        starts[k] = (lane.start[i] as number) * tick_ns;
        ends[k] = (starts[k] as number) + (lane.duration[i] as number) * tick_ns;
      }
    }
    return { starts, ends };
  }

  get strip(): Strip {
    this.drawn ??= this.trace.strip.above.length ? this.trace.strip : overview(this.trace, 1024);
    return this.drawn;
  }

  visit(lane: number, depth: number, from: number, to: number, pixels: number, sink: Sink): void {
    const place = this.held.place(lane);
    const data = this.trace.lanes[place];
    if (!data || !(to > from)) return;
    sink.clip(from, to);
    this.rest(lane, depth, from, to, sink);
    const row = this.held.levels(place)[depth];
    if (!row) return;
    const sums = this.sumsOf(row, data);
    eachMark(row, from, to, binOf((to - from) / pixels), (first, last, longest, busy) => {
      const code = data.name_code[row.slice[longest] as number] as number;
      const hit = sums !== null && sums[last] !== sums[first];
      const fill = data.kind === "steps" ? STEP : (this.fills[code] as number);
      sink.mark(
        row.start[first] as number,
        (last - first === 1 ? row.end[first] : row.reach[last - 1]) as number,
        data.event[row.slice[longest] as number] as number,
        code,
        fill,
        last - first,
        Math.round(busy * 255),
        hit,
      );
    });
  }

  /** How many hits lie before each slice of a row; null without a search. */
  private sumsOf(row: Row, lane: SavedLane): Uint32Array | null {
    const names = this.answers.hits?.names;
    if (!names) return null;
    let sums = this.sums.get(row);
    if (!sums) {
      sums = hitSums(row, lane, names);
      this.sums.set(row, sums);
    }
    return sums;
  }

  counter(lane: number, from: number, to: number, _pixels: number): Series | null {
    const { time, value, unit } = this.trace.lanes[this.held.place(lane)] ?? {};
    if (!time || !value) return null;
    // With the one before the window: it holds until the first inside.
    const first = Math.max(0, lowest(time.length, (i) => (time[i] as number) > from) - 1);
    const last = lowest(time.length, (i) => (time[i] as number) > to);
    const part = Float64Array.from(value.subarray(first, last));
    return {
      time: Float64Array.from(time.subarray(first, last)),
      low: part,
      high: part,
      last: part,
      mean: unit === "percent" ? part : part.map(() => Number.NaN),
    };
  }

  label(name: number, lane: number, event: number): string {
    if (this.trace.lanes[this.held.place(lane)]?.kind === "steps") {
      const slice = this.held.at(event);
      if (slice) return this.held.name(slice);
    }
    return this.labels[name] ?? "";
  }

  want(): void {}

  onMore(_fn: () => void): void {}

  setQuery(query: string): void {
    this.answers.setQuery(query);
    this.sums = new Map();
  }

  close(): void {}

  slice: Answers["slice"] = (event) => this.answers.slice(event);
  step: Answers["step"] = (event, to) => this.answers.step(event, to);
  first: Answers["first"] = (from, to, lanes) => this.answers.first(from, to, lanes);
  range: Answers["range"] = (from, to, lanes) => this.answers.range(from, to, lanes);
  many: Answers["many"] = (events) => this.answers.many(events);
  search: Answers["search"] = (query) => this.answers.search(query);
  hit: Answers["hit"] = (query, anchor) => this.answers.hit(query, anchor);
  locate: Answers["locate"] = (target) => this.answers.locate(target);
}

function head(lane: SavedLane): LaneHead {
  const { id, process, name, note, kind, events, depths, folded, derived, unit, host, device } = lane;
  const shown = kind === "counter" ? (lane.time?.length ?? 0) : lane.start.length;
  return {
    id,
    process,
    name,
    note,
    kind,
    events,
    shown,
    depths,
    folded,
    derived,
    ...(host !== undefined && { host }),
    ...(device !== undefined && { device }),
    ...(unit && { unit, most: largest(lane) }),
  };
}

function largest(lane: SavedLane): number {
  let most = 0;
  for (const value of lane.value ?? []) if (value > most) most = value;
  return most;
}

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
