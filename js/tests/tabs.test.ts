import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { NAMES } from "../lib/tabs.js";
import { unknownTabs } from "../views/frame.js";
import { sample } from "./sample.js";

describe("each tab", () => {
  const docs = readFileSync(new URL("../../docs/views.md", import.meta.url), "utf8");

  it.each(Object.values(NAMES))("$id has a view, and a section of the docs", ({ id, label, about }) => {
    expect(existsSync(new URL(`../views/${id.replaceAll("_", "-")}/view.ts`, import.meta.url))).toBe(true);
    expect(docs).toContain(`\n## ${label}\n\n${about}\n`);
    expect(about.length).toBeLessThan(340);
  });

  it("is in the order in which a dashboard has them", () => {
    const ids = sample().meta.tabs.map(({ id }) => id);
    expect(ids).toEqual(Object.keys(NAMES).filter((id) => ids.includes(id as (typeof ids)[number])));
  });

  it("that the page does not know is named, and what to do", () => {
    const payload = sample();
    expect(unknownTabs(payload, NAMES)).toBeNull();
    payload.meta.tabs.push({ id: "energy" as "overview", label: "Energy", count: null, flag: null });
    expect(unknownTabs(payload, NAMES)?.text).toContain("It cannot draw Energy. Reload the page");
  });
});
