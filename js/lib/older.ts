/** Reports that an earlier nbprof saved: what they don't hold yet is nothing, rather than an error. */

import type { Allocator, Ascend, DeviceTime, Hlo, Notice, OpProfile, Payload, Pods, Trace } from "./payload.js";

const NO_ALLOCATOR: Allocator = { empty: null, devices: [], notes: [], left_out: "" };
const NO_ASCEND: Ascend = {
  empty: null,
  verdict: { bound: null, word: "", text: "", detail: "" },
  figures: [],
  iterations: [],
  iterations_missing: "",
  rules: [],
  sections: [],
  ring: { ms: 0, parts: [] },
  notes: [],
};
const NO_HLO: Hlo = {
  empty: null,
  figures: [],
  table: { columns: [], data: {}, rows: 0 },
  left_out: "",
  donuts: [],
  peak_flops: null,
  roofs: [],
  marks: [],
  device: "",
  missing: "",
  code: "",
};

/** Objects whose fields may be absent. */
type Sparse<T> = { [K in keyof T]?: T[K] };

const NO_PODS: Pods = {
  empty: {
    title: "Not in this report",
    text: "It was saved by a version of nbprof that did not compare workers; open the profile again.",
  },
  statement: "",
  left_out: "",
  total: 0,
  workers: [],
  step: new Int32Array(),
  count: new Uint32Array(),
  slowest: new Uint32Array(),
  slowest_ms: new Float64Array(),
  fastest_ms: new Float64Array(),
  median_ms: new Float64Array(),
  spread_percent: new Float64Array(),
  start_ms: new Float64Array(),
  cause: new Uint8Array(),
  cause_ms: new Float64Array(),
  first: new Uint32Array(1),
  worker: new Uint32Array(),
  time_ms: new Float64Array(),
  categories: {},
  heads: [],
  table: { columns: [], data: {}, rows: 0 },
};

const NO_OPS = {
  empty: {
    title: "Not in this report",
    text: "It was saved by a version of nbprof without the op profile; open the profile again.",
  },
} as OpProfile;

const NO_REST: Omit<Trace, "empty" | "tick_ns" | "end" | "names" | "category" | "lanes" | "shown" | "total"> = {
  key: "",
  origin_ns: 0,
  rest: {
    bins: 0,
    from: 0,
    to: 0,
    lane: new Uint32Array(),
    depth: new Uint16Array(),
    count: new Uint32Array(),
    busy: new Uint8Array(),
  },
  strip: { above: new Uint8Array(), below: new Uint8Array(), below_is: "device" },
  gaps: {
    process: { codes: new Uint8Array(), values: [] },
    start: new Float64Array(),
    duration: new Float64Array(),
  },
  links: {
    kind: new Uint8Array(),
    from: new Uint32Array(),
    to: new Uint32Array(),
    left_out: 0,
    work: new Uint32Array(),
    on: new Uint8Array(),
    delay: new Int32Array(),
  },
  lacks: ["arguments", "arrows", "stacks"],
  notes: [],
};

const NO_DEVICE_TIME: DeviceTime = {
  empty: {
    title: "Not in this report",
    text: "It was saved by a version of nbprof without this view; open the profile again.",
  },
  statement: "",
  figures: [],
  devices: [],
  windows: [],
  parts_ms: new Float32Array(),
  waits: [],
  streams: [],
  tables: {},
  path: { step: "", host: "", kinds: [], table: { columns: [], data: {}, rows: 0 }, rest: "" },
  left_out: "",
};

/** Numbers that a report did not hold: lanes and slices in the order in which they are there. */
function number(trace: Trace): void {
  let first = 0;
  for (const [id, lane] of trace.lanes.entries()) {
    const from = first;
    first += lane.start.length;
    fill(lane, { id, derived: false, event: Uint32Array.from(lane.start, (_, i) => from + i) });
  }
}

/** Gives `into` what it lacks of `defaults`. */
function fill<T extends object>(into: Sparse<T>, defaults: Sparse<T>): void {
  for (const [key, value] of Object.entries(defaults)) {
    const name = key as keyof T;
    if (into[name] === undefined) into[name] = value as T[keyof T];
  }
}

/** What to say of views that this script does not know: it is older than what wrote the payload. */
export function newer(tabs: { id: string; label: string }[], known: object): Notice | null {
  const missing = tabs.filter((tab) => !(tab.id in known)).map((tab) => tab.label);
  if (!missing.length) return null;
  const text = `It cannot draw ${missing.join(", ")}. Reload the page; if that does not help, update nbprof where JupyterLab runs.`;
  return { kind: "partial", title: "This page uses an older nbprof than the profile.", text };
}

/** Fills, in place, what was added to the payload since version 0.1: the views draw what is there. */
export function complete(payload: Payload): Payload {
  fill(payload, {
    pods: NO_PODS,
    op_profile: NO_OPS,
    memory_viewer: { empty: null, modules: [], left_out: "" },
    hlo: NO_HLO,
  });
  fill(payload, { allocator: NO_ALLOCATOR });
  fill(payload, { device_time: NO_DEVICE_TIME });
  fill(payload, { ascend: NO_ASCEND });
  fill(payload.ascend, { ring: NO_ASCEND.ring });
  const none = { columns: [], data: {}, rows: 0 };
  fill(payload.kernels, { by_name: none, by_op: none, top: { ms: Number.NaN, parts: [] } });
  fill(payload.ops, { rings: [], modules: null, shapes: null });
  fill(payload.overview, { checks: [] });
  fill(payload.input, { statement: "", next_step: "", share: [] });
  for (const category of payload.input.categories) fill(category, { per_step_ms: null });
  for (const pipeline of payload.input.pipelines) {
    fill(pipeline, { fix: [], slowest: [], critical_ms: null });
    for (const node of pipeline.nodes) fill(node, { percent: null });
  }
  for (const id of payload.memory.ids) fill(id, { moments: null, ops: { columns: [], data: {}, rows: 0 } });
  fill(payload.trace, NO_REST);
  number(payload.trace);
  return payload;
}
