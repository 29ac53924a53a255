/** A table whose rows can be seen one by one or folded into groups that open: ops by type, kernels by name. */

import { toCsv } from "../lib/csv.js";
import { clear, h, reason } from "../lib/dom.js";
import { downloadButton, type Field, field, segmented, toggle } from "../lib/parts.js";
import type { Table } from "../lib/payload.js";
import { matcher, type Sort } from "../lib/rows.js";
import { type ColumnSpec, type TableHandle, table } from "../lib/table.js";
import type { ViewContext } from "../lib/view.js";
import { type Folded, foldTable, type Group, groupsOnly, isMember } from "./fold.js";

export interface Folding<B extends string> {
  context: ViewContext;
  label: string;
  none: string;
  file: string;
  sort: Sort;
  minWidth?: number;
  /** CSS class of the table. */
  css?: string;
  /** How rows may be folded; the first is not at all. */
  ways: readonly { id: B; label: string }[];
  table(): Table;
  /** Rows that pass the filters. */
  rows(): Uint32Array;
  groups(rows: Uint32Array, by: B): Group[];
  /** `data` is what is shown: the table, or the folded one. */
  columns(data: () => Table): ColumnSpec[];
  /** The columns that a folded table has in another form: null to leave one out, nothing for those that stay. */
  folded(spec: ColumnSpec, by: B, now: () => Folded, open: ReadonlySet<string>): ColumnSpec | null | undefined;
  /** Columns that a member of a group leaves empty. */
  ofGroups: readonly string[];
  /** Ways that show a table of their own: drawn into an element, which `refresh` and the CSV then are of. */
  others?: readonly { id: B; label: string; draw(into: HTMLElement): Other }[];
  /** A row of the table was chosen. */
  onRow(row: number): void;
  /** Another row of what is shown, which may be a group, is marked, or none. */
  onSelect?(shown: Table, row: number | null): void;
  /** Rows changed; `groups` is null where they are not folded. */
  onChange(rows: number, groups: number | null, by: B): void;
}

/** A table of another kind in the place of this one. */
export interface Other {
  refresh(): void;
  csv(): string;
}

export interface FoldingTable {
  holder: HTMLElement;
  modes: HTMLElement;
  download: HTMLElement;
  /** Whether names take the lines that they need. */
  wrap: HTMLElement;
  /** Filters, groups and draws again. */
  refresh(): void;
  /** Marks the first row that fits, and gives the table the focus; false where none does. */
  find(fits: (row: number) => boolean): boolean;
  /** The table itself changed. */
  renew(): void;
}

export function foldingTable<B extends string>(options: Folding<B>): FoldingTable {
  const open = new Set<string>();
  const plain = (options.ways[0] as { id: B }).id;
  const holder = h("div");
  let by = plain;
  let wrapped = false;
  let folded: Folded | null = null;
  let handle: TableHandle | null = null;
  let other: Other | null = null;
  const now = (): Folded => folded as Folded;

  const column = (spec: ColumnSpec): ColumnSpec[] => {
    const other = options.folded(spec, by, now, open);
    if (other !== undefined) return other ? [other] : [];
    const digits = options.table().columns.find((each) => each.key === spec.key)?.digits ?? 0;
    return [options.ofGroups.includes(spec.key) ? groupsOnly(spec, now, digits) : spec];
  };

  /** A new table: its columns depend on whether rows are folded. */
  function build(): void {
    clear(holder);
    const { label, sort, minWidth, none } = options;
    const { signal } = options.context;
    const common = { label, sort, minWidth, none, signal };
    other = options.others?.find(({ id }) => id === by)?.draw(holder) ?? null;
    if (other) {
      [folded, handle] = [null, null];
    } else if (by === plain) {
      folded = null;
      handle = table(holder, {
        ...common,
        table: options.table(),
        columns: options.columns(options.table),
        onRow: options.onRow,
        onSelect: (row) => options.onSelect?.(options.table(), row),
      });
    } else {
      folded = foldTable(options.table(), options.groups(options.rows(), by), open);
      handle = table(holder, {
        ...common,
        table: folded.table,
        shown: () => now().real,
        columns: options.columns(() => now().real).flatMap(column),
        onRow: follow,
        onSelect: (row) => options.onSelect?.(now().real, row),
        rowClass: (row) => (isMember(now(), row) ? "member" : ""),
      });
    }
    handle?.setWrap(wrapped);
    if (options.css) holder.querySelector("table")?.classList.add(options.css);
    refresh();
  }

  function follow(row: number): void {
    const group = now().group[row];
    const source = now().source[row] as number;
    if (!group) return;
    if (source >= 0 || group.rows.length === 1) options.onRow(source >= 0 ? source : (group.rows[0] as number));
    else {
      if (!open.delete(group.key)) open.add(group.key);
      refresh();
    }
  }

  function refresh(): void {
    if (other) {
      other.refresh();
      return;
    }
    const rows = options.rows();
    if (folded) {
      folded = foldTable(options.table(), options.groups(rows, by), open);
      handle?.setTable(folded.table);
    } else handle?.setRows(rows);
    options.onChange(rows.length, folded ? folded.groups.length : null, by);
  }

  const modes = segmented("Rows", [...options.ways, ...(options.others ?? [])], by, (id) => {
    by = id;
    open.clear();
    build();
  });
  const wrap = toggle("Wrap names", wrapped, (on) => {
    wrapped = on;
    handle?.setWrap(on);
  });
  const csv = (): string =>
    other?.csv() ?? (folded ? toCsv(folded.real, handle?.visibleRows() ?? []) : (handle?.csv() ?? ""));
  options.context.keep(
    () => [...open],
    (keys) => {
      for (const key of keys) open.add(key);
      if (keys.length) refresh();
    },
  );
  build();
  return {
    holder,
    modes,
    wrap,
    download: downloadButton(options.file, csv),
    refresh,
    find(fits) {
      const rows = handle?.visibleRows() ?? [];
      const source = folded?.source;
      const row = [...rows].find((each) => fits(source ? (source[each] as number) : each));
      if (row === undefined || !handle) return false;
      handle.select(row);
      handle.element.focus();
      return true;
    },
    renew() {
      if (!folded && !other) handle?.setTable(options.table());
      refresh();
    },
  };
}

/** A filter field that gives the test its text stands for (null: all pass), or says what is wrong with it. */
export function filterField(placeholder: string, onTest: (test: ((text: string) => boolean) | null) => void): Field {
  return field(placeholder, (text) => {
    try {
      onTest(matcher(text));
      return null;
    } catch (error) {
      return reason(error);
    }
  });
}
