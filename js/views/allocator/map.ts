/** The segments of the allocator, a row each, as long as they are large; their blocks, and what is stranded between them. */

import { canvas } from "../../lib/canvas.js";
import { textAt } from "../../lib/codec.js";
import { boxOf, clear, h, handled, listen, modified, pointIn } from "../../lib/dom.js";
import { bytesText, count } from "../../lib/format.js";
import { onTheme } from "../../lib/palette.js";
import { hoverCard } from "../../lib/parts.js";
import type { AllocatorDevice } from "../../lib/payload.js";
import { cssColor } from "../../lib/theme.js";

const STATES = ["Free", "In use", "Awaiting free"];
/** Least length of a row, as a part of the width: two MiB beside many GiB can be pointed at. */
const LEAST = 0.04;

/** First block of each segment, and the end of the last. */
export function firsts(device: AllocatorDevice): number[] {
  const { blocks, segments } = device;
  const rows: number[] = [];
  for (let row = 0; row < blocks.rows; row++) {
    while (rows.length <= (blocks.segment[row] as number)) rows.push(row);
  }
  while (rows.length <= segments.rows) rows.push(blocks.rows);
  return rows;
}

export function segmentMap(device: AllocatorDevice, signal: AbortSignal): HTMLElement {
  const { blocks, segments } = device;
  const first = firsts(device);
  const pitch = segments.rows > 40 ? 9 : segments.rows > 12 ? 14 : 22;
  const tall = pitch - (pitch > 9 ? 3 : 1);
  let most = 1;
  for (const size of segments.size) most = Math.max(most, size);
  let picked = -1;
  const valueAt = (values: ArrayLike<number>, row: number): number => values[row] as number;
  const long = (segment: number, width: number): number =>
    width * Math.max(LEAST, valueAt(segments.size, segment) / most);
  /** Left and width of a block, px. */
  const place = (row: number, width: number): [number, number] => {
    const segment = valueAt(blocks.segment, row);
    const scale = long(segment, width) / Math.max(1, valueAt(segments.size, segment));
    return [valueAt(blocks.offset, row) * scale, Math.max(0.5, valueAt(blocks.size, row) * scale)];
  };
  const stage = h("div.plot");
  const details = h("dl.env.buffer", { "aria-label": "Block" });
  const status = h("p.sr", { role: "status" });
  const area = canvas(stage, {
    signal,
    height: segments.rows * pitch,
    label: `${count(segments.rows)} segments of ${device.name} with ${count(blocks.rows)} blocks. Arrow keys step through blocks and segments.`,
    draw: (context, width) => {
      const colour = (name: string): string => cssColor(stage, name);
      const [used, pending, free, lost] = ["--m-stack", "--m-heap", "--m-free", "--c-launch"].map(colour);
      for (let row = 0; row < blocks.rows; row++) {
        const [left, wide] = place(row, width);
        const top = valueAt(blocks.segment, row) * pitch;
        const state = valueAt(blocks.state, row);
        const stuck = valueAt(blocks.stranded, row) > 0;
        context.fillStyle = (state === 1 ? used : state === 2 ? pending : stuck ? lost : free) as string;
        context.globalAlpha = stuck ? 0.75 : 1;
        context.fillRect(left, top, wide > 3 ? wide - 0.5 : wide, tall);
        context.globalAlpha = 1;
        if (row !== picked) continue;
        context.strokeStyle = colour("--accent");
        context.lineWidth = 2;
        context.strokeRect(left + 1, top + 1, Math.max(1, wide - 2), tall - 2);
      }
    },
  });
  area.element.tabIndex = 0;
  onTheme(stage, signal, area.redraw);
  const card = hoverCard(stage, signal);

  const facts = (row: number): [string, string][] => {
    const size = bytesText(valueAt(blocks.size, row));
    const [segment, lost] = [valueAt(blocks.segment, row), valueAt(blocks.stranded, row)];
    const state = STATES[valueAt(blocks.state, row)] ?? "";
    return [
      [state, lost ? `${size}, ${bytesText(lost)} of it stranded` : size],
      [
        "Segment",
        `${bytesText(valueAt(segments.size, segment))} with ${bytesText(valueAt(segments.stranded, segment))} stranded, ${textAt(segments.name, segment)}`,
      ],
      ...(valueAt(blocks.state, row) ? [["Stack", textAt(blocks.stack, row)] as [string, string]] : []),
    ];
  };
  function pick(row: number, spoken = false): void {
    picked = row;
    area.redraw();
    clear(details);
    if (row < 0) return;
    for (const [name, value] of facts(row))
      details.append(h("dt", name), h(name === "Stack" ? "dd.lines" : "dd", value));
    if (spoken) status.textContent = facts(row).flat().join(", ");
  }
  const find = (event: MouseEvent): number => {
    const box = boxOf(area.element);
    const { x, y } = pointIn(event, area.element);
    const segment = Math.floor(y / pitch);
    for (let row = first[segment] ?? 0; row < (first[segment + 1] ?? 0); row++) {
      const [left, wide] = place(row, box.width);
      if (x < left + wide) return row;
    }
    return -1;
  };
  listen(area.element, "pointermove", (event) => {
    const row = find(event);
    if (row < 0) {
      card.hide();
      return;
    }
    const box = boxOf(area.element);
    const [left, wide] = place(row, box.width);
    const top = box.top + valueAt(blocks.segment, row) * pitch;
    const rows = facts(row).map(([label, value]) => ({ label, value: value.split("\n").slice(0, 4).join(" < ") }));
    const mark = { left: box.left + left, right: box.left + left + wide, top, bottom: top + tall };
    card.show(mark, { title: bytesText(valueAt(blocks.size, row)), rows, two: true });
  });
  listen(area.element, "pointerleave", () => card.hide());
  listen(area.element, "click", (event) => pick(find(event)));
  listen(area.element, "keydown", (event) => {
    if (!blocks.rows || modified(event)) return;
    const segment = picked < 0 ? -1 : valueAt(blocks.segment, picked);
    const next = (to: number): number => first[Math.max(0, Math.min(segments.rows - 1, to))] as number;
    const moves: Record<string, number> = {
      ArrowLeft: picked - 1,
      ArrowRight: picked + 1,
      ArrowUp: next(segment - 1),
      ArrowDown: next(segment + 1),
      Home: 0,
      End: blocks.rows - 1,
    };
    const target = moves[event.key];
    if (target === undefined) return;
    pick(Math.max(0, Math.min(blocks.rows - 1, target)), true);
    handled(event);
  });
  // At first the free block that is the largest of those that are stranded.
  let largest = -1;
  for (let row = 0; row < blocks.rows; row++)
    if (valueAt(blocks.stranded, row) > (largest < 0 ? 0 : valueAt(blocks.stranded, largest))) largest = row;
  pick(largest);
  return h("div", h("div.segments", stage), details, status);
}
