/** The dashboard as a live widget: traits `packed`, `selected`, `views`, `height`. */

import { reason } from "../lib/dom.js";
import type { TabId } from "../lib/payload.js";
import type { Selection } from "../lib/store.js";
import { type Dashboard, mount } from "./page.js";

/** What nbprof uses of an anywidget model. */
export interface Model {
  get(name: "packed"): DataView | null | undefined;
  get(name: "selected"): number[] | null | undefined;
  get(name: "views"): TabId[] | null | undefined;
  get(name: "height"): number | null | undefined;
  set(name: string, value: unknown): void;
  on(event: string, callback: () => void): void;
  off(event: string, callback: () => void): void;
  save_changes(): void;
}

const toSelection = (pair: number[] | null | undefined): Selection | null =>
  pair && pair.length >= 2 ? { first: pair[0] as number, last: pair[1] as number } : null;

/** Draws the model into `el` and keeps both in step; returns what ends it. */
export function render({ model, el, signal }: { model: Model; el: HTMLElement; signal?: AbortSignal }): () => void {
  let board: Dashboard | null = null;
  let version = 0;

  const onSelection = (selection: Selection | null): void => {
    const pair = selection ? [selection.first, selection.last] : [];
    if (String(pair) === String(model.get("selected") ?? [])) return;
    model.set("selected", pair);
    model.save_changes();
  };
  const draw = async (): Promise<void> => {
    const mine = ++version;
    const packed = model.get("packed");
    board?.destroy();
    board = null;
    if (!packed || packed.byteLength === 0) return;
    try {
      const next = await mount(el, packed, {
        live: true,
        views: model.get("views") ?? [],
        height: model.get("height") ?? 0,
        selection: toSelection(model.get("selected")),
        onSelection,
      });
      // A newer payload, or the end, came while this one was being opened.
      if (mine === version) board = next;
      else next.destroy();
    } catch (error) {
      if (mine === version) el.textContent = reason(error);
    }
  };
  const select = (): void => board?.setSelection(toSelection(model.get("selected")));
  const redraw = (): void => void draw();
  const events: [string, () => void][] = [
    ["change:packed", redraw],
    ["change:views", redraw],
    ["change:height", redraw],
    ["change:selected", select],
  ];
  for (const [event, callback] of events) model.on(event, callback);
  const end = (): void => {
    version++;
    for (const [event, callback] of events) model.off(event, callback);
    board?.destroy();
    board = null;
  };
  signal?.addEventListener("abort", end, { once: true });
  redraw();
  return end;
}

export default { render };
