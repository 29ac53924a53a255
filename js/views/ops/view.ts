/** Ops: which operations took the time, on the device and on the host. */

import { numberAt, textAt } from "../../lib/codec.js";
import { type ColumnSpec, type Drawings, drawn } from "../../lib/columns.js";
import { cutOf } from "../../lib/cut.js";
import { clear, h } from "../../lib/dom.js";
import { count, MISSING, ms } from "../../lib/format.js";
import { donut, emptyView, heading, picker, swatch, toggle } from "../../lib/parts.js";
import type { Payload, Table } from "../../lib/payload.js";
import { filterRows } from "../../lib/rows.js";
import type { Hint, View, ViewContext, ViewHandle } from "../../lib/view.js";
import { nameCell } from "../fold.js";
import { filterField, foldingTable } from "../folding.js";
import { toOp, toPrograms } from "../jump.js";
import { fillName } from "../names.js";
import { type By, bySelf, groups, IDLE, timeOf, types, type Where, withShares } from "./rows.js";
import { modulesTable, shapesTable } from "./torch.js";

const SIDES: readonly Where[] = ["device", "host"];
const TITLE = { device: "Device", host: "Host" } as const;
/** Columns that are there where the profile knows them. */
const RATES = [
  "tensor_core_percent",
  "gflops_per_second",
  "gbytes_per_second",
  "operational_intensity",
  "bound_by",
] as const;
const BY = { op: "ops", type: "types", layer: "layers", module: "modules", shape: "shapes" } as const;

export const render: View = (el, context, hint) => {
  const { ops } = context.payload;
  if (ops.empty) {
    el.append(h("section", emptyView(ops.empty), toPrograms(context)));
    return;
  }
  const donuts = h("div.donuts");
  const list = opsTable(context);
  let idle = false;
  const drawDonuts = (): void => {
    clear(donuts);
    // A run on the CPU alone has no other side.
    for (const where of SIDES)
      if (where === "host" || context.payload.meta.has_device) donuts.append(...side(context.payload, where, idle));
  };
  const include = toggle("Include idle", idle, (on) => {
    idle = on;
    drawDonuts();
    list.setIdle(on);
  });
  drawDonuts();
  el.append(
    h(
      "section",
      heading("Self time", "colour: host or device; darker: more time", include),
      donuts,
      toPrograms(context),
    ),
    list.element,
  );
  if (hint) list.hint(hint);
  return { hint: list.hint, focusFilter: list.focusFilter } satisfies ViewHandle;
};

/** The two rings of a side, or why there are none. */
function side(payload: Payload, where: Where, idle: boolean): HTMLElement[] {
  const title = TITLE[where];
  if (!timeOf(payload.ops.totals, `${where}_us`)) {
    const why =
      where === "device"
        ? "No op ran on the device during the recording."
        : "Not recorded: the host tracer was off, or no op ran on the host.";
    return [h("div.donut.none", h("h4", h("b", title)), h("p.dim", why))];
  }
  const hue = where === "device" ? "d" : "h";
  return payload.ops.rings
    .filter((ring) => ring.where === where)
    .map((ring) => {
      const { ms: total, parts } = idle ? ring.with_idle : ring;
      return donut({ title: `${title}, by ${ring.by}`, total: ms(total), hue, parts });
    });
}

/** What a row is; `By` are those that are made of the table of ops. */
type Shown = By | "module" | "shape";

interface OpsTable {
  element: HTMLElement;
  setIdle(on: boolean): void;
  hint(hint: Hint): void;
  focusFilter(): void;
}

function opsTable(context: ViewContext): OpsTable {
  const { ops } = context.payload;
  let full = ops.table;
  let order = bySelf(full);
  let where: Where | "any" = "any";
  let type = "";
  let match: ((text: string) => boolean) | null = null;
  /** For the address of the page: the marked row, or else the filter. */
  const setPlace = (text: string): void => context.store.set("op", text || filter.input.value || null);
  const total = h("span.dim");
  const rowsText = h("span");
  const sides = SIDES.filter((name) => timeOf(ops.totals, `${name}_us`) > 0);
  const selfText = sides.map((name) => `on ${name} ${ms(timeOf(ops.totals, `${name}_us`) / 1000)}`).join(", ");

  /** Which choices do not hold for the tables of another kind. */
  const picks: HTMLElement[] = [];
  const pickers = (on: boolean): void => {
    for (const pick of picks) pick.style.display = on ? "" : "none";
  };
  const say = (shown: string, under: string): void => {
    total.textContent = shown;
    rowsText.textContent = under;
    pickers(false);
  };
  const { modules, shapes } = ops;
  const others = [
    ...(modules
      ? [{ id: "module" as const, label: "By module", draw: modulesTable(context, modules, () => match, say) }]
      : []),
    ...(shapes
      ? [{ id: "shape" as const, label: "By shape", draw: shapesTable(context, shapes, () => match, say) }]
      : []),
  ];
  const list = foldingTable<Shown>({
    others,
    context,
    label: "Ops",
    none: "No op matches.",
    file: "nbprof-ops.csv",
    sort: { key: "self_us", descending: true },
    ways: [
      { id: "op", label: "Ops" },
      { id: "type", label: "By type" },
      { id: "layer", label: "By layer" },
    ],
    table: () => full,
    rows: () => {
      const rows = order.filter(
        (row) =>
          (where === "any" || textAt(full.data.where, row) === where) &&
          (!type || textAt(full.data.type, row) === type),
      );
      return match ? filterRows(full, rows, ["op", "type"], match) : rows;
    },
    groups: (rows, by) => groups(full, rows, by as By),
    columns: (data) => columns(full, data),
    folded: (spec, by, now, open) => {
      if (spec.key === "type" && by === "type") return null;
      if (spec.key !== "op") return undefined;
      return {
        key: "op",
        label: by === "type" ? "Type" : "Layer",
        grow: true,
        cell: (row, cell) => nameCell(now(), open, row, cell, textAt(now().real.data.op, row), cutOf(full, "op")),
      };
    },
    ofGroups: ["rank", "cumulative_percent"],
    onRow: (row) => {
      if (textAt(full.data.type, row) !== IDLE) context.go("trace", toOp(full, row));
    },
    onSelect: (shown, row) => setPlace(row === null ? "" : textAt(shown.data.op, row)),
    onChange: (rows, found, by) => {
      pickers(true);
      const shown = found ?? rows;
      total.textContent = `${count(shown)} ${shown === 1 ? BY[by].slice(0, -1) : BY[by]}`;
      const part = rows < full.rows ? ` of ${count(full.rows)}` : "";
      const into = found === null ? "" : ` in ${count(found)} ${BY[by]}`;
      rowsText.textContent = `${count(rows)}${part} ops${into}. Click a row ${into ? "to open it" : "for its calls in the trace"}.`;
    },
  });
  const filter = filterField("Filter operations", (test) => {
    match = test;
    list.refresh();
    setPlace("");
  });
  const any = { id: "any", label: "Any" } as const;
  if (sides.length > 1) {
    const ids = [any, { id: "device", label: "Device" }, { id: "host", label: "Host" }];
    picks.push(
      picker("Where", ids, "any", (id) => {
        where = id as Where | "any";
        list.refresh();
      }),
    );
  }
  const kinds = [{ id: "", label: "Any" }, ...types(full).map((id) => ({ id, label: id || "(none)" }))];
  picks.push(
    picker("Type", kinds, "", (id) => {
      type = id;
      list.refresh();
    }),
  );
  const toolbar = h(
    "div.toolbar",
    filter.element,
    ...picks,
    list.modes,
    h("span.end", total, list.wrap, list.download),
  );
  setPlace("");
  return {
    element: h("section", toolbar, list.holder, h("p.more", rowsText, h("span", selfText && `Self time ${selfText}`))),
    setIdle(on) {
      full = withShares(ops.table, ops.totals, on);
      order = bySelf(full);
      list.renew();
    },
    hint: (hint) => {
      const text = hint.filter ?? hint.search;
      if (text === undefined) return;
      filter.set(text);
      list.find((row) => textAt(full.data.op, row) === text || textAt(full.data.type, row) === text);
      setPlace(text);
    },
    focusFilter: () => filter.input.focus(),
  };
}

function columns(full: Table, data: () => Table): ColumnSpec[] {
  const css = (row: number): string => (textAt(data().data.where, row) === "device" ? "device" : "host");
  const rate = (key: string): Drawings => ({ [key]: { narrow: true, missing: (row) => unknown(data(), key, row) } });
  return drawn(full, {
    rank: { dim: true },
    where: {
      cell: (row, cell) => {
        const name = css(row) === "device" ? "Device" : "Host";
        cell.append(swatch(css(row)), h("span.hide-n", `\u2002${name}`));
        cell.title = name;
      },
    },
    type: {
      narrow: true,
      cell: (row, cell) => {
        const type = textAt(data().data.type, row);
        cell.title = type;
        cell.append(h("span.short", type || MISSING));
      },
    },
    op: {
      grow: true,
      cell: (row, cell) => fillName(cell, textAt(data().data.op, row), cutOf(full, "op")),
    },
    total_us: { narrow: true },
    avg_us: { narrow: true },
    avg_self_us: { narrow: true },
    eager: null,
    self_percent: { bar: { css, width: 72 } },
    cumulative_percent: { dim: true, narrow: true },
    ...Object.assign({}, ...RATES.map(rate)),
  });
}

/** What stands in a rate of an op that has none: on a device what it computes and moves is unknown, on the host nobody asks. */
function unknown({ data }: Table, key: string, row: number): string {
  const none = (rate: string): boolean => Number.isNaN(numberAt(data[rate], row));
  const asked = key !== "tensor_core_percent" && textAt(data.where, row) === "device" && textAt(data.op, row) !== IDLE;
  return asked && none("gflops_per_second") && none("gbytes_per_second") ? "unknown" : MISSING;
}
