/** Where a link from another view leads, as far as a report tells. */

import { numberAt, textAt } from "../../../lib/codec.js";
import type { Table } from "../../../lib/payload.js";
import { lowest } from "../../../lib/search.js";
import { capital } from "../../../lib/unit.js";
import { candidates } from "../ask.js";
import { length } from "../info/words.js";
import { visible } from "../rows.js";
import type { Located, Target } from "../source.js";
import { hitAt, hitsOf } from "./find.js";
import type { At, SavedLanes } from "./lanes.js";
import { firstIn } from "./step.js";
import { stepIndex, stepName } from "./steps.js";

/** Hidden columns of a table: when the longest call of a row starts, and how long it takes (ms). */
const AT = "_at_ms";
const FOR = "_for_ms";

/** Where the longest call of a row lies, in ms as its table counts; null where that does not say. */
function longestOf(table: Table, row: number): { from: number; to: number } | null {
  const from = numberAt(table.data[AT], row);
  const to = from + numberAt(table.data[FOR], row);
  return to >= from ? { from, to } : null;
}

/**
 * The slice that lies from…to, to within what a tick rounds; of several the innermost of the name, else the innermost. One of the
 * name that only starts there will do: a device may count its ops by a clock of its own.
 */
function sliceLike(saved: SavedLanes, from: number, to: number, names: readonly string[]): At | null {
  const slack = 1.5 * saved.tick;
  let best: At | null = null;
  let rank = 0;
  saved.lanes.forEach((lane, place) => {
    if (lane.kind === "counter") return;
    saved.levels(place).forEach((level, depth) => {
      const first = lowest(level.slice.length, (i) => (level.start[i] as number) >= from - slack);
      for (let i = first; i < level.slice.length && (level.start[i] as number) <= from + slack; i++) {
        const fits = Math.abs((level.end[i] as number) - to) <= slack;
        const slice = { lane: place, index: level.slice[i] as number };
        const named = names.includes(saved.name(slice));
        const score = (fits ? 2 : 0) + (named ? 1 : 0) + depth / (depth + 1);
        if ((fits || named) && score > rank) [best, rank] = [slice, score];
      }
    });
  });
  return best;
}

/** The longest slice that one of the texts finds, best text first. */
function byName(saved: SavedLanes, texts: readonly string[]): At | null {
  for (const text of texts) {
    const hits = hitsOf(saved, text);
    const hit = hitAt(saved, hits, { longest: true }).slice;
    if (hit) return saved.at(hit.event);
  }
  return null;
}

function located(
  saved: SavedLanes,
  place: At | null,
  text: string,
  range?: { from: number; to: number },
): Located | null {
  if (!place && !range) return null;
  const slice = place && saved.ref(place);
  const span = slice && { from: slice.start_ns, to: slice.start_ns + slice.duration_ns };
  return { slice, ...((range ?? span) as { from: number; to: number }), text };
}

/** The row of a table that a target means: of several of the name that of the time, else that of the longest call. */
function rowOf(table: Table, key: string, target: Target): number {
  let best = -1;
  let most = -1;
  for (let row = 0; row < table.rows; row++) {
    if (textAt(table.data[key], row) !== target.name) continue;
    const there = longestOf(table, row);
    if (there && target.time_ms !== undefined && Math.abs(there.from - target.time_ms) < 1e-6) return row;
    const length = there ? there.to - there.from : 0;
    if (length > most) [best, most] = [row, length];
  }
  return best;
}

function moment(saved: SavedLanes, time: number, text: string): Located | null {
  const { steps } = saved.payload;
  const end = saved.trace.end * saved.tick;
  const i = stepIndex(steps, saved.clock(time));
  const from = i < 0 ? Math.max(0, time - end / 200) : saved.time(steps.start_ms[i] as number);
  const to = i < 0 ? Math.min(end, time + end / 200) : from + (steps.step_time_ms[i] as number) * 1e6;
  return located(saved, innermost(saved, time), text, { from, to });
}

/** The shortest slice of a thread or device that runs at a time. */
function innermost(saved: SavedLanes, time: number): At | null {
  let best: At | null = null;
  saved.lanes.forEach((lane, place) => {
    if (lane.kind !== "host" && lane.kind !== "device") return;
    for (const level of saved.levels(place)) {
      const [first, last] = visible(level, time, time);
      for (let i = first; i < last; i++) {
        const slice = { lane: place, index: level.slice[i] as number };
        if ((level.end[i] as number) >= time && (!best || saved.duration(slice) < saved.duration(best))) best = slice;
      }
    }
  });
  return best;
}

const TABLES = { op: "op", kernel: "kernel", input: "op" } as const;

/** The slice and range that a target means; null where the report holds nothing of it. */
export function locate(saved: SavedLanes, target: Target): Located | null {
  const { payload } = saved;
  const name = target.name ?? "";
  switch (target.kind) {
    case "op":
    case "kernel":
    case "input": {
      const table = { op: payload.ops, kernel: payload.kernels, input: { table: payload.input.ops } }[target.kind]
        .table;
      const row = rowOf(table, TABLES[target.kind], target);
      const texts = candidates(payload, name);
      const there = row < 0 ? null : longestOf(table, row);
      const range = there && { from: saved.time(there.from), to: saved.time(there.to) };
      const slice = range && sliceLike(saved, range.from, range.to, texts);
      // The longest call itself may be left out of a report: then only its range is shown.
      if (range && there) {
        const took = (there.to - there.from) * 1e6;
        const drawn = slice ? saved.duration(slice) : took;
        const clock =
          Math.abs(drawn - took) > Math.max(3 * saved.tick, took / 1000)
            ? `, ${length(took)} by the device's own clock`
            : "";
        return located(saved, slice, `The longest call of ${name}${clock}.`, clock ? undefined : range);
      }
      return located(saved, byName(saved, texts), `The longest saved call of ${name}.`);
    }
    case "step": {
      const { steps } = payload;
      const i = steps.step.findIndex(
        (step, k) =>
          step === target.step &&
          (!target.host || !steps.hosts.length || steps.hosts[steps.host?.[k] ?? 0] === target.host),
      );
      if (i < 0) return null;
      const from = saved.time(steps.start_ms[i] as number);
      const to = from + (steps.step_time_ms[i] as number) * 1e6;
      const lanes = saved.lanes.filter((lane) => lane.kind === "steps").map((lane) => lane.id);
      const slice = lanes.length ? firstIn(saved, from - 1.5 * saved.tick, to, lanes) : null;
      return located(saved, slice, `${capital(steps.noun ?? "step")} ${stepName(steps, i)}.`, { from, to });
    }
    case "gap": {
      const { start, duration, process } = saved.trace.gaps;
      const time = saved.time(target.time_ms ?? Number.NaN);
      const fits = (i: number): boolean => !target.device || textAt(process, i) === target.device;
      const i = start.findIndex(
        (from, k) => fits(k) && (Number.isNaN(time) || (time >= from && time <= from + (duration[k] as number))),
      );
      if (i < 0) return null;
      const from = start[i] as number;
      return located(saved, null, `${textAt(process, i)} idle.`, { from, to: from + (duration[i] as number) });
    }
    case "memory_peak":
      return target.time_ms === undefined ? null : moment(saved, saved.time(target.time_ms), "The peak of memory.");
    default:
      return name
        ? located(saved, byName(saved, candidates(payload, name)), `The longest saved slice of ${name}.`)
        : null;
  }
}
