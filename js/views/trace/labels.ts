/** The column left of the lanes: processes and lanes, opened and closed by a click. */

import { clear, h } from "../../lib/dom.js";
import { count, num } from "../../lib/format.js";
import type { Trace } from "../../lib/payload.js";
import type { Band } from "./layout.js";
import type { Model } from "./model.js";
import { idle } from "./range.js";

/** What stands beside the heading of a process: how busy its device was, or how many threads there are. */
export function processNote(model: Model, lanes: readonly number[]): string {
  const { trace } = model;
  const part = idle(trace, model.rows, lanes, 0, trace.end);
  if (part !== null) return `${num(100 - part, 1)}% busy`;
  const threads = lanes.filter((lane) => trace.lanes[lane]?.kind === "host").length;
  return threads ? `${count(threads)} ${threads === 1 ? "thread" : "threads"}` : "";
}

/** "1,200 of 9,000 events shown" for the tooltip of a lane. */
export function laneTitle(trace: Trace, lane: number): string {
  const data = trace.lanes[lane];
  if (!data) return "";
  const here = data.start.length;
  const events =
    here < data.events ? `the longest ${count(here)} of ${count(data.events)} events` : `${count(here)} events`;
  return [data.name, data.note, events].filter(Boolean).join(" · ");
}

/** Draws the labels of all bands; they are as tall as their bands. */
export function drawLabels(column: HTMLElement, model: Model, notes: Map<string, string>): void {
  const focused = column.querySelector<HTMLElement>(":focus")?.dataset.key;
  clear(column);
  for (const band of model.bands) column.append(label(band, model, notes));
  if (focused) {
    [...column.querySelectorAll<HTMLElement>("[data-key]")].find((el) => el.dataset.key === focused)?.focus();
  }
}

function label(band: Band, model: Model, notes: Map<string, string>): HTMLElement {
  const style = { height: `${band.height}px` };
  const mark = band.open ? "▾" : "▸";
  const lane = band.kind === "lane" ? model.trace.lanes[band.lane] : undefined;
  if (lane && lane.depths <= 1) {
    return h(
      "div.tlab",
      { style, title: band.kind === "lane" ? laneTitle(model.trace, band.lane) : "" },
      h("span", lane.name),
      h("small", lane.note),
    );
  }
  const [text, note, title] =
    band.kind === "lane"
      ? [lane?.name ?? "", lane?.note ?? "", laneTitle(model.trace, band.lane)]
      : band.kind === "process"
        ? [band.process, notes.get(band.process) ?? "", band.process]
        : [`${count(band.lanes.length)} more threads`, "", "Threads with little in them"];
  return h(
    "button",
    {
      class: `tlab ${band.kind === "process" ? "p" : "sub"}`,
      style,
      title,
      "aria-expanded": String(band.open),
      "data-key": band.key,
      // One stop a process, not one a thread.
      tabindex: band.kind === "lane" ? "-1" : "0",
      on: { click: () => model.toggle(band) },
    },
    h("span", h("i", { "aria-hidden": "true" }, mark), text),
    h("small", note),
  );
}
