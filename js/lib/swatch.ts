/** The square that names a colour. */

import { h } from "./dom.js";

/** A colour swatch; `css` is the class of a category. */
export function swatch(css: string, faint = false): HTMLElement {
  return h("i", { class: `sw ${css}`, style: faint ? { opacity: ".35" } : {} });
}
