/** What the allocator reserved, and what of it was in use, over time. */

import { canvas } from "../../lib/canvas.js";
import { bottomAxis, bytesAxis, fillColumns, framed, pointed, ticksOf } from "../../lib/chart.js";
import { textAt } from "../../lib/codec.js";
import { h } from "../../lib/dom.js";
import { bytesText, count, num } from "../../lib/format.js";
import type { AllocatorDevice } from "../../lib/payload.js";
import { columns, tickDigits, ticks } from "../../lib/scale.js";
import { lowest } from "../../lib/search.js";
import { cssColor } from "../../lib/theme.js";

const HEIGHT = 180;

/** The last row at or before a place on the axis; the first where there is none. */
export function rowAt(x: ArrayLike<number>, position: number): number {
  return Math.max(0, lowest(x.length, (i) => (x[i] as number) > position) - 1);
}

export function levels(device: AllocatorDevice, signal: AbortSignal): HTMLElement {
  const { x, reserved, active, allocated, timed } = device;
  const n = x.length;
  const from = x[0] as number;
  const span = Math.max((x[n - 1] as number) - from, 1e-9);
  let most = 1;
  for (const value of reserved) most = Math.max(most, value);
  const axis = bytesAxis(most, 1.06, HEIGHT);

  const shown = (position: number): string => (timed ? num(position, span < 100 ? 2 : 0) : count(position));
  const share = (row: number): number => ((x[row] as number) - from) / span;
  const marks = ticks(span, 6).filter((tick) => tick <= span);
  const stage = h("div.plot");
  const status = h("p.sr", { role: "status" });
  const area = canvas(stage, {
    signal,
    height: HEIGHT,
    label: `Memory of ${device.name} over ${count(device.entries)} entries: at most ${bytesText(most)} reserved. Arrow keys step through them.`,
    draw: (context, width, height) => {
      const colour = (name: string): string => cssColor(stage, name);
      const pixels = Math.max(1, Math.floor(width));
      const y = (bytes: number): number => height * (1 - bytes / axis.max);
      const fill = (values: ArrayLike<number>, name: string, alpha: number): void => {
        const line = columns(x, (i) => values[i] as number, from, from + span, pixels);
        fillColumns(context, line, y, height, colour(name), [alpha, alpha]);
      };
      fill(reserved, "--m-heap", 0.3);
      fill(active, "--m-heap", 1);
      fill(allocated, "--m-stack", 1);
      context.fillStyle = colour("--err");
      for (const position of device.oom_at)
        context.fillRect(Math.min(width - 2, ((position - from) / span) * width), 0, 2, height);
      if (pointer.row < 0) return;
      context.fillStyle = colour("--accent");
      context.fillRect(Math.round(share(pointer.row) * width), 0, 1, height);
    },
  });
  const card = (row: number) => {
    const bytes = (values: ArrayLike<number>): string => bytesText(values[row] as number);
    const title = timed ? `${shown(x[row] as number)} ms` : `entry ${shown(x[row] as number)}`;
    const what = `${textAt(device.action, row)} ${bytesText(device.size[row] as number)}`;
    const rows = [
      { css: "m-res", label: "Reserved", value: bytes(reserved) },
      { css: "m-heap", label: "Active", value: bytes(active) },
      { css: "m-stack", label: "Allocated", value: bytes(allocated) },
      { label: what, value: textAt(device.where, row) },
    ];
    return { title, rows, two: true };
  };
  const pointer = pointed(area, stage, signal, {
    rows: n,
    at: (share) => rowAt(x, from + share * span),
    share,
    card,
    say(row) {
      const { title, rows } = card(row);
      status.textContent = [title, ...rows.map((each) => `${each.label} ${each.value}`)].join(", ");
    },
  });
  const digits = tickDigits(marks);
  const bottom = bottomAxis(ticksOf(marks, span, (tick) => num(from + tick, digits)));
  return framed("program", [axis.unit, timed ? "ms →" : "entries →"], { left: axis.element, stage, bottom, status });
}
