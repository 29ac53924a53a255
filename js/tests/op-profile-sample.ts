/** Op profiles for tests: made of a few ops. */

import type { Profile } from "../views/op-profile/model.js";

export interface Op {
  name: string;
  program?: string;
  category?: string;
  duplicate?: string;
  framework_op?: string;
  expression?: string;
  time: number;
  unknown?: number;
  flops?: number;
  bytes?: number;
  runs?: number;
}

const coded = (values: string[]) => ({ codes: Uint16Array.from(values, (_, i) => i), values });
const numbers = (values: number[]) => Float64Array.from(values);

/** FLOPs and bytes by µs and a peak of 1 each: an op of 10 µs and 5 FLOPs uses half. */
export function opProfile(
  list: readonly Op[],
  more: {
    rest?: (Op & { ops: number })[];
    inside?: { op: number; name: string; flops?: number }[];
    idle?: number | null;
    peaks?: [number | null, number | null];
    arrays?: {
      op: number;
      role: string;
      shape: string;
      layout: string;
      padded: string;
      bytes: number;
      padded_bytes: number;
    }[];
  } = {},
): Profile {
  const { rest = [], inside = [], arrays = [], idle = null, peaks = [1e6, 1e6] } = more;
  const sums = (from: readonly Op[]) => ({
    rows: from.length,
    time_us: numbers(from.map(({ time }) => time)),
    unknown_us: numbers(from.map(({ unknown }) => unknown ?? 0)),
    flops: numbers(from.map(({ flops }) => flops ?? Number.NaN)),
    bytes: numbers(from.map(({ bytes }) => bytes ?? Number.NaN)),
    runs: numbers(from.map(({ runs }) => runs ?? 1)),
  });
  const text = (
    from: readonly Op[],
    key: "name" | "program" | "category" | "duplicate" | "framework_op" | "expression",
  ) => coded(from.map((op) => op[key] ?? { program: "jit_f(1)", category: "fusion" }[key as string] ?? ""));
  const none = (from: readonly unknown[]) => coded(from.map(() => ""));
  const head = (key: string, label: string) => ({ key, label, kind: "number" as const, help: `${label} it is.` });
  return {
    empty: null,
    where: "device",
    device: "TPU v6e",
    peak_flops: peaks[0],
    peak_bytes: peaks[1],
    impossible: 100,
    idle_us: idle,
    figures: [],
    statement: "**fusion** first.",
    notes: [],
    heads: [
      head("name", "Op"),
      head("time", "Time %"),
      head("wasted", "Wasted %"),
      head("flops", "FLOPS %"),
      head("bytes", "Memory %"),
      head("runs", "Count"),
    ],
    ops: {
      ...sums(list),
      program: text(list, "program"),
      name: text(list, "name"),
      category: text(list, "category"),
      duplicate: text(list, "duplicate"),
      framework_op: text(list, "framework_op"),
      expression: text(list, "expression"),
      source: none(list),
      shape: none(list),
      layout: none(list),
      trace_op: text(list, "name"),
      at_ms: numbers(list.map((_, i) => i)),
      for_ms: numbers(list.map(({ time }) => time / 1000)),
      in_file: Uint8Array.from(list, () => 1),
      inside_left_out: new Uint8Array(list.length),
    },
    rest: {
      ...sums(rest),
      program: text(rest, "program"),
      category: text(rest, "category"),
      ops: numbers(rest.map(({ ops }) => ops)),
    },
    inside: {
      rows: inside.length,
      op: numbers(inside.map(({ op }) => op)),
      name: coded(inside.map(({ name }) => name)),
      category: none(inside),
      flops: numbers(inside.map(({ flops }) => flops ?? Number.NaN)),
      expression: none(inside),
      shape: none(inside),
    },
    arrays: {
      rows: arrays.length,
      op: numbers(arrays.map(({ op }) => op)),
      role: coded(arrays.map(({ role }) => role)),
      shape: coded(arrays.map(({ shape }) => shape)),
      layout: coded(arrays.map(({ layout }) => layout)),
      padded: coded(arrays.map(({ padded }) => padded)),
      bytes: numbers(arrays.map(({ bytes }) => bytes)),
      padded_bytes: numbers(arrays.map(({ padded_bytes }) => padded_bytes)),
    },
  };
}
