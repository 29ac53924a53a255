/** A payload as Python would send it, made up, with names that would do harm where text became markup. */

import type { Column, ColumnData, Hlo, Payload, PipelineNode, Pods, ProgramSpace, Table } from "../lib/payload.js";
import { allocatorSample } from "./allocator-sample.js";
import { deviceTimeSample } from "./device-time-sample.js";
import { HOSTILE } from "./hostile.js";
import { nothingElse } from "./lanes.js";
import { opProfile } from "./op-profile-sample.js";

/** The same numbers every time. */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state * 1664525 + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

type Spec = [key: string, label: string, kind: Column["kind"], digits?: number];

export function makeTable(specs: readonly Spec[], data: Record<string, ColumnData>): Table {
  const first = data[specs[0]?.[0] as string] as ColumnData;
  const rows = "codes" in first ? first.codes.length : first.length;
  const columns = specs.map(([key, label, kind, digits]): Column => ({ key, label, kind, digits, help: `${label}.` }));
  return { columns, data, rows };
}

/** A parameter of 4 KiB, and above it a buffer of 8 KiB of which half is padding, and one of 4 KiB that is never given back. */
export function programSpace(more: Partial<ProgramSpace> = {}): ProgramSpace {
  const bytes = (...values: number[]): Float64Array => Float64Array.from(values, (value) => 1024 * value);
  return {
    space: 0,
    figures: [{ key: "peak", label: "Peak", value: 16, unit: "KiB", digits: 1, note: "at point 2 of 4" }],
    notes: [],
    peak_bytes: 16384,
    unpadded_bytes: 12288,
    throughout_bytes: 4096,
    total_bytes: 16384,
    peak: 3,
    points: 5,
    rows: 5,
    position: Uint32Array.of(0, 1, 2, 3, 4),
    instruction: {
      codes: Uint8Array.of(0, 1, 2, 3, 4),
      values: ["copy", "fusion.1", `add ${HOSTILE}`, "fusion.2", ""],
    },
    allocated_bytes: bytes(4, 4, 12, 16, 8),
    unpadded: bytes(4, 4, 8, 12, 8),
    buffers: makeTable(
      [
        ["buffer", "Buffer", "code"],
        ["category", "Category", "text"],
        ["size_bytes", "Size", "bytes"],
        ["unpadded_bytes", "Unpadded", "bytes"],
        ["padding_ratio", "Expansion", "number", 2],
        ["shape", "Shape", "code"],
        ["framework_op", "Framework op", "code"],
        ["allocation", "Allocation", "number", 0],
        ["start", "From point", "number", 0],
        ["end", "To point", "number", 0],
        ["opcode", "Opcode", "text"],
        ["source", "Source", "code"],
      ],
      {
        buffer: ["param.0", "fusion.1", "fusion.2"],
        category: ["Parameter", "Temporary", "Temporary"],
        size_bytes: bytes(4, 8, 4),
        unpadded_bytes: bytes(4, 4, 4),
        padding_ratio: Float64Array.of(1, 2, 1),
        shape: ["f32[8,128]{1,0}", "f32[8,64]{1,0:T(8,128)}", "f32[8,128]{1,0}"],
        framework_op: ["", `jit(step)/mul ${HOSTILE}`, "jit(step)/add"],
        allocation: Float64Array.of(-1, 7, 7),
        start: Float64Array.of(0, 1, 2),
        end: Float64Array.of(5, 3, 4),
        opcode: ["parameter", "fusion", "fusion"],
        source: ["", "model.py:12", "model.py:13"],
      },
    ),
    rest_count: 0,
    rest_bytes: 0,
    ...more,
  };
}

function node(
  id: string,
  parent: string | null,
  name: string,
  note: string,
  self_ms: number,
  calls: number,
  critical: boolean,
  bottleneck = false,
): PipelineNode {
  const long_name = `Iterator::${id}`;
  return {
    id,
    parent,
    name,
    long_name,
    note,
    start_ms: 0,
    self_ms,
    percent: self_ms,
    total_ms: self_ms * 1.4,
    calls,
    critical,
    bottleneck,
  };
}

export const NODES: PipelineNode[] = [
  node("Root", null, "Root", "no prefetch", 0.41, 21, true),
  node("Root::BatchV2", "Root", "BatchV2", "64, drop_remainder", 7.92, 21, true),
  node("Map", "Root::BatchV2", "Map", `decode_and_augment_with_a_long_name ${HOSTILE}`, 62.42, 1344, true, true),
  node("Zip", "Map", "Zip", "2 inputs", 0.91, 1344, true),
  node("Zip[0]::Shuffle", "Zip", "Shuffle", "buffer 1,024", 2.31, 1344, true),
  node("TFRecord", "Zip[0]::Shuffle", "TFRecord", "on demand · 256 KiB", 7.66, 1344, true),
  node("Zip[1]::TensorSlice", "Zip", "TensorSlice", "labels, in memory", 0.51, 1344, false),
];

export const INPUT_OPS: Table = makeTable(
  [
    ["op", "Input op", "code"],
    ["category", "Category", "text"],
    ["occurrences", "Count", "number", 0],
    ["total_ms", "Total ms", "number", 2],
    ["total_percent", "Total %", "percent", 1],
    ["self_ms", "Self ms", "number", 2],
    ["self_percent", "Self %", "percent", 1],
    ["us_per_call", "µs / call", "number", 1],
  ],
  {
    op: [
      "Iterator::Root::BatchV2::Map",
      "Iterator::Root::BatchV2",
      "Iterator::Root::BatchV2::Map::Zip[0]::Shuffle::TFRecord",
      "Iterator::Root::BatchV2::Map::Zip[0]::Shuffle",
      "Iterator::Root::BatchV2::Map::Zip",
      "Iterator::Root::BatchV2::Map::Zip[1]::TensorSlice",
      "Iterator::Root",
    ],
    category: { codes: Uint8Array.of(0, 0, 1, 0, 0, 0, 0), values: ["Preprocessing", "Read on demand"] },
    occurrences: Float64Array.of(1344, 21, 1344, 1344, 1344, 1344, 21),
    total_ms: Float64Array.of(73.81, 81.73, 7.66, 9.97, 11.39, 0.51, 82.14),
    total_percent: Float64Array.of(89.9, 99.5, 9.3, 12.1, 13.9, 0.6, 100),
    self_ms: Float64Array.of(62.42, 7.92, 7.66, 2.31, 0.91, 0.51, 0.41),
    self_percent: Float64Array.of(76, 9.6, 9.3, 2.8, 1.1, 0.6, 0.5),
    us_per_call: Float64Array.of(46.4, 377.1, 5.7, 1.7, 0.7, 0.4, 19.5),
  },
);

/** Workers over steps: each step the last worker waits 2 ms longer for input, but in the first the first one computes longer. */
export function podsSample(steps: number, workers: number): Pods {
  const cells = steps * workers;
  const late = (i: number): number => (i < workers ? 0 : workers - 1);
  const input = Float64Array.from({ length: cells }, (_, i) => (i >= workers && i % workers === late(i) ? 3 : 1));
  const device_compute = Float64Array.from({ length: cells }, (_, i) => (i < workers && i === 0 ? 6 : 4));
  const each = (value: number): Float64Array => new Float64Array(steps).fill(value);
  const names = Array.from({ length: workers }, (_, w) => (w === 1 ? `host-1 ${HOSTILE}` : `host-${w}`));
  return {
    empty: null,
    statement: `**host-${workers - 1}** is the slowest in **${steps - 1} of ${steps}** steps.`,
    left_out: "",
    total: workers,
    workers: names,
    step: Int32Array.from({ length: steps }, (_, i) => 500 + i),
    count: new Uint8Array(steps).fill(workers),
    slowest: Uint8Array.from({ length: steps }, (_, i) => (i ? workers - 1 : 0)),
    slowest_ms: each(7),
    fastest_ms: each(5),
    median_ms: each(5),
    spread_percent: Float64Array.from({ length: steps }, (_, i) => (i === 2 ? 30 : 200 / 7)),
    start_ms: Float64Array.from({ length: steps }, (_, i) => 7 * i),
    cause: Uint8Array.from({ length: steps }, (_, i) => (i ? 6 : 1)),
    cause_ms: each(2),
    first: Uint32Array.from({ length: steps + 1 }, (_, i) => i * workers),
    worker: Uint8Array.from({ length: cells }, (_, i) => i % workers),
    time_ms: input.map((value, i) => value + (device_compute[i] as number)),
    categories: { device_compute, input },
    heads: ["worker", "step_time_ms", "device_compute_ms", "input_ms", "bottleneck"].map((key) => ({
      key,
      label: key,
      kind: key === "worker" || key === "bottleneck" ? "text" : "number",
      digits: 2,
      help: `${key}.`,
    })),
    table: makeTable(
      [
        ["worker", "Worker", "text"],
        ["mean_step_ms", "Step ms", "number", 2],
        ["times_slowest", "Slowest in", "number", 0],
      ],
      { worker: names, mean_step_ms: new Float64Array(workers).fill(5), times_slowest: new Uint8Array(workers) },
    ),
  };
}

export interface SampleOptions {
  steps?: number;
  /** A first step this many times longer. */
  firstFactor?: number;
}

/** The sample. `steps: 0` is a run without step markers. */
const NO_ROWS: Table = { columns: [], data: {}, rows: 0 };

export function sample({ steps: n = 21, firstFactor = 1 }: SampleOptions = {}): Payload {
  const next = random(7);
  const at = (mean: number): Float64Array =>
    Float64Array.from({ length: n }, (_, i) => mean * (0.9 + 0.2 * next()) * (i === 0 ? firstFactor : 1));
  const parts = {
    device_compute: at(1.54),
    device_to_device: at(0.01),
    device_collectives: new Float64Array(n),
    host_compute: at(0.26),
    kernel_launch: at(0.41),
    input: at(3.78),
    compile: new Float64Array(n),
    other: at(0.2),
  };
  const time = Float64Array.from({ length: n }, (_, i) =>
    Object.values(parts).reduce((sum, part) => sum + (part[i] ?? 0), 0),
  );
  let clock = 0;
  const start = time.map((ms) => {
    clock += ms;
    return clock - ms;
  });
  const ops = Array.from({ length: 10 }, (_, i) => `gradient_tape/sequential/conv2d_${i}/Conv2D/Conv2DBackpropFilter`);
  ops[3] = HOSTILE;
  const none = {
    title: "No GPU kernels in this run",
    text: "The run used the CPU only.",
    code: "tf.config.list_physical_devices('GPU')",
  };
  const noSteps = {
    title: "No steps found, so step time is unknown.",
    text: "No step markers were found. Your own loop needs one line:",
    code: "for batch in ds:\n    with nbprof.step():\n        train_step(batch)",
  };
  const empty = n === 0;
  const counted = Array.from({ length: 10 }, (_, i) => i);
  return {
    meta: {
      version: "0.1.0",
      label: "run 7",
      facts: ["cnn_cifar10", `${n} steps`, "130 ms", `Tesla T4 ${HOSTILE}`, "14:02:31"],
      created: "2026-11-21 14:02:31",
      framework: "TensorFlow 2.21",
      has_device: true,
      notice: empty ? { kind: "no_steps", ...noSteps } : null,
      heads: {},
      tabs: [
        { id: "overview", label: "Overview", count: null, flag: null },
        { id: "input", label: "Steps & input", count: null, flag: "input" },
        { id: "ops", label: "Ops", count: 10, flag: null },
        { id: "op_profile", label: "Op profile", count: null, flag: null },
        { id: "hlo", label: "HLO & roofline", count: null, flag: null },
        { id: "kernels", label: "GPU kernels", count: 0, flag: null },
        { id: "memory", label: "Memory", count: null, flag: null },
        { id: "allocator", label: "Allocator", count: null, flag: null },
        { id: "memory_viewer", label: "Program memory", count: null, flag: null },
        { id: "trace", label: "Trace", count: null, flag: null },
      ],
      footer: { events: 17053, dropped: 0, analysed_s: 0.9, file: "host.xplane.pb", bytes: 1.7 * 2 ** 20 },
      receipt: [
        { level: "info", text: "1 plane read" },
        { level: "warning", text: `unknown stat ${HOSTILE}` },
      ],
    },
    overview: {
      bound: empty ? null : "input",
      verdict: empty
        ? { word: "Unknown", text: "no steps were found", detail: "Mark the steps to see what bounds them." }
        : {
            word: "Input-bound",
            text: "61% of step time is spent waiting for data",
            detail:
              "The GPU computes for 1.54 ms, then stands idle while tf.data prepares the next batch on one thread. " +
              "If the wait went away entirely, a step would take 2.42 ms, 2.6× faster than now.",
          },
      confidence: {
        level: empty ? "none" : "high",
        evidence: [
          { ok: true, text: "Input is the largest part of all 21 steps (57–67%)" },
          { ok: true, text: "Step time is steady: sd 0.38 ms, 6% of the mean" },
          { ok: false, text: "Profiling itself costs about 0.1 ms per step" },
        ],
      },
      figures: [
        {
          key: "step_time",
          label: "Average step",
          value: empty ? null : 6.2,
          unit: "ms",
          digits: 2,
          spread: "± 0.38",
          note: "range 5.71–7.47",
        },
        {
          key: "input",
          label: "Waiting for input",
          value: empty ? null : 61,
          unit: "%",
          digits: 1,
          note: empty ? "no steps" : "3.78 ms per step",
          hot: !empty,
          bar: [{ category: "input", percent: 61 }],
        },
        {
          key: "device_busy",
          label: "Device busy",
          value: 24.9,
          unit: "%",
          digits: 1,
          note: "Tesla T4, 1 device",
          bar: [{ category: "device_compute", percent: 24.9 }],
        },
        {
          key: "op_runs_on_device",
          label: "Op time on device",
          value: 27,
          unit: "%",
          digits: 1,
          note: "on host 73.0%",
          bar: [
            { category: "device_compute", percent: 27 },
            { category: "host_compute", percent: 73 },
          ],
        },
        {
          key: "compute_16bit",
          label: "16-bit compute",
          value: 77.3,
          unit: "%",
          digits: 1,
          note: "32-bit 22.7%",
          bar: [{ category: "device_compute", percent: 77.3 }],
        },
        { key: "peak_memory", label: "Peak memory", value: 43.4, unit: "MiB", digits: 2, note: "of 14.56 GiB (0.3%)" },
      ],
      advice: [
        {
          severity: "high",
          title: "Run Dataset.map in parallel",
          gain_ms: 2.6,
          gain_is: "about",
          evidence: "Map(decode_and_augment) takes **62.4 ms** of the **82.1 ms** spent on input (**76%**).",
          fix: [
            { kind: "removed", text: "ds = ds.map(decode_and_augment)" },
            { kind: "added", text: "ds = ds.map(decode_and_augment," },
            { kind: "added", text: "            num_parallel_calls=tf.data.AUTOTUNE)" },
          ],
          view: "input",
          link: "Steps & input: critical path",
          certainty: "",
          refuted_by: "",
          target: null,
        },
        {
          severity: "low",
          title: HOSTILE,
          gain_ms: null,
          gain_is: "",
          evidence: `${HOSTILE} is **20.7%** of kernel time.`,
          fix: [],
          view: "kernels",
          link: "GPU kernels: eligible, not used",
          certainty: "",
          refuted_by: "",
          target: null,
        },
      ],
      no_advice: "",
      host_parts: [],
      bare: null,
      contention: "",
      probe: null,
      tried: {
        text: HOSTILE,
        table: makeTable(
          [
            ["title", "Change", "text"],
            ["gain_ms", "Gain ms", "number", 2],
            ["pays_after", "Pays after", "number", 0],
            ["recommended", "Recommended", "bool"],
            ["why", "Why", "text"],
          ],
          {
            title: ["DataLoader with 2 persistent workers", HOSTILE],
            gain_ms: Float64Array.from([2.6, Number.NaN]),
            pays_after: Float64Array.from([9, Number.NaN]),
            recommended: Float64Array.from([1, 0]),
            why: ["it is faster, and the results are equal", HOSTILE],
          },
        ),
        changes: [{ experiment: HOSTILE, row: 0, lines: [{ kind: "added", text: HOSTILE }] }],
        code: [{ kind: "added", text: HOSTILE }],
      },
      code: null,
      ranges: null,
      top_ops: makeTable(
        [
          ["rank", "#", "number", 0],
          ["op", "Operation", "code"],
          ["type", "Type", "text"],
          ["ms_per_step", "ms / step", "number", 3],
          ["percent", "%", "percent", 1],
          ["cumulative_percent", "cum. %", "percent", 1],
        ],
        {
          rank: Uint32Array.from(counted, (i) => i + 1),
          op: ops,
          type: ops.map(() => "Conv2DBackpropFilter"),
          ms_per_step: Float64Array.from(counted, (i) => 0.307 / (i + 1)),
          percent: Float64Array.from(counted, (i) => 19.8 / (i + 1)),
          cumulative_percent: Float64Array.from(counted, (i) => 19.8 + i * 4),
        },
      ),
      top_ops_where: "device",
      checks: [
        {
          label: "Waiting for input",
          percent: 61,
          level: "high",
          statement: "61.0% of step time is spent waiting for input.",
          view: "input",
        },
        { label: "16-bit compute", percent: null, level: "unknown", statement: HOSTILE, view: "kernels" },
      ],
      run: [
        ["Device", "Tesla T4 (sm_75), 14.56 GiB, 40 SMs"],
        ["Profile", `.nbprof/run-7/${HOSTILE}`],
      ],
    },
    steps: {
      empty: empty ? noSteps : null,
      step: Int32Array.from({ length: n }, (_, i) => 500 + i),
      name: Array.from({ length: n }, (_, i) => `train ${500 + i}`),
      start_ms: start,
      step_time_ms: time,
      categories: empty ? {} : parts,
      prefix: "train",
      hosts: ["host"],
    },
    input: {
      empty: null,
      total_ms: 82.1,
      per_step_ms: empty ? null : 3.91,
      statement: "61.0% of step time is spent waiting for input.",
      next_step: HOSTILE,
      missing: [],
      share: [],
      categories: [
        {
          key: "preprocessing",
          label: "Data preprocessing",
          time_ms: 74.5,
          percent: 90.7,
          advice: "1 thread: use num_parallel_calls",
          per_step_ms: 3.55,
        },
        {
          key: "read",
          label: "Reading files on demand",
          time_ms: 7.7,
          percent: 9.3,
          advice: "read ahead: prefetch",
          per_step_ms: 0.37,
        },
        { key: "enqueue", label: "Enqueuing data", time_ms: 0, percent: 0, advice: "", per_step_ms: null },
      ],
      pipelines: [
        {
          name: "Root",
          host: "host",
          calls: 21,
          slow_calls: 21,
          mean_us: 3910,
          min_us: 3470,
          max_us: 5000,
          advice: "**Map** limits this pipeline.",
          fix: [],
          critical_ms: 70.5,
          nodes: NODES,
          slowest: [{ start_ms: 3, duration_us: 5000, critical_ms: 4.5, nodes: NODES }],
        },
        {
          name: HOSTILE,
          host: "host",
          calls: 2,
          slow_calls: 0,
          mean_us: 3,
          min_us: 2,
          max_us: 5,
          advice: "",
          fix: [],
          critical_ms: null,
          nodes: NODES.slice(0, 2),
          slowest: [],
        },
      ],
      loaders: [
        {
          name: HOSTILE,
          scope: "2 workers",
          advice: `**82%** of the time is ${HOSTILE}`,
          fix: [],
          nodes: NODES.slice(0, 3).map((item) => ({
            ...item,
            value: "4.10 ms/item",
            facts: [{ label: "Code", value: HOSTILE }],
          })),
        },
      ],
      ops: INPUT_OPS,
      bottleneck: Uint8Array.of(1, 0, 0, 0, 0, 0, 0),
    },
    ops: {
      empty: none,
      table: makeTable([["rank", "#", "number"]], { rank: new Uint32Array(0) }),
      totals: { device_us: Number.NaN, host_us: 1, device_idle_us: Number.NaN, host_idle_us: 0 },
      rings: [],
      modules: null,
      shapes: null,
    },
    hlo: hloSample(),
    kernels: {
      empty: none,
      chip: "GPU",
      occupancy: "",
      table: makeTable([["rank", "#", "number"]], { rank: new Uint32Array(0) }),
      by_name: NO_ROWS,
      by_op: NO_ROWS,
      top: { ms: 0, parts: [] },
      figures: [],
    },
    device_time: deviceTimeSample(),
    pods: podsSample(n || 1, 4),
    ascend: {
      empty: { ...none, title: "No tables from Ascend's profiler" },
      verdict: { bound: null, word: "", text: "", detail: "" },
      figures: [],
      iterations: [],
      iterations_missing: "",
      rules: [],
      sections: [],
      ring: { ms: 0, parts: [] },
      notes: [],
    },
    memory: { empty: { ...none, title: "No memory profile in this run" }, ids: [], of: "", peaks: null },
    allocator: allocatorSample(HOSTILE),
    op_profile: opProfile([
      {
        name: HOSTILE,
        program: HOSTILE,
        category: HOSTILE,
        framework_op: HOSTILE,
        expression: HOSTILE,
        time: 5,
        flops: 1,
      },
      { name: "dot", time: 3 },
    ]),
    memory_viewer: {
      empty: null,
      modules: [
        {
          name: `jit_step(8) ${HOSTILE}`,
          hosts: 1,
          host: "",
          peak_bytes: 16384,
          time_ms: 1.5,
          spaces: [programSpace()],
        },
      ],
      left_out: "2 programs have no buffer assignment, so their memory is unknown.",
    },
    trace: {
      empty: { ...none, title: "No events in this run" },
      ...nothingElse(),
      tick_ns: 1,
      end: 0,
      names: [],
      category: new Uint8Array(0),
      lanes: [],
      shown: 0,
      total: 0,
    },
  };
}

/** Ops under a roof of 100 TFLOP/s and 1 TB/s: by memory, by compute, one that only copies, one of which nothing is known, one without bytes. */
export function hloSample(): Hlo {
  const texts = (values: string[]) => ({ codes: Uint8Array.from(values, (_, i) => i), values });
  const numbers = (values: number[]) => Float64Array.from(values);
  const table = makeTable(
    [
      ["rank", "#", "number"],
      ["program", "Program", "code"],
      ["op", "Op", "code"],
      ["category", "Category", "text"],
      ["framework_op", "Framework op", "text"],
      ["occurrences", "Count", "number"],
      ["self_us", "Self µs", "number"],
      ["self_percent", "Self %", "percent"],
      ["gflops_per_second", "GFLOP/s", "number"],
      ["gmemory_bytes_per_second", "Memory GB/s", "number"],
      ["operational_intensity", "FLOP/B", "number"],
      ["bound", "Bound by", "text"],
      ["bound_by", "Nearest peak", "text"],
      ["expression", "Expression", "code"],
      ["roof_percent", "Of roof", "percent"],
    ],
    {
      rank: Uint8Array.of(1, 2, 3, 4, 5),
      program: texts(["jit_step(8)", "jit_step(8)", "jit_step(8)", "jit_eval(9)", `jit_step(8)`]),
      op: texts(["fusion.1", "dot.2", "copy.3", `all-reduce.4 ${HOSTILE}`, "iota.5"]),
      category: texts(["loop fusion", "convolution", "data formatting", "all-reduce", "iota"]),
      framework_op: texts(["jit(step)/add", "jit(step)/dot_general", "", HOSTILE, ""]),
      occurrences: Uint8Array.of(10, 10, 10, 2, 1),
      self_us: numbers([400, 300, 200, 80, 20]),
      self_percent: numbers([40, 30, 20, 8, 2]),
      gflops_per_second: numbers([100, 50_000, 0, Number.NaN, 1]),
      gmemory_bytes_per_second: numbers([800, 100, 600, Number.NaN, 0]),
      operational_intensity: numbers([0.125, 500, 0, Number.NaN, Number.NaN]),
      bound: texts(["HBM", "Latency", "HBM", "", "Latency"]),
      bound_by: texts(["HBM", "Compute", "HBM", "", "Compute"]),
      expression: texts([`%fusion.1 = f32[8]{0} fusion() ${HOSTILE}`, "%dot.2", "%copy.3", "", "%iota.5"]),
      roof_percent: numbers([80, 50, 60, Number.NaN, 0.001]),
      _intensity: numbers([0.125, 500, 0, Number.NaN, Number.NaN]),
      _flops: numbers([1e11, 5e13, 0, Number.NaN, 1e9]),
      _bytes: numbers([8e11, 1e11, 6e11, Number.NaN, 0]),
      _hue: Uint8Array.of(0, 0, 0, 2, 0),
    },
  );
  return {
    empty: null,
    figures: [
      { key: "roof", label: "Of the roof", value: 42, unit: "%", digits: 1, note: "nearest to the peak of HBM" },
    ],
    table,
    left_out: "",
    donuts: [{ title: "By category", ms: 1, parts: [{ label: "loop fusion", percent: 100, kind: "rank" }] }],
    peak_flops: 1e14,
    roofs: [
      { label: "HBM", bytes_per_second: 1e12, ridge: 100 },
      { label: "VMEM Read", bytes_per_second: 1e13, ridge: 10 },
    ],
    marks: [
      {
        label: "Whole profile",
        operational_intensity: 20,
        flops_per_second: 1.5e13,
        bytes_per_second: 5e11,
        compute_fraction: 0.15,
        bandwidth_fraction: 0.5,
      },
    ],
    device: `Made ${HOSTILE}`,
    missing: "",
    code: "",
  };
}
