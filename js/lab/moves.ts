/** What nbprof's extension of the server moves and deletes, told to the rest of JupyterLab as if it had done so itself. */

import type { Contents } from "@jupyterlab/services";
import { nameOf } from "./names.js";

type Tell = { emit?: (change: Contents.IChangedArgs) => void };

const model = (path: string): Partial<Contents.IModel> => ({ path, name: path.slice(path.lastIndexOf("/") + 1) });

function tell(contents: Contents.IManager, change: Contents.IChangedArgs): void {
  // Open documents follow it, and the file browser draws anew.
  const drive = (contents as { defaultDrive?: Contents.IDrive }).defaultDrive;
  (drive?.fileChanged as Tell | undefined)?.emit?.(change);
}

export function tellMoved(contents: Contents.IManager, from: string, to: string): void {
  tell(contents, { type: "rename", oldValue: model(from), newValue: model(to) });
}

export function tellDeleted(contents: Contents.IManager, path: string): void {
  tell(contents, { type: "delete", oldValue: model(path), newValue: null });
}

/** Whether a path is a folder's, or lies in it. */
const inside = (path: string, folder: string): boolean => path === folder || path.startsWith(`${folder}/`);

/** Where something lies after a move. */
export const movedPath = (path: string, from: string, to: string): string =>
  inside(path, from) ? to + path.slice(from.length) : path;

/** What a run of a folder is called after a move: another name where it was the run itself that was moved. */
export const movedRun = (folder: string, run: string, from: string, to: string): string =>
  from !== folder && inside(from, folder) && run === nameOf(from) ? nameOf(to) : run;

/** Whether something is gone with what was deleted. */
export const goneWith = (path: string, deleted: string): boolean => inside(path, deleted);

/** Calls back for everything that is moved or deleted, by whoever. */
export function follow(
  contents: Contents.IManager,
  moved: (from: string, to: string) => void,
  deleted: (path: string) => void,
): void {
  contents.fileChanged.connect((_, { type, oldValue, newValue }) => {
    const [from, to] = [oldValue?.path, newValue?.path];
    if (type === "rename" && from && to) moved(from, to);
    else if (type === "delete" && from) deleted(from);
  });
}
