import { describe, expect, it } from "vitest";
import { complete, newer } from "../lib/older.js";
import type { Payload } from "../lib/payload.js";
import { lane, trace } from "./lanes.js";
import { sample } from "./sample.js";

/** A payload as version 0.1.0 saved it. */
function saved(): Payload {
  const old = structuredClone(sample());
  old.trace = trace(
    [
      lane([
        [0, 9, 0, 0],
        [1, 2, 1, 1],
      ]),
      lane([[5, 1, 1, 0]], { name: "worker" }),
    ],
    ["step", "op"],
    10,
  );
  const drop = (from: object, ...keys: string[]): void => {
    for (const key of keys) delete (from as Record<string, unknown>)[key];
  };
  drop(old, "pods");
  drop(old.ops, "modules", "shapes");
  drop(old.overview, "checks");
  drop(old.input, "statement", "next_step", "share");
  for (const category of old.input.categories) drop(category, "per_step_ms");
  for (const pipeline of old.input.pipelines) drop(pipeline, "fix", "slowest");
  for (const id of old.memory.ids) drop(id, "moments");
  drop(old.trace, "key", "rest", "strip", "gaps", "links", "lacks", "notes");
  for (const each of old.trace.lanes) drop(each, "id", "event", "derived");
  return old;
}

describe("a report of an earlier version", () => {
  it("has nothing where it holds nothing", () => {
    const payload = complete(saved());
    expect(payload.overview.checks).toEqual([]);
    expect([payload.ops.modules, payload.ops.shapes]).toEqual([null, null]);
    expect(payload.pods.empty?.title).toBe("Not in this report");
    expect(payload.input.pipelines.every((pipeline) => pipeline.slowest.length === 0)).toBe(true);
    expect(payload.input.categories.every((category) => category.per_step_ms === null)).toBe(true);
    expect(payload.memory.ids.every((id) => id.moments === null)).toBe(true);
    expect(payload.trace.rest.bins).toBe(0);
    expect(payload.trace.strip.above.length).toBe(0);
    expect(payload.trace.key).toBe("");
    expect(payload.trace.links.kind.length).toBe(0);
    expect(payload.trace.lacks).toEqual(["arguments", "arrows", "stacks"]);
  });

  it("numbers its lanes and slices, each once", () => {
    const { lanes } = complete(saved()).trace;
    expect(lanes.map((each) => each.id)).toEqual([0, 1]);
    expect(lanes.map((each) => [...each.event])).toEqual([[0, 1], [2]]);
    expect(lanes.map((each) => each.derived)).toEqual([false, false]);
  });

  it("keeps what it holds", () => {
    const now = sample();
    expect(complete(structuredClone(now))).toEqual(now);
  });
});

describe("a profile of a later version", () => {
  it("names the views that cannot be drawn, and what to do", () => {
    const tabs = [
      { id: "overview", label: "Overview" },
      { id: "energy", label: "Energy" },
    ];
    expect(newer(tabs.slice(0, 1), { overview: 0 })).toBeNull();
    expect(newer(tabs, { overview: 0 })?.text).toContain("It cannot draw Energy. Reload the page");
  });
});
