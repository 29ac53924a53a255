/** The sidebar: a toolbar, a filter, the runs by their folders, and a line about them. */

import { SidePanel } from "@jupyterlab/ui-components";
import type { Message } from "@lumino/messaging";
import { Panel, Widget } from "@lumino/widgets";
import { h, handled, listen, reason } from "../../lib/dom.js";
import { count } from "../../lib/format.js";
import { watchTheme } from "../../lib/theme.js";
import { filtered, type Group, grouped, type Watched } from "./groups.js";
import type { RunList } from "./list.js";
import { many, type Run } from "./run.js";
import { Tree } from "./tree.js";

const MINUTE = 60_000;

const EMPTY = "No runs here yet: run a cell under %%nbprof, or add a folder.";

/** What the buttons of the panel do. */
export interface Doing {
  open(): void;
  compare(): void;
  /** Whether runs can be compared here. */
  comparable(): boolean;
  addFolder(): void;
  refresh(): void;
  /** Another selection. */
  changed(): void;
  /** Other folders are folded. */
  folded(): void;
  /** The panel came into view, or left it. */
  shown(visible: boolean): void;
}

const button = (text: string, click: () => void): HTMLButtonElement =>
  h("button", { class: "jp-mod-styled nbprof-button", on: { click } }, text);

export class RunsPanel extends SidePanel {
  readonly tree: Tree;
  private watched: readonly Watched[] = [];
  private list: RunList | null = null;
  private readonly filter = h("input", {
    type: "search",
    placeholder: "Filter runs",
    "aria-label": "Filter runs by name, framework or verdict; /…/ is a regular expression",
    "data-lm-suppress-shortcuts": "true",
    spellcheck: "false",
  });
  private readonly wrong = h("p.nbprof-runs-wrong", { role: "alert", hidden: true });
  private readonly notice = h("div.nbprof-runs-notice", { role: "alert", hidden: true });
  private readonly state = h("div.nbprof-runs-state", { role: "status" });
  private readonly sum = h("span", { role: "status" });
  private readonly both = button("Compare", () => this.doing.compare());
  private readonly bar = h("div.nbprof-runs-progress", { "aria-hidden": "true", hidden: true });
  private wanted: string | null = null;
  private frame = 0;
  /** The last filter that could be read, and how many runs it left. */
  private good = "";
  private shown = 0;
  private clock: ReturnType<typeof setInterval> | undefined;
  private ending = new AbortController();

  constructor(private readonly doing: Doing) {
    super({ content: new Panel() });
    this.addClass("nbprof-sidebar");
    this.tree = new Tree({
      open: () => doing.open(),
      selected: () => {
        this.count();
        doing.changed();
      },
      folded: () => {
        doing.folded();
        this.update();
      },
      search: () => this.filter.focus(),
    });
    const content = new Widget();
    content.addClass("nbprof-runs-content");
    this.both.title = "Compare the two selected runs";
    content.node.append(
      h("div.nbprof-runs-filter", this.filter, this.wrong),
      this.bar,
      this.notice,
      this.state,
      this.tree.node,
      h("div.nbprof-runs-foot", this.sum, this.both),
    );
    this.content.addWidget(content);
    listen(this.filter, "input", () => this.draw());
    listen(this.filter, "keydown", (event) => {
      if (event.key === "Escape" && this.filter.value) this.filter.value = "";
      else if (event.key !== "ArrowDown" && event.key !== "Enter") return;
      else this.tree.focus();
      this.draw();
      handled(event);
    });
  }

  /** The selected runs, as they stand. */
  get runs(): Run[] {
    return this.tree.runs;
  }

  /** What is shown; `update()` draws it again. */
  set source(value: { list: RunList; watched: readonly Watched[] }) {
    this.list = value.list;
    this.watched = value.watched;
    this.update();
  }

  /** Says what went wrong, until the person has read it, or does the next thing; "" takes it away. */
  tell(text: string): void {
    this.notice.hidden = text === "";
    if (!text) return;
    const close = button("Dismiss", () => {
      this.notice.hidden = true;
    });
    this.notice.replaceChildren(h("span", text), close);
  }

  /** Draws what has changed, at the next frame. */
  override update(): void {
    if (this.frame || this.isDisposed) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.isDisposed) this.draw();
    });
  }

  /** Selects a run, as soon as it is there. */
  find(path: string): void {
    this.wanted = path;
    this.update();
  }

  private draw(): void {
    const { list } = this;
    if (!list) return;
    const all = grouped(list.runs.values(), list.problems, this.watched);
    const text = this.filter.value;
    let groups: Group[] = all;
    this.wrong.hidden = true;
    this.filter.removeAttribute("aria-invalid");
    try {
      groups = filtered(all, text);
      this.good = text;
    } catch (error) {
      // Half a regular expression is what everybody types first: the rows stay as they are.
      groups = filtered(all, this.good);
      this.wrong.textContent = reason(error);
      this.wrong.hidden = false;
      this.filter.setAttribute("aria-invalid", "true");
    }
    this.bar.hidden = !list.busy && !list.working;
    this.tree.node.setAttribute("aria-busy", String(list.busy));
    this.tree.show(groups, Date.now(), list.busy || list.working, text.trim() !== "");
    this.explain(list, all, groups);
    this.shown = groups.reduce((sum, { runs }) => sum + runs.length, 0);
    this.count();
    if (this.wanted === null || !list.runs.has(this.wanted)) return;
    this.tree.select([this.wanted]);
    this.wanted = null;
    if (this.isVisible) this.tree.focus();
  }

  /** What is said where there is nothing to list. */
  private explain(list: RunList, all: readonly Group[], groups: readonly Group[]): void {
    const say = (...children: (Node | string)[]): void => {
      const key = children.map((child) => (typeof child === "string" ? child : child.textContent)).join("\n");
      // What is said already is not said again.
      if (this.state.dataset["said"] === key) return;
      this.state.dataset["said"] = key;
      this.state.replaceChildren(...children.map((child) => (typeof child === "string" ? h("p", child) : child)));
    };
    if (list.state === "failed")
      say(
        list.failure,
        button("Try again", () => this.doing.refresh()),
      );
    else if (all.length === 0 && (list.state === "loading" || list.busy)) say("Looking for runs…");
    else if (all.length === 0)
      say(
        EMPTY,
        button("Add folder…", () => this.doing.addFolder()),
      );
    else if (groups.length === 0)
      say(
        "No run matches the filter.",
        button("Clear the filter", () => this.clear()),
      );
    else say();
    this.state.hidden = this.state.childElementCount === 0;
    this.tree.node.hidden = groups.length === 0;
  }

  private clear(): void {
    this.filter.value = "";
    this.draw();
    this.filter.focus();
  }

  private count(): void {
    const picked = this.tree.runs.length;
    const total = this.list?.runs.size ?? 0;
    const broken = new Set(this.list?.problems.map(({ path }) => path));
    const left = [...(this.list?.runs.values() ?? [])].filter(({ path, known }) => !known && !broken.has(path));
    const unknown = this.list?.working ? left.length : 0;
    const all = total ? `${many(total, "run")}${unknown ? `, analysing ${count(unknown)}` : ""}` : "";
    const found = this.shown < total ? `${count(this.shown)} of ${all}` : all;
    const text = picked > 1 ? `${count(picked)} of ${many(total, "run")} selected` : found;
    if (this.sum.textContent !== text) this.sum.textContent = text;
    this.both.hidden = picked !== 2 || !this.doing.comparable();
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this.ending = new AbortController();
    watchTheme(this.node, this.ending.signal, (theme) => {
      this.node.dataset["theme"] = theme;
    });
    if (this.isVisible) this.enter();
  }

  protected override onBeforeDetach(msg: Message): void {
    this.ending.abort();
    this.leave();
    super.onBeforeDetach(msg);
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.enter();
  }

  protected override onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this.leave();
  }

  protected override onActivateRequest(msg: Message): void {
    super.onActivateRequest(msg);
    if (this.tree.node.childElementCount && !this.tree.node.hidden) this.tree.focus();
    else this.filter.focus();
  }

  private enter(): void {
    clearInterval(this.clock);
    // Times are told as how long ago they were.
    this.clock = setInterval(() => this.update(), MINUTE);
    this.doing.shown(true);
    this.update();
  }

  private leave(): void {
    clearInterval(this.clock);
    this.doing.shown(false);
  }
}
