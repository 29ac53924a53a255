/** One event of the timeline in words: the hover card, and the line under the plot. */

import { textAt } from "../../lib/codec.js";
import { bytesText, count, known, MISSING, num } from "../../lib/format.js";
import type { CardContent } from "../../lib/parts.js";
import type { MemoryId } from "../../lib/payload.js";
import { tickDigits } from "../../lib/scale.js";
import { capital } from "../../lib/unit.js";

const withBytes = (value: number): string =>
  known(value) && Math.abs(value) >= 1024 ? `${bytesText(value)} (${count(value)} B)` : bytesText(value);

const event = (id: MemoryId, i: number): string => (id.allocation[i] ? "allocation" : "deallocation");

const step = (id: MemoryId, i: number): string => {
  const value = id.step[i] ?? -1;
  return value < 0 ? MISSING : String(value);
};

/** What the memory in use after an event is used for. */
const rolesOf = (id: MemoryId, i: number): { label: string; value: string }[] =>
  (id.roles?.series ?? [])
    .filter(({ bytes }) => bytes[i])
    .map(({ role, bytes }) => ({ label: capital(role), value: bytesText(bytes[i]) }));

/** The card: ten facts of an event, and roles. */
export function cardRows(id: MemoryId, i: number, noun = "step"): CardContent {
  const text = (value: string): string => value || MISSING;
  return {
    title: id.allocation[i] ? "Allocation" : "Deallocation",
    total: bytesText(id.allocated_bytes[i]),
    two: true,
    rows: [
      { label: "Timestamp", value: `${num(id.time_ms[i], 3)} ms` },
      { label: "Event", value: event(id, i) },
      { label: "Requested", value: withBytes(id.requested_bytes[i] as number) },
      { label: "Allocated", value: withBytes(id.allocated_bytes[i] as number) },
      { label: "Op", value: text(textAt(id.op, i)) },
      // A recording that is the only unit has no number.
      ...(noun === "recording" ? [] : [{ label: capital(noun), value: step(id, i) }]),
      { label: "Region", value: text(textAt(id.region_type, i)) },
      { label: "Data type", value: text(textAt(id.data_type, i)) },
      { label: "Shape", value: text(textAt(id.shape, i)) },
      { label: "In use after", value: bytesText(id.in_use_bytes[i]) },
      ...rolesOf(id, i),
    ],
  };
}

/** "At 83.307 ms, step 513: 11.33 MiB in use, …". */
export function momentText(id: MemoryId, i: number, noun = "step"): string {
  const number = noun === "recording" ? MISSING : step(id, i);
  const when = `At ${num(id.time_ms[i], 3)} ms${number === MISSING ? "" : `, ${noun} ${number}`}`;
  const op = textAt(id.op, i);
  const parts = [
    `${bytesText(id.in_use_bytes[i])} in use`,
    known(id.stack_bytes[i]) && `stack ${bytesText(id.stack_bytes[i])}, heap ${bytesText(id.heap_bytes[i])}`,
    known(id.free_bytes[i]) &&
      `${bytesText(id.free_bytes[i])} ${known(id.stack_bytes[i]) ? "free" : "reserved beyond that"}`,
    known(id.fragmentation[i]) && `fragmentation ${num(100 * (id.fragmentation[i] as number), 2)}%`,
    `after the ${event(id, i)} of ${bytesText(Math.abs(id.allocated_bytes[i] as number))}${op ? ` by ${op}` : ""}`,
  ];
  return `${when}: ${parts.filter(Boolean).join("; ")}.`;
}

/** Ticks with as many decimals as tell them apart. */
export function ticksText(values: readonly number[]): string[] {
  const digits = tickDigits(values);
  return values.map((value) => (value === 0 ? "0" : num(value, digits)));
}
