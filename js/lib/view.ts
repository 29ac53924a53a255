/** The contract between the dashboard and each view in js/views. */

import type { Payload, TabId } from "./payload.js";
import type { Times } from "./place.js";
import type { Store } from "./store.js";
import type { Asker } from "./wire.js";

/** What a link into the trace is about: where it lies is looked up there, over all events where they can be asked. */
export interface Target {
  kind: "op" | "kernel" | "input" | "function" | "step" | "gap" | "memory_peak" | "name";
  name?: string;
  host?: string;
  device?: string;
  /** Of an op: the side its row is about. */
  where?: "device" | "host";
  step?: number;
  /** ms since the start of the profile, as the tables count. */
  time_ms?: number;
}

/** What a link carries into the view it opens. */
export interface Hint {
  /** Into the trace: what to go to. */
  target?: Target;
  /** Text for the search or the highlight: an op or slice name. */
  search?: string;
  /** ms since the start of the profile. */
  range_ms?: Times;
  /** Into the trace: the window as it is to be, ms; `range_ms` is then only marked. */
  window_ms?: Times;
  /** Into the trace: the number of the event whose slice is selected. */
  slice?: number;
  /** Text for the filter of the view's table. */
  filter?: string;
}

/** What is offered while the kernel that recorded the run is there. */
export interface Trials {
  /** A button that has the remedies of a rule tried, with what it says meanwhile. */
  attempt(rule: string, title: string, signal: AbortSignal): HTMLElement;
  /** A button that inserts the cell with the change of an experiment. */
  insertion(experiment: string, signal: AbortSignal): HTMLElement;
}

export interface ViewContext {
  payload: Payload;
  store: Store;
  /** Python, where this page may have a way to it; null in a saved page. Whether it is there now, `state` says. */
  asker: Asker | null;
  /** Has remedies tried; null in a saved page. */
  trials: Trials | null;
  /** Aborted when the view goes away: listeners, observers and frames end with it. */
  signal: AbortSignal;
  /** Opens another view, with context. */
  go(tab: TabId, hint?: Hint): void;
  /** Width of the dashboard in CSS pixels. */
  width(): number;
  /** Names what of the view is to be as it was when it is drawn anew, besides the state of its controls. */
  keep<T>(read: () => T, write: (value: T) => void): void;
  /** Calls `fn` when that width changes. */
  onResize(fn: () => void): void;
}

/** Keys and hints that reach a view after it was drawn. */
export interface ViewHandle {
  /** A link into this view; without this the view is drawn anew. */
  hint?(hint: Hint): void;
  /** "/" was pressed: focus the filter or search. By default the first field of the view gets it. */
  focusFilter?(): void;
}

/** Fills `el`. The pane is a grid of <section>s. Called once when the tab is first opened. */
// biome-ignore lint/suspicious/noConfusingVoidType: a view that needs no handle returns nothing
export type View = (el: HTMLElement, context: ViewContext, hint?: Hint) => void | ViewHandle;
