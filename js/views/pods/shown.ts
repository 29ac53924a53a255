/** Which step and which worker are on show. */

import { textAt } from "../../lib/codec.js";
import type { ViewContext } from "../../lib/view.js";
import { inside, widest } from "./model.js";

/** Those who draw it are told when it changes. */
export class Shown {
  /** Index into the steps of the report. */
  at: number;
  /** Index into the workers; -1: none. */
  worker = -1;
  private readonly told: (() => void)[] = [];

  constructor(private readonly context: ViewContext) {
    const { pods } = context.payload;
    const { store, signal } = context;
    this.at = Math.max(0, widest(pods, 0, pods.step.length, store.get("selection")), 0);
    const follow = (): void => {
      const selection = store.get("selection");
      const next = inside(pods.step[this.at] as number, selection)
        ? this.at
        : widest(pods, 0, pods.step.length, selection);
      if (next >= 0) this.at = next;
      this.tell();
    };
    store.subscribe("selection", follow, signal);
    const ofHost = (): void => {
      const host = store.get("host");
      if (this.worker >= 0 && this.hostOf(this.worker) === host) return;
      const worker = host === null ? -1 : pods.workers.findIndex((_, i) => this.hostOf(i) === host);
      if (worker === this.worker) return;
      this.worker = worker;
      this.tell();
    };
    ofHost();
    store.subscribe("host", ofHost, signal);
  }

  set(index: number): void {
    if (index === this.at) return;
    this.at = index;
    this.tell();
  }

  /** Selects a worker, and with it its host for every tab; -1: none. */
  select(worker: number, index = this.at): void {
    if (worker === this.worker && index === this.at) return;
    this.worker = worker;
    this.at = index;
    this.tell();
    // The devices of one host are workers too, of a host that cannot be chosen.
    if (!this.context.payload.meta.hosts) return;
    this.context.store.set("host", worker < 0 ? null : this.hostOf(worker));
  }

  onChange(fn: () => void): void {
    this.told.push(fn);
  }

  private hostOf(worker: number): string {
    const { pods } = this.context.payload;
    return pods.hosts ? textAt(pods.hosts, worker) : (pods.workers[worker] ?? "");
  }

  private tell(): void {
    for (const fn of this.told) fn();
  }
}
