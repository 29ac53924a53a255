/** Fewer texts while moving where they are slow to draw, all of them once the picture rests. */

import { LABEL } from "./draw.js";

/** A frame that takes longer than SLOW (ms) drops texts, one that takes less than FAST may have more. */
const SLOW = 14;
const FAST = 7;
/** The picture rests when it has not moved for so long, ms. */
const REST = 140;
const WIDEST = 40 * LABEL;

export class Pace {
  private least = LABEL;
  private movedAt = Number.NEGATIVE_INFINITY;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `rested` draws again. */
  constructor(
    private readonly rested: () => void,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** The window moved. */
  moved(): void {
    this.movedAt = this.now();
  }

  private get moving(): boolean {
    return this.now() - this.movedAt < REST;
  }

  /** Least width (px) of a slice with a text in the next frame. */
  leastText(): number {
    return this.moving ? this.least : LABEL;
  }

  /** A frame took `ms`. */
  drew(ms: number): void {
    if (!this.moving) return;
    if (ms > SLOW) this.least = Math.min(WIDEST, this.least * 2);
    else if (ms < FAST) this.least = Math.max(LABEL, this.least / 1.25);
    clearTimeout(this.timer);
    if (this.least > LABEL) this.timer = setTimeout(this.rested, REST + 20);
  }

  stop(): void {
    clearTimeout(this.timer);
  }
}
