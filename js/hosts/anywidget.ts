/** The dashboard as a live widget: traits `packed`, `selected`, `views`, `height`. */

import { h, reason } from "../lib/dom.js";
import { Line } from "../lib/live.js";
import type { TabId } from "../lib/payload.js";
import type { Selection } from "../lib/store.js";
import { Letters } from "../lib/wire.js";
import { type Dashboard, mount } from "./page.js";

/** What nbprof uses of an anywidget model. */
export interface Model {
  get(name: "packed"): DataView | null | undefined;
  get(name: "selected"): number[] | null | undefined;
  get(name: "views"): TabId[] | null | undefined;
  get(name: "height"): number | null | undefined;
  set(name: string, value: unknown): void;
  on(event: "msg:custom", callback: (message: unknown, buffers: DataView[]) => void): void;
  on(event: string, callback: () => void): void;
  off(event: "msg:custom", callback: (message: unknown, buffers: DataView[]) => void): void;
  off(event: string, callback: () => void): void;
  save_changes(): void;
  send(content: unknown): void;
}

const CLOSED = "The widget is closed; its last state is shown.";

const toSelection = (pair: number[] | null | undefined): Selection | null =>
  pair && pair.length >= 2 ? { first: pair[0] as number, last: pair[1] as number } : null;

/**
 * A dashboard has no width of its own: beside other widgets it takes an equal share of the row, unless its layout has a width.
 * A style sheet, for ipywidgets empties the element's own style of what the layout does not set.
 */
const STRETCH = `
.nbprof-widget { min-width: min(320px, 100%) }
.nbprof-widget:not([style^="width:"], [style*=" width:"]) { flex-grow: 1 }
`;

function fitHeight(el: HTMLElement): void {
  el.classList.add("nbprof-widget");
  const { head } = el.ownerDocument;
  if (!head.querySelector("style[data-nbprof-widget]")) head.append(h("style", { "data-nbprof-widget": "" }, STRETCH));
}

/** Draws the model into `el` and keeps both in step; returns what ends it. */
export function render({ model, el, signal }: { model: Model; el: HTMLElement; signal?: AbortSignal }): () => void {
  let board: Dashboard | null = null;
  let version = 0;

  fitHeight(el);
  // The kernel answers when it can: at once, or in a front end without threads for it after the cell that runs.
  const line = new Line();
  const letters = new Letters((message) => model.send(message));
  const receive = (message: unknown, buffers: DataView[]): void => letters.receive(message, buffers);
  model.on("msg:custom", receive);
  const close = (): void => {
    line.detach(CLOSED);
    letters.close(CLOSED);
  };

  const onSelection = (selection: Selection | null): void => {
    const pair = selection ? [selection.first, selection.last] : [];
    if (String(pair) === String(model.get("selected") ?? [])) return;
    model.set("selected", pair);
    model.save_changes();
  };
  const select = (): void => board?.setSelection(toSelection(model.get("selected")));
  const draw = async (): Promise<void> => {
    const current = ++version;
    const packed = model.get("packed");
    board?.destroy();
    board = null;
    if (!packed || packed.byteLength === 0) return;
    try {
      const next = await mount(el, packed, {
        live: true,
        ask: line,
        views: model.get("views") ?? [],
        height: model.get("height") ?? 0,
        selection: toSelection(model.get("selected")),
        onSelection,
      });
      // A newer payload, or the end, came while this one was being opened.
      if (current !== version) {
        next.destroy();
        return;
      }
      board = next;
      // Another selection may have come too.
      select();
    } catch (error) {
      if (current === version) el.textContent = reason(error);
    }
  };
  const redraw = (): void => void draw();
  const events: [string, () => void][] = [
    ["change:packed", redraw],
    ["change:views", redraw],
    ["change:height", redraw],
    ["change:selected", select],
    // The kernel has ended, or the widget was closed in Python.
    ["comm:close", close],
    ["destroy", close],
  ];
  for (const [event, callback] of events) model.on(event, callback);
  const end = (): void => {
    version++;
    for (const [event, callback] of events) model.off(event, callback);
    model.off("msg:custom", receive);
    close();
    board?.destroy();
    board = null;
  };
  signal?.addEventListener("abort", end, { once: true });
  redraw();
  void line.attach(letters.post);
  return end;
}

export default { render };
