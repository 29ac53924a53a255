/** Light or dark, by what is really painted behind the output. */

import { h, listen } from "./dom.js";

export type Theme = "light" | "dark";

/** Red, green, blue (0…1) and alpha of a computed colour. */
function channels(color: string): [number, number, number, number] | null {
  const numbers = color.match(/-?[\d.]+(?:e-?\d+)?%?/g)?.map((text) => Number.parseFloat(text)) ?? [];
  if (numbers.length < 3) return null;
  const scale = color.startsWith("rgb") ? 255 : 1;
  const [r, g, b] = numbers.slice(-(numbers.length >= 4 ? 4 : 3)).map((value) => value / scale);
  const alpha = numbers.length >= 4 ? (numbers[3] as number) : 1;
  return [r as number, g as number, b as number, alpha];
}

/** Relative luminance (WCAG) of a computed colour, or null when it is transparent. */
function luminance(color: string): number | null {
  const parts = channels(color);
  if (!parts || parts[3] < 0.5) return null;
  const [r, g, b] = parts.slice(0, 3).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)) as [
    number,
    number,
    number,
  ];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** The parent of a node, out of a shadow root into its host where need be. */
function above(element: Element): Element | null {
  const root = element.getRootNode();
  return element.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
}

/** What VS Code and Colab, which paint nothing behind an output, call the theme of its page. */
function namedTheme(): Theme | null {
  const { documentElement: page, body } = document;
  if (page.matches("[theme=dark]")) return "dark";
  if (body.matches(".vscode-dark,.vscode-high-contrast:not(.vscode-high-contrast-light)")) return "dark";
  return page.matches("[theme]") || body.matches("[class*=vscode-]") ? "light" : null;
}

/** The theme that suits what is behind `element`: dark below a luminance of 0.35. */
function themeOf(element: Element): Theme {
  for (let node: Element | null = element; node; node = above(node)) {
    const value = luminance(getComputedStyle(node).backgroundColor);
    if (value !== null) return value < 0.35 ? "dark" : "light";
  }
  const named = namedTheme();
  if (named) return named;
  // Nothing painted anywhere: the browser's own canvas follows the colour scheme of the page.
  const scheme = getComputedStyle(document.documentElement).colorScheme;
  return scheme.includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Calls `fn` with the theme now and at each change of the notebook's theme. */
export function watchTheme(element: Element, signal: AbortSignal, fn: (theme: Theme) => void): void {
  let last: Theme | null = null;
  const update = (): void => {
    const theme = themeOf(element);
    if (theme !== last) fn(theme);
    last = theme;
  };
  const observer = new MutationObserver(() => requestAnimationFrame(update));
  const attributes = [
    "class",
    "style",
    "data-jp-theme-name",
    "data-jp-theme-light",
    "data-theme",
    "theme",
    "data-vscode-theme-id",
  ];
  for (const node of [document.documentElement, document.body]) {
    observer.observe(node, { attributes: true, attributeFilter: attributes });
  }
  // JupyterLab loads a theme's stylesheet after it has named the theme.
  observer.observe(document.head, { childList: true });
  listen(matchMedia("(prefers-color-scheme: dark)"), "change", update, { signal });
  listen(signal, "abort", () => observer.disconnect());
  update();
}

/** The colour a custom property stands for, resolved so that a canvas can use it: cssColor(el, "--c-input"). */
export function cssColor(element: Element, name: string): string {
  const probe = h("span", { style: { color: `var(${name})`, display: "none" } });
  // Forced colours would answer with the system's text colour, whatever the property is.
  probe.style.setProperty("forced-color-adjust", "none");
  element.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}
