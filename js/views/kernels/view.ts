/** GPU kernels: what ran on the device, how long, with which launch shape. */

import { numberAt, textAt } from "../../lib/codec.js";
import { type ColumnSpec, drawn } from "../../lib/columns.js";
import { cutOf } from "../../lib/cut.js";
import { h } from "../../lib/dom.js";
import { count, flag, ms, num } from "../../lib/format.js";
import { donut, emptyView, figures, heading, link, picker } from "../../lib/parts.js";
import type { Figure, Kernels, Table } from "../../lib/payload.js";
import { allRows, filterRows, mostOf } from "../../lib/rows.js";
import type { Hint, View, ViewContext, ViewHandle } from "../../lib/view.js";
import { isMember, nameCell } from "../fold.js";
import { filterField, foldingTable } from "../folding.js";
import { toKernel } from "../jump.js";
import { fillName } from "../names.js";
import { type By, type Cores, coresMatch, groups, hasOccupancy, occupancyNote } from "./rows.js";

export const render: View = (el, context, hint) => {
  const { kernels } = context.payload;
  if (kernels.empty) {
    el.append(h("section", emptyView(kernels.empty)));
    return;
  }
  const list = kernelsTable(context);
  el.append(keyFigures(kernels.figures, list.showUnused), top(kernels), list.element);
  if (hint) list.hint(hint);
  return { hint: list.hint, focusFilter: list.focusFilter } satisfies ViewHandle;
};

/** The figures; the note of the last becomes a link to the kernels it counts. */
function keyFigures(figs: readonly Figure[], showUnused: () => void): HTMLElement {
  const element = figures(figs);
  const index = figs.findIndex((fig) => fig.key === "tensor_cores_unused" && (fig.value ?? 0) > 0);
  const note = [...(element.children[index]?.querySelector("dd")?.childNodes ?? [])].find(
    (node) => node.nodeType === Node.TEXT_NODE,
  );
  if (index >= 0 && note) note.parentNode?.replaceChild(link("show these kernels", showUnused), note);
  return element;
}

function top({ top: { ms: total, parts } }: Kernels): HTMLElement | "" {
  if (!parts.length) return "";
  const ring = donut({
    title: "Kernel time by kernel",
    total: "",
    hue: "d",
    parts,
    size: 160,
    center: [ms(total), "kernel time"],
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
  const { table: full, by_name, by_op } = context.payload.kernels;
  const sums = { kernel: by_name, op: by_op };
  let cores: Cores = "any";
  const tests: Record<"kernel" | "op", ((text: string) => boolean) | null> = { kernel: null, op: null };
  const rowsText = h("span");
  const everyRow = allRows(full);
  /** For the address of the page: the marked row, or else the filter. */
  const setPlace = (text: string): void => context.store.set("kernel", text || byKernel.input.value || null);
  const npu = context.payload.kernels.chip === "NPU";
  const occupancy = npu ? "" : occupancyNote(full, context.payload.kernels.occupancy);

  const list = foldingTable<By>({
    context,
    label: `${context.payload.kernels.chip ?? "GPU"} kernels`,
    none: "No kernel matches.",
    file: "nbprof-kernels.csv",
    sort: { key: "total_us", descending: true },
    minWidth: 900,
    css: "kt",
    ways: [
      { id: "row", label: "Launch shapes" },
      { id: "kernel", label: "By name" },
      { id: "op", label: "By op" },
    ],
    table: () => full,
    rows: () => {
      let rows: Uint32Array = everyRow.filter((row) => coresMatch(full, row, cores));
      for (const key of ["kernel", "op"] as const) {
        const test = tests[key];
        if (test) rows = filterRows(full, rows, [key], test);
      }
      return rows;
    },
    groups: (rows, by) => groups(full, rows, by as "kernel" | "op", sums[by as "kernel" | "op"]),
    columns: (data) => columns(full, data),
    folded: (spec, by, now, open) => {
      const other = by === "op" ? "kernel" : "op";
      if (spec.key === "op") return opColumn(full, () => now().real, other);
      if (spec.key !== "kernel") return undefined;
      return {
        ...spec,
        key: by,
        // Under its group a member is told apart by the other name.
        cell: (row, cell) => {
          const shown = isMember(now(), row) ? other : by;
          nameCell(now(), open, row, cell, textAt(now().real.data[shown], row), cutOf(full, shown));
        },
      };
    },
    ofGroups: ["rank"],
    onRow: (row) => context.go("trace", toKernel(full, row)),
    onSelect: (shown, row) => setPlace(row === null ? "" : textAt(shown.data.kernel, row)),
    onChange: (rows, found, by) => {
      const part = rows < full.rows ? ` of ${count(full.rows)}` : "";
      const into = found === null ? "" : ` in ${count(found)} ${by === "op" ? "ops" : "kernels"}`;
      rowsText.textContent = `${count(rows)}${part} rows${into}, one for each kernel, op and launch shape.${occupancy}`;
    },
  });

  const filter = (key: "kernel" | "op") =>
    filterField(`Filter by ${key} name`, (test) => {
      tests[key] = test;
      list.refresh();
      setPlace("");
    });
  const [byKernel, byOp] = [filter("kernel"), filter("op")];
  const pick = picker<Cores>(
    npu ? "Cube" : "Tensor Cores",
    [
      { id: "any", label: "Any" },
      { id: "used", label: "used" },
      { id: "unused", label: "eligible, not used" },
    ],
    "any",
    (id) => {
      cores = id;
      list.refresh();
    },
  );
  setPlace("");
  return {
    element: h(
      "section",
      h("div.toolbar", byKernel.element, byOp.element, pick, list.modes, h("span.end", list.wrap, list.download)),
      list.holder,
      h("p.more", rowsText),
    ),
    showUnused() {
      cores = "unused";
      const select = pick.querySelector("select");
      if (select) select.value = "unused";
      list.refresh();
      list.holder.querySelector<HTMLElement>(".tw")?.focus();
    },
    hint(hint) {
      const text = hint.filter ?? hint.search;
      if (text === undefined) return;
      byKernel.set(text);
      list.find((row) => textAt(full.data.kernel, row).startsWith(text));
      setPlace(text);
    },
    focusFilter: () => byKernel.input.focus(),
  };
}

/** An op, a kernel or where they come from, in little room. */
function opColumn(full: Table, data: () => Table, key: string): ColumnSpec {
  return {
    key,
    width: 150,
    cell: (row, cell) => {
      cell.classList.add("op");
      fillName(cell, textAt(data().data[key], row), cutOf(full, key));
    },
  };
}

function columns(full: Table, data: () => Table): ColumnSpec[] {
  const max = mostOf(full, "total_us");
  const known = (key: string, row: number): number => numberAt(data().data[key], row);
  // In words on the number; faint where nbprof computed it.
  const occupied = (row: number, cell: HTMLTableCellElement): void => {
    const source = textAt(data().data.occupancy_source, row);
    cell.append(h(source === "computed" ? "span.dim" : "span", num(known("occupancy_percent", row), 1)));
    cell.title = source;
  };
  const mark = (cell: HTMLTableCellElement, value: number): void =>
    cell.append(value === 1 ? flag(value) : h("span.dim", flag(value)));
  const names = full.columns.filter(({ kind }) => kind === "code").map(({ key }) => [key, opColumn(full, data, key)]);
  return drawn(full, {
    ...Object.fromEntries(names),
    rank: { dim: true, sticky: 0, width: 28 },
    kernel: {
      grow: true,
      sticky: 28,
      width: 176,
      cell: (row, cell) => fillName(cell, textAt(data().data.kernel, row), cutOf(full, "kernel")),
    },
    total_us: { bar: { css: "device", max: max * 1.06, width: 40 } },
    min_us: { dim: true },
    max_us: { dim: true },
    op_tensor_core_eligible: {
      align: "center",
      cell: (row, cell) => mark(cell, known("op_tensor_core_eligible", row)),
    },
    uses_tensor_core: {
      align: "center",
      cell: (row, cell) => {
        const used = known("uses_tensor_core", row);
        if (known("op_tensor_core_eligible", row) === 1 && used === 0) cell.append(h("b", flag(used)));
        else mark(cell, used);
      },
    },
    // A column of nothing but "–" takes the room of the names; the line below the table says that it is missing.
    occupancy_percent: hasOccupancy(full) ? { cell: occupied } : null,
    occupancy_source: null,
    shared_bytes: { cell: (row, cell) => cell.append(num(known("shared_bytes", row))) },
    block: { align: "right" },
    grid: { align: "right" },
  });
}
