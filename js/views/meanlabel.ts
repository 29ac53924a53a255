/** Where the label of the mean line stands in a step chart. */

/**
 * Left edge of a label over a line so that the bars behind it show through least; the first such place from the left.
 *
 * @param tops y of the top of each bar, in px from the top of the plot
 * @param width of the plot in px
 * @param label width of the label in px
 * @param bottom y of the lower edge of the label
 */
export function clearest(tops: readonly number[], width: number, label: number, bottom: number): number {
  const pitch = width / Math.max(1, tops.length);
  const last = Math.max(0, width - label - 2);
  let best = { left: Math.min(2, last), covered: Number.POSITIVE_INFINITY };
  for (let i = 0; i <= tops.length; i++) {
    const left = Math.min(i * pitch + 2, last);
    const [from, to] = [Math.floor(left / pitch), Math.ceil((left + label) / pitch)];
    const covered = tops.slice(from, to).reduce((sum, top) => sum + Math.max(0, bottom - top), 0);
    if (covered < best.covered) best = { left, covered };
    if (left === last) break;
  }
  return best.left;
}

/**
 * The span of a text of `size` px at `center`, anchored so that it stays inside the plot.
 */
export function anchored(
  center: number,
  size: number,
  width: number,
): { anchor: "start" | "middle" | "end"; left: number; right: number } {
  if (center < size / 2) return { anchor: "start", left: center, right: center + size };
  if (center > width - size / 2) return { anchor: "end", left: center - size, right: center };
  return { anchor: "middle", left: center - size / 2, right: center + size / 2 };
}
