/** Where the tab "Ascend" leads into the trace. */

import { numberAt } from "../../lib/codec.js";
import type { Table } from "../../lib/payload.js";
import type { Hint } from "../../lib/view.js";
import { toOp } from "../jump.js";

/** To the longest task of an op; of a stream to its longest wait, with some room on both sides. */
export function toTrace(id: string, data: Table, row: number): Hint {
  if (id === "ops" || id === "tasks") return toOp(data, row, "device");
  const [start, length] = [numberAt(data.data["_at_ms"], row), numberAt(data.data["_for_ms"], row)];
  return Number.isFinite(start) ? { range_ms: [start - length / 4, start + length * 1.25] } : {};
}
