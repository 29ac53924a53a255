/** Goes live when Python can be asked, and back to what was saved when it cannot; says which of both it is. */

import { h } from "../../lib/dom.js";
import { count } from "../../lib/format.js";
import type { Asker } from "../../lib/wire.js";
import { LiveSource } from "./live.js";
import type { Model } from "./model.js";
import type { SavedSource } from "./saved.js";

/** How many of how many events are drawn, and where the rest is. `recorded`: how many the profile has, without those made of them here. */
export function coverage(source: { shown: number; total: number }, density: boolean, recorded?: number): string {
  const { shown, total } = source;
  const added = total - (recorded ?? total);
  const derived = added > 0 ? `, ${count(added)} of them derived` : "";
  if (shown >= total) return total === 1 ? "The only event." : `All ${count(total)} events${derived}.`;
  const rest = density ? "; the rest is faded" : "";
  return `Saved: ${count(shown)} of ${count(total)} events${added > 0 ? ` (${count(added)} derived)` : ""}, the longest of each track${rest}.`;
}

export interface Connection {
  /** Which events are drawn, and from where. */
  element: HTMLElement;
  /** The picture was drawn: shows whether something is under way. */
  drawn(): void;
}

export function connect(
  model: Model,
  saved: SavedSource,
  asker: Asker | null,
  signal: AbortSignal,
  redraw: () => void,
): Connection {
  const state = h("span.state");
  const busy = h("span.dim", { role: "status" });
  const text = h("span");
  const notes = h("span.dim");
  const element = h("span.source", { "data-drawn": "part" }, state, text, busy, notes);
  let live: LiveSource | null = null;
  let opening = false;

  const tell = (): void => {
    const lost = asker?.state === "lost" && asker.reason;
    state.className = `state ${model.source.live ? "on" : lost ? "off" : ""}`;
    state.textContent = model.source.live ? "Live" : lost ? "Not connected" : "";
    state.title = lost || "";
    const note = lost ? ` ${lost}` : "";
    text.textContent = coverage(model.source, saved.hasRest, saved.recorded) + note;
    notes.textContent = model.source.notes.map((sentence) => ` ${sentence}`).join("");
  };

  async function open(): Promise<void> {
    if (!asker || opening || live) return;
    opening = true;
    try {
      const source = await LiveSource.open(asker, saved, signal);
      if (signal.aborted || asker.state !== "live") return;
      live = source;
      source.onMore(redraw);
      model.setSource(source);
    } catch {
      // What was saved stays on screen; the line below says that it is that.
    } finally {
      opening = false;
      tell();
    }
  }

  function close(): void {
    model.setSource(saved);
    live?.close();
    live = null;
    tell();
  }

  asker?.onState((now) => {
    if (now === "live") void open();
    else close();
  }, signal);
  signal.addEventListener("abort", () => live?.close());
  if (asker?.state === "live") void open();
  tell();
  return {
    element,
    drawn() {
      // Whether the picture is of all events, for whoever waits for that.
      const { live: lively, complete } = model.source;
      const drawn = lively && complete ? "all" : "part";
      if (element.dataset["drawn"] !== drawn) element.dataset["drawn"] = drawn;
      const waits = model.source.waiting ? "Loading…" : "";
      if (busy.textContent !== waits) busy.textContent = waits;
    },
  };
}
