/** Which colour a slice has: its category's, or one of eight muted tints by name. */

/** A name without template arguments, call arguments and the numbers that count copies of the same thing. */
export function stem(name: string): string {
  let depth = 0;
  let text = "";
  for (const c of name) {
    if (c === "<" || c === "(") depth++;
    else if ((c === ">" || c === ")") && depth) depth--;
    else if (!depth) text += c;
  }
  return text.replace(/[\s_:#./-]*\d+$/, "") || name;
}

/** 0…7, the same for every name with the same stem. */
export function tintOf(name: string): number {
  let hash = 0x811c9dc5;
  for (const c of stem(name)) {
    hash = Math.imul(hash ^ (c.codePointAt(0) as number), 0x01000193);
  }
  // The low bits of FNV follow the last letter; the high ones have seen all.
  return (hash >>> 17) & 7;
}

export interface Palette {
  /** In the order of CATEGORIES. */
  categories: string[];
  tints: readonly string[];
  /** Text on a category's colour, in the same order. */
  onCategory: readonly string[];
  onTint: string;
}

/** Fill of every name: 1…9 a category, or 100 + tint. */
export function fillsOf(names: readonly string[], category: Uint8Array): Uint8Array {
  return Uint8Array.from(names, (name, i) => category[i] || 100 + tintOf(name));
}

export const fillColour = (palette: Palette, fill: number): string =>
  (fill >= 100 ? palette.tints[fill - 100] : palette.categories[fill - 1]) ?? "";

export const textColour = (palette: Palette, fill: number): string =>
  (fill >= 100 ? palette.onTint : palette.onCategory[fill - 1]) ?? palette.onTint;

/** White or black: what can be read on a colour ("rgb(207, 74, 26)"), white where it has a contrast of 4.5 to 1. */
export function inkOn(colour: string): string {
  const [r = 0, g = 0, b = 0] = (colour.match(/[\d.]+/g) ?? []).map((part) => {
    const value = Number(part) / 255;
    return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  // Relative luminance of WCAG 2.
  return 1.05 / (0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05) >= 4.5 ? "#fff" : "#000";
}
