/** Two devices of which the second has no second step, with names that are attacks. */

import type { Column, ColumnData, DeviceTime, Table } from "../lib/payload.js";
import { HOSTILE } from "./hostile.js";

const text = (values: string[]): ColumnData => ({ codes: Uint8Array.from(values, (_, i) => i), values });

function tableOf(
  columns: [key: string, kind: Column["kind"]][],
  data: Record<string, ColumnData>,
  rows: number,
): Table {
  return { columns: columns.map(([key, kind]) => ({ key, label: key, kind, help: `What ${key} is.` })), data, rows };
}

export function deviceTimeSample(): DeviceTime {
  const name = `kernel ${HOSTILE}`;
  return {
    empty: null,
    statement: "The 2 devices computed **50%** of the time and was idle **30%**.",
    figures: [{ key: "compute", label: "Computing", value: 50, unit: "%", digits: 1, note: "of device time" }],
    devices: [`rank 0 ${HOSTILE}, device 0`, "rank 1, device 1"],
    places: [
      { host: "rank 0", device: 0 },
      { host: "rank 1", device: 1 },
    ],
    windows: ["Whole recording", "Step 1"],
    parts_ms: Float32Array.of(5, 2, 0, 3, 6, 0, 1, 3, 4, 0, 0, 1, Number.NaN, Number.NaN, Number.NaN, Number.NaN),
    waits: [
      [2, 1, 0],
      [null, 2, 1],
    ],
    streams: [
      {
        device: { host: "rank 0", device: 0 },
        label: `Queue: ${HOSTILE}`,
        unit: "count",
        from_ms: 0,
        to_ms: 10,
        most: Float32Array.of(0, 3, 1, 0),
      },
      {
        device: { host: "rank 1", device: 1 },
        label: "Copies: device 0, host to device",
        unit: "GB/s",
        from_ms: 0,
        to_ms: 10,
        most: Float32Array.of(0.5, 0, 0, 2),
      },
    ],
    tables: {
      device_idle_causes: tableOf(
        [
          ["host", "text"],
          ["device", "number"],
          ["cause", "text"],
          ["idle_ms", "number"],
        ],
        {
          host: text(["rank 0", "rank 1"]),
          device: Uint8Array.of(0, 1),
          cause: text(["", HOSTILE]),
          idle_ms: Float64Array.of(2, 1),
        },
        2,
      ),
      device_launches: tableOf(
        [
          ["kernel", "code"],
          ["launches", "number"],
        ],
        { kernel: text(["", name]), launches: Uint16Array.of(20, 10) },
        2,
      ),
    },
    path: {
      step: `train ${HOSTILE}`,
      host: "rank 0",
      kinds: [
        { kind: "compute", total_us: 3000, percent: 75 },
        { kind: "op", total_us: 1000, percent: 25 },
      ],
      table: tableOf(
        [
          ["kind", "text"],
          ["name", "code"],
          ["op", "code"],
          ["pieces", "number"],
          ["total_us", "number"],
          ["percent", "percent"],
          ["longest_us", "number"],
        ],
        {
          kind: text(["compute", "launch_delay", "op"]),
          name: text([name, "k", "aten::mm"]),
          op: text(["aten::mm", "", "other"]),
          pieces: Uint8Array.of(2, 1, 1),
          total_us: Float64Array.of(3000, 10, 990),
          percent: Float64Array.of(75, 0.25, 24.75),
          longest_us: Float64Array.of(2000, 10, 990),
          _at_ms: Float64Array.of(1, 4, 5),
          _for_ms: Float32Array.of(2, 0.01, 0.99),
        },
        3,
      ),
      rest: "2 more rows with 0.1% of the path.",
    },
    left_out: "Not listed here: 3 more rows of launches; p.device_time has all of them.",
  };
}
