/** Ops and kernels by how much they changed. */

import { numberAt, textAt } from "../../lib/codec.js";
import { headsOf } from "../../lib/columns.js";
import { cutOf } from "../../lib/cut.js";
import { h } from "../../lib/dom.js";
import { num } from "../../lib/format.js";
import { nameNode } from "../../lib/name.js";
import { downloadButton, heading, link, segmented, tableFilter } from "../../lib/parts.js";
import type { Pair } from "../../lib/payload.js";
import { CATEGORIES } from "../../lib/payload.js";
import { type ColumnSpec, table } from "../../lib/table.js";
import { unitOf } from "../../lib/unit.js";
import type { ViewContext } from "../../lib/view.js";
import { changeBar, zeroAxis } from "./draw.js";
import { changed } from "./model.js";

type Kind = "ops" | "kernels";

const WORDS = { ops: ["op", "Op"], kernels: ["kernel", "GPU kernel"] } as const;

/** The section; `linked`: the dashboard is that of the second run, so a row leads into its trace. */
export function changes(pair: Pair, context: ViewContext, linked: boolean): HTMLElement {
  const section = h("section");
  const draw = (kind: Kind): void => {
    section.replaceChildren(...kindOf(pair, kind, context, linked, draw));
  };
  draw(pair.ops.rows || !pair.kernels.rows ? "ops" : "kernels");
  return section;
}

function kindOf(
  pair: Pair,
  kind: Kind,
  context: ViewContext,
  linked: boolean,
  draw: (kind: Kind) => void,
): HTMLElement[] {
  const data = pair[kind];
  const [key, word] = WORDS[kind];
  const small = pair.small_us[kind];
  const change = (row: number): number => numberAt(data.data["change_us"], row);
  const most = data.rows ? Math.abs(change(0)) : 0;
  const scope = `${kind === "ops" ? "self time, " : ""}µs ${pair.per_step ? unitOf(pair).per : "in the whole profile"}`;
  const both = pair.ops.rows > 0 && pair.kernels.rows > 0;
  const choices = [
    { id: "ops" as Kind, label: "Ops" },
    { id: "kernels" as Kind, label: "GPU kernels" },
  ];
  const shown = (row: number): boolean => Math.abs(change(row)) >= small && change(row) !== 0;
  const left = Array.from({ length: data.rows }, (_, i) => i).filter((row) => !shown(row)).length;
  const switchKind = both && segmented("What changed", choices, kind, draw);
  if (!data.rows) {
    return [
      heading(`${word}s that changed most`, "", switchKind),
      h("p.dim", `No ${word.toLowerCase()} was recorded.`),
    ];
  }
  const css = (row: number): string => CATEGORIES[numberAt(data.data["_category"], row)]?.css ?? "other";
  const columns: ColumnSpec[] = [
    {
      key,
      grow: true,
      cell: (row, cell) => {
        const name = textAt(data.data[key], row);
        cell.title = name;
        cell.append(h("span.fold", h("span", { title: name }, nameNode(name, cutOf(data, key))), note(row)));
      },
    },
    ...(kind === "ops" ? [{ key: "where", narrow: true, dim: true }] : []),
    { key: "before_us" },
    { key: "after_us" },
    {
      key: "change_us",
      cell: (row, cell) => {
        cell.textContent = changed(change(row), 1);
      },
    },
    {
      key: "_bar",
      label: zeroAxis(most),
      help: headsOf(context.payload.meta, "comparison.ops")("bar").help,
      align: "right",
      width: 128,
      narrow: true,
      cell: (row, cell) => cell.append(changeBar(css(row), change(row), most)),
    },
  ];
  const note = (row: number): Node => {
    const state = textAt(data.data["state"], row);
    const was = state === "renamed" ? `was ${textAt(data.data["before_op"], row)}` : state;
    return state === "both" ? document.createTextNode("") : h("small.dim.state", ` ${was}`);
  };
  const traced = linked && context.payload.meta.tabs.some((tab) => tab.id === "trace");
  const follow = (row: number): void => {
    if (textAt(data.data["state"], row) === "gone") return;
    const name = textAt(data.data[key], row);
    const where = textAt(data.data["where"], row) === "host" ? "host" : "device";
    context.go("trace", { target: kind === "ops" ? { kind: "op", name, where } : { kind: "kernel", name } });
  };
  const body = h("div");
  const list = table(body, {
    table: data,
    columns,
    filterKeys: [key],
    where: shown,
    label: `${word}s that changed most`,
    none: `No ${word.toLowerCase()} changed by ${num(small, small < 1 ? 3 : 0)} µs or more.`,
    signal: context.signal,
    ...(traced && { onRow: follow }),
  });
  const rest = h("p.more");
  const beyond = kind === "ops" ? pair.ops_left_out : pair.kernels_left_out;
  const tell = (all: boolean): void => {
    const counted = left === 1 ? `1 ${word.toLowerCase()} that` : `${num(left)} ${word.toLowerCase()}s that`;
    const sentence = `${counted} changed by less than ${num(small, small < 1 ? 3 : 0)} µs ${left === 1 ? "is" : "are"}`;
    rest.replaceChildren(
      h(
        "span",
        left > 0 && (all ? `With the ${sentence} so small. ` : `The ${sentence} not shown. `),
        left > 0 &&
          link(all ? "Show fewer" : "Show all", () => {
            list.setWhere(all ? shown : undefined);
            tell(!all);
          }),
        beyond > 0 && ` ${num(beyond)} that changed least are not in this report.`,
      ),
    );
  };
  tell(false);
  const filter = tableFilter(data.rows, `Filter ${word.toLowerCase()}s`, (text) => list.setFilter(text));
  const tools = h("span.tools", switchKind, filter, downloadButton(`${kind}-compared.csv`, list.csv));
  return [heading(`${word}s that changed most`, scope, tools), body, rest];
}
