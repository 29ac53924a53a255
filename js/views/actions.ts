/** What the header offers while Python is there: a comparison with another run, and the report as a file. */

import { connected } from "../lib/connected.js";
import { h, handled, listen, reason } from "../lib/dom.js";
import { button } from "../lib/parts.js";
import type { Notice } from "../lib/payload.js";
import type { Asker } from "../lib/wire.js";

/** Another run: of the kernel, or in the folder of this one. */
interface Other {
  key: string;
  label: string;
  created: string;
}

export interface ActionOptions {
  ask: Asker;
  /** Has the connection made, where it is only made when somebody needs it. */
  connect?: () => void;
  /** Draws another payload in place of this one; null: the first one again. */
  show?: (packed: Uint8Array | null) => Promise<void>;
  /** Whether a comparison is shown that was chosen here. */
  compared?: boolean;
  /** Says above the tabs what failed. */
  say: (notice: Notice | null) => void;
}

export interface Actions {
  element: HTMLElement;
  /** Whether Python may be there: without it nothing is offered. */
  setLive(live: boolean): void;
}

const NONE =
  "No other run is open here or in the folder of this one. Profile another cell, or load a profile with nbprof.load(…).";

function download(page: Uint8Array, name: string): void {
  const url = URL.createObjectURL(new Blob([page as BlobPart], { type: "text/html" }));
  const link = h("a", { href: url, download: name });
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export function actions({ ask, connect, show, compared, say }: ActionOptions, signal: AbortSignal): Actions {
  const element = h("span.actions", { hidden: true });

  /** Runs what a button does; says meanwhile that it does, and afterwards why it failed. */
  async function work(
    control: HTMLButtonElement,
    busy: string,
    failed: string,
    what: () => Promise<void>,
  ): Promise<void> {
    if (control.getAttribute("aria-busy")) return;
    const { textContent: text } = control;
    control.textContent = busy;
    control.setAttribute("aria-busy", "true");
    say(null);
    try {
      await connected(ask, connect, signal);
      await what();
    } catch (error) {
      if (!signal.aborted) say({ kind: "failed", title: failed, text: reason(error) });
    } finally {
      control.textContent = text;
      control.removeAttribute("aria-busy");
    }
  }

  const save = button("Save report", () => {
    void work(save, "Saving…", "The report was not saved:", async () => {
      const reply = await ask.ask({ ask: "report" }, signal);
      download(reply["page"] as Uint8Array, String(reply["name"]));
    });
  });
  save.title = "Downloads this dashboard as one HTML file, which needs no kernel and no network";

  const menu = h("div.menu", { role: "menu", "aria-label": "Compare with", hidden: true });
  const compare = button("Compare ▾", () => (menu.hidden ? open() : close()), {
    "aria-haspopup": "menu",
    "aria-expanded": "false",
    "aria-label": "Compare with another run",
  });

  function close(): void {
    menu.hidden = true;
    compare.setAttribute("aria-expanded", "false");
  }
  const item = (text: string, note: string, choose: () => void): HTMLButtonElement =>
    h("button", { role: "menuitem", tabindex: "-1", on: { click: choose } }, text, note && h("small", note));
  const redraw = (packed: () => Promise<Uint8Array | null>): void => {
    close();
    void work(compare, "Comparing…", "The runs were not compared:", async () => {
      await show?.(await packed());
    });
  };
  const choose = (key: string): void =>
    redraw(async () => (await ask.ask({ ask: "compare", with: key }, signal))["payload"] as Uint8Array);
  function open(): void {
    void work(compare, "Compare ▾", "The other runs could not be listed:", async () => {
      const reply = await ask.ask({ ask: "runs" }, signal);
      const others = reply["runs"] as Other[];
      menu.replaceChildren(
        ...others.map(({ key, label, created }) => item(label, created.slice(5, 16), () => choose(key))),
        ...(compared ? [item("This run alone", "", () => redraw(() => Promise.resolve(null)))] : []),
        ...(others.length ? [] : [h("button", { role: "menuitem", tabindex: "-1", "aria-disabled": "true" }, NONE)]),
      );
      menu.hidden = false;
      compare.setAttribute("aria-expanded", "true");
      menu.querySelector("button")?.focus();
    });
  }
  listen(menu, "keydown", (event) => {
    const items = [...menu.querySelectorAll("button")];
    const index = items.indexOf(event.target as HTMLButtonElement);
    const to = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: items.length - 1 }[event.key];
    if (event.key === "Escape" || event.key === "Tab") {
      close();
      compare.focus();
      if (event.key === "Escape") handled(event);
    } else if (to !== undefined) {
      items[(to + items.length) % items.length]?.focus();
      handled(event);
    }
  });
  listen(element, "focusout", (event) => {
    const { relatedTarget } = event as FocusEvent;
    if (!menu.hidden && relatedTarget && !element.contains(relatedTarget as Node)) close();
  });

  element.append(...(show ? [h("span.menu-of", compare, menu)] : []), save);
  let live = false;
  const offer = (): void => {
    element.hidden = !live || ask.state === "lost";
  };
  ask.onState(offer, signal);
  return {
    element,
    setLive(now) {
      live = now;
      offer();
    },
  };
}
