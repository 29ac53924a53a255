/** What the allocator reserved, and what of it was in use, over time. */

import { canvas } from "../../lib/canvas.js";
import { textAt } from "../../lib/codec.js";
import { boxOf, h, handled, listen, modified } from "../../lib/dom.js";
import { bytesText, byteUnit, count, num } from "../../lib/format.js";
import { hoverCard } from "../../lib/parts.js";
import type { AllocatorDevice } from "../../lib/payload-allocator.js";
import { tickDigits, ticks } from "../../lib/scale.js";
import { cssColor } from "../../lib/theme.js";
import { byteAxis, columns } from "../memory/series.js";
import { onTheme } from "../trace/palette.js";

const HEIGHT = 180;
const UNIT = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4 } as const;

/** The last row at or before a place on the axis; the first where there is none. */
export function rowAt(x: ArrayLike<number>, at: number): number {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((x[middle] as number) <= at) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

export function levels(device: AllocatorDevice, signal: AbortSignal): HTMLElement {
  const { x, reserved, active, allocated, timed } = device;
  const n = x.length;
  const from = x[0] as number;
  const span = Math.max((x[n - 1] as number) - from, 1e-9);
  let most = 1;
  for (const value of reserved) most = Math.max(most, value);
  const unit = byteUnit(most);
  const axis = byteAxis((1.06 * most) / UNIT[unit]);
  const top = axis.max * UNIT[unit];
  let hover = -1;

  const shown = (at: number): string => (timed ? num(at, span < 100 ? 2 : 0) : count(at));
  const bottom = ticks(span, 6).filter((tick) => tick <= span);
  const stage = h("div.plot");
  const status = h("p.sr", { role: "status" });
  const area = canvas(stage, {
    signal,
    height: HEIGHT,
    label: `Memory of GPU ${device.device} over ${count(device.entries)} entries: at most ${bytesText(most)} reserved. Arrow keys step through them.`,
    draw: (context, width, height) => {
      const colour = (name: string): string => cssColor(stage, name);
      const pixels = Math.max(1, Math.floor(width));
      const y = (bytes: number): number => height * (1 - bytes / top);
      const fill = (values: ArrayLike<number>, name: string, alpha: number): void => {
        const { max } = columns(x, (i) => values[i] as number, from, from + span, pixels);
        context.fillStyle = colour(name);
        context.globalAlpha = alpha;
        for (let i = 0; i < pixels; i++) {
          const high = y(max[i] as number);
          if (high < height) context.fillRect(i, high, 1, height - high);
        }
        context.globalAlpha = 1;
      };
      fill(reserved, "--m-heap", 0.3);
      fill(active, "--m-heap", 1);
      fill(allocated, "--m-stack", 1);
      context.fillStyle = colour("--err");
      for (const at of device.oom_at) context.fillRect(Math.min(width - 2, ((at - from) / span) * width), 0, 2, height);
      if (hover < 0) return;
      context.fillStyle = colour("--accent");
      context.fillRect(Math.round((((x[hover] as number) - from) / span) * width), 0, 1, height);
    },
  });
  area.element.tabIndex = 0;
  onTheme(stage, signal, area.redraw);
  const card = hoverCard(stage, signal);

  function show(row: number, spoken = false): void {
    hover = row;
    area.redraw();
    if (row < 0) {
      card.hide();
      return;
    }
    const box = boxOf(area.element);
    const at = box.left + (((x[row] as number) - from) / span) * box.width;
    const bytes = (values: ArrayLike<number>): string => bytesText(values[row] as number);
    const title = timed ? `${shown(x[row] as number)} ms` : `entry ${shown(x[row] as number)}`;
    const what = `${textAt(device.action, row)} ${bytesText(device.size[row] as number)}`;
    const rows = [
      { css: "m-res", label: "Reserved", value: bytes(reserved) },
      { css: "m-heap", label: "Active", value: bytes(active) },
      { css: "m-stack", label: "Allocated", value: bytes(allocated) },
      { label: what, value: textAt(device.where, row) },
    ];
    card.show({ left: at - 4, right: at + 4, top: box.top, bottom: box.bottom }, { title, rows, two: true });
    if (spoken) status.textContent = [title, ...rows.map((each) => `${each.label} ${each.value}`)].join(", ");
  }

  listen(area.element, "pointermove", (event) => {
    const box = boxOf(area.element);
    show(rowAt(x, from + ((event.clientX - box.left) / Math.max(1, box.width)) * span));
  });
  listen(area.element, "pointerleave", () => show(-1));
  listen(area.element, "blur", () => show(-1));
  listen(area.element, "keydown", (event) => {
    if (modified(event)) return;
    const far = event.shiftKey ? 10 : 1;
    const moves: Record<string, number> = {
      ArrowLeft: hover - far,
      ArrowRight: hover + far,
      PageUp: hover - Math.ceil(n / 10),
      PageDown: hover + Math.ceil(n / 10),
      Home: 0,
      End: n - 1,
    };
    const target = moves[event.key];
    if (target !== undefined) show(Math.max(0, Math.min(n - 1, target)), true);
    else if (event.key === "Escape" && hover >= 0) show(-1);
    else return;
    handled(event);
  });
  return h(
    "div",
    h(
      "div.chart.program",
      h("div.unit", h("span", unit), h("span", timed ? "ms →" : "entries →")),
      h(
        "div.ax",
        { style: { height: `${HEIGHT}px` } },
        ...axis.ticks.map((tick) =>
          h("span", { style: { top: `${HEIGHT * (1 - tick / axis.max)}px` } }, num(tick, tickDigits(axis.ticks))),
        ),
      ),
      stage,
      h(
        "div.axp",
        ...bottom.map((tick) =>
          h("span", { style: { "--x": `${(100 * tick) / span}%` } }, num(from + tick, tickDigits(bottom))),
        ),
      ),
    ),
    status,
  );
}
