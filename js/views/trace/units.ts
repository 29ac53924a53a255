/** How the values of a counter are told. */

import * as format from "../../lib/format.js";
import type { LaneHead, Series } from "./source.js";

/** Values seen so far, by lane: the axis of a counter does not jump while the window moves. */
const seen = new WeakMap<LaneHead, number>();

/** The upper end of a counter's axis: what it reached, of percents 100. */
export function counterMost(lane: LaneHead, series: Series): number {
  if (lane.unit === "percent") return 100;
  if (lane.most !== undefined) return lane.most;
  let most = seen.get(lane) ?? 0;
  for (const value of series.high) if (value > most) most = value;
  seen.set(lane, most);
  return most;
}

/** A value in its unit. */
function valueText(value: number, unit: LaneHead["unit"]): string {
  if (unit === "bytes") return format.bytesText(value);
  if (unit === "percent") return `${format.num(value, 1)}%`;
  return format.count(Math.round(value));
}

/** "0–12.00 MiB", what a counter's height stands for; "" while it is not known. */
export function axisText(lane: LaneHead): string {
  if (lane.unit === "percent") return "0–100%";
  const most = lane.most ?? seen.get(lane);
  return most === undefined ? "" : `0–${valueText(most, lane.unit)}`;
}
