import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { linkOf, pageList, placeOf, slugOf, titleOf } from "../lab/help/pages.js";
import { NAMES } from "../lib/tabs.js";

const folder = new URL("../../docs/", import.meta.url);
const pages = Object.fromEntries(
  readdirSync(folder)
    .filter((name) => name.endsWith(".md"))
    .map((name) => [name.slice(0, -3), readFileSync(new URL(name, folder), "utf8")]),
);
const slugs = (page: string): string[] =>
  [...(pages[page] ?? "").matchAll(/^#{1,4} (.+)$/gm)].map(([, text]) => slugOf((text as string).replace(/[`*]/g, "")));

describe("the pages of Help", () => {
  it("have titles, the views first", () => {
    expect(pageList(pages)[0]).toBe("views");
    for (const name of pageList(pages)) expect(titleOf(pages[name] as string), name).not.toBe("");
  });

  it("have a section for each view", () => {
    for (const id of Object.keys(NAMES)) {
      const { page, section } = placeOf(id, pages);
      expect(slugs(page), id).toContain(section);
    }
  });

  it("lead to each other: no link of a page to another one is broken", () => {
    let count = 0;
    for (const [page, text] of Object.entries(pages)) {
      for (const [, href] of text.matchAll(/(?<!!)\[[^\]]*\]\(([^)\s]+)\)/g)) {
        const { topic, outside } = linkOf(href as string, page, pages);
        if (outside || !/^#|^[\w-]+\.md/.test(href as string)) continue;
        const [name = "", section] = topic.split("#");
        expect(name in pages, `${page}: ${href}`).toBe(true);
        if (section) expect(slugs(name), `${page}: ${href}`).toContain(section);
        count++;
      }
    }
    expect(count).toBeGreaterThan(5);
  });

  it("show nothing that would have to be fetched from outside", () => {
    for (const text of Object.values(pages)) expect(text).not.toMatch(/!\[[^\]]*\]\(https?:|<img|<iframe|<script/);
  });
});

it("a link to what is not among the pages is told from one to outside", () => {
  expect(linkOf("https://ui.perfetto.dev", "trace", pages)).toEqual({ topic: "", outside: true });
  expect(linkOf("../README.md", "trace", pages)).toEqual({ topic: "", outside: false });
  expect(linkOf("javascript:alert(1)", "trace", pages)).toEqual({ topic: "", outside: false });
  expect(linkOf("#keys", "trace", pages)).toEqual({ topic: "trace#keys", outside: false });
  expect(placeOf("nowhere", pages)).toEqual({ page: "views", section: "" });
});
