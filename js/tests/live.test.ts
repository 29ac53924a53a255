import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Line } from "../lib/live.js";
import { Letters, type Packed, type Post, type Request, type WireState } from "../lib/wire.js";

/** A container as Python packs it, without gzip and without arrays. */
const packed = (reply: unknown): Uint8Array => {
  const text = new TextEncoder().encode(JSON.stringify(reply));
  const out = new Uint8Array(4 + text.length);
  new DataView(out.buffer).setUint32(0, text.length, true);
  out.set(text, 4);
  return out;
};

interface Sent {
  request: Request;
  signal: AbortSignal;
  answer(reply: unknown): Promise<void>;
  fail(text: string): Promise<void>;
}

const settle = async (): Promise<void> => {
  for (let i = 0; i < 20; i++) await Promise.resolve();
};

/** A way to nowhere: keeps what is asked until the test answers it. */
function fake(hello: unknown = { ok: true }): { post: Post; sent: Sent[] } {
  const sent: Sent[] = [];
  const post: Post = (request, signal) =>
    request.ask === "hello"
      ? Promise.resolve(packed(hello))
      : new Promise<Packed>((resolve, reject) => {
          sent.push({
            request,
            signal,
            answer: (reply) => {
              resolve(packed(reply));
              return settle();
            },
            fail: (text) => {
              reject(new Error(text));
              return settle();
            },
          });
        });
  return { post, sent };
}

const listenTo = (line: Line): WireState[] => {
  const seen: WireState[] = [];
  line.onState((state) => seen.push(state), new AbortController().signal);
  return seen;
};

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("Letters", () => {
  it("gives news of a request to who asked, and the answer after it", async () => {
    const sent: { id: string }[] = [];
    const letters = new Letters((message) => sent.push(message));
    const heard: string[] = [];
    const { signal } = new AbortController();
    const answer = letters.post({ ask: "try" }, signal, (text) => heard.push(text));
    const other = letters.post({ ask: "report" }, signal);
    letters.receive({ id: sent[0]?.id, news: "trying: a" }, []);
    letters.receive({ id: sent[1]?.id, news: "nobody hears it" }, []);
    letters.receive({ id: sent[0]?.id, ok: true }, [packed({ ok: true })]);
    letters.receive({ id: sent[1]?.id, ok: true }, [packed({ ok: true })]);
    await Promise.all([answer, other]);
    expect(heard).toEqual(["trying: a"]);
  });
});

describe("Line", () => {
  it("waits for experiments as long as they take", async () => {
    const line = new Line();
    const { post, sent } = fake();
    await line.attach(post);
    const asked = line.ask({ ask: "try" });
    await settle();
    vi.advanceTimersByTime(3_600_000);
    expect(line.state).toBe("live");
    await sent[0]?.answer({ ok: true, payload: 1 });
    expect(await asked).toEqual({ ok: true, payload: 1 });
  });

  it("is live once the greeting is answered, and greets with what the profile is known by", async () => {
    const line = new Line();
    const seen = listenTo(line);
    const asked: Request[] = [];
    let answer: (value: Packed) => void = () => {};
    const attached = line.attach(
      (request) => {
        asked.push(request);
        return new Promise((resolve) => {
          answer = resolve;
        });
      },
      { key: "5-ab" },
    );
    await expect(line.ask({ ask: "slice" })).rejects.toThrow();
    // However long a cell runs: the way is there when it answers.
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(line.state).toBe("none");
    answer(packed({ ok: true }));
    expect(await attached).toBe(true);
    expect(asked).toEqual([{ ask: "hello", key: "5-ab" }]);
    expect(seen).toEqual(["live"]);
  });

  it("stays where it is when Python says no, and says why", async () => {
    const line = new Line();
    const seen = listenTo(line);
    expect(await line.attach(fake({ ok: false, error: "This kernel has not got it." }).post)).toBe(false);
    expect(line.state).toBe("none");
    expect(line.reason).toBe("This kernel has not got it.");
    expect(seen).toEqual([]);
    await expect(line.ask({ ask: "slice" })).rejects.toThrow("This kernel has not got it.");
  });

  it("gives each question its own answer, and an error as a rejection", async () => {
    const line = new Line();
    const { post, sent } = fake();
    await line.attach(post);
    const first = line.ask({ ask: "slice", event: 1 });
    const second = line.ask({ ask: "slice", event: 2 });
    await sent[1]?.answer({ ok: true, event: 2 });
    await sent[0]?.answer({ ok: false, error: "There is no event 1." });
    expect(await second).toEqual({ ok: true, event: 2 });
    await expect(first).rejects.toThrow("There is no event 1.");
    expect(line.state).toBe("live");
  });

  it("has few under way, asks a person's question next, then the newest tiles", async () => {
    const line = new Line({ atOnce: 2 });
    const { post, sent } = fake();
    await line.attach(post);
    for (const level of [1, 2, 3, 4]) void line.ask({ ask: "tiles", level });
    void line.ask({ ask: "slice", event: 7 });
    void line.ask({ ask: "range", from: 0 });
    expect(sent.map(({ request }) => request["level"])).toEqual([1, 2]);
    await sent[0]?.answer({ ok: true });
    await sent[1]?.answer({ ok: true });
    expect(sent.slice(2).map(({ request }) => request.ask)).toEqual(["slice", "range"]);
    await sent[2]?.answer({ ok: true });
    await sent[3]?.answer({ ok: true });
    expect(sent.slice(4).map(({ request }) => request["level"])).toEqual([4, 3]);
  });

  it("never sends what nobody waits for any more, and tells the way of what was sent", async () => {
    const line = new Line({ atOnce: 1 });
    const { post, sent } = fake();
    await line.attach(post);
    const [one, two] = [new AbortController(), new AbortController()];
    const under = line.ask({ ask: "tiles", level: 1 }, one.signal);
    const queued = line.ask({ ask: "tiles", level: 2 }, two.signal);
    void line.ask({ ask: "tiles", level: 3 });
    two.abort();
    one.abort();
    await expect(under).rejects.toMatchObject({ name: "AbortError" });
    await expect(queued).rejects.toMatchObject({ name: "AbortError" });
    expect(sent[0]?.signal.aborted).toBe(true);
    // Python is still at work on the first: it keeps its place until it answers.
    expect(sent).toHaveLength(1);
    await sent[0]?.answer({ ok: true });
    expect(sent.map(({ request }) => request["level"])).toEqual([1, 3]);
    await expect(line.ask({ ask: "slice" }, one.signal)).rejects.toMatchObject({ name: "AbortError" });
  });

  it("asks for tiles a second time after 15 s, for anything else once; then it is lost, and live again by a late answer", async () => {
    const line = new Line();
    const seen = listenTo(line);
    const { post, sent } = fake();
    await line.attach(post);
    const tiles = line.ask({ ask: "tiles", level: 1 });
    const outcome = expect(tiles).rejects.toThrow("does not answer");
    await vi.advanceTimersByTimeAsync(14_999);
    expect(sent).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(sent).toHaveLength(2);
    expect(line.state).toBe("live");
    await vi.advanceTimersByTimeAsync(15_000);
    await outcome;
    expect(line.state).toBe("lost");
    await expect(line.ask({ ask: "tiles", level: 2 })).rejects.toThrow("does not answer");
    await sent[0]?.answer({ ok: true });
    expect(line.state).toBe("live");
    expect(line.reason).toBe("");
    void line.ask({ ask: "slice", event: 1 });
    expect(sent).toHaveLength(3);
    expect(seen).toEqual(["live", "lost", "live"]);
  });

  it("only gives up the one that took too long while others are answered", async () => {
    const line = new Line();
    const { post, sent } = fake();
    await line.attach(post);
    const slow = line.ask({ ask: "search", query: "a" });
    const outcome = expect(slow).rejects.toThrow("does not answer");
    await vi.advanceTimersByTimeAsync(10_000);
    const quick = line.ask({ ask: "tiles", level: 1 });
    await sent[1]?.answer({ ok: true, level: 1 });
    expect(await quick).toEqual({ ok: true, level: 1 });
    await vi.advanceTimersByTimeAsync(5_000);
    await outcome;
    expect(line.state).toBe("live");
  });

  it("tells all who wait when the way is gone, forgets what comes by it later, and goes by the next", async () => {
    const line = new Line({ atOnce: 1 });
    const seen = listenTo(line);
    const { post, sent } = fake();
    await line.attach(post);
    const under = line.ask({ ask: "tiles", level: 1 });
    const queued = line.ask({ ask: "tiles", level: 2 });
    line.detach("The kernel was restarted.");
    await expect(queued).rejects.toThrow("The kernel was restarted.");
    expect(line.state).toBe("lost");
    await sent[0]?.fail("closed");
    await expect(under).rejects.toThrow("closed");
    expect(line.state).toBe("lost");
    const next = fake();
    expect(await line.attach(next.post)).toBe(true);
    const again = line.ask({ ask: "tiles", level: 3 });
    expect(next.sent).toHaveLength(1);
    await next.sent[0]?.answer({ ok: true, level: 3 });
    expect(await again).toEqual({ ok: true, level: 3 });
    expect(seen).toEqual(["live", "lost", "live"]);
  });

  it("rejects a damaged answer, and goes on", async () => {
    const line = new Line();
    await line.attach((request) => Promise.resolve(request.ask === "hello" ? packed({ ok: true }) : new Uint8Array(2)));
    await expect(line.ask({ ask: "slice" })).rejects.toThrow("empty");
    expect(line.state).toBe("live");
  });
});

describe("Letters", () => {
  const signal = new AbortController().signal;

  it("brings each answer to its request, and leaves other messages alone", async () => {
    const sent: { id: string; request: Request }[] = [];
    const letters = new Letters((message) => sent.push(message));
    const [a, b] = [letters.post({ ask: "a" }, signal), letters.post({ ask: "b" }, signal)];
    letters.receive(undefined, undefined);
    letters.receive({ id: 3 }, []);
    letters.receive({ kind: "anywidget-command", id: "x" }, [new Uint8Array(1)]);
    letters.receive({ id: sent[1]?.id }, [new DataView(new ArrayBuffer(2))]);
    letters.receive({ id: sent[0]?.id }, [new Uint8Array([7])]);
    expect(((await a) as Uint8Array)[0]).toBe(7);
    expect((await b).byteLength).toBe(2);
  });

  it("does not take the answers of another view of the same channel", async () => {
    const sent: { id: string }[] = [];
    const one = new Letters((message) => sent.push(message));
    const other = new Letters((message) => sent.push(message));
    void one.post({ ask: "a" }, signal);
    void other.post({ ask: "a" }, signal);
    expect(sent[0]?.id).not.toBe(sent[1]?.id);
  });

  it("rejects an answer without data, what waits when it is closed, and whatever is asked then", async () => {
    const sent: { id: string }[] = [];
    const letters = new Letters((message) => sent.push(message));
    const [bare, waiting] = [letters.post({ ask: "a" }, signal), letters.post({ ask: "b" }, signal)];
    letters.receive({ id: sent[0]?.id }, []);
    await expect(bare).rejects.toThrow("has no data");
    letters.close("The kernel closed it.");
    await expect(waiting).rejects.toThrow("The kernel closed it.");
    await expect(letters.post({ ask: "c" }, signal)).rejects.toThrow("The kernel closed it.");
    expect(sent).toHaveLength(2);
  });

  it("rejects when the message cannot be sent", async () => {
    const letters = new Letters(() => {
      throw new Error("Cannot send");
    });
    await expect(letters.post({ ask: "a" }, signal)).rejects.toThrow("Cannot send");
  });
});
