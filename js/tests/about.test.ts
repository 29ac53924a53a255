import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { TabId } from "../lib/payload.js";
import { ABOUT } from "../views/about.js";

const LABELS: Record<TabId, string> = {
  overview: "Overview",
  input: "Steps & input",
  ops: "Ops",
  op_profile: "Op profile",
  hlo: "HLO & roofline",
  kernels: "GPU kernels",
  device_time: "Device time",
  ascend: "Ascend",
  memory: "Memory",
  allocator: "Allocator",
  memory_viewer: "Program memory",
  pods: "Pods",
  trace: "Trace",
  compare: "Compare",
};

describe("what is this", () => {
  const docs = readFileSync(new URL("../../docs/views.md", import.meta.url), "utf8");
  it.each(Object.entries(LABELS))("of %s opens its section of the docs", (id, label) => {
    expect(docs).toContain(`\n## ${label}\n\n${ABOUT[id as TabId]}\n`);
  });

  it("is short", () => {
    for (const text of Object.values(ABOUT)) expect(text.length).toBeLessThan(340);
  });
});
