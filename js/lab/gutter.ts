/** The time of each line beside the cell that ran, in its editor: as long as the output and the text are those of the recording. */

import { Compartment, StateEffect } from "@codemirror/state";
import { type EditorView, GutterMarker, gutter } from "@codemirror/view";
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import type { CodeCell } from "@jupyterlab/cells";
import { INotebookTracker, type NotebookPanel } from "@jupyterlab/notebook";
import { SHOWN, type Shown } from "../hosts/shown.js";
import { MIME_TYPE } from "../lib/saved.js";
import { type Heat, heatOf, isSame } from "./cells/heat.js";

class Mark extends GutterMarker {
  constructor(private readonly heat: Heat) {
    super();
  }

  override eq(other: Mark): boolean {
    return other.heat === this.heat;
  }

  override toDOM(): HTMLElement {
    const element = document.createElement("div");
    element.title = this.heat.title;
    for (const { kind, share } of this.heat.bars) {
      const bar = document.createElement("i");
      bar.className = `nbprof-heat-${kind}`;
      bar.style.setProperty("--v", `${share}%`);
      element.append(bar);
    }
    const text = document.createElement("span");
    text.textContent = this.heat.text;
    element.append(text);
    return element;
  }
}

/** The gutter of one cell. */
class Gutter {
  private readonly place = new Compartment();
  private heat: Heat[] = [];
  private view: EditorView | null = null;

  constructor(private readonly cell: CodeCell) {
    cell.model.sharedModel.changed.connect(this.draw, this);
    cell.model.outputs.changed.connect(this.cleared, this);
    // An editor is made when its cell comes into view.
    cell.inViewportChanged.connect(this.draw, this);
  }

  show(heat: Heat[]): void {
    this.heat = heat;
    this.draw();
  }

  private cleared(): void {
    const { outputs } = this.cell.model;
    const left = Array.from({ length: outputs.length }, (_, index) => outputs.get(index));
    if (!left.some((output) => MIME_TYPE in output.data)) this.show([]);
  }

  private draw(): void {
    const { cell, place } = this;
    if (cell.isDisposed) return;
    const view = (cell.editor as { editor?: EditorView } | null)?.editor;
    if (!view) return;
    const marks = isSame(cell.model.sharedModel.getSource(), this.heat) ? this.heat.map((heat) => new Mark(heat)) : [];
    const extension = marks.length
      ? gutter({
          class: "nbprof-heat",
          lineMarker: (of, line) => marks[of.state.doc.lineAt(line.from).number - 1] ?? null,
        })
      : [];
    if (view !== this.view) {
      if (!marks.length) return;
      this.view = view;
      view.dispatch({ effects: StateEffect.appendConfig.of(place.of(extension)) });
    } else view.dispatch({ effects: place.reconfigure(extension) });
  }
}

export const gutters: JupyterFrontEndPlugin<void> = {
  id: "nbprof:gutter",
  description: "Shows the time of each line beside the code of a profiled cell.",
  autoStart: true,
  optional: [INotebookTracker],
  activate: (_app: JupyterFrontEnd, notebooks: INotebookTracker | null) => {
    const known = new WeakMap<CodeCell, Gutter>();
    const watch = (panel: NotebookPanel): void => {
      panel.node.addEventListener(SHOWN, (event) => {
        const { code } = (event as CustomEvent<Shown>).detail;
        const node = (event.target as Element).closest(".jp-CodeCell");
        const cell = panel.content.widgets.find((each) => each.node === node) as CodeCell | undefined;
        if (!cell) return;
        const heat = code?.cells[0] ? heatOf(code.cells[0].table) : [];
        if (!known.has(cell) && heat.length) known.set(cell, new Gutter(cell));
        known.get(cell)?.show(heat);
      });
    };
    notebooks?.forEach(watch);
    notebooks?.widgetAdded.connect((_, panel) => watch(panel));
  },
};
