/** PyTorch's ops by nn.Module, as a tree that folds, and by the shapes of their inputs. */

import { numberAt, textAt } from "../../lib/codec.js";
import { toCsv } from "../../lib/csv.js";
import { cutOf } from "../../lib/cut.js";
import { h } from "../../lib/dom.js";
import { count, known, num, percent } from "../../lib/format.js";
import type { Table } from "../../lib/payload.js";
import { filterRows } from "../../lib/rows.js";
import { table } from "../../lib/table.js";
import type { ViewContext } from "../../lib/view.js";
import type { Other } from "../folding.js";
import { toOp } from "../jump.js";
import { fillName } from "../names.js";

/** So many rows of the tree are open at first. */
const OPEN_ROWS = 24;

type Test = ((text: string) => boolean) | null;

export interface Modules {
  /** By row: the row around it (-1: none), and how many are right in it. */
  parent: Int32Array;
  inside: Uint32Array;
}

export function tree(modules: Table): Modules {
  const depth = modules.data["_depth"];
  const parent = new Int32Array(modules.rows).fill(-1);
  const inside = new Uint32Array(modules.rows);
  const around: number[] = [];
  for (let row = 0; row < modules.rows; row++) {
    around.length = Math.min(around.length, numberAt(depth, row));
    const nearest = around.at(-1) ?? -1;
    parent[row] = nearest;
    if (nearest >= 0) inside[nearest] = (inside[nearest] as number) + 1;
    around.push(row);
  }
  return { parent, inside };
}

/** The rows to open at first: from the outermost on, those with the most time, while the tree stays short. */
export function opened(modules: Table, { parent, inside }: Modules): Set<number> {
  const open = new Set<number>();
  const time = (row: number): number => numberAt(modules.data.percent, row) || 0;
  const next = [...parent.keys()].filter((row) => (parent[row] as number) < 0);
  let rows = next.length;
  for (;;) {
    const best = next
      .filter((row) => (inside[row] as number) > 0 && rows + (inside[row] as number) <= OPEN_ROWS)
      .sort((a, b) => time(b) - time(a))[0];
    if (best === undefined) return open;
    open.add(best);
    rows += inside[best] as number;
    next.splice(next.indexOf(best), 1, ...[...parent.keys()].filter((row) => parent[row] === best));
  }
}

/** The rows that show: those whose parents are all open, or those that match with all around them. */
export function visible(modules: Table, { parent }: Modules, open: ReadonlySet<number>, match: Test): number[] {
  const show = new Uint8Array(modules.rows);
  if (match) {
    for (let row = 0; row < modules.rows; row++) {
      if (!match(textAt(modules.data.name, row)) && !match(textAt(modules.data.module, row).split("/").at(-1) ?? ""))
        continue;
      for (let ancestor = row; ancestor >= 0; ancestor = parent[ancestor] as number) show[ancestor] = 1;
    }
  } else {
    for (let row = 0; row < modules.rows; row++) {
      const above = parent[row] as number;
      show[row] = Number(above < 0 || (show[above] === 1 && open.has(above)));
    }
  }
  return [...show.keys()].filter((row) => show[row]);
}

/** Says under the table what is in it. */
type Say = (shown: string, under: string) => void;

export function modulesTable(context: ViewContext, modules: Table, test: () => Test, say: Say) {
  return (into: HTMLElement): Other => {
    const shape = tree(modules);
    const open = opened(modules, shape);
    const device = modules.data.device_total_us !== undefined;
    const [forward, backward] = device
      ? (["device_total_us", "backward_device_us"] as const)
      : (["host_total_us", "backward_host_us"] as const);
    const valueAt = (key: string, row: number): number => numberAt(modules.data[key], row);
    const digits = (key: string): number => modules.columns.find((column) => column.key === key)?.digits ?? 0;
    const name = (row: number, cell: HTMLTableCellElement): void => {
      const text = h("span");
      fillName(text, textAt(modules.data.name, row));
      const folds = (shape.inside[row] as number) > 0;
      const on = open.has(row) || test() !== null;
      if (folds) cell.setAttribute("aria-expanded", String(on));
      cell.title = textAt(modules.data.module, row) || textAt(modules.data.name, row);
      const style = { paddingLeft: `${12 * valueAt("_depth", row)}px` };
      const sign = folds ? (on ? "▾" : "▸") : "";
      cell.append(h("span.fold", { style }, h("span.tri", { "aria-hidden": "true" }, sign), text));
    };
    /** What share of the row's time is forward: the rest of the bar is the backward pass. */
    const bar = (row: number, cell: HTMLTableCellElement): void => {
      const share = valueAt("percent", row);
      const [ahead, back] = [valueAt(forward, row) || 0, valueAt(backward, row) || 0];
      const part = ahead + back > 0 ? ahead / (ahead + back) : 0;
      const style = {
        "--u": `${share * part || 0}%`,
        "--v": `${share || 0}%`,
        "--c": `var(--c-${device ? "device" : "host"})`,
      };
      cell.title = `forward ${percent(100 * part)}, backward ${percent(100 - 100 * part)} of its time`;
      cell.append(h("span.ob", { style }, h("b", num(share, 1))));
    };
    const handle = table(into, {
      label: "Modules",
      none: "No module matches.",
      // Rows of a tree keep its order: heads that have no data don't sort.
      table: { columns: modules.columns, data: {}, rows: modules.rows },
      columns: [
        { key: "name", grow: true, cell: name },
        { key: "percent", align: "right", cell: bar },
        ...[forward, backward, ...(device ? ["host_total_us", "backward_host_us"] : []), "calls"].map((key) => ({
          key,
          narrow: key.includes("host") ? device : key === "calls",
          cell: (row: number, cell: HTMLTableCellElement) => cell.append(num(valueAt(key, row), digits(key))),
        })),
      ],
      rowClass: (row) => (textAt(modules.data.module, row) ? "" : "member"),
      onRow: (row) => {
        if (!shape.inside[row]) return;
        if (!open.delete(row)) open.add(row);
        refresh();
      },
      signal: context.signal,
    });
    into.querySelector("table")?.classList.add("op-tree");
    const refresh = (): void => {
      const rows = visible(modules, shape, open, test());
      handle.setRows(rows);
      say(
        `${count(rows.length)} of ${count(modules.rows)} modules`,
        "Dark: forward pass; light: backward pass. Click a row to open it. A module's time includes that of the modules in it.",
      );
    };
    refresh();
    return { refresh, csv: () => toCsv(modules, [...shape.parent.keys()]) };
  };
}

export function shapesTable(context: ViewContext, shapes: Table, test: () => Test, say: Say) {
  return (into: HTMLElement): Other => {
    const device = shapes.data.device_self_us !== undefined;
    const all = Uint32Array.from({ length: shapes.rows }, (_, row) => row);
    // The shapes have the room that is left.
    const op = (row: number, cell: HTMLTableCellElement): void => {
      const text = h("span.short", { style: { maxWidth: "min(230px,34cqi)" } });
      fillName(text, textAt(shapes.data.op, row), cutOf(shapes, "op"));
      cell.title = textAt(shapes.data.op, row);
      cell.append(text);
    };
    const handle = table(into, {
      label: "Ops by shape",
      none: "No op matches.",
      table: shapes,
      sort: { key: device ? "device_self_us" : "host_self_us", descending: true },
      columns: [
        { key: "op", cell: op },
        { key: "input_shapes", grow: true },
        { key: "calls", narrow: true },
        ...(device ? [{ key: "device_self_us" }, { key: "device_total_us", narrow: true }] : []),
        { key: "host_self_us", narrow: device },
        { key: "host_total_us", narrow: true },
        { key: "percent", bar: { css: device ? "device" : "host", width: 72 } },
      ],
      onRow: (row) => {
        if (known(numberAt(shapes.data["_at_ms"], row))) context.go("trace", toOp(shapes, row, "host"));
      },
      signal: context.signal,
    });
    const refresh = (): void => {
      const match = test();
      const rows = match ? filterRows(shapes, all, ["op", "input_shapes"], match) : all;
      handle.setRows(rows);
      say(
        `${count(rows.length)} ops by shape`,
        "One row for each op and set of input shapes. Click a row to see the op's longest call in the trace.",
      );
    };
    refresh();
    return { refresh, csv: () => handle.csv() };
  };
}
