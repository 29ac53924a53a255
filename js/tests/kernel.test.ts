import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Comm, Kernel } from "../hosts/comm.js";
import { type About, about, Link, type Session } from "../hosts/kernel.js";
import { Line } from "../lib/live.js";

const KEY = `1f-${"ab".repeat(20)}`;

class Told<T> {
  private slots: [(sender: never, value: T) => void, object][] = [];
  connect(slot: (sender: never, value: T) => void, thisArg: object): boolean {
    this.slots.push([slot, thisArg]);
    return true;
  }
  disconnect(slot: (sender: never, value: T) => void, thisArg: object): boolean {
    this.slots = this.slots.filter(([s, t]) => s !== slot || t !== thisArg);
    return true;
  }
  emit(value: T): void {
    for (const [slot, thisArg] of [...this.slots]) slot.call(thisArg, undefined as never, value);
  }
  get count(): number {
    return this.slots.length;
  }
}

const packed = (reply: unknown): Uint8Array => {
  const text = new TextEncoder().encode(JSON.stringify(reply));
  const out = new Uint8Array(4 + text.length);
  new DataView(out.buffer).setUint32(0, text.length, true);
  out.set(text, 4);
  return out;
};

/** A kernel as JupyterLab shows it; `knows` are the keys of the profiles that it has, null where nbprof is not imported. */
class FakeKernel {
  status = "idle";
  info = Promise.resolve();
  supportsSubshells = true;
  asked = 0;
  /** Questions that came beside the cell that runs. */
  beside = 0;
  made: FakeComm[] = [];
  answers = true;
  /** When a comm is heard of. */
  slow = Promise.resolve();
  /** When it says whether nbprof is there. */
  late = Promise.resolve();
  constructor(public knows: string[] | null) {}
  requestCommInfo({ target_name }: { target_name: string }): Promise<{ content: { comms?: object } }> {
    this.asked++;
    if (this.status === "busy") return new Promise(() => undefined);
    return this.late.then(() => ({ content: { comms: this.knows && target_name === "nbprof" ? { nbprof: {} } : {} } }));
  }
  createComm(target: string): Comm {
    expect(target).toBe("nbprof");
    const comm = new FakeComm(this);
    this.made.push(comm);
    return comm;
  }
  sendShellMessage(message: object): { done: Promise<unknown> } {
    expect(message).toMatchObject({ header: { msg_type: "comm_info_request", subshell_id: "beside" } });
    this.beside++;
    return { done: Promise.resolve({ content: { comms: this.knows ? { nbprof: {} } : {} } }) };
  }
  /** Those that the kernel was told of. */
  get comms(): FakeComm[] {
    return this.made.filter(({ opened }) => opened);
  }
  get sent(): { id: string; request: Record<string, unknown> }[] {
    return this.comms.flatMap((comm) => comm.sent);
  }
}

class FakeComm implements Comm {
  isDisposed = false;
  opened = 0;
  closed = 0;
  sent: { id: string; request: Record<string, unknown> }[] = [];
  commsOverSubshells = "perCommTarget";
  subshellStarted = Promise.resolve();
  subshellId = "beside";
  onMsg: Comm["onMsg"] = () => undefined;
  onClose: Comm["onClose"] = () => undefined;
  constructor(private readonly kernel: FakeKernel) {}
  open(): { done: Promise<void> } {
    this.opened++;
    if (!this.kernel.knows) queueMicrotask(() => this.closeFromKernel());
    return { done: this.kernel.slow };
  }
  send(data: { id: string; request: Record<string, unknown> }): void {
    this.sent.push(data);
    if (this.kernel.answers && this.kernel.knows) this.reply(data.id, data.request);
  }
  reply(id: string, request: Record<string, unknown>): void {
    const known = this.kernel.knows?.includes(String(request["key"])) || request["ask"] !== "hello";
    const buffers = [
      packed(known ? { ok: true } : { ok: false, error: "This kernel has not got it." }).buffer as ArrayBuffer,
    ];
    const message = { header: { msg_type: "comm_msg" }, parent_header: {}, content: { data: { id } }, buffers };
    queueMicrotask(() => this.onMsg(message));
  }
  closeFromKernel(): void {
    this.onClose({ header: { msg_type: "comm_close" }, parent_header: {}, content: {} });
    this.isDisposed = true;
  }
  close(): void {
    this.closed++;
    this.isDisposed = true;
  }
}

class FakeSession {
  session: { kernel: Kernel | null } | null;
  kernelChanged = new Told<unknown>();
  sessionChanged = new Told<unknown>();
  statusChanged = new Told<string>();
  iopubMessage = new Told<never>();
  constructor(kernel: FakeKernel | null) {
    this.session = { kernel };
  }
  async executed(): Promise<void> {
    const content = { execution_state: "idle" };
    this.iopubMessage.emit({
      header: { msg_type: "status" },
      parent_header: { msg_type: "execute_request" },
      content,
    } as never);
    await vi.advanceTimersByTimeAsync(0);
  }
  get watchers(): number {
    return [this.kernelChanged, this.sessionChanged, this.statusChanged, this.iopubMessage].reduce(
      (sum, s) => sum + s.count,
      0,
    );
  }
}

async function start(kernel: FakeKernel | null, shown = true, profile: About = { key: KEY }) {
  const line = new Line();
  const look = { shown };
  const link = new Link(line, profile, () => look.shown);
  const session = new FakeSession(kernel);
  link.watch(session as unknown as Session);
  await vi.advanceTimersByTimeAsync(0);
  return { line, link, session, look };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("a saved output and its kernel", () => {
  it("goes live where the kernel has the profile, and asks with its key alone", async () => {
    const kernel = new FakeKernel([KEY]);
    const { line } = await start(kernel);
    expect(line.state).toBe("live");
    expect(kernel.sent.map(({ request }) => request)).toEqual([{ ask: "hello", key: KEY }]);
  });

  it("asks nothing before somebody looks at the trace", async () => {
    const kernel = new FakeKernel([KEY]);
    const { line, link, session, look } = await start(kernel, false);
    await session.executed();
    link.nudge(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(kernel.asked + kernel.comms.length).toBe(0);
    look.shown = true;
    link.nudge();
    await vi.advanceTimersByTimeAsync(0);
    expect(line.state).toBe("live");
  });

  it("opens no comm in a kernel without nbprof: that would write to its log", async () => {
    const kernel = new FakeKernel(null);
    const { line, session } = await start(kernel);
    expect(kernel.asked).toBe(1);
    expect(kernel.comms).toEqual([]);
    expect(line.state).toBe("none");
    expect(line.reason).toContain("not imported");
    kernel.knows = [KEY];
    await vi.advanceTimersByTimeAsync(3000);
    await session.executed();
    expect(line.state).toBe("live");
  });

  it("asks again at most every 3 s after executions, and at most 20 times", async () => {
    const kernel = new FakeKernel(null);
    const { session, link } = await start(kernel);
    for (let i = 0; i < 10; i++) await session.executed();
    expect(kernel.asked).toBe(1);
    await vi.advanceTimersByTimeAsync(3000);
    expect(kernel.asked).toBe(2);
    // Without another execution it is left alone.
    await vi.advanceTimersByTimeAsync(600_000);
    expect(kernel.asked).toBe(2);
    for (let i = 0; i < 100; i++) {
      await session.executed();
      await vi.advanceTimersByTimeAsync(3000);
    }
    expect(kernel.asked).toBe(20);
    expect(kernel.comms).toEqual([]);
    // Who opens the trace asks once more; to scroll by it is no question.
    link.nudge();
    await vi.advanceTimersByTimeAsync(3000);
    expect(kernel.asked).toBe(20);
    link.nudge(true);
    await vi.advanceTimersByTimeAsync(0);
    expect(kernel.asked).toBe(21);
  });

  it("asks a busy kernel beside the cell that it runs, and opens no comm where nbprof is not", async () => {
    const kernel = new FakeKernel([KEY]);
    kernel.status = "busy";
    const { line } = await start(kernel);
    expect(line.state).toBe("live");
    expect([kernel.asked, kernel.beside]).toEqual([0, 1]);
    const without = new FakeKernel(null);
    without.status = "busy";
    const other = await start(without);
    expect(without.beside).toBe(1);
    expect(other.line.state).toBe("none");
    expect(other.line.reason).toContain("not imported");
    expect(without.comms).toEqual([]);
  });

  it("leaves a busy kernel alone that answers nothing beside its cell, until that has ended", async () => {
    const kernel = new FakeKernel([KEY]);
    kernel.status = "busy";
    kernel.supportsSubshells = false;
    const { line, session } = await start(kernel);
    await vi.advanceTimersByTimeAsync(60_000);
    expect([kernel.asked, kernel.beside, kernel.comms.length]).toEqual([0, 0, 0]);
    kernel.status = "idle";
    await session.executed();
    expect(line.state).toBe("live");
  });

  it("goes live when the answer of an idle kernel on a busy machine comes late", async () => {
    const kernel = new FakeKernel([KEY]);
    let answer = (): void => undefined;
    kernel.late = new Promise((resolve) => {
      answer = resolve;
    });
    const { line } = await start(kernel);
    await vi.advanceTimersByTimeAsync(60_000);
    expect([kernel.asked, line.state]).toEqual([1, "none"]);
    answer();
    await vi.advanceTimersByTimeAsync(3000);
    expect([kernel.asked, line.state]).toEqual([1, "live"]);
  });

  it("sends nothing over a comm, and does not close it, before the kernel knows it", async () => {
    const kernel = new FakeKernel([KEY]);
    let heard = (): void => undefined;
    kernel.slow = new Promise((resolve) => {
      heard = resolve;
    });
    const { link } = await start(kernel);
    expect(kernel.comms).toHaveLength(1);
    expect(kernel.sent).toEqual([]);
    link.end();
    await vi.advanceTimersByTimeAsync(1000);
    expect(kernel.comms[0]?.closed).toBe(0);
    heard();
    await vi.advanceTimersByTimeAsync(0);
    expect(kernel.comms[0]?.closed).toBe(1);
    expect(kernel.sent).toEqual([]);
  });

  it("keeps a comm that is never opened nor closed, so that the thread behind the others stays", async () => {
    const kernel = new FakeKernel([KEY]);
    const first = await start(kernel);
    await start(kernel);
    first.link.end();
    await vi.advanceTimersByTimeAsync(0);
    const silent = () => kernel.made.filter(({ opened }) => !opened);
    expect(silent()).toHaveLength(1);
    expect(silent()[0]?.closed).toBe(0);
    // JupyterLab disposes of every comm of a kernel that restarts.
    for (const comm of kernel.made) comm.isDisposed = true;
    await start(kernel);
    expect(silent().filter(({ isDisposed }) => !isDisposed)).toHaveLength(1);
  });

  it("asks when it is scrolled to if something was run while it was out of sight", async () => {
    const kernel = new FakeKernel(null);
    const { line, link, session, look } = await start(kernel);
    look.shown = false;
    kernel.knows = [KEY];
    await vi.advanceTimersByTimeAsync(3000);
    await session.executed();
    expect(kernel.asked).toBe(1);
    look.shown = true;
    link.nudge();
    await vi.advanceTimersByTimeAsync(0);
    expect(line.state).toBe("live");
  });

  it("does not ask a kernel again in which another output has found nbprof, until that restarts", async () => {
    const kernel = new FakeKernel([KEY]);
    const first = await start(kernel);
    expect(kernel.asked).toBe(1);
    const second = await start(kernel);
    expect(second.line.state).toBe("live");
    expect(kernel.asked).toBe(1);
    kernel.knows = null;
    for (const { session } of [first, second]) session.statusChanged.emit("restarting");
    await vi.advanceTimersByTimeAsync(3000);
    await second.session.executed();
    expect(kernel.asked).toBe(2);
    expect(kernel.comms).toHaveLength(2);
  });

  it("says what the kernel says when it has not got the profile, closes the comm, and asks again later", async () => {
    const kernel = new FakeKernel([]);
    const { line, session } = await start(kernel);
    expect(line.state).toBe("none");
    expect(line.reason).toBe("This kernel has not got it.");
    expect(kernel.comms[0]?.closed).toBe(1);
    kernel.knows = [KEY];
    await vi.advanceTimersByTimeAsync(3000);
    await session.executed();
    expect(line.state).toBe("live");
  });

  it("is lost when the kernel restarts, and live again when nbprof is back", async () => {
    const kernel = new FakeKernel([KEY]);
    const { line, session } = await start(kernel);
    kernel.knows = null;
    session.statusChanged.emit("restarting");
    expect(line.state).toBe("lost");
    expect(line.reason).toContain("has shut down");
    // The new kernel knows nothing of the old comm.
    expect(kernel.comms[0]?.closed).toBe(0);
    await vi.advanceTimersByTimeAsync(3000);
    await session.executed();
    expect(line.state).toBe("lost");
    kernel.knows = [KEY];
    await vi.advanceTimersByTimeAsync(3000);
    await session.executed();
    expect(line.state).toBe("live");
    expect(kernel.comms).toHaveLength(2);
  });

  it("follows the notebook to another kernel, and to none", async () => {
    const kernel = new FakeKernel([KEY]);
    const { line, session } = await start(kernel);
    session.session = null;
    session.sessionChanged.emit(undefined);
    expect(line.state).toBe("lost");
    const next = new FakeKernel([KEY]);
    session.session = { kernel: next };
    await vi.advanceTimersByTimeAsync(3000);
    session.kernelChanged.emit(undefined);
    await vi.advanceTimersByTimeAsync(0);
    expect(line.state).toBe("live");
    expect(next.comms).toHaveLength(1);
  });

  it("follows the notebook to another kernel while the one before has not heard of the comm", async () => {
    const busy = new FakeKernel([KEY]);
    let cancel: (reason: Error) => void = () => undefined;
    busy.slow = new Promise<void>((_, reject) => {
      cancel = reject;
    });
    const { line, session } = await start(busy);
    expect(busy.comms).toHaveLength(1);
    const other = new FakeKernel([KEY]);
    session.session = { kernel: other as unknown as Kernel };
    session.kernelChanged.emit(undefined);
    // JupyterLab cancels what a kernel that it leaves has not answered.
    cancel(new Error("Canceled future"));
    await vi.advanceTimersByTimeAsync(10_000);
    expect(other.comms).toHaveLength(1);
    expect(line.state).toBe("live");
  });

  it("tells the kernel when the output goes away, and leaves nothing behind", async () => {
    const kernel = new FakeKernel([KEY]);
    const { link, session } = await start(kernel);
    expect(session.watchers).toBe(4);
    link.end();
    expect(session.watchers).toBe(0);
    await vi.advanceTimersByTimeAsync(0);
    expect(kernel.comms[0]?.closed).toBe(1);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(kernel.comms).toHaveLength(1);
  });

  it("stays as it was saved where comms are off, without an error", async () => {
    const kernel = new FakeKernel([KEY]);
    kernel.createComm = () => {
      throw new Error("Comms are disabled on this kernel connection");
    };
    const { line } = await start(kernel);
    expect(line.state).toBe("none");
    expect((await start(null)).line.state).toBe("none");
  });

  it("waits for an answer as long as a cell runs, without opening a second comm", async () => {
    const kernel = new FakeKernel([KEY]);
    kernel.answers = false;
    const { line, session } = await start(kernel);
    await vi.advanceTimersByTimeAsync(600_000);
    await session.executed();
    expect(kernel.comms).toHaveLength(1);
    expect(line.state).toBe("none");
    const [hello] = kernel.sent;
    if (hello) kernel.comms[0]?.reply(hello.id, hello.request);
    await vi.advanceTimersByTimeAsync(0);
    expect(line.state).toBe("live");
  });
});

describe("what an output may send", () => {
  const files = ["logs/a.xplane.pb"];

  it("is a key, and of a trusted notebook the names of its files", () => {
    expect(about({ key: KEY, files }, true)).toEqual({ key: KEY, files });
    expect(about({ key: KEY, files }, false)).toEqual({ key: KEY });
    expect(about({ key: KEY, files: [] }, true)).toEqual({ key: KEY });
  });

  it("is nothing where the key is none", () => {
    for (const key of [undefined, 3, "", "x", `${KEY}0`, `${KEY}\n`, "../../etc/passwd", { toString: () => KEY }]) {
      expect(about({ key, files }, true)).toBeNull();
    }
  });

  it("holds no other values than texts", () => {
    expect(about({ key: KEY, files: "logs" }, true)).toEqual({ key: KEY });
    expect(about({ key: KEY, files: ["a", { path: "b" }] }, true)).toEqual({ key: KEY });
    expect(about({ key: KEY, ask: "search", query: "x" } as never, true)).toEqual({ key: KEY });
  });
});
