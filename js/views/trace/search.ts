/** The search: its field, how many hits there are and which one is selected, and the way from one to the next. */

import { h, handled, listen, reason } from "../../lib/dom.js";
import { count } from "../../lib/format.js";
import { field } from "../../lib/parts.js";
import type { Model } from "./model.js";
import type { Found } from "./source.js";

/** How long the hand has to rest before a text is searched for, ms. */
const REST = 150;
/** What takes longer than this says that it is under way, ms. */
const SLOW = 100;

/** What of the model the search drives. */
export type Searched = Pick<Model, "query" | "found" | "hit" | "find" | "step"> & { source: { live: boolean } };

export interface Search {
  /** Field, count and buttons, for a toolbar. */
  elements: HTMLElement[];
  focus(): void;
  /** Searches at once; `note` is said beside the count. */
  set(text: string, note?: string): void;
  /** The search, the hits or the selected one changed. */
  draw(): void;
}

/** "8 of 21 hits". */
export function hitsText(found: Found | null, query: string, hit: number, live = true): string {
  if (!query || !found || found.error) return "";
  const hits = `${count(found.count)} ${found.count === 1 ? "hit" : "hits"}`;
  const all = hit >= 0 && found.count > 1 ? `${count(hit + 1)} of ${hits}` : hits;
  // The title of the text has the whole sentence.
  return found.where ? `${all} ${live ? "(in part)" : "(saved only)"}` : all;
}

/** Waits until texts stop coming; `later` is setTimeout, or what a test puts in its place. */
export class Rest {
  private turn = 0;

  constructor(
    private readonly fn: (text: string) => void,
    private readonly later: (fn: () => void, ms: number) => unknown = (fn, ms) => setTimeout(fn, ms),
  ) {}

  /** A text came. */
  put(text: string): void {
    const turn = ++this.turn;
    this.later(() => {
      if (turn === this.turn) this.fn(text);
    }, REST);
  }

  /** What waits is not wanted any more. */
  drop(): void {
    this.turn++;
  }
}

export function searchBar(model: Searched, signal: AbortSignal): Search {
  let note = "";
  let slow = false;
  const hits = h("span.hits.dim");
  const run = (text: string): void => {
    slow = false;
    const timer = setTimeout(() => {
      slow = model.found === null && Boolean(model.query);
      draw();
    }, SLOW);
    model
      .find(text)
      .catch((error: unknown) => bar.say(`Not searched: ${reason(error)}`))
      .finally(() => {
        clearTimeout(timer);
        slow = false;
        if (!signal.aborted) draw();
      });
  };
  const rest = new Rest(run);
  const now = (): void => {
    rest.drop();
    const text = bar.input.value.trim();
    if (text !== model.query) run(text);
  };
  const bar = field(
    "Search slices",
    (text) => {
      note = "";
      if (text.trim()) rest.put(text.trim());
      else {
        rest.drop();
        run("");
      }
    },
    {
      title: "Part of a name or of an argument, or /a regular expression/. Enter: next hit, Shift+Enter: previous",
      onKey: (event) => {
        if (event.key !== "Enter") return;
        handled(event);
        const asked = bar.input.value.trim() !== model.query;
        now();
        // The first Enter searches, the next ones go on.
        if (!asked) void model.step(event.shiftKey ? -1 : 1);
      },
    },
  );
  listen(signal, "abort", () => rest.drop());
  const step = (by: 1 | -1, text: string, label: string): HTMLButtonElement =>
    h(
      "button",
      { class: "btn quiet", "aria-label": label, title: label, on: { click: () => void model.step(by) } },
      text,
    );
  const previous = step(-1, "‹", "Previous hit");
  const next = step(1, "›", "Next hit");

  function draw(): void {
    const { query, found, hit } = model;
    hits.textContent = [slow && !found ? "Searching…" : hitsText(found, query, hit, model.source.live), note]
      .filter(Boolean)
      .join(", ");
    hits.title = (query && found?.where) || "";
    bar.say(query && found?.error ? found.error : "");
    previous.disabled = next.disabled = !found?.count;
    previous.hidden = next.hidden = !query;
  }

  draw();
  return {
    elements: [bar.element, hits, previous, next],
    focus() {
      bar.input.focus();
      bar.input.select();
    },
    set(text, status = "") {
      bar.input.value = text;
      note = status;
      now();
      draw();
    },
    draw,
  };
}
