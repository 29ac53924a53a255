/** The notebook that the person works in: where its runs are, and a cell with a run. */

import type { ICodeCellModel } from "@jupyterlab/cells";
import { type INotebookTracker, NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import type { Contents } from "@jupyterlab/services";
import { MIME_TYPE } from "../../lib/saved.js";
import { settings } from "../settings.js";
import { loading, logdirs } from "./places.js";

/** The files that the profiles in a cell's outputs name. */
function filesOf(cell: ICodeCellModel): string[][] {
  const rows: string[][] = [];
  for (let i = 0; i < cell.outputs.length; i++) {
    const output = cell.outputs.get(i);
    if (output.type !== "display_data" && output.type !== "execute_result") continue;
    const saved = output.data[MIME_TYPE] as { files?: unknown } | undefined;
    if (!saved) continue;
    rows.push(Array.isArray(saved.files) ? saved.files.filter((file) => typeof file === "string") : []);
  }
  return rows;
}

const isCode = (cell: { type: string } | null | undefined): cell is ICodeCellModel => cell?.type === "code";

export class CurrentNotebook {
  private watched: NotebookPanel | null = null;

  /** `changed` is called when the notebook is another one or its runs are elsewhere, `ran` when a cell may have saved a run. */
  constructor(
    private readonly tracker: INotebookTracker,
    private readonly contents: Contents.IManager,
    private readonly changed: () => void,
    private readonly ran: () => void,
  ) {
    tracker.currentChanged.connect(() => this.follow());
    NotebookActions.executed.connect((_, { notebook, cell }) => {
      if (notebook !== this.panel?.content || !isCode(cell.model)) return;
      if (!filesOf(cell.model).length && !cell.model.sharedModel.getSource().includes("nbprof")) return;
      this.changed();
      this.ran();
    });
    settings.onChange(() => this.changed());
    this.follow();
  }

  get panel(): NotebookPanel | null {
    return this.tracker.currentWidget;
  }

  /** As the file browser has it; null without a notebook, or where its files are not this server's. */
  get path(): string | null {
    const path = this.panel?.context.path;
    if (path === undefined) return null;
    const drive = this.contents.driveName(path);
    // That of documents edited together leads to the same files.
    return drive === "" || drive === "RTC" ? this.contents.localPath(path) : null;
  }

  /** The folders in which its runs are. */
  get logdirs(): string[] {
    const { path } = this;
    if (path === null) return [];
    const cells = this.panel?.content.model?.cells;
    return logdirs(path, settings.values.logdir, cells ? [...cells].filter(isCode).flatMap(filesOf) : []);
  }

  /** Puts a cell that loads a run below the active one, and goes there. */
  load(run: string): void {
    const { panel, path } = this;
    if (!panel || path === null) return;
    const { content } = panel;
    NotebookActions.insertBelow(content);
    NotebookActions.changeCellType(content, "code");
    content.activeCell?.model.sharedModel.setSource(loading(run, path));
    content.mode = "edit";
    panel.activate();
  }

  private follow(): void {
    const { panel } = this;
    if (panel !== this.watched) {
      this.watched?.context.pathChanged.disconnect(this.changed);
      this.watched = panel;
      panel?.context.pathChanged.connect(this.changed);
      void panel?.context.ready.then(() => {
        if (panel === this.panel) this.changed();
      });
    }
    this.changed();
  }
}
