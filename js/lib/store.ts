/** What the views of one dashboard share: the selected steps, host and device, the open tab, what the trace shows. */

import { listen } from "./dom.js";
import type { TabId } from "./payload.js";
import type { Place, Times } from "./place.js";

/** Step numbers, both included. */
export interface Selection {
  first: number;
  last: number;
}

export interface State {
  /** null: every step. */
  selection: Selection | null;
  /** null: all hosts together. */
  host: string | null;
  /** Its number on the host that is shown; null: all devices. */
  device: number | null;
  tab: TabId;
  /** ms since the start of the profile that a link asks the trace to show; null: nothing asked. */
  focusRange: Times | null;
  /** What the trace shows; null before it was opened. */
  trace: Pick<Place, "window_ms" | "range_ms" | "slice"> | null;
  /** The row that is marked in the table of ops or kernels, or else the text of its filter; null: neither. */
  op: string | null;
  kernel: string | null;
}

export interface Store {
  get<K extends keyof State>(key: K): State[K];
  set<K extends keyof State>(key: K, value: State[K]): void;
  /** Calls `fn` with each new value until the signal aborts; not with the present one. */
  subscribe<K extends keyof State>(key: K, fn: (value: State[K]) => void, signal: AbortSignal): void;
}

const same = (a: unknown, b: unknown): boolean => a === b || JSON.stringify(a) === JSON.stringify(b);

export function createStore(initial: Partial<State> = {}): Store {
  const state: State = {
    selection: null,
    host: null,
    device: null,
    tab: "overview",
    focusRange: null,
    trace: null,
    op: null,
    kernel: null,
    ...initial,
  };
  const listeners: { [K in keyof State]: Set<(value: State[K]) => void> } = {
    selection: new Set(),
    host: new Set(),
    device: new Set(),
    tab: new Set(),
    focusRange: new Set(),
    trace: new Set(),
    op: new Set(),
    kernel: new Set(),
  };
  return {
    get: (key) => state[key],
    set(key, value) {
      if (same(state[key], value)) return;
      state[key] = value;
      for (const listener of [...listeners[key]]) listener(value);
    },
    subscribe(key, fn, signal) {
      if (signal.aborted) return;
      listeners[key].add(fn);
      listen(signal, "abort", () => listeners[key].delete(fn), { once: true });
    },
  };
}
