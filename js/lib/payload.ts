/**
 * What Python sends and the views draw: the twin of the payload modules in nbprof/tools.
 *
 * A missing number is NaN in a float array and null elsewhere: drawn as "–", never as 0.
 * Times carry their unit in the key. Nothing here is HTML: every string is foreign text.
 */

import type { Compare } from "./compared.js";
import type { DonutPart } from "./donut.js";
import type { Allocator } from "./payload-allocator.js";
import type { Ascend } from "./payload-ascend.js";
import type { Cores } from "./payload-cores.js";
import type { DeviceTime } from "./payload-device-time.js";
import type { Heat } from "./payload-heat.js";
import type { Hlo } from "./payload-hlo.js";
import type { Memory } from "./payload-memory.js";
import type { MemoryViewer } from "./payload-memory-viewer.js";
import type { OpProfile } from "./payload-op-profile.js";
import type { Trace } from "./payload-trace.js";
import type { Unit } from "./unit.js";
import type { Target } from "./view.js";

export type { Cores } from "./payload-cores.js";
export type { DeviceSeries, DeviceTime } from "./payload-device-time.js";
export type { MemoryId } from "./payload-memory.js";
export type { ProgramMemory, ProgramSpace } from "./payload-memory-viewer.js";
export type { OpProfile } from "./payload-op-profile.js";
export type { Gaps, Lane, Links, Strip, Trace } from "./payload-trace.js";

export type NumberArray = Float64Array | Float32Array | Int32Array | Uint32Array | Uint16Array | Uint8Array;

/** A text column, dictionary coded: row i holds `values[codes[i]]`. A code of -1 (0xffff…) does not occur: missing text is "". */
export interface Coded {
  codes: Uint32Array | Uint16Array | Uint8Array;
  values: string[];
}

export type ColumnData = NumberArray | Coded | string[];

/** One column of a table, declared once in nbprof/schema/frames.py. */
export interface Column {
  key: string;
  /** Head of the column on screen, with its unit where it has one ("Total µs"). */
  label: string;
  /** text: a name; code: a path or kernel name in monospace; number; bytes; percent (0…100); bool: 1, 0 or NaN. */
  kind: "text" | "code" | "number" | "bytes" | "percent" | "bool";
  digits?: number;
  /** One sentence for the tooltip of the head. */
  help: string;
}

export interface Table {
  columns: Column[];
  /** By key. `_at_ms` and `_for_ms`, where they are there, are start and duration of a row's longest call; no head names them. */
  data: Record<string, ColumnData>;
  rows: number;
}

/** Why a view has nothing to show, and how to get it. `code` is a snippet to copy. */
export interface Empty {
  title: string;
  text: string;
  code?: string;
}

/** A text in which **double asterisks** mark what is set in bold; everything else is literal. */
export type Marked = string;

/** Stack order, bottom to top. The key is also the CSS class that sets the colour. */
export const CATEGORIES = [
  { key: "device_compute", css: "device", label: "Device compute" },
  { key: "device_to_device", css: "d2d", label: "Device to device" },
  { key: "device_collectives", css: "coll", label: "Device collectives" },
  { key: "host_compute", css: "host", label: "Host compute" },
  { key: "kernel_launch", css: "launch", label: "Kernel launch" },
  { key: "input", css: "input", label: "Input" },
  { key: "output", css: "output", label: "Output" },
  { key: "compile", css: "compile", label: "Compile" },
  { key: "other", css: "other", label: "Other" },
] as const;

export type CategoryKey = (typeof CATEGORIES)[number]["key"];

/** A tab has the key of what it draws; its name is in nbprof/tools/names.json. */
export type TabId = Exclude<keyof Payload, "meta" | "steps">;

export interface Notice {
  kind: "failed" | "partial" | "no_steps" | "static";
  title: string;
  text: string;
  code?: string;
}

export interface Meta {
  version: string;
  /** "run 7" */
  label: string;
  /** What follows the label in the header bar: ["32 steps", "1.3 s", "CPU", "14:02:31"]. */
  facts: string[];
  created: string;
  framework: string;
  has_device: boolean;
  notice: Notice | null;
  /** `note` is small text behind the label. */
  tabs: { id: TabId; label: string; count: number | null; flag: CategoryKey | null; note?: string }[];
  /** Columns of the tables that views draw row by row, by the frame of nbprof/schema that they show; earlier reports lack them. */
  heads?: Record<string, Column[]>;
  /** What figures are given per, where that is no step. */
  unit?: Unit;
  /** What is said beside the tabs while the others are made: this is the first picture, and the whole takes its place. */
  pending?: string;
  /** The tab that is shown first, where that is not the first one. */
  tab?: TabId;
  /** Those that recorded, where there are several. */
  hosts?: string[];
  footer: { events: number; dropped: number; analysed_s: number | null; file: string; bytes: number | null };
  /** The receipt: what was read, skipped or looks wrong. Shown when the footer is opened. */
  receipt: { level: "info" | "warning"; text: string }[];
}

export interface Figure {
  /** What finds it: "step_time". Reports of 0.1 lack it. */
  key?: string;
  label: string;
  /** null: not measured. */
  value: number | null;
  unit: string;
  digits: number;
  /** Small line below: "3.78 ms per step". */
  note: string;
  /** Bar below the figure, parts of 100. */
  bar?: { category: CategoryKey; percent: number }[];
  hot?: boolean;
  /** "± 0.38", small, behind the value. */
  spread?: string;
}

export interface Advice {
  severity: "high" | "medium" | "low";
  title: string;
  /** Gain in ms per step, null when not known. */
  gain_ms: number | null;
  /** What else than a step it is given per: "per call"; of a recording also how much of it. */
  per?: string;
  gain_percent?: number;
  /** What it is, empty where there is none. Reports of 0.2 and before lack it, and mean a bound. */
  gain_is?: "up to" | "about" | "at least" | "";
  evidence: Marked;
  /** How sure it is, and what would refute it, as the end of "Wrong if …". Reports of 0.2 and before lack them. */
  certainty?: string;
  refuted_by?: string;
  /** Lines of a diff; Copy copies all but the removed ones. */
  fix: { kind: "removed" | "added" | "same"; text: string }[];
  view: TabId;
  link: string;
  /** What of the trace shows it, where one place does. */
  target?: Target | null;
}

/** A part of *host compute*, or of the time outside ops. */
export interface HostPart {
  category: CategoryKey;
  /** "Python: augment, Cell [3] line 12" */
  text: string;
  /** Per unit, and of its time. */
  ms: number;
  percent: number;
}

/** Cells of the notebook, the recorded one first. */
export interface Code {
  /** line, code, calls; where known host_ms, device_ms, program_ms: NaN of a line that did not run. */
  cells: { title: string; table: Table }[];
  /** How much of the time is not attributed to any line. */
  notes: string[];
}

/** Ranges that the program names: those of the main thread, of other threads, and scopes of ops. */
export interface Ranges {
  /** The time of a unit. */
  step_ms: number;
  /** name, _depth, top; where known calls_per_step, host_ms_per_step, percent, wait_ms_per_step, device_ms_per_step,
   *  backward_device_ms_per_step or backward_host_ms_per_step. */
  table: Table;
  /** The first row of each group. */
  groups: { title: string; row: number }[];
  notes: string[];
}

export interface Overview {
  bound: CategoryKey | null;
  /** "Input-bound" and "61% of step time is spent waiting for data". */
  verdict: { word: string; text: string; detail: string };
  confidence: { level: "high" | "medium" | "low" | "none"; evidence: { ok: boolean; text: string }[] };
  figures: Figure[];
  /** What the host did in the time of a category, largest first: rows below it. */
  host_parts?: HostPart[];
  advice: Advice[];
  /** Why there is no advice, when there is none. */
  no_advice: string;
  /** That other processes took cores while it was recorded, in a sentence. */
  contention?: string;
  /** What a second run without input gave (`--probe`), and how it was made. */
  probe?: { text: string; detail: string } | null;
  /** Set where only this part is shown: `p.advice` in a cell. */
  only?: "advice";
  /** Set where no known framework wrote the trace: what follows from steps and ops is left out. */
  plain?: true;
  /** rank, op, type, ms_per_step, percent, cumulative_percent; where known gflops_per_second */
  top_ops: Table;
  top_ops_where: "device" | "host";
  /** Time by line of the person's code; null or absent where no line is known. */
  code?: Code | null;
  /** Null or absent where the program names none. */
  ranges?: Ranges | null;
  run: [label: string, value: string][];
  /** Everything that was looked at, found or not. */
  checks: {
    label: string;
    percent: number | null;
    level: "high" | "moderate" | "no" | "unknown";
    statement: string;
    view: TabId;
  }[];
}

export interface Steps {
  /** Why there are no steps; then every array is empty. */
  empty: Empty | null;
  step: Int32Array;
  name: string[];
  start_ms: Float64Array;
  step_time_ms: Float64Array;
  /** ms of each category by step. A category that was not recorded is absent. */
  categories: Partial<Record<CategoryKey, Float64Array>>;
  /** "train" in "32 steps, train 500–531"; "" when steps have only numbers. */
  prefix: string;
  /** 1: a leading step that compiles or warms up; it is drawn, but left out of every average while nothing is selected. Absent: none. */
  warmup?: Uint8Array;
  /** With `warmup`: a sentence that says what is left out. */
  left_out?: string;
  /** Where in the loop an epoch, another loop or steps of another kind begin, or an evaluation ran: before the step of a row. */
  boundaries?: readonly { row: number; text: string }[];
  /** Position of a step of median length; absent where there are few. */
  typical?: number;
  /** Distinct hosts, and the host of each step, where there are several. */
  hosts: string[];
  host?: Uint16Array;
  /** "2 steps on 2 ranks", where several hosts recorded. */
  count?: string;
  /** What one is called, "step" where absent; and other names of the categories. */
  noun?: string;
  labels?: Partial<Record<CategoryKey, string>>;
}

export interface TfDataNode {
  id: string;
  parent: string | null;
  name: string;
  long_name: string;
  /** Second line of the node: a parameter or a plain remark ("" when none). */
  note: string;
  /** Start of its first call. Reports of 0.2 and before lack it. */
  start_ms?: number | null;
  total_ms: number;
  self_ms: number;
  /** Of the self time of all iterators of the graph; null where it has none. */
  percent: number | null;
  calls: number;
  critical: boolean;
  bottleneck: boolean;
}

/** One call of a pipeline's root: its iterators with the times of this call alone. */
export interface TfDataCall {
  start_ms: number;
  duration_us: number;
  /** Self time of the iterators on the critical path. */
  critical_ms: number | null;
  nodes: TfDataNode[];
}

export interface Pipeline {
  name: string;
  host: string;
  calls: number;
  slow_calls: number;
  mean_us: number;
  min_us: number;
  max_us: number;
  /** Marked sentence: what limits this pipeline and what helps. */
  advice: Marked;
  /** Code for the advice, as lines of a diff. */
  fix: Advice["fix"];
  /** The times of all calls together. */
  critical_ms: number | null;
  nodes: TfDataNode[];
  /** The slowest calls one by one, the longest first. */
  slowest: TfDataCall[];
}

export interface Input {
  empty: Empty | null;
  /** Self time of all input ops. */
  total_ms: number;
  per_step_ms: number | null;
  /** Self time as recorded, null where not known; `per_step_ms` and `percent` are scaled where part of the step is enqueuing. */
  categories: {
    key: string;
    label: string;
    time_ms: number | null;
    percent: number | null;
    advice: string;
    per_step_ms: number | null;
  }[];
  /** Why the times of some are not known. Reports of 0.2 and before lack it. */
  missing?: string[];
  /** How much of the steps is input, and what to do next. */
  statement: string;
  next_step: string;
  share: Figure[];
  pipelines: Pipeline[];
  /** One row per pipeline, where there are several. Reports of 0.2 and before lack it, and the next. */
  pipeline_table?: Table;
  /** The longest calls of each pipeline, by pipeline and rank. */
  call_table?: Table;
  /** op, category, occurrences, total_ms, total_percent, self_ms, self_percent, us_per_call; self time descending. */
  ops: Table;
  /** By row of `ops`: 1 when it is the bottleneck of a pipeline. */
  bottleneck: Uint8Array;
  /** What a row of `ops` is called; "iterator" when left out. */
  noun?: string;
  /** Where steps are iterations of an inference engine: these by kind, and kernel time by part of the model, a column a kind. */
  serving?: { kinds: Table; parts: Table };
}

export interface Ops {
  empty: Empty | null;
  /** rank, where ("device"|"host"), type, op, occurrences, total_us, avg_us, self_us, avg_self_us, eager; IDLE rows excluded;
   *  where known tensor_core_percent, gflops_per_second, gbytes_per_second, operational_intensity, bound_by; self_percent and
   *  cumulative_percent of the side without idle */
  table: Table;
  /** Self time of each side without idle, and its idle time; NaN where the side was not recorded. */
  totals: { device_us: number; host_us: number; device_idle_us: number; host_idle_us: number };
  /** Self time of a side by op and by type. */
  rings: {
    where: "device" | "host";
    by: "op" | "type";
    ms: number;
    parts: DonutPart[];
    with_idle: { ms: number; parts: DonutPart[] };
  }[];
  /** PyTorch: name, percent, calls, where there is a device device_total_us and backward_device_us, host_total_us, backward_host_us,
   *  module ("" of a sum); _depth; a tree in preorder. null where with_stack was off. */
  modules: Table | null;
  /** PyTorch: op, input_shapes, percent, calls, device_self_us …; null where record_shapes was off. */
  shapes: Table | null;
}

export interface Kernels {
  empty: Empty | null;
  /** What they ran on; reports of 0.2 and before lack it. */
  chip?: string;
  /** Where recorded occupancies come from, at the end of a sentence. */
  occupancy?: string;
  /** COLUMNS of nbprof/tools/kernels/payload.py. */
  table: Table;
  /** `p.kernels.by_name()` and `.by_op()` of the names in the table, of all rows of the profile. */
  by_name: Table;
  by_op: Table;
  /** The kernels with the most time, of all of it. */
  top: { ms: number; parts: DonutPart[] };
  figures: Figure[];
}

/** Each step on each worker (host, or device with steps of its own). */
export interface Pods {
  empty: Empty | null;
  /** Who is slow, and how far apart the workers are. */
  statement: Marked;
  /** Who holds the others up, what that costs, and what else would help. Reports of 0.2 and before lack it, and the tables. */
  findings?: Marked[];
  /** `p.pods.stragglers` and `p.pods.outliers`; absent where they are empty. */
  stragglers?: Table;
  stragglers_left_out?: string;
  outliers?: Table;
  outliers_left_out?: string;
  /** What of it this report holds; "" when all. */
  left_out: string;
  /** Workers of the run. */
  total: number;
  workers: string[];
  /** By worker: its host. Reports of 0.2 and before lack it, and `heat`. */
  hosts?: Coded;
  heat?: Heat;
  /** By step, in time order. */
  step: Int32Array;
  /** 1: left out of the means of `table`. Absent: none. */
  warmup?: Uint8Array;
  /** How many workers recorded it. */
  count: NumberArray;
  /** Index into `workers`. */
  slowest: NumberArray;
  slowest_ms: Float64Array;
  fastest_ms: Float64Array;
  median_ms: Float64Array;
  /** Slowest less fastest, in percent of the slowest. */
  spread_percent: Float64Array;
  /** Begin of the step on the slowest worker. */
  start_ms: Float64Array;
  /** Index into CATEGORIES + 1 of where the slowest lies furthest over the median; 0: nowhere. And by how much. */
  cause: Uint8Array;
  cause_ms: Float64Array;
  /** The bars of step i are first[i] … first[i + 1] of these columns. */
  first: Uint32Array;
  worker: NumberArray;
  time_ms: Float64Array;
  categories: Partial<Record<CategoryKey, Float64Array>>;
  /** The columns of the table of one step. */
  heads: Column[];
  /** worker, worker_steps, mean_step_ms, over_median_percent, times_slowest, and the mean of each recorded category. */
  table: Table;
  /** By column of `table`: the median over the workers. */
  typical?: Record<string, number | null>;
  /** What each core of the TPUs did; absent where there are none. */
  cores?: Cores;
}

/** A view may declare its part itself: `declare module "../../lib/payload.js" { interface Payload { … } }`. */
export interface Payload {
  meta: Meta;
  overview: Overview;
  steps: Steps;
  input: Input;
  ops: Ops;
  op_profile: OpProfile;
  hlo: Hlo;
  kernels: Kernels;
  ascend: Ascend;
  memory: Memory;
  allocator: Allocator;
  device_time: DeviceTime;
  memory_viewer: MemoryViewer;
  pods: Pods;
  trace: Trace;
  /** Only where this run is compared with others. */
  compare?: Compare;
}
