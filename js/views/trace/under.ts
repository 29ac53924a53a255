/** What is under the pointer. */

import { RULER } from "./draw.js";
import { bandsIn, ROW } from "./layout.js";
import type { Model } from "./model.js";
import type { Sink, Under } from "./source.js";

/** How near to a slice counts as on it, in pixels, for those of a pixel. */
const SLACK = 2;

/** Looks for the mark at a time; within `slack` of it the nearest counts, of those as near the longest. */
export class Finder implements Sink {
  event = -1;
  start = 0;
  end = 0;
  name = 0;
  count = 0;
  private distance = Number.POSITIVE_INFINITY;
  private clipFrom = Number.NEGATIVE_INFINITY;
  private clipTo = Number.POSITIVE_INFINITY;

  constructor(
    private readonly time: number,
    private readonly slack: number,
  ) {}

  clip(from: number, to: number): void {
    this.clipFrom = from;
    this.clipTo = to;
  }

  mark(start: number, end: number, event: number, name: number, _fill: number, count: number): void {
    if (end < this.clipFrom || start > this.clipTo) return;
    const away = Math.max(0, start - this.time, this.time - end);
    if (away > this.slack || away > this.distance) return;
    if (away === this.distance && end - start <= this.end - this.start) return;
    this.distance = away;
    this.event = event;
    this.start = start;
    this.end = end;
    this.name = name;
    this.count = count;
  }

  rest(): void {}
}

/** The level of a lane under a point of the canvas; null beside all. */
export function rowUnder(model: Model, y: number, scroll: number): { lane: number; depth: number } | null {
  const fixed = y < RULER + model.pinnedHeight;
  const y0 = fixed ? y - RULER : y - RULER - model.pinnedHeight + scroll;
  const [band] = y < RULER ? [] : bandsIn(fixed ? model.pinnedBands : model.bands, y0, y0 + 1);
  if (band?.kind !== "lane") return null;
  const depth = Math.floor((y0 - band.top - 1) / (ROW - 1));
  return depth < band.depths ? { lane: band.lane, depth: Math.max(0, depth) } : null;
}

/** The slice under a point of a canvas of `width` pixels; null where there is none. */
export function sliceUnder(model: Model, x: number, y: number, width: number, scroll: number): Under | null {
  const row = rowUnder(model, y, scroll);
  if (!row) return null;
  const { from, to } = model.span;
  const pixel = (to - from) / Math.max(1, width);
  const time = from + x * pixel;
  const finder = new Finder(time, SLACK * pixel);
  // As drawn: in bins of the whole window.
  const near = 4 * SLACK * pixel;
  model.source.visit(row.lane, row.depth, time - near, time + near, 8 * SLACK, finder);
  if (finder.event < 0) return null;
  return {
    event: finder.event,
    ...row,
    start_ns: finder.start,
    duration_ns: finder.end - finder.start,
    name: model.source.label(finder.name, row.lane, finder.event),
    count: finder.count,
  };
}
