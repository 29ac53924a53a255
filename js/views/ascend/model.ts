/** What the tab "Ascend" makes of its tables. */

import { numberAt, textAt } from "../../lib/codec.js";
import type { DonutPart } from "../../lib/donut.js";
import { num } from "../../lib/format.js";
import type { Table } from "../../lib/payload.js";
import type { Hint } from "../../lib/view.js";
import { toOp } from "../jump.js";

/** Most types that the ring tells apart. */
const RANKS = 8;

/** The types of ops that take the most, whatever they run on, and the others as one. */
export function typeParts(data: Table): { parts: DonutPart[]; total_us: number } {
  const by = new Map<string, number>();
  let total = 0;
  for (let row = 0; row < data.rows; row++) {
    const type = textAt(data.data["op_type"], row);
    const time = numberAt(data.data["total_us"], row) || 0;
    by.set(type, (by.get(type) ?? 0) + time);
    total += time;
  }
  const ranked = [...by].sort((a, b) => b[1] - a[1]);
  const share = (us: number): number => (us / (total || 1)) * 100;
  const parts: DonutPart[] = ranked.slice(0, RANKS).map(([label, us]) => ({ label, percent: share(us) }));
  const others = ranked.slice(RANKS);
  if (others.length) {
    const rest = others.reduce((sum, [, us]) => sum + us, 0);
    parts.push({ label: `${num(others.length)} others`, percent: share(rest), kind: "others" });
  }
  return { parts, total_us: total };
}

/** To the longest task of an op; of a stream to its longest wait, with some room on both sides. */
export function toTrace(id: string, data: Table, row: number): Hint {
  if (id === "ops") return toOp(data, row, "device");
  const [at, length] = [numberAt(data.data["_at_ms"], row), numberAt(data.data["_for_ms"], row)];
  return Number.isFinite(at) ? { range_ms: [at - length / 4, at + length * 1.25] } : {};
}
