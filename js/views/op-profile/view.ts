/** Op profile: where the time of compiled programs goes, as a tree, and how well each part uses the device. */

import { numberAt, textAt } from "../../lib/codec.js";
import { moreColumns } from "../../lib/columns.js";
import { append, clear, h, handled, listen, marked, modified } from "../../lib/dom.js";
import { known, num, percent, us } from "../../lib/format.js";
import { downloadButton, emptyView, figures, heading, picker, segmented, toggle } from "../../lib/parts.js";
import type { TabId } from "../../lib/payload.js";
import type { View, ViewHandle } from "../../lib/view.js";
import { filterField } from "../folding.js";
import { hasTrace } from "../jump.js";
import { fillName } from "../names.js";
import { csv, heads, isText } from "./columns.js";
import { details } from "./details.js";
import {
  all,
  type By,
  build,
  hasOps,
  isLow,
  type Node,
  opened,
  type Profile,
  type Row,
  rows,
  type Sort,
  use,
  value,
} from "./model.js";

/** Rows drawn at most: what is beyond is found by closing others, or by searching. */
const MOST_ROWS = 1000;
const LEAST = 0.001;
const NONE = { title: "No ops of compiled programs", text: "The profile has no compiled XLA programs." };

export const render: View = (el, context, hint) => {
  const part = context.payload.op_profile;
  if (!hasOps(part)) {
    el.append(h("section", emptyView(part.empty ?? NONE)));
    return;
  }
  const profile: Profile = part;
  let [by, idle, descending]: [By, boolean, boolean] = ["program", false, true];
  let sort: Sort = "time";
  let [most, tiny] = [25, true];
  let fits: ((node: Node) => boolean) | null = null;
  let root = build(profile, by, idle);
  let open = opened(root);
  let full = new Set<string>();
  let shown: Row[] = [];
  let picked = root;
  const uid = `nbp-op-${Math.random().toString(36).slice(2, 8)}`;
  const card = h("div.op-card", { role: "region", "aria-label": "Details" });
  const thead = h("thead");
  const tbody = h("tbody");
  const grid = h("table.op-tree", { role: "treegrid", tabindex: "0", "aria-label": "Op profile" }, thead, tbody);
  const note = h("p.more");
  const columns = heads(profile);

  const links = {
    trace: hasTrace(context.payload) ? follow : null,
    hlo: context.payload.meta.tabs.some(({ id }) => (id as string) === "hlo")
      ? (node: Node) => context.go("hlo" as TabId, { filter: node.name })
      : null,
    reveal,
  };

  function follow(node: Node): void {
    const name = textAt(profile.ops.trace_op, node.row);
    const place = { name, time_ms: numberAt(profile.ops.at_ms, node.row) };
    context.go("trace", {
      search: name,
      target: profile.where === "cpu" ? { kind: "name", ...place } : { kind: "op", where: "device", ...place },
    });
  }

  function drawHead(): void {
    clear(thead);
    thead.append(
      h(
        "tr",
        ...columns.map(({ key, label, help, css }) => {
          const on = key === sort;
          const state = on ? (descending ? "descending" : "ascending") : "none";
          return h(
            "th",
            { class: `${css}${on ? " on" : ""}`, scope: "col", "aria-sort": isText(key) ? undefined : state },
            isText(key)
              ? h("span.why", { title: help, tabindex: "-1" }, label)
              : h(
                  "button",
                  { class: "sort", title: help, on: { click: () => order(key) } },
                  label,
                  on && h("span.arrow-s", { "aria-hidden": "true" }, descending ? " ↓" : " ↑"),
                ),
          );
        }),
      ),
    );
  }

  function order(key: Sort): void {
    descending = key === sort ? !descending : true;
    sort = key;
    drawHead();
    draw();
    thead.querySelectorAll("th")[columns.findIndex((column) => column.key === key)]?.querySelector("button")?.focus();
  }

  function draw(): void {
    const how = { open, full, sort, descending, most, least: tiny ? LEAST : 0, fits };
    shown = rows(profile, root, how);
    const hidden = shown.length - MOST_ROWS;
    if (hidden > 0) shown.length = MOST_ROWS;
    note.textContent = hidden > 0 ? `${num(hidden)} more rows are not shown: collapse some, or search.` : "";
    clear(tbody);
    tbody.append(...shown.map(line));
    if (fits && shown.length < 2) tbody.append(h("tr.none", h("td", { colspan: columns.length }, "No op matches.")));
    mark(picked);
  }

  function line({ node, depth, more, at: position, of, time: taken }: Row, i: number): HTMLElement {
    const folds = node.children.length > 0 && !more;
    const isOpen = folds && shown[i + 1] !== undefined && (shown[i + 1] as Row).depth > depth;
    const cell = h("td.name");
    const name = h("span");
    if (more) name.append(h("span.dim", `${num(more)} more`));
    else if (node.kind === "op" || node.kind === "fused") fillName(name, node.name);
    else name.append(node.name);
    if (!more) cell.title = node.name;
    cell.append(
      h(
        "span.fold",
        { style: { paddingLeft: `${depth * 12}px` } },
        h("span.tri", { "aria-hidden": "true" }, folds ? (isOpen ? "▾" : "▸") : ""),
        name,
        node.note && !more && h("small.dim", node.note),
      ),
    );
    const share = root.time > 0 ? taken / root.time : Number.NaN;
    return h(
      "tr",
      {
        id: `${uid}-${i}`,
        class: more ? "more-row" : `k-${node.kind}`,
        "aria-level": depth + 1,
        "aria-posinset": position,
        "aria-setsize": of,
        "aria-expanded": folds ? String(isOpen) : undefined,
        "data-at": i,
      },
      cell,
      ...columns.slice(1).map(({ key, css }) => {
        const td = h("td", { class: css });
        if (key === "time") td.append(bar(share, more ? null : node));
        else if (key === "framework_op" && !more) td.append(provenance(node));
        else if (!more && !isText(key)) td.append(figure(key, node));
        return td;
      }),
    );
  }

  /** The share of the time: as much as it would take at the peak in full colour, the wasted rest pale. */
  function bar(share: number, node: Node | null): HTMLElement | string {
    if (!known(share)) return "";
    const wasted = node ? use(profile, node).wasted : Number.NaN;
    const lost = node ? node.unknown / root.time : 0;
    const used = known(wasted) ? share - lost - wasted / root.time : node?.kind === "idle" || !node ? 0 : share - lost;
    const style = { "--v": `${100 * share}%`, "--u": `${100 * Math.max(0, used)}%` };
    return h("span", { class: node?.kind === "idle" ? "ob other" : "ob device", style }, h("b", percent(100 * share)));
  }

  /** The framework op of an op, its end if there is little room. */
  function provenance(node: Node): HTMLElement | string {
    const text = node.kind === "op" ? textAt(profile.ops.framework_op, node.row) : "";
    return text && h("span.from", { title: text }, h("bdi", text));
  }

  function figure(key: Sort, node: Node): HTMLElement | string {
    if (node.kind === "idle") return "";
    const { flops, bytes, wasted } = use(profile, node);
    if (key === "runs") return known(node.runs) ? num(node.runs) : "";
    if (node.unknown > 0 && node.unknown === node.time) return h("span.dim", "unknown");
    if (key === "wasted") return known(wasted) ? percent((100 * wasted) / root.time) : "";
    if (node.kind === "fused") return "";
    const [used, peak] = key === "flops" ? [flops, profile.peak_flops] : [bytes, profile.peak_bytes];
    if (peak === null) return num(value(profile, node, key) / 1000, 1);
    if (!known(used)) return "–";
    const low = key === "flops" && isLow(profile, node);
    return h(low ? "span.use.low" : "span.use", { style: { "--u": String(Math.min(1, used)) } }, percent(100 * used));
  }

  function mark(node: Node, scroll = false): void {
    picked = node;
    const index = shown.findIndex((row) => row.node === node && !row.more);
    for (const row of tbody.querySelectorAll(".cur")) {
      row.classList.remove("cur");
      row.removeAttribute("aria-selected");
    }
    const row = tbody.children[index] as HTMLElement | undefined;
    row?.classList.add("cur");
    row?.setAttribute("aria-selected", "true");
    grid.setAttribute("aria-activedescendant", row?.id ?? "");
    if (scroll && row) {
      const top = row.offsetTop - thead.offsetHeight;
      if (top < wrap.scrollTop) wrap.scrollTop = top;
      else if (row.offsetTop + row.offsetHeight > wrap.scrollTop + wrap.clientHeight)
        wrap.scrollTop = row.offsetTop + row.offsetHeight - wrap.clientHeight;
    }
    clear(card);
    append(card, details(profile, root, node, links));
  }

  /** Opens what a node lies in, and picks it. */
  function reveal(node: Node): void {
    for (let up = node.parent; up; up = up.parent) {
      open.add(up.key);
      full.add(up.key);
    }
    draw();
    mark(node, true);
  }

  function fold(node: Node, on: boolean): void {
    if (on) open.add(node.key);
    else open.delete(node.key);
    draw();
    mark(node);
  }

  /** Another grouping, or with idle: what was picked is looked for again. */
  function rebuild(keep: boolean): void {
    const was = picked;
    root = build(profile, by, idle);
    if (!keep) {
      open = opened(root);
      full = new Set();
    }
    const same = (node: Node): boolean =>
      keep ? node.key === was.key : node.kind === was.kind && node.row === was.row && node.name === was.name;
    picked = [...all(root)].find(same) ?? root;
    draw();
    if (!keep && picked.kind === "op") reveal(picked);
  }

  const wrap = h("div.tw", grid);
  const narrow = columns.filter(({ css }) => css.includes("hide-n")).map(({ label }) => label);
  listen(tbody, "click", (event) => {
    const row = shown[Number((event.target as Element).closest<HTMLElement>("tr[data-at]")?.dataset["at"] ?? -1)];
    if (!row) return;
    const { node } = row;
    if (row.more) {
      full.add(node.key);
      draw();
    } else if (
      node.children.length &&
      (node.kind !== "op" || node === picked || (event.target as Element).closest(".tri"))
    )
      fold(node, !open.has(node.key));
    else mark(node);
    grid.focus({ preventScroll: true });
  });
  listen(grid, "keydown", (event) => {
    if (event.target !== grid || modified(event)) return;
    const index = shown.findIndex((row) => row.node === picked && !row.more);
    const step = (by: number): number => {
      let next = index + by;
      while (shown[next]?.more) next += Math.sign(by);
      return next;
    };
    const last = shown.length - 1;
    const moves: Record<string, number> = {
      ArrowDown: step(1),
      ArrowUp: step(-1),
      PageDown: step(10),
      PageUp: step(-10),
      Home: 0,
      End: shown[last]?.more ? last - 1 : last,
    };
    const isOpen = open.has(picked.key);
    const target = moves[event.key];
    if (target !== undefined) {
      const row = shown[Math.max(0, Math.min(last, target))];
      if (row && !row.more) mark(row.node, true);
    } else if (event.key === "ArrowRight") {
      if (!picked.children.length) return;
      if (isOpen) mark((shown[index + 1] as Row).node, true);
      else fold(picked, true);
    } else if (event.key === "ArrowLeft") {
      if (isOpen && picked.children.length) fold(picked, false);
      else if (picked.parent) mark(picked.parent, true);
    } else if (event.key === "Enter" || event.key === " ") {
      if (picked.kind === "op" && event.key === "Enter") links.trace?.(picked);
      else if (picked.children.length) fold(picked, !isOpen);
    } else if (event.key === "*") {
      for (const each of picked.parent?.children ?? [picked]) if (each.kind !== "op") open.add(each.key);
      draw();
    } else return;
    handled(event);
  });

  const filter = filterField("Find ops", (test) => {
    const { ops } = profile;
    fits =
      test &&
      ((node) =>
        test(node.name) ||
        (node.kind === "op" && [ops.framework_op, ops.source].some((of) => test(textAt(of, node.row)))));
    draw();
  });
  const toolbar = h(
    "div.toolbar",
    filter.element,
    segmented<By>(
      "Group by",
      [
        { id: "program", label: "By program" },
        { id: "category", label: "By category" },
        { id: "provenance", label: "By framework op" },
      ],
      by,
      (id) => {
        by = id;
        rebuild(false);
      },
    ),
    picker(
      "Top",
      ["10", "25", "100", "all"].map((id) => ({ id, label: id })),
      "25",
      (id) => {
        most = Number(id) || Number.POSITIVE_INFINITY;
        draw();
      },
    ),
    toggle("Hide below 0.1%", tiny, (on) => {
      tiny = on;
      draw();
    }),
    profile.idle_us !== null &&
      toggle("Include idle", idle, (on) => {
        idle = on;
        rebuild(true);
      }),
    h(
      "span.end",
      downloadButton("nbprof-op-profile.csv", () => csv(profile)),
    ),
  );
  const legend = columns.some(({ key }) => key === "wasted")
    ? h(
        "span.legend",
        h("span", h("i.sw.device"), "at the peak"),
        h("span", h("i.sw.op-waste"), root.unknown > 0 ? "wasted or unknown" : "wasted"),
      )
    : "";
  el.append(
    figures(profile.figures),
    h(
      "section",
      profile.statement ? h("p.op-say", ...marked(profile.statement)) : "",
      ...profile.notes.map((text) => h("p.more", text)),
      toolbar,
      heading("Time of ops", [profile.device, us(root.busy + root.unknown, 2)].filter(Boolean).join(", "), legend),
      h("div.op-split", h("div", wrap, narrow.length > 0 && moreColumns(grid, narrow), note), card),
    ),
  );
  context.keep(
    (): [string[], string[], string] => [[...open], [...full], picked.key],
    ([was, all_, key]: [string[], string[], string]) => {
      open = new Set(was);
      full = new Set(all_);
      picked = [...all(root)].find((node) => node.key === key) ?? root;
      draw();
    },
  );
  drawHead();
  draw();
  const search = (text: string | undefined): void => {
    if (!text) return;
    filter.set(text);
    const hit = shown.find(({ node }) => node.name === text && node.kind === "op");
    if (hit) mark(hit.node, true);
  };
  search(hint?.filter);
  return {
    hint: (next) => search(next.filter ?? next.search),
    focusFilter: () => filter.input.focus(),
  } satisfies ViewHandle;
};
