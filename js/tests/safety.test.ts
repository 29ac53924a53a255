import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

const root = join(import.meta.dirname, "..");
const sources = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((name) =>
  /^(lib|views|hosts|lab)\/.*\.ts$/.test(name),
);

describe("foreign text", () => {
  it.each(sources)("%s never becomes markup or code", (name) => {
    const text = readFileSync(join(root, name), "utf8").replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, "");
    expect(text).not.toMatch(
      /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setHTMLUnsafe/,
    );
  });
});
