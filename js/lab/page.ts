/** Pages of Jupyter Notebook, which hold one document each, and what their address says of it. */

import { URLExt } from "@jupyterlab/coreutils";

/** The tab that is shown, and the run that the document is compared with. */
type Key = "nbprof-tab" | "nbprof-before";

/** Opens a document in a page of its own. */
export function openPage(base: string, path: string, factory: string, more: Partial<Record<Key, string>> = {}): void {
  const url = URLExt.join(base, "edit", URLExt.encodeParts(path));
  window.open(url + URLExt.objectToQueryString({ factory, ...more }), "_blank", "noopener");
}

/** What the address of this page says; "" where it does not. */
export const queryValue = (key: Key): string => new URLSearchParams(window.location.search).get(key) ?? "";

/** Has the address say something from now on, so that it is so again after a reload. */
export function say(key: Key, value: string): void {
  const url = new URL(window.location.href);
  if (value === queryValue(key)) return;
  if (value) url.searchParams.set(key, value);
  else url.searchParams.delete(key);
  window.history.replaceState(window.history.state, "", url);
}
