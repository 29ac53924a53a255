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
}

export class DashboardRenderer extends Widget implements IRenderMime.IRenderer {
  private board: Dashboard | null = null;
  private version = 0;

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
      const board = await mount(this.node, fromBase64(saved.data));
      if (mine === this.version && !this.isDisposed) this.board = board;
      else board.destroy();
    } catch (error) {
      this.node.textContent = error instanceof Error ? error.message : String(error);
    }
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.version++;
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
