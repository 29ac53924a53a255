/** Long lists and texts in the details: the first of it, and a button for the rest. */

import { type Child, clear, h } from "../../../lib/dom.js";
import { count } from "../../../lib/format.js";

/** A button that looks like a link, in the flow of text. */
export function more(text: string, onClick: () => void, props: Record<string, string> = {}): HTMLButtonElement {
  return h("button", { class: "more-b", ...props, on: { click: onClick } }, text);
}

/** Names up to this many letters are shown whole. */
const LONG = 180;

/** A name, its end behind a button where it is long. Foreign text: always a text node. */
export function longText(text: string): HTMLElement {
  if (text.length <= LONG + 20) return h("code", text);
  const box = h("span");
  let open = false;
  const draw = (): void => {
    clear(box);
    const button = more(
      open ? "less" : `${count(text.length - LONG)} more letters`,
      () => {
        open = !open;
        draw();
        box.querySelector("button")?.focus();
      },
      { "aria-expanded": String(open) },
    );
    box.append(h("code", open ? text : `${text.slice(0, LONG)}…`), " ", button);
  };
  draw();
  return box;
}

/** The first items of a list, and a button for the others; one more than `most` is not worth a button. */
export function folded<T>(items: readonly T[], most: number, item: (entry: T) => Child, box: HTMLElement): HTMLElement {
  let open = items.length <= most + 1;
  const draw = (): void => {
    clear(box);
    for (const entry of open ? items : items.slice(0, most)) {
      const child = item(entry);
      if (child instanceof Node) box.append(child);
    }
    if (open) return;
    const show = more(
      `${count(items.length - most)} more`,
      () => {
        open = true;
        draw();
        // The button is gone: focus goes to what it brought.
        const shown = box.children[most];
        if (shown instanceof HTMLElement) {
          shown.tabIndex = -1;
          shown.focus({ preventScroll: true });
        }
      },
      { "aria-expanded": "false" },
    );
    box.append(h("div", show));
  };
  draw();
  return box;
}
