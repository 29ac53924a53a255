/** How a view asks Python for more than it was given: a kernel through a widget or a comm, or the server. */

/** A request of the timeline; `ask` says which. Its answer is JSON with columns. */
export interface Request {
  ask: string;
  [key: string]: unknown;
}

export type Reply = Record<string, unknown>;

export type WireState = "live" | "lost" | "none";

export interface Asker {
  /** Rejects when there is no answer: not connected, aborted, or the request failed. */
  ask(request: Request, signal?: AbortSignal): Promise<Reply>;
  readonly state: WireState;
  /** Calls back at each change of the state until the signal aborts. */
  onState(fn: (state: WireState) => void, signal: AbortSignal): void;
}
