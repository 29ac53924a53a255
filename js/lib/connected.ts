/** Waits for Python, where the connection is only made when somebody needs it. */

import { listen } from "./dom.js";
import type { Asker } from "./wire.js";

/** How long the connection may take before the reader is told that there is none, ms. */
const CONNECT_MS = 15_000;

/** Resolves when Python answers; rejects with the reason where it does not. */
export function connected(ask: Asker, connect: (() => void) | undefined, signal: AbortSignal): Promise<void> {
  if (ask.state === "live") return Promise.resolve();
  connect?.();
  return new Promise((resolve, reject) => {
    const heard = new AbortController();
    const timer = setTimeout(() => {
      heard.abort();
      reject(new Error(ask.reason || "Python does not answer; it may be busy running a cell."));
    }, CONNECT_MS);
    listen(signal, "abort", () => clearTimeout(timer), { once: true });
    ask.onState((state) => {
      if (state !== "live") return;
      clearTimeout(timer);
      heard.abort();
      resolve();
    }, heard.signal);
  });
}
