/**
 * The page of a site (nbprof.page): opens saved reports and notebooks with nbprof outputs in this browser.
 *
 * What is opened is foreign, and stays here: it is read as data (js/lib/saved.ts), drawn by this page's own code, and sent
 * nowhere.
 */

import { unpack } from "../lib/codec.js";
import { h, listen, reason } from "../lib/dom.js";
import type { Payload } from "../lib/payload.js";
import { readPlace } from "../lib/place.js";
import { savedIn } from "../lib/saved.js";
import type { Dashboard, mount } from "./page.js";

/** A file, and what it is called in messages. */
interface Source {
  name: string;
  file: Blob;
}

/** A dashboard in one of the files that are open. */
interface Entry {
  name: string;
  label: string;
  version: string;
  read(): Uint8Array;
}

/** Parameters of the address: reports of this site or of others, and which of their dashboards is shown, from 1. */
const REPORT = "report";
const OUTPUT = "output";

/** The answer of a server, or a sentence that there is none. */
async function answer(url: URL): Promise<{ status: number; file: Blob }> {
  try {
    const response = await fetch(url, { referrerPolicy: "no-referrer" });
    return { status: response.status, file: await response.blob() };
  } catch (error) {
    throw new Error(
      `${url.href} could not be fetched: its server does not answer, or does not let other sites read its files (CORS). Download the report, and choose it here.`,
      { cause: error },
    );
  }
}

async function fetched(address: string): Promise<Source> {
  let url: URL;
  try {
    url = new URL(address, location.href);
  } catch (error) {
    throw new Error(`${address} is no address. Check the link.`, { cause: error });
  }
  if (url.protocol === "file:")
    throw new Error(
      `${address} cannot be fetched, because this page was opened from a file and may not read others. Open the report itself, or choose it here.`,
    );
  if (!/^https?:$/.test(url.protocol)) throw new Error(`${address} is no address of a web server. Check the link.`);
  const { status, file } = await answer(url);
  if (status !== 200) throw new Error(`${url.href}: the server answered ${status}. Check the link.`);
  return { name: url.origin === location.origin ? (url.pathname.split("/").pop() ?? "") : url.href, file };
}

function labelOf({ meta, compare }: Payload): string {
  const pair = compare?.pairs[0];
  const runs = pair && [compare.runs[pair.before], compare.runs[pair.after]];
  return runs ? runs.map((run) => run?.label ?? "").join(" → ") : meta.label;
}

/** The dashboards in a file that can be read; `problems` gets a sentence for each that cannot. */
async function entriesIn({ name, file }: Source, problems: string[]): Promise<Entry[]> {
  const entries: Entry[] = [];
  const outputs = await savedIn(name, file).catch((error: unknown) => {
    if (!(error instanceof DOMException)) throw error;
    throw new Error(`${name} could not be read (${error.message}) If it is a folder, open the files in it.`);
  });
  for (const { place, read } of outputs) {
    const title = place ? `${name} ${place}` : name;
    try {
      const payload = await unpack(read());
      entries.push({ name: title, label: labelOf(payload), version: payload.meta.version, read });
    } catch (error) {
      problems.push(`${title} is damaged and was not opened. ${reason(error)}`);
    }
  }
  return entries;
}

function setAddress(change: (url: URL) => void): void {
  const url = new URL(location.href);
  change(url);
  try {
    history.replaceState(null, "", url);
  } catch {
    // A frame, or a page opened from a file, may have no address that could follow.
  }
}

function start(root: HTMLElement, draw: typeof mount): void {
  const version = root.dataset["nbprofSite"] ?? "";
  const input = h("input", { type: "file", multiple: true, hidden: true, accept: ".html,.htm,.ipynb" });
  const open = h("button", { on: { click: () => input.click() } }, "Open a report…");
  const select = h("select", { "aria-label": "Dashboard" });
  const choice = h("label", { hidden: true }, "Dashboard ", select);
  const status = h("p.status", { role: "status" });
  const alert = h("div.problems", { role: "alert" });
  const stage = h("div.stage");
  let entries: Entry[] = [];
  let board: Dashboard | null = null;
  /** Numbers of the latest opening and drawing: an earlier one that ends later is dropped. */
  let latest = 0;
  let drawing = 0;

  const say = (text: string, problems: readonly string[] = []): void => {
    status.textContent = text;
    alert.replaceChildren(...problems.map((problem) => h("p", problem)));
  };

  async function show(index: number, problems: readonly string[]): Promise<void> {
    const entry = entries[index] as Entry;
    const current = ++drawing;
    board?.destroy();
    board = null;
    try {
      const drawn = await draw(stage, entry.read, { live: false });
      if (current !== drawing) {
        drawn.destroy();
        return;
      }
      board = drawn;
    } catch (error) {
      const text = `${entry.name} could not be drawn (${reason(error)}). It was written by nbprof ${entry.version}, this page by ${version}: open the report itself.`;
      say("", [...problems, text]);
      return;
    }
    board.setLive(false);
    document.title = `${entry.label} · nbprof`;
    select.value = String(index);
    const other =
      entry.version === version
        ? ""
        : ` It was written by nbprof ${entry.version}, this page by ${version}: should a view be missing, open the report itself.`;
    say(`${entry.name}: ${entry.label}.${other}`, problems);
  }

  /** Opens files, or says why it cannot; what is open stays until then. */
  async function openAll(sources: readonly Promise<Source>[], chosen: boolean): Promise<void> {
    const current = ++latest;
    say("Reading…");
    const found: Entry[] = [];
    const problems: string[] = [];
    for (const source of sources) {
      try {
        found.push(...(await entriesIn(await source, problems)));
      } catch (error) {
        problems.push(reason(error));
      }
    }
    if (current !== latest) return;
    if (!found.length) {
      say("", problems);
      return;
    }
    // A link leads to a place in the first report that is opened, not in a later one.
    const later = entries.length > 0;
    if (chosen)
      setAddress((url) => {
        url.searchParams.delete(REPORT);
        if (!later) return;
        url.searchParams.delete(OUTPUT);
        url.hash = "";
      });
    entries = found;
    select.replaceChildren(
      ...entries.map(({ name, label }, index) => h("option", { value: index }, `${label} (${name})`)),
    );
    choice.hidden = entries.length < 2;
    document.body.dataset["nbprofOpen"] = "";
    const wanted = Number(new URLSearchParams(location.search).get(OUTPUT)) || 1;
    await show(Math.min(Math.max(1, Math.trunc(wanted)), entries.length) - 1, problems);
  }

  const openFiles = (files: FileList | null | undefined): void => {
    if (files?.length)
      void openAll(
        [...files].map((file) => Promise.resolve({ name: file.name, file })),
        true,
      );
  };
  listen(input, "change", () => {
    openFiles(input.files);
    // The same file may be chosen again.
    input.value = "";
  });
  listen(select, "change", () => {
    const index = Number(select.value);
    setAddress((url) => {
      url.hash = "";
      url.searchParams.set(OUTPUT, String(index + 1));
    });
    void show(index, []);
  });
  const dragged = (on: boolean): void => {
    root.classList.toggle("dragged", on);
  };
  listen(document, "dragover", (event) => {
    event.preventDefault();
    dragged(true);
  });
  listen(document, "dragleave", (event) => {
    if (!event.relatedTarget) dragged(false);
  });
  listen(document, "drop", (event) => {
    event.preventDefault();
    dragged(false);
    openFiles(event.dataTransfer?.files);
  });

  root.append(
    h(
      "div.drop",
      h("p", open, input, h("span", " or drop it on this page")),
      h(
        "p.hint",
        "HTML reports of nbprof, and notebooks with its outputs. They are read in this browser; nothing is uploaded. Recorded profiles are not decoded here: open those with nbprof.load(…), or write their reports with the command nbprof report.",
      ),
      choice,
      h("a.home", { href: "?" }, "Start page"),
    ),
    status,
    alert,
    stage,
  );
  const linked = new URLSearchParams(location.search).getAll(REPORT);
  if (linked.length) void openAll(linked.map(fetched), false);
  else if (readPlace(location.hash).tab) say("This link leads to a place in a report: open the report to go there.");
}

const site = document.querySelector<HTMLElement>("[data-nbprof-site]");
const module = (globalThis as { [key: symbol]: unknown })[Symbol.for("nbprof.module")] as { mount: typeof mount };
if (site) start(site, module.mount);
