/** Memory before and after: by role, and by the stack that allocated it. */

import { numberAt, textAt } from "../../lib/codec.js";
import { headsOf } from "../../lib/columns.js";
import { h } from "../../lib/dom.js";
import { bytesIn, byteUnit, count } from "../../lib/format.js";
import { downloadButton, heading, tableFilter } from "../../lib/parts.js";
import type { Pair, Table } from "../../lib/payload.js";
import { largestOf } from "../../lib/rows.js";
import { type ColumnSpec, type TableHandle, table } from "../../lib/table.js";
import { capital } from "../../lib/unit.js";
import type { ViewContext } from "../../lib/view.js";
import { changeBar } from "./draw.js";
import { withSign } from "./model.js";

/** The sections; none where neither run says anything about its memory. */
export function memory({ memory }: Pair, context: ViewContext): HTMLElement[] {
  const { roles, stacks, reason, stacks_reason: without } = memory;
  const sections: HTMLElement[] = [];
  if (roles.rows || reason) {
    const body = h("div");
    const scope = roles.rows ? memory.moment : "";
    const list = roles.rows > 0 && byRole(body, roles, context);
    const save = list && downloadButton("memory-by-role-compared.csv", list.csv);
    sections.push(h("section", heading("Memory by role", scope, save), body, reason && h("p.more", reason)));
  }
  if (stacks.rows) sections.push(byStack(stacks, memory.stacks_left_out, context));
  else if (without) sections.push(h("section", heading("Memory by stack"), h("p.dim", without)));
  return sections;
}

function byRole(body: HTMLElement, roles: Table, context: ViewContext): TableHandle {
  const role: ColumnSpec = {
    key: "role",
    grow: true,
    cell: (row, cell) => {
      cell.textContent = capital(textAt(roles.data["role"], row));
    },
  };
  return table(body, {
    table: roles,
    columns: [role, ...figures(roles, context)],
    label: "Memory by role",
    signal: context.signal,
  });
}

function byStack(stacks: Table, left_out: number, context: ViewContext): HTMLElement {
  const { data } = stacks;
  const body = h("div");
  const frames = h("p.dim.lines");
  const devices = new Set(Array.from({ length: stacks.rows }, (_, row) => numberAt(data["device"], row)));
  const location: ColumnSpec = {
    key: "location",
    grow: true,
    cell: (row, cell) => {
      const text = textAt(data["location"], row);
      const state = textAt(data["state"], row);
      cell.title = text;
      cell.append(
        h("span.fold", h("span", { title: text }, text), state !== "both" && h("small.dim.state", ` ${state}`)),
      );
    },
  };
  const tell = (row: number): void => {
    const before = textAt(data["before_stack"], row);
    frames.textContent = textAt(data["stack"], row) + (before && `\n\nBefore:\n${before}`);
  };
  const list = table(body, {
    table: stacks,
    columns: [
      ...(devices.size > 1 ? ["device"] : []),
      location,
      ...figures(stacks, context),
      { key: "before_blocks", narrow: true },
      { key: "after_blocks", narrow: true },
    ],
    filterKeys: ["location", "stack"],
    height: 300,
    label: "Memory by stack",
    signal: context.signal,
    onRow: (row) => {
      tell(row);
      list.select(row);
    },
  });
  tell(0);
  const filter = tableFilter(stacks.rows, "Filter stacks", (text) => list.setFilter(text));
  const tools = h("span.tools", filter, downloadButton("memory-by-stack-compared.csv", list.csv));
  return h(
    "section",
    heading("Memory by stack", "blocks in use at the snapshot, by the stack that allocated them", tools),
    body,
    frames,
    left_out > 0 && h("p.more", `${count(left_out)} that changed least are not in this report.`),
  );
}

/** Bytes before and after, the change with its sign, and as a bar. */
function figures(from: Table, context: ViewContext): ColumnSpec[] {
  const most = largestOf(from, "change_bytes");
  const unit = byteUnit(most);
  const end = bytesIn(most, unit);
  const change = (row: number): number => numberAt(from.data["change_bytes"], row);
  const bar: ColumnSpec = {
    key: "_bar",
    label: `−${end} ··· 0 ··· +${end}`,
    help: headsOf(context.payload.meta, "comparison.memory")("bar").help,
    align: "right",
    width: 128,
    narrow: true,
    cell: (row, cell) => cell.append(changeBar("mem", change(row), most)),
  };
  return [
    { key: "before_bytes" },
    { key: "after_bytes" },
    {
      key: "change_bytes",
      cell: (row, cell) => {
        cell.textContent = withSign(bytesIn(change(row), unit), change(row));
      },
    },
    ...(most ? [bar] : []),
  ];
}
