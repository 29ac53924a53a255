/** What figures are given per: the twin of nbprof/activity/unit.py, whose words these are. */

export interface Unit {
  kind: "step" | "iteration" | "call" | "recording";
  /** "step", "steps", "a step", "the step"; of a recording "the recording" with either article. */
  noun: string;
  plural: string;
  a: string;
  the: string;
  /** What a percentage is of: "step time", "the recording". */
  time: string;
  /** "per step", "of the recording". */
  per: string;
  /** What a count is given per: "per step", "in the recording". */
  counted: string;
  /** The heading of its mean duration: "Average step time", and where there is little room "Average step"; "Duration". */
  label: string;
  average: string;
}

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
