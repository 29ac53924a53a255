/** Long names in little room: what the names of a list share is cut first, in the middle, so that its rows stay apart. */

import { textAt } from "./codec.js";
import { displayName } from "./format.js";
import type { Table } from "./payload.js";

/** What the other names have as well, or what follows from what stands before. */
export const SHARED = 0;
/** The same, but it says what the thing is: the end of a path, the beginning of a kernel. */
export const KIND = 1;
/** What tells a name from others. */
export const TELLING = 2;

export interface Part {
  text: string;
  worth: number;
}

export type Cut = (name: string) => Part[];

/** How many places where a name differs from others are kept, the last ones. */
const MOST = 3;
/** How far from a name others are looked at, in alphabetical order. */
const NEAR = 200;
/** Letters that stay of the end of a path, or of the beginning of a kernel. */
const KEPT = 6;
/** Letters of a kernel that say what it is. */
const HEAD = 12;
/** A part of which fewer letters would be left goes as a whole. */
const LEAST = 3;
const LEAST_TELLING = 5;
const SEPARATOR = /[/:_.,<([\-\s]/;

/** Whether a word begins at `at`: above the last segment of a path, a segment. */
function begins(name: string, index: number, last: number): boolean {
  const [before, here] = [name[index - 1] as string, name[index] as string];
  if (index < last) return before === "/" || (before === ":" && here !== ":");
  if (SEPARATOR.test(before)) return !SEPARATOR.test(here) || /[<([]/.test(here);
  return /[<([-]/.test(here) || (/[a-z]/.test(before) && /[A-Z]/.test(here));
}

/** Where the word begins in which a name differs from another that has its first `same` letters. */
function wordAt(name: string, same: number, last: number): number {
  let index = Math.min(same, name.length - 1);
  while (index > 0 && !begins(name, index, last)) index--;
  return Math.max(0, index);
}

function sameStart(a: string, b: string, most: number): number {
  const end = Math.min(a.length, b.length, most);
  let index = 0;
  while (index < end && a.charCodeAt(index) === b.charCodeAt(index)) index++;
  return index;
}

/** Where the last segment of a path or of an iterator begins; 0 of other names. */
function lastSegment(name: string): number {
  const slash = name.lastIndexOf("/");
  if (slash > 0) return slash + 1;
  const colons = name.includes("<") ? -1 : name.lastIndexOf("::");
  return colons > 0 ? colons + 2 : 0;
}

/** Behind the segment that begins at `at`. */
function segmentEnd(name: string, index: number): number {
  const ends = ["/", "::"].map((mark) => [name.indexOf(mark, index), mark.length] as const);
  const found = ends.filter(([place]) => place >= 0).map(([place, length]) => place + length);
  return found.length ? Math.min(...found) : name.length;
}

/** Where a name differs from others of a sorted list: the beginnings of words, in order. */
function places(sorted: readonly string[], name: string, last: number): number[] {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as string) < name) low = middle + 1;
    else high = middle;
  }
  const found = new Set<number>();
  const walk = (from: number, by: 1 | -1): void => {
    let same = Number.POSITIVE_INFINITY;
    for (let i = from, n = 0; i >= 0 && i < sorted.length && n < NEAR && same > 0; i += by, n++) {
      const next = sameStart(name, sorted[i] as string, same);
      if (next < same) found.add(wordAt(name, next, last));
      same = next;
    }
  };
  walk(low - 1, -1);
  walk(sorted[low] === name ? low + 1 : low, 1);
  return [...found].sort((a, b) => a - b).slice(-MOST);
}

/** How names of a list are cut. */
export function cuts(names: Iterable<string>): Cut {
  const sorted = [...new Set(names)].sort();
  return (name) => {
    const last = lastSegment(name);
    const starts = places(sorted, name, last);
    // A name that is like no other tells by its end.
    if (!starts.length) starts.push(last);
    const worth = new Uint8Array(name.length);
    worth.fill(KIND, last || name.length);
    starts.forEach((start, i) => {
      const next = starts[i + 1] ?? name.length;
      const complete = !last && next === name.length;
      worth.fill(TELLING, start, complete ? next : Math.min(next, segmentEnd(name, start)));
    });
    // Of a kernel that differs further on, the beginning is no more than that.
    if (!last && (starts.at(-1) as number) > 0)
      worth.fill(KIND, 0, Math.min(HEAD, starts.find((start) => start > 0) as number));
    const parts: Part[] = [];
    for (let from = 0, to = 1; from < name.length; to++) {
      if (to < name.length && worth[to] === worth[from] && !starts.includes(to)) continue;
      parts.push({ text: name.slice(from, to), worth: worth[from] as number });
      from = to;
    }
    return parts;
  };
}

export interface Piece {
  text: string;
  /** "…" stands for it and for its neighbours that go, too. */
  gone: boolean;
}

/** A name of which `gone[i]` letters of each part go: the end of a path loses its beginning, all else its end. */
function pieces(parts: readonly Part[], gone: readonly number[]): Piece[] {
  const all: Piece[] = [];
  parts.forEach(({ text, worth }, i) => {
    const [less, first] = [gone[i] as number, worth === KIND && i > 0];
    const index = first ? less : text.length - less;
    if (index > 0) all.push({ text: text.slice(0, index), gone: first });
    if (index < text.length) all.push({ text: text.slice(index), gone: !first });
  });
  return all;
}

/** A name in so many letters, the sign for what goes among them. */
export function cutTo(parts: readonly Part[], room: number): Piece[] {
  const gone = parts.map(() => 0);
  const slack = (): number => {
    const all = pieces(parts, gone);
    const used = all.map((piece, i) => (piece.gone ? Number(!all[i - 1]?.gone) : piece.text.length));
    return room - used.reduce((sum, letters) => sum + letters, 0);
  };
  const lengths = parts.map(({ text }) => text.length);
  const behind = (i: number): number => lengths.slice(i + 1).reduce((sum, letters) => sum + letters, 0);
  // The longest goes first, and of what tells, the end goes last.
  const rank = (i: number): number => {
    const worth = (parts[i] as Part).worth;
    return worth * 1e6 + (worth === TELLING ? i : -(lengths[i] as number));
  };
  const order = parts.map((_, i) => i).sort((a, b) => rank(a) - rank(b));
  for (const i of order) {
    const over = -slack();
    if (over <= 0) break;
    const letters = lengths[i] as number;
    const keep = (parts[i] as Part).worth === KIND ? Math.max(0, KEPT - (i > 0 ? behind(i) : 0)) : 0;
    const less = Math.min(Math.max(0, letters - keep), over + 1);
    const least = (parts[i] as Part).worth === TELLING ? LEAST_TELLING : LEAST;
    gone[i] = less > 0 && letters - less < least && i !== order.at(-1) ? letters : less;
  }
  // Words go as a whole: what that leaves is for the end of the path.
  for (const i of order) {
    if ((parts[i] as Part).worth === KIND) gone[i] = Math.max(0, (gone[i] as number) - Math.max(0, slack()));
  }
  return pieces(parts, gone);
}

const known = new WeakMap<object, Cut>();

/** How the names of a column are cut: as all its rows need it, whichever are shown. */
export function cutOf({ data, rows }: Table, key: string): Cut {
  const column = data[key];
  if (!column) return cuts([]);
  let shorten = known.get(column);
  if (!shorten) {
    let shortened: Cut | undefined;
    shorten = (name) => {
      // Sorted when the first name is drawn.
      shortened ??= cuts(Array.from({ length: rows }, (_, row) => displayName(textAt(column, row))));
      return shortened(name);
    };
    known.set(column, shorten);
  }
  return shorten;
}
