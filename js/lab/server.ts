/** What is asked of nbprof's extension of Jupyter Server: to open a profile, and questions about one that is open. */

import { URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";
import type { Post } from "../lib/wire.js";
import { Lines } from "./lines.js";
import { settings } from "./settings.js";

const NO_EXTENSION =
  "nbprof is not installed on the server. Install it where Jupyter Server runs (pip install nbprof) and restart the server.";

/** An answer that says no; `status` is that of HTTP. */
export class Refusal extends Error {
  constructor(
    message: string,
    readonly status: number,
    /** Who recorded what is not exported yet; "" of anything else. */
    readonly raw: string = "",
    /** Of a folder: the run that could not be opened, and the others. */
    readonly found: Pick<Opened, "run" | "runs"> | null = null,
    /** The name in the request of what is wrong. */
    readonly field = "",
  ) {
    super(message);
  }
}

export interface Opened {
  /** The payload of the dashboard, packed. */
  packed: Uint8Array;
  /** Another one when the file has changed. */
  version: string;
  /** Of a folder: which of its runs this is, and all of them, newest first. */
  run: string;
  runs: FolderRun[];
}

export interface FolderRun {
  name: string;
  /** ISO, UTC. */
  modified: string;
  hosts: number;
}

/** How far opening is. */
export interface Progress {
  /** A sentence that says what is being done. */
  text: string;
  /** How much of that is done, 0 to 1; null where it is not known. */
  fraction: number | null;
  /** The first picture of a profile that is still being analysed, packed. */
  picture?: Uint8Array;
}

/** A line of the answer to `open`. */
type Said = Partial<Omit<Opened, "packed">> & {
  progress?: string;
  fraction?: number;
  early?: number;
  message?: string;
  bytes?: number;
  raw?: string;
  field?: string;
};

const foundIn = ({ run, runs }: Said): Refusal["found"] => (run !== undefined && runs ? { run, runs } : null);

async function refusal(response: Response): Promise<Refusal> {
  let message = "";
  let body: Said = {};
  try {
    body = (await response.json()) as Said;
    message = String(body.message ?? "");
  } catch {
    // No JSON: not from us.
  }
  // Jupyter says "Not Found" of a page that it does not have.
  if (response.status === 404 && (!message || message === "Not Found")) message = NO_EXTENSION;
  return new Refusal(
    message || `The server answered with status ${response.status}.`,
    response.status,
    body.raw,
    foundIn(body),
    body.field,
  );
}

/** Who reads the files of many hosts, where the settings name somebody. */
const reader = (): { scheduler?: string } => {
  const scheduler = settings.values.scheduler.trim();
  return scheduler ? { scheduler } : {};
};

export class Server {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  private async send(name: string, body: unknown, signal?: AbortSignal): Promise<Response> {
    const url = URLExt.join(this.settings.baseUrl, "nbprof/api", name);
    const request: RequestInit = { method: "POST", body: JSON.stringify(body), ...(signal && { signal }) };
    const response = await ServerConnection.makeRequest(url, request, this.settings);
    if (!response.ok) throw await refusal(response);
    return response;
  }

  /**
   * The dashboard of a file, or of a run of a folder: the newest, if none is named. `tell` is called as reading goes on.
   * Aborting ends the work.
   */
  async open(path: string, run: string, tell: (how: Progress) => void, signal: AbortSignal): Promise<Opened> {
    return this.opened("open", { path, ...(run && { run }), ...reader() }, tell, signal);
  }

  /** Two profiles side by side; the answer is of the second, `b`. */
  async compare(a: string, b: string, tell: (how: Progress) => void, signal: AbortSignal): Promise<Opened> {
    return this.opened("compare", { a, b, ...reader() }, tell, signal);
  }

  private async opened(
    name: string,
    request: unknown,
    tell: (how: Progress) => void,
    signal: AbortSignal,
  ): Promise<Opened> {
    const { body } = await this.send(name, request, signal);
    if (!body) throw new Error("The server sent an empty answer.");
    const lines = new Lines(body.getReader());
    for (;;) {
      const line = await lines.line();
      if (line === null) throw new Error("The connection to the server was lost before the profile was loaded.");
      const parsed = JSON.parse(line) as Said;
      if (parsed.message !== undefined) throw new Refusal(parsed.message, 422, parsed.raw, foundIn(parsed));
      const picture = parsed.early === undefined ? null : await lines.bytes(parsed.early);
      if (parsed.progress)
        tell({ text: parsed.progress, fraction: parsed.fraction ?? null, ...(picture && { picture }) });
      if (parsed.bytes === undefined) continue;
      const { version = "", run = "", runs = [] } = parsed;
      return { packed: await lines.bytes(parsed.bytes), version, run, runs };
    }
  }

  /** An answer that comes in lines of JSON objects, each told as it comes. Aborting ends the work. */
  async lines(
    name: string,
    body: unknown,
    each: (line: Record<string, unknown>) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const answer = await this.send(name, body, signal);
    if (!answer.body) throw new Error("The server sent an empty answer.");
    const lines = new Lines(answer.body.getReader());
    for (let line = await lines.line(); line !== null; line = await lines.line()) {
      if (line) each(JSON.parse(line) as Record<string, unknown>);
    }
  }

  /** An answer that is one JSON object. */
  async call(name: string, body: unknown): Promise<Record<string, unknown>> {
    return (await this.send(name, body)).json() as Promise<Record<string, unknown>>;
  }

  /** Where the browser gets something from, by itself; with the token that tells that this page asks for it. */
  address(name: string, query: Record<string, string>): string {
    const [, token] = /(?:^|;\s*)_xsrf=([^;]*)/.exec(document.cookie) ?? [];
    const all = token ? { ...query, _xsrf: token } : query;
    return URLExt.join(this.settings.baseUrl, "nbprof/api", name) + URLExt.objectToQueryString(all);
  }

  /** The way of questions about a profile that was opened. */
  post(path: string, run: string, version: string): Post {
    const what = { path, version, ...(run && { run }) };
    return async (request, signal) => (await this.send("ask", { ...what, ...reader(), request }, signal)).arrayBuffer();
  }

  /** Fails with a refusal where the profile is not the one any more that was opened; costs the server next to nothing. */
  async same(path: string, run: string, version: string): Promise<void> {
    await this.send("ask", { path, version, ...(run && { run }), request: null });
  }

  /** A profile is in sight: it will open faster. That it fails is no matter. */
  ready(): void {
    this.send("ready", {}).catch(() => undefined);
  }
}
