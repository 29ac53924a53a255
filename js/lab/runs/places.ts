/** Where the runs of a notebook are. */

import type { Watched } from "./groups.js";
import { folderOf, inside, logdirOf } from "./run.js";

/** Where %%nbprof saves runs, beside the notebook. */
const DEFAULT = "nbprof-results";

const MOST_PLACES = 50;
/** As many files of an output are looked at; the others lie beside them. */
const MOST = 16;

/** A path below a folder, without "." and ".."; null where it is outside the folder that Jupyter serves, or is none. */
export function below(folder: string, path: string): string | null {
  if (/^([/\\]|[a-z]:|.*:\/\/)/i.test(path) || path.includes("\0")) return null;
  const parts: string[] = folder.split("/").filter(Boolean);
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part === "..") {
      if (parts.pop() === undefined) return null;
    } else parts.push(part);
  }
  return parts.join("/");
}

/**
 * The folders in which the runs of a notebook are: the default one, the one of the settings, where there is one, and those
 * of the files that its outputs name.
 */
export function logdirs(notebook: string, setting: string, files: Iterable<readonly string[]>): string[] {
  const folder = folderOf(notebook);
  const found = new Set([DEFAULT, setting].flatMap((path) => (path && below(folder, path)) || []));
  for (const named of files) {
    for (const file of named.slice(0, MOST)) {
      const path = below(folder, file);
      if (!path || found.size >= MOST_PLACES) continue;
      const logdir = logdirOf(path);
      // All that lies below the notebook's own folder may be far too much to look at: there it is the file alone.
      found.add(inside(folder, logdir) ? path : logdir);
    }
  }
  return [...found];
}

/** The folders of the list: of the notebook, whose path may be given, and of the person, each once. */
export function watchedOf(
  logdirs: readonly string[],
  chosen: readonly string[],
  notebook: string | null = null,
): Watched[] {
  const name = notebook?.slice(notebook.lastIndexOf("/") + 1) ?? "";
  const configured = new Set(logdirs);
  const picked = new Set(chosen);
  return [...new Set([...configured, ...picked])].map((path) => ({
    path,
    chosen: picked.has(path),
    notebook: configured.has(path),
    name,
  }));
}

/** What a cell loads a run with; the path is relative to the notebook, where the kernel of a notebook works. */
export function loading(run: string, notebook: string): string {
  const from = folderOf(notebook).split("/").filter(Boolean);
  const to = run.split("/").filter(Boolean);
  let same = 0;
  while (same < from.length && same < to.length - 1 && from[same] === to[same]) same++;
  const path = [...from.slice(same).map(() => ".."), ...to.slice(same)].join("/");
  // A text of JSON is one of Python, too.
  return `import nbprof\n\nnbprof.load(${JSON.stringify(path)})`;
}
