/** Runs as the server lists them, and what a person reads of one. */

import { bytesText, count, ms, num } from "../../lib/format.js";

/** One recording: a file, or a folder with a file for each host. */
export interface Run {
  /** As the file browser has it. */
  readonly path: string;
  readonly name: string;
  /** When its files were written, in ms since 1970; NaN where that is not known. */
  readonly modified: number;
  /** When it was recorded, else when it was written. */
  readonly time: number;
  readonly bytes: number;
  readonly hosts: number;
  readonly format: string;
  /** "" where it is not known, or not yet. */
  readonly framework: string;
  readonly steps: number | null;
  /** What `steps` counts and `step_ms` is of: "step", "iteration", "call" or "recording". */
  readonly unit: string;
  readonly step_ms: number | null;
  /** "" where it is not known. */
  readonly device: string;
  /** "Input-bound: 61% of step time is spent waiting for data", or "". */
  readonly verdict: string;
  /** Whether it was analysed. */
  readonly known: boolean;
  /** What the recording was called: "training [3]" by notebook and cell, or "". */
  readonly label: string;
  /** File name of the notebook that recorded it, or "". */
  readonly notebook: string;
  /** The course of step time over the run, in ms; empty where it is not known. */
  readonly times_ms: readonly number[];
  /** Standard deviation of the step time in ms, number of steps, and how many independent ones they are worth; null for one step. */
  readonly spread: Spread | null;
  /** Mean time of the steps that ran without the profiler, in ms, and their spread; null where it is not known. */
  readonly bare: Timed | null;
  /** The error that the recorded cell ended with, or "". */
  readonly failed: string;
}

export type Spread = readonly [deviation: number, steps: number, worth: number];

interface Timed {
  readonly ms: number;
  readonly spread: Spread | null;
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const number = (value: unknown): number | null =>
  typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : null;

/** A run of an answer; null where it is none. */
export function runOf(answer: unknown): Run | null {
  const value = answer as Record<string, unknown> | null;
  if (typeof value !== "object" || value === null || typeof value["path"] !== "string" || !value["path"]) return null;
  const path = value["path"];
  const modified = Date.parse(text(value["modified"]));
  const recorded = Date.parse(text(value["recorded"]));
  return {
    path,
    name: text(value["name"]) || nameOf(path),
    modified,
    time: Number.isFinite(recorded) ? recorded : modified,
    bytes: number(value["bytes"]) ?? 0,
    hosts: number(value["hosts"]) ?? 1,
    format: text(value["format"]) || text(value["kind"]),
    framework: text(value["framework"]),
    steps: number(value["steps"]),
    unit: text(value["unit"]) || "step",
    step_ms: number(value["step_ms"]),
    device: text(value["device"]),
    verdict: text(value["verdict"]),
    known: value["known"] === true,
    label: text(value["label"]),
    notebook: text(value["notebook"]),
    times_ms: (Array.isArray(value["times_ms"]) ? value["times_ms"] : []).filter((time) => number(time) !== null),
    spread: spreadOf(value["spread"]),
    bare: bareOf(value["bare"]),
    failed: text(value["failed"]),
  };
}

function spreadOf(value: unknown): Spread | null {
  const known = Array.isArray(value) ? value.map(number) : [];
  const [deviation, steps, worth] = known;
  return deviation != null && steps != null && worth != null && worth > 1 ? [deviation, steps, worth] : null;
}

function bareOf(value: unknown): Timed | null {
  if (!Array.isArray(value)) return null;
  const mean = number(value[0]);
  return mean === null ? null : { ms: mean, spread: spreadOf(value.slice(1)) };
}

/** The steps of two runs that are compared: without the profiler where both have such, else as recorded; null where one has none. */
function compared(run: Run, before: Run | undefined): readonly [now: Timed, before: Timed] | null {
  if (!before || before.unit !== run.unit) return null;
  if (run.bare && before.bare) return [run.bare, before.bare];
  if (run.step_ms === null || before.step_ms === null) return null;
  return [
    { ms: run.step_ms, spread: run.spread },
    { ms: before.step_ms, spread: before.spread },
  ];
}

/** As the profilers name the folder of a run: by the second. */
const DATED = /^\d{4}(_\d\d){5}(_\d+)?(-steps-\d+-\d+)?$/;

/** What a run is called: by its folder or file where somebody named that, else by notebook and cell. */
export const called = (run: Run): string => (run.label && DATED.test(run.name) ? run.label : run.name);

/** What stands beside the name: the time of day of one that is called by its cell, else how the recording was called. */
export function subtitle(run: Run): string {
  if (called(run) !== run.name) return Number.isFinite(run.time) ? CLOCK.format(run.time) : "";
  return run.label === run.name ? "" : run.label;
}

/** The last part of a path. */
const nameOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** The folder that something is in; "" is the one that Jupyter serves. */
export const folderOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf("/")));

/** Whether a path is a folder's, or lies in it. */
export const inside = (path: string, folder: string): boolean =>
  folder === "" || path === folder || path.startsWith(`${folder}/`);

/** The logdir of a run or of a file of one: what lies above TensorBoard's plugins/profile/<run>, else the folder that it is in. */
export function logdirOf(path: string): string {
  const index = `/${path}`.lastIndexOf("/plugins/profile/");
  return index >= 0 ? `/${path}`.slice(1, Math.max(1, index)) : folderOf(path);
}

/** Whether it opens as a document; else it is a folder. */
export const isFile = (run: Run): boolean => /\.(pb|json|gz|zip|tgz|tar)$/i.test(run.path);

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const DAY_OF_YEAR = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long" });

/** The day of a time, with the year where it is another one. */
const day = (time: number, now: number): string =>
  (new Date(time).getFullYear() === new Date(now).getFullYear() ? DAY_OF_YEAR : DATE).format(time);

/** How long ago a time was: "5 min ago", after a week "14 Nov". */
export function ago(time: number, now: number): string {
  if (!Number.isFinite(time)) return "";
  const gone = now - time;
  // The clocks of two machines are not the same.
  if (gone < MINUTE && gone > -HOUR) return "just now";
  if (gone < 0) return day(time, now);
  if (gone < HOUR) return `${Math.floor(gone / MINUTE)} min ago`;
  if (gone < DAY) return `${Math.floor(gone / HOUR)} h ago`;
  const days = Math.floor(gone / DAY);
  if (days <= 7) return days === 1 ? "1 day ago" : `${days} days ago`;
  return day(time, now);
}

/** A time with everything, in the time zone of the person. */
export const fullTime = (time: number): string => (Number.isFinite(time) ? FULL.format(time) : "");

export const many = (n: number, singular: string): string => `${count(n)} ${singular}${n === 1 ? "" : "s"}`;

/** "JAX", "2 hosts", "21 steps": what is known of these, else how large it is. One host is what everybody expects. */
export function facts(run: Run): string[] {
  return [
    // Its version would push the rest out of a narrow row.
    /^[^\d,]*/.exec(run.framework)?.[0].trim() ?? "",
    run.unit === "recording"
      ? ""
      : run.steps
        ? many(run.steps, run.unit)
        : run.known
          ? "no steps"
          : bytesText(run.bytes),
    run.hosts === 1 ? "" : many(run.hosts, "host"),
  ].filter(Boolean);
}

/** "6.20 ms", or "" where there is none. */
export const stepTime = (run: Run): string => (run.step_ms === null ? "" : ms(run.step_ms));

/**
 * Whether a change in step time is within noise: the 95% interval of the difference of the means (Welch) contains 0, for as many steps
 * as there are, or as many independent ones as they are worth. That is the rule of a comparison. False where it is not known.
 */
export function isNoise(run: Run, before: Run | undefined): boolean {
  const [now, earlier] = compared(run, before) ?? [];
  const [a, b] = [earlier?.spread, now?.spread];
  if (!a || !b || !now || !earlier) return false;
  const change = Math.abs(now.ms - earlier.ms);
  return [1, 2].some((size) => change <= margin([a[0], a[size] as number], [b[0], b[size] as number]));
}

function margin(...sides: readonly (readonly [deviation: number, size: number])[]): number {
  const parts = sides.map(([deviation, size]) => deviation ** 2 / size);
  const variance = parts.reduce((sum, part) => sum + part, 0);
  if (variance <= 0) return 0;
  const freedom =
    variance ** 2 / parts.reduce((sum, part, i) => sum + part ** 2 / ((sides[i]?.[1] ?? Number.NaN) - 1), 0);
  return student(freedom) * Math.sqrt(variance);
}

/** Student's t of 97.5%, by G. W. Hill (CACM 13 (1970) 619): to five digits from two degrees of freedom on, above it below. */
export function student(freedom: number): number {
  const a = 1 / (freedom - 0.5);
  const b = 48 / (a * a);
  const c = (((20_700 * a) / b - 98) * a - 16) * a + 96.36;
  const d = ((94.5 / (b + c) - 3) / b + 1) * Math.sqrt((a * Math.PI) / 2) * freedom;
  const x = 0.05 * d;
  let y = x ** (2 / freedom);
  if (y > 0.05 + a) {
    const z = -1.959964;
    y = z * z;
    const more = freedom < 5 ? c + 0.3 * (freedom - 4.5) * (z + 0.6) : c;
    const e = (((0.05 * d * z - 5) * z - 7) * z - 2) * z + b + more;
    y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / e - y - 3) / b + 1) * z;
    y = a * y * y;
    y = y > 0.002 ? Math.exp(y) - 1 : 0.5 * y * y + y;
  } else {
    y =
      ((1 / (((freedom + 6) / (freedom * y) - 0.089 * d - 0.822) * (freedom + 2) * 3) + 0.5 / (freedom + 4)) * y - 1) *
        ((freedom + 1) / (freedom + 2)) +
      1 / y;
  }
  return Math.sqrt(freedom * y);
}

/** "−12 %" in step time against an earlier run, "30×" from ten times on, "≈" within noise; "" where either is not known. */
export function changeOf(run: Run, before: Run | undefined): string {
  const [now, earlier] = compared(run, before) ?? [];
  if (!now || !earlier?.ms) return "";
  if (isNoise(run, before)) return "≈";
  return ratioOf(now.ms / earlier.ms);
}

function ratioOf(times: number): string {
  if (times >= 10) return `${num(Math.round(times))}×`;
  // No step takes no time: 100% is not reached by rounding.
  if (times < 0.01 && times > 0) return `−${Math.floor((1 - times) * 1000) / 10}%`;
  const percent = Math.round((times - 1) * 100);
  return `${percent > 0 ? "+" : percent < 0 ? "−" : "±"}${Math.abs(percent)}%`;
}

/** Classes of verdicts, and the part of the step whose colour they have. */
const CLASSES: Record<string, string> = {
  "Input-bound": "input",
  "Kernel-launch-bound": "launch",
  "Device-bound": "device",
  "Host-bound": "host",
  Stalled: "host",
  "Compile-bound": "compile",
  "Capture-bound": "compile",
  "Communication-bound": "coll",
  "Output-bound": "output",
};

export interface Verdict {
  /** "Input-bound", what comes behind it, and the colour of the first; a line without a class has neither. */
  readonly head: string;
  readonly rest: string;
  readonly colour: string;
  /** Whether it says that something went wrong. */
  readonly wrong: boolean;
}

/** What ended a cell, as the notice of its dashboard says it. */
function failure(what: string): string {
  if (what.startsWith("cell ")) return `The ${what}`;
  return what.includes(" was ended by an exception")
    ? what.charAt(0).toUpperCase() + what.slice(1)
    : `The cell failed: ${what}`;
}

/** The line under a run: what limits it, or why that is not said. `problem`: it could not be analysed. */
export function verdict(run: Run, busy: boolean, problem = ""): Verdict {
  const plain = (rest: string, wrong = false): Verdict => ({ head: "", rest, colour: "", wrong });
  // A sentence begins with a capital letter; one that begins with the name of a file keeps it as it is.
  const first = problem.split(/[ ,:]/, 1)[0] ?? "";
  if (problem)
    return plain(/[./\\\d_]/.test(first) ? problem : problem.charAt(0).toUpperCase() + problem.slice(1), true);
  if (run.failed) return plain(failure(run.failed), true);
  if (!run.verdict) return plain(run.known ? "no verdict" : busy ? "not analysed yet" : "open it to see its verdict");
  const colon = run.verdict.indexOf(":");
  const head = colon < 0 ? run.verdict : run.verdict.slice(0, colon);
  const rest = colon < 0 ? "" : run.verdict.slice(colon + 1).trim();
  return { head, rest, colour: CLASSES[head] ?? "", wrong: false };
}

/** What its time is given per. */
const perOf = ({ unit }: Run): string => (unit === "recording" ? "of the recording" : `per ${unit}`);

/** What two times of runs are, to be compared: only of units of one kind. */
export const timeOf = ({ unit }: Run): string => (unit === "recording" ? "duration" : `${unit} time`);

/** Everything of a run in one sentence, for who does not see it. */
export function spoken(run: Run, now: number, busy: boolean, problem = "", change = ""): string {
  const { head, rest } = verdict(run, busy, problem);
  const step = stepTime(run);
  return [
    called(run),
    subtitle(run),
    ago(run.time, now),
    ...facts(run),
    step &&
      `${step} ${perOf(run)}${change ? `, ${change} ${change.endsWith("×") ? "that of" : "from"} the previous run` : ""}`,
    [head, rest].filter(Boolean).join(": "),
  ]
    .filter(Boolean)
    .join(", ");
}

/** What the filter looks at. */
export const searched = (run: Run): string[] => [
  run.path,
  run.name,
  run.label,
  run.framework,
  run.format,
  run.verdict,
  run.failed,
];
