/**
 * What the page wants of every dashboard in it: attributes of its root element, which JupyterLab's settings set.
 * So dashboards that another copy of this code draws, as those of widgets, hear of it too.
 */

import { listen } from "./dom.js";

export const PALETTES = ["default", "safe", "page"] as const;
export type PaletteName = (typeof PALETTES)[number];

const PALETTE = "data-nbprof-palette";
const LANES = "data-nbprof-lanes";

const page = (): Element | null => globalThis.document?.documentElement ?? null;

/** The colours of categories. */
export function palette(): PaletteName {
  const named = page()?.getAttribute(PALETTE);
  return PALETTES.find((name) => name === named) ?? "default";
}

/** How many lanes of a trace are seen before it scrolls; null: as many as it decides itself. */
export function lanesShown(): number | null {
  const count = Number(page()?.getAttribute(LANES));
  return Number.isInteger(count) && count > 0 ? count : null;
}

/** Sets both for all dashboards of the page; null leaves it to them. */
export function setPageOptions(name: PaletteName, lanes: number | null): void {
  const root = page();
  if (name === "default") root?.removeAttribute(PALETTE);
  else root?.setAttribute(PALETTE, name);
  if (lanes === null) root?.removeAttribute(LANES);
  else root?.setAttribute(LANES, String(lanes));
}

/** Calls `fn` when either changes. */
export function onPageOptions(signal: AbortSignal, fn: () => void): void {
  const root = page();
  if (!root) return;
  const observer = new MutationObserver(fn);
  observer.observe(root, { attributes: true, attributeFilter: [PALETTE, LANES] });
  listen(signal, "abort", () => observer.disconnect());
}
