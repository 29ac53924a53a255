/** Two runs side by side in a tab: the command `nbprof:compare`, which the sidebar and the file browser call. */

import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { IFileBrowserFactory } from "@jupyterlab/filebrowser";
import { icon } from "./icon.js";
import { type ProfileOptions, ProfileView } from "./profile.js";
import { type Opened, Server } from "./server.js";

const COMMAND = "nbprof:compare";

/** The name of a file without what all profiles end with: a tab has room for little more. */
const nameOf = (path: string): string =>
  (path.split("/").pop() || path).replace(/\.(xplane\.pb|(pt\.)?trace\.json(\.gz)?)$/, "");

/** The dashboard of the second run, `b`, with its tab Compare. */
class CompareView extends ProfileView {
  constructor(
    server: Server,
    readonly a: string,
    readonly b: string,
    options: ProfileOptions,
  ) {
    super(server, b, options);
  }

  protected override get what(): string {
    return `${this.a} and ${this.b}`;
  }

  protected override read(tell: (text: string) => void, signal: AbortSignal): Promise<Opened> {
    return this.server.compare(this.a, this.b, tell, signal);
  }
}

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
    // A page of Jupyter Notebook holds one document, and none of two.
    if (!shell) return;
    const server = new Server(app.serviceManager.serverSettings);
    const tabs = new WidgetTracker<MainAreaWidget<CompareView>>({ namespace: "nbprof-compare" });
    /** The two that are selected in the file browser, the older one first. */
    const selected = (): string[] => {
      const items = Array.from(browsers?.tracker.currentWidget?.selectedItems() ?? []);
      return items.sort((a, b) => a.last_modified.localeCompare(b.last_modified)).map(({ path }) => path);
    };
    const possible = (args: Record<string, unknown>): boolean =>
      (args["a"] !== undefined && args["b"] !== undefined) || selected().length === 2;
    app.commands.addCommand(COMMAND, {
      label: "Compare Profiles",
      caption: "Compare two profiles: what got faster or slower, and whether that is more than chance",
      icon,
      isEnabled: possible,
      isVisible: possible,
      execute: async (args) => {
        const [first, second] = selected();
        const [a, b] = [String(args["a"] ?? first ?? ""), String(args["b"] ?? second ?? "")];
        if (!a || !b) return;
        let tab = tabs.find(({ content }) => content.a === a && content.b === b);
        if (!tab) {
          tab = new MainAreaWidget({ content: new CompareView(server, a, b, { ready: app.restored }) });
          tab.title.label = `${nameOf(a)} → ${nameOf(b)}`;
          tab.title.caption = `Comparison\nbefore: ${a}\nafter: ${b}`;
          tab.title.icon = icon;
          tab.title.closable = true;
          tab.toolbar.hide();
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
    if (restorer) {
      void restorer.restore(tabs, {
        command: COMMAND,
        args: ({ content }) => ({ a: content.a, b: content.b }),
        name: ({ content }) => [content.a, content.b].join("\n"),
      });
    }
  },
};
