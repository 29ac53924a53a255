/** The pages of Help and the links between them: which page, and which section of it. */

import { NAMES } from "../../lib/tabs.js";

export const START = "views";

/** What is asked for most, first; others follow by name. */
const ORDER = [START, "capture", "jupyterlab", "trace", "compare", "numbers"];

type Pages = Readonly<Record<string, string>>;

/** The name of a heading in links, as GitHub makes it. */
export const slugOf = (heading: string): string =>
  heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}_\- ]/gu, "")
    .replaceAll(" ", "-");

/** The heading of a page, without marks of Markdown. */
export const titleOf = (text: string): string => (/^# (.+)$/m.exec(text)?.[1] ?? "").replace(/[`*]/g, "").trim();

export function pageList(pages: Pages): string[] {
  const rank = (name: string): number => (ORDER.indexOf(name) + ORDER.length + 1) % (ORDER.length + 1);
  return Object.keys(pages).sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

/** Where a topic is: that of a view, a page, or "page#section". One that is nowhere is the first page. */
export function placeOf(topic: string, pages: Pages): { page: string; section: string } {
  const view = Object.values(NAMES).find(({ id }) => id === topic);
  if (view) return { page: START, section: slugOf(view.label) };
  const [page = "", section = ""] = topic.split("#");
  return page in pages ? { page, section } : { page: START, section: "" };
}

/** Where a link of a page leads: to a topic, outside, or (neither) to what is not here, as a file of the sources. */
export function linkOf(href: string, page: string, pages: Pages): { topic: string; outside: boolean } {
  if (/^https?:/i.test(href)) return { topic: "", outside: true };
  const [file = "", section = ""] = href.split("#");
  const name = file ? (/^(?:\.\/)?([\w-]+)\.md$/.exec(file)?.[1] ?? "") : page;
  const topic = name in pages ? [name, section].filter(Boolean).join("#") : "";
  return { topic, outside: false };
}
