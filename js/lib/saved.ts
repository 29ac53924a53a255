/**
 * Dashboards in the files that nbprof and Jupyter save: HTML reports, and notebooks with outputs of nbprof.
 *
 * The files are foreign. Of their HTML nothing but the letters of the data is read, and no script of theirs runs.
 */

import { fromBase64, fromText, textsInPage } from "./codec.js";

/** Of the outputs in a notebook. */
export const MIME_TYPE = "application/vnd.nbprof.v1+json";

export interface Saved {
  /** The cell of a notebook: "[3]" as its prompt, or "cell 5" by position; "" where the file is a page. */
  place: string;
  /** The packed payload. */
  read(): Uint8Array;
}

/** How a file begins, which says what it is. */
const HEAD = 4096;

interface Output {
  data?: Record<string, unknown>;
}
interface Cell {
  execution_count?: unknown;
  outputs?: Output[];
}

/** What should be a list of objects; others become empty ones. */
const list = <T extends object>(value: unknown): Partial<T>[] =>
  Array.isArray(value) ? value.map((item) => (typeof item === "object" && item) || {}) : [];

const textOf = (value: unknown): string => (Array.isArray(value) ? value.join("") : String(value ?? ""));

const placeOf = ({ execution_count: count }: Cell, index: number): string =>
  typeof count === "number" ? `[${count}]` : `cell ${index + 1}`;

function inOutput({ data }: Output, place: string): Saved[] {
  const base64 = (data?.[MIME_TYPE] as { data?: unknown } | null | undefined)?.data;
  if (typeof base64 === "string") return [{ place, read: () => fromBase64(base64) }];
  return inPage(textOf(data?.["text/html"]), place);
}

const inPage = (html: string, place: string): Saved[] =>
  textsInPage(html).map((text) => ({ place, read: () => fromText(text) }));

function inNotebook(name: string, text: string): Saved[] {
  let cells: unknown;
  try {
    ({ cells } = JSON.parse(text) as { cells?: unknown });
  } catch (error) {
    throw new Error(`${name} is damaged: it is not the JSON of a notebook. Save the notebook again.`, { cause: error });
  }
  const found = list<Cell>(cells).flatMap((cell, index) =>
    list<Output>(cell.outputs).flatMap((output) => inOutput(output, placeOf(cell, index))),
  );
  if (!found.length)
    throw new Error(
      `${name} has no nbprof dashboard: none of its outputs holds the data of one. Run its profiled cells with nbprof and save it.`,
    );
  return found;
}

/** The dashboards in a file; where there are none, the error says what the file is and what opens it. */
export async function savedIn(name: string, file: Blob): Promise<Saved[]> {
  if (!file.size) throw new Error(`${name} is empty. Save the report again.`);
  const start = (await file.slice(0, HEAD).text()).replace(/^\uFEFF/, "").trimStart();
  if (start.startsWith("<")) {
    const found = inPage(await file.text(), "");
    if (found.length) return found;
    throw new Error(
      `${name} is an HTML page without the data of an nbprof report. Open the file that \`nbprof report\` or p.save(…) wrote, unchanged.`,
    );
  }
  if (start.startsWith("{") && (/\.ipynb$/i.test(name) || /"(cells|nbformat)"/.test(start)))
    return inNotebook(name, await file.text());
  throw new Error(
    `${name} is no saved report. This page opens HTML reports of nbprof and notebooks with its outputs; recorded profiles are not decoded here. Open one with nbprof.load(…), or write its report with \`nbprof report\`, and open that.`,
  );
}
