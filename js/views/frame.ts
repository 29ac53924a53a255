/** What stands around the panes: brand, notice line, footer with the receipt and the list of keys. */

import { h, s } from "../lib/dom.js";
import { bytesText, num } from "../lib/format.js";
import { snippet } from "../lib/parts.js";
import type { Notice, Payload } from "../lib/payload.js";

export function brand(): HTMLElement {
  const bar = (x: number, y: number, width: number, name: string): SVGElement =>
    s("rect", { x, y, width, height: 3, rx: 1, style: { fill: `var(--c-${name})` } });
  const mark = s(
    "svg",
    { width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" },
    bar(1, 2, 9, "input"),
    bar(4, 6.5, 11, "device"),
    bar(1, 11, 6, "host"),
  );
  return h("span.brand", mark, "nbprof");
}

/** An octagon for what failed, a circle for everything else: the shape says it, not only the hue. */
function sign(kind: Notice["kind"]): SVGElement {
  const failed = kind === "failed";
  const color = `var(${failed ? "--err" : "--accent"})`;
  const stroke = { fill: "none", stroke: color, "stroke-width": "1.5" };
  return s(
    "svg",
    { width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" },
    failed
      ? s("path", { d: "M5 1.5h6L14.5 5v6L11 14.5H5L1.5 11V5z", style: stroke })
      : s("circle", { cx: 8, cy: 8, r: 6.5, style: stroke }),
    s("path", { d: failed ? "M8 4.5v4.5M8 10.6v1.1" : "M8 7v4M8 4.6v.8", style: stroke }),
  );
}

export function noticeLine(notice: Notice): HTMLElement {
  return h(
    "div.note.line",
    { role: notice.kind === "failed" ? "alert" : "status" },
    sign(notice.kind),
    h("div", h("b", notice.title), " ", h("span.dim", notice.text), notice.code && snippet(notice.code)),
  );
}

/** The words for a report that is read with no kernel. */
export function savedNotice({ meta }: Payload): Notice {
  // When it was saved is not known here: `created` is when the run was recorded.
  const when = meta.created ? `, recorded ${meta.created.slice(0, 16)}` : "";
  const text = `${meta.label}${when}. Every tab works without a kernel.`;
  return { kind: "static", title: "Static report:", text };
}

/** The notice for tabs that this page cannot draw because the profile was written by a later version; null if there are none. */
export function unknownTabs({ meta }: Payload, views: object): Notice | null {
  const labels = meta.tabs.filter((tab) => !(tab.id in views)).map((tab) => tab.label);
  if (!labels.length) return null;
  const text = `It cannot draw ${labels.join(", ")}. Reload the page; if that does not help, update nbprof where JupyterLab runs.`;
  return { kind: "partial", title: "This page uses an older nbprof than the profile.", text };
}

const KEYS: [keys: string[], does: string][] = [
  [["1", "…"], "switch view; ← → on a tab"],
  [["←", "→"], "in a step chart or among workers: move from step to step; Home, End; Shift selects"],
  [["↑", "↓", "←", "→"], "in the map of workers: move; Enter selects one"],
  [["↑", "↓"], "in a table: move; Enter shows the row in the trace, Ctrl+C copies it"],
  [["/"], "filter or search in this view"],
  [["W", "A", "S", "D"], "trace: zoom and pan; ? in the trace lists all keys"],
  [["Esc"], "clear the selected steps, then the host, then leave the dashboard"],
  [["?"], "this list"],
];

export interface Footer {
  element: HTMLElement;
  /** Whether the list is open now. */
  toggleKeys(): boolean;
}

export function footer({ meta }: Payload, tabs: number): Footer {
  const { events, dropped, analysed_s, file, bytes } = meta.footer;
  const keys = h(
    "div.keys",
    { hidden: true, id: "nbp-keys" },
    ...KEYS.map(([names, does]) =>
      h("div", h("span", ...names.flatMap((name) => [h("kbd", name), " "])), h("span", does)),
    ),
  );
  const receipt = h(
    "ul.receipt",
    { hidden: true },
    ...meta.receipt.map((line) => h("li", { class: line.level }, line.level === "warning" ? "! " : "", line.text)),
  );
  const flip = (element: HTMLElement, control: HTMLElement): void => {
    element.hidden = !element.hidden;
    control.setAttribute("aria-expanded", String(!element.hidden));
    // It opens at the foot of what may be a long page.
    if (!element.hidden) element.scrollIntoView({ block: "nearest" });
  };
  const warnings = meta.receipt.filter((line) => line.level === "warning").length;
  const opener = h(
    "button",
    { class: "more-b", "aria-expanded": "false", on: { click: () => flip(receipt, opener) } },
    warnings ? `receipt, ${num(warnings)} ${warnings === 1 ? "warning" : "warnings"}` : "receipt",
  );
  const help = h(
    "button",
    { class: "more-b", "aria-expanded": "false", on: { click: () => flip(keys, help) } },
    ...(tabs > 1 ? [h("kbd", "1"), "–", h("kbd", String(tabs)), " tabs "] : []),
    h("kbd", "?"),
    " keys",
  );
  const from = [file, bytes === null ? "" : bytesText(bytes)].filter(Boolean).join(", ");
  const element = h(
    "div",
    receipt,
    keys,
    h(
      "div.foot",
      h("span", `${num(events)} ${events === 1 ? "event" : "events"}, ${num(dropped)} dropped`),
      analysed_s !== null && h("span", `analysed in ${num(analysed_s, 1)} s`),
      from && h("span.from", from),
      meta.receipt.length > 0 && opener,
      help,
    ),
  );
  const toggleKeys = (): boolean => {
    flip(keys, help);
    return !keys.hidden;
  };
  return { element, toggleKeys };
}
