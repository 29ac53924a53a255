/** What is asked of nbprof in the kernel: nbprof/notebook/profile_button.py. */

import { type Answer, type Askable, ask, literal } from "./ask.js";

const ROOM = "__import__('nbprof.notebook.profile_button', fromlist=['arm'])";

/** nbprof's own answer; or why there is none, in a sentence; null: the request went away with what was before it. */
export type Said = { ok: true; token: string; state: string } | { ok: false; error: string } | null;

export interface Request {
  text: string;
  cell: string;
  /** As typed behind `%%nbprof`. */
  options: string;
  /** Where the text is a part of the cell. */
  lines?: [number, number];
}

/** Has nbprof record the next cell with this text. */
export async function arm(kernel: Askable, request: Request): Promise<Said> {
  const { options, ...rest } = request;
  const json = JSON.stringify(options ? request : rest);
  return messageOf(await ask(kernel, `${ROOM}.arm(${literal(json)})`));
}

/** Whether nbprof is there, and its options make sense; nothing is armed. */
export async function ready(kernel: Askable, options: string): Promise<Said> {
  return messageOf(await ask(kernel, `${ROOM}.ready(${literal(options)})`));
}

/** Takes back what `arm` gave; `state` is "used" where the cell was recorded. */
export async function disarm(kernel: Askable, token: string): Promise<Said> {
  return messageOf(await ask(kernel, `${ROOM}.disarm(${literal(token)})`));
}

export function messageOf(answer: Answer): Said {
  if (answer.kind === "dropped") return null;
  if (answer.kind === "error") return { ok: false, error: missing(answer.name, answer.text) };
  try {
    const { ok, error, token, state } = JSON.parse(answer.kind === "answer" ? answer.value : "") as Record<
      string,
      unknown
    >;
    if (ok === true) return { ok, token: String(token ?? ""), state: String(state ?? "") };
    if (ok === false) return { ok, error: String(error) };
  } catch {
    // Not nbprof's.
  }
  return { ok: false, error: "This kernel does not respond like IPython. Put %%nbprof above the cell instead." };
}

function missing(name: string, text: string): string {
  if (/No module named ['"]nbprof['"]/.test(text)) {
    return "nbprof is not installed in this notebook's kernel. Run %pip install nbprof in a cell, then profile again.";
  }
  if (/No module named ['"]nbprof\.|has no attribute/.test(text)) {
    return "The nbprof in this notebook's kernel is too old. Run %pip install -U nbprof in a cell and restart the kernel.";
  }
  return `nbprof could not be used in this kernel. ${name}: ${text}`;
}
