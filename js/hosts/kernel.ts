/**
 * An output that was saved, and the kernel of its notebook: when that has the profile, the output has every event again.
 *
 * Nothing is asked before somebody looks at the trace. What the output sends is a key, questions, and of a trusted
 * notebook the names of files below it; what comes back is drawn, and never run. A kernel that does not know nbprof is
 * found out without a word in its log, and asked again after its next executions, now and then and not for ever.
 */

import type { Line } from "../lib/live.js";
import { Letters } from "../lib/wire.js";
import { answersBeside, type Comm, type Kernel, knows, type Message, newComm, open } from "./comm.js";

const TARGET = "nbprof";
const KEY = /^[0-9a-f]{1,16}-[0-9a-f]{32,40}$/;
const MOST_TRIES = 20;
const PAUSE_MS = 3000;
/** A kernel that has not said by then whether nbprof is there is running a cell, or the machine is busy: its answer is awaited aside. */
const INFO_MS = 1000;

const GONE = "The kernel of this notebook has shut down; the saved view is shown.";
const CLOSED = "The kernel closed the connection; the saved view is shown.";
const ABSENT = "nbprof is not imported in this kernel; the saved view is shown.";

interface Signal<T> {
  connect(slot: (sender: never, value: T) => void, thisArg: object): boolean;
  disconnect(slot: (sender: never, value: T) => void, thisArg: object): boolean;
}

/** What is needed of JupyterLab's ISessionContext. */
export interface Session {
  readonly session: { readonly kernel: Kernel | null } | null;
  /** A kernel came or went. */
  readonly kernelChanged: Signal<unknown>;
  /** Shutting down ends the session, and its kernel with it, without a word about the kernel. */
  readonly sessionChanged: Signal<unknown>;
  readonly statusChanged: Signal<string>;
  readonly iopubMessage: Signal<Message>;
}

/** The profile that an output shows, as its kernel may know it. */
export interface About {
  key: string;
  files?: string[];
}

/** Kernels in which nbprof is known to be; one output finds it out for all. */
const WITH_US = new WeakSet<Kernel>();

/** What a saved output says of its profile, as far as it may be sent: the output may be anybody's. */
export function about(saved: { key?: unknown; files?: unknown }, trusted: boolean): About | null {
  if (typeof saved.key !== "string" || !KEY.test(saved.key)) return null;
  const files = Array.isArray(saved.files) && saved.files.every((file) => typeof file === "string") ? saved.files : [];
  // Files are only looked for where the person trusts the notebook.
  return trusted && files.length ? { key: saved.key, files: files as string[] } : { key: saved.key };
}

/** Connects a line to the kernel of a notebook, and does so again when that comes back. */
export class Link {
  private session: Session | null = null;
  private kernel: Kernel | null = null;
  private comm: Comm | null = null;
  private letters: Letters | null = null;
  /** Ends when the kernel knows the comm; null before it is told of it. */
  private opening: Promise<void> | null = null;
  private tries = 0;
  private last = Number.NEGATIVE_INFINITY;
  private trying = false;
  /** Whether something was executed while nobody looked. */
  private missed = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private ended = false;

  constructor(
    private readonly line: Line,
    private readonly profile: About,
    /** Whether somebody looks at the trace. */
    private readonly shown: () => boolean,
  ) {}

  /** The notebook that the output is in; null where it is in none. */
  watch(session: Session | null): void {
    if (session === this.session) return;
    const { session: old } = this;
    old?.kernelChanged.disconnect(this.changed, this);
    old?.sessionChanged.disconnect(this.changed, this);
    old?.statusChanged.disconnect(this.status, this);
    old?.iopubMessage.disconnect(this.message, this);
    this.session = session;
    session?.kernelChanged.connect(this.changed, this);
    session?.sessionChanged.connect(this.changed, this);
    session?.statusChanged.connect(this.status, this);
    session?.iopubMessage.connect(this.message, this);
    this.changed();
  }

  /** Somebody may look at the trace now; `asked`: by opening it. */
  nudge(asked = false): void {
    // To scroll by it does not ask again what was just said, unless something was run since.
    const quiet = this.tries >= MOST_TRIES || (this.tries > 0 && !this.missed);
    if (quiet && !asked) return;
    this.tries = Math.min(this.tries, MOST_TRIES - 1);
    void this.attempt();
  }

  end(): void {
    this.ended = true;
    this.part("", true);
    this.watch(null);
  }

  private changed(): void {
    const kernel = this.session?.session?.kernel ?? null;
    if (kernel === this.kernel) return;
    this.kernel = kernel;
    this.drop(GONE);
    void this.attempt();
  }

  private status(_sender: unknown, status: string): void {
    if (status !== "restarting" && status !== "autorestarting" && status !== "dead") return;
    // The same connection, and another process behind it.
    if (this.kernel) WITH_US.delete(this.kernel);
    this.drop(GONE);
  }

  private message(_sender: unknown, { header, parent_header, content }: Message): void {
    const executed = header.msg_type === "status" && parent_header.msg_type === "execute_request";
    // It may have imported nbprof, or loaded the profile.
    if (!executed || content["execution_state"] !== "idle") return;
    this.missed = true;
    void this.attempt();
  }

  /** Forgets the connection and what is known of the kernel. */
  private drop(reason: string): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.tries = 0;
    this.part(reason);
  }

  /** A kernel that has the other end is told; one that was restarted would only wonder in its log. */
  private part(reason: string, tell = false): void {
    const { comm, letters, opening } = this;
    this.comm = this.letters = this.opening = null;
    if (!comm) return;
    this.line.detach(reason);
    letters?.close(reason);
    // What the kernel has not heard of it cannot close.
    void opening?.then(() => tell && !comm.isDisposed && comm.close()).catch(() => undefined);
  }

  private async attempt(): Promise<void> {
    const { kernel } = this;
    if (this.ended || !kernel || this.comm || this.trying || this.tries >= MOST_TRIES || !this.shown()) return;
    const wait = this.last + PAUSE_MS - performance.now();
    if (wait > 0) {
      this.timer ??= setTimeout(() => {
        this.timer = undefined;
        void this.attempt();
      }, wait);
      return;
    }
    this.missed = false;
    this.tries++;
    this.last = performance.now();
    this.trying = true;
    try {
      const asked = WITH_US.has(kernel) ? Promise.resolve(true) : present(kernel);
      const here = await soon(asked);
      if (kernel !== this.kernel || this.ended) return;
      if (here === undefined) void asked.then((late) => this.answered(kernel, late));
      if (here === false) this.line.reason = ABSENT;
      // One that does not say so is not told of a comm: without nbprof it would complain below the cell that it runs.
      if (!here) return;
      WITH_US.add(kernel);
      await this.connect(kernel);
    } catch {
      // No comms on this connection, or the kernel is gone: the output stays what was saved.
      this.comm = this.letters = this.opening = null;
    } finally {
      this.trying = false;
      // The notebook went to another kernel while this one kept the output waiting.
      if (kernel !== this.kernel) void this.attempt();
    }
  }

  /** What a kernel says that was running a cell, or that a busy machine kept waiting. */
  private answered(kernel: Kernel, here: boolean | null): void {
    if (kernel !== this.kernel || !here) return;
    WITH_US.add(kernel);
    void this.attempt();
  }

  private async connect(kernel: Kernel): Promise<void> {
    const comm = newComm(kernel, TARGET);
    const letters = new Letters((message) => void comm.send(message));
    this.comm = comm;
    this.letters = letters;
    comm.onMsg = ({ content, buffers }) => letters.receive(content["data"], buffers);
    comm.onClose = () => {
      if (this.comm === comm) this.part(CLOSED);
    };
    // On a thread of its own in the kernel, where that has such; otherwise it waits for the cell that runs.
    await answersBeside(kernel, comm);
    if (this.comm !== comm) return;
    this.opening = open(comm, {});
    await this.opening;
    if (this.comm !== comm) return;
    // Whoever waits for the answer does so without keeping the next attempt from being made when this one is dropped.
    void this.line.attach(letters.post, { ...this.profile }).then((live) => {
      if (live) {
        this.tries = 0;
        WITH_US.add(kernel);
      } else if (this.comm === comm) {
        const { reason } = this.line;
        this.part(reason, true);
      }
    });
  }
}

/** Whether nbprof is in a kernel; null where it can not be asked beside the cell that it runs. */
function present(kernel: Kernel): Promise<boolean | null> {
  const asked: Promise<boolean | null> =
    kernel.status === "busy"
      ? knows(kernel, TARGET)
      : kernel
          .requestCommInfo({ target_name: TARGET })
          .then(({ content }) => Object.keys(content.comms ?? {}).length > 0);
  return asked.catch(() => false);
}

/** An answer that comes soon; undefined where it does not. */
async function soon<T>(asked: Promise<T>): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), INFO_MS);
  });
  const answer = await Promise.race([asked, late]);
  clearTimeout(timer);
  return answer;
}
