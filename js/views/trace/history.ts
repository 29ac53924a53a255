/** Windows that were shown before, to go back to. */

import type { Span } from "./window.js";

/** How long the view has to rest before a change of it is one of its own: what is one movement of the hand is one step back. */
const REST_MS = 500;
const MOST = 100;

export class History {
  private back: Span[] = [];
  private forth: Span[] = [];
  private changed = Number.NEGATIVE_INFINITY;

  constructor(private readonly now: () => number = () => performance.now()) {}

  /** The window is about to change; `jump`: whatever came just before. */
  note(before: Span, jump: boolean): void {
    const now = this.now();
    if (jump || now - this.changed > REST_MS) {
      this.back.push(before);
      if (this.back.length > MOST) this.back.shift();
    }
    // After a jump the next movement is one of its own, too.
    this.changed = jump ? Number.NEGATIVE_INFINITY : now;
    this.forth = [];
  }

  undo(present: Span): Span | null {
    return this.swap(this.back, this.forth, present);
  }

  redo(present: Span): Span | null {
    return this.swap(this.forth, this.back, present);
  }

  private swap(from: Span[], to: Span[], present: Span): Span | null {
    const span = from.pop();
    if (!span) return null;
    to.push(present);
    this.changed = Number.NEGATIVE_INFINITY;
    return span;
  }
}
