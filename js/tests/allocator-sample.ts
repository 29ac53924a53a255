/** A device of two segments: one with a block in use that keeps free memory, one that is free. */

import type { Allocator, Table } from "../lib/payload.js";

const MIB = 1024 ** 2;

export function allocatorSample(hostile = ""): Allocator {
  const texts = (...values: string[]) => ({ codes: Uint8Array.from(values, (_, i) => i), values });
  const numbers = (...values: number[]) => Float64Array.from(values);
  const table = (data: Table["data"], rows: number, kinds: Record<string, string>): Table => ({
    columns: Object.entries(kinds).map(
      ([key, kind]) => ({ key, label: key, kind, help: "" }) as Table["columns"][number],
    ),
    data,
    rows,
  });
  return {
    empty: null,
    notes: [`A note ${hostile}`],
    left_out: "",
    devices: [0, 1].map((device) => ({
      device,
      name: `GPU ${device}`,
      figures: [{ key: "reserved", label: "Reserved", value: 40, unit: "MiB", digits: 0, note: "2 segments" }],
      when: "at 2 ms",
      ooms: [{ when: "at 2 ms", text: `64 MiB were asked for ${hostile}`, remedy: "Set expandable_segments." }],
      entries: 4,
      timed: true,
      x: numbers(0, 1, 2, 2.5),
      reserved: numbers(20, 40, 40, 40).map((value) => value * MIB),
      allocated: numbers(8, 30, 8, 8).map((value) => value * MIB),
      active: numbers(8, 30, 12, 8).map((value) => value * MIB),
      action: texts("alloc", "segment_alloc", "free_requested", "oom"),
      size: numbers(8, 20, 22, 64).map((value) => value * MIB),
      where: texts("train.py:1 f", hostile, "train.py:3 h", "train.py:4 i"),
      oom_at: numbers(2.5),
      segments: {
        rows: 2,
        size: numbers(20 * MIB, 20 * MIB),
        stranded: numbers(12 * MIB, 0),
        name: texts("0x7f00, large, stream 0", "0x8f00, large, stream 7"),
      },
      blocks: {
        rows: 3,
        segment: Uint8Array.of(0, 0, 1),
        offset: numbers(0, 8 * MIB, 0),
        size: numbers(8 * MIB, 12 * MIB, 20 * MIB),
        state: Uint8Array.of(1, 0, 0),
        stranded: numbers(0, 12 * MIB, 0),
        stack: texts(`linear.py:9 forward\ntrain.py:3 main ${hostile}`, "", ""),
      },
      map_more: "1 more segment of 2.00 MiB is not drawn.",
      stranded: table(
        {
          location: texts(`train.py:3 ${hostile}`),
          pinned_bytes: numbers(12 * MIB),
          alone_bytes: numbers(12 * MIB),
          blocks: Uint8Array.of(1),
          bytes: numbers(8 * MIB),
          segments: Uint8Array.of(1),
          largest_hole_bytes: numbers(12 * MIB),
          stack: texts("train.py:3 main"),
        },
        1,
        {
          location: "code",
          pinned_bytes: "bytes",
          alone_bytes: "bytes",
          blocks: "number",
          bytes: "bytes",
          segments: "number",
          largest_hole_bytes: "bytes",
          stack: "code",
        },
      ),
      stranded_more: 0,
      holders: table({ location: texts("train.py:3 main"), bytes: numbers(8 * MIB), blocks: Uint8Array.of(1) }, 1, {
        location: "code",
        bytes: "bytes",
        blocks: "number",
      }),
    })),
  };
}
