/**
 * Paints rows of slices as pixels of an image, at the pixels of the screen.
 *
 * Tens of thousands of small rectangles a frame are what a canvas is slow at: here a row is one line of words, and
 * copied as often as it is high. What is left to the canvas are the texts.
 */

import { DEGREES, type Inks } from "./inks.js";
import type { Series, Sink } from "./source.js";

/** Texts found while painting: where there is room for one, and of which slice. In pixels of the screen. */
export interface Texts {
  length: number;
  left: Float64Array;
  right: Float64Array;
  top: Float64Array;
  lane: Uint32Array;
  name: Float64Array;
  event: Uint32Array;
  fill: Uint8Array;
  duration: Float64Array;
}

const MOST_TEXTS = 8192;

/** What a pixel of the present row shows. */
const EMPTY = 0;
const LONG = 1;
const SHORT = 2;
const REST = 3;

export class Painter implements Sink {
  width = 0;
  height = 0;
  image: ImageData | null = null;
  readonly texts: Texts = {
    length: 0,
    left: new Float64Array(MOST_TEXTS),
    right: new Float64Array(MOST_TEXTS),
    top: new Float64Array(MOST_TEXTS),
    lane: new Uint32Array(MOST_TEXTS),
    name: new Float64Array(MOST_TEXTS),
    event: new Uint32Array(MOST_TEXTS),
    fill: new Uint8Array(MOST_TEXTS),
    duration: new Float64Array(MOST_TEXTS),
  };
  private words = new Uint32Array(0);
  private line = new Uint32Array(0);
  private what = new Uint8Array(0);
  private degree = new Uint8Array(0);
  private hits = new Uint8Array(0);
  private anyHit = false;
  /** Short marks of the row: painted over the long ones, where they would be lost beneath. */
  private shortAt = new Int32Array(1024);
  private shortTo = new Int32Array(1024);
  private shortInk = new Uint32Array(1024);
  private shortDegree = new Uint8Array(1024);
  private shorts = 0;

  private inks: Inks | null = null;
  private from = 0;
  private scale = 0;
  private clipFrom = 0;
  private clipTo = 0;
  private lane = 0;
  private top = 0;
  /** Least width of a slice with a text; infinite where none is wanted. */
  private least = Number.POSITIVE_INFINITY;
  private texted = -1;

  /** Gives the picture back; the next one is made anew. */
  drop(): void {
    this.image = null;
    this.words = new Uint32Array(0);
  }

  /** Starts a picture of width × height pixels. */
  begin(width: number, height: number, inks: Inks, from: number, to: number): void {
    if (width !== this.width || height !== this.height || !this.image) {
      this.width = width;
      this.height = height;
      this.image = new ImageData(Math.max(1, width), Math.max(1, height));
      this.words = new Uint32Array(this.image.data.buffer);
      this.line = new Uint32Array(width);
      this.what = new Uint8Array(width);
      this.degree = new Uint8Array(width);
      this.hits = new Uint8Array(width);
    }
    this.inks = inks;
    this.words.fill(inks.bg);
    this.from = from;
    this.scale = width / (to - from);
    this.texts.length = 0;
  }

  /** Fills whole lines top…bottom. */
  fill(top: number, bottom: number, word: number): void {
    const first = Math.max(0, top);
    const last = Math.min(this.height, bottom);
    if (last > first) this.words.fill(word, first * this.width, last * this.width);
  }

  /** Starts a row; several sources may add to it before `endRow`. */
  beginRow(lane: number, top: number, leastText: number): void {
    this.what.fill(EMPTY);
    this.shorts = 0;
    if (this.anyHit) this.hits.fill(0);
    this.anyHit = false;
    this.lane = lane;
    this.top = top;
    this.least = leastText;
    this.texted = -1;
  }

  clip(from: number, to: number): void {
    this.clipFrom = from;
    this.clipTo = to;
  }

  readonly mark: Sink["mark"] = (start, end, event, name, fill, count, busy, hit) => {
    if (end < this.clipFrom || start > this.clipTo) return;
    const x0 = ((start > this.clipFrom ? start : this.clipFrom) - this.from) * this.scale;
    const x1 = ((end < this.clipTo ? end : this.clipTo) - this.from) * this.scale;
    if (x1 < 0 || x0 >= this.width) return;
    const { inks, width } = this;
    const ink = (inks as Inks).fills;
    let left = Math.max(0, Math.floor(x0));
    let right: number;
    if (count === 1 && x1 - x0 >= 1.5) {
      left = Math.max(0, Math.round(x0));
      right = Math.min(width, Math.round(x1));
      const drawn = right - (right - left >= 3 && end <= this.clipTo && right === Math.round(x1) ? 1 : 0);
      this.line.fill(ink[fill * DEGREES + DEGREES - 1] as number, left, drawn);
      this.what.fill(LONG, left, drawn);
      // A text has all of the slice for room, not only the piece that is painted now.
      const fullWidth = Math.min(width, (end - this.from) * this.scale);
      if (fullWidth - x0 >= this.least && event !== this.texted)
        this.addText(left, fullWidth, event, name, fill, end - start);
    } else {
      right = Math.min(width, Math.max(left + 1, Math.round(x1)));
      const degree = count === 1 ? DEGREES - 1 : (busy * (DEGREES - 1) + 127) >> 8;
      this.addShort(left, right, ink[fill * DEGREES + degree] as number, degree);
    }
    if (hit) {
      this.hits.fill(1, left, Math.max(left + 1, right));
      this.anyHit = true;
    }
  };

  rest(start: number, end: number, busy: number): void {
    const x0 = (Math.max(start, this.clipFrom) - this.from) * this.scale;
    const x1 = (Math.min(end, this.clipTo) - this.from) * this.scale;
    const left = Math.max(0, Math.floor(x0));
    const right = Math.min(this.width, Math.max(left + 1, Math.floor(x1)));
    if (right <= left) return;
    this.line.fill((this.inks as Inks).rest[(busy * (DEGREES - 1)) >> 8] as number, left, right);
    this.what.fill(REST, left, right);
  }

  private addText(left: number, right: number, event: number, name: number, fill: number, duration: number): void {
    const { texts } = this;
    const i = texts.length;
    this.texted = event;
    if (i >= MOST_TEXTS) return;
    texts.length = i + 1;
    texts.left[i] = left;
    texts.right[i] = right;
    texts.top[i] = this.top;
    texts.lane[i] = this.lane;
    texts.name[i] = name;
    texts.event[i] = event;
    texts.fill[i] = fill;
    texts.duration[i] = duration;
  }

  private addShort(left: number, right: number, ink: number, degree: number): void {
    if (this.shorts === this.shortAt.length) {
      const grown = <T extends Int32Array | Uint32Array | Uint8Array>(from: T, to: T): T => {
        to.set(from);
        return to;
      };
      const size = 2 * this.shorts;
      this.shortAt = grown(this.shortAt, new Int32Array(size));
      this.shortTo = grown(this.shortTo, new Int32Array(size));
      this.shortInk = grown(this.shortInk, new Uint32Array(size));
      this.shortDegree = grown(this.shortDegree, new Uint8Array(size));
    }
    const i = this.shorts++;
    this.shortAt[i] = left;
    this.shortTo[i] = right;
    this.shortInk[i] = ink;
    this.shortDegree[i] = degree;
  }

  /** The row is complete: it goes to the lines top…bottom of the picture, hits as a line of `under` pixels at its foot. */
  endRow(bottom: number, background: number, under: number): void {
    const { line, what, degree, width, words } = this;
    const bg = background;
    for (let i = 0; i < this.shorts; i++) {
      const left = this.shortAt[i] as number;
      const right = this.shortTo[i] as number;
      const value = this.shortDegree[i] as number;
      for (let x = left; x < right; x++) {
        if (what[x] === SHORT && (degree[x] as number) >= value) continue;
        line[x] = this.shortInk[i] as number;
        what[x] = SHORT;
        degree[x] = value;
      }
      // A long neighbour makes room, so that the short one is seen beside it.
      if (left > 1 && what[left - 1] === LONG && what[left - 2] === LONG) what[left - 1] = EMPTY;
      if (what[right] === LONG && what[right + 1] === LONG) what[right] = EMPTY;
    }
    for (let x = 0; x < width; x++) if (what[x] === EMPTY) line[x] = bg;
    const first = Math.max(0, this.top);
    const last = Math.min(this.height, bottom);
    for (let y = first; y < last; y++) words.set(line, y * width);
    if (!this.anyHit) return;
    const ink = (this.inks as Inks).ink;
    for (let y = Math.max(0, bottom - under); y < last; y++) {
      for (let x = 0; x < width; x++) if (this.hits[x]) words[y * width + x] = ink;
    }
  }

  /**
   * A counter in its colours as a filled step line between top and bottom, 0…most; where several samples share a pixel, from low to high.
   * A share of time is filled up to its mean, and its maximum is a faint line.
   */
  counter(
    series: Series,
    end: number,
    top: number,
    bottom: number,
    most: number,
    [fullWidth, pale]: readonly [full: number, pale: number],
  ): void {
    const { width, words } = this;
    const { time, low, high, last } = series;
    if (!time.length || !(most > 0)) return;
    const room = bottom - top;
    const y = (value: number): number => bottom - Math.round((Math.max(0, Math.min(most, value)) / most) * (room - 1));
    const xOf = (time: number): number => (time - this.from) * this.scale;
    const means = Number.isNaN(series.mean[0]) ? null : this.means(series, end);
    const line = Math.max(1, Math.round(room / 32));
    let i = 0;
    let value = Number.NaN;
    for (let x = 0; x < width; x++) {
      let floor = value;
      let ceiling = value;
      while (i < time.length && xOf(time[i] as number) < x + 1) {
        // A sample where the pixel starts leaves nothing of the value before.
        const anew = Number.isNaN(value) || xOf(time[i] as number) <= x;
        floor = anew ? (low[i] as number) : Math.min(floor, low[i] as number);
        ceiling = anew ? (high[i] as number) : Math.max(ceiling, high[i] as number);
        value = last[i] as number;
        i++;
      }
      if (Number.isNaN(ceiling)) continue;
      // Nothing is known after the end of the profile.
      if (xOf(end) < x) break;
      const full = y(means ? (means[x] as number) : floor);
      const from = y(ceiling);
      for (let row = Math.max(0, from); row < Math.min(this.height, bottom); row++) {
        if (row >= full) words[row * width + x] = fullWidth;
        else if (!means || row < from + line) words[row * width + x] = pale;
      }
    }
  }

  /** The mean of each pixel. */
  private means({ time, mean }: Series, end: number): Float64Array {
    const sum = new Float64Array(this.width);
    const xOf = (time: number): number => Math.max(0, Math.min(this.width, (time - this.from) * this.scale));
    for (let i = 0; i < time.length; i++) {
      const stop = xOf(i + 1 < time.length ? (time[i + 1] as number) : end);
      for (let from = xOf(time[i] as number); from < stop; ) {
        const x = Math.floor(from);
        const to = Math.min(stop, x + 1);
        sum[x] = (sum[x] as number) + (mean[i] as number) * (to - from);
        from = to;
      }
    }
    return sum;
  }
}
