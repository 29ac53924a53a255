/** The columns of the tree, and the ops as CSV. */

import { toCsv } from "../../lib/csv.js";
import type { OpProfile } from "../../lib/payload.js";
import type { Sort } from "./model.js";

export interface Head {
  key: Sort | "name";
  label: string;
  help: string;
  css: string;
}

/** The columns; numbers but the name at the right, runs where there is room. */
export const heads = (profile: OpProfile): Head[] =>
  profile.heads.map(({ key, label, help }) => ({
    key: key as Head["key"],
    label,
    help,
    css: key === "name" ? "" : key === "runs" ? "n hide-n" : "n",
  }));

const IN_FILE = [
  ...[
    "program",
    "name",
    "category",
    "time_us",
    "unknown_us",
    "flops",
    "bytes",
    "runs",
    "framework_op",
    "source",
    "shape",
    "layout",
  ],
  "expression",
];

/** The ops, most time first. */
export function csv({ ops }: OpProfile): string {
  const columns = IN_FILE.map((key) => ({ key, label: key, kind: "text" as const, help: "" }));
  return toCsv(
    { columns, data: ops as never, rows: ops.rows },
    Array.from(ops.time_us, (_, i) => i),
  );
}
