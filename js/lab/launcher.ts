/** "Open Profile…": a card of the launcher and a command that ask for a file or folder and open it. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { Dialog, ICommandPalette } from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import { IDocumentManager } from "@jupyterlab/docmanager";
import { FileDialog, IDefaultFileBrowser } from "@jupyterlab/filebrowser";
import { ILauncher } from "@jupyterlab/launcher";
import { Widget } from "@lumino/widgets";
import { h, reason } from "../lib/dom.js";
import { icon } from "./icon.js";
import { contentsPath } from "./launcher/path.js";

const OPEN = "nbprof:open-profile";
const FOLDER = "nbprof:open";
const FACTORY = "nbprof";

/** A path, and a button that looks for one. */
class Ask extends Widget implements Dialog.IBodyWidget<string> {
  readonly input: HTMLInputElement;

  constructor(value: string, wrong: string, browse: () => void) {
    const input = h("input.jp-mod-styled", {
      type: "text",
      value,
      spellcheck: "false",
      placeholder: "folder/host.xplane.pb",
      "aria-invalid": String(Boolean(wrong)),
    }) as HTMLInputElement;
    const node = h(
      "div.nbprof-open",
      h("label", h("span", "Path of a profile, or of a run folder"), input),
      h(
        "p",
        { role: wrong ? "alert" : "note" },
        wrong || "As in the file browser, relative to the folder that Jupyter serves.",
      ),
      h("button.jp-mod-styled.nbprof-button", { type: "button", on: { click: browse } }, "Browse…"),
    );
    super({ node });
    this.input = input;
  }

  getValue(): string {
    return this.input.value;
  }
}

export const launcher: JupyterFrontEndPlugin<void> = {
  id: "nbprof:launcher",
  description: "Opens a profile from the launcher and the command palette.",
  autoStart: true,
  optional: [IDocumentManager, ILauncher, ICommandPalette, IDefaultFileBrowser],
  activate: (
    app: JupyterFrontEnd,
    manager: IDocumentManager | null,
    cards: ILauncher | null,
    palette: ICommandPalette | null,
    browser: IDefaultFileBrowser | null,
  ) => {
    const { commands, serviceManager } = app;

    const open = async (path: string): Promise<void> => {
      const { type } = await serviceManager.contents.get(path, { content: false });
      if (type === "directory") await commands.execute(FOLDER, { path });
      else await commands.execute("docmanager:open", { path, factory: FACTORY });
    };

    /** Paths that were chosen, or the one that was typed; null where the person left. */
    const choose = async (value: string, wrong: string): Promise<string[] | null> => {
      let browsing = false;
      const body = new Ask(value, wrong, () => {
        browsing = true;
        dialog.reject();
      });
      const dialog = new Dialog<string>({
        title: "Open Profile",
        body,
        buttons: [Dialog.cancelButton(), Dialog.okButton({ label: "Open" })],
        focusNodeSelector: "input",
      });
      const { button, value: typed } = await dialog.launch();
      if (!browsing) return button.accept ? [contentsPath(typed ?? "", PageConfig.getOption("serverRoot"))] : null;
      if (!manager) return null;
      const { button: chosen, value: items } = await FileDialog.getOpenFiles({
        manager,
        title: "Open Profile",
        label: "A profile or a run folder; if nothing is selected, the current folder",
        defaultPath: browser?.model.path ?? "",
      });
      return chosen.accept && items?.length ? items.map(({ path }) => path) : choose(typed ?? value, "");
    };

    commands.addCommand(OPEN, {
      label: (args) => (args["isPalette"] ? "Open Profile…" : "Open profile…"),
      caption: "Open a profile or a run folder: XPlane, Chrome or PyTorch trace",
      icon,
      execute: async (args) => {
        if (typeof args["path"] === "string") {
          await open(args["path"]);
          return;
        }
        let value = "";
        let wrong = "";
        for (;;) {
          const paths = await choose(value, wrong);
          if (!paths) return;
          wrong = "";
          for (const path of paths) {
            try {
              await open(path);
            } catch (error) {
              value = path;
              const status = (error as { response?: { status?: number } }).response?.status;
              wrong =
                status === 404
                  ? `There is no file or folder "${path}".`
                  : `"${path}" could not be opened: ${reason(error)}`;
            }
          }
          if (!wrong) return;
        }
      },
    });
    palette?.addItem({ command: OPEN, category: "Profiler", args: { isPalette: true } });
    cards?.add({ command: OPEN, category: "Other", rank: 20 });
  },
};
