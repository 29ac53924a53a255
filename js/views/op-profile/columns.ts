/** The columns of the tree, and the ops as CSV. */

import { toCsv } from "../../lib/csv.js";
import type { Profile, Sort } from "./model.js";

export interface Head {
  key: Sort | Text;
  label: string;
  help: string;
  css: string;
}

/** Columns that no tree is sorted by. */
export type Text = "name" | "framework_op";

export const isText = (key: Head["key"]): key is Text => key === "name" || key === "framework_op";

const CSS: Partial<Record<Head["key"], string>> = { name: "", runs: "n hide-n", framework_op: "fw hide-n" };

/** The columns; numbers at the right, runs and framework ops where there is room. */
export const heads = (profile: Profile): Head[] =>
  profile.heads.map(({ key, label, help }) => ({
    key: key as Head["key"],
    label,
    help,
    css: CSS[key as Head["key"]] ?? "n",
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
export function csv({ ops }: Profile): string {
  const columns = IN_FILE.map((key) => ({ key, label: key, kind: "text" as const, help: "" }));
  return toCsv(
    { columns, data: ops as never, rows: ops.rows },
    Array.from(ops.time_us, (_, i) => i),
  );
}
