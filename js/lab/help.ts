/** Help: the product's own pages in a tab, from the Help menu, the palette, and "What is this?" of each view. */

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { IMainMenu } from "@jupyterlab/mainmenu";
import { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { Widget } from "@lumino/widgets";
import { h, reason } from "../lib/dom.js";
import { HELP_EVENT, offerHelp } from "../views/about.js";
import { linkOf, pageList, placeOf, START, slugOf, titleOf } from "./help/pages.js";
import { icon } from "./icon.js";

const COMMAND = "nbprof:help";
const TITLE = "nbprof Help";

type Pages = Record<string, string>;

class HelpView extends Widget {
  /** A page, or one of its sections: "views#ops". */
  topic = START;
  private pages: Pages = {};
  private shown = "";
  private drawing: Widget | null = null;
  private readonly list = h("nav", { "aria-label": "Pages" });
  private readonly body = h("div.nbprof-help-body", { tabindex: "0", role: "document", "aria-label": TITLE });

  constructor(private readonly registry: IRenderMimeRegistry) {
    super();
    this.addClass("nbprof-help");
    this.node.append(h("div.nbprof-help-pages", this.list, this.body));
    this.node.addEventListener("click", (event) => this.follow(event), { capture: true });
  }

  async open(topic: string): Promise<void> {
    this.topic = topic || START;
    try {
      this.pages = (await import("nbprof:docs")).default;
      const { page, section } = placeOf(this.topic, this.pages);
      if (page !== this.shown) await this.draw(page);
      const target = section ? this.heading(section) : null;
      if (target) target.scrollIntoView({ block: "start" });
      else this.body.scrollTop = 0;
    } catch (error) {
      this.body.replaceChildren(h("p", { role: "alert" }, `This page of Help could not be loaded. ${reason(error)}`));
    }
    // The keys scroll what is read.
    this.body.focus({ preventScroll: true });
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.drawing?.dispose();
    super.dispose();
  }

  private async draw(page: string): Promise<void> {
    const mimeType = "text/markdown";
    const drawn = this.registry.createRenderer(mimeType);
    await drawn.renderModel(this.registry.createModel({ data: { [mimeType]: this.pages[page] ?? "" } }));
    if (this.isDisposed) {
      drawn.dispose();
      return;
    }
    this.drawing?.dispose();
    this.drawing = drawn;
    for (const mark of drawn.node.querySelectorAll(".jp-InternalAnchorLink")) mark.remove();
    for (const head of drawn.node.querySelectorAll<HTMLElement>("h1,h2,h3,h4"))
      head.id = `nbprof-help-${slugOf(head.textContent ?? "")}`;
    for (const link of drawn.node.querySelectorAll("a[href]")) this.tame(link as HTMLAnchorElement, page);
    this.shown = page;
    this.body.replaceChildren(drawn.node);
    this.fill(page, drawn.node);
  }

  /** Links between pages stay in the tab, those to outside open one of the browser, and what is nowhere is a word. */
  private tame(link: HTMLAnchorElement, page: string): void {
    const { topic, outside } = linkOf(link.getAttribute("href") ?? "", page, this.pages);
    if (topic) {
      link.dataset["topic"] = topic;
      link.href = "#";
    } else if (outside) {
      link.target = "_blank";
      link.rel = "noopener noreferrer";
    } else link.replaceWith(...link.childNodes);
  }

  private fill(page: string, node: HTMLElement): void {
    const entry = (text: string, topic: string, current = false): HTMLElement =>
      h("a", { href: "#", "data-topic": topic, "aria-current": current ? "page" : undefined }, text);
    const sections = [...node.querySelectorAll("h2")].map((head) =>
      h("li", entry(head.textContent ?? "", `${page}#${slugOf(head.textContent ?? "")}`)),
    );
    this.list.replaceChildren(
      h(
        "ul",
        ...pageList(this.pages).map((name) =>
          h("li", entry(titleOf(this.pages[name] ?? name), name, name === page), name === page && h("ul", ...sections)),
        ),
      ),
    );
  }

  private heading(section: string): HTMLElement | null {
    return this.body.querySelector(`#${CSS.escape(`nbprof-help-${section}`)}`);
  }

  private follow(event: Event): void {
    const link = (event.target as Element).closest<HTMLElement>("[data-topic]");
    if (!link) return;
    // JupyterLab would follow "#" too.
    event.preventDefault();
    event.stopPropagation();
    void this.open(link.dataset["topic"] ?? START);
  }
}

export const help: JupyterFrontEndPlugin<void> = {
  id: "nbprof:help",
  description: "The pages of nbprof's documentation.",
  autoStart: true,
  requires: [IRenderMimeRegistry],
  optional: [ICommandPalette, IMainMenu, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    registry: IRenderMimeRegistry,
    palette: ICommandPalette | null,
    menu: IMainMenu | null,
    restorer: ILayoutRestorer | null,
  ) => {
    const tracker = new WidgetTracker<MainAreaWidget<HelpView>>({ namespace: "nbprof-help" });
    app.commands.addCommand(COMMAND, {
      label: TITLE,
      caption: "What each view shows, how numbers are computed, how to record",
      describedBy: {
        args: {
          type: "object",
          properties: { topic: { type: "string", description: "A view, a page of docs/, or page#section" } },
        },
      },
      execute: async (args) => {
        let tab = tracker.currentWidget;
        if (!tab) {
          tab = new MainAreaWidget({ content: new HelpView(registry) });
          Object.assign(tab.title, { label: TITLE, icon, closable: true });
          tab.id = "nbprof-help";
          app.shell.add(tab, "main");
          // A page of Notebook 7 has one document: there Help stands beside it.
          if (!tab.isAttached) app.shell.add(tab, "right");
          await tracker.add(tab);
        }
        app.shell.activateById(tab.id);
        await tab.content.open(String(args["topic"] ?? tab.content.topic));
        await tracker.save(tab);
      },
    });
    palette?.addItem({ command: COMMAND, category: "Help" });
    menu?.helpMenu.addGroup([{ command: COMMAND }], 30);
    if (restorer) {
      void restorer.restore(tracker, {
        command: COMMAND,
        args: ({ content }) => ({ topic: content.topic }),
        name: () => "help",
      });
    }
    offerHelp();
    document.addEventListener(HELP_EVENT, (event) => {
      void app.commands.execute(COMMAND, { topic: String((event as CustomEvent).detail) });
    });
  },
};
