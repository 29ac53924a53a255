/** What a link from another view asks the trace to search for. */

import { numberAt, textAt } from "../../lib/codec.js";
import type { Payload } from "../../lib/payload.js";

/** Names in the trace are cut here (nbprof/tools/trace/payload.py). */
export const MOST_NAME = 600;

/**
 * Texts to search for, best first: the name itself; for an op its kernels, most time first, then how
 * its slices are called: by its type or the last part of its name.
 */
export function candidates(payload: Pick<Payload, "ops" | "kernels">, name: string): string[] {
  const list = [name.slice(0, MOST_NAME)];
  const kernels = payload.kernels.table;
  const pairs: [number, string][] = [];
  for (let row = 0; row < kernels.rows; row++) {
    if (textAt(kernels.data.op, row) !== name) continue;
    pairs.push([numberAt(kernels.data.total_us, row) || 0, textAt(kernels.data.kernel, row)]);
  }
  pairs.sort((a, b) => b[0] - a[0]);
  list.push(...pairs.map(([, kernel]) => kernel.slice(0, MOST_NAME)));
  const last = name.split(/\/|::/).at(-1) ?? "";
  if (name.startsWith("Iterator::")) list.push(`Iterator::${last.replace(/\[\d+\]$/, "")}`);
  const ops = payload.ops.table;
  for (let row = 0; row < ops.rows; row++) {
    if (textAt(ops.data.op, row) === name) list.push(textAt(ops.data.type, row));
  }
  // A bare number ("IteratorGetNext/_1") says nothing: then what stands before it.
  const parts = name.split("/").filter((part) => !/^_?\d*$/.test(part));
  list.push(parts.at(-1) ?? "");
  return [...new Set(list.filter(Boolean))];
}
