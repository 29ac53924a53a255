/** Steps of the other views on the lanes of a report. */

import type { Steps, Trace } from "../../../lib/payload.js";

/** Position of the step that is running at a time; -1 between steps and without any. */
export function stepIndex(steps: Steps, time_ms: number): number {
  for (let i = 0; i < steps.step.length; i++) {
    const start = steps.start_ms[i] as number;
    if (time_ms >= start && time_ms < start + (steps.step_time_ms[i] as number)) return i;
  }
  return -1;
}

/** What the step at a position is called. */
export const stepName = (steps: Steps, i: number): string => steps.name[i] || String(steps.step[i] ?? "");

/** Name of the step that is running at a time; "" between steps and without any. */
export const stepAt = (steps: Steps, time_ms: number): string => stepName(steps, stepIndex(steps, time_ms));

/**
 * How the slices of a lane of steps are called in the other views; by position of the lane. Where a lane has another
 * number of slices than there are steps, its own names stay.
 */
export function stepNames(trace: Trace, steps: Steps): (lane: number, index: number) => string {
  return (lane, index) => {
    const data = trace.lanes[lane];
    if (data?.kind !== "steps" || data.start.length !== steps.step.length) return "";
    return steps.name[index] || [steps.prefix, steps.step[index]].filter((part) => part !== "").join(" ");
  };
}
