import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { stem, tintOf } from "../views/trace/colours.js";

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
