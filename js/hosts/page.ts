/** Mounts a dashboard in any element of any page. */

import styles from "nbprof:styles";
import { unpack } from "../lib/codec.js";
import { h, listen } from "../lib/dom.js";
import type { Payload } from "../lib/payload.js";
import type { Selection } from "../lib/store.js";
import { type BoardState, type Dashboard, type DashboardOptions, dashboard } from "../views/dashboard.js";
import { address } from "./address.js";
import { drawnBytes, enter, type Guest, leave, openedBytes, settle } from "./budget.js";

export type { BoardState, Dashboard, DashboardOptions };

type Bytes = Uint8Array | ArrayBuffer | DataView;

/** Nobody is seen to stop at what flies by for less than this, ms. */
const STAY_MS = 60;
/** What a dashboard that comes back asks for after it stands, as details of the trace, is there by then, ms. */
const STANDS_MS = 1000;

/** Makes the element that carries the shadow root, so that no style leaks in or out. */
function frame(): { host: HTMLElement; root: ShadowRoot } {
  // Lumino, which JupyterLab is built on, leaves keys alone under an element that says so.
  const host = h("div.nbprof-host", { "data-lm-suppress-shortcuts": "true" });
  const root = host.attachShadow({ mode: "open" });
  root.append(h("style", styles));
  return { host, root };
}

const asBytes = (packed: Bytes): Uint8Array =>
  packed instanceof ArrayBuffer
    ? new Uint8Array(packed)
    : new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength);

/**
 * Draws a packed (or already opened) payload into `el`. What `el` held before is replaced once the payload is read.
 *
 * A packed one far out of view may give its memory back, and is drawn again as it was when it comes near: `packed` may be
 * a function for where its bytes are better made anew than held.
 */
export async function mount(
  el: HTMLElement,
  packed: Bytes | Payload | (() => Bytes),
  options: DashboardOptions = {},
): Promise<Dashboard> {
  const give = typeof packed === "function" ? packed : null;
  const raw = give ? give() : packed;
  if (!(raw instanceof ArrayBuffer || ArrayBuffer.isView(raw))) {
    const { host, root } = frame();
    el.replaceChildren(host);
    const board = dashboard(host, root, raw as Payload, options);
    return {
      ...board,
      destroy() {
        board.destroy();
        host.remove();
      },
    };
  }
  const bytes = asBytes(raw as Bytes);
  const payload = await unpack(bytes);
  options.onPayload?.(payload);
  return resting(el, payload, give ?? (() => bytes), openedBytes(bytes), options);
}

function resting(
  el: HTMLElement,
  first: Payload,
  readBytes: () => Bytes,
  opened: number,
  options: DashboardOptions,
): Dashboard {
  const { host, root } = frame();
  const ending = new AbortController();
  const { label } = first.meta;
  /** What is drawn: its own payload, or the comparison that was chosen in the header. */
  let own = readBytes;
  let give = own;
  let board: Dashboard | null = null;
  let state: BoardState | undefined;
  let live: boolean | null = null;
  let height = 0;
  let near = true;
  let waking = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let standing: ReturnType<typeof setTimeout> | undefined;
  let weighing: ReturnType<typeof setTimeout> | undefined;

  // A saved report is all that there is on its page: its address, and keys before anything has the focus, are for it.
  const alone = "nbprofPage" in document.body.dataset;
  const where = alone ? address(ending.signal, (place) => board?.open(place)) : null;
  const draw = (payload: Payload): void => {
    const compared = give !== own;
    const views = options.views?.length && compared ? [...options.views, "compare" as const] : options.views;
    board = dashboard(host, root, payload, {
      ...options,
      show,
      replace,
      compared,
      ...(views && { views }),
      ...(state && { state }),
      ...(where && { place: where.place, onPlace: where.follow }),
      ...(where?.link && { link: where.link }),
    });
    if (live !== null) board.setLive(live);
  };
  async function show(packed: Uint8Array | null): Promise<void> {
    const payload = await unpack(packed ?? own());
    if (ending.signal.aborted || !board) return;
    const was = board.state();
    give = packed ? () => packed : own;
    // What is opened of one payload need not be in the other.
    state = { tab: packed ? "compare" : (payload.meta.tab ?? "overview"), selection: was.selection, opened: {} };
    board.destroy();
    draw(payload);
  }
  async function replace(packed: Uint8Array): Promise<void> {
    const payload = await unpack(packed);
    if (ending.signal.aborted || !board) return;
    own = () => packed;
    give = own;
    state = board.state();
    board.destroy();
    draw(payload);
    // What had the focus is gone: it goes to what is new.
    root.querySelector<HTMLElement>(".tried")?.focus();
  }
  const measure = (): void => {
    if (board && host.offsetHeight) height = host.offsetHeight;
  };
  const guest: Guest = {
    seen: performance.now(),
    weight: () => (board ? opened + drawnBytes(root) : 0),
    far: () => !near && !host.matches(":focus-within"),
    rest() {
      if (!board) return;
      measure();
      state = board.state();
      board.destroy();
      board = null;
      // As high as it was, so that nothing below moves, and with its name for who reads or prints what is not drawn.
      host.style.minHeight = `${height}px`;
      root.append(h("p.resting", `nbprof, ${label}: drawn again when it scrolls into view`));
      host.dataset.nbprofResting = "";
    },
  };
  async function wake(): Promise<void> {
    if (board || waking || ending.signal.aborted) return;
    waking = true;
    try {
      const payload = await unpack(give());
      if (ending.signal.aborted) return;
      root.querySelector(".resting")?.remove();
      delete host.dataset.nbprofResting;
      draw(payload);
    } finally {
      waking = false;
    }
    clearTimeout(standing);
    standing = setTimeout(() => {
      if (board) host.style.minHeight = "";
      settle();
    }, STANDS_MS);
  }
  const look = (entries: IntersectionObserverEntry[]): void => {
    near = entries.at(-1)?.isIntersecting ?? near;
    guest.seen = performance.now();
    clearTimeout(timer);
    timer = setTimeout(() => (near ? void wake() : settle()), STAY_MS);
  };
  // Notebooks scroll inside of the page: `scrollMargin` is for them. A browser without it draws what comes into view, not before.
  const margin = { rootMargin: "100% 0px", scrollMargin: "100% 0px" };
  const sight = new IntersectionObserver(look, margin as IntersectionObserverInit);
  const size = new ResizeObserver(() => {
    measure();
    // Another tab, or more of this one, may have made it heavier.
    clearTimeout(weighing);
    weighing = setTimeout(settle, STANDS_MS);
  });
  listen(ending.signal, "abort", () => {
    clearTimeout(timer);
    clearTimeout(standing);
    clearTimeout(weighing);
    sight.disconnect();
    size.disconnect();
    leave(guest);
    board?.destroy();
    board = null;
    host.remove();
  });
  el.replaceChildren(host);
  try {
    draw(first);
  } catch (error) {
    ending.abort();
    throw error;
  }
  if (alone) {
    const key = (event: KeyboardEvent): void => {
      if (event.target === document.body) board?.key(event);
    };
    listen(document.body, "keydown", key, { signal: ending.signal });
  }
  enter(guest);
  sight.observe(host);
  size.observe(host);
  return {
    destroy: () => ending.abort(),
    setSelection(selection: Selection | null) {
      if (state) state = { ...state, selection };
      board?.setSelection(selection);
    },
    setLive(now) {
      live = now;
      board?.setLive(now);
    },
    tab: () => board?.tab() ?? (state as BoardState).tab,
    state: () => board?.state() ?? (state as BoardState),
    key: (event) => board?.key(event),
    open: (place) => board?.open(place),
  };
}

/** For a page that runs this module as a script of its own, and so cannot import from it: the loader of an output. */
Object.assign(globalThis, { [Symbol.for("nbprof.module")]: { mount } });
