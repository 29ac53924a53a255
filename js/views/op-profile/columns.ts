/** The columns of the tree, and the ops as CSV. */

import { toCsv } from "../../lib/csv.js";
import type { Column, OpProfile } from "../../lib/payload.js";
import type { Sort } from "./model.js";

export interface Head {
  key: Sort | "name";
  label: string;
  help: string;
  css: string;
}

/** The columns: of rates instead of parts where a peak is not known. */
export function heads(profile: OpProfile): Head[] {
  const from = new Map(profile.heads.map((column): [string, Column] => [column.key, column]));
  const head = (key: Sort, column: string, css: string, label?: string, help?: string): Head => {
    const { label: own = "", help: says = "" } = from.get(column) ?? {};
    return { key, label: label ?? own, help: help ?? says, css };
  };
  const none = profile.peak_flops === null && profile.peak_bytes === null;
  return [
    {
      key: "name",
      label: "Op",
      help: "Program, category or scope; the ops in it; and the ops inside a fusion.",
      css: "",
    },
    head("time", "time_fraction", "n"),
    ...(none ? [] : [head("wasted", "wasted_us", "n", "Wasted %")]),
    profile.peak_flops === null
      ? head("flops", "", "n", "GFLOP/s", "Floating-point operations a second, in 10⁹, narrow ones by their width.")
      : head("flops", "flops_utilization", "n"),
    profile.peak_bytes === null
      ? head("bytes", "", "n", "GB/s", "Bytes of main memory a second, in 10⁹.")
      : head("bytes", "bandwidth_utilization", "n"),
    head("runs", "occurrences", "n hide-n"),
  ];
}

const IN_FILE = [
  ...["program", "name", "category", "time_us", "flops", "bytes", "runs", "framework_op", "source", "shape", "layout"],
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
