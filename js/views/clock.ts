/** The steps of the cell by the wall clock, where a profiler recorded some of them. */

import { canvas } from "../lib/canvas.js";
import { bottomAxis, fillColumns, framed, gridLines, leftAxis, pointed, ticksOf } from "../lib/chart.js";
import { h } from "../lib/dom.js";
import { count, ms, num } from "../lib/format.js";
import { categoryColour, themeReader } from "../lib/palette.js";
import { heading } from "../lib/parts.js";
import type { Clock } from "../lib/payload.js";
import { columns, niceMax, ticks } from "../lib/scale.js";
import { axisLimit } from "./stepstats.js";

const HEIGHT = 80;

/** The rows of each stretch that was recorded: first and last. */
export function recordedStretches(recorded: ArrayLike<number>): [number, number][] {
  const stretches: [number, number][] = [];
  for (let row = 0; row < recorded.length; row++) {
    if (!recorded[row]) continue;
    const open = stretches.at(-1);
    if (open && open[1] === row - 1) open[1] = row;
    else stretches.push([row, row]);
  }
  return stretches;
}

/** The longest step, where it is longer than the axis. */
export function cutText(times: ArrayLike<number>, max: number): string {
  const longest = Math.max(0, ...Array.from(times));
  return longest > max ? `the longest takes ${ms(longest)}` : "";
}

export function stepClock(clock: Clock, signal: AbortSignal): HTMLElement {
  const { start_s: start, ms: times, recorded } = clock;
  const n = times.length;
  const rows = Array.from({ length: n }, (_, row) => row);
  const max = niceMax(axisLimit(Array.from(times)));
  const numbers = ticks(n, 6).filter((tick) => Number.isInteger(tick) && tick < n);
  const heights = ticks(max, 2);

  const stage = h("div.plot");
  const status = h("p.sr", { role: "status" });
  const theme = themeReader(stage);
  const area = canvas(stage, {
    signal,
    height: HEIGHT,
    label: `Step time over the cell: ${clock.scope}. Arrow keys move from step to step.`,
    draw: (context, width, height) => {
      const colours = theme();
      const x = (row: number): number => (row / n) * width;
      const y = (value: number): number => height * (1 - Math.min(1, value / max));
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.14;
      for (const [first, last] of recordedStretches(recorded))
        context.fillRect(x(first), 0, Math.max(2, x(last + 1) - x(first)), height);
      context.globalAlpha = 1;
      gridLines(context, heights.slice(1).map(y), width, colours.grid);
      const line = columns(rows, (row) => times[row] as number, 0, n, Math.max(1, Math.floor(width)));
      fillColumns(context, line, y, height, categoryColour(colours, "other"));
      context.fillStyle = colours.fg;
      for (let column = 0; column < line.max.length; column++)
        if ((line.max[column] as number) > max) context.fillRect(column, 0, 2, height);
      if (pointer.row < 0) return;
      context.fillStyle = colours.accent;
      context.fillRect(Math.round(x(pointer.row + 0.5)), 0, 1, height);
    },
  });
  const describe = (row: number) => ({
    title: `Step ${count(clock.step[row] as number)}`,
    total: ms(times[row] as number),
    rows: [{ label: recorded[row] ? "Recorded" : "Not recorded", value: `at ${num(start[row] as number, 2)} s` }],
  });
  const pointer = pointed(area, stage, signal, {
    rows: n,
    at: (position) => Math.max(0, Math.min(n - 1, Math.floor(position * n))),
    share: (row) => (row + 0.5) / n,
    card: describe,
    say(row) {
      const { title, total, rows } = describe(row);
      status.textContent = [title, total, ...rows.map(({ label, value }) => `${label} ${value}`)].join(", ");
    },
  });
  const bottom = bottomAxis(ticksOf(numbers, n, (row) => count(clock.step[row] as number)));
  const scope = [clock.scope, cutText(times, max)].filter(Boolean).join("; ");
  const left = leftAxis(ticksOf(heights, max), HEIGHT);
  return h(
    "section.of-run",
    heading("All steps of the cell", scope),
    framed("program", ["ms", "step number; shaded: recorded →"], { left, stage, bottom, status }),
  );
}
