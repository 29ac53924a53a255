/** A profile in a tab: a line while it is read, then the dashboard, or why there is none. */

import { Widget } from "@lumino/widgets";
import { type Dashboard, type DashboardOptions, mount } from "../hosts/page.js";
import { h, reason } from "../lib/dom.js";
import { Line } from "../lib/live.js";
import type { Payload, TabId } from "../lib/payload.js";
import type { Post } from "../lib/wire.js";
import { goneWith, movedPath, movedRun } from "./moves.js";
import { type FolderRun, type Opened, type Progress, Refusal, type Server } from "./server.js";
import { button, Waiting } from "./waiting.js";

/** How often a server that does not answer is tried again, in ms. */
const AGAIN_MS = 3000;

const SILENT = "The server does not answer.";

export interface ProfileOptions {
  /** The run of a folder; the newest when left out. */
  run?: string;
  /** The tab that is shown first; that of the profile when left out. */
  tab?: string;
  /** Opens this file as something else. */
  openOther?: () => void;
  /** When what is on screen is what the person has open. Until then nothing is read. */
  ready?: Promise<unknown>;
  /** Called when path, run or tab are others than before. */
  onChange?: () => void;
}

export class ProfileView extends Widget {
  private ending = new AbortController();
  private board: Dashboard | null = null;
  /** What is on screen: the whole, or the first picture of it. */
  private drawn: Dashboard | null = null;
  private begun = false;
  private version = "";
  private chosen: string;
  private shown: string;
  /** The run of a folder that is shown, as the server calls it. */
  private opened = "";
  private runs: FolderRun[] = [];
  private readonly bar = h("div.nbprof-bar", { hidden: true, role: "alert" });
  private readonly choice = h("div.nbprof-choice", { hidden: true });
  private readonly body = h("div.nbprof-body");

  /** `path` as the file browser has it. */
  constructor(
    protected readonly server: Server,
    private where: string,
    private readonly options: ProfileOptions = {},
  ) {
    super();
    this.chosen = options.run ?? "";
    this.shown = options.tab ?? "";
    this.addClass("nbprof-document");
    this.node.tabIndex = -1;
    this.node.append(this.choice, this.bar, this.body);
    // JupyterLab focuses the document that it opens, and so does a click beside all controls; from there keys go to the dashboard.
    this.node.addEventListener("keydown", (event) => {
      if (event.target === this.node) this.drawn?.key(event);
    });
    // The window is looked at again: the file may have changed meanwhile.
    const look = (): void => void this.check();
    window.addEventListener("focus", look);
    this.disposed.connect(() => window.removeEventListener("focus", look));
  }

  get path(): string {
    return this.where;
  }

  /** The file was moved: it is opened from where it is now. */
  set path(path: string) {
    if (path === this.where) return;
    this.where = path;
    this.again();
  }

  /** Which of the runs of a folder; empty of a file, of a folder with one run, and before the newest is known. */
  get run(): string {
    return this.chosen;
  }

  /** The tab of the dashboard that the person has chosen; empty while that is none. */
  get tab(): string {
    return this.shown;
  }

  /** The one to show when the profile is here. */
  set tab(tab: string) {
    this.shown = tab;
  }

  /** Says that what its tab is called by may be another. */
  protected changed(): void {
    this.options.onChange?.();
  }

  /** What is shown is read again, as far as it was read. */
  protected again(): void {
    if (this.begun) void this.load();
    this.options.onChange?.();
  }

  /** Shows another run of the folder, or the newest if none is named. */
  showRun(run: string): void {
    if (run && run === this.chosen) return;
    this.chosen = run;
    this.again();
  }

  protected override onAfterAttach(): void {
    void this.begin();
  }

  protected override onAfterShow(): void {
    void this.begin();
    void this.check();
  }

  /** Of tabs that come back after a reload, only those that are looked at read their files. */
  private async begin(): Promise<void> {
    await this.options.ready;
    if (this.begun || this.isDisposed || !this.isVisible) return;
    this.begun = true;
    void this.load();
  }

  /** The payload is here: it knows what its runs are called. */
  protected named(_payload: Payload): void {}

  /** What is read, in the words of a line that says so. */
  protected get what(): string {
    return this.where;
  }

  /** What is shown. */
  protected read(tell: (how: Progress) => void, signal: AbortSignal): Promise<Opened> {
    return this.server.open(this.where, this.chosen, tell, signal);
  }

  /** Reads the profile, again if it was read before. */
  async load(): Promise<void> {
    const hadFocus = this.body.contains(document.activeElement);
    this.end();
    const ending = new AbortController();
    const { signal } = ending;
    this.ending = ending;
    const waiting = new Waiting(this.what, () => {
      ending.abort();
      this.say("status", "Stopped.", `${this.what} was not opened.`);
    });
    this.body.replaceChildren(waiting.node);
    // What had it is gone; a key would go nowhere.
    if (hadFocus) waiting.cancel.focus();
    let early: Promise<Dashboard | null> = Promise.resolve(null);
    const draw = async (packed: Uint8Array, options: DashboardOptions): Promise<Dashboard | null> => {
      const board = await mount(this.body, packed, {
        live: true,
        onPayload: (payload) => this.named(payload),
        ...(this.shown && { tab: this.shown as TabId }),
        onTab: (tab) => {
          this.shown = tab;
          this.options.onChange?.();
        },
        ...options,
      });
      if (signal.aborted) {
        board.destroy();
        return null;
      }
      this.drawn = board;
      if (hadFocus && document.activeElement === document.body) this.node.focus();
      return board;
    };
    const tell = (how: Progress): void => {
      waiting.tell(how);
      // What is wrong with it, the whole will say.
      if (how.picture) early = draw(how.picture, {}).catch(() => null);
    };
    try {
      const { packed, version, run, runs } = await this.read(tell, signal);
      const before = await early;
      if (signal.aborted) {
        before?.destroy();
        return;
      }
      const line = new Line();
      // Where a reader has come to in the first picture, the whole goes on.
      const board = await draw(packed, { ask: line, ...(before && { state: before.state() }) });
      before?.destroy();
      if (board) {
        this.board = board;
        this.version = version;
        this.choose(run, runs);
        void this.connect(line, version, signal);
      }
    } catch (error) {
      (await early)?.destroy();
      if (!signal.aborted) this.failed(error);
    } finally {
      waiting.end();
    }
  }

  /** The runs of a folder, of which one is shown. */
  private choose(run: string, runs: FolderRun[]): void {
    const chosen = runs.length > 1 ? run : "";
    const another = chosen !== this.chosen;
    const same = JSON.stringify(runs) === JSON.stringify(this.runs);
    this.runs = runs;
    this.chosen = chosen;
    this.opened = run;
    if (another) this.options.onChange?.();
    this.choice.hidden = this.runs.length < 2;
    const shown = this.choice.querySelector("select");
    // As it is, it keeps the focus.
    if (same && shown) shown.value = run;
    if (this.choice.hidden || (same && shown)) return;
    const options = this.runs.map(({ name, modified, hosts }, i) => {
      const facts = [new Date(modified).toLocaleString(), hosts > 1 && `${hosts} files`, i === 0 && "newest"];
      const text = `${name} (${facts.filter(Boolean).join(", ")})`;
      return h("option", { value: name, selected: name === this.chosen }, text);
    });
    const select = h("select.jp-mod-styled", { "aria-label": "Run" }, ...options) as HTMLSelectElement;
    select.addEventListener("change", () => this.showRun(select.value));
    this.choice.replaceChildren(h("label", "Run ", select), h("span", `${this.runs.length} runs in ${this.where}`));
  }

  /** Asks whether the file is still the one that is shown. */
  private async check(): Promise<void> {
    if (!this.board || !this.isVisible || !this.bar.hidden) return;
    const { version, ending } = this;
    try {
      await this.server.same(this.where, this.opened, version);
    } catch (error) {
      if (!ending.signal.aborted && error instanceof Refusal && over(error)) this.tell(error.message);
    }
  }

  /** Keeps the trace connected to the whole profile, as long as server and file are there. */
  private async connect(line: Line, version: string, signal: AbortSignal): Promise<void> {
    const way = this.server.post(this.where, this.opened, version);
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

  /** Something was moved: what is shown is followed to where it is now. */
  moved(from: string, to: string): void {
    const run = movedRun(this.where, this.opened, from, to);
    this.path = movedPath(this.where, from, to);
    if (run === this.opened) return;
    if (this.chosen) this.showRun(run);
    else this.again();
  }

  /** Something was deleted: says so, where it is what is shown. */
  deleted(path: string): void {
    if (goneWith(this.where, path)) this.gone(this.where);
    // It may be the run of this folder that is shown.
    else if (goneWith(path, this.where)) void this.check();
  }

  /** What was deleted stays as long as it is looked at. */
  protected gone(path: string): void {
    if (this.board) this.tell(`${path}: it was deleted. This tab shows the data read earlier.`);
  }

  /** A line above the dashboard: what it shows is not what is in the file any more. */
  private tell(text: string): void {
    this.bar.replaceChildren(
      h("span", text),
      button("Open again", () => void this.load()),
    );
    this.bar.hidden = false;
  }

  private failed(error: unknown): void {
    if (error instanceof Refusal && error.found) this.choose(error.found.run, error.found.runs);
    const raw = error instanceof Refusal ? error.raw : "";
    if (raw) this.say("status", `A recording of ${raw}, not exported yet`, explained(error));
    else this.say("alert", "This profile could not be opened.", explained(error));
  }

  private say(role: "alert" | "status", title: string, text: string): void {
    const { openOther } = this.options;
    const other = role === "alert" && openOther && button("Open with another editor", openOther);
    const buttons = h(
      "div.nbprof-buttons",
      button("Open again", () => void this.load()),
      other || false,
    );
    this.body.replaceChildren(h("div.nbprof-state", { role }, h("h2", title), h("p", text), buttons));
  }

  private end(): void {
    this.ending.abort();
    this.board?.destroy();
    this.board = null;
    this.drawn = null;
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
const over = (error: Refusal): boolean => [403, 404, 409, 413, 422].includes(error.status);

export function explained(error: unknown): string {
  if (error instanceof Refusal) return error.message;
  // What fetch says of a server that is not there differs by browser and tells nothing.
  if (error instanceof TypeError || (error as Error)?.name === "NetworkError") return `${SILENT} Is it still running?`;
  return reason(error);
}
