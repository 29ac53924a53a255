/**
 * Questions on their way to Python: a few at a time, those of a person before tiles, the newest tiles first, and none
 * that nobody waits for any more.
 */

import { unpack } from "./codec.js";
import { listen } from "./dom.js";
import type { Asker, News, Post, Reply, Request, WireState } from "./wire.js";

/** More at a time would only wait in Python, where they can neither be reordered nor taken back. */
const AT_ONCE = 3;
const TIMEOUT_MS = 15_000;
/** A report is drawn, and two runs are compared, only when somebody asks for it. */
const LONG_MS = 120_000;
const LONG = ["report", "compare"];
/** Experiments wait for the cell that runs, and take their time. */
const ENDLESS = ["try"];

const SILENT = "Python does not answer; it may be busy running a cell.";
const UNCONNECTED = "No connection to Python.";

interface Job {
  request: Request;
  resolve(reply: Reply): void;
  reject(error: Error): void;
  /** Aborted when nobody waits for it. */
  gone: AbortController;
  /** How often it was sent. */
  sent: number;
  news: News | undefined;
}

const aborted = (): Error => new DOMException("This answer is no longer needed.", "AbortError");

/** An Asker whose way to Python may come and go. */
export class Line implements Asker {
  state: WireState = "none";
  reason = "";
  private post: Post | null = null;
  /** Counts the ways that there were: what comes late by an older one is told from that. */
  private way = 0;
  private waiting: Job[] = [];
  private under = 0;
  /** Answers that came by any way. */
  private heard = 0;
  private readonly listeners = new Set<(state: WireState) => void>();

  constructor(private readonly limits: { atOnce?: number; timeout_ms?: number } = {}) {}

  /**
   * Goes live by a way, once it has answered a greeting; `about` says which profile is meant. False where Python says
   * no, which `reason` then tells. An answer may take as long as it likes: the cell that runs may have to end first.
   */
  async attach(post: Post, about: Record<string, unknown> = {}): Promise<boolean> {
    this.detach("");
    const way = ++this.way;
    try {
      const reply = (await unpack(
        await post({ ...about, ask: "hello" }, new AbortController().signal),
      )) as unknown as Reply;
      if (way !== this.way) return false;
      if (reply["ok"] !== true) throw new Error(String(reply["error"] ?? UNCONNECTED));
    } catch (error) {
      if (way === this.way) this.reason = error instanceof Error ? error.message : String(error);
      return false;
    }
    this.post = post;
    this.reason = "";
    this.turn("live");
    return true;
  }

  /** The way is gone. What still waits for an answer is told so. */
  detach(reason: string): void {
    this.way++;
    this.post = null;
    this.under = 0;
    this.reason = reason;
    this.turn(this.state === "none" ? "none" : "lost");
    this.refuse(reason || UNCONNECTED);
  }

  ask(request: Request, signal?: AbortSignal, news?: News): Promise<Reply> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) throw aborted();
      if (!this.post || this.state !== "live") throw new Error(this.reason || UNCONNECTED);
      const gone = new AbortController();
      const job: Job = { request, resolve, reject, gone, sent: 0, news };
      if (signal) {
        const drop = (): void => {
          this.waiting = this.waiting.filter((other) => other !== job);
          gone.abort();
          reject(aborted());
        };
        // Listens no longer than the answer takes: one signal may be that of a view that lives for hours.
        listen(signal, "abort", drop, { signal: gone.signal });
      }
      this.waiting.push(job);
      this.pump();
    });
  }

  onState(fn: (state: WireState) => void, signal: AbortSignal): void {
    if (signal.aborted) return;
    this.listeners.add(fn);
    listen(signal, "abort", () => this.listeners.delete(fn), { once: true });
  }

  private turn(state: WireState): void {
    if (state === this.state) return;
    this.state = state;
    for (const fn of [...this.listeners]) fn(state);
  }

  private refuse(reason: string): void {
    for (const job of this.waiting.splice(0)) this.fail(job, new Error(reason));
  }

  private fail(job: Job, error: Error): void {
    job.reject(error);
    job.gone.abort();
  }

  private pump(): void {
    while (this.post && this.under < (this.limits.atOnce ?? AT_ONCE) && this.waiting.length) {
      // A person waits for any other answer; of tiles, the newest are those of where the view is now.
      const first = this.waiting.findIndex((job) => job.request.ask !== "tiles");
      const [job] = this.waiting.splice(first < 0 ? this.waiting.length - 1 : first, 1);
      // One that was sent again may have had its first answer by now.
      if (job && !job.gone.signal.aborted) void this.carry(job, this.post);
    }
  }

  private async carry(job: Job, post: Post): Promise<void> {
    const { way } = this;
    const before = this.heard;
    let counted = true;
    const leave = (): void => {
      if (counted && way === this.way) this.under--;
      counted = false;
    };
    this.under++;
    job.sent++;
    const late = (): void => {
      leave();
      if (way !== this.way) return;
      if (job.gone.signal.aborted) this.silence(before);
      else if (job.request.ask === "tiles" && job.sent < 2) this.waiting.push(job);
      else {
        this.fail(job, new Error(SILENT));
        this.silence(before);
      }
      this.pump();
    };
    const limit = this.limits.timeout_ms ?? (LONG.includes(job.request.ask) ? LONG_MS : TIMEOUT_MS);
    const timer = ENDLESS.includes(job.request.ask) ? undefined : setTimeout(late, limit);
    try {
      const reply = (await unpack(await post(job.request, job.gone.signal, job.news))) as unknown as Reply;
      if (way === this.way) {
        this.heard++;
        this.reason = "";
        // It was taken for lost, and only came late.
        this.turn("live");
      }
      if (reply["ok"] === true) job.resolve(reply);
      else job.reject(new Error(String(reply["error"] ?? "The request failed.")));
    } catch (error) {
      job.reject(error instanceof Error ? error : new Error(String(error)));
    } finally {
      clearTimeout(timer);
      leave();
      job.gone.abort();
      this.pump();
    }
  }

  /** No answer in time: where none at all has come since, the way is taken for lost until one does. */
  private silence(before: number): void {
    if (this.heard !== before) return;
    this.reason = SILENT;
    this.turn("lost");
    this.refuse(SILENT);
  }
}
