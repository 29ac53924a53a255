/** The sidebar of runs, as far as it needs no page: what a row says, groups, the filter, selection, and the list as the server tells it. */

import { describe, expect, it } from "vitest";
import { filtered, grouped, newest, type Watched } from "../lab/runs/groups.js";
import { type Ask, RunList } from "../lab/runs/list.js";
import { Pace } from "../lab/runs/pace.js";
import { below, loading, logdirs, watchedOf } from "../lab/runs/places.js";
import {
  ago,
  called,
  changeOf,
  facts,
  logdirOf,
  type Run,
  runOf,
  spoken,
  stepTime,
  student,
  subtitle,
  verdict,
} from "../lab/runs/run.js";
import { Selection } from "../lab/runs/selection.js";

const NOW = Date.parse("2026-11-21T14:00:00Z");

function run(path: string, more: Record<string, unknown> = {}): Run {
  const made = runOf({ path, modified: "2026-11-21T13:55:00Z", hosts: 1, known: true, ...more });
  if (!made) throw new Error("no run");
  return made;
}

const folder = (path: string, more: Partial<Watched> = {}): Watched => ({
  path,
  chosen: true,
  notebook: false,
  name: "",
  ...more,
});

describe("Student's t", () => {
  it("is that of the tables", () => {
    const told = [2, 3, 5, 10, 30, 1000].map((freedom) => Number(student(freedom).toFixed(2)));
    expect(told).toEqual([4.3, 3.18, 2.57, 2.23, 2.04, 1.96]);
  });
});

describe("a run", () => {
  it("is read from an answer, and what is no run is none", () => {
    expect(runOf({ path: "logs/a.xplane.pb", steps: 21, step_ms: "6.2", bytes: -1 })).toMatchObject({
      name: "a.xplane.pb",
      steps: 21,
      step_ms: null,
      bytes: 0,
      modified: Number.NaN,
      time: Number.NaN,
      framework: "",
      known: false,
    });
    for (const none of [null, undefined, 3, "x", {}, { path: "" }, { path: 7 }]) expect(runOf(none)).toBeNull();
  });

  it("says what is known of it, and nothing of what is not", () => {
    const known = run("a/b", { framework: "JAX", hosts: 2, steps: 1, step_ms: 6.2 });
    expect(facts(known)).toEqual(["JAX", "1 step", "2 hosts"]);
    expect(stepTime(known)).toBe("6.20 ms");
    expect(facts(run("a/b", { framework: "TensorFlow 2.21.0, Keras 3.15.1", steps: 0 }))).toEqual([
      "TensorFlow",
      "no steps",
    ]);
    expect(facts(run("a/b"))).toEqual(["no steps"]);
    expect(facts(run("a/b", { known: false, bytes: 3 << 20 }))).toEqual(["3.00 MiB"]);
    expect(stepTime(run("a/b"))).toBe("");
  });

  it("has a verdict whose class has the colour of its part of the step", () => {
    expect(verdict(run("a", { verdict: "Input-bound: 61% of step time is spent: waiting for data" }), false)).toEqual({
      head: "Input-bound",
      rest: "61% of step time is spent: waiting for data",
      colour: "input",
      wrong: false,
    });
    expect(verdict(run("a", { verdict: "Unknown" }), false)).toMatchObject({ head: "Unknown", rest: "", colour: "" });
    expect(verdict(run("a", { known: false }), true).rest).toBe("not analysed yet");
    expect(verdict(run("a", { known: false }), false).rest).toContain("open it");
    const failed = verdict(run("a", { failed: "ValueError", verdict: "Input-bound: x" }), false);
    expect([failed.rest, failed.wrong]).toEqual(["The cell failed: ValueError", true]);
    const interrupted = verdict(run("a", { failed: "cell was interrupted after 2 complete steps" }), false);
    expect(interrupted.rest).toBe("The cell was interrupted after 2 complete steps");
    const left = verdict(
      run("a", { failed: "fit was ended by an exception in step 5, after 4 complete steps" }),
      false,
    );
    expect(left.rest).toBe("Fit was ended by an exception in step 5, after 4 complete steps");
    expect(verdict(run("a"), true, "this is a text file.")).toMatchObject({
      rest: "This is a text file.",
      wrong: true,
    });
    const named = "real/a.xplane.pb, byte 0: a field claims more than 2 GiB.";
    expect(verdict(run("a"), true, named).rest).toBe(named);
  });

  it("is called by notebook and cell while nobody has given it a name", () => {
    const recorded = run("w/2026_11_21_13_55_02", { label: "train [3]" });
    expect([called(recorded), subtitle(recorded)]).toEqual(["train [3]", expect.stringMatching(/^\d\d:55$/)]);
    const window = run("w/2026_11_21_13_55_02_2-steps-500-520", { label: "train [3]" });
    expect(called(window)).toBe("train [3]");
    const named = run("w/with-cache", { label: "train [3]" });
    expect([called(named), subtitle(named)]).toEqual(["with-cache", "train [3]"]);
    expect(called(run("w/2026_11_21_13_55_02"))).toBe("2026_11_21_13_55_02");
  });

  it("has the change of its step time against an earlier one, where both are known", () => {
    const at = (step_ms: number | null): Run => run("a", { step_ms });
    expect(changeOf(at(7.9), at(10))).toBe("−21%");
    expect(changeOf(at(30), at(10))).toBe("+200%");
    expect(changeOf(at(10), at(10))).toBe("±0%");
    expect(changeOf(at(99), at(10))).toBe("+890%");
    expect(changeOf(at(20_000), at(10))).toBe("2,000×");
    expect(changeOf(at(1), at(173))).toBe("−99.4%");
    expect(changeOf(at(1), at(100_000))).toBe("−99.9%");
    // Of 20 steps each with a deviation of 2 ms, 1 ms is within noise and 2 ms are not; if they are worth 4, neither.
    const of = (step_ms: number, worth: number): Run => run("a", { step_ms, spread: [2, 20, worth] });
    expect([changeOf(of(11, 20), of(10, 20)), changeOf(of(12, 20), of(10, 20))]).toEqual(["≈", "+20%"]);
    expect(changeOf(of(12, 4), of(10, 4))).toBe("≈");
    expect(changeOf(of(12, 4), at(10))).toBe("+20%");
    // Steps without the profiler where both have them, whatever the recordings took.
    const timed = (step_ms: number, bare: number | null): Run =>
      runOf({ path: "a", step_ms, bare: bare === null ? [] : [bare, 0.1, 20, 20] }) as Run;
    expect(changeOf(timed(19, 10), timed(15, 10))).toBe("≈");
    expect(changeOf(timed(15, 12), timed(15, 10))).toBe("+20%");
    expect(changeOf(timed(18, 12), timed(15, null))).toBe("+20%");
    for (const [now, before] of [
      [at(null), at(10)],
      [at(10), at(null)],
      [at(10), undefined],
    ] as const)
      expect(changeOf(now as Run, before)).toBe("");
  });

  it("is told in one sentence to who does not see it", () => {
    const text = spoken(
      run("logs/a", { framework: "JAX", step_ms: 6.2, steps: 21, verdict: "Input-bound: 61%" }),
      NOW,
      false,
    );
    expect(text).toBe("a, 5 min ago, JAX, 21 steps, 6.20 ms per step, Input-bound: 61%");
  });

  it("was written some time ago", () => {
    const at = (seconds: number): string => ago(NOW - seconds * 1000, NOW);
    expect(at(0)).toBe("just now");
    expect(at(59)).toBe("just now");
    expect(at(-30)).toBe("just now");
    expect(at(60)).toBe("1 min ago");
    expect(at(3599)).toBe("59 min ago");
    expect(at(3600)).toBe("1 h ago");
    expect(at(86_400)).toBe("1 day ago");
    expect(at(3 * 86_400)).toBe("3 days ago");
    expect(at(30 * 86_400)).toMatch(/^2[123] Oct$/);
    expect(at(-86_400)).toMatch(/^2[123] Nov$/);
    expect(at(400 * 86_400)).toMatch(/^1[678] Oct 2025$/);
    expect(ago(Number.NaN, NOW)).toBe("");
  });
});

describe("folders", () => {
  it("a run belongs to the logdir above TensorBoard's folders", () => {
    expect(logdirOf("logs/a/plugins/profile/2026_11_21/host.xplane.pb")).toBe("logs/a");
    expect(logdirOf("plugins/profile/2026_11_21")).toBe("");
    expect(logdirOf("traces/rank0.json.gz")).toBe("traces");
    expect(logdirOf("rank0.json.gz")).toBe("");
  });

  it("of a notebook are the default one, and those that its outputs name", () => {
    expect(logdirs("work/train.ipynb", "", [])).toEqual(["work/nbprof-results"]);
    expect(logdirs("work/train.ipynb", "./logs/", [])).toEqual(["work/nbprof-results", "work/logs"]);
    expect(logdirs("work/train.ipynb", "/data/logs", [])).toEqual(["work/nbprof-results"]);
    const files = [
      ["logs/plugins/profile/a/h0.xplane.pb", "logs/plugins/profile/a/h1.xplane.pb"],
      ["nbprof-results/plugins/profile/b/h0.xplane.pb"],
      ["trace.json.gz"],
      ["../other/trace.json"],
      ["../../out.json", "/etc/passwd", "C:\\x\\y.json", "s3://bucket/x.json"],
    ];
    expect(logdirs("work/train.ipynb", "", files)).toEqual([
      "work/nbprof-results",
      "work/logs",
      "work/trace.json.gz",
      "other",
    ]);
    expect(logdirs("train.ipynb", "", [["trace.json.gz"], ["a/b.json"]])).toEqual([
      "nbprof-results",
      "trace.json.gz",
      "a",
    ]);
  });

  it("never lie outside of what Jupyter serves", () => {
    expect(below("a/b", "../c")).toBe("a/c");
    expect(below("a", "../../c")).toBeNull();
    expect(below("a", "\\\\server\\share")).toBeNull();
  });

  it("stand in the list once, whoever named them", () => {
    expect(watchedOf(["w/nbprof-results", "w/logs"], ["w/logs", "old"])).toEqual([
      { path: "w/nbprof-results", chosen: false, notebook: true, name: "" },
      { path: "w/logs", chosen: true, notebook: true, name: "" },
      { path: "old", chosen: true, notebook: false, name: "" },
    ]);
  });

  it("a cell loads a run from where its notebook is", () => {
    const line = (to: string, notebook: string): string => loading(to, notebook).split("\n").at(-1) as string;
    expect(line("work/logs/plugins/profile/a", "work/train.ipynb")).toBe('nbprof.load("logs/plugins/profile/a")');
    expect(line("logs/a.pb", "work/deep/train.ipynb")).toBe('nbprof.load("../../logs/a.pb")');
    expect(line("work", "work/deep/train.ipynb")).toBe('nbprof.load("../../work")');
    expect(line('a"b\\c.pb', "train.ipynb")).toBe('nbprof.load("a\\"b\\\\c.pb")');
    expect(loading("a.pb", "train.ipynb")).toMatch(/^import nbprof\n/);
  });
});

describe("groups", () => {
  const times = (...hours: number[]): string[] => hours.map((hour) => new Date(NOW - hour * 3_600_000).toISOString());

  it("are by logdir, the newest run first, the notebook's before others", () => {
    const [one, two, five] = times(1, 2, 5);
    const runs = [
      run("old/plugins/profile/x", { modified: one }),
      run("w/nbprof-results/plugins/profile/a", { modified: five }),
      run("w/nbprof-results/plugins/profile/b", { modified: two }),
      run("old/deep/plugins/profile/y", { modified: two }),
    ];
    const groups = grouped(runs, [], watchedOf(["w/nbprof-results"], ["old"]));
    expect(groups.map(({ path, runs: held }) => [path, held.map(({ name }) => name)])).toEqual([
      ["w/nbprof-results", ["b", "a"]],
      ["old", ["x"]],
      ["old/deep", ["y"]],
    ]);
  });

  it("of a notebook hold none of another one, and tell of each run the one before it", () => {
    const at = (name: string, minute: number, more: Record<string, unknown>): Run =>
      run(`w/logs/${name}`, { modified: `2026-11-21T13:0${minute}:00Z`, step_ms: 5, framework: "JAX", ...more });
    const runs = [
      at("a", 1, { notebook: "train.ipynb" }),
      at("b", 2, { notebook: "other.ipynb" }),
      at("c", 3, {}),
      at("d", 4, { notebook: "train.ipynb", framework: "PyTorch" }),
      at("e", 5, { notebook: "train.ipynb" }),
    ];
    const [own] = grouped(runs, [], watchedOf(["w/logs"], [], "w/train.ipynb"));
    expect(own?.runs.map(({ name }) => name)).toEqual(["e", "d", "c", "a"]);
    expect([...(own?.before ?? [])].map(([path, { name }]) => [path, name])).toEqual([["w/logs/e", "a"]]);
    const [chosen] = grouped(runs, [], watchedOf(["w/logs"], ["w/logs"], "w/train.ipynb"));
    expect(chosen?.runs.length).toBe(5);
  });

  it("belong to the nearest folder of the list, and are not above it", () => {
    const runs = [run("logs/plugins/profile/x/h.xplane.pb")];
    expect(grouped(runs, [], [folder("logs/plugins/profile")]).map(({ path }) => path)).toEqual([
      "logs/plugins/profile",
    ]);
    expect(grouped([run("logs/a")], [], [folder(""), folder("logs")])[0]?.watched.path).toBe("logs");
    expect(grouped([run("logsx/a")], [], [folder("logs")]).flatMap(({ runs: held }) => held)).toEqual([]);
  });

  it("a chosen folder stands there without runs, the default one of a notebook does not", () => {
    const watched = watchedOf(["nbprof-results"], ["logs"]);
    expect(grouped([], [], watched).map(({ path }) => path)).toEqual(["logs"]);
    const gone = (path: string) => ({ path, message: "the file no longer exists.", gone: true });
    const groups = grouped([], [gone("nbprof-results"), gone("logs")], watched);
    expect(groups.map(({ path, problems }) => [path, problems.length])).toEqual([["logs", 1]]);
  });

  it("a problem stands under the folder of what it is about", () => {
    const problem = { path: "logs/b/plugins/profile/x/h.xplane.pb", message: "it is damaged.", gone: false };
    expect(grouped([run("logs/a")], [problem], [folder("logs")]).map(({ path }) => path)).toEqual(["logs", "logs/b"]);
  });

  it("what could not be analysed is told by its run", () => {
    const broken = { path: "logs/a.xplane.pb", message: "it is damaged.", gone: false };
    const [group] = grouped([run("logs/a.xplane.pb")], [broken], [folder("logs")]);
    expect([group?.problems, [...(group?.broken ?? [])]]).toEqual([[], [["logs/a.xplane.pb", "it is damaged."]]]);
  });

  it("a copy is as old as its recording", () => {
    const copied = run("a/copied", { recorded: "2020-01-01T00:00:00+00:00" });
    expect([copied, run("a/old", { modified: "2021-01-01T00:00:00Z" })].sort(newest).map(({ name }) => name)).toEqual([
      "old",
      "copied",
    ]);
  });

  it("runs without a time come last, and names count as people count", () => {
    const order = [run("a/10"), run("a/2"), run("a/x", { modified: "?" }), run("a/new", { modified: times(0)[0] })];
    expect(order.sort(newest).map(({ name }) => name)).toEqual(["new", "2", "10", "x"]);
  });

  it("are filtered by any text of a run, or a regular expression", () => {
    const groups = grouped(
      [run("a/one", { framework: "JAX" }), run("a/two", { verdict: "Input-bound: 61%" }), run("b/three")],
      [],
      [folder("a"), folder("b"), folder("c")],
    );
    const names = (text: string): string[] =>
      filtered(groups, text).flatMap(({ runs: held }) => held.map(({ name }) => name));
    expect(names("jax")).toEqual(["one"]);
    expect(names("input-B")).toEqual(["two"]);
    expect(names("/^t/")).toEqual(["two", "three"]);
    expect(names("nothing")).toEqual([]);
    expect(filtered(groups, " ")).toHaveLength(3);
    expect(() => names("/(/")).toThrow();
  });
});

describe("selection", () => {
  const rows = ["f", "a", "b", "n", "c"].map((key) => ({ key, run: !["f", "n"].includes(key) }));
  const made = (): Selection => {
    const selection = new Selection();
    selection.show(rows);
    return selection;
  };

  it("follows the focus, and no folder is ever selected", () => {
    const selection = made();
    selection.move(1);
    expect([selection.cursor, selection.keys]).toEqual(["f", []]);
    selection.move(1);
    expect([selection.cursor, selection.keys]).toEqual(["a", ["a"]]);
    selection.move(Number.POSITIVE_INFINITY);
    expect([selection.cursor, selection.keys]).toEqual(["c", ["c"]]);
    selection.move(-1);
    expect([selection.cursor, selection.keys]).toEqual(["n", []]);
    selection.move(Number.NEGATIVE_INFINITY);
    expect(selection.cursor).toBe("f");
  });

  it("takes several with Ctrl and Shift, by keys and by clicks", () => {
    const selection = made();
    selection.pick("a");
    selection.pick("c", { toggle: true, extend: false });
    expect(selection.keys).toEqual(["a", "c"]);
    selection.pick("a", { toggle: true, extend: false });
    expect(selection.keys).toEqual(["c"]);
    selection.pick("c");
    selection.pick("a", { toggle: false, extend: true });
    expect(selection.keys).toEqual(["a", "b", "c"]);
    selection.move(1, { toggle: false, extend: true });
    expect(selection.keys).toEqual(["b", "c"]);
    selection.move(-1, { toggle: true, extend: false });
    expect([selection.cursor, selection.keys]).toEqual(["a", ["b", "c"]]);
    selection.toggle();
    expect(selection.keys).toEqual(["a", "b", "c"]);
    selection.none();
    selection.all();
    expect(selection.keys).toEqual(["a", "b", "c"]);
  });

  it("stays when the list is another one, and the cursor stays where it was", () => {
    const selection = made();
    selection.pick("b");
    selection.pick("c", { toggle: true, extend: false });
    selection.show(rows.filter(({ key }) => key !== "c"));
    expect([selection.cursor, selection.keys]).toEqual(["n", ["b"]]);
    selection.show([{ key: "new", run: true }, ...rows]);
    expect(selection.keys).toEqual(["b"]);
    selection.show([]);
    expect([selection.cursor, selection.keys]).toEqual([null, []]);
  });
});

describe("the list", () => {
  /** An answer whose lines the test sends. */
  function server() {
    const asked: {
      folders: readonly string[];
      each: (line: Record<string, unknown>) => void;
      signal: AbortSignal;
      end: (error?: Error) => void;
    }[] = [];
    const ask: Ask = (folders, each, signal) =>
      new Promise((resolve, reject) => {
        asked.push({ folders, each, signal, end: (error) => (error ? reject(error) : resolve()) });
      });
    const list = new RunList(
      ask,
      (error) => `explained: ${(error as Error).message}`,
      () => undefined,
    );
    const last = () => asked.at(-1) as (typeof asked)[number];
    return { asked, list, last };
  }
  const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));
  const told = (path: string, more = {}) => ({ run: { path, modified: "2026-11-21T13:55:00Z", bytes: 9, ...more } });

  it("shows runs as they come, what is known later, and drops what is gone", async () => {
    const { list, last } = server();
    expect(list.watch(["b", "a"])).toBe(true);
    expect([list.state, list.busy, last().folders]).toEqual(["loading", true, ["a", "b"]]);
    last().each(told("a/1"));
    last().each(told("a/2"));
    expect(list.runs.size).toBe(2);
    last().each({ listed: true });
    expect([list.state, list.busy, list.working]).toEqual(["ready", false, true]);
    last().each(told("a/1", { known: true, step_ms: 6.2 }));
    last().each({ done: true });
    last().end();
    await settle();
    expect([list.working, list.runs.get("a/1")?.step_ms]).toEqual([false, 6.2]);
    expect(list.watch(["a", "b"])).toBe(false);
    void list.refresh();
    last().each(told("a/1"));
    // The first line does not make unknown what is known.
    expect(list.runs.get("a/1")?.step_ms).toBe(6.2);
    expect(list.runs.size).toBe(2);
    last().each({ listed: true });
    expect([...list.runs.keys()]).toEqual(["a/1"]);
    last().each(told("a/1", { bytes: 10 }));
    expect(list.runs.get("a/1")?.known).toBe(false);
  });

  it("counts changes only where there are some", async () => {
    const { list, last } = server();
    list.watch(["a"]);
    const answer = async (...lines: Record<string, unknown>[]): Promise<number> => {
      for (const line of [...lines, { done: true }]) last().each(line);
      last().end();
      await settle();
      return list.changes;
    };
    const first = await answer(told("a/1"), { problem: { path: "a/x", message: "it is damaged." } });
    void list.refresh();
    expect(await answer(told("a/1"), { problem: { path: "a/x", message: "it is damaged." } })).toBe(first);
    void list.refresh();
    expect(await answer(told("a/1"))).toBe(first + 1);
    expect(list.problems).toEqual([]);
  });

  it("lets go of an answer that nobody waits for", async () => {
    const { asked, list } = server();
    list.watch(["a"]);
    list.watch(["b"]);
    expect(asked[0]?.signal.aborted).toBe(true);
    asked[0]?.each(told("a/1"));
    asked[0]?.end(new Error("aborted"));
    await settle();
    expect([list.runs.size, list.state, list.busy]).toEqual([0, "loading", true]);
    list.stop();
    expect([asked[1]?.signal.aborted, list.state, list.busy]).toEqual([true, "new", false]);
    list.watch([]);
    expect([list.state, asked.length]).toEqual(["ready", 2]);
  });

  it("says why there is none", async () => {
    const { list, last } = server();
    list.watch(["a"]);
    last().end(new Error("no extension"));
    await settle();
    expect([list.state, list.failure]).toEqual(["failed", "explained: no extension"]);
    void list.refresh();
    last().each({ message: "the disk does not answer." });
    last().end();
    await settle();
    expect(list.failure).toBe("the disk does not answer.");
    void list.refresh();
    last().end();
    await settle();
    expect(list.failure).toContain("was lost before");
    void list.refresh();
    last().each({ done: true });
    last().end();
    await settle();
    expect(list.state).toBe("ready");
  });
});

describe("looking again", () => {
  it("is seldom, more seldom where nothing happens, and not at all where nobody looks", async () => {
    const waits: number[] = [];
    let next = (): void => undefined;
    let news = false;
    const pace = new Pace(
      () => Promise.resolve(news),
      (fn, ms) => {
        waits.push(ms);
        next = fn;
        return () => {
          next = () => undefined;
        };
      },
    );
    const turn = async (): Promise<void> => {
      next();
      await new Promise((resolve) => setTimeout(resolve, 0));
    };
    pace.run(true);
    for (let i = 0; i < 5; i++) await turn();
    expect(waits.map((ms) => ms / 1000)).toEqual([30, 60, 120, 240, 300, 300]);
    news = true;
    await turn();
    expect(waits.at(-1)).toBe(30_000);
    pace.run(false);
    await turn();
    expect(waits).toHaveLength(7);
  });
});
