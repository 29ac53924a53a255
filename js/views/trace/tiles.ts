/** Tiles that came from Python, by row, level of zoom and place; the ones not looked at for longest go first. */

import { lowest } from "../../lib/search.js";
import type { Sink } from "./source.js";

/** Bins of a tile. A bin of level k is 2^k ns. */
const TILE = 512;
/** Bytes of tiles that are kept. */
const MOST_BYTES = 60e6;

export const tileLength = (level: number): number => TILE * 2 ** level;

/** Numbers in the narrowest type that holds them. */
type Codes = Uint8Array | Uint16Array | Uint32Array;

/** Marks of many tiles, as one answer brought them. */
export interface Marks {
  /** ns from the start of the tile. */
  start: Float32Array;
  end: Float32Array;
  event: Uint32Array;
  name: Codes;
  fill: Uint8Array;
  count: Codes;
  busy: Uint8Array;
  /** Empty where the search found nothing, or there is none. */
  hit: Uint8Array;
}

/** Bins of tiles of counters. */
export interface Samples {
  t: Float32Array;
  low: Float64Array;
  high: Float64Array;
  last: Float64Array;
  mean: Float64Array;
}

/** What one answer brought. */
export interface Block {
  marks: Marks;
  samples: Samples;
  bytes: number;
  /** Which search its hits are of. */
  query: string;
  /** When it was last looked at. */
  used: number;
  keys: [row: number, level: number, tile: number][];
}

/** A tile: a part of a block's marks (of a counter's samples); none where there is nothing in it. */
export interface Tile {
  block: Block;
  first: number;
  count: number;
}

/** A row in one number. */
export const rowKey = (lane: number, depth: number): number => lane * 65_536 + depth;

export class Tiles {
  bytes = 0;
  private readonly rows = new Map<number, Map<number, Map<number, Tile>>>();
  private readonly blocks = new Set<Block>();
  private clock = 0;

  constructor(private readonly most = MOST_BYTES) {}

  get(row: number, level: number, tile: number): Tile | undefined {
    return this.rows.get(row)?.get(level)?.get(tile);
  }

  put(row: number, level: number, index: number, tile: Tile): void {
    const levels = this.rows.get(row) ?? new Map<number, Map<number, Tile>>();
    this.rows.set(row, levels);
    const tiles = levels.get(level) ?? new Map<number, Tile>();
    levels.set(level, tiles);
    tiles.set(index, tile);
    tile.block.keys.push([row, level, index]);
  }

  /** A block is complete: what has not been looked at for longest makes room for it. */
  add(block: Block): void {
    block.used = ++this.clock;
    this.blocks.add(block);
    this.bytes += block.bytes;
    if (this.bytes <= this.most) return;
    const old = [...this.blocks].sort((a, b) => a.used - b.used);
    for (const each of old) {
      if (this.bytes <= this.most || each === block) break;
      this.drop(each);
    }
  }

  private drop(block: Block): void {
    this.blocks.delete(block);
    this.bytes -= block.bytes;
    for (const [row, level, index] of block.keys) {
      const levels = this.rows.get(row);
      const tiles = levels?.get(level);
      // A later answer may have brought the tile again.
      if (!levels || !tiles || tiles.get(index)?.block !== block) continue;
      tiles.delete(index);
      if (!tiles.size) levels.delete(level);
      if (!levels.size) this.rows.delete(row);
    }
  }

  /** The tile is looked at. */
  touch(tile: Tile): void {
    tile.block.used = ++this.clock;
  }

  /**
   * The best that is here for a part of a row: the tile itself, the two halves of it, or one that it is part of. Calls
   * back with each that is found and the part of time it stands for; false where there is none.
   */
  best(row: number, level: number, index: number, found: (tile: Tile, level: number, index: number) => void): boolean {
    const levels = this.rows.get(row);
    if (!levels) return false;
    const exact = levels.get(level)?.get(index);
    if (exact) {
      found(exact, level, index);
      return true;
    }
    const halves = levels.get(level - 1);
    const [left, right] = [halves?.get(2 * index), halves?.get(2 * index + 1)];
    if (left && right) {
      found(left, level - 1, 2 * index);
      found(right, level - 1, 2 * index + 1);
      return true;
    }
    let nearest = Number.POSITIVE_INFINITY;
    let complete: Tile | undefined;
    for (const [coarser, tiles] of levels) {
      if (coarser <= level || coarser >= nearest) continue;
      const tile = tiles.get(Math.floor(index / 2 ** (coarser - level)));
      if (tile) [nearest, complete] = [coarser, tile];
    }
    if (!complete) return false;
    found(complete, nearest, Math.floor(index / 2 ** (nearest - level)));
    return true;
  }
}

/** Gives a sink the marks of a tile that touch from…to. */
export function pour(
  tile: Tile,
  level: number,
  index: number,
  from: number,
  to: number,
  query: string,
  sink: Sink,
  fill: number,
): void {
  const { marks } = tile.block;
  const base = index * tileLength(level);
  const last = tile.first + tile.count;
  const hits = tile.block.query === query && query !== "";
  const [least, most] = [from - base, to - base];
  // Tiles hold few marks beside those in view; halving finds the first of them.
  const low = lowest(last, (i) => (marks.end[i] as number) >= least, tile.first);
  for (let i = low; i < last; i++) {
    const start = marks.start[i] as number;
    if (start > most) break;
    sink.mark(
      base + start,
      base + (marks.end[i] as number),
      marks.event[i] as number,
      marks.name[i] as number,
      fill || (marks.fill[i] as number),
      marks.count[i] as number,
      marks.busy[i] as number,
      hits && marks.hit[i] === 1,
    );
  }
}
