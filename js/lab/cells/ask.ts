/** A question to the kernel that leaves no trace in the notebook: no output, no history, no execution count. */

interface Reply {
  content: {
    status: string;
    user_expressions?: Record<string, unknown>;
    ename?: string;
    evalue?: string;
  };
}

/** What is needed of JupyterLab's IKernelConnection. */
export interface Askable {
  requestExecute(content: {
    code: string;
    silent: boolean;
    store_history: boolean;
    allow_stdin: boolean;
    stop_on_error: boolean;
    user_expressions: Record<string, string>;
  }): { done: Promise<unknown> };
}

export type Answer =
  | { kind: "answer"; value: string }
  /** The expression failed. */
  | { kind: "error"; name: string; text: string }
  /** A cell before it failed, and what waited was given up; or the kernel is gone. */
  | { kind: "dropped" }
  /** Not an IPython kernel. */
  | { kind: "mute" };

/** A text as Python writes it: what JSON writes is Python, too. */
export const literal = (text: string): string => JSON.stringify(text);

/** Evaluates a Python expression; its place in the kernel's queue is taken when this returns, before the answer is there. */
export async function ask(kernel: Askable, expression: string): Promise<Answer> {
  try {
    const future = kernel.requestExecute({
      code: "",
      silent: true,
      store_history: false,
      allow_stdin: false,
      stop_on_error: false,
      user_expressions: { nbprof: expression },
    });
    return answerOf((await future.done) as Reply);
  } catch {
    return { kind: "dropped" };
  }
}

export function answerOf({ content }: Reply): Answer {
  if (content.status === "aborted" || content.status === "abort") return { kind: "dropped" };
  if (content.status !== "ok") return { kind: "error", name: content.ename ?? "", text: content.evalue ?? "" };
  const reply = content.user_expressions?.["nbprof"] as
    | { status?: string; data?: Record<string, unknown>; ename?: string; evalue?: string }
    | undefined;
  if (!reply) return { kind: "mute" };
  if (reply.status === "error") return { kind: "error", name: reply.ename ?? "", text: reply.evalue ?? "" };
  return { kind: "answer", value: String(reply.data?.["text/plain"] ?? "") };
}
