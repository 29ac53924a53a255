/** The working set over the program points: what it shows, and how pointer and keys move on it. */

import { canvas } from "../../lib/canvas.js";
import { bottomAxis, bytesAxis, dot, fillColumns, framed, gridLines, pointed, ticksOf } from "../../lib/chart.js";
import { numberAt } from "../../lib/codec.js";
import { h } from "../../lib/dom.js";
import { bytesText, count } from "../../lib/format.js";
import { themeReader } from "../../lib/palette.js";
import type { ProgramSpace } from "../../lib/payload.js";
import { columns, ticks } from "../../lib/scale.js";
import { cssColor } from "../../lib/theme.js";
import { lifetime, peakRow, pointCard, pointText, rowAt } from "./model.js";

const HEIGHT = 200;

export interface WorkingSet {
  element: HTMLElement;
  /** Draws the lifetime of a buffer of the peak; -1: of none. */
  mark(buffer: number): void;
}

export function workingSet(space: ProgramSpace, signal: AbortSignal): WorkingSet {
  const n = space.rows;
  const end = Math.max(1, space.points);
  const peak = peakRow(space);
  let marked = -1;

  // Room above the peak for its label.
  const axis = bytesAxis(space.peak_bytes, 1.14, HEIGHT);
  const points = ticks(end - 1, 6).filter((tick) => Number.isInteger(tick));
  const bottom = bottomAxis(ticksOf(points, end, count));
  const stage = h("div.plot");
  const status = h("p.sr", { role: "status" });
  const element = framed("program", [axis.unit, "program points →"], { left: axis.element, stage, bottom, status });

  const theme = themeReader(stage);
  const area = canvas(stage, {
    signal,
    height: HEIGHT,
    label: `Working set over ${count(space.points - 1)} program points: peak ${bytesText(space.peak_bytes)}${
      space.peak < 0 ? "" : ` at point ${count(space.peak)}`
    }, without padding ${bytesText(space.unpadded_bytes)}. Arrow keys step through the points.`,
    draw: (context, width, height) => {
      const { bg, ink, accent, font } = theme();
      const colour = (name: string): string => cssColor(stage, name);
      const pixels = Math.max(1, Math.floor(width));
      const x = (point: number): number => (point / end) * width;
      const y = (bytes: number): number => height * (1 - Math.min(1, Math.max(0, bytes / axis.max)));
      const area = (values: ArrayLike<number>, alpha: number): void => {
        const line = columns(space.position, (i) => values[i] as number, 0, end, pixels);
        fillColumns(context, line, y, height, colour("--m-heap"), [alpha, 0.7 * alpha]);
      };
      area(space.allocated_bytes, 0.45);
      area(space.unpadded, 1);
      context.fillStyle = colour("--m-stack");
      context.fillRect(0, y(space.throughout_bytes), width, height - y(space.throughout_bytes));

      const inner = axis.ticks.filter((tick) => tick > 0 && tick < axis.max);
      gridLines(context, inner.map(y), width, bg, 0.45);

      if (marked >= 0) {
        const [from, to] = lifetime(space, marked).map(x) as [number, number];
        const wide = Math.max(2, to - from);
        const size = numberAt(space.buffers.data.size_bytes, marked);
        const tall = Math.max(3, height - y(size));
        context.fillStyle = accent;
        // What lives throughout has no lifetime to tell apart.
        if (wide < width) {
          context.globalAlpha = 0.16;
          context.fillRect(from, 0, wide, height);
          context.globalAlpha = 1;
          context.fillRect(Math.round(from), 0, 1, height);
          context.fillRect(Math.round(from + wide) - 1, 0, 1, height);
        }
        context.globalAlpha = 0.85;
        context.fillRect(from, height - tall, wide, tall);
        context.globalAlpha = 1;
      }

      const line = Math.round(y(space.peak_bytes));
      context.fillStyle = ink;
      context.globalAlpha = 0.65;
      for (let dash = 0; dash < width; dash += 6) context.fillRect(dash, line, 3, 1);
      context.globalAlpha = 1;
      context.font = `600 11px ${font}`;
      const text = `peak ${bytesText(space.peak_bytes)}`;
      const room = context.measureText(text).width;
      const centre = peak < 0 ? 8 : x((space.position[peak] as number) + 0.5);
      context.fillText(text, Math.min(width - room - 4, Math.max(4, centre - room / 2)), line - 6);
      if (peak >= 0) dot(context, Math.min(width - 4, centre), line, 3.5, bg, ink);
      if (pointer.row >= 0) {
        context.fillStyle = accent;
        context.fillRect(Math.round(x((space.position[pointer.row] as number) + 0.5)), 0, 1, height);
      }
    },
  });
  const pointer = pointed(area, stage, signal, {
    rows: n,
    at(share, pixel) {
      const point = share * end;
      // Near the peak it is meant, also where a pixel holds a hundred points.
      const near = peak >= 0 && Math.abs((space.position[peak] as number) + 0.5 - point) < 3 * end * pixel;
      return near ? peak : rowAt(space, point);
    },
    share: (row) => ((space.position[row] as number) + 0.5) / end,
    card: (row) => pointCard(space, row),
    say(row) {
      status.textContent = pointText(space, row);
    },
    begin: () => ({ row: peak, moves: false }),
  });
  return {
    element,
    mark(buffer) {
      marked = buffer;
      area.redraw();
    },
  };
}
