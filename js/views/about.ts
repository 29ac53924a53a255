/** "What is this?": a few sentences on each view, and in JupyterLab the way to its page. */

import { h, marked } from "../lib/dom.js";
import { link } from "../lib/parts.js";
import type { TabId } from "../lib/payload.js";
import { NAMES } from "../lib/tabs.js";

/** In JupyterLab nbprof's plugin says on the page that it has Help, and listens for this event. */
export const HELP_EVENT = "nbprof-help";
const HAS_HELP = "nbprofHelp";

const hasHelp = (): boolean => HAS_HELP in document.body.dataset;
export const offerHelp = (): void => {
  document.body.dataset[HAS_HELP] = "";
};

let serial = 0;

/** The button at the head of a view, and what it opens. `name` is that of the view's tab. */
export function about(id: TabId, name: string): HTMLElement[] {
  const text = h("div.about", {
    id: `nbp-about-${++serial}`,
    role: "note",
    "aria-label": `About ${name}`,
    hidden: true,
  });
  const flip = (): void => {
    text.hidden = !text.hidden;
    button.setAttribute("aria-expanded", String(!text.hidden));
    if (text.firstChild) return;
    const more = link("More in Help →", () => {
      text.dispatchEvent(new CustomEvent(HELP_EVENT, { bubbles: true, composed: true, detail: id }));
    });
    text.append(h("p", ...marked(NAMES[id].about), hasHelp() && " ", hasHelp() && more));
  };
  const button = h(
    "button",
    {
      class: "what",
      "aria-expanded": "false",
      "aria-controls": text.id,
      "aria-label": `What is this? ${name}`,
      on: { click: flip },
    },
    "What is this?",
  );
  return [button, text];
}
