/** What can be done with runs: the commands of the sidebar. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Clipboard, Dialog, showDialog } from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import type { IDocumentManager } from "@jupyterlab/docmanager";
import { FileDialog } from "@jupyterlab/filebrowser";
import { folderIcon, LabIcon, newFolderIcon, refreshIcon } from "@jupyterlab/ui-components";
import { Widget } from "@lumino/widgets";
import { h } from "../../lib/dom.js";
import { bytesText } from "../../lib/format.js";
import { icon } from "../icon.js";
import { tellDeleted, tellMoved } from "../moves.js";
import { explained } from "../profile.js";
import type { Server } from "../server.js";
import type { CurrentNotebook } from "./notebook.js";
import type { RunsPanel } from "./panel.js";
import { called, folderOf, isFile, many, type Run } from "./run.js";

export const COMMANDS = {
  show: "nbprof:runs-show",
  open: "nbprof:runs-open",
  compare: "nbprof:runs-compare",
  rename: "nbprof:runs-rename",
  remove: "nbprof:runs-delete",
  load: "nbprof:runs-load",
  download: "nbprof:runs-download",
  copy: "nbprof:runs-copy-path",
  refresh: "nbprof:runs-refresh",
  add: "nbprof:runs-add-folder",
  leave: "nbprof:runs-remove-folder",
  browse: "nbprof:runs-browse",
} as const;

/** Commands of other plugins, which may be there. */
export const OTHERS = {
  compare: "nbprof:compare",
  capture: "nbprof:capture",
  profile: "nbprof:open-profile",
  folder: "nbprof:open",
} as const;

const FACTORY = "nbprof";
/** As many runs are named before they are deleted; the others are counted. */
const MOST_NAMED = 8;

const compareIcon = new LabIcon({
  name: "nbprof:compare",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16"><g class="jp-icon3" fill="#616161">' +
    '<rect x="2" y="6" width="2.5" height="8"/><rect x="5" y="2" width="2.5" height="12"/>' +
    '<rect x="9" y="8" width="2.5" height="6"/><rect x="12" y="5" width="2.5" height="9"/></g></svg>',
});

/** What the commands work on. */
export interface Parts {
  readonly app: JupyterFrontEnd;
  readonly server: Server;
  readonly panel: RunsPanel;
  readonly notebook: CurrentNotebook | null;
  readonly documents: IDocumentManager | null;
  /** Asks for the runs again. */
  refresh(): Promise<void>;
  /** Takes deleted runs out of the list. */
  drop(paths: readonly string[]): void;
  /** Folders are in the list, or not any more, and stay so. */
  choose(path: string, wanted: boolean): void;
}

/** Adds the commands; gives what says that they may now be possible, or not any more. */
export function addCommands(parts: Parts): () => void {
  const { app, server, panel, notebook, documents } = parts;
  const { commands } = app;
  const onlyRun = (): Run | null => (panel.runs.length === 1 ? (panel.runs[0] as Run) : null);
  const some = (): boolean => panel.runs.length > 0;
  const plural = (text: string): string => (panel.runs.length > 1 ? `${text} ${many(panel.runs.length, "run")}` : text);
  const attempt = async (work: () => Promise<void>): Promise<void> => {
    panel.tell("");
    try {
      await work();
    } catch (error) {
      panel.tell(explained(error));
    }
  };
  const browsed = (): void => {
    // The file browser would find out by itself, some seconds later.
    if (commands.hasCommand("filebrowser:refresh")) void commands.execute("filebrowser:refresh");
  };

  commands.addCommand(COMMANDS.show, {
    label: "Show Runs (nbprof)",
    caption: "Show the runs of this notebook and of your folders",
    icon,
    execute: () => app.shell.activateById(panel.id),
  });

  commands.addCommand(COMMANDS.open, {
    label: () => plural("Open"),
    icon,
    isEnabled: some,
    execute: async () => {
      for (const run of panel.runs) {
        if (isFile(run) && commands.hasCommand("docmanager:open")) {
          await commands.execute("docmanager:open", { path: run.path, factory: FACTORY });
        } else await commands.execute(OTHERS.folder, { path: run.path });
      }
    },
  });

  commands.addCommand(COMMANDS.compare, {
    label: () => (panel.runs.length === 2 ? "Compare" : "Compare (select two runs)"),
    caption: () =>
      panel.runs.length === 2
        ? "Compare the two selected runs"
        : "Select two runs to compare them: Ctrl+click, or Shift and arrow keys",
    icon: compareIcon,
    isVisible: () => commands.hasCommand(OTHERS.compare),
    isEnabled: () => panel.runs.length === 2,
    execute: async () => {
      // What was, and what became of it.
      const [before, after] = [...panel.runs].sort((left, right) => left.time - right.time);
      if (!before || !after) return;
      const names = [called(before), called(after)];
      await commands.execute(OTHERS.compare, {
        a: before.path,
        b: after.path,
        ...(names[0] !== names[1] && { names }),
      });
    },
  });

  commands.addCommand(COMMANDS.rename, {
    label: "Rename",
    isEnabled: () => onlyRun() !== null,
    execute: async () => {
      const run = onlyRun();
      const name = run && (await panel.tree.rename(run));
      if (!run || !name) return;
      await attempt(async () => {
        const { path, moves } = await server.call("rename", { path: run.path, name });
        parts.drop([run.path]);
        for (const [from, to] of pairs(moves)) tellMoved(app.serviceManager.contents, from, to);
        await parts.refresh();
        browsed();
        if (typeof path === "string") panel.find(path);
      });
    },
  });

  commands.addCommand(COMMANDS.remove, {
    label: () => plural("Delete"),
    isEnabled: some,
    execute: async () => {
      const { runs } = panel;
      if (!runs.length || !(await confirmed(runs))) return;
      const paths = runs.map(({ path }) => path);
      await attempt(async () => {
        try {
          const { deleted, problems } = await server.call("delete", { paths });
          const gone = Array.isArray(deleted) ? deleted.filter((path) => typeof path === "string") : [];
          parts.drop(gone);
          for (const path of gone) tellDeleted(app.serviceManager.contents, path);
          const messages = Array.isArray(problems) ? problems.map(({ path, message }) => `${path}: ${message}`) : [];
          if (messages.length) panel.tell(messages.join(" "));
        } finally {
          void parts.refresh();
          browsed();
        }
      });
      panel.activate();
    },
  });

  const noLoad = (): string => {
    if (!notebook?.panel) return "no notebook is open";
    if (notebook.path === null) return "the notebook is on another drive";
    return onlyRun() ? "" : "select one run";
  };
  commands.addCommand(COMMANDS.load, {
    label: () => {
      const why = noLoad();
      return `Insert nbprof.load(…) in a Cell${why && ` (${why})`}`;
    },
    isVisible: () => notebook !== null,
    isEnabled: () => noLoad() === "",
    execute: () => {
      const run = onlyRun();
      if (run) notebook?.load(run.path);
    },
  });

  commands.addCommand(COMMANDS.download, {
    label: () => plural("Download"),
    isEnabled: some,
    execute: () => {
      for (const { path } of panel.runs) {
        const link = h("a", { href: server.address("download", { path }), download: "", style: { display: "none" } });
        document.body.append(link);
        link.click();
        link.remove();
      }
    },
  });

  commands.addCommand(COMMANDS.copy, {
    label: "Copy Path",
    isEnabled: () => some() || panel.tree.folder !== null,
    execute: () => {
      const paths = panel.runs.map(({ path }) => path);
      Clipboard.copyToSystem((paths.length ? paths : [panel.tree.folder?.path ?? ""]).join("\n"));
    },
  });

  commands.addCommand(COMMANDS.refresh, {
    label: (args) => (args["here"] ? "Refresh" : "Refresh Runs (nbprof)"),
    caption: "Search for runs again",
    icon: refreshIcon,
    execute: () => parts.refresh(),
  });

  commands.addCommand(COMMANDS.add, {
    label: (args) => (args["here"] ? "Add Folder…" : "Add Folder of Runs… (nbprof)"),
    caption: "Add a folder whose runs are listed",
    icon: newFolderIcon,
    isEnabled: (args) => documents !== null || typeof args["path"] === "string",
    execute: async (args) => {
      if (typeof args["path"] === "string") {
        parts.choose(args["path"], true);
        return;
      }
      if (!documents) return;
      const { button, value } = await FileDialog.getExistingDirectory({
        manager: documents,
        title: "Add a folder of runs",
        label: "Runs in this folder and below it are listed.",
        ...(notebook?.path && { defaultPath: folderOf(notebook.path) }),
      });
      if (button.accept) for (const { path } of value ?? []) parts.choose(path, true);
    },
  });

  commands.addCommand(COMMANDS.leave, {
    label: "Remove Folder from the List",
    caption: "Its runs are not moved",
    isEnabled: () => panel.tree.folder?.watched.chosen === true,
    execute: () => {
      const folder = panel.tree.folder?.watched;
      if (folder) parts.choose(folder.path, false);
    },
  });

  commands.addCommand(COMMANDS.browse, {
    label: "Show in File Browser",
    icon: folderIcon,
    isVisible: () => commands.hasCommand("filebrowser:go-to-path"),
    isEnabled: () => onlyRun() !== null || panel.tree.folder !== null,
    execute: async () => {
      const run = onlyRun();
      const path = run ? folderOf(run.path) : (panel.tree.folder?.path ?? "");
      await commands.execute("filebrowser:go-to-path", { path });
    },
  });

  return () => {
    for (const id of Object.values(COMMANDS)) commands.notifyCommandChanged(id);
  };
}

/** From where to where the server has moved things. */
const pairs = (moves: unknown): [string, string][] =>
  Array.isArray(moves) ? moves.filter((move) => Array.isArray(move) && move.length === 2) : [];

/** Whether the person wants these runs deleted, after reading what goes. */
async function confirmed(runs: readonly Run[]): Promise<boolean> {
  const trash = PageConfig.getOption("delete_to_trash") === "true";
  const verb = trash ? "Move to Trash" : "Delete";
  const body = new Widget();
  body.addClass("nbprof-delete");
  const named = runs.slice(0, MOST_NAMED);
  const left = runs.length - named.length;
  body.node.append(
    h(
      "p",
      trash
        ? "These are moved to the trash, with all their files:"
        : "These are deleted permanently, with all their files:",
    ),
    h(
      "ul",
      ...named.map((run) =>
        h(
          "li",
          h("code", run.path),
          h("span", [run.hosts > 1 && many(run.hosts, "host"), bytesText(run.bytes)].filter(Boolean).join(", ")),
        ),
      ),
      left > 0 && h("li", h("span", `and ${many(left, "more run")}`)),
    ),
  );
  const { button } = await showDialog({
    title: `${verb}: ${runs.length === 1 ? (runs[0] as Run).name : many(runs.length, "run")}?`,
    body,
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: verb })],
    defaultButton: 0,
  });
  return button.accept;
}
