import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { inkOn, stem, tintOf } from "../lib/colours.js";

/** Python reads the same table: tests/timeline/test_colours.py. */
const table: { name: string; stem: string; tint: number }[] = JSON.parse(
  readFileSync(new URL("./data/tints.json", import.meta.url), "utf8"),
);

describe("tints", () => {
  it.each(table)("of $name are those of Python", ({ name, stem: short, tint }) => {
    expect(stem(name)).toBe(short);
    expect(tintOf(name)).toBe(tint);
  });
});

describe("text on a category", () => {
  /** The colours of base.css, light and dark: --c-input:#CF4A1A. */
  const css = readFileSync(new URL("../lib/base.css", import.meta.url), "utf8");
  const colours = [...css.matchAll(/--c-(\w+):\s*#(\w{6})/g)].map(([, name, hex]) => [name, hex] as [string, string]);
  const parts = (hex: string): number[] => [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  const luminance = (hex: string): number =>
    parts(hex)
      .map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4))
      .reduce((sum, part, i) => sum + part * ([0.2126, 0.7152, 0.0722][i] as number), 0);

  it("is there for all nine, light and dark, in each theme of categories", () => {
    expect(colours).toHaveLength(36);
  });

  it.each(colours)("%s #%s can be read", (_, hex) => {
    const ink = inkOn(`rgb(${parts(hex).join(", ")})`);
    const [darker, lighter] = [luminance(hex), ink === "#fff" ? 1 : 0].sort((a, b) => a - b) as [number, number];
    expect((lighter + 0.05) / (darker + 0.05)).toBeGreaterThanOrEqual(4.5);
  });
});
