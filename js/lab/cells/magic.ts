/** The first line `%%nbprof` of a cell. */

const FIRST = /^%%nbprof(?=\s|$)/;

/** What to insert at the top of a cell; null where it is there already. */
export function magicLine(source: string, options: string): string | null {
  if (FIRST.test(source.trimStart())) return null;
  return `%%nbprof${options ? ` ${options}` : ""}\n`;
}
