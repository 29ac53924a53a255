/** A long name as an element that shows as much of it as there is room for. */

import { type Cut, cuts, cutTo, type Part, type Piece } from "./cut.js";
import { clear, h } from "./dom.js";
import { kernelName, tailStart } from "./format.js";

interface Name {
  parts: Part[];
  /** What is faint, from letter to letter: template arguments of a kernel, segments of a path before its tail. */
  faint: [from: number, to: number];
  /** Letters shown at last. */
  room: number;
}

/** How much of the room is used where some letters are wider than others. */
const EVEN = 0.92;

const names = new WeakMap<Element, Name>();
/** One for all: it tells of elements that come into the page, too. */
let rooms: ResizeObserver | null = null;

function fit(entries: readonly ResizeObserverEntry[]): void {
  // All is read before anything is written.
  const now = entries.map(({ target, contentRect }) => ({ target, width: contentRect.width, all: target.scrollWidth }));
  for (const { target, width, all } of now) {
    const name = names.get(target);
    if (!name || !(width > 0)) continue;
    const length = name.parts.reduce((sum, { text }) => sum + text.length, 0);
    // Letters of one width, but in lists that have the font of the page.
    const even = target.closest(".dl:not(.mono),.dt-row") ? EVEN : 1;
    const room = all > Math.ceil(width) ? Math.floor((length * width * even) / all) : length;
    if (room === name.room) continue;
    name.room = room;
    draw(target as HTMLElement, name.faint, cutTo(name.parts, room));
  }
}

/** Letters that go stay in the text, for whoever searches or copies it. */
function draw(element: HTMLElement, faint: Name["faint"], pieces: readonly Piece[]): void {
  clear(element);
  let start = 0;
  pieces.forEach(({ text, gone }, i) => {
    const [a, b] = faint.map((edge) => Math.max(0, Math.min(text.length, edge - start))) as [number, number];
    const css = gone ? (pieces[i - 1]?.gone ? "in" : "gap") : undefined;
    element.append(h("bdi", { class: css }, text.slice(0, a), a < b && h("span", text.slice(a, b)), text.slice(b)));
    start += text.length;
  });
}

/**
 * A name in full colour but for what is faint of it: kernels without return type and arguments. Where it has no room, `cut` says
 * what goes; by default the beginning.
 */
export function nameNode(full: string, shorten: Cut = cuts([])): HTMLElement {
  const { name, template } = kernelName(full);
  const shown = name + template;
  const element = h("code.cut", { "data-name": shown });
  const faint: [number, number] = shown === full && !template ? [0, tailStart(full)] : [name.length, shown.length];
  const parts = { parts: shorten(shown), faint, room: shown.length };
  names.set(element, parts);
  draw(element, faint, [{ text: shown, gone: false }]);
  rooms ??= new ResizeObserver(fit);
  rooms.observe(element);
  return element;
}
