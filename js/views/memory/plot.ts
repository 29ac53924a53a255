/** The timeline of memory: what it shows, and how pointer and keys move on it. */

import { canvas } from "../../lib/canvas.js";
import { bottomTicks, leftTicks, pointed } from "../../lib/chart.js";
import { boxOf, h, listen, shareAt } from "../../lib/dom.js";
import { bytesText, num } from "../../lib/format.js";
import { themeReader } from "../../lib/palette.js";
import { link } from "../../lib/parts.js";
import type { MemoryId } from "../../lib/payload.js";
import { cssColor } from "../../lib/theme.js";
import { draw } from "./draw.js";
import { cardRows, momentText, ticksText } from "./moment.js";
import {
  axis,
  firstScope,
  fragmentationAxis,
  largest,
  peakIndex,
  type Scope,
  sampleAt,
  stacked,
  timeTicks,
} from "./series.js";

const HEIGHT = 224;
/** Of fragmentation, and what is between the two. */
const STRIP = 36;
const GAP = 12;

export interface Plot {
  element: HTMLElement;
  scope: Scope;
  setScope(scope: Scope): void;
  /** The event that is kept, or -1. */
  readonly pinned: number;
  pin(index: number): void;
}

/** `onPin` is called with each event that is kept, and with -1 when it is let go. */
export function plot(
  id: MemoryId,
  width: () => number,
  signal: AbortSignal,
  onPin: (index: number) => void,
  noun = "step",
): Plot {
  const n = id.time_ms.length;
  const [from, to] = n ? [Math.min(0, id.time_ms[0] as number), id.time_ms[n - 1] as number] : [0, 1];
  const end = to > from ? to : from + 1;
  const peak = peakIndex(id);
  const fragmented = id.fragmentation.some((value) => Number.isFinite(value));
  let scope = firstScope(id);
  let pinned = -1;

  const height = HEIGHT + (fragmented ? GAP + STRIP : 0);
  const left = h("div.ax", { style: { height: `${height}px` } });
  const bottom = h("div.axp");
  const unit = h("span");
  const stage = h("div.plot");
  const moment = h("p.moment.dim", { role: "status" });
  const element = h("div", h("div.chart.memory", h("div.unit", unit), left, stage, bottom), moment);
  const parts = fragmentationAxis(id);
  const roles = stacked(id);
  let left_axis = axis(id, scope, id.free_bytes[peak] ?? Number.NaN);

  const theme = themeReader(stage);
  const colour = (name: string): string => cssColor(stage, name);
  const area = canvas(stage, {
    signal,
    height,
    label: `Memory in use over ${num(end - from, 1)} ms: peak ${bytesText(largest(id))}${
      peak < 0 ? "" : ` at ${num(id.time_ms[peak], 1)} ms`
    }. Arrow keys step through ${num(n)} events.`,
    draw: (context, width) => {
      const { bg, fg2, ink, accent, font, tints } = theme();
      const other = colour("--c-other");
      draw(context, width, HEIGHT, {
        id,
        from,
        to: end,
        left: left_axis,
        strip: fragmented ? { top: HEIGHT + GAP, height: STRIP, max: parts.max } : null,
        peak,
        hover: pointer.row,
        pinned,
        parts: roles.map(({ tint, upTo }) => ({ upTo, colour: tints[tint] ?? other })),
        colours: {
          stack: colour("--m-stack"),
          heap: colour("--m-heap"),
          free: colour("--m-free"),
          line: colour("--m-frag"),
          grid: colour("--line"),
          bg,
          fg2,
          ink,
          accent,
          font,
        },
      });
    },
  });

  function drawAxes(): void {
    left_axis = axis(id, scope, id.free_bytes[peak] ?? Number.NaN);
    unit.textContent = left_axis.unit;
    const fragmentation = ticksText(fragmented ? [0, parts.max] : []).map((text, i) =>
      h("span", { style: { top: `${i ? HEIGHT + GAP + 4 : height - 4}px` } }, text),
    );
    const bytes = left_axis.ticks.map(({ value, text }) => ({ share: value / left_axis.max, text }));
    left.replaceChildren(...leftTicks(bytes, HEIGHT), ...fragmentation);
    const values = timeTicks(from, end, width() < 500 ? 4 : 8);
    const times = ticksText(values).map((text, i) => ({
      share: ((values[i] as number) - from) / (end - from),
      text: i === values.length - 1 && i > 0 ? `${text} ms` : text,
    }));
    bottom.replaceChildren(...bottomTicks(times));
    area.redraw();
  }

  function pin(index: number): void {
    pinned = index;
    onPin(index);
    area.redraw();
    moment.replaceChildren();
    if (index < 0) moment.append("Click a point, or press Enter on it: the table shows that moment.");
    else {
      moment.append(
        momentText(id, index, noun),
        " ",
        link("clear", () => pin(-1)),
      );
    }
  }

  const rowAt = (share: number, pixel: number): number =>
    sampleAt(id, from + share * (end - from), 1.5 * (end - from) * pixel);
  const pointer = pointed(area, stage, signal, {
    rows: n,
    at: rowAt,
    share: (index) => ((id.time_ms[index] as number) - from) / (end - from),
    card: (index) => cardRows(id, index, noun),
    begin: () => (pinned >= 0 ? { row: pinned, moves: true } : { row: peak, moves: false }),
    key(event) {
      if ((event.key === "Enter" || event.key === " ") && pointer.row >= 0) pin(pointer.row);
      else if (event.key === "Escape" && (pointer.row >= 0 || pinned >= 0)) {
        pointer.show(-1);
        pin(-1);
      } else return false;
      return true;
    },
  });
  listen(area.element, "click", (event) => {
    pin(rowAt(shareAt(event, area.element), 1 / Math.max(1, boxOf(area.element).width)));
  });
  drawAxes();
  pin(-1);
  return {
    element,
    get scope() {
      return scope;
    },
    get pinned() {
      return pinned;
    },
    pin,
    setScope(next) {
      scope = next;
      drawAxes();
    },
  };
}
