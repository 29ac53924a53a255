/** The shell: header bar, notice, tabs, panes drawn when first opened, footer. */

import VIEWS from "nbprof:views";
import { clear, h, handled, listen, modified, reason } from "../lib/dom.js";
import { bytesText, num } from "../lib/format.js";
import { type Keeper, type Kept, readKept, writeKept } from "../lib/keep.js";
import { onPageOptions, palette } from "../lib/page-options.js";
import { categoryClass, copyButton, emptyView } from "../lib/parts.js";
import type { Payload, TabId } from "../lib/payload.js";
import type { Place } from "../lib/place.js";
import { createStore, type Selection } from "../lib/store.js";
import { type Theme, watchTheme } from "../lib/theme.js";
import type { Hint, ViewContext, ViewHandle } from "../lib/view.js";
import type { Asker } from "../lib/wire.js";
import { about } from "./about.js";
import { actions } from "./actions.js";
import { brand, footer, noticeLine, savedNotice, unknownTabs } from "./frame.js";
import { chosenIn, devicePicker, followsDevice, hostPicker, OF_HOST, ofHost } from "./of-host.js";
import { chosenAt, hintAt, placeIn, stepsIn } from "./place.js";
import { headTips } from "./tips.js";
import { trials } from "./trials.js";
import { wholeNote } from "./whole.js";

export interface DashboardOptions {
  /** A kernel stands behind it. */
  live?: boolean;
  tab?: TabId;
  /** Instead of what the computed background says. */
  theme?: Theme;
  /** Only these tabs, in this order. */
  views?: TabId[];
  /** Height of the whole in px, inside which the panes scroll; 0 or absent: as high as its content. */
  height?: number;
  selection?: Selection | null;
  onSelection?: (selection: Selection | null) => void;
  /** Another tab is shown. */
  onTab?: (tab: TabId) => void;
  /** Where it is opened, unless `state` says it. */
  place?: Place;
  /** The reader is somewhere else. */
  onPlace?: (place: Place) => void;
  /** The address of a place, for the button that copies it. */
  link?: (place: Place) => string;
  /** What an earlier one of the same payload looked like. */
  state?: BoardState;
  /** Answers what the payload does not hold. */
  ask?: Asker;
  /** The payload was read. */
  onPayload?: (payload: Payload) => void;
  /** Has the connection of `ask` made, where it is only made when somebody needs it. */
  connect?: () => void;
  /** Draws another payload in place of this one; null: the first one again. */
  show?: (packed: Uint8Array | null) => Promise<void>;
  /** Whether a comparison is shown that was chosen in the header. */
  compared?: boolean;
  /** Draws a newer payload of the same run for good. */
  replace?: (packed: Uint8Array) => Promise<void>;
}

/** What a reader has made of a dashboard. */
export interface BoardState {
  tab: TabId;
  selection: Selection | null;
  host?: string | null;
  device?: number | null;
  /** By view that was opened. */
  opened: Partial<Record<TabId, Kept>>;
}

export interface Dashboard {
  destroy(): void;
  setSelection(selection: Selection | null): void;
  /** Whether a kernel stands behind it: without one a line says that this is a saved report, or that nothing more comes. */
  setLive(live: boolean): void;
  /** The tab that is shown. */
  tab(): TabId;
  /** To give to another one of the same payload. */
  state(): BoardState;
  /** Goes to a place. */
  open(place: Place): void;
  /** A key that was pressed around it, where the whole page is this dashboard. */
  key(event: KeyboardEvent): void;
}

interface Pane {
  element: HTMLElement;
  drawn: boolean;
  handle: ViewHandle | undefined;
  keepers: Keeper[];
  abort: AbortController;
  resize: Set<() => void>;
  /** Width at which it was last drawn. */
  width: number;
}

const REGIONS = Symbol.for("nbprof.regions");

/** The name of its landmark: with a number while another dashboard has it, be that of this copy of the code or of another one. */
function regionName(name: string, signal: AbortSignal): string {
  const page = globalThis as { [REGIONS]?: Set<string> };
  page[REGIONS] ??= new Set();
  const taken = page[REGIONS];
  let label = name;
  for (let number = 2; taken.has(label); number++) label = `${name} (${number})`;
  taken.add(label);
  listen(signal, "abort", () => taken.delete(label));
  return label;
}

/** Draws the dashboard into the shadow root's frame and answers to keys while focus is inside. */
export function dashboard(
  host: HTMLElement,
  root: ShadowRoot,
  payload: Payload,
  options: DashboardOptions = {},
): Dashboard {
  const ending = new AbortController();
  const { signal } = ending;
  const known = payload.meta.tabs.filter((tab) => tab.id in VIEWS);
  const wanted = options.views?.length ? options.views : known.map((tab) => tab.id);
  const tabs = wanted.flatMap((id) => known.filter((tab) => tab.id === id));
  const was = options.state ?? options;
  const at = options.state ? {} : (options.place ?? {});
  const first = was.tab ?? at.tab ?? payload.meta.tab;
  const start = tabs.find((tab) => tab.id === first)?.id ?? tabs[0]?.id ?? "overview";
  const store = createStore({
    selection: was.selection ?? stepsIn(payload, at.steps),
    ...chosenAt(payload, at),
    ...(options.state && { host: options.state.host ?? null, device: options.state.device ?? null }),
    tab: start,
  });
  // The devices of another host are others.
  store.subscribe("host", () => store.set("device", null), signal);
  /** Of views that were not opened since. */
  const stored = { ...options.state?.opened };
  const uid = `nbp${Math.random().toString(36).slice(2, 8)}`;

  const frame = h("div.nbp", { role: "region", "aria-label": regionName(`nbprof, ${payload.meta.label}`, signal) });
  frame.classList.toggle("on-host", !payload.meta.has_device);
  if (options.height) {
    frame.classList.add("fixed");
    frame.style.height = `${options.height}px`;
  }
  const setTheme = (theme: Theme): void => {
    frame.dataset.theme = theme;
    host.dataset.theme = theme;
  };
  const setPalette = (): void => {
    frame.dataset["palette"] = palette();
  };
  setPalette();
  onPageOptions(signal, setPalette);
  if (options.theme) {
    setTheme(options.theme);
    frame.classList.add("own");
  }

  const buttons = tabs.map((tab, i) =>
    h(
      "button",
      {
        role: "tab",
        id: `${uid}-tab-${tab.id}`,
        "aria-controls": `${uid}-pane-${tab.id}`,
        title: `Key ${i + 1}`,
        on: { click: () => go(tab.id) },
      },
      tab.label,
      tab.count !== null && h("small", num(tab.count)),
      tab.note && h("small.tab-note", tab.note),
      tab.flag && h("i", { class: `flag ${categoryClass(tab.flag)}`, title: "The bottleneck is here" }),
    ),
  );
  const panes = new Map<TabId, Pane>(
    tabs.map((tab) => [
      tab.id,
      {
        element: h("div.pane", {
          role: "tabpanel",
          id: `${uid}-pane-${tab.id}`,
          "aria-labelledby": `${uid}-tab-${tab.id}`,
          hidden: true,
        }),
        drawn: false,
        handle: undefined,
        keepers: [],
        abort: new AbortController(),
        resize: new Set(),
        width: 0,
      },
    ]),
  );
  const status = h("div");
  const { ask, link } = options;
  const offered =
    ask &&
    actions(
      {
        ask,
        ...(options.connect && { connect: options.connect }),
        ...(options.show && { show: options.show }),
        compared: options.compared ?? false,
        say: (notice) => status.replaceChildren(...(notice ? [noticeLine(notice)] : [])),
      },
      signal,
    );
  offered?.setLive(options.live ?? false);
  const attempts = ask
    ? trials(
        {
          ask,
          ...(options.connect && { connect: options.connect }),
          ...(options.replace && { replace: options.replace }),
        },
        signal,
      )
    : null;
  attempts?.setLive(options.live ?? false);
  const bar = h(
    "div.bar-top",
    brand(),
    runLine(payload),
    hostPicker(payload.meta.hosts ?? [], store, signal),
    devicePicker(payload.meta, store, signal),
    offered?.element,
    link &&
      h(
        "span.actions",
        { "aria-live": "polite" },
        copyButton(() => link(placeIn(store)), "Copy link", ""),
      ),
  );
  const pending = payload.meta.pending && h("span.pending", payload.meta.pending);
  const tablist = h("div.tabs", { role: "tablist", "aria-label": "Views" }, ...buttons, pending);
  /** A tab that was asked for and is not made yet: opened in the whole. */
  let awaited: TabId | undefined;
  const foot = footer(payload, tabs.length);
  const unknown = unknownTabs(payload, VIEWS);
  frame.append(
    bar,
    status,
    unknown ? noticeLine(unknown) : "",
    payload.meta.notice ? noticeLine(payload.meta.notice) : "",
    tabs.length > 1 || pending ? tablist : "",
    ...[...panes.values()].map((pane) => pane.element),
    foot.element,
  );
  root.append(frame);
  let saved: HTMLElement | null = null;
  if (!options.theme) watchTheme(host.parentElement ?? host, signal, setTheme);

  const width = (): number => frame.clientWidth;

  function draw(id: TabId, pane: Pane, hint?: Hint): void {
    pane.abort.abort();
    pane.abort = new AbortController();
    pane.resize.clear();
    pane.keepers = [];
    clear(pane.element);
    pane.drawn = true;
    pane.width = width();
    try {
      const context = {
        payload: OF_HOST.has(id) ? ofHost(payload, chosenIn(store)) : payload,
        store,
        asker: options.ask ?? null,
        trials: attempts,
        signal: pane.abort.signal,
        go,
        width,
        keep: (read: () => unknown, write: (value: never) => void) => void pane.keepers.push({ read, write }),
        onResize: (fn: () => void) => void pane.resize.add(fn),
      };
      pane.handle = VIEWS[id](pane.element, context as ViewContext, hint) ?? undefined;
      const before = stored[id];
      delete stored[id];
      const label = tabs.find((tab) => tab.id === id)?.label ?? id;
      pane.element.prepend(...about(id, label), wholeNote(id, payload, store, pane.abort.signal));
      // Who reads by headings finds the view before its sections, also where it begins with no sentence of its own.
      if (!pane.element.querySelector("h2")) pane.element.prepend(h("h2.sr", label));
      if (before && !hint) writeKept(pane.element, pane.keepers, before);
    } catch (error) {
      const text = reason(error);
      clear(pane.element);
      pane.element.append(
        emptyView({ title: "This view could not be drawn", text: `The other views still work. ${text}` }),
      );
      console.error(error);
    }
  }

  /** Tells the view its new width. Out of the page, where a notebook puts cells that are scrolled away, there is none. */
  function refit(pane: Pane): void {
    if (width() === 0 || pane.width === width()) return;
    pane.width = width();
    for (const fn of [...pane.resize]) fn();
  }

  function show(id: TabId, hint?: Hint): void {
    for (const [other, pane] of panes) pane.element.hidden = other !== id;
    tabs.forEach((tab, i) => {
      const on = tab.id === id;
      const item = buttons[i] as HTMLButtonElement;
      item.setAttribute("aria-selected", String(on));
      item.tabIndex = on ? 0 : -1;
      // scrollIntoView would scroll the notebook too.
      if (on && item.offsetLeft + item.offsetWidth > tablist.scrollLeft + tablist.clientWidth) {
        tablist.scrollLeft = item.offsetLeft + item.offsetWidth - tablist.clientWidth + 12;
      } else if (on && item.offsetLeft < tablist.scrollLeft) tablist.scrollLeft = Math.max(0, item.offsetLeft - 12);
    });
    const pane = panes.get(id);
    if (!pane) return;
    if (!pane.drawn) draw(id, pane, hint);
    else {
      refit(pane);
      if (hint && pane.handle?.hint) pane.handle.hint(hint);
      else if (hint) draw(id, pane, hint);
    }
  }

  function go(id: TabId, hint?: Hint): void {
    awaited = pending && !panes.has(id) ? id : undefined;
    if (!panes.has(id)) return;
    if (hint?.range_ms && !hint.window_ms) store.set("focusRange", hint.range_ms);
    store.set("tab", id);
    show(id, hint);
  }

  function leave(): void {
    (root.activeElement as HTMLElement | null)?.blur();
    // In JupyterLab the notebook takes the keys again, with the cell as it was.
    host.closest<HTMLElement>(".jp-Notebook, .jp-Cell, [tabindex]")?.focus();
  }

  function focusFilter(): boolean {
    const pane = panes.get(store.get("tab"));
    if (!pane) return false;
    if (pane.handle?.focusFilter) {
      pane.handle.focusFilter();
      return true;
    }
    const input = pane.element.querySelector<HTMLInputElement>("input[data-filter]");
    input?.focus();
    input?.select();
    return Boolean(input);
  }

  function onKey(event: KeyboardEvent): void {
    if (event.defaultPrevented || modified(event)) return;
    const typing = event.target instanceof HTMLElement && event.target.matches("input,select,textarea");
    const onTab = buttons.indexOf(event.target as HTMLButtonElement);
    const digit = Number(event.key);
    const sideways = { ArrowRight: onTab + 1, ArrowLeft: onTab - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (event.key === "Escape") {
      if (typing) (event.target as HTMLElement).blur();
      if (store.get("selection")) store.set("selection", null);
      else if (store.get("device") !== null) store.set("device", null);
      else if (store.get("host") !== null) store.set("host", null);
      else leave();
    } else if (typing) return;
    else if (onTab >= 0 && sideways !== undefined) {
      const next = (sideways + tabs.length) % tabs.length;
      go((tabs[next] as { id: TabId }).id);
      buttons[next]?.focus();
    } else if (digit >= 1 && digit <= tabs.length) {
      go((tabs[digit - 1] as { id: TabId }).id);
      buttons[digit - 1]?.focus();
    } else if (event.key === "?") {
      // Back to what the page was left at.
      if (!foot.toggleKeys() && event.target instanceof Element) event.target.scrollIntoView({ block: "nearest" });
    } else if (event.key !== "/" || !focusFilter()) return;
    handled(event);
  }
  listen(frame, "keydown", onKey as EventListener);
  headTips(frame, signal);
  // A key typed into a field belongs to the field: the notebook must not take "b" for "new cell".
  listen(frame, "keydown", (event) => {
    if (event.target instanceof HTMLElement && event.target.matches("input,select,textarea")) event.stopPropagation();
  });

  let frameRequest = 0;
  const observer = new ResizeObserver(() => {
    cancelAnimationFrame(frameRequest);
    frameRequest = requestAnimationFrame(() => {
      const pane = panes.get(store.get("tab"));
      if (pane) refit(pane);
    });
  });
  observer.observe(frame);
  listen(signal, "abort", () => {
    observer.disconnect();
    cancelAnimationFrame(frameRequest);
    for (const pane of panes.values()) pane.abort.abort();
  });
  const some = (): void => {
    const selected = store.get("selection") !== null;
    frame.classList.toggle("some", selected);
    const narrowed = store.get("host") !== null || store.get("device") !== null;
    frame.classList.toggle("of-host", !selected && narrowed);
  };
  some();
  store.subscribe("selection", some, signal);
  store.subscribe("host", some, signal);
  store.subscribe("device", some, signal);
  const redraw = (follow: (id: TabId) => boolean): void => {
    for (const [id, pane] of panes) {
      if (!pane.drawn || !OF_HOST.has(id) || !follow(id)) continue;
      pane.drawn = false;
      if (id === store.get("tab")) draw(id, pane);
    }
  };
  store.subscribe("host", () => redraw(() => true), signal);
  store.subscribe("device", () => redraw(followsDevice), signal);
  if (options.onSelection) store.subscribe("selection", options.onSelection, signal);
  if (options.onTab) store.subscribe("tab", options.onTab, signal);
  if (ask) {
    host.dataset.live = ask.state;
    ask.onState((state) => {
      host.dataset.live = state;
    }, signal);
  }
  show(start, hintAt(payload, start, at));
  const { onPlace } = options;
  if (onPlace) {
    for (const key of ["tab", "selection", "host", "device", "trace", "op", "kernel"] as const)
      store.subscribe(key, () => onPlace(placeIn(store)), signal);
  }

  return {
    destroy() {
      ending.abort();
      frame.remove();
    },
    setSelection: (selection) => store.set("selection", selection),
    tab: () => store.get("tab"),
    key: onKey,
    open(place) {
      const { host, device } = chosenAt(payload, place);
      store.set("host", host);
      store.set("device", device);
      store.set("selection", stepsIn(payload, place.steps));
      const id = place.tab && panes.has(place.tab) ? place.tab : store.get("tab");
      go(id, hintAt(payload, id, place));
    },
    state() {
      const opened = { ...stored };
      for (const [id, pane] of panes) if (pane.drawn) opened[id] = readKept(pane.element, pane.keepers);
      return { tab: awaited ?? store.get("tab"), selection: store.get("selection"), ...chosenIn(store), opened };
    },
    setLive(live) {
      if (pending) {
        pending.textContent = live ? (payload.meta.pending ?? "") : "the analysis did not finish";
        return;
      }
      offered?.setLive(live);
      attempts?.setLive(live);
      saved?.remove();
      saved = live || payload.meta.notice ? null : noticeLine(savedNotice(payload));
      if (saved) bar.after(saved);
    },
  };
}

function runLine({ meta }: Payload): HTMLElement {
  const facts = meta.facts.map((fact) => ` · ${fact}`).join("");
  const title = [`nbprof ${meta.version}`, meta.framework, meta.created, bytesText(meta.footer.bytes)].join(", ");
  return h("span.run-id", { title }, h("b", meta.label), facts);
}
