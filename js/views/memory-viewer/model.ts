/** What the memory viewer computes of a program's memory. No drawing. */

import { numberAt, textAt } from "../../lib/codec.js";
import { bytesText, count, known, num, percent } from "../../lib/format.js";
import type { CardContent } from "../../lib/parts.js";
import type { ProgramMemory, ProgramSpace } from "../../lib/payload.js";
import { lowest } from "../../lib/search.js";

export type Order = "program" | "size";

/** The last row at or before a program point; -1 before the first. */
export function rowAt(space: ProgramSpace, point: number): number {
  return lowest(space.rows, (i) => (space.position[i] as number) > point) - 1;
}

/** The row of the peak: of those with most memory the one at the peak's point; -1 without a timeline. */
export const peakRow = (space: ProgramSpace): number => (space.peak < 0 ? -1 : rowAt(space, space.peak));

/** Rows of the buffers in program order, as they are sent, or the largest first. */
export function ordered(space: ProgramSpace, order: Order): number[] {
  const rows = Array.from({ length: space.buffers.rows }, (_, i) => i);
  const size = (row: number): number => numberAt(space.buffers.data.size_bytes, row);
  return order === "size" ? rows.sort((a, b) => size(b) - size(a) || a - b) : rows;
}

/** The buffer that is told of at first: the largest that comes and goes, for its lifetime says most. */
export function first(space: ProgramSpace): number {
  const rows = ordered(space, "size");
  return rows.find((row) => isTemporary(space, row)) ?? rows[0] ?? -1;
}

/**
 * When a buffer has its memory, as a part of the axis of program points.
 *
 * Its first point is the event that takes the memory, which is there from the next point on; at its last point it is still there. What
 * lives throughout is there from the first point to the last.
 */
export function lifetime(space: ProgramSpace, row: number): [from: number, to: number] {
  const { data } = space.buffers;
  const all = Math.max(1, space.points);
  if (!isTemporary(space, row)) return [0, all];
  const [start, end] = [numberAt(data.start, row), numberAt(data.end, row)];
  return [Math.min(all, start + 1), Math.min(all, end + 1)];
}

export const isTemporary = (space: ProgramSpace, row: number): boolean =>
  textAt(space.buffers.data.category, row) === "Temporary";

/** What the card at a program point says. */
export function pointCard(space: ProgramSpace, row: number): CardContent {
  const [memory, values] = [space.allocated_bytes[row] as number, space.unpadded[row] as number];
  return {
    title: textAt(space.instruction, row) || "the end",
    total: bytesText(memory),
    rows: [
      { label: "Program point", value: `${count(space.position[row])} of ${count(space.points - 1)}` },
      { label: "Without padding", value: bytesText(values) },
      { label: "Padding", value: bytesText(memory - values), note: memory > 0 ? share(memory - values, memory) : "" },
    ],
  };
}

const share = (part: number, total: number): string => percent((100 * part) / total);

/** The same as a sentence, for those who cannot see the card. */
export function pointText(space: ProgramSpace, row: number): string {
  const where = textAt(space.instruction, row) || "the end";
  return `Program point ${count(space.position[row])}, ${where}: ${bytesText(space.allocated_bytes[row])}, without padding ${bytesText(space.unpadded[row])}.`;
}

/** What is known of a buffer, label and value. */
export function details(space: ProgramSpace, row: number): [label: string, value: string][] {
  const { data } = space.buffers;
  const text = (key: string): string => textAt(data[key], row);
  const [size, bare] = [numberAt(data.size_bytes, row), numberAt(data.unpadded_bytes, row)];
  const ratio = numberAt(data.padding_ratio, row);
  const [start, end] = [numberAt(data.start, row), numberAt(data.end, row)];
  const allocation = numberAt(data.allocation, row);
  const alive = isTemporary(space, row)
    ? `from point ${count(start + 1)} to ${count(Math.min(end, space.points - 1))} of ${count(space.points - 1)}`
    : "throughout";
  const rows: [string, string][] = [
    ["Buffer", text("buffer") || "(no name)"],
    ["Category", text("category")],
    ["Size", `${bytesText(size)}${space.peak_bytes > 0 ? `, ${share(size, space.peak_bytes)} of the peak` : ""}`],
    ["Without padding", bytesText(bare)],
    ["Expansion", known(ratio) ? `${num(ratio, 2)} ×${size > bare ? `, ${bytesText(size - bare)} more` : ""}` : ""],
    ["Shape", text("shape")],
    ["Opcode", text("opcode")],
    ["Framework op", text("framework_op")],
    ["Allocation", allocation >= 0 ? count(allocation) : ""],
    ["Alive", alive],
    ["Source", text("source")],
  ];
  return rows.filter(([, value]) => value !== "");
}

/** What a program is called in the list of them. */
export function label(module: ProgramMemory): string {
  const hosts = module.hosts > 1 ? `, ${count(module.hosts)} hosts` : module.host && `, on ${module.host}`;
  return `${module.name}, peak ${bytesText(module.peak_bytes)}${hosts}`;
}

export const spaceLabel = (space: ProgramSpace): string =>
  `${space.space === 0 ? "Main memory" : `Space ${space.space}`}, peak ${bytesText(space.peak_bytes)}`;
