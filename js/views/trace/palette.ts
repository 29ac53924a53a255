/** The colours of the theme, resolved for a canvas and kept until the theme changes. */

import { h, listen } from "../../lib/dom.js";
import { CATEGORIES } from "../../lib/payload.js";
import { cssColor } from "../../lib/theme.js";
import type { Palette } from "./colours.js";

export interface Theme extends Palette {
  bg: string;
  fg: string;
  fg2: string;
  ink: string;
  accent: string;
  raise: string;
  line: string;
  grid: string;
  font: string;
}

/** The element that carries the theme. */
export const frameOf = (el: Element): HTMLElement | null => el.closest<HTMLElement>("[data-theme]");

/** Calls `fn` whenever the theme of the dashboard changes. */
export function onTheme(el: Element, signal: AbortSignal, fn: () => void): void {
  const frame = frameOf(el);
  if (!frame) return;
  const observer = new MutationObserver(fn);
  observer.observe(frame, { attributes: true, attributeFilter: ["data-theme"] });
  listen(signal, "abort", () => observer.disconnect());
}

/** A function that answers with the present colours; asking again costs next to nothing. */
export function themeReader(el: Element): () => Theme {
  let theme: Theme | null = null;
  let known = "";
  return () => {
    const frame = frameOf(el) ?? el;
    const style = getComputedStyle(frame);
    const now = `${frame.getAttribute("data-theme")} ${style.backgroundColor} ${style.color}`;
    if (theme && now === known) return theme;
    known = now;
    const colour = (name: string): string => cssColor(el, name);
    const bg = colour("--bg");
    const dark = frame.getAttribute("data-theme") === "dark";
    theme = {
      bg,
      fg: colour("--fg"),
      fg2: colour("--fg2"),
      ink: colour("--ink"),
      accent: colour("--accent"),
      raise: colour("--raise"),
      line: colour("--line"),
      grid: colour("--grid"),
      font: style.fontFamily,
      categories: CATEGORIES.map((category) => colour(`--c-${category.css}`)),
      tints: tints(el),
      onCategory: dark ? "#0d1114" : "#fff",
      onTint: "#15191e",
    };
    return theme;
  };
}

function tints(el: Element): string[] {
  return [0, 1, 2, 3, 4, 5, 6, 7].map((i) => {
    const probe = h("i", { class: `k${i}`, style: { display: "none" } });
    el.append(probe);
    const colour = cssColor(probe, "--c");
    probe.remove();
    return colour;
  });
}
