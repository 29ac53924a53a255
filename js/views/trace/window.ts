/** The part of the time axis on screen, in ns, and where its ticks are written. */

export interface Span {
  from: number;
  to: number;
}

/**
 * The shortest window of a profile: 1 ns (TPUs are recorded in ps), or where a number cannot tell its pixels apart any
 * more: a window late in a long profile is at least 4096 of the steps that float64 has there (38 ns in a day).
 */
export const shortest = (end: number): number => Math.max(1, end * 2 ** -40);

/** A window of at least the shortest length inside 0…end; its length is kept where possible. */
export function clamp(span: Span, end: number): Span {
  const least = shortest(end);
  const total = Math.max(end, least);
  const length = Math.min(total, Math.max(least, span.to - span.from));
  // A span that had to be lengthened grows around its middle.
  const grown = span.to - span.from < length ? (span.from + span.to - length) / 2 : span.from;
  const from = Math.min(Math.max(0, grown), total - length);
  return { from, to: from + length };
}

/** Zooms by a factor (over 1: closer); the time at `share` of the width stays where it is. */
export function zoom(span: Span, factor: number, share: number, end: number): Span {
  const least = shortest(end);
  const length = Math.min(Math.max(end, least), Math.max(least, (span.to - span.from) / factor));
  const fixed = span.from + (span.to - span.from) * share;
  return clamp({ from: fixed - length * share, to: fixed + length * (1 - share) }, end);
}

/** Moves by a share of the length shown. */
export function pan(span: Span, share: number, end: number): Span {
  const length = span.to - span.from;
  return clamp({ from: span.from + length * share, to: span.to + length * share }, end);
}

/** A window around a slice or range with room on both sides: the range fills `fill` of it. */
export function around(range: Span, end: number, fill = 0.8): Span {
  const length = Math.max(range.to - range.from, shortest(end)) / fill;
  const middle = (range.from + range.to) / 2;
  return clamp({ from: middle - length / 2, to: middle + length / 2 }, end);
}

/** The window in which from…to is seen: unchanged when it is, else moved, and zoomed out when it is too long. */
export function show(span: Span, range: Span, end: number): Span {
  const length = span.to - span.from;
  if (range.to - range.from > length) return around(range, end);
  if (range.from >= span.from && range.to <= span.to) return span;
  const middle = (range.from + range.to) / 2;
  return clamp({ from: middle - length / 2, to: middle + length / 2 }, end);
}

/** Ruler ticks in ms, 1, 2 or 5 × 10ⁿ apart with at least `gap` pixels between, and the decimals that tell them apart. */
export function rulerTicks(
  from_ms: number,
  to_ms: number,
  pixels: number,
  gap: number,
): { at: number[]; digits: number } {
  const least = ((to_ms - from_ms) * gap) / Math.max(1, pixels);
  if (!(least > 0)) return { at: [], digits: 0 };
  const power = 10 ** Math.floor(Math.log10(least));
  const step = ([1, 2, 5, 10].find((nice) => nice * power >= least * (1 - 1e-9)) ?? 10) * power;
  const positions: number[] = [];
  // + 0: no tick at −0.
  for (let i = Math.ceil(from_ms / step - 1e-9); i * step <= to_ms; i++) positions.push(i * step + 0);
  return { at: positions, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}
