/** What a tab shows while its profile is read: what is being done, how far that is, for how long, and a button that ends it. */

import { h } from "../lib/dom.js";
import type { Progress } from "./server.js";

export const button = (text: string, click: () => void): HTMLElement =>
  h("button", { class: "jp-mod-styled nbprof-button", on: { click } }, text);

export class Waiting {
  readonly node: HTMLElement;
  readonly cancel: HTMLElement;
  private readonly began = performance.now();
  private readonly text: HTMLElement;
  /** Without a value it says that something is done, and not how much. */
  private readonly bar = h("progress", { max: 1, hidden: true, "aria-label": "Progress" });
  private readonly seconds = h("span.nbprof-seconds", { "aria-hidden": "true" });
  private readonly clock: ReturnType<typeof setInterval>;
  private fraction: number | null = null;

  constructor(what: string, stop: () => void) {
    this.text = h("span", `Opening ${what}`);
    this.cancel = button("Cancel", stop);
    this.node = h("div.nbprof-state", h("p", { role: "status" }, this.text), this.bar, this.seconds, this.cancel);
    this.clock = setInterval(() => this.count(), 1000);
  }

  tell({ text, fraction }: Progress): void {
    // Who listens hears the sentence once, and asks the bar how far it is.
    if (this.text.textContent !== text) this.text.textContent = text;
    this.bar.hidden = false;
    this.bar.setAttribute("aria-label", text);
    if (fraction === null) this.bar.removeAttribute("value");
    else this.bar.value = fraction;
    if (fraction !== this.fraction) {
      this.fraction = fraction;
      this.count();
    }
  }

  end(): void {
    clearInterval(this.clock);
  }

  private count(): void {
    const seconds = `${Math.round((performance.now() - this.began) / 1000)} s`;
    this.seconds.textContent = this.fraction === null ? seconds : `${Math.floor(this.fraction * 100)}% · ${seconds}`;
  }
}
