/** What Ascend's profiler measured on an NPU: the twin of nbprof/tools/ascend/payload.py. */

import type { DonutPart } from "./donut.js";
import type { CategoryKey, Empty, Figure, Steps, Table } from "./payload.js";

export interface AscendRule {
  title: string;
  /** What the rule is about: "Iterations", "AI CPU". */
  about: string;
  state: "found" | "clear" | "unknown";
  /** "" of what was not found. */
  severity: "high" | "medium" | "low" | "";
  /** Part of the time that it concerns; null where that is not known. */
  percent: number | null;
  evidence: string;
  fix: string;
  /** Names of ops, the most first. */
  ops: string;
}

/** One table with its heading. */
export interface AscendSection {
  id: string;
  title: string;
  scope: string;
  /** Why it has no rows, and what to record; "" where it has. */
  missing: string;
  /** What is left out of it. */
  note: string;
  table: Table;
}

export interface Ascend {
  empty: Empty | null;
  verdict: { bound: CategoryKey | null; word: string; text: string; detail: string };
  figures: Figure[];
  /** Iterations of each model on each device, as steps with a `noun` and `labels` of their own. */
  iterations: { label: string; steps: Steps }[];
  iterations_missing: string;
  rules: AscendRule[];
  sections: AscendSection[];
  /** Time by type of op, whatever it ran on. */
  ring: { ms: number; parts: DonutPart[] };
  /** What of the tables contradicts itself. */
  notes: string[];
}
