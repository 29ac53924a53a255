/** The time of devices: what is drawn of the payload, without drawing it. */

import { numberAt, textAt } from "../../lib/codec.js";
import type { DeviceTime, Table } from "../../lib/payload.js";
import { isWhole, STEP } from "../../lib/unit.js";
import type { Hint } from "../../lib/view.js";

export interface Part {
  css: string;
  label: string;
}

export const PARTS: readonly Part[] = [
  { css: "device", label: "Compute" },
  { css: "coll", label: "Communication" },
  { css: "d2d", label: "Memory" },
  { css: "other", label: "Idle" },
];
export const WAITS: readonly Part[] = [
  { css: "host", label: "Waiting for the host" },
  { css: "launch third", label: "Between kernels" },
  { css: "other", label: "Other" },
];

/** Colour and words of the kinds of pieces of the critical path: of one hue, each is of another lightness. */
export const KINDS: Readonly<Record<string, Part>> = {
  compute: { css: "device", label: "Compute" },
  communication: { css: "coll", label: "Communication" },
  memory: { css: "d2d", label: "Memory" },
  launch: { css: "launch", label: "Launch" },
  launch_delay: { css: "launch second", label: "Launch delay" },
  kernel_wait: { css: "launch third", label: "Between kernels" },
  wait: { css: "other second", label: "Waiting for the device" },
  input: { css: "input", label: "Input" },
  op: { css: "host", label: "Host op" },
  allocate: { css: "host second", label: "Memory call" },
  host: { css: "host third", label: "Other host work" },
  unknown: { css: "other", label: "Unknown" },
};
export const kindOf = (kind: string): Part => KINDS[kind] ?? { css: "other", label: kind };

/** ms of each part of the devices of a window; null where the device has no such window. */
export function partsOf({ devices, parts_ms }: DeviceTime, window: number): (number | null)[][] {
  return devices.map((_, device) =>
    PARTS.map((_, part) => {
      const value = parts_ms[(window * devices.length + device) * PARTS.length + part] as number;
      return Number.isFinite(value) ? value : null;
    }),
  );
}

export const sum = (row: readonly (number | null)[]): number =>
  row.reduce<number>((all, value) => all + (value ?? 0), 0);

/** To the longest piece of a row of the critical path. */
export function toPiece(table: Table, row: number): Hint {
  const start = numberAt(table.data["_at_ms"], row);
  const name = textAt(table.data.name, row);
  const kind = textAt(table.data.kind, row);
  const length = Math.max(numberAt(table.data["_for_ms"], row), 1e-6);
  const on = ["compute", "communication", "memory"].includes(kind);
  const target = on || kind === "op" ? ({ kind: on ? "kernel" : "op", name, time_ms: start } as const) : null;
  return { range_ms: [start - length / 2, start + 1.5 * length], ...(target && { target }) };
}

/** Of which step the critical path is: a name that is a number alone says that it is of a step. */
export function pathScope(step: string, host: string, steps: number, unit = STEP): string {
  const where = host && ` on ${host}`;
  if (isWhole(unit)) return `${unit.per}${where}`;
  const which = steps === 1 ? `only ${unit.noun}` : `${unit.noun} of median length`;
  return `of ${/^\d+$/.test(step) ? `${unit.noun} ` : ""}${step}${where}, the ${which}`;
}
