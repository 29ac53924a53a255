/** The settings of nbprof as values, and the default options as the line that is typed behind `%%nbprof`. */

import { PALETTES, type PaletteName } from "../lib/page-options.js";
import { FLAGS, OPTIONS, type Options } from "./options.gen.js";

export interface Values extends Options {
  lanes: number;
  scheduler: string;
  colours: PaletteName;
}

/** Those of schema/plugin.json. */
export const DEFAULTS: Readonly<Values> = { ...OPTIONS, lanes: 30, scheduler: "", colours: "default" };

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
  for (const [name, flag] of Object.entries(FLAGS) as [keyof Options, string][]) {
    const value = values[name];
    if (value === OPTIONS[name]) continue;
    if (typeof value === "boolean") words.push(value ? flag : flag.replace("--", "--no-"));
    else if (String(value).trim()) words.push(flag, quoted(String(value).trim()));
  }
  return words.join(" ");
}
