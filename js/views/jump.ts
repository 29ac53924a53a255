/** Links into the trace: what a row of a table or a moment of a chart is about. */

import { numberAt, textAt } from "../lib/codec.js";
import { h } from "../lib/dom.js";
import { link } from "../lib/parts.js";
import type { Payload, Steps, Table } from "../lib/payload.js";
import type { Selection } from "../lib/store.js";
import type { Hint, Target, ViewContext } from "../lib/view.js";

/** When the longest call of a row starts, ms; nothing where the table does not say. */
function time(table: Table, row: number): Pick<Target, "time_ms"> {
  const time_ms = numberAt(table.data["_at_ms"], row);
  return Number.isFinite(time_ms) ? { time_ms: time_ms } : {};
}

/** On the CPU the ops of compiled programs are no ops of the framework, and of no device: where they are. */
export function toPrograms(context: ViewContext): HTMLElement | false {
  const { op_profile, meta } = context.payload;
  if (op_profile.where !== "cpu" || !meta.tabs.some(({ id }) => id === "op_profile")) return false;
  return h(
    "p.dim",
    "What ran in compiled programs: ",
    link("Op profile →", () => context.go("op_profile")),
  );
}

/** Whether there is a trace to go to: not in a report without it, nor where hosts were read apart. */
export const hasTrace = ({ meta, trace }: Payload): boolean =>
  meta.tabs.some(({ id }) => id === "trace") && !trace.empty;

/** To the longest call of an op. */
export function toOp(table: Table, row: number, where: string = textAt(table.data.where, row)): Hint {
  const name = textAt(table.data.op, row);
  const target: Target = { kind: "op", name, ...time(table, row) };
  if (where === "device" || where === "host") target.where = where;
  return { search: name, target };
}

export function toKernel(table: Table, row: number): Hint {
  const name = textAt(table.data.kernel, row);
  return { search: name, target: { kind: "kernel", name, ...time(table, row) } };
}

export function toInput(table: Table, row: number): Hint {
  const name = textAt(table.data.op, row);
  return { search: name, target: { kind: "input", name, ...time(table, row) } };
}

/** To a step; where the trace does not know it, to its time. */
export function toStep(step: number, start_ms: number, time_ms: number, host = ""): Hint {
  const target: Target = { kind: "step", step, time_ms: start_ms, ...(host && { host }) };
  return { range_ms: [start_ms, start_ms + time_ms], target };
}

/** To the selected steps: one as such, of several the time that they take. */
export function stepsHint(steps: Steps, { first, last }: Selection, rows: readonly number[]): Hint {
  const start = (row: number): number => steps.start_ms[row] as number;
  const end = (row: number): number => start(row) + (steps.step_time_ms[row] as number);
  const from = Math.min(...rows.map(start));
  const to = Math.max(...rows.map(end));
  return first === last ? toStep(first, from, to - from) : { range_ms: [from, to] };
}

/** To the surroundings of a moment: a hundredth of the profile on each side. */
export function toMoment(payload: Payload, time_ms: number): Hint {
  const { end, tick_ns } = payload.trace;
  const room = Math.max((end * tick_ns) / 1e8, 1e-3);
  return { range_ms: [time_ms - room, time_ms + room] };
}
