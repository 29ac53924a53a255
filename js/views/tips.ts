/** Heads of columns by keyboard: what a column means is shown where the focus is, and the arrow keys go from head to head. */

import { hoverCard } from "../lib/card.js";
import { boxOf, handled, listen, modified } from "../lib/dom.js";

const HEAD = "th [title]";

export function headTips(frame: HTMLElement, signal: AbortSignal): void {
  const card = hoverCard(frame, signal);
  let shown = false;
  const hide = (): void => {
    shown = false;
    card.hide();
  };
  const headOf = (event: Event): HTMLElement | null => (event.target as Element).closest<HTMLElement>(HEAD);
  listen(frame, "focusin", (event) => {
    const head = headOf(event);
    // A mouse has the browser's own tooltip.
    if (!head?.matches(":focus-visible")) return;
    card.show(boxOf(head), { title: head.title, rows: [], two: true });
    shown = true;
  });
  listen(frame, "focusout", hide);
  listen(
    frame,
    "keydown",
    (event) => {
      const head = headOf(event);
      if (!head || modified(event)) return;
      if (event.key === "Escape" && shown) hide();
      else {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!by) return;
        const heads = [...(head.closest("tr")?.querySelectorAll<HTMLElement>(HEAD) ?? [])].filter(
          (each) => each.offsetParent,
        );
        heads[heads.indexOf(head) + by]?.focus();
      }
      handled(event);
    },
    { capture: true },
  );
}
