/** Saved output in JupyterLab and Notebook: draws application/vnd.nbprof.v1+json, trusted or not. */

import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Widget } from "@lumino/widgets";
import { fromBase64 } from "../lib/codec.js";
import { type Dashboard, mount } from "./page.js";

export const MIME_TYPE = "application/vnd.nbprof.v1+json";

/** What the mime bundle of a profiled cell holds under MIME_TYPE. */
interface Saved {
  v: number;
  version: string;
  data: string;
  /** In px; absent: as high as the content. */
  height?: number;
}

/** What is needed of JupyterLab's ISessionContext. */
interface Session {
  readonly isReady: boolean;
  readonly ready: Promise<void>;
  readonly session: { readonly kernel: unknown } | null;
  readonly kernelChanged: {
    connect(slot: () => void, thisArg: object): boolean;
    disconnect(slot: () => void, thisArg: object): boolean;
  };
}

/** The session of the document that a widget is in. */
function sessionOf(widget: Widget): Session | null {
  for (let above = widget.parent; above; above = above.parent) {
    const { context } = above as Widget & { context?: { sessionContext?: Session } };
    if (context?.sessionContext) return context.sessionContext;
  }
  return null;
}

export class DashboardRenderer extends Widget implements IRenderMime.IRenderer {
  private board: Dashboard | null = null;
  private version = 0;
  private session: Session | null = null;

  constructor() {
    super();
    this.addClass("nbprof-output");
  }

  /** Draws the model. It resolves when the dashboard stands, so that the notebook measures it at its size. */
  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const mine = ++this.version;
    const saved = model.data[MIME_TYPE] as unknown as Partial<Saved> | undefined;
    this.end();
    try {
      if (saved?.v !== 1 || typeof saved.data !== "string") {
        throw new Error("This output was written by a newer nbprof. Update nbprof to see it.");
      }
      const height = Number(saved.height) || 0;
      const board = await mount(this.node, fromBase64(saved.data), { height });
      if (mine === this.version && !this.isDisposed) {
        this.board = board;
        this.tell();
      } else board.destroy();
    } catch (error) {
      this.node.textContent = error instanceof Error ? error.message : String(error);
    }
  }

  protected override onAfterAttach(): void {
    this.unwatch();
    const session = sessionOf(this);
    if (!session) return;
    this.session = session;
    session.kernelChanged.connect(this.tell, this);
    // Until the notebook has tried to start its kernel there is nothing to say.
    void session.ready.then(() => this.tell());
  }

  protected override onBeforeDetach(): void {
    this.unwatch();
  }

  /** A report without its kernel says that it is one. Where no session is to be found nothing is said. */
  private tell(): void {
    if (this.session?.isReady) this.board?.setLive(Boolean(this.session.session?.kernel));
  }

  private unwatch(): void {
    this.session?.kernelChanged.disconnect(this.tell, this);
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
