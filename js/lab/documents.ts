/** Profiles as documents: a double click in the file browser opens the dashboard, with no kernel. */

import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { ABCWidgetFactory, type DocumentRegistry, DocumentWidget, TextModelFactory } from "@jupyterlab/docregistry";
import { type FileBrowser, IFileBrowserFactory } from "@jupyterlab/filebrowser";
import type { Contents } from "@jupyterlab/services";
import { CompareView } from "./compare.js";
import { icon } from "./icon.js";
import { follow } from "./moves.js";
import { OFFERED, OPENED } from "./names.js";
import { openPage, queryValue, say } from "./page.js";
import { ProfileView } from "./profile.js";
import { Server } from "./server.js";

const FACTORY = "nbprof";
const MODEL = "nbprof-unread";
const OPEN = "nbprof:open";
/** For the layout alone: a file in the tab of the dashboard that it was left in. */
const RESTORE = "nbprof:restore-file";

const isProfile = (name: string): boolean =>
  OPENED.some(
    ({ extensions, pattern }) =>
      extensions?.some((extension) => name.endsWith(extension)) ||
      (pattern !== undefined && new RegExp(pattern).test(name)),
  );

/** A server process that is ready for the next profile stays so for a while. */
const READY_MS = 60_000;

/** What the file holds never gets here: nbprof's server extension reads it. */
class UnreadModelFactory extends TextModelFactory {
  constructor() {
    super(false);
  }
  override get name(): string {
    return MODEL;
  }
  override get fileFormat(): Contents.FileFormat {
    return null;
  }
}

/**
 * Gives a file as one that is not written to: JupyterLab would copy it as a checkpoint, whatever its size. False where
 * JupyterLab is older than 4.4 and knows no such ways to a file.
 */
function registerUnread(contents: Contents.IManager): boolean {
  const drive = (contents as { defaultDrive?: Contents.IDrive }).defaultDrive;
  const registry = drive?.contentProviderRegistry;
  if (!drive || !registry) return false;
  registry.register(MODEL, {
    get: async (path) => ({ ...(await drive.get(path, { content: false })), writable: false }),
    save: (path, model) => drive.save(path, model),
  });
  return true;
}

type ProfileDocument = DocumentWidget<ProfileView>;

class ProfileFactory extends ABCWidgetFactory<ProfileDocument> {
  constructor(
    private readonly server: Server,
    private readonly ready: Promise<unknown>,
    private readonly openOther: (path: string) => void,
    /** Whether the page is all that there is of a document, as in Jupyter Notebook. */
    private readonly paged: boolean,
    options: DocumentRegistry.IWidgetFactoryOptions<ProfileDocument>,
  ) {
    super(options);
  }

  protected createNewWidget(context: DocumentRegistry.Context): ProfileDocument {
    const { path } = context;
    const before = this.paged ? queryValue("nbprof-before") : "";
    const given = {
      ready: this.ready,
      openOther: () => this.openOther(context.path),
      tab: this.paged ? queryValue("nbprof-tab") : "",
      onChange: () => this.changed(widget),
    };
    const content = before
      ? new CompareView(this.server, before, path, given)
      : new ProfileView(this.server, path, given);
    const widget = new DocumentWidget({ content, context });
    widget.title.icon = icon;
    // It would hold nothing but that the file is not written to.
    widget.toolbar.hide();
    context.pathChanged.connect((_, path) => {
      content.path = path;
    });
    return widget;
  }

  /** Told when a widget shows another tab. */
  onTab: (widget: ProfileDocument) => void = () => undefined;

  private changed(widget: ProfileDocument): void {
    if (this.paged) say("nbprof-tab", widget.content.tab);
    this.onTab(widget);
  }
}

/** Tells the server when a folder with a profile is looked at. */
function watch(browsers: IFileBrowserFactory, server: Server): void {
  let notifiedAt = Number.NEGATIVE_INFINITY;
  const look = (browser: FileBrowser): void => {
    if (performance.now() - notifiedAt < READY_MS) return;
    for (const item of browser.model.items()) {
      if (item.type !== "file" || !isProfile(item.name)) continue;
      notifiedAt = performance.now();
      server.ready();
      return;
    }
  };
  const add = (browser: FileBrowser): void => {
    browser.model.refreshed.connect(() => look(browser));
    look(browser);
  };
  browsers.tracker.forEach(add);
  browsers.tracker.widgetAdded.connect((_, browser) => add(browser));
}

export const documents: JupyterFrontEndPlugin<void> = {
  id: "nbprof:documents",
  description: "Opens profiles from the file browser.",
  autoStart: true,
  optional: [ILabShell, ILayoutRestorer, IFileBrowserFactory],
  activate: (
    app: JupyterFrontEnd,
    shell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    browsers: IFileBrowserFactory | null,
  ) => {
    const { contents, serverSettings } = app.serviceManager;
    const server = new Server(serverSettings);
    const added = { contentType: "file", fileFormat: null, mimeTypes: [] } as const;
    for (const type of OFFERED) if (type.extensions) app.docRegistry.addFileType({ ...type, ...added });
    // The last of the extensions that fit counts, so that .trace.json.gz is no plain .gz.
    for (const type of OPENED) app.docRegistry.addFileType({ ...type, ...added, icon });
    const fileTypes = OPENED.map(({ name }) => name);
    app.docRegistry.addModelFactory(new UnreadModelFactory());
    const openOther = (path: string): void => {
      const other = app.docRegistry.preferredWidgetFactories(path).find(({ name }) => name !== FACTORY);
      void app.commands.execute("docmanager:open", { path, factory: other?.name ?? "default" });
    };
    const factory = new ProfileFactory(server, app.restored, openOther, shell === null, {
      name: FACTORY,
      label: "Profile (nbprof)",
      fileTypes: [...fileTypes, ...OFFERED.map(({ name }) => name)],
      defaultFor: fileTypes,
      modelName: MODEL,
      readOnly: true,
      preferKernel: false,
      canStartKernel: false,
      ...(registerUnread(contents) && { contentProviderId: MODEL }),
    });
    app.docRegistry.addWidgetFactory(factory);
    const files = new WidgetTracker<ProfileDocument>({ namespace: "nbprof" });
    factory.widgetCreated.connect((_, widget) => {
      widget.context.pathChanged.connect(() => void files.save(widget));
      void files.add(widget);
    });
    factory.onTab = (widget) => void (files.has(widget) && files.save(widget));
    app.commands.addCommand(RESTORE, {
      execute: async ({ path, tab }) => {
        const widget = await app.commands.execute("docmanager:open", { path, factory: FACTORY });
        // Nothing is read before the whole layout is there.
        if (widget?.content instanceof ProfileView) widget.content.tab = String(tab ?? "");
        return widget;
      },
    });

    // Folders are no documents to JupyterLab; they have tabs of their own.
    const folders = new WidgetTracker<MainAreaWidget<ProfileView>>({ namespace: "nbprof-folders" });
    const folderTab = (path: string, run: string, id: string, shown: string): MainAreaWidget<ProfileView> => {
      const title = (): void => {
        const { content } = tab;
        tab.title.label = [content.path.split("/").pop(), content.run].filter(Boolean).join(" › ");
        tab.title.caption = [content.path, content.run].filter(Boolean).join("\n");
        if (folders.has(tab)) void folders.save(tab);
      };
      const tab = new MainAreaWidget({
        content: new ProfileView(server, path, { run, tab: shown, ready: app.restored, onChange: () => title() }),
      });
      // The layout finds the tab by it, also when the folder was renamed or another run is shown.
      tab.id = id || `nbprof-folder-${Math.random().toString(36).slice(2)}`;
      tab.title.icon = icon;
      tab.title.closable = true;
      tab.toolbar.hide();
      title();
      return tab;
    };
    app.commands.addCommand(OPEN, {
      label: "Open as Profile",
      caption: "Open the run in this folder, or the newest one, as a profile",
      icon,
      execute: async (args) => {
        const selected = browsers?.tracker.currentWidget?.selectedItems().next().value;
        const path = String(args["path"] ?? selected?.path ?? "");
        const run = String(args["run"] ?? "");
        if (!path) return;
        if (!shell) {
          // Jupyter Notebook has one document a page.
          openPage(serverSettings.baseUrl, path, FACTORY);
          return;
        }
        let tab = folders.find(({ content, id }) =>
          args["id"] ? id === args["id"] : content.path === path && (!run || content.run === run),
        );
        if (!tab) {
          tab = folderTab(path, run, String(args["id"] ?? ""), String(args["tab"] ?? ""));
          app.shell.add(tab, "main");
          await folders.add(tab);
        } else if (!run && args["path"] === undefined) {
          // It is asked for again: there may be a newer run.
          tab.content.showRun("");
        }
        app.shell.activateById(tab.id);
      },
    });
    app.contextMenu.addItem({ command: OPEN, selector: '.jp-DirListing-item[data-isdir="true"]', rank: 2 });
    follow(
      contents,
      (from, to) => {
        files.forEach(({ content }) => void content.moved(from, to));
        folders.forEach(({ content }) => void content.moved(from, to));
      },
      (path) => {
        files.forEach(({ content }) => void content.deleted(path));
        folders.forEach(({ content }) => void content.deleted(path));
      },
    );

    if (restorer) {
      void restorer.restore(files, {
        command: RESTORE,
        args: ({ context, content }) => ({ path: context.path, tab: content.tab }),
        name: ({ context }) => context.path,
      });
      void restorer.restore(folders, {
        command: OPEN,
        args: ({ content, id }) => ({ path: content.path, run: content.run, tab: content.tab, id }),
        name: ({ id }) => id,
      });
    }
    if (browsers) watch(browsers, server);
  },
};
