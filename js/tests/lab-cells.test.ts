import { describe, expect, it } from "vitest";
import schema from "../../schema/plugin.json";
import { arm, messageOf, ready } from "../lab/cells/arm.js";
import { type Askable, answerOf, ask, literal } from "../lab/cells/ask.js";
import { linesOf, magicLine } from "../lab/cells/lines.js";
import { type Facts, languageOf, whyNot } from "../lab/cells/reason.js";
import { contentsPath } from "../lab/launcher/path.js";
import { DEFAULTS, optionsLine, quoted, read } from "../lab/options.js";

const at = (line: number, column = 0) => ({ line, column });

describe("the default options", () => {
  it("are those of the schema", () => {
    const named = Object.entries(schema.properties).map(([name, one]) => [name, one.default]);
    expect(Object.fromEntries(named)).toEqual(DEFAULTS);
  });

  it("are no line where all are the usual ones", () => {
    expect(optionsLine(DEFAULTS)).toBe("");
    expect(optionsLine(read({}))).toBe("");
  });

  it("are one line where they are others", () => {
    const values = read({
      backend: "jax",
      steps: "10:20",
      warmup: 0,
      every: 100,
      seconds: 2.5,
      limit: 8,
      memory: false,
    });
    expect(optionsLine(values)).toBe(
      "--backend jax --steps 10:20 --warmup 0 --every 100 --seconds 2.5 --limit 8 --no-memory",
    );
    const others = read({
      shapes: false,
      stacks: true,
      sampling: false,
      python: true,
      hostLevel: 3,
      logdir: "my runs",
      save: false,
      events: 0,
    });
    expect(optionsLine(others)).toBe(
      '--no-shapes --stacks --no-sampling --python --host-level 3 --logdir "my runs" --no-save --events 0',
    );
  });

  it("are not what has another kind than it should", () => {
    const values = read({ steps: 3, warmup: "x", stacks: 1, colours: "pink", unknown: 1 });
    expect(values).toEqual(DEFAULTS);
    expect(read({ colours: "safe", lanes: 12 })).toEqual({ ...DEFAULTS, colours: "safe", lanes: 12 });
  });

  it("are quoted as Python reads them", () => {
    expect(quoted("runs/a-b_1")).toBe("runs/a-b_1");
    expect(quoted('a "b" \\ c')).toBe('"a \\"b\\" \\\\ c"');
    expect(quoted("$(rm)")).toBe('"$(rm)"');
  });
});

describe("lines of a cell", () => {
  const source = "a = 1\n\nfor i in x:\n    b(i)\n\nc = 3";

  it("are whole, whatever part of them is selected, and however", () => {
    expect(linesOf(source, at(2, 4), at(3, 2))).toEqual({ text: "for i in x:\n    b(i)", first: 3, last: 4 });
    expect(linesOf(source, at(3, 2), at(2, 4))).toEqual({ text: "for i in x:\n    b(i)", first: 3, last: 4 });
  });

  it("are not those of which nothing is selected", () => {
    expect(linesOf(source, at(2, 0), at(5, 0))).toEqual({ text: "for i in x:\n    b(i)", first: 3, last: 4 });
    expect(linesOf(source, at(0, 0), at(2, 0))).toEqual({ text: "a = 1", first: 1, last: 1 });
  });

  it("are that of the cursor without a selection", () => {
    expect(linesOf(source, at(5, 2), at(5, 2))).toEqual({ text: "c = 3", first: 6, last: 6 });
    expect(linesOf(source, at(1), at(1))).toBeNull();
    expect(linesOf("", at(0), at(0))).toBeNull();
    expect(linesOf("a", at(9), at(9))).toBeNull();
  });
});

describe("why a cell cannot be profiled", () => {
  const fine: Facts = {
    cell: "code",
    kernel: { status: "idle", name: "Python 3", language: "python" },
    starting: false,
  };

  it("is nothing for a code cell and a Python kernel, busy or not", () => {
    expect(whyNot(fine)).toBe("");
    for (const status of ["busy", "unknown", "restarting"]) {
      expect(whyNot({ ...fine, kernel: { status, name: "", language: null } })).toBe("");
    }
  });

  it("is said", () => {
    expect(whyNot({ ...fine, cell: null })).toMatch(/Open a notebook/);
    expect(whyNot({ ...fine, cell: "markdown" })).toMatch(/A markdown cell has nothing/);
    expect(whyNot({ ...fine, kernel: null })).toMatch(/has no kernel. Choose a Python kernel/);
    expect(whyNot({ ...fine, kernel: null, starting: true })).toMatch(/is starting/);
    expect(whyNot({ ...fine, kernel: { status: "dead", name: "", language: "python" } })).toMatch(/died. Restart/);
    expect(whyNot({ ...fine, kernel: { status: "idle", name: "IRkernel", language: "R" } })).toMatch(
      /\(IRkernel\) runs R/,
    );
  });

  it("knows the language by the kernel, then by the notebook", () => {
    const specs = { kernelspecs: { ir: { language: "R" }, odd: {} } };
    const model = { getMetadata: (key: string) => (key === "language_info" ? { name: "julia" } : undefined) };
    expect(languageOf("ir", specs, model)).toBe("R");
    expect(languageOf("odd", specs, model)).toBe("julia");
    expect(languageOf("odd", null, null)).toBeNull();
  });
});

describe("a question to the kernel", () => {
  const kernel = (content: object) => {
    const asked: object[] = [];
    const one: Askable = {
      requestExecute(what) {
        asked.push(what);
        return { done: Promise.resolve({ content }) };
      },
    };
    return { one, asked };
  };
  const text = (value: string) => ({
    status: "ok",
    user_expressions: { nbprof: { status: "ok", data: { "text/plain": value } } },
  });

  it("stands in the queue at once and leaves no trace", async () => {
    const { one, asked } = kernel(text("1"));
    const answer = ask(one, "1");
    expect(asked).toEqual([
      {
        code: "",
        silent: true,
        store_history: false,
        allow_stdin: false,
        stop_on_error: false,
        user_expressions: { nbprof: "1" },
      },
    ]);
    expect(await answer).toEqual({ kind: "answer", value: "1" });
  });

  it("may be dropped, fail, or not be understood", () => {
    expect(answerOf({ content: { status: "aborted" } })).toEqual({ kind: "dropped" });
    expect(answerOf({ content: { status: "ok" } })).toEqual({ kind: "mute" });
    const failed = { nbprof: { status: "error", ename: "E", evalue: "why" } };
    expect(answerOf({ content: { status: "ok", user_expressions: failed } })).toEqual({
      kind: "error",
      name: "E",
      text: "why",
    });
  });

  it("carries any text as Python", async () => {
    const { one, asked } = kernel(text('{"ok": true, "token": "t"}'));
    const given = { text: 'a = \'x\\n\'\n"""ü\u2028😀"""', cell: "id", options: "" };
    expect(await arm(one, given)).toEqual({ ok: true, token: "t", state: "" });
    const [{ user_expressions }] = asked as [{ user_expressions: { nbprof: string } }];
    const inner = user_expressions.nbprof.match(/\.arm\((.*)\)$/s)?.[1] as string;
    // What is no option leaves those of the environment as they are.
    expect(JSON.parse(JSON.parse(inner))).toEqual({ text: given.text, cell: "id" });
    expect(literal('"\\')).toBe('"\\"\\\\"');
  });

  it("tells what is missing, and what to do", async () => {
    const none = messageOf({ kind: "error", name: "ModuleNotFoundError", text: "No module named 'nbprof'" });
    expect(none).toMatchObject({ ok: false, error: expect.stringContaining("%pip install nbprof") });
    const old = messageOf({
      kind: "error",
      name: "ModuleNotFoundError",
      text: "No module named 'nbprof.notebook.profile_button'",
    });
    expect(old).toMatchObject({ ok: false, error: expect.stringContaining("too old") });
    expect(messageOf({ kind: "mute" })).toMatchObject({ ok: false, error: expect.stringContaining("Put %%nbprof") });
    expect(messageOf({ kind: "answer", value: "[1]" })).toMatchObject({ ok: false });
    expect(messageOf({ kind: "dropped" })).toBeNull();
    const { one } = kernel(text('{"ok": false, "error": "--steps 9:3 is an empty range"}'));
    expect(await ready(one, "--steps 9:3")).toEqual({ ok: false, error: "--steps 9:3 is an empty range" });
  });
});

describe("the rest", () => {
  it("writes the magic once, with the options", () => {
    expect(magicLine("x = 1", "")).toBe("%%nbprof\n");
    expect(magicLine("%%time\nx", "--stacks")).toBe("%%nbprof --stacks\n");
    expect(magicLine("\n%%nbprof -q\nx", "")).toBeNull();
    expect(magicLine("%%nbprofiler\nx", "")).toBe("%%nbprof\n");
  });

  it("takes a path as people type it", () => {
    expect(contentsPath(" runs/a.xplane.pb ", "/srv/me")).toBe("runs/a.xplane.pb");
    expect(contentsPath("/srv/me/runs/", "/srv/me")).toBe("runs");
    expect(contentsPath("/srv/me", "/srv/me/")).toBe("");
    expect(contentsPath("/srv/meadow/x", "/srv/me")).toBe("srv/meadow/x");
    expect(contentsPath("./runs/b", "~")).toBe("runs/b");
    expect(contentsPath('"my runs/b.pt.trace.json"', "")).toBe("my runs/b.pt.trace.json");
  });
});
