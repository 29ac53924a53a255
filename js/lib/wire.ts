/** How a view asks Python for more than it was given: a kernel through a widget or a comm, or the server. */

/** A request of the timeline; `ask` says which. Its answer is JSON with columns. */
export interface Request {
  ask: string;
  [key: string]: unknown;
}

export type Reply = Record<string, unknown>;

/** Hears what a long request does. */
export type News = (text: string) => void;

export type WireState = "live" | "lost" | "none";

export interface Asker {
  /** Rejects when there is no answer: not connected, aborted, too late, or the request failed. */
  ask(request: Request, signal?: AbortSignal, news?: News): Promise<Reply>;
  readonly state: WireState;
  /** Why it is not live, as a sentence; "" where nothing is known. */
  readonly reason: string;
  /** Calls back at each change of the state until the signal aborts. */
  onState(fn: (state: WireState) => void, signal: AbortSignal): void;
}

/** An answer as it travels: the container of nbprof/display/codec.py. */
export type Packed = DataView | Uint8Array | ArrayBuffer;

/**
 * Brings one request to Python and its answer back. It rejects when the way is closed. The signal tells that nobody
 * waits any more; a way that cannot take a request back ignores it.
 */
export type Post = (request: Request, signal: AbortSignal, news?: News) => Promise<Packed>;

interface Waiting {
  news: News | undefined;
  resolve(answer: Packed): void;
  reject(error: Error): void;
}

/**
 * Requests over a channel that only carries messages both ways, as a comm does: each gets a number, and so its answer.
 *
 * A request is {id, request}; its answer {id} with one buffer. Before that, {id, news} may say what a long one does.
 */
export class Letters {
  // Several views may hear the same channel; an answer must not reach the wrong one.
  private readonly sender = Math.random().toString(36).slice(2, 10);
  private readonly waiting = new Map<string, Waiting>();
  private count = 0;
  private closed = "";

  constructor(private readonly send: (message: { id: string; request: Request }) => void) {}

  readonly post: Post = (request, _signal, news) =>
    new Promise((resolve, reject) => {
      if (this.closed) throw new Error(this.closed);
      const id = `${this.sender}-${++this.count}`;
      this.send({ id, request });
      this.waiting.set(id, { resolve, reject, news });
    });

  /** A message came; what is no answer to one of these requests is left alone. */
  receive(message: unknown, buffers: readonly unknown[] | undefined): void {
    const { id, news } = (message ?? {}) as { id?: unknown; news?: unknown };
    const request = typeof id === "string" ? this.waiting.get(id) : undefined;
    if (!request) return;
    if (typeof news === "string") {
      request.news?.(news);
      return;
    }
    this.waiting.delete(id as string);
    const answer = buffers?.[0];
    if (answer instanceof ArrayBuffer || ArrayBuffer.isView(answer)) request.resolve(answer as Packed);
    else request.reject(new Error("The answer has no data."));
  }

  /** Nothing will come any more. */
  close(reason: string): void {
    this.closed = reason;
    for (const request of this.waiting.values()) request.reject(new Error(reason));
    this.waiting.clear();
  }
}
