/** Ranges that the program names, as a tree: what they take on the host and on devices. */

import { numberAt, textAt } from "../../lib/codec.js";
import { barOf, type Head } from "../../lib/columns.js";
import { h } from "../../lib/dom.js";
import { num } from "../../lib/format.js";
import { heading, runTag } from "../../lib/parts.js";
import type { Column, Ranges, Table } from "../../lib/payload.js";
import { isWhole, type Unit } from "../../lib/unit.js";
import { plainTable } from "../breakdown.js";

/** By column: the colour of its bars. */
const COLOURS: Record<string, string> = { host_ms_per_step: "host", device_ms_per_step: "device" };
const NARROW = new Set(["calls_per_step", "wait_ms_per_step", "top"]);

export function rangesSection({ step_ms, table, groups, notes }: Ranges, unit: Unit): HTMLElement {
  const scope = isWhole(unit) ? "" : `mean ${unit.per}; device time is that of what was launched in them`;
  const titles = new Map(groups.length > 1 ? groups.map(({ row, title }) => [row, title]) : []);
  return h(
    "section.of-run",
    heading("Your ranges", scope, runTag()),
    tree(table, longest(table, step_ms), titles),
    ...notes.map((text) => h("p.more", { text })),
  );
}

/** Bars are parts of a step; where more than that ran side by side, of the longest. */
function longest({ data, rows }: Table, step: number): number {
  const times = Object.keys(COLOURS).flatMap((key) =>
    Array.from({ length: data[key] ? rows : 0 }, (_, row) => numberAt(data[key], row)),
  );
  return Math.max(step, ...times.filter(Number.isFinite)) || 1;
}

function tree({ columns, data, rows }: Table, most: number, titles: ReadonlyMap<number, string>): HTMLElement {
  const heads: Head[] = columns.map((column) => ({ ...column, class: css(column.key) }));
  const lines = Array.from({ length: rows }, (_, row) => {
    const title = titles.get(row);
    return [
      ...(title ? [h("tr.group", h("td", { colspan: String(columns.length) }, title))] : []),
      h("tr", ...columns.map((column) => cell(column, data, row, most))),
    ];
  });
  return plainTable(heads, lines.flat(), "ranges");
}

function cell({ key, digits }: Column, data: Table["data"], row: number, most: number): HTMLElement {
  if (key === "name") {
    const name = textAt(data[key], row);
    const indent = { "--depth": String(numberAt(data["_depth"], row)) };
    return h("td.name", { title: name, style: indent }, h("code", name));
  }
  if (key === "top") {
    const text = textAt(data[key], row);
    return h("td", { class: css(key) }, h("span.short", { title: text, text }));
  }
  const value = numberAt(data[key], row);
  if (Number.isNaN(value) || value === 0) return h("td.dim", { class: css(key) }, value === 0 ? "0" : "");
  const text = num(value, key === "calls_per_step" && Number.isInteger(value) ? 0 : digits);
  const colour = COLOURS[key];
  return h("td", { class: css(key) }, colour ? barOf(colour, text, (100 * value) / most, 56) : text);
}

const css = (key: string): string =>
  key === "name"
    ? "name"
    : `${key === "top" ? "dim" : "n"}${COLOURS[key] ? " on" : ""}${NARROW.has(key) ? " hide-n" : ""}`;
