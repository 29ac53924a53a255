/** The buffers live at the peak as bars: as high as they are large, side by side in program order or by size. */

import { canvas } from "../../lib/canvas.js";
import { numberAt, textAt } from "../../lib/codec.js";
import { h, handled, listen, modified, shareAt } from "../../lib/dom.js";
import { bytesText, count } from "../../lib/format.js";
import { onTheme, themeReader } from "../../lib/palette.js";
import type { ProgramSpace } from "../../lib/payload.js";
import { cssColor } from "../../lib/theme.js";
import { isTemporary, type Order, ordered } from "./model.js";

const HEIGHT = 88;
/** Widest bar, px: three buffers are no carpets. */
const WIDEST = 72;

export interface Bars {
  element: HTMLElement;
  setOrder(order: Order): void;
  mark(buffer: number): void;
}

/** `onPoint` is called with the buffer that is pointed at (-1: none any more), `onPick` with the one that is kept. */
export function bars(
  space: ProgramSpace,
  signal: AbortSignal,
  onPoint: (buffer: number) => void,
  onPick: (buffer: number) => void,
): Bars {
  let rows = ordered(space, "program");
  let marked = -1;
  const stage = h("div.plot.bars");
  const status = h("p.sr", { role: "status" });
  const { data } = space.buffers;
  const size = (row: number): number => numberAt(data.size_bytes, row);
  const most = Math.max(1, ...rows.map(size));
  const pitch = (width: number): number => Math.min(WIDEST, width / Math.max(1, rows.length));
  const theme = themeReader(stage);
  const area = canvas(stage, {
    signal,
    height: HEIGHT,
    label: `${count(rows.length)} buffers live at the peak, the largest ${bytesText(most)}. Arrow keys step through them.`,
    draw: (context, width, height) => {
      const { accent } = theme();
      const [heap, stack] = [cssColor(stage, "--m-heap"), cssColor(stage, "--m-stack")];
      const step = pitch(width);
      const gap = step >= 4 ? 1 : 0;
      const tall = (bytes: number): number => Math.max(1.5, ((height - 2) * bytes) / most);
      rows.forEach((row, i) => {
        const [all, bare] = [tall(size(row)), tall(Math.min(size(row), numberAt(data.unpadded_bytes, row)))];
        const wide = Math.max(1, step - gap);
        if (row === marked) {
          context.fillStyle = accent;
          context.globalAlpha = 0.14;
          context.fillRect(i * step, 0, wide, height);
        } else context.fillStyle = isTemporary(space, row) ? heap : stack;
        context.globalAlpha = 0.45;
        context.fillRect(i * step, height - all, wide, all);
        context.globalAlpha = 1;
        context.fillRect(i * step, height - bare, wide, bare);
      });
    },
  });
  area.element.tabIndex = 0;
  onTheme(stage, signal, area.redraw);

  const barAt = (event: MouseEvent): number => {
    const width = Math.max(1, area.width());
    return rows[Math.floor((shareAt(event, area.element) * width) / pitch(width))] ?? -1;
  };
  listen(area.element, "pointermove", (event) => onPoint(barAt(event)));
  listen(area.element, "pointerleave", () => onPoint(-1));
  listen(area.element, "click", (event) => {
    const row = barAt(event);
    if (row >= 0) onPick(row);
  });
  listen(area.element, "keydown", (event) => {
    if (!rows.length || modified(event)) return;
    const present = rows.indexOf(marked);
    const moves: Record<string, number> = {
      ArrowLeft: present - 1,
      ArrowRight: present + 1,
      PageUp: present - 10,
      PageDown: present + 10,
      Home: 0,
      End: rows.length - 1,
    };
    const target = moves[event.key];
    if (target === undefined) return;
    const row = rows[Math.max(0, Math.min(rows.length - 1, target))] as number;
    onPick(row);
    status.textContent = `${textAt(data.buffer, row)}, ${textAt(data.category, row)}, ${bytesText(size(row))}`;
    handled(event);
  });
  return {
    element: h("div", stage, status),
    setOrder(order) {
      rows = ordered(space, order);
      area.redraw();
    },
    mark(buffer) {
      marked = buffer;
      area.redraw();
    },
  };
}
