/** A sidebar with the runs of the notebook and of folders that the person chose. */

import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { IDocumentManager } from "@jupyterlab/docmanager";
import { INotebookTracker } from "@jupyterlab/notebook";
import { IStateDB } from "@jupyterlab/statedb";
import { CommandToolbarButton, folderIcon } from "@jupyterlab/ui-components";
import { icon, recordIcon } from "./icon.js";
import { MAYBE } from "./names.js";
import { explained } from "./profile.js";
import { addCommands, COMMANDS, OTHERS } from "./runs/commands.js";
import { RunList } from "./runs/list.js";
import { CurrentNotebook } from "./runs/notebook.js";
import { Pace } from "./runs/pace.js";
import { RunsPanel } from "./runs/panel.js";
import { watchedOf } from "./runs/places.js";
import { inside } from "./runs/run.js";
import { Server } from "./server.js";

const ID = "nbprof-runs";
const STATE = "nbprof:runs";
const RANK = 650;

/** What stays from one day to the next. */
interface Kept {
  folders?: unknown;
  folded?: unknown;
}

const texts = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((text): text is string => typeof text === "string") : [];

export const runs: JupyterFrontEndPlugin<void> = {
  id: "nbprof:runs",
  description: "Lists the runs of notebooks and folders in a sidebar.",
  autoStart: true,
  optional: [ILabShell, ILayoutRestorer, ICommandPalette, INotebookTracker, IDocumentManager, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    _shell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    tracker: INotebookTracker | null,
    documents: IDocumentManager | null,
    state: IStateDB | null,
  ) => {
    const { commands, shell } = app;
    const { contents, serverSettings } = app.serviceManager;
    const server = new Server(serverSettings);
    let chosen: string[] = [];
    let visible = false;
    let notify = (): void => undefined;

    const list = new RunList(
      (folders, each, signal) => server.lines("runs", { folders }, each, signal),
      explained,
      () => panel.update(),
    );
    const panel = new RunsPanel({
      open: () => void commands.execute(COMMANDS.open),
      compare: () => void commands.execute(COMMANDS.compare),
      comparable: () => commands.hasCommand(OTHERS.compare),
      addFolder: () => void commands.execute(COMMANDS.add),
      refresh: () => void commands.execute(COMMANDS.refresh),
      changed: () => notify(),
      folded: () => void save(),
      shown: (now) => {
        visible = now;
        if (now) follow(true);
        else list.stop();
        pace.run(now);
      },
    });
    panel.id = ID;
    panel.title.icon = icon;
    panel.title.caption = "Runs (nbprof)";
    panel.node.setAttribute("role", "region");
    panel.node.setAttribute("aria-label", "Runs");

    const pace = new Pace(
      async () => {
        // Nobody sees it, or an answer is still coming.
        if (document.hidden || list.busy || list.working) return true;
        const before = list.changes;
        await list.refresh();
        return list.changes !== before;
      },
      (fn, ms) => {
        const timer = setTimeout(fn, ms);
        return () => clearTimeout(timer);
      },
    );

    /** Lists the folders as they are now; `again`, also where they are the same as before. */
    const follow = (again: boolean): void => {
      const watched = watchedOf(notebook?.logdirs ?? [], chosen, notebook?.path);
      panel.source = { list, watched };
      // Nobody looks: what is listed will be asked for when it is shown.
      if (!visible) return;
      if (!list.watch(watched.map(({ path }) => path)) && again) void list.refresh();
    };
    let timer: ReturnType<typeof setTimeout> | undefined;
    let due = false;
    const soon = (again: boolean): void => {
      due ||= again;
      clearTimeout(timer);
      timer = setTimeout(() => {
        follow(due);
        if (due) pace.run(visible);
        due = false;
      }, SOON_MS);
    };
    const notebook = tracker
      ? new CurrentNotebook(
          tracker,
          contents,
          () => {
            notify();
            soon(false);
          },
          () => soon(true),
        )
      : null;

    const save = async (): Promise<void> => {
      await state?.save(STATE, { folders: chosen, folded: [...panel.tree.folded] });
    };
    notify = addCommands({
      app,
      server,
      panel,
      notebook,
      documents,
      refresh: async () => {
        follow(false);
        pace.run(visible);
        await list.refresh();
      },
      drop: (paths) => list.drop(paths),
      choose: (path, wanted) => {
        const local = contents.localPath(path).replace(/^\/+|\/+$/g, "");
        chosen = [...chosen.filter((each) => each !== local), ...(wanted ? [local] : [])];
        void save();
        follow(wanted);
      },
    });

    // Else nobody would have the focus after a menu that was left.
    app.contextMenu.menu.aboutToClose.connect(() => {
      if (!panel.tree.asked) return;
      panel.tree.asked = false;
      requestAnimationFrame(() => {
        if (document.activeElement === document.body) panel.tree.focus();
      });
    });

    for (const id of [COMMANDS.refresh, COMMANDS.add, COMMANDS.compare]) {
      panel.toolbar.addItem(id, new CommandToolbarButton({ commands, id, label: "" }));
    }
    const others = [
      [OTHERS.capture, recordIcon],
      [OTHERS.profile, folderIcon],
    ] as const;
    for (const [id, entry] of others) {
      const add = (): void => {
        if (!commands.hasCommand(id)) return;
        panel.toolbar.addItem(id, new CommandToolbarButton({ commands, id, label: "", icon: entry }));
        commands.commandChanged.disconnect(add);
      };
      commands.commandChanged.connect(add);
      add();
    }

    contents.fileChanged.connect((_, { type, oldValue, newValue }) => {
      const paths = [oldValue?.path, newValue?.path].flatMap((path) =>
        path === undefined ? [] : contents.localPath(path),
      );
      const [from, to] = [oldValue?.path, newValue?.path];
      if (type === "rename" && from !== undefined && to !== undefined && chosen.some((path) => inside(path, from))) {
        chosen = chosen.map((path) => (inside(path, from) ? to + path.slice(from.length) : path));
        void save();
      }
      const watched = watchedOf(notebook?.logdirs ?? [], chosen, notebook?.path);
      // What is saved most often is no run.
      const counts = (path: string): boolean => type !== "save" || MAYBE.test(path);
      if (
        paths.some(
          (path) => counts(path) && watched.some((folder) => inside(path, folder.path) || inside(folder.path, path)),
        )
      )
        soon(true);
    });

    for (const id of [COMMANDS.show, COMMANDS.refresh, COMMANDS.add])
      palette?.addItem({ command: id, category: "Profiler" });

    try {
      shell.add(panel, "left", { rank: RANK, type: "Runs" });
    } catch {
      // A front end without sidebars.
      panel.dispose();
      return;
    }
    restorer?.add(panel, ID);
    void state?.fetch(STATE).then((stored) => {
      const { folders, folded } = (stored ?? {}) as Kept;
      chosen = [...new Set([...texts(folders), ...chosen])];
      panel.tree.folded = new Set(texts(folded));
      follow(false);
    });
    follow(false);
  },
};

/** Several things tell of one change. */
const SOON_MS = 300;
