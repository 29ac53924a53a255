/** The settings: what they are now, for every part of the extension, and for the kernels whose cells speak of nbprof. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { type INotebookModel, INotebookTracker, NotebookActions } from "@jupyterlab/notebook";
import type { Kernel } from "@jupyterlab/services";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { setPageOptions } from "../lib/page-options.js";
import { ask, literal } from "./cells/ask.js";
import { languageOf, PYTHON } from "./cells/reason.js";
import { DEFAULTS, optionsLine, read, type Values } from "./options.js";

/** The schema that holds them: schema/plugin.json. */
const SCHEMA = "nbprof:plugin";
const VARIABLE = "NBPROF_OPTIONS";

class Settings {
  values: Readonly<Values> = DEFAULTS;
  private readonly listeners = new Set<() => void>();

  /** The default options as a line; empty where they are the usual ones. */
  get line(): string {
    return optionsLine(this.values);
  }

  set(values: Readonly<Values>): void {
    this.values = values;
    for (const fn of this.listeners) fn();
  }

  onChange(fn: () => void): void {
    this.listeners.add(fn);
  }
}

export const settings = new Settings();

/** What was told to which kernel; a process that is restarted knows nothing. */
const TOLD = new WeakMap<Kernel.IKernelConnection, string>();
const WATCHED = new WeakSet<Kernel.IKernelConnection>();

/**
 * Puts the default options where nbprof looks for them, before a cell that may use it: into the environment of the kernel,
 * by a request that stands in its queue right before the cell. A kernel whose cells never speak of nbprof is left alone.
 */
export function tell(kernel: Kernel.IKernelConnection): void {
  const { line } = settings;
  if ((TOLD.get(kernel) ?? "") === line) return;
  TOLD.set(kernel, line);
  if (!WATCHED.has(kernel)) {
    WATCHED.add(kernel);
    kernel.statusChanged.connect((_, status) => {
      if (status === "restarting" || status === "autorestarting") TOLD.delete(kernel);
    });
  }
  const environment = "__import__('os').environ";
  const change = line ? `.update({${literal(VARIABLE)}: ${literal(line)}})` : `.pop(${literal(VARIABLE)}, None)`;
  void ask(kernel, environment + change);
}

export const settingsPlugin: JupyterFrontEndPlugin<void> = {
  id: "nbprof:settings",
  description: "The settings of the profiler.",
  autoStart: true,
  optional: [ISettingRegistry, INotebookTracker],
  activate: (app: JupyterFrontEnd, registry: ISettingRegistry | null, notebooks: INotebookTracker | null) => {
    settings.onChange(() => {
      const { colours, lanes } = settings.values;
      setPageOptions(colours, lanes === DEFAULTS.lanes ? null : lanes);
    });
    if (notebooks) {
      const { kernelspecs } = app.serviceManager;
      NotebookActions.executionScheduled.connect((_, { cell, notebook }) => {
        if (!cell.model.sharedModel.getSource().includes("nbprof")) return;
        const panel = notebooks.find((candidate) => candidate.content === notebook);
        const kernel = panel?.sessionContext.session?.kernel;
        if (!panel || !kernel) return;
        if (PYTHON.test(languageOf(kernel.name, kernelspecs.specs, panel.model as INotebookModel | null) ?? ""))
          tell(kernel);
      });
    }
    void registry?.load(SCHEMA).then(
      (loaded) => {
        const update = (): void => settings.set(read(loaded.composite as Record<string, unknown>));
        loaded.changed.connect(update);
        update();
      },
      (error) => console.warn("The settings of nbprof could not be read; the defaults are used.", error),
    );
  },
};
