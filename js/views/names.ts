/** Long names in little room: cut at the left, because the tail tells them apart. */

import { h } from "../lib/dom.js";
import { kernelName, MISSING } from "../lib/format.js";

/** Where the part begins that is set in full colour: the last three segments of a path, the last one of an iterator. */
export function tailStart(full: string): number {
  const segments = full.split("/");
  if (segments.length > 3) return segments.slice(0, -3).join("/").length + 1;
  if (segments.length > 1) return 0;
  const colons = full.lastIndexOf("::");
  return colons > 0 ? colons + 2 : 0;
}

/** Fills a cell with a name; kernels without return type and arguments, and cut at the right. */
export function fillName(cell: HTMLElement, full: string): void {
  cell.title = full;
  const kernel = kernelName(full);
  if (kernel.template || kernel.name !== full) {
    cell.append(h("code", kernel.name, kernel.template && h("span", kernel.template)));
    return;
  }
  const at = tailStart(full);
  cell.classList.add("tail");
  cell.append(h("code", at > 0 && h("span", full.slice(0, at)), full.slice(at) || MISSING));
}
