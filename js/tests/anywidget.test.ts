import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Model } from "../hosts/anywidget.js";
import type { Dashboard, DashboardOptions } from "../hosts/page.js";

/** What was mounted, in order; the test says when each stands. */
const boards: {
  options: DashboardOptions;
  packed: unknown;
  board: { setSelection: ReturnType<typeof vi.fn>; destroy: ReturnType<typeof vi.fn> };
  stand(): Promise<void>;
  fail(text: string): Promise<void>;
}[] = [];

vi.mock("../hosts/page.js", () => ({
  mount: (_el: unknown, packed: unknown, options: DashboardOptions) =>
    new Promise<Dashboard>((resolve, reject) => {
      const board = { setSelection: vi.fn(), destroy: vi.fn() };
      boards.push({
        options,
        packed,
        board,
        stand: () => {
          resolve(board as unknown as Dashboard);
          return settle();
        },
        fail: (text) => {
          reject(new Error(text));
          return settle();
        },
      });
    }),
}));

const { render } = await import("../hosts/anywidget.js");

const settle = async (): Promise<void> => {
  for (let i = 0; i < 20; i++) await Promise.resolve();
};

/** A container as Python packs it, without gzip and without arrays. */
function packed(reply: unknown): DataView {
  const text = new TextEncoder().encode(JSON.stringify(reply));
  const out = new Uint8Array(4 + text.length);
  new DataView(out.buffer).setUint32(0, text.length, true);
  out.set(text, 4);
  return new DataView(out.buffer);
}

interface Sent {
  id: string;
  request: { ask: string; [key: string]: unknown };
}

/** A model as anywidget gives it, with a kernel that answers when the test says so. */
class FakeModel {
  traits: Record<string, unknown> = { packed: packed({}), selected: [], views: ["trace"], height: 300 };
  sent: Sent[] = [];
  saved = 0;
  private heard: [string, (...args: never[]) => void][] = [];
  get(name: string): unknown {
    return this.traits[name];
  }
  set(name: string, value: unknown): void {
    this.traits[name] = value;
  }
  save_changes(): void {
    this.saved++;
  }
  send(content: Sent): void {
    this.sent.push(content);
  }
  on(event: string, callback: (...args: never[]) => void): void {
    this.heard.push([event, callback]);
  }
  off(event: string, callback: (...args: never[]) => void): void {
    this.heard = this.heard.filter(([e, c]) => e !== event || c !== callback);
  }
  async emit(event: string, ...args: unknown[]): Promise<void> {
    for (const [name, callback] of [...this.heard]) if (name === event) callback(...(args as never[]));
    await settle();
  }
  /** The kernel's answer to the n-th message. */
  answer(n: number, reply: unknown): Promise<void> {
    return this.emit("msg:custom", { id: this.sent[n]?.id, ok: true }, [packed(reply)]);
  }
  change(name: string, value: unknown): Promise<void> {
    this.traits[name] = value;
    return this.emit(`change:${name}`);
  }
  get listeners(): number {
    return this.heard.length;
  }
}

/** As much of an element as is used where nothing is drawn. */
const stub = (): HTMLElement =>
  ({
    textContent: "",
    classList: { add: () => {} },
    ownerDocument: { head: { querySelector: () => ({}) } },
  }) as unknown as HTMLElement;

const start = (model: FakeModel, signal?: AbortSignal) => {
  const el = stub();
  return { el, end: render({ model: model as unknown as Model, el, ...(signal && { signal }) }) };
};

const only = () => {
  expect(boards).toHaveLength(1);
  return boards[0] as (typeof boards)[number];
};

beforeEach(() => void boards.splice(0));

describe("a widget", () => {
  it("greets the kernel by a message of its own, and goes live when that answers", async () => {
    const model = new FakeModel();
    start(model);
    expect(model.sent.map(({ request }) => request)).toEqual([{ ask: "hello" }]);
    const { ask } = only().options;
    expect(ask?.state).toBe("none");
    await model.answer(0, { ok: true });
    expect(ask?.state).toBe("live");
    const asked = ask?.ask({ ask: "slice", event: 7 });
    expect(model.sent[1]?.request).toEqual({ ask: "slice", event: 7 });
    await model.answer(1, { ok: true, event: 7 });
    expect(await asked).toEqual({ ok: true, event: 7 });
  });

  it("leaves what another view of the same model asked to that one", async () => {
    const model = new FakeModel();
    start(model);
    start(model);
    await model.answer(1, { ok: true });
    expect(boards.map(({ options }) => options.ask?.state)).toEqual(["none", "live"]);
    await model.emit("msg:custom", "something else", []);
    await model.answer(0, { ok: true });
    expect(boards.map(({ options }) => options.ask?.state)).toEqual(["live", "live"]);
  });

  it("is lost when its comm is closed, says so, and tells whoever waits", async () => {
    const model = new FakeModel();
    start(model);
    await model.answer(0, { ok: true });
    const { ask } = only().options;
    const waits = ask?.ask({ ask: "slice", event: 1 });
    void model.emit("comm:close");
    await expect(waits).rejects.toThrow("The widget is closed");
    expect(ask?.state).toBe("lost");
    expect(ask?.reason).toContain("The widget is closed");
    expect(model.sent).toHaveLength(2);
    await expect(ask?.ask({ ask: "slice", event: 1 })).rejects.toThrow("The widget is closed");
    expect(model.sent).toHaveLength(2);
  });

  it("draws its traits, and again when they change", async () => {
    const model = new FakeModel();
    model.traits["selected"] = [4, 6];
    start(model);
    const first = only();
    expect(first.packed).toBe(model.traits["packed"]);
    expect(first.options).toMatchObject({
      live: true,
      views: ["trace"],
      height: 300,
      selection: { first: 4, last: 6 },
    });
    await first.stand();
    await model.change("height", 500);
    expect(first.board.destroy).toHaveBeenCalledOnce();
    expect(boards[1]?.options.height).toBe(500);
    // The connection is that of the widget: it greets once.
    expect(model.sent).toHaveLength(1);
    expect(boards[1]?.options.ask).toBe(first.options.ask);
  });

  it("keeps the newest where one is drawn while another is being opened", async () => {
    const model = new FakeModel();
    start(model);
    await model.change("views", ["ops"]);
    await boards[1]?.stand();
    await boards[0]?.stand();
    expect(boards[0]?.board.destroy).toHaveBeenCalledOnce();
    expect(boards[1]?.board.destroy).not.toHaveBeenCalled();
    await model.change("selected", [1, 2]);
    expect(boards[1]?.board.setSelection).toHaveBeenCalledWith({ first: 1, last: 2 });
  });

  it("has the selection that was set while it was being opened", async () => {
    const model = new FakeModel();
    start(model);
    await model.change("selected", [1, 2]);
    await only().stand();
    expect(only().board.setSelection).toHaveBeenLastCalledWith({ first: 1, last: 2 });
  });

  it("passes a selection on once, and not back to where it came from", async () => {
    const model = new FakeModel();
    start(model);
    await only().stand();
    const { onSelection } = only().options;
    onSelection?.({ first: 3, last: 5 });
    expect([model.traits["selected"], model.saved]).toEqual([[3, 5], 1]);
    onSelection?.({ first: 3, last: 5 });
    expect(model.saved).toBe(1);
    onSelection?.(null);
    expect([model.traits["selected"], model.saved]).toEqual([[], 2]);
    await model.change("selected", []);
    expect(only().board.setSelection).toHaveBeenLastCalledWith(null);
  });

  it("draws nothing of an empty payload, and says what is wrong with a broken one", async () => {
    const model = new FakeModel();
    model.traits["packed"] = new DataView(new ArrayBuffer(0));
    const { el } = start(model);
    expect(boards).toHaveLength(0);
    await model.change("packed", packed({}));
    await only().fail("This profile is cut short.");
    expect(el.textContent).toBe("This profile is cut short.");
  });

  it("leaves nothing behind when it ends, by its return value or by the signal", async () => {
    for (const way of ["return", "signal"]) {
      boards.splice(0);
      const model = new FakeModel();
      const gone = new AbortController();
      const { end } = start(model, gone.signal);
      await model.answer(0, { ok: true });
      await only().stand();
      if (way === "return") end();
      else gone.abort();
      expect(model.listeners, way).toBe(0);
      expect(only().board.destroy, way).toHaveBeenCalledOnce();
      expect(only().options.ask?.state, way).toBe("lost");
    }
  });

  it("ends what was still being opened", async () => {
    const { end } = start(new FakeModel());
    end();
    await only().stand();
    expect(only().board.destroy).toHaveBeenCalledOnce();
  });
});
