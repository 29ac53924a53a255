/** The calls of both runs as one flame graph: as wide as their time in one run, red where they take longer, blue where less. */

import { numberAt, textAt } from "../../lib/codec.js";
import { boxOf, clear, h, handled, listen, modified } from "../../lib/dom.js";
import { num, signed } from "../../lib/format.js";
import { downloadButton, heading, hoverCard, segmented, tableFilter } from "../../lib/parts.js";
import type { ComparedCalls, Pair } from "../../lib/payload.js";
import { table } from "../../lib/table.js";
import { unitOf } from "../../lib/unit.js";
import type { ViewContext } from "../../lib/view.js";
import { boxes, callsOf, changed, pathOf } from "./model.js";

type Side = "before" | "after";

const ROW = 20;
const DIGITS = 3;

/** The sections; none where no calls can be compared. */
export function flame(pair: Pair, context: ViewContext): HTMLElement[] {
  // Outputs of earlier builds have none.
  const all = pair.calls ?? [];
  const [first] = all;
  const reason = pair.calls_reason ? h("p.more", `Python functions are not compared: ${pair.calls_reason}.`) : "";
  if (!first) return reason ? [h("section", heading("Flame graph of the difference"), reason)] : [];
  const section = h("section");
  let side: Side = "after";
  let tree = first;
  const body = h("div");
  const rest = h("div");
  const graph = (): void => body.replaceChildren(graphOf(tree, side, context.signal));
  const scopeOf = (each: ComparedCalls): string => `ms ${each.per_step ? unitOf(pair).per : "in the whole profile"}`;
  const scope = h("small");
  const draw = (): void => {
    graph();
    scope.textContent = scopeOf(tree);
    const list = h("div", { style: { marginTop: "16px" } }, ...listOf(tree, scopeOf(tree), context));
    rest.replaceChildren(legend(tree), list);
  };
  const sides = [
    { id: "before" as Side, label: "As before" },
    { id: "after" as Side, label: "As after" },
  ];
  // Made once, so that the focus stays on them.
  const width = segmented("Width of the boxes", sides, side, (id) => {
    side = id;
    graph();
  });
  const choices = all.map(({ id, label }) => ({ id, label }));
  const kinds =
    choices.length > 1 &&
    segmented("Calls", choices, tree.id, (id) => {
      tree = all.find((each) => each.id === id) ?? first;
      draw();
    });
  draw();
  section.append(
    h("h3.wrap", "Flame graph of the difference", scope, h("span.tools", kinds, width)),
    body,
    rest,
    reason,
  );
  return [section];
}

function legend(tree: ComparedCalls): HTMLElement {
  const { left_out: left } = tree;
  const rest = `${num(left)} calls that take less time are not in this drawing.`;
  return h(
    "p.more",
    h(
      "span.legend",
      h("span", h("i.sw.longer"), "longer by itself"),
      h("span", h("i.sw.shorter"), "shorter"),
      tree.id === "python" && h("span", h("i.sw.same"), "may be chance (95%), or too few samples"),
    ),
    left > 0 && h("span", rest),
  );
}

function graphOf(tree: ComparedCalls, side: Side, signal: AbortSignal): HTMLElement {
  const calls = callsOf(tree.calls, side);
  const element = h("div.flame", { role: "tree", tabindex: "0", "aria-label": `${tree.label}, ${side}` });
  const card = hoverCard(element, signal);
  const items = new Map<number, HTMLElement>();
  let root = -1;
  let current = -1;

  const draw = (): void => {
    const shown = boxes(calls, root);
    clear(element);
    items.clear();
    const deepest = shown.reduce((most, { level }) => Math.max(most, level), 0);
    element.style.setProperty("--rows", String(shown.length ? deepest + 1 : 1));
    if (!shown.length) element.append(h("p.dim", `No call was recorded ${side}.`));
    for (const { row, left, width, level } of shown) {
      const item = itemOf(row, left, width, level);
      items.set(row, item);
      element.append(item);
    }
    mark(items.has(current) ? current : (shown[0]?.row ?? -1), false);
  };

  const itemOf = (row: number, left: number, width: number, level: number): HTMLElement => {
    const change = numberAt(tree.calls.data["self_change_ms"], row);
    const css = isChance(tree, row) || !change ? "same" : change > 0 ? "longer" : "shorter";
    const name = textAt(tree.calls.data["name"], row);
    const sign = css === "same" ? "" : ` ${signed(change, 2)}`;
    return h(
      "div",
      {
        class: `fb ${css}`,
        id: `${id}-${row}`,
        role: "treeitem",
        "aria-level": level + 1,
        "aria-label": `${name}${sign}: ${spoken(tree, row)}`,
        "data-row": row,
        style: {
          left: `${(100 * left).toFixed(3)}%`,
          width: `${(100 * width).toFixed(3)}%`,
          top: `${level * ROW}px`,
          "--u": `${Math.min(1, Math.abs(change) / calls.most || 0).toFixed(3)}`,
        },
      },
      h("span", `${name}${sign}`),
    );
  };

  const mark = (row: number, show = true): void => {
    items.get(current)?.classList.remove("cur");
    current = row;
    const item = items.get(row);
    item?.classList.add("cur");
    element.setAttribute("aria-activedescendant", item?.id ?? "");
    if (!show || !item) return;
    item.scrollIntoView({ block: "nearest", inline: "nearest" });
    tell(row, item);
  };

  const tell = (row: number, item: HTMLElement): void => {
    const { data } = tree.calls;
    const value = (key: string): string => num(numberAt(data[key], row), DIGITS);
    const margin = (key: string): string => (Number.isFinite(numberAt(data[key], row)) ? `± ${value(key)} (95%)` : "");
    const line = (label: string, kind: string, prefix: string) => ({
      label,
      value: `${value(`before_${kind}_ms`)} → ${value(`after_${kind}_ms`)}`,
      note: `${changed(numberAt(data[`${prefix}change_ms`], row), DIGITS)} ${margin(`${prefix}margin_ms`)}`,
    });
    const file = textAt(data["file"], row);
    const rows = [line("total", "total", ""), line("self", "self", "self_")];
    if (file) rows.push({ label: "file", value: `${file}:${numberAt(data["line"], row)}`, note: "" });
    card.show(boxOf(item), { title: textAt(data["name"], row), total: stateOf(tree, row), rows });
  };

  listen(element, "mousemove", (event) => {
    const item = (event.target as Element).closest<HTMLElement>(".fb");
    if (item) tell(Number(item.dataset["row"]), item);
    else card.hide();
  });
  listen(element, "mouseleave", () => card.hide());
  listen(element, "blur", () => card.hide());
  const zoom = (row: number): void => {
    root = row === root ? numberAt(tree.calls.data["_parent"], row) : row;
    card.hide();
    draw();
  };
  listen(element, "click", (event) => {
    const item = (event.target as Element).closest<HTMLElement>(".fb");
    if (!item) return;
    current = Number(item.dataset["row"]);
    zoom(current);
  });
  listen(element, "keydown", (event) => {
    if (modified(event) || current < 0) return;
    const caller = calls.parent(current);
    const siblings = calls.inside(caller).filter((row) => items.has(row));
    const place = siblings.indexOf(current);
    const moves: Record<string, number | undefined> = {
      ArrowDown: calls.inside(current).find((row) => items.has(row)),
      ArrowUp: items.has(caller) ? caller : undefined,
      ArrowRight: siblings[place + 1],
      ArrowLeft: siblings[place - 1],
    };
    if (event.key in moves) {
      const next = moves[event.key];
      if (next !== undefined) mark(next);
    } else if (event.key === "Enter" || event.key === " ") zoom(current);
    else if (event.key === "Escape" && root >= 0) zoom(root);
    else return;
    handled(event);
  });
  const id = `fl${++graphs}`;
  draw();
  return element;
}

/** Graphs drawn so far, which tells their boxes apart. */
let graphs = 0;

const isChance = ({ calls }: ComparedCalls, row: number): boolean => numberAt(calls.data["_chance"], row) > 0;

const stateOf = ({ calls }: ComparedCalls, row: number): string => {
  const state = textAt(calls.data["state"], row);
  return state === "both" ? "" : state;
};

function spoken(tree: ComparedCalls, row: number): string {
  const { data } = tree.calls;
  const value = (key: string): string => num(numberAt(data[key], row), DIGITS);
  const times = `${value("before_total_ms")} to ${value("after_total_ms")} ms`;
  const chance = isChance(tree, row) ? "the change may be chance" : "";
  return [times, `self ${value("before_self_ms")} to ${value("after_self_ms")} ms`, chance, stateOf(tree, row)]
    .filter(Boolean)
    .join(", ");
}

/** The same as a table, by the change of the self time. */
function listOf(tree: ComparedCalls, scope: string, context: ViewContext): HTMLElement[] {
  const { calls } = tree;
  const shape = callsOf(calls, "after");
  const size = (row: number): number => Math.abs(numberAt(calls.data["self_change_ms"], row));
  const order = Array.from({ length: calls.rows }, (_, row) => row).sort((a, b) => size(b) - size(a));
  const body = h("div");
  const list = table(body, {
    table: calls,
    columns: [
      {
        key: "name",
        grow: true,
        cell: (row, cell) => {
          const path = pathOf(shape, row, (each) => textAt(calls.data["name"], each));
          cell.title = path.join(" › ");
          const state = stateOf(tree, row);
          const around = path.at(-2);
          cell.append(
            h(
              "span.fold",
              h("span", around !== undefined && h("span.dim", `${around} › `), path.at(-1)),
              state && h("small.dim.state", ` ${state}`),
            ),
          );
        },
      },
      { key: "before_self_ms" },
      { key: "after_self_ms" },
      {
        key: "self_change_ms",
        cell: (row, cell) => {
          cell.textContent = changed(numberAt(calls.data["self_change_ms"], row), DIGITS);
        },
      },
      ...(tree.id === "python" ? [{ key: "self_margin_ms", narrow: true, dim: true }] : []),
      { key: "before_total_ms", narrow: true },
      { key: "after_total_ms", narrow: true },
    ],
    filterKeys: ["name", "file"],
    label: `${tree.label}: calls that changed most`,
    height: 320,
    signal: context.signal,
  });
  list.setRows(order.filter((row) => size(row) > 0));
  const filter = tableFilter(calls.rows, "Filter calls", (text) => list.setFilter(text));
  const csv = downloadButton(`${tree.id}-calls-compared.csv`, list.csv);
  return [heading("Calls that changed most", `self time, ${scope}`, h("span.tools", filter, csv)), body];
}
