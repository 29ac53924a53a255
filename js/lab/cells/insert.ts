/** Inserts the changed cell of an experiment below the cell whose output offers it. It is not run. */

import { type INotebookTracker, NotebookActions } from "@jupyterlab/notebook";
import { INSERT, type Insert } from "../../views/trials.js";

export function insertChanges(notebooks: INotebookTracker): void {
  document.addEventListener(INSERT, (event) => {
    const { detail, target } = event as CustomEvent<Insert>;
    const node = target as Node;
    const panel = notebooks.find((each) => each.node.contains(node));
    const index = panel?.content.widgets.findIndex((cell) => cell.node.contains(node)) ?? -1;
    // An output in a view of its own is in no notebook: there the text is copied.
    if (!panel || index < 0 || typeof detail?.text !== "string") return;
    const { content } = panel;
    content.activeCellIndex = index;
    NotebookActions.insertBelow(content);
    NotebookActions.changeCellType(content, "code");
    content.activeCell?.model.sharedModel.setSource(detail.text);
    content.mode = "edit";
    event.preventDefault();
  });
}
