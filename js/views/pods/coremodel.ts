/** The cores of TPUs as their table needs them. No drawing. */

import { numberAt, textAt } from "../../lib/codec.js";
import type { Cores, Table } from "../../lib/payload.js";

/** The category whose colour each kind has; faint: the second kind of that category. */
const LOOKS: Record<string, readonly [css: string, faint?: boolean]> = {
  compute_ms: ["device"],
  infeed_ms: ["input"],
  outfeed_ms: ["output"],
  all_reduce_compute_ms: ["coll"],
  all_reduce_sync_ms: ["coll", true],
  send_ms: ["d2d"],
  recv_ms: ["d2d", true],
  host_transfer_ms: ["input", true],
  idle_ms: ["other"],
};

export interface Look {
  key: string;
  css: string;
  faint: boolean;
  label: string;
}

/** What is drawn of each kind. */
export const looks = (cores: Cores): Look[] =>
  cores.kinds.map((key) => {
    const [css, second] = LOOKS[key] ?? ["other"];
    // Alone, the second kind of a category has its full colour.
    const faint =
      css === "other" || Boolean(second && cores.kinds.some((one) => one !== key && LOOKS[one]?.[0] === css));
    return { key, css, faint, label: cores.table.columns.find((column) => column.key === key)?.label ?? key };
  });

/** The largest value of a column; 1 where there is none, to divide by. */
export function longest(data: Table, key: string): number {
  let most = 0;
  for (let row = 0; row < data.rows; row++) most = Math.max(most, numberAt(data.data[key], row) || 0);
  return most || 1;
}

/** One step as a table: a row a core, in the order of all. */
export function stepOf(cores: Cores, i: number): Table {
  const [from, to] = [cores.first[i] ?? 0, cores.first[i + 1] ?? 0];
  const at = Array.from({ length: Math.max(0, to - from) }, (_, k) => cores.core[from + k] as number);
  const data: Table["data"] = {
    worker: at.map((row) => textAt(cores.table.data["worker"], row)),
    chip: Float64Array.from(at, (row) => numberAt(cores.table.data["chip"], row)),
    step_time_ms: cores.time_ms.slice(from, to),
  };
  for (const key of cores.kinds) data[key] = (cores.parts[key] ?? new Float32Array(0)).slice(from, to);
  return { columns: cores.heads, data, rows: at.length };
}
