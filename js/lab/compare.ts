/** Two runs side by side in a tab: the command `nbprof:compare`, which the sidebar and the file browser call. */

import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { IFileBrowserFactory } from "@jupyterlab/filebrowser";
import type { Payload } from "../lib/payload.js";
import { icon } from "./icon.js";
import { follow, goneWith, movedPath } from "./moves.js";
import { namesOf } from "./names.js";
import { openPage } from "./page.js";
import { type ProfileOptions, ProfileView } from "./profile.js";
import { type Opened, type Progress, Server } from "./server.js";

const COMMAND = "nbprof:compare";
const FACTORY = "nbprof";

/** The dashboard of the second run, `b`, with its tab Compare. */
export class CompareView extends ProfileView {
  /** What the two runs are called, as far as that is known: by their paths until they are read. */
  names: [string, string];

  constructor(
    server: Server,
    private before: string,
    b: string,
    options: ProfileOptions & { names?: readonly string[] },
  ) {
    super(server, b, options);
    this.names = pair(options.names) ?? namesOf(before, b);
  }

  /** As in the tab Compare: by notebook and cell where nobody gave the folder a name. */
  protected override named({ compare }: Payload): void {
    const shown = compare?.pairs[0];
    const names = shown && [shown.before, shown.after].map((run) => compare.runs[run]?.label ?? "");
    const known = pair(names);
    if (!known || known.join("\n") === this.names.join("\n")) return;
    this.names = known;
    this.changed();
  }

  get a(): string {
    return this.before;
  }

  get b(): string {
    return this.path;
  }

  protected override get what(): string {
    return `${this.a} and ${this.b}`;
  }

  protected override read(tell: (how: Progress) => void, signal: AbortSignal): Promise<Opened> {
    return this.server.compare(this.a, this.b, tell, signal);
  }

  override moved(from: string, to: string): void {
    const before = movedPath(this.before, from, to);
    const another = before !== this.before;
    this.before = before;
    const b = this.path;
    super.moved(from, to);
    if (another || b !== this.path) this.names = namesOf(before, this.path);
    // What is drawn names it; a second run that was moved, too, is being read again already.
    if (another && b === this.path) this.again();
  }

  override deleted(path: string): void {
    super.deleted(path);
    if (goneWith(this.before, path)) this.gone(this.before);
  }
}

/** Two names, each with something in it; null where that is not what was given. */
const pair = (names: unknown): [string, string] | null =>
  Array.isArray(names) && names.length === 2 && names.every((name) => typeof name === "string" && name)
    ? [names[0], names[1]]
    : null;

export const compare: JupyterFrontEndPlugin<void> = {
  id: "nbprof:compare",
  description: "Compares two profiles.",
  autoStart: true,
  optional: [ILabShell, ILayoutRestorer, IFileBrowserFactory],
  activate: (
    app: JupyterFrontEnd,
    shell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    browsers: IFileBrowserFactory | null,
  ) => {
    const { contents, serverSettings } = app.serviceManager;
    const server = new Server(serverSettings);
    const tabs = new WidgetTracker<MainAreaWidget<CompareView>>({ namespace: "nbprof-compare" });
    /** The two that are selected in the file browser, the older one first. */
    const selected = (): string[] => {
      const items = Array.from(browsers?.tracker.currentWidget?.selectedItems() ?? []);
      return items.sort((a, b) => a.last_modified.localeCompare(b.last_modified)).map(({ path }) => path);
    };
    const possible = (args: Record<string, unknown>): boolean =>
      (args["a"] !== undefined && args["b"] !== undefined) || selected().length === 2;
    const compareTab = (a: string, b: string, shown: string, names: unknown): MainAreaWidget<CompareView> => {
      const title = (): void => {
        const { content } = tab;
        tab.title.label = content.names.join(" → ");
        tab.title.caption = `Comparison\nbefore: ${content.a}\nafter: ${content.b}`;
        if (tabs.has(tab)) void tabs.save(tab);
      };
      const tab = new MainAreaWidget({
        content: new CompareView(server, a, b, {
          tab: shown,
          ready: app.restored,
          onChange: () => title(),
          ...(pair(names) && { names: names as string[] }),
        }),
      });
      tab.title.icon = icon;
      tab.title.closable = true;
      tab.toolbar.hide();
      title();
      return tab;
    };
    app.commands.addCommand(COMMAND, {
      label: "Compare Profiles",
      caption: "Compare two profiles: what got faster or slower, and whether the difference is significant",
      icon,
      isEnabled: possible,
      isVisible: possible,
      execute: async (args) => {
        const [first, second] = selected();
        const [a, b] = [String(args["a"] ?? first ?? ""), String(args["b"] ?? second ?? "")];
        if (!a || !b) return;
        if (!shell) {
          // A page of Jupyter Notebook holds one document: the second, which is shown with the first beside it.
          openPage(serverSettings.baseUrl, b, FACTORY, { "nbprof-before": a });
          return;
        }
        let tab = tabs.find(({ content }) => content.a === a && content.b === b);
        if (!tab) {
          tab = compareTab(a, b, String(args["tab"] ?? ""), args["names"]);
          app.shell.add(tab, "main");
          await tabs.add(tab);
        }
        app.shell.activateById(tab.id);
      },
    });
    for (const which of ["[data-file-type^=nbprof]", "[data-isdir=true]"]) {
      app.contextMenu.addItem({
        command: COMMAND,
        selector: `.jp-DirListing-item.jp-mod-selected${which}`,
        rank: 2.1,
      });
    }
    follow(
      contents,
      (from, to) => tabs.forEach(({ content }) => void content.moved(from, to)),
      (path) => tabs.forEach(({ content }) => void content.deleted(path)),
    );
    if (restorer) {
      void restorer.restore(tabs, {
        command: COMMAND,
        args: ({ content }) => ({ a: content.a, b: content.b, tab: content.tab, names: content.names }),
        name: ({ content }) => [content.a, content.b].join("\n"),
      });
    }
  },
};
