/** Profile a cell by button: it runs as it always does, and nbprof records it, though its text does not say so. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, Notification } from "@jupyterlab/apputils";
import type { Cell, CodeCell } from "@jupyterlab/cells";
import { INotebookTracker, NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import type { Kernel } from "@jupyterlab/services";
import { arm, disarm, type Request, ready, type Said } from "./cells/arm.js";
import { insertChanges } from "./cells/insert.js";
import { linesOf, magicLine } from "./cells/lines.js";
import { languageOf, whyNot } from "./cells/reason.js";
import { icon } from "./icon.js";
import { settings, tell } from "./settings.js";

const CATEGORY = "Profiler";
const PROFILE = "nbprof:profile-cell";
const LINES = "nbprof:profile-lines";
const INSERT = "nbprof:insert-magic";

/** How long a kernel that does nothing may take to say whether nbprof is there, in ms; then the cell is run all the same. */
const SOON_MS = 3000;

const complain = (text: string): void => void Notification.warning(text, { autoClose: 10_000 });

const kernelOf = (panel: NotebookPanel): Kernel.IKernelConnection | null =>
  panel.sessionContext.session?.kernel ?? null;

/** Whether a cell may be run for it. A kernel that is busy answers later, and what is asked then waits its turn. */
async function allowed(kernel: Kernel.IKernelConnection): Promise<boolean> {
  tell(kernel);
  if (kernel.status !== "idle") return true;
  const late = new Promise<null>((resolve) => setTimeout(() => resolve(null), SOON_MS));
  const answer = await Promise.race([ready(kernel, settings.line), late]);
  if (answer?.ok === false) complain(answer.error);
  return answer?.ok !== false;
}

/** Says why a cell that ran was not recorded, if it was not. */
async function check(kernel: Kernel.IKernelConnection, armed: Promise<Said> | null, ran: boolean): Promise<void> {
  const answer = await armed;
  if (!answer) return;
  if (!answer.ok) {
    complain(`The cell was not profiled. ${answer.error}`);
    return;
  }
  const left = await disarm(kernel, answer.token);
  if (ran && left?.ok && left.state !== "used") {
    complain("The cell ran but was not profiled: the kernel ran something else first. Profile it again.");
  }
}

/** Runs the active cell as JupyterLab does; nbprof is told of it at the moment in which the cell takes its place in the queue. */
async function profileCell(panel: NotebookPanel, cell: Cell): Promise<void> {
  const kernel = kernelOf(panel);
  if (!kernel || !(await allowed(kernel))) return;
  let armed: Promise<Said> | null = null;
  const scheduled = (_: unknown, what: { cell: Cell }): void => {
    const now = kernelOf(panel);
    if (what.cell !== cell || armed || !now) return;
    const { sharedModel } = cell.model;
    armed = arm(now, { text: sharedModel.getSource(), cell: sharedModel.getId(), options: settings.line });
  };
  NotebookActions.executionScheduled.connect(scheduled);
  // The next Ctrl+Enter is for the cell, not for the button that was clicked.
  const { activeElement } = document;
  if (activeElement?.closest(".jp-Toolbar, .jp-cell-toolbar")) (activeElement as HTMLElement).blur();
  panel.content.activate();
  let ran = false;
  try {
    ran = await NotebookActions.runCells(panel.content, [cell], panel.sessionContext);
  } finally {
    NotebookActions.executionScheduled.disconnect(scheduled);
    await check(kernel, armed, ran);
  }
}

/** Runs the lines of the active cell that are selected; what comes of it stands below the cell. */
async function profileLines(panel: NotebookPanel, cell: CodeCell): Promise<void> {
  const kernel = kernelOf(panel);
  const selected = cell.editor?.getSelection();
  const { sharedModel } = cell.model;
  const cursor = { line: 0, column: 0 };
  const lines = linesOf(sharedModel.getSource(), selected?.start ?? cursor, selected?.end ?? cursor);
  if (!lines) {
    complain("The selected lines contain no code.");
    return;
  }
  if (!kernel || !(await allowed(kernel)) || cell.isDisposed) return;
  const id = sharedModel.getId();
  const request: Request = { text: lines.text, cell: id, options: settings.line, lines: [lines.first, lines.last] };
  const armed = arm(kernel, request);
  const { model, outputArea } = cell;
  // As for a cell that is run: the person runs it, so its output is theirs.
  model.trusted = true;
  cell.outputHidden = false;
  model.executionState = "running";
  let ran = false;
  try {
    const future = kernel.requestExecute({ code: lines.text, stop_on_error: true }, false, {
      ...model.metadata,
      cellId: id,
    });
    outputArea.future = future;
    ran = (await future.done).content.status === "ok";
  } catch {
    // The kernel was restarted, or the notebook closed: it says so itself.
  } finally {
    if (!cell.isDisposed) model.executionState = "idle";
    await check(kernel, armed, ran);
  }
}

/** Puts `%%nbprof` with the default options above the code. */
function insertMagic(panel: NotebookPanel, cell: Cell): void {
  const line = magicLine(cell.model.sharedModel.getSource(), settings.line);
  if (line === null) complain("The cell already starts with %%nbprof.");
  else cell.model.sharedModel.updateSource(0, 0, line);
  panel.content.mode = "edit";
}

export const cells: JupyterFrontEndPlugin<void> = {
  id: "nbprof:cells",
  description: "Profiles a cell with a button.",
  autoStart: true,
  optional: [INotebookTracker, ICommandPalette],
  activate: (app: JupyterFrontEnd, notebooks: INotebookTracker | null, palette: ICommandPalette | null) => {
    if (!notebooks) return;
    insertChanges(notebooks);
    const { commands, serviceManager } = app;
    const { kernelspecs } = serviceManager;

    /** The buttons of a toolbar are for its notebook; a menu is for what is in view. */
    const away = (args?: Readonly<Record<string, unknown>>): boolean => {
      const { currentWidget } = app.shell;
      return !args?.["toolbar"] && currentWidget !== null && currentWidget !== notebooks.currentWidget;
    };
    const reason = (args?: Readonly<Record<string, unknown>>): string => {
      const panel = away(args) ? null : notebooks.currentWidget;
      const kernel = panel ? kernelOf(panel) : null;
      const specs = kernelspecs.specs;
      const named = kernel && {
        status: kernel.status,
        name: specs?.kernelspecs[kernel.name]?.display_name ?? kernel.name,
        language: languageOf(kernel.name, specs, panel?.model ?? null),
      };
      const starting = Boolean(panel && !panel.sessionContext.hasNoKernel);
      return whyNot({ cell: panel?.content.activeCell?.model.type ?? null, kernel: named, starting });
    };
    /** The notebook and its active cell, if it can be profiled. */
    const active = (args: Readonly<Record<string, unknown>>): [NotebookPanel, CodeCell] | null => {
      const panel = notebooks.currentWidget;
      const cell = panel?.content.activeCell;
      return panel && cell && !reason(args) ? [panel, cell as CodeCell] : null;
    };
    const add = (
      id: string,
      label: string,
      caption: string,
      run: (panel: NotebookPanel, cell: CodeCell) => Promise<void> | void,
    ): void => {
      commands.addCommand(id, {
        label: (args) => (args["toolbar"] ? "" : label),
        caption: (args) => reason(args) || caption,
        isEnabled: (args) => !reason(args),
        icon: (args) => (args["toolbar"] || id === PROFILE ? icon : undefined),
        execute: async (args) => {
          const found = active(args);
          if (found) await run(...found);
        },
      });
      palette?.addItem({ command: id, category: CATEGORY });
    };
    add(PROFILE, "Profile Cell", "Profile this cell: run it and show its profile below", profileCell);
    add(
      LINES,
      "Profile Selected Lines",
      "Run the selected lines of this cell and show their profile below it",
      profileLines,
    );
    add(INSERT, "Insert %%nbprof", "Insert %%nbprof with the default options above the code of this cell", insertMagic);

    let announced = "";
    const changed = (): void => {
      const now = `${reason()}\n${reason({ toolbar: true })}`;
      if (now === announced) return;
      announced = now;
      for (const id of [PROFILE, LINES, INSERT]) commands.notifyCommandChanged(id);
    };
    const watch = (panel: NotebookPanel): void => {
      panel.sessionContext.statusChanged.connect(changed);
      panel.sessionContext.kernelChanged.connect(changed);
      panel.sessionContext.sessionChanged.connect(changed);
      void panel.sessionContext.ready.then(changed);
    };
    notebooks.forEach(watch);
    notebooks.widgetAdded.connect((_, panel) => watch(panel));
    notebooks.currentChanged.connect(changed);
    app.shell.currentChanged?.connect(changed);
    notebooks.activeCellChanged.connect(changed);
    kernelspecs.specsChanged.connect(changed);
  },
};
