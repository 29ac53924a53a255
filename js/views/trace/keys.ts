/** The keys of the trace. They work while focus is on it; every other key goes to the notebook. */

import { h } from "../../lib/dom.js";
import type { Direction } from "./source.js";

export const KEYS: readonly (readonly [keys: readonly string[], what: string])[] = [
  [["W", "S"], "zoom in, out"],
  [["A", "D"], "pan left, right"],
  [["←", "→"], "previous, next slice on the lane"],
  [["↑", "↓"], "parent, longest child"],
  [[",", "."], "previous, next slice of the name"],
  [["[", "]"], "follow an arrow back, forward"],
  [["Shift+↑", "Shift+↓"], "lane above, below"],
  [["Shift+←", "Shift+→"], "add the previous, next slice"],
  [["G", "Shift+G"], "next, previous longest idle gap"],
  [["F"], "fit selection"],
  [["0"], "fit all"],
  [["U", "Shift+U"], "view before, after"],
  [["M"], "mark the selection as range"],
  [["L"], "show or hide arrows"],
  [["P"], "pin or unpin the lane of the slice"],
  [["T"], "go to the table row of the slice"],
  [["/"], "search"],
  [["Enter", "Shift+Enter"], "next, previous hit (in the search)"],
  [["Esc"], "clear selection and range"],
  [["Shift+drag", "Shift+click"], "mark a range"],
  [["Tab", "←", "→"], "move an end of the range (so does dragging it)"],
  [["Ctrl+click"], "select several"],
  [["Ctrl+wheel", "Shift+wheel"], "zoom, pan"],
];

/** What the keys do. */
export interface Actions {
  zoom(factor: number): void;
  pan(share: number): void;
  move(direction: Direction, add: boolean): void;
  /** To the lane above (−1) or below (1). */
  lane(by: 1 | -1): void;
  follow(by: 1 | -1): void;
  gap(by: 1 | -1): void;
  fit(): void;
  fitAll(): void;
  /** The view before (−1) or after (1). */
  undo(by: 1 | -1): void;
  mark(): void;
  flows(): void;
  pin(): void;
  row(): void;
  search(): void;
  help(): void;
  /** Lets go of what is selected; false when nothing is. */
  clear(): boolean;
}

/** Does what the key stands for; false when it stands for nothing here. */
export function press(key: string, shift: boolean, to: Actions): boolean {
  const far = shift ? 3 : 1;
  const back = shift ? -1 : 1;
  switch (key.length === 1 ? key.toLowerCase() : key) {
    case "w":
      to.zoom(1.3 ** far);
      break;
    case "s":
      to.zoom(1.3 ** -far);
      break;
    case "a":
      to.pan(-0.12 * far);
      break;
    case "d":
      to.pan(0.12 * far);
      break;
    case "ArrowLeft":
      to.move("previous", shift);
      break;
    case "ArrowRight":
      to.move("next", shift);
      break;
    case "ArrowUp":
      if (shift) to.lane(-1);
      else to.move("parent", false);
      break;
    case "ArrowDown":
      if (shift) to.lane(1);
      else to.move("child", false);
      break;
    case ",":
      to.move("previous_same", false);
      break;
    case ".":
      to.move("next_same", false);
      break;
    case "[":
      to.follow(-1);
      break;
    case "]":
      to.follow(1);
      break;
    case "g":
      to.gap(back);
      break;
    case "f":
      to.fit();
      break;
    case "0":
      to.fitAll();
      break;
    case "u":
      to.undo(shift ? 1 : -1);
      break;
    case "m":
      to.mark();
      break;
    case "l":
      to.flows();
      break;
    case "p":
      to.pin();
      break;
    case "t":
      to.row();
      break;
    case "/":
      to.search();
      break;
    case "?":
      to.help();
      break;
    case "Escape":
      // With nothing left to let go of, Esc belongs to the dashboard.
      return to.clear();
    default:
      return false;
  }
  return true;
}

/** The list of keys, as rows. */
export const keyRows = (): Node[] =>
  KEYS.map(([keys, what]) => h("span", ...keys.flatMap((key) => [h("kbd", key), " "]), what));

/** The few that stand beside the toolbar. */
export const fewKeys = (): Node[] => {
  const few: [string[], string][] = [
    [["W", "S"], "zoom"],
    [["A", "D"], "pan"],
    [["F"], "fit selection"],
    [["M"], "mark range"],
  ];
  return few.flatMap(([keys, what]) => [...keys.map((key) => h("kbd", key)), h("span", what)]);
};
