/** What figures are given per: the twin of nbprof/activity/unit.py, whose words these are. */

import type { UnitWords } from "./payload.js";

export type Unit = UnitWords;

/** Where Python names no unit, as it does not for steps. */
export const STEP: Unit = {
  kind: "step",
  noun: "step",
  plural: "steps",
  a: "a step",
  the: "the step",
  time: "step time",
  per: "per step",
  counted: "per step",
  label: "Average step time",
  average: "Average step",
};

/** The unit of a dashboard or of two runs beside each other. */
export const unitOf = ({ unit }: { unit?: Unit }): Unit => unit ?? STEP;

/** Whether the recording is the only one: nothing to select, and nothing to average. */
export const isWhole = ({ kind }: Unit): boolean => kind === "recording";

export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** "Step time"; "The recording". */
export const timeTitle = (unit: Unit): string => capital(unit.time);

/** "Where a step goes". */
export const whereItGoes = (unit: Unit): string => (isWhole(unit) ? "Where the time goes" : `Where ${unit.a} goes`);
