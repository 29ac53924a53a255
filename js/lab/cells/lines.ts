/** The text of a cell: the lines that a selection touches, and its first line `%%nbprof`. */

interface Place {
  line: number;
  column: number;
}

export interface Lines {
  text: string;
  /** Counted from 1. */
  first: number;
  last: number;
}

/** Whole lines; without a selection that of the cursor. Empty lines at either end are left out; null where no other is left. */
export function linesOf(source: string, from: Place, to: Place): Lines | null {
  const [start, end] =
    from.line < to.line || (from.line === to.line && from.column <= to.column) ? [from, to] : [to, from];
  const all = source.split("\n");
  let first = start.line;
  // A selection that ends before the first character of a line has nothing of it.
  let last = end.line > start.line && end.column === 0 ? end.line - 1 : end.line;
  last = Math.min(last, all.length - 1);
  while (first <= last && !all[first]?.trim()) first++;
  while (last >= first && !all[last]?.trim()) last--;
  return first > last ? null : { text: all.slice(first, last + 1).join("\n"), first: first + 1, last: last + 1 };
}

const FIRST = /^%%nbprof(?=\s|$)/;

/** What to insert at the top of a cell; null where it is there already. */
export function magicLine(source: string, options: string): string | null {
  if (FIRST.test(source.trimStart())) return null;
  return `%%nbprof${options ? ` ${options}` : ""}\n`;
}
