/** A step function of time: how long a queue was, how fast copies were. */

import { canvas } from "../../lib/canvas.js";
import { gridLines } from "../../lib/chart.js";
import { h, listen, shareAt } from "../../lib/dom.js";
import { num } from "../../lib/format.js";
import { onTheme } from "../../lib/palette.js";
import type { DeviceSeries } from "../../lib/payload.js";
import { niceMax, tickDigits, ticks } from "../../lib/scale.js";
import { cssColor } from "../../lib/theme.js";

const HEIGHT = 110;

export function series(line: DeviceSeries, signal: AbortSignal): HTMLElement {
  const highest = line.most.reduce((most, value) => Math.max(most, value), 0);
  const max = niceMax(highest);
  // There is no half of a kernel in a queue.
  const marks = ticks(max, 4).filter((tick) => line.unit !== "count" || Number.isInteger(tick));
  const unit = line.unit === "count" ? "" : ` ${line.unit}`;
  const plot = h("div.plot");
  const status = h("p.dim.dt-at", { "aria-live": "off" });
  const rest = `Maximum ${num(highest, unit ? 2 : 0)}${unit}, from ${num(line.from_ms, 2)} to ${num(line.to_ms, 2)} ms`;
  status.textContent = rest;
  const area = canvas(plot, {
    signal,
    height: HEIGHT,
    label: `${line.label}. ${rest}.`,
    draw(context, width, height) {
      const levels = marks.map((tick) => height * (1 - tick / max));
      gridLines(context, levels, width, cssColor(plot, "--grid"));
      context.fillStyle = cssColor(plot, "--dt-line");
      const box = width / line.most.length;
      line.most.forEach((value, i) => {
        const tall = value > 0 ? Math.max(1, (value / max) * height) : 0;
        const from = Math.round(i * box);
        context.fillRect(from, height - tall, Math.max(1, Math.round((i + 1) * box) - from), tall);
      });
    },
  });
  listen(area.element, "pointermove", (event) => {
    const share = Math.min(0.9999, Math.max(0, shareAt(event, area.element)));
    const value = line.most[Math.floor(share * line.most.length)] as number;
    const time = line.from_ms + share * (line.to_ms - line.from_ms);
    status.textContent = `${num(time, 2)} ms: up to ${num(value, unit ? 2 : 0)}${unit}`;
  });
  listen(area.element, "pointerleave", () => {
    status.textContent = rest;
  });
  onTheme(plot, signal, area.redraw);
  return h(
    "div",
    h(
      "div.chart.dt-chart",
      h(
        "div.dt-axis",
        ...marks.map((tick) =>
          h("span", { style: { bottom: `${(tick / max) * HEIGHT}px` } }, num(tick, tickDigits(marks))),
        ),
      ),
      plot,
    ),
    status,
  );
}
