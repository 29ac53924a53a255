/** Mounts a dashboard in any element of any page. */

import styles from "nbprof:styles";
import { unpack } from "../lib/codec.js";
import { h } from "../lib/dom.js";
import type { Payload } from "../lib/payload.js";
import { type Dashboard, type DashboardOptions, dashboard } from "../views/dashboard.js";

export type { Dashboard, DashboardOptions };

/** Makes the element that carries the shadow root, so that no style leaks in or out. */
function frame(el: HTMLElement): { host: HTMLElement; root: ShadowRoot } {
  // Lumino, which JupyterLab is built on, leaves keys alone under an element that says so.
  const host = h("div.nbprof-host", { "data-lm-suppress-shortcuts": "true" });
  const root = host.attachShadow({ mode: "open" });
  root.append(h("style", styles));
  el.replaceChildren(host);
  return { host, root };
}

/** Draws a packed (or already opened) payload into `el`. What `el` held before is replaced once the payload is read. */
export async function mount(
  el: HTMLElement,
  packed: Uint8Array | ArrayBuffer | DataView | Payload,
  options: DashboardOptions = {},
): Promise<Dashboard> {
  const raw = packed instanceof ArrayBuffer || ArrayBuffer.isView(packed);
  const payload = raw ? await unpack(packed as Uint8Array) : (packed as Payload);
  const { host, root } = frame(el);
  const board = dashboard(host, root, payload, options);
  return {
    ...board,
    destroy() {
      board.destroy();
      host.remove();
    },
  };
}
