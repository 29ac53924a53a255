/**
 * The live status of a profiled cell in JupyterLab: what the cell does while it runs, and the button that ends the
 * recording. What a saved notebook holds of it, where a kernel was ended in the middle, is a line of text.
 */

import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Widget } from "@lumino/widgets";
import { h } from "../lib/dom.js";
import { endedText, hasEnded } from "../lib/ended.js";
import type { Comm, Kernel } from "./comm.js";
import { answersBeside, newComm, open } from "./comm.js";
import type { Session } from "./kernel.js";
import { GONE, sessionOf } from "./mime.js";

export const STRIP_TYPE = "application/vnd.nbprof.strip.v1+json";
export const STRIP_TARGET = "nbprof-strip";

/** A kernel that has said nothing for so long is busy with something that lets no thread run, or gone. */
const SILENT_MS = 10_000;
/** Who listens is told of a new phase, and of the steps not more often than this. */
const SAY_MS = 60_000;

interface Item {
  name: string;
  value: string;
  about: string;
  share?: number;
}

/** What nbprof/notebook/live_status.py sends. */
interface Strip {
  v: number;
  id: string;
  kind: string;
  head: string;
  items: Item[];
  stops: boolean;
  text: string;
}

export class StripRenderer extends Widget implements IRenderMime.IRenderer {
  private strip: Strip | null = null;
  private model: IRenderMime.IMimeModel | null = null;
  private drawn = 0;
  private session: Session | null = null;
  private comm: Comm | null = null;
  private asked = false;
  private silent: ReturnType<typeof setTimeout> | undefined;
  private said = "";
  private saidAt = Number.NEGATIVE_INFINITY;
  private readonly head = h("span.head");
  private readonly items = h("span.items");
  private readonly stop = h("button", { type: "button", hidden: "" }, "Stop and analyse") as HTMLButtonElement;
  private readonly voice = h("span.voice", { role: "status" });

  constructor() {
    super();
    this.addClass("nbprof-strip");
    this.stop.title = "Stop recording after this step. The cell keeps running, and its profile is shown when it ends.";
    this.stop.addEventListener("click", () => this.press());
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const strip = model.data[STRIP_TYPE] as unknown as Strip | undefined;
    if (strip?.v !== 1 || !Array.isArray(strip.items)) {
      this.node.textContent = "This output was written by a newer nbprof.";
      return;
    }
    this.strip = strip;
    this.model = model;
    this.drawn++;
    this.draw();
  }

  protected override onAfterAttach(): void {
    this.session = sessionOf(this);
    this.session?.statusChanged.connect(this.status, this);
    this.draw();
  }

  protected override onBeforeDetach(): void {
    this.session?.statusChanged.disconnect(this.status, this);
    this.session = null;
  }

  override dispose(): void {
    if (this.isDisposed) return;
    clearTimeout(this.silent);
    this.part();
    super.dispose();
  }

  private get kernel(): Kernel | null {
    return this.session?.session?.kernel ?? null;
  }

  private draw(): void {
    const { strip } = this;
    if (!strip) return;
    // One that is opened with a notebook is drawn once, and as a rule its kernel runs nothing.
    if (hasEnded(strip.text) || (this.drawn < 2 && this.kernel?.status !== "busy")) {
      this.rest();
      return;
    }
    if (!this.head.isConnected) this.node.replaceChildren(h("span.dot"), this.head, this.items, this.stop, this.voice);
    this.node.dataset["kind"] = strip.kind;
    write(this.head, strip.head);
    this.fill(strip.items);
    this.stop.hidden = !this.comm || !strip.stops;
    this.say(strip);
    clearTimeout(this.silent);
    this.silent = setTimeout(() => this.rest(), SILENT_MS);
    if (this.drawn > 1 && !this.asked) void this.reach(strip.id);
  }

  /** Writes what has changed: the elements stay, so that a title that is read or a text that is marked does too. */
  private fill(items: Item[]): void {
    const { children } = this.items;
    while (children.length > items.length) children[children.length - 1]?.remove();
    for (const [i, { name, value, about, share }] of items.entries()) {
      const single =
        (children[i] as HTMLElement | undefined) ??
        this.items.appendChild(h("span.item", h("i"), h("b"), h("s", h("u"))));
      const [label, text, bar] = single.children as unknown as [HTMLElement, HTMLElement, HTMLElement];
      write(label, name);
      write(text, value);
      if (single.title !== about) single.title = about;
      single.dataset["name"] = name;
      bar.hidden = typeof share !== "number";
      (bar.firstElementChild as HTMLElement).style.width = `${100 * Math.min(Math.max(share ?? 0, 0), 1)}%`;
    }
  }

  private say({ head, items }: Strip): void {
    const now = performance.now();
    if (head === this.said && now - this.saidAt < SAY_MS) return;
    this.said = head;
    this.saidAt = now;
    const step = items.find(({ name }) => name === "step");
    write(this.voice, `nbprof: ${head}${step ? `, step ${step.value}` : ""}`);
  }

  /** Nothing comes any more: what was said last, as a line, and that it is over where no kernel runs the cell. */
  private rest(over = this.kernel?.status !== "busy"): void {
    clearTimeout(this.silent);
    if (!this.strip) return;
    delete this.node.dataset["kind"];
    this.node.replaceChildren(over ? endedText(this.strip.text) : this.strip.text);
  }

  private status(_sender: unknown, status: string): void {
    if (!GONE.has(status)) return;
    this.part();
    this.rest(true);
    this.keep();
  }

  /** What the notebook saves must not say that it records, wherever it is shown. */
  private keep(): void {
    const { strip, model } = this;
    this.model = null;
    if (!strip || !model) return;
    const text = endedText(strip.text);
    try {
      model.setData({ data: { [STRIP_TYPE]: { ...strip, items: [], stops: false, text }, ...asText(text) } });
    } catch {
      // A document that cannot be changed.
    }
  }

  /** Opens the way back, where the kernel hears it while it runs a cell; the button is there once it has answered. */
  private async reach(id: string): Promise<void> {
    const { kernel } = this;
    if (!kernel) return;
    this.asked = true;
    try {
      const comm = newComm(kernel, STRIP_TARGET);
      if (!(await answersBeside(kernel, comm)) || this.isDisposed) return;
      comm.onMsg = ({ content }) => {
        const { ready, stopping } = content["data"] as { ready?: boolean; stopping?: boolean };
        if (ready && !this.isDisposed) this.comm = comm;
        // It has ended by itself meanwhile, or could not be ended.
        if (stopping === false) this.stop.disabled = false;
        if (this.strip) this.stop.hidden = !this.comm || !this.strip.stops;
      };
      comm.onClose = () => {
        this.comm = null;
        this.stop.hidden = true;
      };
      await open(comm, { id });
      // It came too late: the cell has ended meanwhile.
      if (this.isDisposed && !comm.isDisposed) comm.close();
    } catch {
      // No way back: Ctrl-C and the Stop button of the notebook are there.
    }
  }

  private press(): void {
    this.stop.disabled = true;
    try {
      this.comm?.send({ ask: "stop" });
    } catch {
      this.stop.hidden = true;
    }
  }

  private part(): void {
    const { comm } = this;
    this.comm = null;
    try {
      if (comm && !comm.isDisposed) comm.close();
    } catch {
      // Its kernel is gone already.
    }
  }
}

/** A line for front ends without nbprof. */
function asText(text: string): { "text/plain": string; "text/html": string } {
  const line = h("div", null, text);
  line.style.cssText = "font-size:12px;line-height:20px;opacity:.75;font-variant-numeric:tabular-nums";
  return { "text/plain": text, "text/html": new XMLSerializer().serializeToString(line) };
}

function write(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Safe without trust: it writes text as text. */
export const stripFactory: IRenderMime.IRendererFactory = {
  safe: true,
  mimeTypes: [STRIP_TYPE],
  defaultRank: -20,
  createRenderer: () => new StripRenderer(),
};
