import { describe, expect, it } from "vitest";
import type { Table } from "../lib/payload.js";
import { follows, followsDevice, matching, ofHost } from "../views/of-host.js";
import { deviceTimeSample } from "./device-time-sample.js";
import { sample } from "./sample.js";

const of = (host: string | null, device: number | null = null) => ({ host, device });

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
    const one = ofHost(whole, of("host-1"));
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
    const one = ofHost({ ...whole, steps: means }, of("host-1"));
    expect(one.steps).toBe(means);
    expect([follows("overview", one), follows("input", one), follows("memory", one)]).toEqual([false, false, true]);
    expect([follows("overview", whole), follows("pods", one), follows("ops", whole)]).toEqual([true, true, false]);
  });

  it("says so where it has none, and is all of it where none is chosen", () => {
    const none = ofHost(whole, of("host-2"));
    expect(none.steps.empty?.title).toBe("No steps of host-2");
    expect(none.memory.empty?.title).toBe("No allocations of host-2");
    expect(ofHost(whole, of(null))).toBe(whole);
  });
});

it("finds hosts by any part of the name, those that begin with it first", () => {
  expect(matching(["a-host", "Host-2", "b"], "host")).toEqual(["Host-2", "a-host"]);
  expect(matching(["a", "b"], " ")).toEqual(["a", "b"]);
});

describe("device time", () => {
  const whole = { ...sample({ steps: 4 }), device_time: deviceTimeSample() };
  const { device_time: all } = whole;
  const time = (host: string | null, device: number | null = null) => ofHost(whole, of(host, device)).device_time;

  it("of a host has its devices, their parts in every window, waits, curves and rows", () => {
    const one = time("rank 1");
    expect(one.devices).toEqual(["rank 1, device 1"]);
    expect([...one.parts_ms]).toEqual([6, 0, 1, 3, Number.NaN, Number.NaN, Number.NaN, Number.NaN]);
    expect(one.waits).toEqual([[null, 2, 1]]);
    expect(one.streams.map(({ unit }) => unit)).toEqual(["GB/s"]);
    const causes = one.tables["device_idle_causes"] as Table;
    expect(causes.rows).toBe(1);
    expect([...(causes.data["idle_ms"] as Float64Array)]).toEqual([1]);
    expect(one.empty).toBeNull();
  });
  it("of a device is that of its number on the host, and tables of all devices stay", () => {
    const one = time("rank 0", 0);
    expect(one.devices).toEqual([all.devices[0]]);
    expect([...one.parts_ms]).toEqual([5, 2, 0, 3, 4, 0, 0, 1]);
    expect(one.tables["device_launches"]).toBe(all.tables["device_launches"]);
    expect(time(null, 1).devices).toEqual(["rank 1, device 1"]);
    expect(time("rank 0", 1).empty?.title).toBe("No device time of device 1 of rank 0");
  });
  it("says why a host has none, as far as that is known", () => {
    const none = (left_out: string) =>
      ofHost({ ...whole, device_time: { ...all, left_out } }, of("rank 9")).device_time.empty?.text;
    expect(none("")).toBe("It recorded no device work.");
    expect(none("Not listed here: 3 more devices.")).toMatch(/, or is among what is left out\. Not listed here/);
  });
  it("and the trace follow a device; the other views say that they do not", () => {
    const ids = ["overview", "ops", "device_time", "trace", "memory"] as const;
    expect(ids.map(followsDevice)).toEqual([false, false, true, true, false]);
  });
});
