/** Host memory over the cell: the recorded process and its children by moment, and each process in a table. */

import { canvas } from "../../lib/canvas.js";
import { bottomAxis, bytesAxis, fillColumns, framed, gridLines, pointed, ticksOf } from "../../lib/chart.js";
import { textAt } from "../../lib/codec.js";
import { filled } from "../../lib/columns.js";
import { h } from "../../lib/dom.js";
import { bytesText, count, num } from "../../lib/format.js";
import { themeReader } from "../../lib/palette.js";
import { downloadButton, heading } from "../../lib/parts.js";
import type { OverCell } from "../../lib/payload.js";
import { columns, ticks } from "../../lib/scale.js";
import { table } from "../../lib/table.js";
import { recordedStretches } from "../clock.js";

const HEIGHT = 120;
const OWN = 0;
const CHILDREN = 2;

export function hostMemory(host: OverCell, signal: AbortSignal): HTMLElement {
  const { time_s: times, step, process, children, recorded, processes } = host;
  const n = times.length;
  const end = Math.max(times[n - 1] as number, 1e-9);
  const all = (row: number): number => (process[row] as number) + (children[row] as number);
  const most = Math.max(...Array.from({ length: n }, (_, row) => all(row)));
  const several = children.some((bytes) => bytes > 0);
  const axis = bytesAxis(most, 1.05, HEIGHT);

  const stage = h("div.plot");
  const status = h("p.sr", { role: "status" });
  const theme = themeReader(stage);
  const area = canvas(stage, {
    signal,
    height: HEIGHT,
    label: `Host memory over ${num(end, 1)} s: at most ${bytesText(most)}. Arrow keys move from sample to sample.`,
    draw: (context, width, height) => {
      const colours = theme();
      const x = (time: number): number => (time / end) * width;
      const y = (bytes: number): number => height * (1 - Math.min(1, bytes / axis.max));
      const line = (value: (row: number) => number) => columns(times, value, 0, end, Math.max(1, Math.floor(width)));
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.14;
      for (const [first, last] of recordedStretches(recorded)) {
        const from = x(times[first] as number);
        context.fillRect(from, 0, Math.max(2, x(times[Math.min(last + 1, n - 1)] as number) - from), height);
      }
      context.globalAlpha = 1;
      if (several) fillColumns(context, line(all), y, height, colours.tints[CHILDREN] as string);
      const held = line((row) => process[row] as number);
      fillColumns(context, held, y, height, colours.tints[OWN] as string);
      const inner = axis.ticks.slice(1).filter((tick) => tick < axis.max);
      gridLines(context, inner.map(y), width, colours.bg, 0.45);
      if (pointer.row < 0) return;
      context.fillStyle = colours.accent;
      context.fillRect(Math.round(x(times[pointer.row] as number)), 0, 1, height);
    },
  });
  const describe = (row: number) => ({
    title: `${num(times[row] as number, 2)} s`,
    total: bytesText(all(row)),
    rows: [
      ...(several
        ? [
            { label: "This process", value: bytesText(process[row] as number) },
            { label: "Its children", value: bytesText(children[row] as number) },
          ]
        : []),
      { label: "Step", value: step[row] ? count(step[row] as number) : "none" },
      { label: recorded[row] ? "Recorded" : "Not recorded", value: "" },
    ],
  });
  const nearest = (time: number): number => {
    let row = 0;
    while (row < n - 1 && (times[row + 1] as number) <= time) row++;
    const next = Math.min(row + 1, n - 1);
    return Math.abs((times[next] as number) - time) < Math.abs(time - (times[row] as number)) ? next : row;
  };
  const pointer = pointed(area, stage, signal, {
    rows: n,
    at: (share) => nearest(share * end),
    share: (row) => (times[row] as number) / end,
    card: describe,
    say(row) {
      const { title, total, rows } = describe(row);
      status.textContent = [title, total, ...rows.map(({ label, value }) => `${label} ${value}`.trim())].join(", ");
    },
  });
  const bottom = bottomAxis(ticksOf(ticks(end, 6), end));
  const units = [axis.unit, "s from the start of the cell; shaded: recorded →"];
  const holder = h("div");
  const handle = table(holder, {
    table: processes,
    columns: filled(
      [
        { key: "name", grow: true, cell: (row, cell) => cell.append(textAt(processes.data.name, row)) },
        { key: "process", narrow: true },
        { key: "first_bytes" },
        { key: "peak_bytes" },
        { key: "last_bytes" },
        { key: "growth_bytes_per_step" },
        { key: "shared_bytes", narrow: true },
        { key: "proportional_bytes", narrow: true },
        { key: "pinned_bytes", narrow: true },
      ],
      processes,
    ),
    label: "Host memory by process",
    signal,
  });
  const key = (tint: number, text: string): HTMLElement =>
    h("span", h("i.sw", { style: { "--c": `var(--t${tint})` } }), text);
  const save = downloadButton("nbprof-host-memory.csv", () => handle.csv());
  return h(
    "section",
    heading("Host memory", host.scope, save),
    framed("memory", units, { left: axis.element, stage, bottom, status }),
    several && h("div.legend.memory-legend", key(OWN, "This process"), key(CHILDREN, "Its children")),
    holder,
    host.note && h("p.more", host.note),
  );
}
