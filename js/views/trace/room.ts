/** How high the lanes are: as high as they need, up to a height that the reader chooses, or the room that a page has for them. */

import { boxOf, h, handled, listen, zoomOf } from "../../lib/dom.js";
import { lanesShown, onPageOptions } from "../../lib/page-options.js";
import { RULER } from "./draw.js";
import { ROW } from "./layout.js";

/** Most height at first; taller traces scroll inside, as tables do. */
const TALLEST = 560;
const LEAST = 120;

/** What a fixed frame leaves to the details under the lanes. */
const DETAILS = 190;
/** What a report has around the dashboard, above and below together. */
const AROUND = 32;
/** The least that lanes have on a page of their own. */
const LEAST_PAGE = 360;

export interface Room {
  /** Below the lanes: drags them taller. */
  handle: HTMLElement;
  /** The height for lanes that need `full` pixels. */
  height(full: number): number;
  /** What the reader chose; 0: nothing. */
  readonly chosen: number;
  choose(height: number): void;
}

/** The window that the dashboard has for itself: a tab of JupyterLab, or that of a report; null in the output of a cell. */
function pageOf(host: Element): Element | null {
  const tab = host.closest(".nbprof-body");
  // A frame within a page may be made as high as what is in it: lanes that fill it would never stop growing.
  const page = globalThis.top === globalThis.self && host.closest("body > main > [data-nbprof]");
  return tab ?? (page ? document.documentElement : null);
}

/** `lanes` is what gets the height; `onChange` is called when the reader or the window changes it. */
export function room(lanes: HTMLElement, onChange: () => void, signal: AbortSignal): Room {
  /** What the reader chose. */
  let chosen = 0;
  let full = TALLEST;
  let page: Element | null = null;
  let below: number | null = null;
  const observer = new ResizeObserver(onChange);
  listen(signal, "abort", () => observer.disconnect());
  onPageOptions(signal, onChange);

  const tallest = (): number => {
    const lanes = lanesShown();
    return lanes ? Math.max(LEAST, lanes * ROW + RULER) : TALLEST;
  };
  const usual = (): number => {
    const top = boxOf(lanes).top;
    const pane = lanes.closest<HTMLElement>(".fixed > .pane");
    if (pane) {
      const above = top - boxOf(pane).top + pane.scrollTop;
      return Math.max(LEAST, pane.clientHeight - above - DETAILS);
    }
    const root = lanes.getRootNode();
    if (!(root instanceof ShadowRoot)) return tallest();
    if (!page) {
      page = pageOf(root.host);
      if (page) observer.observe(page);
      if (page) listen(globalThis, "resize", onChange, { signal });
    }
    if (!page) return tallest();
    // What stands below the lanes while nothing is selected: details that grow make the page scroll, not the lanes jump.
    below ??= boxOf(root.host).bottom - boxOf(lanes).bottom + (page === document.documentElement ? AROUND : 0);
    return Math.max(LEAST_PAGE, page.clientHeight - (top - boxOf(root.host).top) - below);
  };
  const choose = (height: number): void => {
    chosen = Math.max(LEAST, Math.min(full, height));
    onChange();
  };
  const handle = h("div.grow-lanes", {
    role: "separator",
    "aria-orientation": "horizontal",
    "aria-label": "Height of the lanes",
    title: "Drag to make the lanes taller; double-click to show all of them",
    tabindex: "0",
  });
  let held: { y: number; height: number } | null = null;
  listen(handle, "pointerdown", (event) => {
    held = { y: event.clientY, height: lanes.clientHeight };
    handle.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  listen(handle, "pointermove", (event) => {
    if (held) choose(held.height + (event.clientY - held.y) / zoomOf(lanes));
  });
  const end = (): void => {
    held = null;
  };
  listen(handle, "pointerup", end);
  listen(handle, "pointercancel", end);
  listen(handle, "dblclick", () => choose(lanes.clientHeight < full ? full : usual()));
  listen(handle, "keydown", (event) => {
    const by = { ArrowDown: 54, ArrowUp: -54, End: full, Home: -full }[event.key];
    if (by === undefined) return;
    handled(event);
    choose(lanes.clientHeight + by);
  });
  return {
    handle,
    choose,
    get chosen() {
      return chosen;
    },
    height(needed) {
      full = needed;
      const height = Math.min(needed, chosen || usual());
      handle.hidden = needed <= LEAST;
      handle.setAttribute("aria-valuenow", String(Math.round(height)));
      handle.setAttribute("aria-valuemax", String(Math.round(needed)));
      return height;
    },
  };
}
