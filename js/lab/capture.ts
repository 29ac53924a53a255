/** Records programs that run elsewhere, and opens what was recorded. */

import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { Dialog, ICommandPalette, MainAreaWidget, Notification, WidgetTracker } from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import { IDefaultFileBrowser } from "@jupyterlab/filebrowser";
import { ILauncher } from "@jupyterlab/launcher";
import { IMainMenu } from "@jupyterlab/mainmenu";
import { IStateDB } from "@jupyterlab/statedb";
import { DEFAULTS, type Fields, fieldsOf, summary } from "./capture/fields.js";
import { CaptureForm } from "./capture/form.js";
import { recordIcon } from "./icon.js";
import { explained } from "./profile.js";
import { Refusal, Server } from "./server.js";

const COMMAND = "nbprof:capture";
const OPEN = "nbprof:open";
const STATE = "nbprof:capture";

/** The form where there are no tabs, as in Jupyter Notebook. Enter is for the form. */
class CaptureDialog extends Dialog<void> {
  constructor(private readonly form: CaptureForm) {
    super({
      title: "",
      body: form,
      buttons: [Dialog.cancelButton({ label: "Close" })],
      focusNodeSelector: "input",
      hasClose: true,
    });
    this.addClass("nbprof-capture-dialog");
  }

  override handleEvent(event: Event): void {
    const key = event.type === "keydown" ? (event as KeyboardEvent).key : "";
    if (key === "Enter" && this.form.node.contains(event.target as Node)) return;
    super.handleEvent(event);
  }
}

export const capture: JupyterFrontEndPlugin<void> = {
  id: "nbprof:capture",
  description: "Records programs running elsewhere.",
  autoStart: true,
  optional: [ILabShell, ILayoutRestorer, ICommandPalette, ILauncher, IMainMenu, IDefaultFileBrowser, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    shell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    cards: ILauncher | null,
    menu: IMainMenu | null,
    browser: IDefaultFileBrowser | null,
    state: IStateDB | null,
  ) => {
    // An administrator has turned it off.
    if (PageConfig.getOption("nbprofCapture") === "false") return;
    const { commands } = app;
    const server = new Server(app.serviceManager.serverSettings);
    const tabs = new WidgetTracker<MainAreaWidget<CaptureForm>>({ namespace: "nbprof-capture" });

    const open = (path: string): void => void commands.execute(OPEN, { path });
    const here = (): string => (browser ? app.serviceManager.contents.localPath(browser.model.path) : "");
    const folder = (): string => [here(), DEFAULTS.folder].filter(Boolean).join("/");

    const remembered = async (): Promise<Fields> => {
      const fields = fieldsOf(await state?.fetch(STATE).catch(() => null));
      // A name is of one run, and the folder follows the file browser.
      return { ...fields, name: "", folder: folder() };
    };

    const makeForm = async (): Promise<CaptureForm> => {
      const form: CaptureForm = new CaptureForm({
        record: (request, each, signal) => server.lines("capture", request, each, signal),
        stop: (key) => server.call("capture", { stop: key }),
        keep: (fields) => void state?.save(STATE, { ...fields }),
        open,
        explained: (error) => ({ text: explained(error), field: error instanceof Refusal ? error.field : "" }),
        recorded: (result) => {
          // Whoever has gone on with something else is not disturbed.
          if (form.isVisible) {
            open(result.path);
            return;
          }
          Notification.success(`${summary(result.workers)} ${result.path}`, {
            autoClose: false,
            actions: [{ label: "Open", callback: () => open(result.path) }],
          });
        },
      });
      form.fields = await remembered();
      return form;
    };

    const showTab = async (): Promise<void> => {
      let tab = tabs.find(() => true);
      if (!tab) {
        tab = new MainAreaWidget({ content: await makeForm() });
        tab.id = "nbprof-capture";
        tab.title.label = "Capture";
        tab.title.caption = "Capture a profile of programs running elsewhere";
        tab.title.icon = recordIcon;
        tab.title.closable = true;
        tab.toolbar.hide();
        app.shell.add(tab, "main");
        await tabs.add(tab);
      }
      app.shell.activateById(tab.id);
    };

    commands.addCommand(COMMAND, {
      label: (args) => (args["isPalette"] ? "Capture a Profile…" : "Capture profile…"),
      caption: "Record programs running elsewhere through their profiler servers",
      icon: (args) => (args["isPalette"] ? undefined : recordIcon),
      execute: async () => {
        if (shell) await showTab();
        else await new CaptureDialog(await makeForm()).launch();
      },
    });
    palette?.addItem({ command: COMMAND, category: "Profiler", args: { isPalette: true } });
    cards?.add({ command: COMMAND, category: "Other", rank: 21 });
    menu?.runMenu.addGroup([{ command: COMMAND, args: { isPalette: true } }], 15);
    if (restorer && shell) void restorer.restore(tabs, { command: COMMAND, name: () => "capture" });
  },
};
