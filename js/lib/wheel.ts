/**
 * Ctrl+wheel over what zooms itself. JupyterLab 4.6 can zoom the panel under the pointer (its setting *zoomOnWheel*). It
 * listens on the window, before all elements: nothing that an element does keeps the panel from being zoomed as well.
 * So the extension, which is loaded before JupyterLab starts, listens there first, and hands the event to the element.
 */

import { listen } from "./dom.js";

/** Marks an element that zooms itself: several bundles may be on one page, and find each other's elements by it. */
const MARK = "data-nbprof-zooms";
/** The event by which it gets what was kept from the page. */
const HANDED = "nbprof:wheel";

/** Calls `fn` with each turn of the wheel over an element that zooms by Ctrl+wheel. */
export function onWheel(element: HTMLElement, fn: (event: WheelEvent) => void): void {
  element.setAttribute(MARK, "");
  listen(element, "wheel", fn, { passive: false });
  element.addEventListener(HANDED, (event) => fn((event as CustomEvent<WheelEvent>).detail));
}

/** Hands Ctrl+wheel over these elements to them alone. What listened on `page` before still gets it. */
export function keepWheel(page: EventTarget): void {
  const keep = (event: WheelEvent): void => {
    if (!event.ctrlKey) return;
    // From the innermost one outwards, through shadow roots.
    const zooming = event.composedPath().find((part) => (part as Partial<Element>).hasAttribute?.(MARK));
    if (!zooming) return;
    event.stopImmediatePropagation();
    zooming.dispatchEvent(new CustomEvent(HANDED, { detail: event }));
  };
  listen(page, "wheel", keep, { capture: true, passive: false });
}
