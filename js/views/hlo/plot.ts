/** The roofline: ops under what the device can do, both axes logarithmic, and how pointer and keys move on it. */

import { canvas } from "../../lib/canvas.js";
import { bottomTicks, dot, framed, gridLines, leftAxis, rowByKey } from "../../lib/chart.js";
import { textAt } from "../../lib/codec.js";
import { boxOf, h, handled, listen, modified, pointIn } from "../../lib/dom.js";
import { count, num } from "../../lib/format.js";
import { onTheme, themeReader } from "../../lib/palette.js";
import { type CardContent, hoverCard } from "../../lib/parts.js";
import type { Hlo, RoofMark } from "../../lib/payload.js";
import { type Box, besides, slanted, textBox } from "./labels.js";
import {
  axes,
  decades,
  intensityText,
  level,
  markCard,
  opCard,
  type Point,
  place,
  points,
  powerText,
  rate,
} from "./model.js";

const HEIGHT = 320;
const REACH = 6;
/** Room beside the axis, px. */
const GUTTER = 40;
/** From here on a line leads from a mark to its label, px. */
const FAR = 24;

export interface RoofChart {
  element: HTMLElement;
  /** The row that is kept; -1: none. */
  select(row: number): void;
  /** Ops of other rows are faint; null: none is. */
  only(rows: ReadonlySet<number> | null): void;
}

/** `onPick` is called with the row of an op that is chosen, -1 when it is let go. */
export function roofChart(hlo: Hlo, signal: AbortSignal, onPick: (row: number) => void): RoofChart {
  const ops = points(hlo);
  const { x: across, y: up } = axes(hlo, ops);
  const marks = hlo.marks.filter(({ operational_intensity: x, flops_per_second: y }) => (x ?? 0) > 0 && (y ?? 0) > 0);
  const byIntensity = [...ops].sort((a, b) => a.intensity - b.intensity || a.row - b.row);
  const unit = up[1] > 12 ? 12 : 9;
  let shown: ReadonlySet<number> | null = null;
  let picked = -1;
  let hover: Point | RoofMark | null = null;

  const left = leftAxis(
    decades(up, 7).map((exponent) => ({ share: place(up, 10 ** exponent), text: powerText(exponent - unit) })),
    HEIGHT,
  );
  // Ops without FLOPs, and those without bytes, have a place of their own beside the axis.
  const [before, after] = [
    ops.some((point) => point.intensity === 0) ? GUTTER : 0,
    ops.some((point) => point.intensity === Number.POSITIVE_INFINITY) ? GUTTER : 0,
  ];
  const intensities = decades(across, 8).map((exponent) => ({
    share: place(across, 10 ** exponent),
    text: powerText(exponent),
  }));
  const bottom = h(
    "div.axp",
    before > 0 && h("span", { style: { "--x": `${before / 2 - 4}px` } }, "0"),
    ...bottomTicks(intensities, (share) => `calc(${before}px + (100% - ${before + after}px) * ${share})`),
    after > 0 && h("span", { style: { "--x": `calc(100% - ${after / 2 - 4}px)` } }, "∞"),
  );
  const stage = h("div.plot");
  const status = h("p.sr", { role: "status" });
  const units = [unit === 12 ? "TFLOP/s" : "GFLOP/s", "FLOPs per byte of main memory →"];
  const element = framed("roof", units, { left, stage, bottom, status });
  const theme = themeReader(stage);
  const xAt = (width: number, x: number): number =>
    x === 0
      ? before / 2 - 4
      : x === Number.POSITIVE_INFINITY
        ? width - after / 2 + 4
        : before + (width - before - after) * place(across, x);
  const where = (width: number, height: number, x: number, y: number): [number, number] => [
    xAt(width, x),
    height * (1 - place(up, y)),
  ];
  const placeOf = (point: Point, width: number, height: number): [number, number] =>
    where(width, height, point.intensity, level(point, across));

  /** Draws them; returns where their labels are. */
  function roofs(context: CanvasRenderingContext2D, width: number, height: number): Box[] {
    const boxes: Box[] = [];
    const { bg, ink, fg2, font } = theme();
    const [first, last] = across.map((exponent) => 10 ** exponent) as [number, number];
    const peak = hlo.peak_flops ?? Number.POSITIVE_INFINITY;
    const label = (text: string, x: number, y: number): void => {
      context.lineWidth = 3;
      context.strokeStyle = bg;
      context.strokeText(text, x, y);
      context.fillText(text, x, y);
    };
    context.font = `11px ${font}`;
    let taken = width;
    // The slowest memory first: it is the roof of most ops.
    const slowest = [...hlo.roofs].sort((a, b) => a.bytes_per_second - b.bytes_per_second);
    for (const [i, roof] of slowest.entries()) {
      const from = Math.max(first, 10 ** up[0] / roof.bytes_per_second);
      const to = Math.min(last, peak / roof.bytes_per_second, 10 ** up[1] / roof.bytes_per_second);
      if (!(to > from)) continue;
      const [x0, y0] = where(width, height, from, from * roof.bytes_per_second);
      const [x1, y1] = where(width, height, to, to * roof.bytes_per_second);
      context.strokeStyle = ink;
      context.globalAlpha = i ? 0.45 : 0.8;
      context.lineWidth = i ? 1 : 1.5;
      context.setLineDash(i ? [4, 3] : []);
      context.beginPath();
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
      context.stroke();
      context.setLineDash([]);
      context.globalAlpha = 1;
      context.fillStyle = i ? fg2 : ink;
      const text = `${roof.label} ${rate(roof.bytes_per_second, "B/s")}`;
      const long = Math.hypot(x1 - x0, y1 - y0);
      const room = context.measureText(text).width + 16;
      if (long > room) {
        const next = slowest[i + 1]?.bytes_per_second ?? Number.POSITIVE_INFINITY;
        // Where the next line lies close above, the label goes below.
        const close = (height * Math.log10(next / roof.bytes_per_second)) / (up[1] - up[0]) < 20;
        context.save();
        context.translate(x0, y0);
        const angle = Math.atan2(y1 - y0, x1 - x0);
        context.rotate(angle);
        label(text, 8, close ? 14 : -5);
        context.restore();
        boxes.push(...slanted(x0, y0, angle, 8, close ? 14 : -5, room - 16));
      }
      if (roof.ridge === null) continue;
      // Where the two sides meet: from there on more FLOPs a byte gain nothing.
      const [rx, ry] = where(width, height, roof.ridge, peak);
      const ridgeText = intensityText(roof.ridge);
      const wide = context.measureText(ridgeText).width;
      const start = Math.max(2, Math.min(width - wide - 2, rx - wide / 2));
      dot(context, rx, ry, i ? 2.5 : 3.5, bg, ink);
      context.fillStyle = i ? fg2 : ink;
      if (start + wide + 8 <= taken || i === 0) {
        label(ridgeText, start, ry - 9);
        boxes.push(textBox(start, ry - 9, wide));
        taken = start;
      }
    }
    if (hlo.peak_flops === null) return boxes;
    const ridges = hlo.roofs.flatMap((roof) => roof.ridge ?? []);
    const [x0, y] = where(width, height, ridges.length ? Math.min(...ridges) : first, peak);
    context.strokeStyle = ink;
    context.globalAlpha = 0.8;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x0, y);
    context.lineTo(width, y);
    context.stroke();
    context.globalAlpha = 1;
    context.fillStyle = ink;
    const text = `peak ${num(peak / 10 ** unit, peak < 10 ** (unit + 2) ? 1 : 0)} ${unit === 12 ? "T" : "G"}FLOP/s`;
    const wide = context.measureText(text).width;
    label(text, width - wide - 4, y + 15);
    boxes.push(textBox(width - wide - 4, y + 15, wide));
    return boxes;
  }

  const area = canvas(stage, {
    signal,
    height: HEIGHT,
    label: `Roofline of ${count(ops.length)} ops${hlo.device ? ` on ${hlo.device}` : ""}: ${hlo.roofs
      .map((roof) => `${roof.label} ${rate(roof.bytes_per_second, "B/s")}`)
      .join(", ")}. Arrow keys step through the ops.`,
    draw: (context, width, height) => {
      const { bg, ink, accent, grid, categories, font } = theme();
      context.fillStyle = grid;
      for (const exponent of decades(across, 8)) context.fillRect(Math.round(xAt(width, 10 ** exponent)), 0, 1, height);
      const levels = decades(up, 7).map((exponent) => height * (1 - place(up, 10 ** exponent)));
      gridLines(context, levels, width, grid);
      for (const point of ops) {
        const [x, y] = placeOf(point, width, height);
        context.globalAlpha = shown && !shown.has(point.row) ? 0.1 : 0.72;
        context.beginPath();
        context.arc(x, y, point.radius, 0, 2 * Math.PI);
        const colour = categories[point.hue] ?? ink;
        if (point.flops > 0) {
          context.fillStyle = colour;
          context.fill();
        }
        context.globalAlpha = Math.min(1, context.globalAlpha * 1.4);
        context.strokeStyle = point.flops > 0 ? bg : colour;
        context.lineWidth = point.flops > 0 ? 1 : 2;
        context.stroke();
      }
      context.globalAlpha = 1;
      const texts = roofs(context, width, height);
      context.font = `600 11px ${font}`;
      const around = [
        ...ops.map((point) => {
          const [x, y] = placeOf(point, width, height);
          return { x, y, radius: point.radius + 1 };
        }),
        ...marks.map((mark) => {
          const [x, y] = where(width, height, mark.operational_intensity as number, mark.flops_per_second as number);
          return { x, y, radius: 9 };
        }),
      ];
      for (const [i, mark] of marks.entries()) {
        const [x, y] = where(width, height, mark.operational_intensity as number, mark.flops_per_second as number);
        context.beginPath();
        context.moveTo(x, y - 7);
        context.lineTo(x + 7, y);
        context.lineTo(x, y + 7);
        context.lineTo(x - 7, y);
        context.closePath();
        context.fillStyle = i ? bg : ink;
        context.strokeStyle = i ? ink : bg;
        context.lineWidth = 1.5;
        context.fill();
        context.stroke();
        context.fillStyle = ink;
        context.strokeStyle = bg;
        context.lineWidth = 3;
        const room = context.measureText(mark.label).width;
        const { x: start, y: line } = besides({ x, y }, room, { width, height }, texts, around);
        texts.push(textBox(start, line, room));
        const foot = { x: Math.max(start, Math.min(start + room, x)), y: line < y ? line + 3 : line - 9 };
        if (Math.hypot(foot.x - x, foot.y - y) > FAR) {
          context.lineWidth = 1;
          context.strokeStyle = ink;
          context.beginPath();
          context.moveTo(x, y);
          context.lineTo(foot.x, foot.y);
          context.stroke();
          context.strokeStyle = bg;
          context.lineWidth = 3;
        }
        context.strokeText(mark.label, start, line);
        context.fillText(mark.label, start, line);
      }
      for (const point of ops) {
        if (point.row !== picked && point !== hover) continue;
        const [x, y] = placeOf(point, width, height);
        context.beginPath();
        context.arc(x, y, point.radius + 2, 0, 2 * Math.PI);
        context.strokeStyle = accent;
        context.lineWidth = 2;
        context.stroke();
      }
    },
  });
  area.element.tabIndex = 0;
  onTheme(stage, signal, area.redraw);
  const card = hoverCard(stage, signal);

  /** The mark under the pointer, else the op whose edge is nearest: small ones lie on large ones. */
  function under(event: MouseEvent): Point | RoofMark | null {
    const box = boxOf(area.element);
    const { x: px, y: py } = pointIn(event, area.element);
    for (const mark of marks) {
      const [x, y] = where(
        box.width,
        box.height,
        mark.operational_intensity as number,
        mark.flops_per_second as number,
      );
      if (Math.abs(px - x) + Math.abs(py - y) <= 9) return mark;
    }
    let best: Point | null = null;
    let least = REACH;
    for (const point of ops) {
      if (shown && !shown.has(point.row)) continue;
      const [x, y] = placeOf(point, box.width, box.height);
      const off = Math.hypot(px - x, py - y) - point.radius;
      // The later is drawn above.
      if (off <= Math.max(0, least)) {
        best = point;
        least = Math.max(0, off);
      }
    }
    return best;
  }

  function show(target: Point | RoofMark | null): void {
    hover = target;
    area.redraw();
    area.element.style.cursor = target && "row" in target ? "pointer" : "";
    if (!target) {
      card.hide();
      return;
    }
    const box = boxOf(area.element);
    const [x, y] =
      "row" in target
        ? placeOf(target, box.width, box.height)
        : where(box.width, box.height, target.operational_intensity as number, target.flops_per_second as number);
    const far = "row" in target ? target.radius + 2 : 8;
    const content: CardContent = "row" in target ? opCard(hlo, target) : markCard(target);
    card.show(
      { left: box.left + x - far, right: box.left + x + far, top: box.top + y - far, bottom: box.top + y + far },
      content,
    );
  }

  listen(area.element, "pointermove", (event) => {
    const target = under(event);
    if (target !== hover) show(target);
  });
  listen(area.element, "pointerleave", () => show(null));
  listen(area.element, "blur", () => show(null));
  listen(area.element, "click", (event) => {
    const target = under(event);
    if (target && "row" in target) onPick(target.row);
    else if (!target) onPick(-1);
  });
  listen(area.element, "keydown", (event) => {
    if (modified(event)) return;
    const there = byIntensity.filter((point) => !shown || shown.has(point.row));
    const present = there.findIndex((point) => point.row === picked);
    const start = present < 0 && event.key === "ArrowLeft" ? there.length : present;
    const target = rowByKey(event, start, there.length);
    if (target !== undefined && there.length) {
      const point = there[target] as Point;
      onPick(point.row);
      show(point);
      const values = opCard(hlo, point).rows.map((row) => `${row.label} ${row.value}`);
      status.textContent = `${textAt(hlo.table.data.op, point.row)}: ${values.join(", ")}`;
    } else if (event.key === "Escape" && picked >= 0) {
      show(null);
      onPick(-1);
    } else return;
    handled(event);
  });
  return {
    element,
    select(row) {
      picked = row;
      area.redraw();
    },
    only(rows) {
      shown = rows;
      area.redraw();
    },
  };
}
