/** The address of the page of a saved report: its fragment opens the report at a place, and follows the reader. */

import { listen } from "../lib/dom.js";
import { type Place, placeText, readPlace } from "../lib/place.js";

/** A browser refuses more than a hundred changes of an address in half a minute. */
const PAUSE_MS = 400;

export interface Address {
  /** Where the page was opened. */
  place: Place;
  /** The reader is somewhere else. */
  follow(place: Place): void;
  /** The address of a place; null in a frame that has none of its own. */
  link: ((place: Place) => string) | null;
}

/** `onChange`: the fragment was edited, or a link to another place of the page was followed. */
export function address(signal: AbortSignal, onChange: (place: Place) => void): Address {
  let timer: ReturnType<typeof setTimeout> | undefined;
  globalThis.addEventListener("hashchange", () => onChange(readPlace(location.hash)), { signal });
  listen(signal, "abort", () => clearTimeout(timer));
  return {
    place: readPlace(location.hash),
    link: /^(https?|file):$/.test(location.protocol)
      ? (place) => `${location.href.replace(/#.*/, "")}#${placeText(place)}`
      : null,
    follow(place) {
      clearTimeout(timer);
      timer = setTimeout(() => {
        const fragment = `#${placeText(place)}`;
        if (fragment === location.hash) return;
        try {
          history.replaceState(history.state, "", fragment);
        } catch {
          // A page in a frame of its own, as in marimo, has no address that could follow.
        }
      }, PAUSE_MS);
    },
  };
}
