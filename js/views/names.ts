/** Long names in cells. */

import type { Cut } from "../lib/cut.js";
import { MISSING } from "../lib/format.js";
import { nameNode } from "../lib/name.js";

/** Fills a cell with a name, cut as those of its list are; the whole is its title. */
export function fillName(cell: HTMLElement, full: string, shorten?: Cut): void {
  cell.title = full;
  cell.append(full ? nameNode(full, shorten) : MISSING);
}
