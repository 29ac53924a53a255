/** The status of a cell whose kernel has ended: what was said last is true no more. */

const ENDED = "nbprof: the kernel ended before this cell did; last shown: ";

/** Whether a line is that of an ended kernel. */
export const hasEnded = (text: string): boolean => text.startsWith(ENDED);

/** A line of a running cell as that of an ended kernel. */
export const endedText = (text: string): string => (hasEnded(text) ? text : ENDED + text.replace(/^nbprof: /, ""));
