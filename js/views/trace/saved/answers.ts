/** What a saved report answers about its trace: all of it is of the slices that were saved. */

import type {
  Answers,
  Direction,
  Found,
  Hit,
  HitAt,
  Located,
  RangeInfo,
  SliceInfo,
  SliceRef,
  Target,
} from "../source.js";
import { foundIn, type Hits, hitAt, hitsOf } from "./find.js";
import { SavedLanes, type Source } from "./lanes.js";
import { locate } from "./locate.js";
import { manyInfo, rangeInfo } from "./range.js";
import { sliceInfo } from "./slice.js";
import { firstIn, neighbour } from "./step.js";

export class SavedAnswers implements Answers {
  /** The hits of the present search. */
  hits: Hits | null = null;
  private query = "";
  readonly lanes: SavedLanes;

  constructor(source: Source) {
    this.lanes = new SavedLanes(source);
  }

  setQuery(query: string): void {
    if (query === this.query) return;
    this.query = query;
    this.hits = query ? hitsOf(this.lanes, query) : null;
  }

  private found(query: string): Hits {
    return query === this.query && this.hits ? this.hits : hitsOf(this.lanes, query);
  }

  async slice(event: number): Promise<SliceInfo | null> {
    return sliceInfo(this.lanes, event);
  }

  async step(event: number, to: Direction): Promise<SliceRef | null> {
    const slice = this.lanes.at(event);
    const next = slice && neighbour(this.lanes, slice, to);
    return next && this.lanes.ref(next);
  }

  async first(from: number, to: number, lanes: readonly number[]): Promise<SliceRef | null> {
    const first = firstIn(this.lanes, from, to, lanes);
    return first && this.lanes.ref(first);
  }

  async range(from: number, to: number, lanes: readonly number[] | null): Promise<RangeInfo> {
    return rangeInfo(this.lanes, from, to, lanes);
  }

  async many(events: readonly number[]): Promise<RangeInfo> {
    return manyInfo(this.lanes, events);
  }

  async search(query: string): Promise<Found> {
    return foundIn(this.lanes, this.found(query));
  }

  async hit(query: string, anchor: HitAt): Promise<Hit> {
    return hitAt(this.lanes, this.found(query), anchor);
  }

  async locate(target: Target): Promise<Located | null> {
    return locate(this.lanes, target);
  }
}
