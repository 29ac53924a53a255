/** The keys of the trace. They work while focus is on it; every other key goes to the notebook. */

import type { Model } from "./model.js";

export const KEYS: readonly (readonly [keys: readonly string[], what: string])[] = [
  [["W", "S"], "zoom in, out"],
  [["A", "D"], "pan left, right"],
  [["←", "→"], "previous, next slice on the lane"],
  [["↑", "↓"], "parent, longest child"],
  [["F"], "fit selection"],
  [["0"], "fit all"],
  [["M"], "mark the slice as range"],
  [["/"], "search"],
  [["Enter", "Shift+Enter"], "next, previous hit (in the search)"],
  [["Esc"], "clear selection"],
  [["Shift+drag"], "mark a range"],
  [["Ctrl+wheel", "Shift+wheel"], "zoom, pan"],
];

export interface KeyTarget {
  model: Model;
  /** Where W and S zoom around: the share of the width under the pointer, or the middle. */
  share(): number;
  focusSearch(): void;
  toggleHelp(): void;
}

/** Does what the key stands for; false when it stands for nothing here. */
export function press(key: string, shift: boolean, target: KeyTarget): boolean {
  const { model } = target;
  const far = shift ? 3 : 1;
  switch (key.length === 1 ? key.toLowerCase() : key) {
    case "w":
      model.zoomBy(1.3 ** far, target.share());
      return true;
    case "s":
      model.zoomBy(1.3 ** -far, target.share());
      return true;
    case "a":
      model.panBy(-0.12 * far);
      return true;
    case "d":
      model.panBy(0.12 * far);
      return true;
    case "ArrowLeft":
      model.move("previous");
      return true;
    case "ArrowRight":
      model.move("next");
      return true;
    case "ArrowUp":
      model.move("parent");
      return true;
    case "ArrowDown":
      model.move("child");
      return true;
    case "f":
      model.fit();
      return true;
    case "0":
      model.fitAll();
      return true;
    case "m":
      model.markSelected();
      return true;
    case "/":
      target.focusSearch();
      return true;
    case "?":
      target.toggleHelp();
      return true;
    case "Escape":
      // With nothing left to let go of, Esc belongs to the dashboard.
      if (!model.selected && !model.range) return false;
      model.select(null);
      model.setRange(null);
      return true;
    default:
      return false;
  }
}
