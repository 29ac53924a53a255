/** The colours of the theme, resolved for a canvas and kept until the theme changes. */

import { inkOn, type Palette } from "./colours.js";
import { listen } from "./dom.js";
import { CATEGORIES } from "./payload.js";
import { cssColor } from "./theme.js";

export interface Theme extends Palette {
  bg: string;
  fg: string;
  fg2: string;
  ink: string;
  accent: string;
  raise: string;
  line: string;
  grid: string;
  /** Bytes of a counter. */
  bytes: string;
  font: string;
}

/** The colour of a step-time category by its key. */
export const categoryColour = (theme: Theme, key: string): string =>
  theme.categories[CATEGORIES.findIndex((category) => category.key === key)] ?? theme.fg2;

/** The element that carries the theme. */
const frameOf = (el: Element): HTMLElement | null => el.closest<HTMLElement>("[data-theme]");

/** Calls `fn` whenever the theme of the dashboard, or the colours of its categories, change. */
export function onTheme(el: Element, signal: AbortSignal, fn: () => void): void {
  const observer = new MutationObserver(fn);
  listen(signal, "abort", () => observer.disconnect());
  // What is being made now is in the dashboard at the end of the task.
  queueMicrotask(() => {
    const frame = signal.aborted ? null : frameOf(el);
    if (frame) observer.observe(frame, { attributes: true, attributeFilter: ["data-theme", "data-palette"] });
  });
}

/** A function that answers with the present colours; asking again costs next to nothing. */
export function themeReader(el: Element): () => Theme {
  let theme: Theme | null = null;
  let known = "";
  return () => {
    const frame = frameOf(el) ?? el;
    const style = getComputedStyle(frame);
    const now = `${frame.getAttribute("data-theme")} ${frame.getAttribute("data-palette")} ${style.backgroundColor} ${style.color}`;
    if (theme && now === known) return theme;
    known = now;
    const colour = (name: string): string => cssColor(el, name);
    const bg = colour("--bg");
    const categories = CATEGORIES.map((category) => colour(`--c-${category.css}`));
    theme = {
      bg,
      fg: colour("--fg"),
      fg2: colour("--fg2"),
      ink: colour("--ink"),
      accent: colour("--accent"),
      raise: colour("--raise"),
      line: colour("--line"),
      grid: colour("--grid"),
      bytes: colour("--m-heap"),
      font: style.fontFamily,
      categories,
      // Muted ones, for names and for what memory is used for.
      tints: [..."01234567"].map((i) => colour(`--t${i}`)),
      onCategory: categories.map(inkOn),
      onTint: "#15191e",
    };
    return theme;
  };
}
