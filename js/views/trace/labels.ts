/**
 * The column left of the lanes: processes and lanes, opened and closed by a click. Only labels in view are elements;
 * the keyboard reaches the others as the arrow keys scroll to them.
 */

import { clear, h, handled, listen, modified } from "../../lib/dom.js";
import { count } from "../../lib/format.js";
import { MOST_TOGETHER } from "./draw.js";
import { type Band, bandsIn, isThread } from "./layout.js";
import type { Model } from "./model.js";
import type { LaneHead } from "./source.js";
import { axisText } from "./units.js";

/** "the longest 1,200 of 9,000 events" for the tooltip of a lane. */
function laneTitle(lane: LaneHead): string {
  const { shown, events } = lane;
  const what = lane.kind === "counter" ? "samples" : "events";
  const here = shown < events ? `the longest ${count(shown)} of ${count(events)} ${what}` : `${count(events)} ${what}`;
  return [lane.name, lane.note, here].filter(Boolean).join(" · ");
}

export interface LabelsOptions {
  model: Model;
  /** Small text beside the heading of a process. */
  note(process: string): string;
  /** The part of the page of lanes that is in view, and how to move it. */
  view(): { top: number; bottom: number };
  scrollTo(top: number): void;
}

export interface Labels {
  /** Of the lanes that scroll, and of those that stay at the top. */
  column: HTMLElement;
  pinned: HTMLElement;
  draw(): void;
}

export function labels(options: LabelsOptions): Labels {
  const { model } = options;
  const column = h("div.labels", { role: "tree", "aria-label": "Tracks" });
  const pinned = h("div.labels.pinned", { role: "tree", "aria-label": "Pinned tracks" });
  /** What the keyboard is at; it alone is a stop of Tab. */
  let current = "";
  let drawn = "";

  const bands = (): readonly Band[] => [...model.pinnedBands, ...model.bands];

  function draw(): void {
    const { top, bottom } = options.view();
    const seen = bandsIn(model.bands, top, bottom);
    // What the keyboard is at stays an element, or focus would be lost as it scrolls away.
    const currentBand = model.bands.find((band) => band.key === current);
    const extra = currentBand && !seen.includes(currentBand) ? [currentBand] : [];
    const look = (band: Band): string => `${band.key} ${band.top} ${band.height} ${band.open} ${noteOf(band)}`;
    const key = [current, ...model.pinnedBands.map(look), "", ...extra.map(look), ...seen.map(look)].join("\n");
    if (key === drawn) return;
    drawn = key;
    const root = column.getRootNode() as Document | ShadowRoot;
    const focused = root.activeElement instanceof HTMLElement ? root.activeElement.dataset.key : undefined;
    if (!bands().some((band) => band.key === current)) current = bands()[0]?.key ?? "";
    column.style.height = `${model.height}px`;
    pinned.style.height = `${model.pinnedHeight}px`;
    clear(column);
    clear(pinned);
    for (const band of model.pinnedBands) pinned.append(label(band));
    for (const band of [...extra, ...seen]) column.append(label(band));
    if (focused) focus(focused);
  }

  const focus = (key: string): void => {
    for (const element of [...pinned.children, ...column.children])
      if (element instanceof HTMLElement && element.dataset.key === key) element.focus({ preventScroll: true });
  };

  const noteOf = (band: Band): string => {
    if (band.kind === "process") return options.note(band.process);
    const lane = band.kind === "lane" ? model.lanes.get(band.lane) : undefined;
    return lane ? (lane.kind === "counter" && axisText(lane)) || lane.note : "";
  };

  function label(band: Band): HTMLElement {
    const lane = band.kind === "lane" ? model.lanes.get(band.lane) : undefined;
    const opens = band.kind !== "lane" || (lane?.kind !== "counter" && (lane?.depths ?? 0) > 1);
    const isPinned = band.kind === "lane" && model.pinned.includes(band.lane);
    const [text, title] = lane
      ? [lane.name, laneTitle(lane)]
      : band.kind === "process"
        ? [band.process, band.process]
        : [restText(model, band), restTitle(band)];
    return h(
      "div",
      {
        class: `tlab ${band.kind === "process" ? "p" : lane && !opens ? "" : "sub"}`,
        role: "treeitem",
        style: { top: `${band.top}px`, height: `${band.height}px` },
        title,
        "aria-level": band.kind === "process" ? "1" : "2",
        "aria-expanded": opens ? String(band.open) : undefined,
        "data-key": band.key,
        tabindex: band.key === current ? "0" : "-1",
        on: {
          click: () => {
            current = band.key;
            if (opens) model.toggle(band);
            else draw();
          },
        },
      },
      // The note beside it gets what a short name leaves, and of a long one up to about half.
      h(
        "span",
        { style: { minWidth: `min(45%,${text.length}ch)` } },
        opens && h("i", { "aria-hidden": "true" }, band.open ? "▾" : "▸"),
        text,
      ),
      h("small", noteOf(band)),
      lane && pinButton(lane.id, isPinned),
    );
  }

  const pinButton = (lane: number, isPinned: boolean): HTMLElement =>
    h(
      "button",
      {
        class: isPinned ? "pin on" : "pin",
        tabindex: "-1",
        "aria-label": isPinned ? "Unpin" : "Pin to the top",
        title: isPinned ? "Unpin (P)" : "Keep at the top (P)",
        on: {
          click: (event: Event) => {
            handled(event);
            model.pin(lane);
          },
        },
      },
      isPinned ? "×" : "↥",
    );

  function move(to: Band | undefined): void {
    if (!to) return;
    current = to.key;
    if (!model.pinnedBands.includes(to)) {
      const { top, bottom } = options.view();
      if (to.top < top) options.scrollTo(to.top);
      else if (to.top + to.height > bottom)
        options.scrollTo(Math.max(0, Math.min(to.top, to.top + to.height - (bottom - top))));
    }
    draw();
    focus(to.key);
  }

  function press(event: KeyboardEvent): boolean {
    const all = bands();
    const index = all.findIndex((band) => band.key === current);
    const band = all[index];
    if (!band) return false;
    switch (event.key) {
      case "ArrowDown":
        move(all[index + 1]);
        return true;
      case "ArrowUp":
        move(all[index - 1]);
        return true;
      case "Home":
        move(all[0]);
        return true;
      case "End":
        move(all.at(-1));
        return true;
      case "ArrowRight":
        if (!band.open) model.toggle(band);
        return true;
      case "ArrowLeft":
        if (band.open && (band.kind !== "lane" || band.depths > 1)) model.toggle(band);
        else move(all.slice(0, index).findLast((each) => each.kind === "process"));
        return true;
      case "Enter":
      case " ":
        if (band.kind !== "lane" || (model.lanes.get(band.lane)?.depths ?? 0) > 1) model.toggle(band);
        return true;
      case "p":
      case "P":
        if (band.kind === "lane") model.pin(band.lane);
        return band.kind === "lane";
      default:
        return false;
    }
  }

  for (const element of [column, pinned]) {
    listen(element, "keydown", (event) => {
      if (!modified(event) && press(event)) handled(event);
    });
    listen(element, "focusin", (event) => {
      current = (event.target as HTMLElement).dataset.key ?? current;
    });
  }
  return { column, pinned, draw };
}

/** "11 more threads"; lanes, where not all of them are threads. */
function restText(model: Model, band: Band): string {
  const lanes = band.kind === "lane" ? [] : band.lanes;
  const threads = lanes.every((id) => isThread(model.lanes.get(id)));
  return `${count(lanes.length)} more ${threads ? "threads" : "lanes"}`;
}

function restTitle(band: Band): string {
  const closed = band.kind !== "lane" && band.lanes.length > MOST_TOGETHER;
  return `Those with few events${closed ? `; closed, the ${MOST_TOGETHER} with the most events are drawn` : ""}`;
}
