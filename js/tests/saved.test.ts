import { describe, expect, it } from "vitest";
import { MIME_TYPE, savedIn } from "../lib/saved.js";
import { HOSTILE } from "./hostile.js";

const file = (text: string): Blob => new Blob([text]);
const notebook = (cells: unknown): Blob => file(JSON.stringify({ cells, nbformat: 4 }));
const script = (data: string): string => `<script type="module">const data = "${data}";</script>`;
const cell = (outputs: unknown, count: number | null = null) => ({
  cell_type: "code",
  execution_count: count,
  outputs,
});

async function found(name: string, blob: Blob): Promise<[string, string][]> {
  const saved = await savedIn(name, blob);
  return saved.map(({ place, read }) => [place, new TextDecoder().decode(read())]);
}

/** As `to_text` of nbprof/display/codec.py writes b"data", b"more". */
const DATA = "WMOn+";
const MORE = "ZEtdA";

describe("the dashboards in a saved file", () => {
  it("are that of a report, and each one of a page with several", async () => {
    expect(await found("report.html", file(`<!doctype html>${script(DATA)}`))).toEqual([["", "data"]]);
    const page = `\uFEFF\n<html>${script(DATA)}${script(MORE)}${script(DATA)}`;
    expect(await found("page.html", file(page))).toEqual([
      ["", "data"],
      ["", "more"],
    ]);
  });
  it("are those of a notebook's outputs, by cell", async () => {
    const cells = [
      { cell_type: "markdown", source: [] },
      cell([{ output_type: "stream", text: "…" }, { data: { [MIME_TYPE]: { data: btoa("data") } } }], 7),
      cell([{ data: { [MIME_TYPE]: { v: 1 }, "text/html": ["<div>", script(DATA), "</div>"] } }]),
    ];
    const saved = await found("a.ipynb", notebook(cells));
    expect(saved).toEqual([
      ["[7]", "data"],
      ["cell 3", "data"],
    ]);
  });
  it("take no notice of what is no output", async () => {
    const odd = [null, 1, "x", {}, cell(null), cell([null, 1, {}, { data: null }, { data: { [MIME_TYPE]: null } }])];
    const good = cell([{ data: { [MIME_TYPE]: { data: btoa("data") } } }]);
    expect(await found("a.ipynb", notebook([...odd, good]))).toEqual([["cell 7", "data"]]);
  });
});

describe("a file without one", () => {
  it.each([
    ["trace.json", file('{"traceEvents": []}'), "trace.json is no saved report.", "nbprof.load(…)"],
    [
      "host.xplane.pb",
      new Blob([new Uint8Array([10, 5, 1, 2])]),
      "host.xplane.pb is no saved report.",
      "nbprof report",
    ],
    ["empty.html", file(""), "empty.html is empty.", "again"],
    ["page.html", file(`<!doctype html>${HOSTILE}`), "page.html is an HTML page without", "p.save(…)"],
    ["a.ipynb", notebook([cell([{ data: { "text/html": HOSTILE } }])]), "a.ipynb has no nbprof dashboard", "save it"],
    ["a.ipynb", file('{"cells": ['), "a.ipynb is damaged", "Save the notebook again"],
    ["a.ipynb", file('{"cells": 3}'), "a.ipynb has no nbprof dashboard", "save it"],
  ])("%s is named, with the remedy", async (name, blob, reason, remedy) => {
    const error = await savedIn(name, blob).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(Error);
    expect((error as Error).message).toContain(reason);
    expect((error as Error).message).toContain(remedy);
  });
});
