/** Hover cards. */

import { boxOf, clear, h } from "./dom.js";
import { num } from "./format.js";
import { CATEGORIES, type CategoryKey } from "./payload.js";
import { swatch } from "./swatch.js";

/** Client coordinates of what a hover card describes. */
interface MarkRect {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

export interface CardContent {
  title: string;
  total?: string;
  /** label, value, and a faint third column; a swatch where `css` is given. */
  rows: { css?: string; label: string; value: string; note?: string }[];
  /** Label and value only, values at the left and wrapping: for text. */
  two?: boolean;
}

export interface HoverCard {
  show(mark: MarkRect, content: CardContent): void;
  hide(): void;
}

/** A row for each category that took time, with its share; the parts are in stack order. `labels` are other names for them. */
export function categoryRows(
  parts_ms: readonly number[],
  total_ms: number,
  labels: Partial<Record<CategoryKey, string>> = {},
): CardContent["rows"] {
  return CATEGORIES.flatMap(({ key, css, label }, c) => {
    const part = parts_ms[c] as number;
    return part > 0
      ? [{ css, label: labels[key] ?? label, value: num(part, 2), note: `${num((part / total_ms) * 100, 1)}%` }]
      : [];
  });
}

/** Gap between a mark and its card. */
const GAP = 8;
/** Most room of a card of text, px: a name as long as a kernel's goes on in the next line. */
const WIDEST = 560;

/** A hover card inside the dashboard's frame: on the side with more room, never over its mark. */
export function hoverCard(near: HTMLElement, signal?: AbortSignal): HoverCard {
  const card = h("div.card", { "aria-hidden": "true", style: { display: "none" } });
  const hide = (): void => {
    card.style.display = "none";
  };
  signal?.addEventListener("abort", () => card.remove());
  const show = (mark: MarkRect, content: CardContent): void => {
    const frame = near.closest<HTMLElement>(".nbp") ?? near;
    if (card.parentElement !== frame) frame.append(card);
    clear(card);
    card.classList.toggle("tip", !content.rows.length);
    card.append(
      h("h4", h("span", content.title), content.total && h("span", content.total)),
      h(
        "dl",
        { class: content.two ? "two" : "" },
        ...content.rows.flatMap((row) => [
          h("dt", row.css && swatch(row.css), row.label),
          h("dd", row.value),
          !content.two && h("dd.dim", row.note ?? ""),
        ]),
      ),
    );
    const box = boxOf(frame);
    Object.assign(card.style, {
      display: "",
      left: "0",
      top: "0",
      maxWidth: `${Math.max(120, Math.min(content.two ? WIDEST : box.width, box.width - 16))}px`,
    });
    const { offsetWidth: width, offsetHeight: height } = card;
    const [roomLeft, roomRight] = [mark.left - box.left - GAP, box.right - mark.right - GAP];
    const middle = (mark.top + mark.bottom) / 2 - box.top;
    let left: number;
    let top = middle - height / 2;
    // A text alone goes below or above: beside a head it would lie on other heads.
    if (content.rows.length && Math.max(roomLeft, roomRight) >= width + 4) {
      left = roomRight >= roomLeft ? mark.right - box.left + GAP : mark.left - box.left - GAP - width;
    } else {
      left = (mark.left + mark.right) / 2 - box.left - width / 2;
      const above = mark.top - box.top - GAP - height;
      top = above >= 4 ? above : mark.bottom - box.top + GAP;
    }
    const clamp = (value: number, room: number): number => Math.max(4, Math.min(value, room - 4));
    // The frame's border moves the origin of its absolutely placed children.
    card.style.left = `${clamp(left, box.width - width) - frame.clientLeft}px`;
    card.style.top = `${clamp(top, box.height - height) - frame.clientTop}px`;
  };
  return { show, hide };
}
