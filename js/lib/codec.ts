/**
 * Opens the container that nbprof/display/codec.py packs.
 *
 * gzip of: length of the header (u4), header (JSON), zeros up to a multiple of 8, buffers. In the header an
 * array is {"$": [dtype, offset, length]}, with a fourth element of the words "delta" when first differences are
 * stored, and "planes" when the first bytes of all elements come first, then the second.
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

type Reference = [dtype: keyof typeof ARRAYS, offset: number, length: number, coding?: string];

async function gunzip(packed: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([packed as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"));
  try {
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch (error) {
    throw new Error("This profile is truncated or damaged: its gzip data cannot be decompressed.", { cause: error });
  }
}

function readArray(reference: Reference, container: Uint8Array, base: number): NumberArray {
  const [dtype, offset, length, words = ""] = reference;
  const coding = words.split(" ");
  const Kind = ARRAYS[dtype];
  if (!Kind) throw new Error(`This profile has an array of the unknown type "${String(dtype)}".`);
  const start = container.byteOffset + base + offset;
  const end = base + offset + length * Kind.BYTES_PER_ELEMENT;
  if (offset < 0 || length < 0 || end > container.byteLength) {
    throw new Error(`This profile is truncated: byte ${end} of ${container.byteLength} is missing.`);
  }
  const values = coding.includes("planes")
    ? new Kind(joined(container.subarray(base + offset, end), Kind.BYTES_PER_ELEMENT).buffer)
    : new Kind(container.buffer as ArrayBuffer, start, length);
  if (!coding.includes("delta")) return values;
  return summed(values.slice());
}

/** The elements of an array whose bytes are stored apart. */
function joined(planes: Uint8Array, size: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(planes.length);
  const length = planes.length / size;
  for (let byte = 0; byte < size; byte++)
    for (let i = 0; i < length; i++) bytes[i * size + byte] = planes[byte * length + i] as number;
  return bytes;
}

function summed<T extends NumberArray>(values: T): T {
  const length = values.length;
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

/** The bytes of a base64 text, as outputs of earlier versions hold them. */
export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#:%,()*+-;.=>?@^_[{|}~";
const VALUES = new Map([...LETTERS].map((letter, value) => [letter.charCodeAt(0), value]));

/** The bytes of a text that `to_text` of nbprof/display/codec.py wrote: four for five letters. */
export function fromText(text: string): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(Math.ceil(text.length / 5) * 4));
  for (let i = 0; i < text.length; i += 5) {
    let value = 0;
    for (let j = i; j < i + 5; j++) value = value * 85 + (VALUES.get(text.charCodeAt(j)) ?? 84);
    bytes.setUint32((i / 5) * 4, value);
  }
  return new Uint8Array(bytes.buffer, 0, bytes.byteLength - ((5 - (text.length % 5)) % 5));
}

/** The data that the scripts of a page hold, each once, as text for `fromText`. */
export function textsInPage(html: string): string[] {
  return [...new Set([...html.matchAll(/\bconst data = "([^"]+)";/g)].map(([, text]) => text as string))];
}

/** The data that the script of an output holds; null where it has none. */
export function inPage(html: string): Uint8Array | null {
  const [text] = textsInPage(html);
  return text ? fromText(text) : null;
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
