/** Measuring by hand: ends that snap to the edges of slices, and what is said while dragging. */

import { num } from "../../lib/format.js";
import { length } from "./info/words.js";
import type { Drawn, Sink } from "./source.js";

/** How near an edge has to be, in px. */
export const SNAP = 5;

/** Looks for the edge of a slice of its own that is nearest to a time. */
class Nearest implements Sink {
  edge = Number.NaN;
  private distance: number;

  constructor(
    private readonly time: number,
    within: number,
  ) {
    this.distance = within;
  }

  clip(): void {}

  mark(start: number, end: number, _event: number, _name: number, _fill: number, count: number): void {
    // Slices that are drawn as one have no edge that could be seen.
    if (count !== 1) return;
    for (const edge of [start, end]) {
      const away = Math.abs(edge - this.time);
      if (away <= this.distance) [this.edge, this.distance] = [edge, away];
    }
  }

  rest(): void {}
}

export interface Rows {
  source: Pick<Drawn, "visit">;
  /** The level under the pointer first; an edge of it is taken before a nearer one of the others. */
  own: { lane: number; depth: number } | null;
  /** Levels in view. */
  others?: readonly { lane: number; depth: number }[];
}

/**
 * The edge of a slice within a few pixels of a time (ns), else the time itself.
 *
 * `pixel` is the time of a pixel.
 */
export function snap(time: number, pixel: number, { source, own: row, others = [] }: Rows): number {
  const within = SNAP * pixel;
  const look = (rows: readonly { lane: number; depth: number }[]): number => {
    const nearest = new Nearest(time, within);
    for (const { lane, depth } of rows) {
      // As drawn: in bins of the whole window.
      source.visit(lane, depth, time - 2 * within, time + 2 * within, 4 * SNAP, nearest);
    }
    return nearest.edge;
  };
  const here = row ? look([row]) : Number.NaN;
  if (!Number.isNaN(here)) return here;
  const there = look(others);
  return Number.isNaN(there) ? time : there;
}

/** "3.78 ms, 264.6 per second": a length, and how often it fits into a second. */
export function measureText(from: number, to: number): string {
  const ns = Math.abs(to - from);
  if (!(ns > 0)) return length(0);
  const rate = 1e9 / ns;
  return `${length(ns)}, ${num(rate, rate < 100 ? 1 : 0)} per second`;
}
