/**
 * Numbers and names as a person reads them.
 *
 * Missing is "–", never 0; a nonzero value that rounds to zero is "< 0.1"; the minus is a true one.
 */

export type Maybe = number | null | undefined;

export const MISSING = "–";

/** From here on a person says seconds. */
const LONGEST_MS = 10_000;
/** Below it a time has no digit in ms that says anything: it is told in µs. */
const LEAST_MS = 0.01;

const formats = new Map<number, Intl.NumberFormat>();

function fixed(value: number, digits: number): string {
  let format = formats.get(digits);
  if (!format) {
    format = new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    formats.set(digits, format);
  }
  return format.format(value);
}

/** Whether the value was measured at all. */
export function known(value: Maybe): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

/** The bare number: "1,234.50". */
export function num(value: Maybe, digits = 0): string {
  if (!known(value)) return MISSING;
  if (value === 0) return fixed(0, digits);
  const size = Math.abs(value);
  const text = fixed(size, digits);
  if (digits > 0 && Number(size.toFixed(digits)) === 0) {
    const smallest = fixed(10 ** -digits, digits);
    return value > 0 ? `< ${smallest}` : `> −${smallest}`;
  }
  return value < 0 && /[1-9]/.test(text) ? `−${text}` : text;
}

/** A flag: 1 is "✓", 0 is "✗"; what is not known is neither. */
export const flag = (value: Maybe): string => (known(value) ? (value ? "✓" : "✗") : MISSING);

/** A change, always with its sign: "+0.38", "−2.60". */
export function signed(value: Maybe, digits = 0): string {
  const text = num(value, digits);
  return known(value) && value > 0 && /^\d/.test(text) ? `+${text}` : text;
}

/** A count: "17,053". */
export function count(value: Maybe): string {
  return num(value, 0);
}

/** The unit in which a person says a time in ms, and how many ms it has. */
export function timeUnit(value: Maybe): { unit: "ms" | "s"; size: number } {
  return known(value) && Math.abs(value) >= LONGEST_MS ? { unit: "s", size: 1000 } : { unit: "ms", size: 1 };
}

/** With its unit: "6.20 ms", from 10 s on "12.35 s". In a column whose head states the unit use `num(v, 2)`. */
export function ms(value: Maybe, digits = 2): string {
  if (!known(value)) return MISSING;
  const us = 1000 * value;
  if (value !== 0 && Math.abs(value) < LEAST_MS) return `${num(us, 1)} µs`;
  const { unit, size } = timeUnit(value);
  return `${num(value / size, size > 1 ? 2 : digits)} ${unit}`;
}

/** With its unit: "306.6 µs", from a ms on "1.25 ms". */
export function us(value: Maybe, digits = 1): string {
  if (!known(value)) return MISSING;
  return Math.abs(value) < 1000 ? `${num(value, digits)} µs` : ms(value / 1000);
}

/** The length of an interval on the timeline, in ms: "0.345 µs", "12.5 µs", "6.20 ms", "1,234 ms", "12.35 s". */
export function lengthText(value: number): string {
  if (value >= LONGEST_MS) return ms(value);
  if (value >= 1000) return ms(value, 0);
  return value < 1 ? us(1000 * value, value < 0.001 ? 3 : 1) : ms(value);
}

/** With its sign, no space before it: "61.0%". The value is 0…100. */
export function percent(value: Maybe, digits = 1): string {
  return known(value) ? `${num(value, digits)}%` : MISSING;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;
export type ByteUnit = (typeof UNITS)[number];

const byteDigits = (unit: ByteUnit): number => (unit === "B" ? 0 : unit === "KiB" ? 1 : 2);

/** The unit for a column, chart or card whose largest value is `max`. */
export function byteUnit(max: Maybe): ByteUnit {
  if (!known(max)) return "B";
  let unit = 0;
  for (let rest = Math.abs(max); rest >= 1024 && unit < UNITS.length - 1; rest /= 1024) unit++;
  return UNITS[unit] as ByteUnit;
}

/** The bare number of bytes in a given unit: "43.40". */
export function bytesIn(value: Maybe, unit: ByteUnit): string {
  return known(value) ? num(value / 1024 ** UNITS.indexOf(unit), byteDigits(unit)) : MISSING;
}

/** Bytes in their own unit (or the given one), number and unit apart. */
function bytes(value: Maybe, unit: ByteUnit = byteUnit(value)): { value: string; unit: string } {
  return known(value) ? { value: bytesIn(value, unit), unit } : { value: MISSING, unit: "" };
}

/** "43.40 MiB". */
export function bytesText(value: Maybe, unit?: ByteUnit): string {
  const parts = bytes(value, unit);
  return parts.unit ? `${parts.value} ${parts.unit}` : parts.value;
}

/** Where the part of a name begins that is set in full colour: the last three segments of a path, the last one of an iterator. */
export function tailStart(full: string): number {
  const segments = full.split("/");
  if (segments.length > 3) return segments.slice(0, -3).join("/").length + 1;
  if (segments.length > 1) return 0;
  const colons = full.lastIndexOf("::");
  return colons > 0 ? colons + 2 : 0;
}

/** Index of the bracket that closes the one at `open`, or -1. */
function closing(text: string, open: number): number {
  let depth = 0;
  for (let i = open; i < text.length; i++) {
    if (text[i] === "(") depth++;
    else if (text[i] === ")" && --depth === 0) return i;
  }
  return -1;
}

/** What may stand behind the arguments of a C++ signature, or behind an anonymous namespace. */
const AFTER_ARGUMENTS = /^\s*($|::|const\b|volatile\b|noexcept\b|\[|&|->|\()/;

/**
 * A kernel's name without return type, namespaces and argument list, and its template arguments:
 * "void ns::gemm<float, 4>(ns::Params)" gives "gemm" and "<float, 4>". A name that is no C++ signature stays as it is.
 */
export function kernelName(full: string): { name: string; template: string } {
  let angle = 0;
  let start = 0;
  let template = -1;
  let end = full.length;
  let signature = false;
  let space = -1;
  for (let i = 0; i < full.length; i++) {
    const c = full[i];
    if (c === "<") {
      if (angle++ === 0 && template < 0) template = i;
    } else if (c === ">" && full[i - 1] !== "-") {
      if (--angle < 0) return { name: full, template: "" };
    } else if (c === "(" || c === "{") {
      const close = c === "(" ? closing(full, i) : full.indexOf("}", i);
      if (close < 0) return { name: full, template: "" };
      const call = full.slice(start, i).endsWith("operator");
      // "module.py(12): forward" and "enumerate(DataLoader)#_Iter.__next__" are no signatures: what follows is the name.
      if (angle === 0 && c === "(" && !call && !AFTER_ARGUMENTS.test(full.slice(close + 1)))
        return { name: full, template: "" };
      if (angle === 0 && c === "(" && !call && full.slice(close + 1, close + 3) !== "::") {
        end = i;
        signature = true;
        break;
      }
      i = close;
    } else if (angle === 0 && c === ":" && full[i + 1] === ":") {
      start = i + 2;
      template = -1;
      i++;
    } else if (angle === 0 && c === " ") {
      space = i;
      start = i + 1;
      template = -1;
    }
  }
  if (angle !== 0) return { name: full, template: "" };
  // A space outside of a signature belongs to a plain label ("Memcpy HtoD").
  if (!signature && (space >= 0 || template < 0)) return { name: full, template: "" };
  const length = template >= 0 ? template : end;
  const name = full.slice(start, length);
  return name ? { name, template: full.slice(length, end) } : { name: full, template: "" };
}

/** A name as it is drawn: a kernel without return type, namespaces and arguments, everything else as it is. */
export function displayName(full: string): string {
  const { name, template } = kernelName(full);
  return name + template;
}
