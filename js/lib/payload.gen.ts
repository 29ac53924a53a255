/**
 * The payload: what Python sends and the views draw. Written by `python -m nbprof.tools.typescript`
 * from the classes in nbprof/tools, which say what each field means.
 *
 * A missing number is NaN in a float array and null elsewhere. Times carry their unit in the key.
 */

export type Codes = Uint32Array | Uint16Array | Uint8Array;
export type NumberArray = Float64Array | Float32Array | Int32Array | Uint32Array | Uint16Array | Uint8Array;
export type ColumnData = NumberArray | Coded | string[];

/** A text in which **double asterisks** mark what is set in bold; everything else is literal. */
export type Marked = string;

/** A tab has the key of what it draws; its name is in nbprof/tools/names.json. */
export type TabId = Exclude<keyof Payload, "meta" | "steps">;

export type CategoryKey =
  | "device_compute"
  | "device_to_device"
  | "device_collectives"
  | "host_compute"
  | "kernel_launch"
  | "input"
  | "output"
  | "compile"
  | "other";

/** All that the page draws: a field per tab, by the ids of `names.json`, and what surrounds them. See nbprof.tools.payloads. */
export interface Payload {
  meta: Meta;
  overview: Overview;
  steps: Steps;
  input: Input;
  ops: Ops;
  op_profile: OpProfile;
  hlo: Hlo;
  kernels: Kernels;
  device_time: DeviceTime;
  ascend: Ascend;
  memory: Memory;
  allocator: Allocator;
  memory_viewer: MemoryViewer;
  pods: Pods;
  trace: Trace;
  compare?: Compare;
}

/** Header, notice, tabs, footer and receipt. See nbprof.tools.parts. */
export interface Meta {
  version: string;
  label: string;
  facts: string[];
  created: string;
  framework: string;
  has_device: boolean;
  notice: Notice | null;
  heads: Record<string, Column[]>;
  hosts?: string[];
  devices?: HostDevices[];
  footer: Footer;
  receipt: ReceiptLine[];
  tabs: TabHead[];
  pending?: string;
  tab?: TabId;
  unit?: UnitWords;
}

/** The line below the header: that the recording failed, is partial or has no steps. See nbprof.tools.parts. */
export interface Notice {
  kind: "failed" | "partial" | "no_steps" | "static";
  title: string;
  text: string;
  code?: string;
}

/** Name and format of a table column, as `nbprof/schema` declares it. See nbprof.tools.parts. */
export interface Column {
  key: string;
  label: string;
  kind: "text" | "code" | "number" | "bytes" | "percent" | "bool";
  help: string;
  digits?: number;
}

/** The devices of a host, by their numbers there. See nbprof.tools.parts. */
export interface HostDevices {
  host: string;
  devices: number[];
}

/** The analysed file: events, size, time of the analysis. See nbprof.tools.parts. */
export interface Footer {
  events: number;
  dropped: number;
  analysed_s: number | null;
  file: string;
  bytes: number | null;
}

/** One note on the reading: events skipped, values that look wrong. See nbprof.tools.parts. */
export interface ReceiptLine {
  level: "info" | "warning";
  text: string;
}

/** A tab as the bar of tabs shows it; `note` is small text behind the label. See nbprof.tools.parts. */
export interface TabHead {
  id: TabId;
  label: string;
  count: number | null;
  flag: CategoryKey | null;
  note?: string;
}

/** Words for the unit of work of a run without steps: those of `nbprof.activity.unit`. See nbprof.tools.parts. */
export interface UnitWords {
  kind: "step" | "iteration" | "call" | "recording";
  noun: string;
  plural: string;
  a: string;
  the: string;
  time: string;
  per: string;
  counted: string;
  label: string;
  average: string;
}

/** The answer first. See nbprof.tools.overview.parts. */
export interface Overview {
  empty?: Empty;
  bound: CategoryKey | null;
  verdict: Verdict;
  confidence: Confidence;
  figures: Figure[];
  host_parts: HostPart[];
  bare: Bare | null;
  advice: Advice[];
  contention: string;
  probe: Probe | null;
  no_advice: string;
  code: Code | null;
  ranges: Ranges | null;
  pools?: Pools;
  compiles?: Compiles;
  graph_breaks?: GraphBreaks;
  top_ops: Table;
  top_ops_where: "device" | "host";
  run: [string, string][];
  checks: CheckResult[];
  tried?: Tried;
  plain?: boolean;
  only?: "advice";
}

/** Why a view has nothing to show, and how to get it; `code` is a snippet to copy. See nbprof.tools.parts. */
export interface Empty {
  title: string;
  text: string;
  code?: string;
}

/** The bottleneck of the run: "Input-bound", "61% of step time is spent waiting for data", and a longer text. See nbprof.tools.parts. */
export interface Verdict {
  word: string;
  text: string;
  detail: string;
}

/** The confidence of the verdict, with the evidence for and against it. See nbprof.tools.overview.parts. */
export interface Confidence {
  level: "high" | "medium" | "low" | "none";
  evidence: Evidence[];
}

/** Something that speaks for a statement (`ok`) or against it. See nbprof.tools.parts. */
export interface Evidence {
  ok: boolean;
  text: string;
}

/** A key figure, found by its key; a value of None was not measured, and the note says why. See nbprof.tools.parts. */
export interface Figure {
  key: string;
  label: string;
  value: number | null;
  unit: string;
  digits: number;
  note: string;
  bar?: BarPart[];
  spread?: string;
  hot?: boolean;
}

/** A part of the bar below a figure, in percent. See nbprof.tools.parts. */
export interface BarPart {
  category: CategoryKey;
  percent: number;
}

/** A part of *host compute*, or of the time outside ops. See nbprof.tools.overview.parts. */
export interface HostPart {
  category: CategoryKey;
  text: string;
  ms: number;
  percent: number;
}

/** The parts of a step without a profiler. See nbprof.tools.overview.parts. */
export interface Bare {
  step_ms: number;
  categories: BareTime[];
  note: string;
}

/** Time of a category in a step without a profiler. See nbprof.tools.overview.parts. */
export interface BareTime {
  category: CategoryKey;
  ms: number;
  percent: number;
}

/** A finding and what to do about it. See nbprof.tools.overview.parts. */
export interface Advice {
  severity: "high" | "medium" | "low";
  title: string;
  gain_ms: number | null;
  gain_is: "up to" | "about" | "at least" | "";
  per?: string;
  gain_percent?: number;
  evidence: Marked;
  certainty: string;
  refuted_by: string;
  fix: FixLine[];
  view: TabId;
  link: string;
  target: TraceTarget | null;
  tries?: string;
}

/** A line of a diff. See nbprof.display.markup. */
export interface FixLine {
  kind: "removed" | "added" | "same";
  text: string;
}

/** The place in the trace that shows the evidence of a rule. See nbprof.tools.overview.parts. */
export interface TraceTarget {
  kind: "gap" | "input" | "name";
  name?: string;
}

/** The result of a second run without input (`--probe`), and how it was made. See nbprof.tools.overview.parts. */
export interface Probe {
  text: string;
  detail: string;
}

/** Cells of the notebook, the recorded one first. See nbprof.tools.overview.parts. */
export interface Code {
  cells: CodeCell[];
  notes: string[];
}

/** A cell of the notebook: its lines with their times. See nbprof.tools.overview.parts. */
export interface CodeCell {
  title: string;
  table: Table;
}

/** The columns of a frame. See nbprof.tools.parts. */
export interface Table {
  columns: Column[];
  data: Record<string, ColumnData>;
  rows: number;
}

/** A text column, dictionary coded: row i holds `values[codes[i]]`. Missing text is "". See nbprof.display.codec. */
export interface Coded {
  codes: Codes;
  values: string[];
}

/** Ranges that the program names: those of the main thread, of other threads, and scopes of ops. See nbprof.tools.overview.parts. */
export interface Ranges {
  step_ms: number;
  groups: RangeGroup[];
  table: Table;
  notes: string[];
}

/** A group of ranges, from a row of the table on. See nbprof.tools.overview.parts. */
export interface RangeGroup {
  title: string;
  row: number;
}

/** Process pools that the recorded code waited for. See nbprof.tools.overview.parts. */
export interface Pools {
  tasks: Table;
  workers: Table;
  notes: string[];
}

/** Functions that were compiled while the cell ran. See nbprof.tools.overview.parts. */
export interface Compiles {
  table: Table;
  notes: string[];
}

/** Lines at which functions of `torch.compile` break into several graphs. See nbprof.tools.overview.parts. */
export interface GraphBreaks {
  table: Table;
  notes: string[];
}

/** Something that was checked, found or not. See nbprof.tools.overview.parts. */
export interface CheckResult {
  label: string;
  percent: number | null;
  level: "high" | "moderate" | "no" | "unknown";
  statement: string;
  view: TabId;
}

/** Results of experiments (`--try`), and a sentence on those that were not run. See nbprof.tools.overview.parts. */
export interface Tried {
  text: string;
  table: Table;
  changes: Change[];
  code: FixLine[];
}

/** The change of the person's own cell that an experiment recommends. See nbprof.tools.overview.parts. */
export interface Change {
  experiment: string;
  row: number;
  lines: FixLine[];
}

/** Times by step and category; a category that was not recorded is absent. See nbprof.tools.steps.parts. */
export interface Steps {
  empty: Empty | null;
  step: Int32Array;
  name: string[];
  start_ms: Float64Array;
  step_time_ms: Float64Array;
  categories: Partial<Record<CategoryKey, Float64Array>>;
  prefix: string;
  hosts: string[];
  noun?: string;
  labels?: Partial<Record<CategoryKey, string>>;
  warmup?: Uint8Array;
  left_out?: string;
  boundaries?: Boundary[];
  typical?: number;
  count?: string;
  host?: Uint16Array;
  clock?: Clock;
}

/** A boundary before the step of a row: an epoch, another loop, steps of another kind, or an evaluation. See nbprof.tools.steps.parts. */
export interface Boundary {
  row: number;
  text: string;
}

/** The steps of the cell by the wall clock, recorded or not; of many, the longest of each few. `recorded` is 1 where a profiler ran. `step` counts the steps of the cell from 1. See nbprof.tools.steps.parts. */
export interface Clock {
  step: Int32Array;
  start_s: Float64Array;
  ms: Float64Array;
  recorded: Uint8Array;
  scope: string;
}

/** Input time by kind of work, pipeline and op. See nbprof.tools.input.parts. */
export interface Input {
  empty: Empty | null;
  total_ms: number;
  per_step_ms: number | null;
  categories: InputCategory[];
  missing: string[];
  statement: string;
  next_step: string;
  share: Figure[];
  pipelines: Pipeline[];
  pipeline_table?: Table;
  call_table?: Table;
  loaders?: LoaderPipeline[];
  transforms?: Table;
  workers?: Table;
  ops: Table;
  bottleneck: Uint8Array;
  noun?: string;
  serving?: ServingTables;
}

/** A kind of input work; `per_step_ms` and `percent` are scaled where part of the step is enqueuing. See nbprof.tools.input.parts. */
export interface InputCategory {
  key: string;
  label: string;
  time_ms: number | null;
  percent: number | null;
  advice: string;
  per_step_ms: number | null;
}

/** A tf.data pipeline. See nbprof.tools.input.parts. */
export interface Pipeline {
  name: string;
  host: string;
  calls: number;
  slow_calls: number;
  mean_us: number | null;
  min_us: number | null;
  max_us: number | null;
  advice: Marked;
  fix: FixLine[];
  critical_ms: number | null;
  nodes: PipelineNode[];
  slowest: TfDataCall[];
}

/** An iterator of tf.data, or a stage of a DataLoader. See nbprof.tools.input.parts. */
export interface PipelineNode {
  id: string;
  parent: string | null;
  name: string;
  long_name: string;
  note: string;
  start_ms: number | null;
  total_ms: number;
  self_ms: number;
  calls: number;
  critical: boolean;
  bottleneck: boolean;
  percent: number | null;
  value?: string;
  facts?: NodeFact[];
}

/** A line about a node. See nbprof.tools.input.parts. */
export interface NodeFact {
  label: string;
  value: string;
}

/** A call of a pipeline's root: its iterators with the times of this call alone. See nbprof.tools.input.parts. */
export interface TfDataCall {
  start_ms: number;
  duration_us: number;
  critical_ms: number | null;
  nodes: PipelineNode[];
}

/** The way of a batch from the dataset of a DataLoader to the loop. See nbprof.tools.input.parts. */
export interface LoaderPipeline {
  name: string;
  scope: string;
  advice: Marked;
  fix: FixLine[];
  nodes: PipelineNode[];
}

/** Iterations of an inference engine by kind, and kernel time by part of the model, a column a kind. See nbprof.tools.steps.parts. */
export interface ServingTables {
  kinds: Table;
  parts: Table;
}

/** Framework ops, those with the most self time of each side. See nbprof.tools.ops.parts. */
export interface Ops {
  empty: Empty | null;
  table: Table;
  totals: OpTotals;
  rings: OpRing[];
  modules: Table | null;
  shapes: Table | null;
}

/** Self time of each side without idle, and its idle time; missing where the side was not recorded. See nbprof.tools.ops.parts. */
export interface OpTotals {
  device_us: number | null;
  device_idle_us: number | null;
  host_us: number | null;
  host_idle_us: number | null;
}

/** Self time of a side by op or by type, without idle and with it. See nbprof.tools.ops.parts. */
export interface OpRing {
  where: "device" | "host";
  by: "op" | "type";
  ms: number;
  parts: RingPart[];
  with_idle: Ring;
}

/** A part of a ring; "others" is grey, "idle" hatched. See nbprof.tools.parts. */
export interface RingPart {
  label: string;
  percent: number;
  kind: "rank" | "others" | "idle";
}

/** The largest parts of a time. See nbprof.tools.parts. */
export interface Ring {
  ms: number;
  parts: RingPart[];
}

/** The ops of compiled programs, of which the page builds its trees. See nbprof.tools.op_profile.parts. */
export interface OpProfile {
  empty: Empty | null;
  where: "device" | "cpu";
  device: string;
  peak_flops: number | null;
  peak_bytes: number | null;
  impossible: number;
  idle_us: number | null;
  figures: Figure[];
  statement: Marked;
  notes: string[];
  heads: Column[];
  ops?: ProfiledOps;
  rest?: OtherOps;
  inside?: FusedOps;
  arrays?: OpArrays;
}

/** The ops with the most time, the most first. See nbprof.tools.op_profile.parts. */
export interface ProfiledOps {
  program: Coded;
  name: Coded;
  category: Coded;
  duplicate: Coded;
  framework_op: Coded;
  source: Coded;
  shape: Coded;
  layout: Coded;
  trace_op: Coded;
  time_us: NumberArray;
  unknown_us: NumberArray;
  flops: NumberArray;
  bytes: NumberArray;
  runs: NumberArray;
  expression: Coded;
  in_file: Uint8Array;
  inside_left_out: NumberArray;
  at_ms: NumberArray;
  for_ms: NumberArray;
  rows: number;
}

/** All others, summed by program and category ('' of the last row where there are too many pairs). See nbprof.tools.op_profile.parts. */
export interface OtherOps {
  program: Coded;
  category: Coded;
  time_us: NumberArray;
  unknown_us: NumberArray;
  flops: NumberArray;
  bytes: NumberArray;
  runs: NumberArray;
  ops: NumberArray;
  rows: number;
}

/** Ops inside the fusions. See nbprof.tools.op_profile.parts. */
export interface FusedOps {
  name: Coded;
  category: Coded;
  shape: Coded;
  expression: Coded;
  op: NumberArray;
  flops: NumberArray;
  rows: number;
}

/** Arrays that ops write and read. See nbprof.tools.op_profile.parts. */
export interface OpArrays {
  role: Coded;
  shape: Coded;
  layout: Coded;
  padded: Coded;
  op: NumberArray;
  bytes: NumberArray;
  padded_bytes: NumberArray;
  rows: number;
}

/** Ops of compiled programs, or PyTorch's ops, under the roof of the device. See nbprof.tools.hlo.parts. */
export interface Hlo {
  empty: Empty | null;
  figures: Figure[];
  table: Table;
  left_out: string;
  donuts: TitledRing[];
  peak_flops: number | null;
  roofs: Roof[];
  marks: RoofMark[];
  device: string;
  missing: string;
  code: string;
}

/** A ring with its heading. See nbprof.tools.parts. */
export interface TitledRing {
  title: string;
  ms: number;
  parts: RingPart[];
}

/** The peak bandwidth of a memory. See nbprof.tools.hlo.parts. */
export interface Roof {
  label: string;
  bytes_per_second: number;
  ridge: number | null;
}

/** All ops together, or those of an average step. See nbprof.tools.hlo.parts. */
export interface RoofMark {
  label: string;
  operational_intensity: number | null;
  flops_per_second: number | null;
  bytes_per_second: number | null;
  compute_fraction: number | null;
  bandwidth_fraction: number | null;
}

/** The kernels with the most time, and sums over all of them. See nbprof.tools.kernels.parts. */
export interface Kernels {
  empty: Empty | null;
  chip: string;
  occupancy: string;
  by_name: Table;
  table: Table;
  by_op: Table;
  top: Ring;
  figures: Figure[];
}

/** Time of devices by class of work. See nbprof.tools.device_time.parts. */
export interface DeviceTime {
  empty: Empty | null;
  statement: Marked;
  figures: Figure[];
  devices: string[];
  places: DevicePlace[];
  windows: string[];
  parts_ms: Float32Array;
  waits: ((number | null)[])[];
  streams: DeviceSeries[];
  tables: Record<string, Table>;
  path: DevicePath;
  left_out: string;
}

/** A device by its host, and its number there. See nbprof.tools.device_time.parts. */
export interface DevicePlace {
  host: string;
  device: number;
}

/** A step function of time, as the largest value of each of so many equal boxes. See nbprof.tools.device_time.parts. */
export interface DeviceSeries {
  device: DevicePlace;
  label: string;
  unit: string;
  from_ms: number;
  to_ms: number;
  most: Float32Array;
}

/** The critical path of a step. See nbprof.tools.device_time.parts. */
export interface DevicePath {
  step: string;
  host: string;
  kinds: PathKind[];
  table: Table;
  rest: string;
}

/** A kind of work on the critical path, and its share. See nbprof.tools.device_time.parts. */
export interface PathKind {
  kind: string;
  total_us: number;
  percent: number;
}

/** Measurements of Ascend's profiler on an NPU. See nbprof.tools.ascend.parts. */
export interface Ascend {
  empty: Empty | null;
  verdict: AscendVerdict;
  figures: Figure[];
  iterations: Iterations[];
  iterations_missing: string;
  rules: AscendRule[];
  sections: AscendSection[];
  ring: Ring;
  notes: string[];
}

/** The bottleneck of the NPU. See nbprof.tools.ascend.parts. */
export interface AscendVerdict {
  bound: CategoryKey | null;
  word: string;
  text: string;
  detail: string;
}

/** Iterations of a model on a device, as steps with a `noun` and `labels` of their own. See nbprof.tools.ascend.parts. */
export interface Iterations {
  label: string;
  steps: Steps;
}

/** A rule of Ascend's tools and its result. See nbprof.tools.ascend.parts. */
export interface AscendRule {
  title: string;
  about: string;
  state: "found" | "clear" | "unknown";
  severity: "high" | "medium" | "low" | "";
  percent: number | null;
  evidence: string;
  fix: string;
  ops: string;
}

/** A table with its heading. See nbprof.tools.ascend.parts. */
export interface AscendSection {
  id: string;
  title: string;
  scope: string;
  missing: string;
  note: string;
  table: Table;
}

/** Allocators, the one with the largest peak first. See nbprof.tools.memory.parts. */
export interface Memory {
  empty: Empty | null;
  of: Marked;
  peaks: Table | null;
  ids: MemoryId[];
  host?: OverCell;
}

/** An allocator over time; the columns have a row per drawn event, in time order. See nbprof.tools.memory.parts. */
export interface MemoryId {
  memory_id: string;
  figures: Figure[];
  capacity_bytes: number | null;
  peak_bytes: number;
  peak_time_ms: number | null;
  peak_step: number | null;
  total: number;
  time_ms: Float64Array;
  allocation: Uint8Array;
  requested_bytes: NumberArray;
  allocated_bytes: NumberArray;
  op: Coded;
  step: Int32Array;
  region_type: Coded;
  data_type: Coded;
  shape: Coded;
  stack_bytes: NumberArray;
  heap_bytes: NumberArray;
  free_bytes: NumberArray;
  in_use_bytes: NumberArray;
  fragmentation: NumberArray;
  peak: Table;
  moments: Moments | null;
  ops: Table;
  ops_left_out?: string;
  roles?: Roles;
}

/** Blocks live at the drawn events, as what changes from one moment to the next. See nbprof.tools.memory.parts. */
export interface Moments {
  point: NumberArray;
  blocks: Table;
  moment: NumberArray;
  block: NumberArray;
  change: NumberArray;
  smaller_bytes: NumberArray;
  smaller_count: NumberArray;
  rest: string;
}

/** Memory by role. See nbprof.tools.memory.parts. */
export interface Roles {
  peak: Table;
  series: RoleBytes[];
}

/** Bytes of one role by drawn event. See nbprof.tools.memory.parts. */
export interface RoleBytes {
  role: string;
  bytes: NumberArray;
  tint: number;
}

/** Host memory over the cell; the columns have a row per moment, in time order. See nbprof.tools.memory.parts. */
export interface OverCell {
  time_s: Float64Array;
  step: Int32Array;
  process: NumberArray;
  children: NumberArray;
  recorded: Uint8Array;
  scope: string;
  processes: Table;
  note?: string;
}

/** PyTorch's caching allocator, a device each. See nbprof.tools.allocator.parts. */
export interface Allocator {
  empty: Empty | null;
  devices: AllocatorDevice[];
  notes: string[];
  left_out: string;
}

/** Memory of one device as its allocator divides it. See nbprof.tools.allocator.parts. */
export interface AllocatorDevice {
  device: number;
  name: string;
  figures: Figure[];
  when: string;
  ooms: Oom[];
  entries: number;
  timed: boolean;
  x: NumberArray;
  reserved: NumberArray;
  allocated: NumberArray;
  active: NumberArray;
  action: Coded;
  size: NumberArray;
  where: Coded;
  oom_at: NumberArray;
  segments: Segments;
  blocks: Blocks;
  map_more: string;
  stranded: Table;
  stranded_more: number;
  holders: Table;
}

/** A time at which memory ran out. See nbprof.tools.allocator.parts. */
export interface Oom {
  when: string;
  text: string;
  remedy: string;
}

/** Segments of a device, most stranded memory first. See nbprof.tools.allocator.parts. */
export interface Segments {
  size: NumberArray;
  stranded: NumberArray;
  name: Coded;
  rows: number;
}

/** Blocks by segment and offset in it. See nbprof.tools.allocator.parts. */
export interface Blocks {
  segment: NumberArray;
  offset: NumberArray;
  size: NumberArray;
  state: NumberArray;
  stranded: NumberArray;
  stack: Coded;
  rows: number;
}

/** Memory of compiled programs, the largest peak first. See nbprof.tools.memory_viewer.parts. */
export interface MemoryViewer {
  empty: Empty | null;
  modules: ProgramMemory[];
  left_out: string;
  chosen?: [number, number];
}

/** The memory of a compiled program. See nbprof.tools.memory_viewer.parts. */
export interface ProgramMemory {
  name: string;
  hosts: number;
  host: string;
  peak_bytes: number;
  time_ms: number | null;
  spaces: ProgramSpace[];
}

/** The memory of a program in one memory space. See nbprof.tools.memory_viewer.parts. */
export interface ProgramSpace {
  space: number;
  figures: Figure[];
  notes: string[];
  peak_bytes: number;
  unpadded_bytes: number;
  throughout_bytes: number;
  total_bytes: number;
  peak: number;
  points: number;
  rows: number;
  position: NumberArray;
  instruction: Coded;
  allocated_bytes: NumberArray;
  unpadded: NumberArray;
  buffers: Table;
  rest_count: number;
  rest_bytes: number;
}

/** Each step on each worker (a host, or a device that has its own steps). See nbprof.tools.pods.parts. */
export interface Pods {
  empty: Empty | null;
  statement: Marked;
  left_out: string;
  total: number;
  workers: string[];
  hosts?: Coded;
  heat?: Heat;
  step: Int32Array;
  count: Codes;
  slowest: Codes;
  slowest_ms: Float64Array;
  fastest_ms: Float64Array;
  median_ms: Float64Array;
  spread_percent: Float64Array;
  start_ms: Float64Array;
  cause: Uint8Array;
  cause_ms: Float64Array;
  first: Uint32Array;
  worker: Codes;
  time_ms: Float64Array;
  categories: Partial<Record<CategoryKey, Float64Array>>;
  heads: Column[];
  table: Table;
  typical?: Record<string, number | null>;
  cores?: Cores;
  findings?: Marked[];
  stragglers?: Table;
  stragglers_left_out?: string;
  outliers?: Table;
  outliers_left_out?: string;
  warmup?: Uint8Array;
}

/** Workers by steps as one picture. See nbprof.tools.pods.parts. */
export interface Heat {
  rows: Codes;
  first: Int32Array;
  last: Int32Array;
  unit_ms: Float32Array;
  median_ms: Float32Array;
  layers: HeatLayer[];
  show: string;
  note: string;
  at?: Codes;
  warmup?: Uint8Array;
}

/** A quantity of all cells. See nbprof.tools.pods.parts. */
export interface HeatLayer {
  key: string;
  codes: Uint16Array;
  median_ms: Float32Array;
  mean_percent: Float32Array;
  limit_percent: number;
  low_ms: number;
  high_ms: number;
}

/** The cores of TPUs. See nbprof.tools.pods.parts. */
export interface Cores {
  kinds: string[];
  heads: Column[];
  table: Table;
  first: Uint32Array;
  core: Codes;
  time_ms: Float32Array;
  parts: Record<string, Float32Array>;
  note: string;
}

/** The timeline. See nbprof.tools.trace.parts. */
export interface Trace {
  empty: Empty | null;
  key: string;
  tick_ns: number;
  origin_ns: number;
  end: number;
  names: string[];
  category: Uint8Array;
  lanes: Lane[];
  shown: number;
  total: number;
  rest: Rest;
  strip: Strip;
  gaps: Gaps;
  links: Links;
  lacks: string[];
  notes: string[];
}

/** A track of the trace: slices sorted by start. Ticks are `Trace.tick_ns` nanoseconds since the origin of the profile. See nbprof.tools.trace.parts. */
export interface Lane {
  id: number;
  process: string;
  name: string;
  note: string;
  kind: "steps" | "device" | "host" | "counter";
  events: number;
  folded: boolean;
  derived: boolean;
  depths: number;
  start: Uint32Array;
  duration: Uint32Array;
  inside?: Codes;
  name_code: Codes;
  depth: Codes;
  event: Uint32Array;
  op?: Codes;
  time?: Float64Array | Int32Array | Uint32Array;
  value?: NumberArray;
  unit?: "bytes" | "percent" | "count";
  host?: string;
  device?: number;
}

/** Density of omitted events: a row per lane and level with such events. See nbprof.tools.trace.parts. */
export interface Rest {
  bins: number;
  from: number;
  to: number;
  lane: Uint32Array;
  depth: Uint16Array;
  count: Uint32Array;
  busy: Uint8Array;
}

/** The whole profile in equal parts, 0…255; empty where a report does not hold it. See nbprof.tools.trace.parts. */
export interface Strip {
  above: Uint8Array;
  below: Uint8Array;
  below_is: "device" | "host";
}

/** The longest times in which nothing ran on a device, longest first. See nbprof.tools.trace.parts. */
export interface Gaps {
  process: Coded;
  start: Float64Array;
  duration: Float64Array;
}

/** Arrows between slices, by the numbers of their events. See nbprof.tools.trace.parts. */
export interface Links {
  kind: Uint8Array;
  from: Uint32Array;
  to: Uint32Array;
  left_out: number;
  work: Uint32Array;
  on: Codes;
  delay: Int32Array;
}

/** Runs side by side. See nbprof.tools.compare.parts. */
export interface Compare {
  home: number;
  runs: ComparedRun[];
  pairs: Pair[];
}

/** A run of a comparison. See nbprof.tools.compare.parts. */
export interface ComparedRun {
  label: string;
  facts: string[];
  created: string;
  times_ms: Float64Array;
  bare_ms: Float64Array;
  advice: Advice[];
  no_advice: string;
}

/** Two runs side by side. See nbprof.tools.compare.parts. */
export interface Pair {
  before: number;
  after: number;
  kind: "real" | "some" | "typical" | "serial" | "chance" | "none" | "same" | "unknown";
  title: string;
  headline: string;
  detail: string;
  evidence: Evidence[];
  bare: boolean;
  digits: number;
  figures: ComparedFigure[];
  categories: ComparedCategory[];
  findings: ComparedFinding[];
  findings_text: Marked;
  per_step: boolean;
  unit?: UnitWords;
  ops: Table;
  ops_left_out: number;
  kernels: Table;
  kernels_left_out: number;
  small_us: SmallChanges;
  calls: ComparedCalls[];
  calls_reason: string;
  memory: ComparedMemory;
  markdown: string;
}

/** A figure before and after; None: not measured. See nbprof.tools.compare.parts. */
export interface ComparedFigure {
  label: string;
  before: number | null;
  after: number | null;
  unit: string;
  digits: number;
  note: string;
  bar?: BarPart[];
}

/** The time of a category before and after. See nbprof.tools.compare.parts. */
export interface ComparedCategory {
  key: CategoryKey | "step_time";
  before_ms: number | null;
  after_ms: number | null;
  change_ms: number | null;
  margin_ms: number | null;
  change_percent: number | null;
  real: boolean | null;
}

/** A finding of either run with the gain that each predicts. See nbprof.tools.compare.parts. */
export interface ComparedFinding {
  title: string;
  state: "gone" | "still found" | "new";
  gain_is: string;
  before_ms: number | null;
  after_ms: number | null;
}

/** Changes in µs below which a row is not shown at first. See nbprof.tools.compare.parts. */
export interface SmallChanges {
  ops: number;
  kernels: number;
}

/** The calls of two runs as one tree. See nbprof.tools.compare.parts. */
export interface ComparedCalls {
  id: "python" | "device" | "host";
  label: string;
  per_step: boolean;
  calls: Table;
  left_out: number;
}

/** Memory before and after. See nbprof.tools.compare.parts. */
export interface ComparedMemory {
  roles: Table;
  moment: string;
  reason: string;
  stacks: Table;
  stacks_left_out: number;
  stacks_reason: string;
}
