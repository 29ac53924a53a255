/** What stands beside the lines of a cell, of the table that the Overview draws. */

import { numberAt, textAt } from "../../lib/codec.js";
import { num } from "../../lib/format.js";
import type { Table } from "../../lib/payload.js";

export interface Heat {
  /** The line as it was when it ran. */
  source: string;
  /** Empty where the line took no time. */
  text: string;
  title: string;
  bars: { kind: string; share: number }[];
}

const KINDS = { host_ms: "host", device_ms: "device", program_ms: "program" };

/** One for each line of the cell, from its first. */
export function heatOf({ columns, data, rows }: Table): Heat[] {
  const values = (key: string): number[] => Array.from({ length: rows }, (_, row) => numberAt(data[key], row));
  const times = Object.entries(KINDS)
    .map(([key, kind]) => ({ kind, values: values(key), label: columns.find((column) => column.key === key)?.label }))
    .map((each) => ({ ...each, most: Math.max(0, ...each.values.filter(Number.isFinite)) }))
    .filter(({ most }) => most > 0);
  return Array.from({ length: rows }, (_, row) => {
    const known = times.filter(({ values }) => (values[row] ?? 0) > 0);
    return {
      source: textAt(data["code"], row),
      text: known[0] ? `${num(known[0].values[row] ?? Number.NaN, 1)} ms` : "",
      title: known.map(({ label, values }) => `${label} ${num(values[row] ?? Number.NaN, 2)}`).join(", "),
      bars: known.length
        ? times.map(({ kind, values, most }) => ({ kind, share: Math.round((100 * (values[row] || 0)) / most) }))
        : [],
    };
  });
}

/** Whether a cell still has the text that ran. IPython has its own words for lines that are magics. */
export function isSame(source: string, heat: readonly Heat[]): boolean {
  const lines = source.replace(/\s+$/, "").split("\n");
  const ran = heat.map((each) => each.source);
  while (ran.length && !ran.at(-1)?.trim()) ran.pop();
  const same = (line: string, index: number): boolean =>
    line === ran[index] || ran[index]?.includes("get_ipython()") === true;
  return ran.length > 0 && lines.length === ran.length && lines.every(same);
}
