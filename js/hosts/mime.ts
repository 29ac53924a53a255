/** Saved output in JupyterLab and Notebook: draws application/vnd.nbprof.v1+json, trusted or not. */

import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Widget } from "@lumino/widgets";
import { fromBase64, inPage } from "../lib/codec.js";
import { Line } from "../lib/live.js";
import type { Code } from "../lib/payload.js";
import { MIME_TYPE } from "../lib/saved.js";
import { about, Link, type Session } from "./kernel.js";
import { type BoardState, type Dashboard, mount } from "./page.js";
import { say } from "./shown.js";

/** How long a notebook without a kernel is taken to be starting one, in ms. */
const PATIENCE = 4000;

/** What a kernel says that runs its cell no more. Not "idle": that is also said when something beside the cell was answered. */
export const GONE = new Set(["restarting", "autorestarting", "terminating", "dead"]);

/** Whether the cell that an output is of runs no more: one that runs has a star for its number. */
const hasEnded = (output: Element): boolean =>
  output.closest(".jp-CodeCell")?.querySelector(".jp-InputPrompt")?.textContent?.includes("*") === false;

/** What the mime bundle of a profiled cell holds under MIME_TYPE. */
interface Saved {
  v: number;
  version: string;
  /** Absent where the HTML of the same output holds the data. */
  data?: string;
  /** The first picture of a run that is being analysed: the whole follows in its place. */
  early?: boolean;
  /** In px; absent: as high as the content. */
  height?: number;
  /** What the kernel may know the profile by. */
  key?: string;
  /** Its files, below the notebook. */
  files?: string[];
}

/** The session of the document that a widget is in. */
export function sessionOf(widget: Widget): Session | null {
  for (let above = widget.parent; above; above = above.parent) {
    const { context } = above as Widget & { context?: { sessionContext?: Session } };
    if (context?.sessionContext) return context.sessionContext;
  }
  return null;
}

export class DashboardRenderer extends Widget implements IRenderMime.IRenderer {
  private board: Dashboard | null = null;
  private early = false;
  private code: Code | null = null;
  private version = 0;
  private session: Session | null = null;
  private link: Link | null = null;
  private observer: IntersectionObserver | null = null;
  private seen = false;
  /** Whether it is settled if there is a kernel. */
  private known = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    super();
    this.addClass("nbprof-output");
  }

  /** Draws the model. It resolves when the dashboard stands, so that the notebook measures it at its size. */
  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const current = ++this.version;
    const saved = model.data[MIME_TYPE] as unknown as Partial<Saved> | undefined;
    try {
      const newer = "This output was written by a newer nbprof. Update nbprof to see it.";
      if (saved?.v !== 1) throw new Error(newer);
      // Found again each time it is drawn: a dashboard that rests holds no bytes.
      const packed = (): Uint8Array => {
        const found =
          typeof saved.data === "string" ? fromBase64(saved.data) : inPage(String(model.data["text/html"] ?? ""));
        if (!found) throw new Error(newer);
        return found;
      };
      const height = Number(saved.height) || 0;
      const profile = about(saved, model.trusted);
      const line = profile ? new Line() : undefined;
      const onTab = (): void => this.link?.nudge(true);
      // Nothing is asked of the kernel before the trace is looked at, or a button of the header is used.
      let asked = false;
      const connect = (): void => {
        asked = true;
        this.link?.nudge(true);
      };
      // Where a reader has come to in the first picture, the whole goes on: asked for when it is drawn.
      let code: Code | null = null;
      const shown = (): BoardState | undefined => (this.early ? this.board?.state() : undefined);
      // What is shown stays until the new one stands: nothing below it jumps.
      const board = await mount(this.node, packed, {
        height,
        onTab,
        get state() {
          return shown();
        },
        onPayload: ({ overview }) => {
          code = overview.code ?? null;
        },
        ...(line && { ask: line, connect }),
      });
      if (current === this.version && !this.isDisposed) {
        this.end();
        this.board = board;
        this.early = saved.early === true;
        this.code = code;
        say(this.node, code);
        if (profile && line)
          this.connect(new Link(line, profile, () => asked || (this.seen && board.tab() === "trace")));
        if (this.known) this.tell();
      } else board.destroy();
    } catch (error) {
      if (current !== this.version) return;
      this.end();
      this.node.textContent = error instanceof Error ? error.message : String(error);
    }
  }

  protected override onAfterAttach(): void {
    this.unwatch();
    if (this.code) say(this.node, this.code);
    const session = sessionOf(this);
    if (!session) return;
    this.session = session;
    this.link?.watch(session);
    session.kernelChanged.connect(this.tell, this);
    session.sessionChanged.connect(this.tell, this);
    session.statusChanged.connect(this.status, this);
    // A notebook that is being opened may still start its kernel; one that asks for a kernel first says nothing at all.
    this.timer = setTimeout(() => this.tell(), session.session?.kernel ? 0 : PATIENCE);
  }

  protected override onBeforeDetach(): void {
    this.unwatch();
  }

  private connect(link: Link): void {
    this.link = link;
    if (this.session) link.watch(this.session);
    this.observer = new IntersectionObserver((entries) => {
      this.seen = entries.some((entry) => entry.isIntersecting);
      if (this.seen) link.nudge();
    });
    this.observer.observe(this.node);
  }

  /** A report without its kernel says that it is one. Where no session is to be found nothing is said. */
  private tell(): void {
    clearTimeout(this.timer);
    this.known = this.session !== null;
    if (this.session)
      this.board?.setLive(Boolean(this.session.session?.kernel) && !(this.early && hasEnded(this.node)));
  }

  /** A first picture whose kernel is ended in the middle gets no further. */
  private status(_sender: unknown, status: string): void {
    if (this.early && GONE.has(status)) this.board?.setLive(false);
  }

  private unwatch(): void {
    clearTimeout(this.timer);
    this.known = false;
    this.session?.kernelChanged.disconnect(this.tell, this);
    this.session?.sessionChanged.disconnect(this.tell, this);
    this.session?.statusChanged.disconnect(this.status, this);
    this.session = null;
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.version++;
    this.unwatch();
    this.end();
    super.dispose();
  }

  private end(): void {
    this.observer?.disconnect();
    this.observer = null;
    this.link?.end();
    this.link = null;
    this.board?.destroy();
    this.board = null;
  }
}

/** Safe without trust: it parses data, evaluates nothing, and writes text only as text. */
export const rendererFactory: IRenderMime.IRendererFactory = {
  safe: true,
  mimeTypes: [MIME_TYPE],
  defaultRank: -20,
  createRenderer: () => new DashboardRenderer(),
};
