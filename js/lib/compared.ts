/** The part of the payload that lays runs side by side: the twin of nbprof/tools/compare/payload.py. */

import type { Advice, CategoryKey, Marked, Table } from "./payload.js";
import type { Unit } from "./unit.js";

export interface ComparedRun {
  label: string;
  facts: string[];
  created: string;
  /** Of the steps that averages are of, in time order. */
  times_ms: Float64Array;
  /** The first thing to do, if there is one. */
  advice: Advice[];
  no_advice: string;
}

export interface ComparedFigure {
  label: string;
  /** null: not measured. */
  before: number | null;
  after: number | null;
  unit: string;
  digits: number;
  note: string;
  /** Of the second run, parts of 100. */
  bar?: { category: CategoryKey; percent: number }[];
}

export interface ComparedCategory {
  key: CategoryKey | "step_time";
  before_ms: number | null;
  after_ms: number | null;
  change_ms: number | null;
  /** Half of the 95 % interval of the change. */
  margin_ms: number | null;
  change_percent: number | null;
  /** Whether that interval leaves 0 out; null where there is none. */
  real: boolean | null;
}

export interface Pair {
  /** Indices of the runs. */
  before: number;
  after: number;
  kind: "real" | "some" | "typical" | "serial" | "chance" | "none" | "same" | "unknown";
  title: string;
  headline: string;
  detail: string;
  evidence: { ok: boolean; text: string }[];
  /** Decimals of step times. */
  digits: number;
  figures: ComparedFigure[];
  /** The step itself first. */
  categories: ComparedCategory[];
  /** Advice before and after: the findings of either run with the gain that each predicts. Reports of 0.2 and before lack them. */
  findings?: {
    title: string;
    state: "gone" | "still found" | "new";
    gain_is?: string;
    before_ms: number | null;
    after_ms: number | null;
  }[];
  /** What those that are gone predicted, and what came of it. */
  findings_text?: Marked;
  /** Times of ops and kernels are a step; else of the whole profile. */
  per_step: boolean;
  /** What times are given per, where that is no step. */
  unit?: Unit;
  /** where, type, op, state, before_op, before_us, after_us, change_us, before_calls, after_calls; `_category`: index into CATEGORIES. */
  ops: Table;
  ops_left_out: number;
  /** kernel, and the same. */
  kernels: Table;
  kernels_left_out: number;
  /** What changed by less is not shown at first. */
  small_us: { ops: number; kernels: number };
  markdown: string;
}

export interface Compare {
  runs: ComparedRun[];
  /** Each two runs, in both directions; the one to show first is the first. */
  pairs: Pair[];
  /** The run whose dashboard this is. */
  home: number;
}
