/** What a dashboard offers while the kernel that recorded it is there: to try a remedy, and to insert the changed cell. */

import { connected } from "../lib/connected.js";
import { h, listen, reason } from "../lib/dom.js";
import { num } from "../lib/format.js";
import { button, copyText } from "../lib/parts.js";
import type { Trials } from "../lib/view.js";
import type { Asker } from "../lib/wire.js";

/** Of the page around a dashboard: to put a text into a new cell below. It cancels the event when it has. */
export const INSERT = "nbprof:insert";

export interface Insert {
  text: string;
}

/** What the button asks for, in s: as `budget` of `p.try_` by default. */
const BUDGET_S = 60;

export interface TrialOptions {
  ask: Asker;
  /** Has the connection made, where it is only made when somebody needs it. */
  connect?: () => void;
  /** Draws the run with what came of it. */
  replace?: (packed: Uint8Array) => Promise<void>;
}

export interface LiveTrials extends Trials {
  /** Whether the kernel may be there: without it nothing is offered. */
  setLive(live: boolean): void;
}

export function trials({ ask, connect, replace }: TrialOptions, ending: AbortSignal): LiveTrials {
  let live = false;
  let busy = false;
  const offers = new Set<HTMLElement>();
  const update = (): void => {
    for (const element of offers) element.hidden = !busy && (!live || ask.state === "lost");
  };
  ask.onState(update, ending);
  const offered = (element: HTMLElement, signal: AbortSignal): HTMLElement => {
    offers.add(element);
    listen(signal, "abort", () => offers.delete(element), { once: true });
    update();
    return element;
  };

  async function run(rule: string, control: HTMLButtonElement, status: HTMLElement): Promise<void> {
    if (busy) {
      status.textContent = "Another remedy is being tried. Try this one when that has ended.";
      return;
    }
    busy = true;
    control.setAttribute("aria-busy", "true");
    const began = performance.now();
    const what = h("span", { role: "status" }, "Waiting for the kernel");
    const clock = h("span", { "aria-hidden": "true" });
    const tick = (): void => {
      clock.textContent = ` · ${num((performance.now() - began) / 1000, 0)} s of about ${BUDGET_S} s. Interrupting the kernel ends it.`;
    };
    tick();
    const timer = setInterval(tick, 1000);
    status.replaceChildren(what, clock);
    try {
      await connected(ask, connect, ending);
      const news = (text: string): void => {
        what.textContent = `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
      };
      const reply = await ask.ask({ ask: "try", rule }, ending, news);
      status.replaceChildren();
      await replace?.(reply["payload"] as Uint8Array);
    } catch (error) {
      if (!ending.aborted) status.replaceChildren(h("span", { role: "alert" }, reason(error)));
    } finally {
      clearInterval(timer);
      busy = false;
      control.removeAttribute("aria-busy");
      update();
    }
  }

  async function insert(experiment: string, control: HTMLButtonElement, status: HTMLElement): Promise<void> {
    try {
      await connected(ask, connect, ending);
      const reply = await ask.ask({ ask: "edited", experiment }, ending);
      const text = String(reply["text"]);
      const detail: Insert = { text };
      const event = new CustomEvent(INSERT, { bubbles: true, composed: true, cancelable: true, detail });
      if (!control.dispatchEvent(event)) status.textContent = "Inserted below.";
      else status.textContent = (await copyText(text)) ? "Copied: paste it into a cell." : "The page may not copy it.";
    } catch (error) {
      if (!ending.aborted) status.textContent = reason(error);
    }
  }

  return {
    attempt(rule, title, signal) {
      const status = h("span.said");
      const control = button("Try it", () => void run(rule, control, status), { "aria-label": `Try it: ${title}` });
      control.title =
        "Runs the cell again in turns with the change and without, and measures what it saves. Everything is restored.";
      return offered(h("p.try", { hidden: true }, control, status), signal);
    },
    insertion(experiment, signal) {
      const status = h("span.said", { role: "status" });
      const control = button("Insert as a new cell", () => void insert(experiment, control, status));
      return offered(h("p.try", { hidden: true }, control, status), signal);
    },
    setLive(now) {
      live = now;
      update();
    },
  };
}
