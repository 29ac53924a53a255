/** How high the lanes are: as high as they need, up to a height that the reader chooses, or the room there is. */

import { h, handled, listen } from "../../lib/dom.js";

/** Most height at first; taller traces scroll inside, as tables do. */
const TALLEST = 560;
const LEAST = 120;
/** What a fixed frame leaves to the details under the lanes. */
const DETAILS = 190;

export interface Room {
  /** Below the lanes: drags them taller. */
  handle: HTMLElement;
  /** The height for lanes that need `full` pixels. */
  height(full: number): number;
}

/** `lanes` is what gets the height; `onChange` is called when the reader changes it. */
export function room(lanes: HTMLElement, onChange: () => void): Room {
  /** What the reader chose. */
  let chosen = 0;
  let full = TALLEST;

  const most = (): number => {
    if (chosen) return chosen;
    const pane = lanes.closest<HTMLElement>(".fixed > .pane");
    if (!pane) return TALLEST;
    const above = lanes.getBoundingClientRect().top - pane.getBoundingClientRect().top + pane.scrollTop;
    return Math.max(LEAST, pane.clientHeight - above - DETAILS);
  };
  const choose = (height: number): void => {
    chosen = Math.max(LEAST, Math.min(full, height));
    onChange();
  };
  const handle = h("div.grow-lanes", {
    role: "separator",
    "aria-orientation": "horizontal",
    "aria-label": "Height of the lanes",
    title: "Drag to make the lanes taller; double click: all of them",
    tabindex: "0",
  });
  let held: { y: number; height: number } | null = null;
  listen(handle, "pointerdown", (event) => {
    held = { y: event.clientY, height: lanes.clientHeight };
    handle.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  listen(handle, "pointermove", (event) => {
    if (held) choose(held.height + event.clientY - held.y);
  });
  const end = (): void => {
    held = null;
  };
  listen(handle, "pointerup", end);
  listen(handle, "pointercancel", end);
  listen(handle, "dblclick", () => choose(lanes.clientHeight < full ? full : TALLEST));
  listen(handle, "keydown", (event) => {
    const by = { ArrowDown: 54, ArrowUp: -54, End: full, Home: -full }[event.key];
    if (by === undefined) return;
    handled(event);
    choose(lanes.clientHeight + by);
  });
  return {
    handle,
    height(needed) {
      full = needed;
      const height = Math.min(needed, most());
      handle.hidden = needed <= LEAST;
      handle.setAttribute("aria-valuenow", String(Math.round(height)));
      handle.setAttribute("aria-valuemax", String(Math.round(needed)));
      return height;
    },
  };
}
