/** What describes the whole run says so, and is grey, while some of the steps are selected. */

import { h } from "../lib/dom.js";
import { link } from "../lib/parts.js";
import type { Steps, TabId } from "../lib/payload.js";
import type { Store } from "../lib/store.js";
import { rangeText } from "./stepstats.js";

/** Views that say of each part whether it follows the selection; the trace has every event. */
const TOLD: ReadonlySet<TabId> = new Set<TabId>(["overview", "input", "trace"]);

/** "whole run": to stand beside a heading. */
export const runTag = (): HTMLElement => h("small.run-tag", "whole run");

/** Marks a part that does not follow the selection. */
export function ofRun<E extends Element>(element: E): E {
  element.classList.add("of-run");
  return element;
}

/** The line at the top of a view that does not follow the selection at all. */
export function wholeNote(id: TabId, steps: Steps, store: Store, signal: AbortSignal): HTMLElement | "" {
  if (TOLD.has(id) || steps.empty) return "";
  const line = h("p.dim.whole-note", { role: "status" });
  const say = (): void => {
    const selection = store.get("selection");
    line.hidden = !selection;
    line.replaceChildren(
      ...(selection
        ? [
            `${rangeText(selection.first, selection.last, "Step")} selected; this view is of the whole run. `,
            link("clear", () => store.set("selection", null)),
          ]
        : []),
    );
  };
  say();
  store.subscribe("selection", say, signal);
  return line;
}
