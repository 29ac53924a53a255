/** Ops: which operations took the time, on the device and on the host. */

import { textAt } from "../lib/codec.js";
import { toCsv } from "../lib/csv.js";
import { clear, h } from "../lib/dom.js";
import { count, MISSING, ms } from "../lib/format.js";
import { donut, downloadButton, emptyView, field, heading, picker, segmented, swatch, toggle } from "../lib/parts.js";
import type { Payload, Table } from "../lib/payload.js";
import { filterRows, matcher } from "../lib/rows.js";
import { type ColumnSpec, type TableHandle, table } from "../lib/table.js";
import type { Hint, View, ViewContext, ViewHandle } from "../lib/view.js";
import { type Folded, foldTable, groupsOnly, isMember, nameCell, realColumn } from "./fold.js";
import { fillName } from "./names.js";
import { type By, bases, bySelf, donutParts, groups, types, type Where, withPercents } from "./ops/rows.js";

const SIDES: readonly Where[] = ["device", "host"];
const TITLE = { device: "Device", host: "Host" } as const;
const BY = { op: "ops", type: "types", layer: "layers" } as const;

export const render: View = (el, context, hint) => {
  const { ops } = context.payload;
  if (ops.empty) {
    el.append(h("section", emptyView(ops.empty)));
    return;
  }
  const donuts = h("div.donuts");
  const list = opsTable(context);
  let idle = false;
  const drawDonuts = (): void => {
    clear(donuts);
    for (const where of SIDES) donuts.append(...side(context.payload, where, idle));
  };
  const include = toggle("Include idle", idle, (on) => {
    idle = on;
    drawDonuts();
    list.setIdle(on);
  });
  drawDonuts();
  el.append(h("section", heading("Self time", "hue: where it ran; lightness: rank", include), donuts), list.element);
  if (hint) list.hint(hint);
  return { hint: list.hint, focusFilter: list.focusFilter } satisfies ViewHandle;
};

/** The two donuts of a side, or why there are none. */
function side(payload: Payload, where: Where, idle: boolean): HTMLElement[] {
  const title = TITLE[where];
  const recorded = donutParts(payload.ops, where, "op", idle);
  if (!(recorded.total_us > 0)) {
    const why =
      where === "device"
        ? payload.meta.has_device
          ? "No op ran on the device while the profile was recorded."
          : "Not recorded: this run used the CPU only."
        : "Not recorded: the host tracer was off, or no op ran on the host.";
    return [h("div.donut.none", h("h4", h("b", title)), h("p.dim", why))];
  }
  const hue = where === "device" ? "d" : "h";
  return (["op", "type"] as const).map((by) => {
    const { total_us, parts } = by === "op" ? recorded : donutParts(payload.ops, where, by, idle);
    return donut({ title: `${title}, by ${by}`, total: ms(total_us / 1000, 1), hue, parts });
  });
}

interface OpsTable {
  element: HTMLElement;
  setIdle(on: boolean): void;
  hint(hint: Hint): void;
  focusFilter(): void;
}

function opsTable(context: ViewContext): OpsTable {
  const { ops } = context.payload;
  const open = new Set<string>();
  let full = withPercents(ops.table, bases(ops.totals, false));
  const order = bySelf(full);
  let by: By = "op";
  let where: Where | "any" = "any";
  let type = "";
  let match: ((text: string) => boolean) | null = null;
  let folded: Folded | null = null;
  let handle: TableHandle | null = null;

  const holder = h("div");
  const total = h("span.dim");
  const rowsText = h("span");
  const sides = SIDES.filter((name) => ops.totals[`${name}_us`] > 0);
  const selfText = sides.map((name) => `on ${name} ${ms(ops.totals[`${name}_us`] / 1000, 1)}`).join(", ");

  const selected = (): Uint32Array => {
    let rows: Uint32Array = order.filter(
      (row) =>
        (where === "any" || textAt(full.data.where, row) === where) && (!type || textAt(full.data.type, row) === type),
    );
    if (match) rows = filterRows(full, rows, ["op", "type"], match);
    return rows;
  };

  /** A new table: its columns depend on whether rows are folded. */
  function build(): void {
    clear(holder);
    const common = {
      label: `Self time by ${by}`,
      sort: { key: "self_us", descending: true },
      none: "No op matches.",
      signal: context.signal,
    };
    if (by === "op") {
      folded = null;
      handle = table(holder, {
        ...common,
        table: full,
        columns: columns(() => full),
        onRow: (row) => context.go("trace", { search: textAt(full.data.op, row) }),
      });
    } else {
      folded = foldTable(full, groups(full, selected(), by), open);
      const now = (): Folded => folded as Folded;
      const name: ColumnSpec = {
        key: "op",
        label: by === "type" ? "Type" : "Layer",
        grow: true,
        cell: (row, cell) => nameCell(now(), open, row, cell, textAt(now().real.data.op, row)),
      };
      const specs = columns(() => now().real).filter((spec) => by !== "type" || spec.key !== "type");
      handle = table(holder, {
        ...common,
        table: folded.table,
        columns: specs.map((spec) => {
          if (spec.key === "op") return name;
          const column = realColumn(spec, full.columns, now);
          return spec.key === "rank" || spec.key === "cumulative_percent" ? groupsOnly(column, now) : column;
        }),
        onRow: follow,
        rowClass: (row) => (folded && isMember(folded, row) ? "member" : ""),
      });
    }
    refresh();
  }

  function follow(row: number): void {
    if (!folded) return;
    const group = folded.group[row];
    const source = folded.source[row] as number;
    if (!group) return;
    if (source >= 0 || group.rows.length === 1) {
      context.go("trace", { search: textAt(full.data.op, source >= 0 ? source : (group.rows[0] as number)) });
      return;
    }
    if (!open.delete(group.key)) open.add(group.key);
    refresh();
  }

  function refresh(): void {
    const rows = selected();
    let shown = rows.length;
    if (by === "op") handle?.setRows(rows);
    else {
      const list = groups(full, rows, by);
      shown = list.length;
      folded = foldTable(full, list, open);
      handle?.setTable(folded.table);
    }
    total.textContent = `${count(shown)} ${shown === 1 ? BY[by].slice(0, -1) : BY[by]}`;
    const part = rows.length < full.rows ? ` of ${count(full.rows)}` : "";
    rowsText.textContent =
      by === "op"
        ? `${count(rows.length)}${part} ops. Click a row for its calls in the trace.`
        : `${count(rows.length)}${part} ops in ${count(shown)} ${BY[by]}. Click a row to open it.`;
  }

  const csv = (): string => (folded ? toCsv(folded.real, handle?.visibleRows() ?? []) : (handle?.csv() ?? ""));
  const filter = field("Filter operations", (text) => {
    try {
      match = matcher(text);
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
    refresh();
    return null;
  });
  const any = { id: "any", label: "Any" } as const;
  const toolbar = h(
    "div.toolbar",
    filter.element,
    sides.length > 1 &&
      picker("Where", [any, { id: "device", label: "Device" }, { id: "host", label: "Host" }], "any", (id) => {
        where = id as Where | "any";
        refresh();
      }),
    picker(
      "Type",
      [{ id: "", label: "Any" }, ...types(full).map((id) => ({ id, label: id || "(none)" }))],
      "",
      (id) => {
        type = id;
        refresh();
      },
    ),
    segmented(
      "Rows",
      [
        { id: "op", label: "Ops" },
        { id: "type", label: "By type" },
        { id: "layer", label: "By layer" },
      ],
      by,
      (id: By) => {
        by = id;
        build();
      },
    ),
    h("span.end", total, downloadButton("nbprof-ops.csv", csv)),
  );
  build();
  return {
    element: h("section", toolbar, holder, h("p.more", rowsText, h("span", selfText && `Self time ${selfText}`))),
    setIdle(on) {
      full = withPercents(ops.table, bases(ops.totals, on));
      if (by === "op") handle?.setTable(full);
      refresh();
    },
    hint: (hint) => {
      const text = hint.filter ?? hint.search;
      if (text !== undefined) filter.set(text);
    },
    focusFilter: () => filter.input.focus(),
  };
}

function columns(data: () => Table): ColumnSpec[] {
  const css = (row: number): string => (textAt(data().data.where, row) === "device" ? "device" : "host");
  return [
    { key: "rank", label: "#", dim: true },
    {
      key: "where",
      label: "Where",
      cell: (row, cell) => {
        const name = css(row) === "device" ? "Device" : "Host";
        cell.append(swatch(css(row)), h("span.hide-n", `\u2002${name}`));
        cell.title = name;
      },
    },
    {
      key: "type",
      label: "Type",
      narrow: true,
      cell: (row, cell) => {
        const type = textAt(data().data.type, row);
        cell.title = type;
        cell.append(h("span.short", type || MISSING));
      },
    },
    {
      key: "op",
      label: "Operation",
      grow: true,
      cell: (row, cell) => fillName(cell, textAt(data().data.op, row)),
    },
    { key: "occurrences", label: "Count" },
    { key: "total_us", label: "Total µs", narrow: true },
    { key: "avg_us", label: "Avg µs", narrow: true },
    { key: "self_us", label: "Self µs" },
    { key: "avg_self_us", label: "Avg self", narrow: true },
    { key: "self_percent", bar: { css, width: 72 } },
    { key: "cumulative_percent", dim: true, narrow: true },
  ];
}
