/** The settings of nbprof as values, and the default options as the line that is typed behind `%%nbprof`. */

import { PALETTES, type PaletteName } from "../lib/page-options.js";

export interface Values {
  backend: string;
  steps: string;
  warmup: number;
  every: number;
  seconds: number;
  limit: number;
  memory: boolean;
  shapes: boolean;
  stacks: boolean;
  sampling: boolean;
  python: boolean;
  hostLevel: number;
  logdir: string;
  save: boolean;
  events: number;
  lanes: number;
  scheduler: string;
  colours: PaletteName;
}

/** Those of schema/plugin.json. */
export const DEFAULTS: Readonly<Values> = {
  backend: "auto",
  steps: "",
  warmup: -1,
  every: 0,
  seconds: 0,
  limit: 0,
  memory: true,
  shapes: true,
  stacks: false,
  sampling: true,
  python: false,
  hostLevel: 2,
  logdir: "",
  save: true,
  events: 20_000,
  lanes: 30,
  scheduler: "",
  colours: "default",
};

/** Settings as values; one that is missing or of another kind is its default. */
export function read(settings: Record<string, unknown>): Values {
  const values: Record<string, unknown> = { ...DEFAULTS };
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const value = settings[name];
    if (typeof value === typeof usual && !Number.isNaN(value)) values[name] = value;
  }
  if (!PALETTES.includes(values["colours"] as PaletteName)) values["colours"] = DEFAULTS.colours;
  return values as unknown as Values;
}

/** What has to be quoted for a line of words, as Python's shlex reads it. */
export const quoted = (word: string): string =>
  /^[\w./:=@%+,~-]+$/.test(word) ? word : `"${word.replace(/["\\]/g, "\\$&")}"`;

/** The default options, as typed behind `%%nbprof`; empty where all are the usual ones. */
export function optionsLine(values: Values): string {
  const words: string[] = [];
  const differs = (name: keyof Values): boolean => values[name] !== DEFAULTS[name];
  const take = (name: keyof Values, option: string): void => {
    const text = String(values[name]).trim();
    if (differs(name) && text) words.push(option, quoted(text));
  };
  take("backend", "--backend");
  take("steps", "--steps");
  if (values.warmup >= 0) take("warmup", "--warmup");
  take("every", "--every");
  take("seconds", "--seconds");
  take("limit", "--limit");
  if (differs("memory")) words.push("--no-memory");
  if (differs("shapes")) words.push("--no-shapes");
  if (differs("stacks")) words.push("--stacks");
  if (differs("sampling")) words.push("--no-sampling");
  if (differs("python")) words.push("--python");
  take("hostLevel", "--host-level");
  take("logdir", "--logdir");
  if (differs("save")) words.push("--no-save");
  take("events", "--events");
  return words.join(" ");
}
