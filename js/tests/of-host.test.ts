import { describe, expect, it } from "vitest";
import { follows, matching, ofHost } from "../views/of-host.js";
import { sample } from "./sample.js";

describe("one host", () => {
  const whole = sample({ steps: 4 });
  const { steps } = whole;
  steps.hosts = ["host-1", "host-10"];
  steps.host = Uint16Array.of(0, 1, 0, 1);
  steps.warmup = Uint8Array.of(1, 1, 0, 0);
  steps.count = "2 steps on 2 hosts";
  whole.memory.empty = null;
  whole.memory.ids = ["host-1 GPU_0", "host-10 GPU_0"].map((memory_id) => ({
    ...(whole.memory.ids[0] as (typeof whole.memory.ids)[0]),
    memory_id,
  }));

  it("has its own steps, allocators and pipelines", () => {
    const one = ofHost(whole, "host-1");
    expect([...one.steps.step]).toEqual([steps.step[0], steps.step[2]]);
    expect([...(one.steps.categories.input as Float64Array)]).toEqual(
      [0, 2].map((row) => steps.categories.input?.[row]),
    );
    expect([...(one.steps.warmup as Uint8Array)]).toEqual([1, 0]);
    expect(one.steps.count).toBeUndefined();
    expect(one.memory.ids.map((id) => id.memory_id)).toEqual(["host-1 GPU_0"]);
    expect(one.input.pipelines).toEqual(whole.input.pipelines.filter((pipeline) => pipeline.host === "host-1"));
    expect(one.ops).toBe(whole.ops);
  });

  it("keeps the means of all hosts where the report has no steps of each, and the views say so", () => {
    const { host: _, ...means } = { ...steps, hosts: [] };
    const one = ofHost({ ...whole, steps: means }, "host-1");
    expect(one.steps).toBe(means);
    expect([follows("overview", one), follows("input", one), follows("memory", one)]).toEqual([false, false, true]);
    expect([follows("overview", whole), follows("pods", one), follows("ops", whole)]).toEqual([true, true, false]);
  });

  it("says so where it has none, and is all of it where none is chosen", () => {
    const none = ofHost(whole, "host-2");
    expect(none.steps.empty?.title).toBe("No steps of host-2");
    expect(none.memory.empty?.title).toBe("No allocations of host-2");
    expect(ofHost(whole, null)).toBe(whole);
  });
});

it("finds hosts by any part of the name, those that begin with it first", () => {
  expect(matching(["a-host", "Host-2", "b"], "host")).toEqual(["Host-2", "a-host"]);
  expect(matching(["a", "b"], " ")).toEqual(["a", "b"]);
});
