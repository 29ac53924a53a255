import { describe, expect, it } from "vitest";
import { facts, runOf, spoken, timeOf } from "../lab/runs/run.js";
import { capital, isWhole, STEP, timeTitle, type Unit, unitOf, whereItGoes } from "../lib/unit.js";
import { categoryRows } from "../views/compare/model.js";
import { pathScope } from "../views/device-time/model.js";
import { longestText } from "../views/input/view.js";
import { sentence } from "../views/pods/model.js";
import { leftOutNote, stepCount } from "../views/stepstats.js";
import { infoWords } from "../views/trace/announce.js";
import { podsSample, sample } from "./sample.js";

const CALL: Unit = {
  kind: "call",
  noun: "call",
  plural: "calls",
  a: "a call",
  the: "the call",
  time: "call time",
  per: "per call",
  counted: "per call",
  label: "Average call time",
  average: "Average call",
};
const RECORDING: Unit = {
  kind: "recording",
  noun: "recording",
  plural: "recordings",
  a: "the recording",
  the: "the recording",
  time: "the recording",
  per: "of the recording",
  counted: "in the recording",
  label: "Duration",
  average: "Duration",
};

describe("the unit of work", () => {
  it("is a step where Python names none", () => {
    expect(unitOf({})).toBe(STEP);
    expect(unitOf({ unit: CALL })).toBe(CALL);
    expect([STEP, CALL, RECORDING].map(isWhole)).toEqual([false, false, true]);
  });

  it("has headings", () => {
    expect([STEP, CALL, RECORDING].map(timeTitle)).toEqual(["Step time", "Call time", "The recording"]);
    expect([STEP, CALL, RECORDING].map(whereItGoes)).toEqual([
      "Where a step goes",
      "Where a call goes",
      "Where the time goes",
    ]);
    expect(capital("")).toBe("");
  });
});

describe("words that follow it", () => {
  const { steps } = sample({ steps: 4 });

  it("count what there is, and no recording", () => {
    expect(stepCount(steps)).toBe("4 steps");
    expect(stepCount({ ...steps, noun: "call" })).toBe("4 calls");
    expect(stepCount({ ...steps, noun: "recording" })).toBe("");
    expect(stepCount({ ...steps, noun: "recording", count: "one recording each on 2 hosts" })).toContain("2 hosts");
  });

  it("say what averages leave out", () => {
    const warmup = new Uint8Array([1, 0, 0, 0]);
    expect(leftOutNote({ ...steps, warmup, noun: "call" }, null)).toContain("the first call");
  });

  it("are those of the tabs", () => {
    expect(longestText(3, 2, "Input", 2, "call")).toBe(
      "Call 3 took 2.00 ms longer than the mean; 2.00 ms of that is input.",
    );
    expect(pathScope("2", "", 5, CALL)).toBe("of call 2, the call of median length");
    expect(pathScope("recording", "host-1", 1, RECORDING)).toBe("of the recording on host-1");
    expect(sentence({ ...podsSample(2, 3), count: new Uint8Array([1, 3]) }, 0, "iteration")).toContain(
      "recorded this iteration",
    );
  });

  it("give a recording no number", () => {
    const info = { step: "3", arrows: [], same: { count: 0, mean_ns: 0 }, slice: { duration_ns: 1 } };
    expect(infoWords(info as unknown as Parameters<typeof infoWords>[0], "call")).toContain("Call 3");
    expect(infoWords(info as unknown as Parameters<typeof infoWords>[0], "recording")).not.toContain("3");
  });

  it("are those of two runs beside each other", () => {
    const row = {
      key: "step_time" as const,
      before_ms: 1,
      after_ms: 2,
      change_ms: 1,
      margin_ms: null,
      change_percent: 100,
      real: null,
    };
    const pair = { categories: [row], unit: RECORDING } as unknown as Parameters<typeof categoryRows>[0];
    expect(categoryRows(pair).rows.map(({ label }) => label)).toEqual(["Recording"]);
  });
});

describe("a run in the list", () => {
  const run = (unit?: string) => {
    const found = runOf({ path: "a", known: true, steps: 5, step_ms: 12.8, unit, modified: "2026-01-01T00:00:00Z" });
    if (!found) throw new Error("it is a run");
    return found;
  };

  it("speaks of its unit", () => {
    expect(facts(run())).toContain("5 steps");
    expect(facts(run("call"))).toContain("5 calls");
    expect(facts(run("recording"))).toEqual([]);
    expect(spoken(run("iteration"), 0, false)).toContain("12.80 ms per iteration");
    expect(spoken(run("recording"), 0, false)).toContain("12.80 ms of the recording");
    expect([run(), run("call"), run("recording")].map(timeOf)).toEqual(["step time", "call time", "duration"]);
  });
});
