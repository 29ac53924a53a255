/** A range in words and tables: what its time was, and how busy each lane was. */

import { clear, h } from "../../../lib/dom.js";
import { count, num } from "../../../lib/format.js";
import { copyButton, heading, picker, segmented } from "../../../lib/parts.js";
import type { RangeInfo, SliceRef } from "../source.js";
import { more } from "./folded.js";
import {
  type BusyKey,
  busyCsv,
  busyRow,
  type Column,
  cutOfShares,
  HEADS,
  head,
  nextOrder,
  type Order,
  restRow,
  type ShareKey,
  shareRow,
  sharesCsv,
  sortBusy,
  sortHead,
  sortShares,
  unitOf,
} from "./shares.js";
import { type LaneOf, length, moment } from "./words.js";

/** Rows before the rest is one line. */
const FIRST = { names: 6, lanes: 8 };
/** Most chips of idle devices: the list of lanes tells the rest. */
const CHIPS = 4;

type Scope = "all" | "pinned" | "view";

const SCOPES: { id: Scope; label: string }[] = [
  { id: "all", label: "All" },
  { id: "pinned", label: "Pinned" },
  { id: "view", label: "In view" },
];

export interface RangeViewOptions {
  laneOf: LaneOf;
  to(slice: SliceRef): void;
  /** To the next idle gap; null where none is known. */
  onGap: (() => void) | null;
  onClear(): void;
  /** Another choice of lanes. */
  onScope(scope: Scope): void;
}

export interface RangeView {
  element: HTMLElement;
  scope(): Scope;
  /** null: no range is marked. */
  draw(info: RangeInfo | null): void;
  /** A range whose numbers are still asked for. */
  wait(from: number, to: number): void;
  /** Why there are no numbers. */
  fail(text: string): void;
}

/** What was chosen stays when another range is marked. */
export function rangeView({ laneOf, to, onGap, onClear, onScope }: RangeViewOptions): RangeView {
  const element = h("div.range");
  const title = h("div");
  const body = h("div.range-body");
  let info: RangeInfo | null = null;
  let by: "name" | "lane" = "name";
  let scope: Scope = "all";
  let all = false;
  let shareOrder: Order<ShareKey> = { key: "self_ns", descending: true };
  let busyOrder: Order<BusyKey> = { key: "lane", descending: false };
  const modes = segmented(
    "Table of the range",
    [
      { id: "name", label: "By name" },
      { id: "lane", label: "By lane" },
    ],
    by,
    (id) => {
      by = id as typeof by;
      all = false;
      drawBody();
    },
  );
  const choose = picker("Lanes", SCOPES, scope, (id) => {
    scope = id;
    onScope(id);
  });
  const csv = copyButton(() => {
    if (!info) return "";
    return by === "name" ? sharesCsv(sorted()) : busyCsv(sortBusy(info.lanes, busyOrder), info.to - info.from, laneOf);
  }, "Copy CSV");
  csv.setAttribute("aria-label", "Copy the table as CSV");
  const gap = (text: string): HTMLElement | null =>
    onGap && more(text, onGap, { title: "Key G; Shift+G: the previous one" });
  const letGo = (): void => {
    onClear();
    // The button is gone: focus goes to what is there instead.
    body.querySelector("button")?.focus();
  };
  const clearing = more("clear", letGo, { title: "Key Esc, or a click beside the slices" });
  clearing.setAttribute("aria-label", "Clear the range");
  const tools = h("div.toolbar.range-tools", modes, choose, h("span.end", gap("next idle gap"), clearing, csv));
  const sorted = () => (info ? sortShares(info.shares, shareOrder) : []);

  function table(label: string, headRow: HTMLElement, rows: HTMLElement[]): HTMLElement {
    return h(
      "div.tx",
      { tabindex: "0", role: "group", "aria-label": label },
      h("table.t", h("thead", headRow), h("tbody", ...rows)),
    );
  }

  /** Draws the table anew with focus on the head that was clicked. */
  function again(key: string): void {
    drawBody();
    body.querySelector<HTMLElement>(`button[data-key="${key}"]`)?.focus();
  }

  function names(range: RangeInfo): HTMLElement {
    const most = Math.max(0, ...range.shares.map((share) => Math.max(share.self_ns, share.total_ns)));
    const unit = unitOf(most);
    const columns: Column<ShareKey | "percent">[] = [
      { key: "name", label: "Name", number: false, help: HEADS.name },
      { key: "on", label: "On", number: false, help: HEADS.on },
      { key: "count", label: "Count", number: true, help: HEADS.count },
      { key: "self_ns", label: `Self ${unit.unit}`, number: true, help: HEADS.self },
      { key: "total_ns", label: `Total ${unit.unit}`, number: true, help: HEADS.total },
      {
        key: "percent",
        label: "% of range",
        number: true,
        help: HEADS.percent,
      },
    ];
    const list = sorted();
    const { shown, rest } = head(range, list, all ? list.length : FIRST.names);
    const open = (): void => {
      all = true;
      drawBody();
      body.querySelector<HTMLElement>(".tx")?.focus();
    };
    const shorten = cutOfShares(list);
    const rows: HTMLElement[] = shown.map((share) => shareRow(share, unit, to, shorten));
    if (rest) rows.push(restRow(rest, range.to - range.from, unit, all ? null : open));
    const order = shareOrder as Order<ShareKey | "percent">;
    const headRow = sortHead(columns, order, (key) => {
      // The share is that of the self time.
      shareOrder = nextOrder(shareOrder, key === "percent" ? "self_ns" : key);
      again(key === "percent" ? "self_ns" : key);
    });
    return table("Time in the range, by name", headRow, rows);
  }

  function lanes(range: RangeInfo): HTMLElement {
    const span = range.to - range.from;
    const unit = unitOf(span);
    const columns: Column<BusyKey | "idle" | "percent">[] = [
      { key: "lane", label: "Lane", number: false, help: "The lane and its section." },
      { key: "count", label: "Count", number: true, help: "Events of the lane that overlap the range." },
      { key: "busy_ns", label: `Busy ${unit.unit}`, number: true, help: "Time in which any event of the lane ran." },
      { key: "idle", label: `Idle ${unit.unit}`, number: true, help: "The rest of the range." },
      { key: "percent", label: "% busy", number: true, help: "Busy time as a share of the range." },
    ];
    const list = sortBusy(range.lanes, busyOrder);
    const few = all || list.length <= FIRST.lanes + 1 ? list.length : FIRST.lanes;
    const rows: HTMLElement[] = list.slice(0, few).map((lane) => busyRow(lane, span, unit, laneOf));
    if (few < list.length) {
      const show = h(
        "button",
        {
          class: "more-b",
          on: {
            click: () => {
              all = true;
              drawBody();
              body.querySelector<HTMLElement>(".tx")?.focus();
            },
          },
        },
        `${count(list.length - few)} other lanes`,
      );
      rows.push(h("tr", h("td.name", { colspan: 5 }, show)));
    }
    const headRow = sortHead(columns, busyOrder as Order<BusyKey | "idle" | "percent">, (key) => {
      const real = key === "idle" || key === "percent" ? "busy_ns" : key;
      const next = nextOrder(busyOrder, real);
      // Most idle first is least busy first.
      busyOrder = key === "idle" && busyOrder.key !== "busy_ns" ? { key: real, descending: false } : next;
      again(real);
    });
    return table("Busy and idle time of each lane", headRow, rows);
  }

  function drawBody(): void {
    clear(body);
    body.removeAttribute("aria-busy");
    if (!info) {
      body.append(
        h(
          "p.dim",
          "Shift+drag marks a range; M marks the selected slice. The range's time by name and by lane is shown here.",
        ),
        gap("Go to the longest idle gap of the devices") ?? "",
      );
      return;
    }
    body.append(tools);
    if (by === "lane" && info.lanes.length) body.append(lanes(info));
    else if (by === "name" && info.shares.length) body.append(names(info));
    else {
      const text =
        scope === "pinned" ? "No lane is pinned, or none of them has a slice here." : "No slice in this range.";
      body.append(h("p.dim", text));
    }
    if (info.note) body.append(h("p.dim", info.note));
  }

  function drawTitle(range: { from: number; to: number } | null, idle: RangeInfo["idle"]): void {
    clear(title);
    const scopeText = range ? `${num(range.from / 1e6, 3)}–${moment(range.to)}, ${length(range.to - range.from)}` : "";
    const chips = idle.slice(0, CHIPS).map(({ process, percent }) =>
      // The words say it; the colour only stresses.
      h("span", { class: percent >= 50 ? "chip in" : "chip" }, `${process} idle ${num(percent, 0)}%`),
    );
    title.append(heading("Range", scopeText, chips.length > 0 && h("span.chips", ...chips)));
  }

  element.append(title, body);
  return {
    element,
    scope: () => scope,
    draw(next) {
      if (next?.from !== info?.from || next?.to !== info?.to) all = false;
      info = next;
      drawTitle(next, next?.idle ?? []);
      drawBody();
    },
    wait(from, to_ns) {
      drawTitle({ from, to: to_ns }, []);
      body.setAttribute("aria-busy", "true");
      if (!info) {
        clear(body);
        body.append(h("p.dim", "Adding up…"));
      }
    },
    fail(text) {
      clear(body);
      body.removeAttribute("aria-busy");
      info = null;
      body.append(h("p.dim", text));
    },
  };
}
