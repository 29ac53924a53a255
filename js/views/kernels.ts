/** GPU kernels: what ran on the device, how long, with which launch shape. */

import { numberAt, textAt } from "../lib/codec.js";
import { nameNode } from "../lib/columns.js";
import { toCsv } from "../lib/csv.js";
import { clear, h } from "../lib/dom.js";
import { count, kernelName, MISSING, ms, num } from "../lib/format.js";
import { donut, downloadButton, emptyView, field, figures, heading, link, picker, segmented } from "../lib/parts.js";
import type { Figure, Table } from "../lib/payload.js";
import { filterRows, matcher } from "../lib/rows.js";
import { type ColumnSpec, type TableHandle, table } from "../lib/table.js";
import type { Hint, View, ViewContext, ViewHandle } from "../lib/view.js";
import { type Folded, foldTable, groupsOnly, isMember, nameCell, realColumn } from "./fold.js";
import { type By, type Cores, coresMatch, groups, topKernels } from "./kernels/rows.js";

const UNUSED = "Eligible, not used";

export const render: View = (el, context, hint) => {
  const { kernels } = context.payload;
  if (kernels.empty) {
    el.append(h("section", emptyView(kernels.empty)));
    return;
  }
  const list = kernelsTable(context);
  el.append(keyFigures(kernels.figures, list.showUnused), top(kernels.table, kernels.figures), list.element);
  if (hint) list.hint(hint);
  return { hint: list.hint, focusFilter: list.focusFilter } satisfies ViewHandle;
};

/** The figures; the note of the last becomes a link to the kernels it counts. */
function keyFigures(figs: readonly Figure[], showUnused: () => void): HTMLElement {
  const element = figures(figs);
  const index = figs.findIndex((fig) => fig.label === UNUSED && (fig.value ?? 0) > 0);
  const note = [...(element.children[index]?.querySelector("dd")?.childNodes ?? [])].find(
    (node) => node.nodeType === Node.TEXT_NODE,
  );
  if (index >= 0 && note) note.parentNode?.replaceChild(link("show these kernels", showUnused), note);
  return element;
}

function top(kernels: Table, figs: readonly Figure[]): HTMLElement {
  let total = 0;
  for (let row = 0; row < kernels.rows; row++) total += numberAt(kernels.data.total_us, row) || 0;
  // The table may be cut; the figure counts all.
  const figure = figs.find((fig) => fig.label === "Kernel time" && fig.unit === "ms")?.value;
  const total_us = Math.max(total, (figure ?? 0) * 1000);
  const parts = topKernels(kernels, total_us);
  const ring = donut({
    title: "Kernel time by kernel",
    total: "",
    hue: "d",
    parts,
    size: 160,
    center: [ms(total_us / 1000, 1), "kernel time"],
    label: (part) => {
      const { name, template } = kernelName(part.label);
      return h("span", { title: part.label }, `${name}${template}`);
    },
  });
  ring.classList.add("big", "kernels");
  ring.querySelector("h4")?.remove();
  ring.querySelector(".dl")?.classList.add("mono");
  const ranked = parts.filter((part) => part.kind !== "others").length;
  return h("section", heading(`Top ${ranked} kernels`, "share of kernel time"), ring);
}

interface KernelsTable {
  element: HTMLElement;
  showUnused(): void;
  hint(hint: Hint): void;
  focusFilter(): void;
}

function kernelsTable(context: ViewContext): KernelsTable {
  const { table: full } = context.payload.kernels;
  const open = new Set<string>();
  let by: By = "row";
  let cores: Cores = "any";
  const tests: Record<"kernel" | "op", ((text: string) => boolean) | null> = { kernel: null, op: null };
  let folded: Folded | null = null;
  let handle: TableHandle | null = null;
  const holder = h("div");
  const rowsText = h("span");
  const everyRow = Uint32Array.from({ length: full.rows }, (_, i) => i);

  const occupancy = hasOccupancy(full)
    ? ` Occupancy is ${/torch/i.test(context.payload.meta.framework) ? "estimated from the launch" : "theoretical, from registers and block size"}.`
    : " Occupancy was not recorded.";

  const selected = (): Uint32Array => {
    let rows: Uint32Array = everyRow.filter((row) => coresMatch(full, row, cores));
    for (const key of ["kernel", "op"] as const) {
      const test = tests[key];
      if (test) rows = filterRows(full, rows, [key], test);
    }
    return rows;
  };

  function build(): void {
    clear(holder);
    const common = {
      label: "GPU kernels",
      sort: { key: "total_us", descending: true },
      minWidth: 900,
      none: "No kernel matches.",
      signal: context.signal,
    };
    if (by === "row") {
      folded = null;
      handle = table(holder, {
        ...common,
        table: full,
        columns: columns(full, () => full),
        onRow: (row) => context.go("trace", { search: textAt(full.data.kernel, row) }),
      });
    } else {
      const key = by;
      folded = foldTable(full, groups(full, selected(), key), open);
      const now = (): Folded => folded as Folded;
      const name = (spec: ColumnSpec): ColumnSpec => ({
        ...spec,
        key,
        label: key === "op" ? "Op" : "Kernel",
        cell: (row, cell) => {
          const member = isMember(now(), row);
          // Under its group a member is told apart by the other name.
          const text = textAt(now().real.data[member ? (key === "op" ? "kernel" : "op") : key], row);
          nameCell(now(), open, row, cell, text);
        },
      });
      const swapped = (spec: ColumnSpec): ColumnSpec =>
        spec.key === "kernel"
          ? name(spec)
          : spec.key === "op"
            ? { ...opColumn(() => now().real, key === "op" ? "kernel" : "op"), label: key === "op" ? "Kernel" : "Op" }
            : spec.key === "rank"
              ? groupsOnly(realColumn(spec, full.columns, now), now)
              : realColumn(spec, full.columns, now);
      handle = table(holder, {
        ...common,
        table: folded.table,
        columns: columns(full, () => now().real).map(swapped),
        onRow: follow,
        rowClass: (row) => (folded && isMember(folded, row) ? "member" : ""),
      });
    }
    holder.querySelector("table")?.classList.add("kt");
    refresh();
  }

  function follow(row: number): void {
    const group = folded?.group[row];
    const source = folded?.source[row] ?? -1;
    if (!group) return;
    if (source >= 0 || group.rows.length === 1) {
      context.go("trace", { search: textAt(full.data.kernel, source >= 0 ? source : (group.rows[0] as number)) });
      return;
    }
    if (!open.delete(group.key)) open.add(group.key);
    refresh();
  }

  function refresh(): void {
    const rows = selected();
    if (by === "row") handle?.setRows(rows);
    else {
      folded = foldTable(full, groups(full, rows, by), open);
      handle?.setTable(folded.table);
    }
    const part = rows.length < full.rows ? ` of ${count(full.rows)}` : "";
    const into = folded ? ` in ${count(folded.groups.length)} ${by === "op" ? "ops" : "names"}` : "";
    rowsText.textContent = `${count(rows.length)}${part} rows${into}, one for each kernel, op and launch shape.${occupancy}`;
  }

  const filter = (key: "kernel" | "op") =>
    field(`Filter by ${key} name`, (text) => {
      try {
        tests[key] = matcher(text);
      } catch (error) {
        return error instanceof Error ? error.message : String(error);
      }
      refresh();
      return null;
    });
  const [byKernel, byOp] = [filter("kernel"), filter("op")];
  const pick = picker<Cores>(
    "TensorCores",
    [
      { id: "any", label: "Any" },
      { id: "used", label: "used" },
      { id: "unused", label: "eligible, not used" },
    ],
    "any",
    (id) => {
      cores = id;
      refresh();
    },
  );
  const modes = segmented<By>(
    "Rows",
    [
      { id: "row", label: "Kernels" },
      { id: "kernel", label: "By name" },
      { id: "op", label: "By op" },
    ],
    by,
    (id) => {
      by = id;
      open.clear();
      build();
    },
  );
  const csv = (): string => (folded ? toCsv(folded.real, handle?.visibleRows() ?? []) : (handle?.csv() ?? ""));
  build();
  return {
    element: h(
      "section",
      h(
        "div.toolbar",
        byKernel.element,
        byOp.element,
        pick,
        modes,
        h("span.end", downloadButton("nbprof-kernels.csv", csv)),
      ),
      holder,
      h("p.more", rowsText),
    ),
    showUnused() {
      cores = "unused";
      const select = pick.querySelector("select");
      if (select) select.value = "unused";
      refresh();
      holder.querySelector<HTMLElement>(".tw")?.focus();
    },
    hint(hint) {
      const text = hint.filter ?? hint.search;
      if (text !== undefined) byKernel.set(text);
    },
    focusFilter: () => byKernel.input.focus(),
  };
}

/** An op or kernel in little room: its tail tells it apart. */
function opColumn(data: () => Table, key: "op" | "kernel"): ColumnSpec {
  return {
    key,
    label: key === "op" ? "Op" : "Kernel",
    width: 150,
    cell: (row, cell) => {
      const full = textAt(data().data[key], row);
      cell.title = full;
      cell.classList.add("op");
      if (key === "op") cell.classList.add("tail");
      cell.append(full ? (key === "op" ? h("code", full) : nameNode(full)) : MISSING);
    },
  };
}

/** A column of nothing but "–" takes the room of the names; the line below the table says that it is missing. */
function hasOccupancy({ data, rows }: Table): boolean {
  for (let row = 0; row < rows; row++) if (!Number.isNaN(numberAt(data.occupancy_percent, row))) return true;
  return false;
}

function columns(full: Table, data: () => Table): ColumnSpec[] {
  let max = 0;
  for (let row = 0; row < full.rows; row++) max = Math.max(max, numberAt(full.data.total_us, row) || 0);
  const flag = (key: string, row: number): number => numberAt(data().data[key], row);
  const [eligible, used] = ["op_tensor_core_eligible", "uses_tensor_core"];
  const yes = (cell: HTMLTableCellElement, value: number): void =>
    cell.append(value === 1 ? "✓" : h("span.dim", MISSING));
  return [
    { key: "rank", label: "#", dim: true, sticky: 0, width: 28 },
    { key: "kernel", label: "Kernel", grow: true, sticky: 28, width: 176 },
    { key: "total_us", label: "Total µs", bar: { css: "device", max: max * 1.06, width: 40 } },
    { key: "occurrences", label: "Count" },
    { key: "avg_us", label: "Avg µs" },
    { key: "min_us", label: "Min", dim: true },
    { key: "max_us", label: "Max", dim: true },
    { key: eligible, label: "TC elig.", align: "center", cell: (row, cell) => yes(cell, flag(eligible, row)) },
    {
      key: used,
      label: "used",
      align: "center",
      cell: (row, cell) => {
        if (flag(eligible, row) === 1 && flag(used, row) === 0) cell.append(h("b", "no"));
        else yes(cell, flag(used, row));
      },
    },
    ...(hasOccupancy(full) ? [{ key: "occupancy_percent", label: "Occup. %" }] : []),
    { key: "registers", label: "Regs" },
    {
      key: "shared_bytes",
      label: "Shared B",
      kind: "number",
      cell: (row, cell) => cell.append(num(numberAt(data().data.shared_bytes, row))),
    },
    { key: "block", label: "Block", align: "right" },
    { key: "grid", label: "Grid", align: "right" },
    opColumn(data, "op"),
  ];
}
