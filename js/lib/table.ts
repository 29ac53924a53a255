/**
 * A table over the columns of a payload: sorted by its heads, filtered, virtual above 500 rows.
 *
 * Rows are numbers: positions in `options.table`. Which of them show, and in what order, is in rows.ts.
 */

import { numberAt, textAt } from "./codec.js";
import { barOf, type ColumnSpec, digitWidth, type Full, fullColumns, isNumber, moreColumns, shown } from "./columns.js";
import { toCsv } from "./csv.js";
import { cutOf } from "./cut.js";
import { clear, h, handled, listen, modified, reason } from "./dom.js";
import { byteUnit, MISSING } from "./format.js";
import { nameNode } from "./name.js";
import { copyText } from "./parts.js";
import type { Table } from "./payload.js";
import { allRows, filterRows, firstDirection, largestOf, matcher, type Sort, sortRows, textKeys } from "./rows.js";

export type { ColumnSpec } from "./columns.js";

export interface TableOptions {
  table: Table;
  /** What the rows say, where that is not what they sort by: members of a group sort with it. */
  shown?: () => Table;
  /** Columns on screen, in order; by default all. The CSV always has all. */
  columns?: (string | ColumnSpec)[];
  /** null: the order of the payload. */
  sort?: Sort | null;
  /** Columns the filter looks at; by default every text column. */
  filterKeys?: string[];
  /** A test besides the filter text. */
  where?: (row: number) => boolean;
  /** What the table lists, for screen readers. */
  label: string;
  /** Most height of the table in px; the body scrolls inside. */
  height?: number;
  /** Least width in px, for wide tables that scroll sideways. */
  minWidth?: number;
  /** A row was clicked, or Enter pressed on it. */
  onRow?: (row: number) => void;
  /** Another row is marked, or none. */
  onSelect?: (row: number | null) => void;
  rowClass?: (row: number) => string;
  /** Rows changed: filter, sort or data. */
  onChange?: (rows: Uint32Array) => void;
  /** Said instead of rows when none is left. */
  none?: string;
  signal?: AbortSignal;
}

export interface TableHandle {
  element: HTMLElement;
  /** Returns what is wrong with the expression, and then keeps the rows as they are. */
  setFilter(text: string): string | null;
  /** Restricts the table to these rows (null: all of them). */
  setRows(rows: ArrayLike<number> | null): void;
  setTable(table: Table): void;
  setWhere(where: ((row: number) => boolean) | undefined): void;
  setSort(sort: Sort | null): void;
  /** Names take the lines that they need, and then every row is in the page. */
  setWrap(on: boolean): void;
  /** Marks a row and scrolls to it. */
  select(row: number | null): void;
  /** Applies filter and order again and draws. */
  refresh(): void;
  csv(): string;
  visibleRows(): Uint32Array;
}

const ROW = 25;
const VIRTUAL = 500;
const OVERSCAN = 12;
/** Width of a character of the 12 px monospace font, in px. */
const MONO = 7.3;

export function table(parent: HTMLElement, options: TableOptions): TableHandle {
  let data = options.table;
  let columns = fullColumns(options.columns, data);
  let sort = options.sort ?? null;
  let where = options.where;
  let match: ((value: string) => boolean) | null = null;
  let base: Uint32Array | null = null;
  let rows: Uint32Array = new Uint32Array(0);
  let current = -1;
  let wrapped = false;
  let units = new Map<string, ReturnType<typeof byteUnit>>();

  const thead = h("thead");
  const tbody = h("tbody");
  const group = h("colgroup");
  const grid = h("table", { role: "grid", "aria-label": options.label }, group, thead, tbody);
  const wrap = h(
    "div.tw",
    {
      tabindex: "0",
      role: "group",
      "aria-label": `${options.label}, table`,
      style: { maxHeight: `${options.height ?? 480}px` },
    },
    grid,
  );
  if (options.minWidth) grid.style.minWidth = `${options.minWidth}px`;
  const narrow = columns.filter((column) => column.narrow).map((column) => column.label);
  parent.append(wrap, ...(narrow.length ? [moreColumns(grid, narrow)] : []));

  const virtual = (): boolean => rows.length > VIRTUAL && !wrapped;
  const cellClass = (column: Full): string => {
    const side = column.align ?? (isNumber(column) ? "right" : column.kind === "bool" ? "center" : "left");
    return [
      side === "right" ? "n" : side === "center" ? "c" : "",
      column.narrow ? "hide-n" : "",
      column.grow ? "name" : "",
      column.dim ? "dim" : "",
      column.sticky !== undefined ? "stick" : "",
    ]
      .filter(Boolean)
      .join(" ");
  };
  const cellStyle = (column: Full): Record<string, string> => ({
    ...(column.sticky !== undefined ? { left: `${column.sticky}px` } : {}),
    ...(column.width ? { minWidth: `${column.width}px` } : {}),
  });
  const headLabel = (column: Full): string =>
    column.kind === "bytes" ? `${column.label} ${units.get(column.key) ?? "B"}` : column.label;

  function drawHead(): void {
    clear(thead);
    const row = h("tr");
    for (const column of columns) {
      const sortable = data.data[column.key] !== undefined;
      const on = sort?.key === column.key;
      const state = on ? (sort?.descending ? "descending" : "ascending") : "none";
      row.append(
        h(
          "th",
          {
            class: `${cellClass(column).replace("name", "").replace("dim", "")}${on ? " on" : ""}`,
            style: cellStyle(column),
            scope: "col",
            "aria-sort": sortable ? state : undefined,
          },
          sortable
            ? h(
                "button",
                { class: "sort", title: column.help, on: { click: () => clickHead(column.key) } },
                headLabel(column),
                on && h("span.arrow-s", { "aria-hidden": "true" }, sort?.descending ? " ↓" : " ↑"),
              )
            : h("span.why", { title: column.help, tabindex: "-1" }, headLabel(column)),
        ),
      );
    }
    thead.append(row);
  }

  function clickHead(key: string): void {
    const first = firstDirection(data, key);
    sort = { key, descending: sort?.key === key ? !sort.descending : first };
    refresh();
    // The head was drawn anew: focus stays on the same column.
    const index = columns.findIndex((column) => column.key === key);
    thead.querySelectorAll("th")[index]?.querySelector("button")?.focus();
  }

  function fill(cell: HTMLTableCellElement, column: Full, row: number): void {
    if (column.cell) {
      column.cell(row, cell);
      return;
    }
    const from = options.shown?.() ?? data;
    const text = shown(column, from, row, units.get(column.key) ?? "B");
    if (column.bar) {
      const value = numberAt(from.data[column.key], row);
      const css = typeof column.bar.css === "function" ? column.bar.css(row) : column.bar.css;
      cell.append(barOf(css, text, (value / (column.bar.max || 100)) * 100, column.bar.width ?? 64));
    } else if (column.kind === "code" || column.grow) {
      const full = textAt(from.data[column.key], row);
      cell.title = full;
      cell.append(full && column.kind === "code" ? nameNode(full, cutOf(from, column.key)) : full || MISSING);
    } else {
      cell.textContent = text;
      if (column.kind === "text") cell.title = text;
    }
  }

  function rowElement(position: number): HTMLTableRowElement {
    const row = rows[position] as number;
    const css = [options.rowClass?.(row), row === current && "cur"].filter(Boolean).join(" ");
    const element = h("tr", {
      class: css || undefined,
      "aria-rowindex": position + 2,
      "aria-selected": row === current ? "true" : undefined,
      "data-at": position,
    });
    for (const column of columns) {
      const cell = h("td", { class: cellClass(column), style: cellStyle(column) });
      fill(cell, column, row);
      element.append(cell);
    }
    return element;
  }

  /** Widths that do not change while scrolling: the longest text of each column, from a sample of the rows. */
  function fixColumns(): void {
    clear(group);
    grid.style.tableLayout = virtual() ? "fixed" : "";
    if (!virtual()) return;
    const digit = digitWidth(grid);
    const stride = Math.max(1, Math.floor(rows.length / 400));
    let [all, few] = [0, 0];
    for (const column of columns) {
      let longest = 0;
      if ((!column.cell || column.kind === "text") && !column.grow) {
        const cap = isNumber(column) ? 24 : column.cell ? 15 : 26;
        for (let i = 0; i < rows.length; i += stride) {
          const text = shown(column, data, rows[i] as number, units.get(column.key) ?? "B");
          longest = Math.max(longest, Math.min(cap, text.length));
        }
        // What stands besides the text, as a swatch, takes the room of two letters.
        if (column.cell) longest += 2;
      }
      const letter = column.kind === "code" ? MONO : isNumber(column) ? digit : digit * 1.05;
      const bar = column.bar ? (column.bar.width ?? 64) + 68 : 0;
      // The arrow of the sorted head needs its room.
      const head = (headLabel(column).length + (sort?.key === column.key ? 2 : 0)) * digit * 0.98;
      const width = Math.max(column.width ?? 0, bar, Math.max(head, longest * letter) + 12);
      const size = column.grow ? (column.width ?? 150) : Math.round(width);
      all += size;
      few += column.narrow ? 0 : size;
      const style: Record<string, string> = column.grow ? {} : { width: `${size}px` };
      group.append(h("col", { class: column.narrow ? "hide-n" : undefined, style }));
    }
    grid.style.setProperty("--all", `${all}px`);
    grid.style.setProperty("--few", `${few}px`);
  }

  let window: [number, number] = [-1, -1];
  function drawBody(force: boolean): void {
    const total = rows.length;
    let [from, to] = [0, total];
    if (virtual()) {
      from = Math.max(0, Math.floor(wrap.scrollTop / ROW) - OVERSCAN);
      to = Math.min(total, from + Math.ceil((wrap.clientHeight || options.height || 480) / ROW) + 2 * OVERSCAN);
      // Even starts keep the drawn stripes and the spacer steady.
      from -= from % 2;
    }
    if (!force && window[0] === from && window[1] === to) return;
    window = [from, to];
    clear(tbody);
    // Spanning columns that are hidden would make new ones.
    const span = columns.filter((column) => !column.narrow).length;
    const spacer = (count: number): void => {
      if (count > 0) {
        const cell = h("td", {
          colspan: span,
          style: { height: `${count * ROW}px`, padding: "0", border: "0" },
        });
        tbody.append(h("tr.spacer", { "aria-hidden": "true" }, cell));
      }
    };
    spacer(from);
    for (let i = from; i < to; i++) tbody.append(rowElement(i));
    spacer(total - to);
    if (total === 0) tbody.append(h("tr.none", h("td", { colspan: span }, options.none ?? "No row matches.")));
  }

  function refresh(): void {
    units = new Map();
    for (const column of columns) {
      if (column.kind !== "bytes") continue;
      units.set(column.key, byteUnit(largestOf(data, column.key)));
    }
    let next = base ?? allRows(data);
    if (where) next = next.filter(where);
    if (match) next = filterRows(data, next, options.filterKeys ?? textKeys(data), match);
    rows = sort ? sortRows(data, next, sort) : next.slice();
    grid.setAttribute("aria-rowcount", String(rows.length + 1));
    grid.classList.toggle("virtual", virtual());
    drawHead();
    fixColumns();
    drawBody(true);
    options.onChange?.(rows);
  }

  function select(row: number | null, scroll = true): void {
    current = row ?? -1;
    const position = rows.indexOf(current);
    if (scroll && position >= 0) {
      const element = wrapped ? (tbody.children[position] as HTMLElement) : null;
      const [top, height] = element
        ? [element.offsetTop - thead.offsetHeight, element.offsetHeight]
        : [position * ROW, ROW];
      const room = wrap.clientHeight - ROW;
      if (top < wrap.scrollTop) wrap.scrollTop = top;
      else if (top + height > wrap.scrollTop + room) wrap.scrollTop = top + height - room;
    }
    drawBody(true);
    options.onSelect?.(row);
  }

  function copyRow(): void {
    const line = data.columns.map((column) => {
      const values = data.data[column.key];
      return textAt(values, current);
    });
    void copyText(line.join("\t"));
    wrap.focus({ preventScroll: true });
  }

  function onKey(event: KeyboardEvent): void {
    if (event.target !== wrap) return;
    const index = rows.indexOf(current);
    const page = Math.max(1, Math.floor(wrap.clientHeight / ROW) - 2);
    const moves: Record<string, number> = {
      ArrowDown: index + 1,
      ArrowUp: index < 0 ? 0 : index - 1,
      PageDown: index + page,
      PageUp: index - page,
      Home: 0,
      End: rows.length - 1,
    };
    const target = modified(event) ? undefined : moves[event.key];
    if (target !== undefined && rows.length > 0) {
      select(rows[Math.max(0, Math.min(rows.length - 1, target))] as number);
    } else if (event.key === "Enter" && index >= 0) options.onRow?.(current);
    else if (event.key === "c" && (event.ctrlKey || event.metaKey) && index >= 0 && !getSelection()?.toString())
      copyRow();
    else if (event.key === "Escape" && index >= 0) select(null);
    else return;
    handled(event);
  }

  listen(wrap, "keydown", onKey);
  let frame = 0;
  listen(wrap, "scroll", () => {
    if (!frame && virtual()) {
      frame = requestAnimationFrame(() => {
        frame = 0;
        drawBody(false);
      });
    }
  });
  listen(tbody, "click", (event) => {
    const element = (event.target as Element).closest<HTMLElement>("tr[data-at]");
    if (!element || (event.target as Element).closest("a,button")) return;
    const row = rows[Number(element.dataset.at)] as number;
    select(row, false);
    options.onRow?.(row);
  });
  if (options.onRow) grid.classList.add("follow");
  refresh();

  return {
    element: wrap,
    setFilter(text) {
      try {
        match = matcher(text);
      } catch (error) {
        return reason(error);
      }
      wrap.scrollTop = 0;
      refresh();
      return null;
    },
    setRows(next) {
      base = next === null ? null : Uint32Array.from(next);
      refresh();
    },
    setTable(next) {
      data = next;
      columns = fullColumns(options.columns, data);
      current = -1;
      refresh();
    },
    setWhere(next) {
      where = next;
      wrap.scrollTop = 0;
      refresh();
    },
    setSort(next) {
      sort = next;
      refresh();
    },
    setWrap(on) {
      wrapped = on;
      grid.classList.toggle("wrapped", on);
      refresh();
    },
    select: (row) => select(row),
    refresh,
    csv: () => toCsv(data, rows),
    visibleRows: () => rows,
  };
}
