/** Columns of a table on screen: what they say, and how a cell reads. */

import { numberAt, textAt } from "./codec.js";
import { type Child, h, type Props } from "./dom.js";
import { bytesIn, type byteUnit, flag, MISSING, num } from "./format.js";
import type { Column, Meta, Table } from "./payload.js";

export interface ColumnSpec {
  key: string;
  /** Overrides of what the payload says. */
  label?: string;
  help?: string;
  kind?: Column["kind"];
  digits?: number;
  /** Left out up to an output width of 700 px until more columns are asked for; always in the CSV. */
  narrow?: boolean;
  /** Stays put when the table is scrolled sideways: its distance from the left edge in px. */
  sticky?: number;
  /** Least width in px. */
  width?: number;
  /** Takes the room that is left; at most one column. Default: the first code column. */
  grow?: boolean;
  /** Faint text. */
  dim?: boolean;
  /** What stands where there is no value, in place of a dash. */
  missing?: (row: number) => string;
  /** A bar before the number, coloured by the CSS class, as a share of `max` (default 100). */
  bar?: { css: string | ((row: number) => string); max?: number; width?: number };
  /** Fills the cell instead of the default. Text only through nodes. */
  cell?: (row: number, cell: HTMLTableCellElement) => void;
  align?: "left" | "right" | "center";
}

/** How a view draws some columns of a table; null for one that it does not show. */
export type Drawings = Readonly<Record<string, Omit<ColumnSpec, "key"> | null>>;

/** All columns of a table, in the order of the payload; a column that has no drawing reads as the payload says. */
export function drawn({ columns }: Table, drawings: Drawings): ColumnSpec[] {
  return columns.flatMap(({ key }) => (drawings[key] === null ? [] : [{ key, ...drawings[key] }]));
}

/** Columns without those that are empty in every row. */
export function filled(specs: readonly ColumnSpec[], { data, rows }: Table): ColumnSpec[] {
  const has = (key: string): boolean => {
    for (let row = 0; row < rows; row++) if (textAt(data[key], row)) return true;
    return false;
  };
  return specs.filter(({ key }) => data[key] === undefined || has(key));
}

export type Full = ColumnSpec & Column;

/** The columns on screen: what the payload says of them, overridden by the view. */
export function fullColumns(wanted: readonly (string | ColumnSpec)[] | undefined, table: Table): Full[] {
  const known = new Map(table.columns.map((column) => [column.key, column]));
  const specs = (wanted ?? table.columns.map((column) => column.key)).map(
    (spec): ColumnSpec => (typeof spec === "string" ? { key: spec } : spec),
  );
  const columns = specs.flatMap((spec): Full[] => {
    const column = known.get(spec.key) ?? (spec.cell && { key: spec.key, label: "", kind: "text", help: "" });
    if (!column) return [];
    const given = Object.fromEntries(Object.entries(spec).filter(([, value]) => value !== undefined));
    return [{ ...column, ...given } as Full];
  });
  if (!columns.some((column) => column.grow)) {
    const widest = columns.find((column) => column.kind === "code") ?? columns.find((column) => column.kind === "text");
    if (widest) widest.grow = true;
  }
  return columns;
}

/**
 * The head of a column. What it means is the title of what takes the focus in it, where a screen reader says it; with the
 * keyboard it is shown beside the head. Heads that don't sort are one stop: the arrow keys go from one to the next.
 */
export function headCell(props: Props, label: Child, help: string, first = false): HTMLTableCellElement {
  const text = h("span.why", { title: help, tabindex: first ? "0" : "-1" }, label);
  return h("th", { scope: "col", ...props }, text);
}

/** Below a table of which a narrow page leaves out columns: brings them, and the table scrolls sideways. */
export function moreColumns(grid: HTMLElement, left_out: readonly string[]): HTMLElement {
  const control = h(
    "button",
    {
      class: "btn",
      title: left_out.join(", "),
      "aria-expanded": "false",
      on: {
        click: () => {
          const every = grid.classList.toggle("every");
          control.setAttribute("aria-expanded", String(every));
          control.textContent = every ? "Show fewer columns" : "Show more columns";
        },
      },
    },
    "Show more columns",
  );
  return h("p.only-n", control);
}

export interface Head extends Column {
  class?: string;
}

/** What nbprof/schema says of the columns of a table that a view draws row by row. */
export function headsOf({ heads }: Pick<Meta, "heads">, frame: string): (key: string, css?: string) => Head {
  const known = new Map(heads?.[frame]?.map((column) => [column.key, column]));
  return (key, css) => ({ key, label: key, kind: "number", help: "", ...known.get(key), class: css });
}

export const isNumber = (column: Full): boolean =>
  column.kind === "number" || column.kind === "bytes" || column.kind === "percent";

/** The text of a cell as drawn. */
export function shown(column: Full, table: Table, row: number, unit: ReturnType<typeof byteUnit>): string {
  const text = textOf(column, table, row, unit);
  return text === MISSING && column.missing ? column.missing(row) : text;
}

function textOf(column: Full, table: Table, row: number, unit: ReturnType<typeof byteUnit>): string {
  const data = table.data[column.key];
  if (column.kind === "bool") return flag(numberAt(data, row));
  if (column.kind === "bytes") return bytesIn(numberAt(data, row), unit);
  if (isNumber(column)) {
    return num(numberAt(data, row), column.digits ?? (column.kind === "percent" ? 1 : 0));
  }
  return textAt(data, row) || MISSING;
}

/** Width of a digit in the font of `element`, in px: hosts bring their own. */
export function digitWidth(element: HTMLElement): number {
  const context = document.createElement("canvas").getContext("2d");
  // Not the shorthand: it is empty where tabular figures are asked for.
  const { fontSize, fontFamily } = getComputedStyle(element);
  // Not in the page yet: a wide font's digit at 12 px.
  if (!context || !fontFamily) return 7.6;
  context.font = `${fontSize} ${fontFamily}`;
  return context.measureText("0000000000").width / 10;
}

/** A number behind its bar, of `share` (0…100) of the full length. */
export function barOf(css: string, text: string, share: number, width: number): HTMLElement {
  const style = { "--v": `${Math.max(0, Math.min(100, share)) || 0}%`, "--bw": `${width}px` };
  return h("span", { class: `ib ${css}`, style }, h("b", text));
}
