/** Tables of a range: time by name, and how busy each lane was. Pure orders, and their rows. */

import { toCsv } from "../../../lib/csv.js";
import { type Cut, cuts } from "../../../lib/cut.js";
import { h } from "../../../lib/dom.js";
import { count, displayName, num } from "../../../lib/format.js";
import { link } from "../../../lib/parts.js";
import { CATEGORIES, type Table } from "../../../lib/payload.js";
import { fillName } from "../../names.js";
import type { LaneBusy, RangeInfo, Share, SliceRef } from "../source.js";
import type { LaneOf } from "./words.js";

export type ShareKey = "name" | "on" | "count" | "self_ns" | "total_ns";
export type BusyKey = "lane" | "count" | "busy_ns";

export interface Order<K> {
  key: K;
  descending: boolean;
}

/** A head was clicked: numbers come largest first, a second click turns round. */
export function nextOrder<K extends string>(now: Order<K>, key: K): Order<K> {
  const text = key === "name" || key === "on" || key === "lane";
  return { key, descending: now.key === key ? !now.descending : !text };
}

const collator = new Intl.Collator("en", { numeric: true });

export function sortShares(shares: readonly Share[], { key, descending }: Order<ShareKey>): Share[] {
  const sign = descending ? -1 : 1;
  return [...shares].sort(
    (a, b) =>
      (key === "name" || key === "on" ? collator.compare(a[key], b[key]) : a[key] - b[key]) * sign ||
      b.self_ns - a.self_ns,
  );
}

/** By lane: in the order of drawing, where that is asked for. */
export function sortBusy(lanes: readonly LaneBusy[], { key, descending }: Order<BusyKey>): LaneBusy[] {
  const sign = descending ? -1 : 1;
  if (key === "lane") return descending ? [...lanes].reverse() : [...lanes];
  return [...lanes].sort((a, b) => (a[key] - b[key]) * sign);
}

/** The unit in which the times of a table are read: by the largest of them. */
export function unitOf(most_ns: number): { unit: "ms" | "µs"; size: number; digits: number } {
  if (most_ns >= 1e6) return { unit: "ms", size: 1e6, digits: 3 };
  return { unit: "µs", size: 1e3, digits: most_ns >= 10e3 ? 1 : 3 };
}

const cssOf = (fill: number): string => CATEGORIES[fill - 1]?.css ?? "other";

/** The first `n`, and what the others sum up to; one left over is told like the rest. */
export function head(
  info: Pick<RangeInfo, "shares" | "others">,
  shares: readonly Share[],
  n: number,
): {
  shown: readonly Share[];
  rest: { names: number; count: number; self_ns: number; total_ns: number | null } | null;
} {
  const few = shares.length <= n + 1 ? shares.length : n;
  const hidden = shares.slice(few);
  const { others } = info;
  if (!hidden.length && !others) return { shown: shares, rest: null };
  const sum = (read: (share: Share) => number): number => hidden.reduce((total, share) => total + read(share), 0);
  return {
    shown: shares.slice(0, few),
    rest: {
      names: hidden.length + (others?.names ?? 0),
      count: sum((share) => share.count) + (others?.count ?? 0),
      self_ns: sum((share) => share.self_ns) + (others?.self_ns ?? 0),
      total_ns: others ? null : sum((share) => share.total_ns),
    },
  };
}

/** What the columns of shares mean. */
export const HEADS = {
  name: "Name of the events, as drawn.",
  on: "Where they ran.",
  count: "Events with this name.",
  self: "Their time, excluding nested events.",
  total: "Their time; nested events each count.",
  percent: "Self time as a share of the total; lanes run concurrently, so the sum may exceed 100.",
};

export interface Column<K> {
  key: K;
  label: string;
  help: string;
  number: boolean;
}

/** A head whose buttons sort. */
export function sortHead<K extends string>(columns: readonly Column<K>[], order: Order<K>, on: (key: K) => void) {
  return h(
    "tr",
    ...columns.map(({ key, label, help, number }) => {
      const sorted = order.key === key;
      return h(
        "th",
        {
          class: [number && "n", sorted && "on"].filter(Boolean).join(" "),
          scope: "col",
          "aria-sort": sorted ? (order.descending ? "descending" : "ascending") : "none",
        },
        h(
          "button",
          { class: "sort", title: help, "data-key": key, on: { click: () => on(key) } },
          label,
          sorted && h("span.arrow-s", { "aria-hidden": "true" }, order.descending ? " ↓" : " ↑"),
        ),
      );
    }),
  );
}

const bar = (css: string, percent: number): HTMLElement =>
  h(
    "span",
    { class: `ib ${css}`, style: { "--v": `${Math.max(0, Math.min(100, percent || 0)).toFixed(1)}%` } },
    h("b", num(percent, 1)),
  );

/** How the names of these rows are cut. */
export const cutOfShares = (shares: readonly Share[]): Cut => cuts(shares.map(({ name }) => displayName(name)));

/** A name; its link goes to the longest of them. */
export function shareRow(share: Share, unit: ReturnType<typeof unitOf>, to: (slice: SliceRef) => void, shorten?: Cut) {
  const cell = h("td.name");
  const name = h("a.plain", {
    href: "#",
    role: "button",
    on: {
      click: (event: Event) => {
        event.preventDefault();
        to(share.longest);
      },
    },
  });
  fillName(name, share.name, shorten);
  cell.title = `${share.name}: go to the longest`;
  name.removeAttribute("title");
  cell.append(name);
  const { size, digits } = unit;
  return h(
    "tr",
    cell,
    h("td.dim", share.on),
    h("td.n", count(share.count)),
    h("td.n", num(share.self_ns / size, digits)),
    h("td.n", num(share.total_ns / size, digits)),
    h("td.n", bar(cssOf(share.fill), share.percent)),
  );
}

export function restRow(
  rest: NonNullable<ReturnType<typeof head>["rest"]>,
  length_ns: number,
  unit: ReturnType<typeof unitOf>,
  show: (() => void) | null,
) {
  const text = `${count(rest.names)} ${rest.names === 1 ? "other" : "others"}`;
  const { size, digits } = unit;
  return h(
    "tr",
    h("td.name", show ? link(text, show) : text),
    h("td"),
    h("td.n.dim", count(rest.count)),
    h("td.n.dim", num(rest.self_ns / size, digits)),
    h("td.n.dim", num(rest.total_ns === null ? null : rest.total_ns / size, digits)),
    h("td.n", bar("other", (100 * rest.self_ns) / length_ns)),
  );
}

export function busyRow(lane: LaneBusy, length_ns: number, unit: ReturnType<typeof unitOf>, laneOf: LaneOf) {
  const { name, process } = laneOf(lane.lane) ?? { name: `Lane ${lane.lane}`, process: "" };
  const { size, digits } = unit;
  return h(
    "tr",
    h("td.name", { title: [name, process].filter(Boolean).join(" · ") }, name, " ", h("span.dim", process)),
    h("td.n", count(lane.count)),
    h("td.n", num(lane.busy_ns / size, digits)),
    h("td.n", num((length_ns - lane.busy_ns) / size, digits)),
    h("td.n", bar("device", lane.percent)),
  );
}

const column = (key: string, kind: "text" | "number") => ({ key, label: key, kind, help: "" });

/** The shares in full precision. */
export function sharesCsv(shares: readonly Share[]): string {
  const numbers = (key: "count" | "self_ns" | "total_ns" | "percent"): Float64Array =>
    Float64Array.from(shares, (share) => share[key]);
  const keys = ["count", "self_ns", "total_ns", "percent"] as const;
  const table: Table = {
    columns: [column("name", "text"), column("on", "text"), ...keys.map((key) => column(key, "number"))],
    data: {
      name: shares.map((share) => share.name),
      on: shares.map((share) => share.on),
      ...Object.fromEntries(keys.map((key) => [key, numbers(key)])),
    },
    rows: shares.length,
  };
  return toCsv(table, [...shares.keys()]);
}

/** The lanes in full precision. */
export function busyCsv(lanes: readonly LaneBusy[], length_ns: number, laneOf: LaneOf): string {
  const table: Table = {
    columns: [
      column("section", "text"),
      column("lane", "text"),
      ...["count", "busy_ns", "idle_ns", "busy_percent"].map((key) => column(key, "number")),
    ],
    data: {
      section: lanes.map(({ lane }) => laneOf(lane)?.process ?? ""),
      lane: lanes.map(({ lane }) => laneOf(lane)?.name ?? ""),
      count: Float64Array.from(lanes, (lane) => lane.count),
      busy_ns: Float64Array.from(lanes, (lane) => lane.busy_ns),
      idle_ns: Float64Array.from(lanes, (lane) => length_ns - lane.busy_ns),
      busy_percent: Float64Array.from(lanes, (lane) => lane.percent),
    },
    rows: lanes.length,
  };
  return toCsv(table, [...lanes.keys()]);
}
