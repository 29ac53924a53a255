/**
 * Opens the container that nbprof/display/codec.py packs.
 *
 * gzip of: length of the header (u4), header (JSON), zeros up to a multiple of 8, buffers. In the header an
 * array is {"$": [dtype, offset, length]}, with a fourth element "delta" when first differences are stored.
 */

import type { ColumnData, NumberArray, Payload } from "./payload.js";

const ARRAYS = {
  f8: Float64Array,
  f4: Float32Array,
  i4: Int32Array,
  u4: Uint32Array,
  u2: Uint16Array,
  u1: Uint8Array,
} as const;

type Reference = [dtype: keyof typeof ARRAYS, offset: number, length: number, coding?: "delta"];

async function gunzip(packed: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([packed as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"));
  try {
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch (error) {
    throw new Error("This profile is truncated or damaged: its gzip data cannot be decompressed.", { cause: error });
  }
}

function readArray(reference: Reference, container: Uint8Array, base: number): NumberArray {
  const [dtype, offset, length, coding] = reference;
  const Kind = ARRAYS[dtype];
  if (!Kind) throw new Error(`This profile has an array of the unknown type "${String(dtype)}".`);
  const start = container.byteOffset + base + offset;
  const end = base + offset + length * Kind.BYTES_PER_ELEMENT;
  if (offset < 0 || length < 0 || end > container.byteLength) {
    throw new Error(`This profile is truncated: byte ${end} of ${container.byteLength} is missing.`);
  }
  if (coding !== "delta") return new Kind(container.buffer as ArrayBuffer, start, length);
  const values = new Kind(container.buffer as ArrayBuffer, start, length).slice();
  for (let i = 1; i < length; i++) values[i] = (values[i] as number) + (values[i - 1] as number);
  return values;
}

function restore(value: unknown, read: (reference: Reference) => NumberArray): unknown {
  if (Array.isArray(value)) return value.map((item) => restore(item, read));
  if (value === null || typeof value !== "object") return value;
  const reference = (value as { $?: Reference }).$;
  if (Array.isArray(reference)) return read(reference);
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, restore(item, read)]));
}

/** The payload in a packed container (gzip or already inflated). */
export async function unpack(packed: Uint8Array | ArrayBuffer | DataView): Promise<Payload> {
  const bytes =
    packed instanceof ArrayBuffer
      ? new Uint8Array(packed)
      : new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength);
  if (bytes.byteLength < 4) throw new Error("This profile is empty.");
  // An inflated container may start anywhere in its buffer; the arrays need it at a multiple of 8.
  const container = bytes[0] === 0x1f && bytes[1] === 0x8b ? await gunzip(bytes) : bytes.slice();
  const size = new DataView(container.buffer as ArrayBuffer, container.byteOffset).getUint32(0, true);
  if (4 + size > container.byteLength) throw new Error("This profile is truncated: its header is incomplete.");
  let header: unknown;
  try {
    header = JSON.parse(new TextDecoder().decode(container.subarray(4, 4 + size)));
  } catch (error) {
    throw new Error("This is not an nbprof profile, or it is damaged: its header cannot be read.", { cause: error });
  }
  const base = Math.ceil((4 + size) / 8) * 8;
  return restore(header, (reference) => readArray(reference, container, base)) as Payload;
}

/** The bytes of a base64 text. */
export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Row `i` of a column as text; "" where it is missing. */
export function textAt(column: ColumnData | undefined, i: number): string {
  if (column === undefined) return "";
  if (Array.isArray(column)) return column[i] ?? "";
  if ("codes" in column) return column.values[column.codes[i] as number] ?? "";
  const value = column[i];
  return value === undefined || Number.isNaN(value) ? "" : String(value);
}

/** Row `i` of a column as a number; NaN where it is missing or text. */
export function numberAt(column: ColumnData | undefined, i: number): number {
  if (column === undefined || Array.isArray(column) || "codes" in column) return Number.NaN;
  return column[i] ?? Number.NaN;
}
