/** A profile in a tab: a line while it is read, then the dashboard, or why there is none. */

import { Widget } from "@lumino/widgets";
import { type Dashboard, mount } from "../hosts/page.js";
import { h, reason } from "../lib/dom.js";
import { Line } from "../lib/live.js";
import type { Post } from "../lib/wire.js";
import { Refusal, type Server } from "./server.js";

/** How often a server that does not answer is tried again, in ms. */
const AGAIN_MS = 3000;

const SILENT = "The server does not answer.";

const button = (text: string, click: () => void): HTMLElement =>
  h("button", { class: "jp-mod-styled nbprof-button", on: { click } }, text);

export class ProfileView extends Widget {
  private ending = new AbortController();
  private board: Dashboard | null = null;
  private readonly bar = h("div.nbprof-bar", { hidden: true, role: "alert" });
  private readonly body = h("div.nbprof-body");

  /** `path` as the file browser has it. */
  constructor(
    private readonly server: Server,
    private where: string,
  ) {
    super();
    this.addClass("nbprof-document");
    this.node.append(this.bar, this.body);
    void this.load();
  }

  get path(): string {
    return this.where;
  }

  /** The file was moved: it is opened from where it is now. */
  set path(path: string) {
    if (path === this.where) return;
    this.where = path;
    void this.load();
  }

  /** Reads the profile, again if it was read before. */
  async load(): Promise<void> {
    this.end();
    const ending = new AbortController();
    const { signal } = ending;
    this.ending = ending;
    const began = performance.now();
    const text = h("span", `Opening ${this.where}`);
    const seconds = h("span.nbprof-seconds", { "aria-hidden": "true" });
    const stop = (): void => {
      ending.abort();
      this.say("status", "Stopped.", `${this.where} was not opened.`);
    };
    this.body.replaceChildren(h("div.nbprof-state", h("p", { role: "status" }, text), seconds, button("Cancel", stop)));
    const clock = setInterval(() => {
      seconds.textContent = `${Math.round((performance.now() - began) / 1000)} s`;
    }, 1000);
    try {
      const tell = (said: string): void => {
        text.textContent = said;
      };
      const { packed, version } = await this.server.open(this.where, tell, signal);
      if (signal.aborted) return;
      const line = new Line();
      const board = await mount(this.body, packed, { live: true, ask: line });
      if (signal.aborted) board.destroy();
      else {
        this.board = board;
        void this.connect(line, version, signal);
      }
    } catch (error) {
      if (!signal.aborted) this.say("alert", "This profile could not be opened.", explained(error));
    } finally {
      clearInterval(clock);
    }
  }

  /** Keeps the trace connected to the whole profile, as long as server and file are there. */
  private async connect(line: Line, version: string, signal: AbortSignal): Promise<void> {
    const way = this.server.post(this.where, version);
    const lost = (error: unknown): void => {
      if (signal.aborted || line.state !== "live") return;
      line.detach(error instanceof Refusal ? error.message : SILENT);
      void again(error);
    };
    const post: Post = async (request, gone) => {
      try {
        return await way(request, gone);
      } catch (error) {
        if (!gone.aborted && (!(error instanceof Refusal) || over(error))) lost(error);
        throw error instanceof Refusal || gone.aborted ? error : new Error(SILENT);
      }
    };
    let last: unknown = null;
    const greet: Post = async (request, gone) => {
      try {
        return await way(request, gone);
      } catch (error) {
        last = error;
        throw error;
      }
    };
    const again = async (error: unknown): Promise<void> => {
      last = error;
      while (!signal.aborted) {
        if (last instanceof Refusal && over(last)) {
          this.tell(last.message);
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, last === null ? 0 : AGAIN_MS));
        if (signal.aborted) return;
        last = null;
        if (await line.attach((request, gone) => (request.ask === "hello" ? greet : post)(request, gone))) return;
        // Python said no, and will say so again.
        if (last === null) return;
      }
    };
    signal.addEventListener("abort", () => line.detach("The tab was closed."), { once: true });
    await again(null);
  }

  /** A line above the dashboard: what it shows is not what is in the file any more. */
  private tell(text: string): void {
    this.bar.replaceChildren(
      h("span", text),
      button("Open again", () => void this.load()),
    );
    this.bar.hidden = false;
  }

  private say(role: "alert" | "status", title: string, text: string): void {
    this.body.replaceChildren(
      h(
        "div.nbprof-state",
        { role },
        h("h2", title),
        h("p", text),
        button("Open again", () => void this.load()),
      ),
    );
  }

  private end(): void {
    this.ending.abort();
    this.board?.destroy();
    this.board = null;
    this.bar.hidden = true;
    this.body.replaceChildren();
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.end();
    super.dispose();
  }
}

/** Whether no later answer will be another one: the file has changed, or is gone. */
const over = (error: Refusal): boolean => [403, 404, 409, 413].includes(error.status);

export function explained(error: unknown): string {
  if (error instanceof Refusal) return error.message;
  // What fetch says of a server that is not there differs by browser and tells nothing.
  if (error instanceof TypeError || (error as Error)?.name === "NetworkError") return `${SILENT} Is it still running?`;
  return reason(error);
}
