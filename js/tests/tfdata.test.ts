import { describe, expect, it } from "vitest";
import { textAt } from "../lib/codec.js";
import { callsText, longestText, nested, rowsOf } from "../views/input/view.js";
import { bottleneck, bottleneckText, layout, NODE_HEIGHT, TF_DATA } from "../views/tfdata.js";
import { INPUT_OPS, NODES } from "./sample.js";

describe("sentences", () => {
  it("call no more of a category a part of less", () => {
    expect(longestText(3, 5.73, "Input", 6.47)).toBe(
      "Step 3 took 5.73 ms longer than the mean; it took 6.47 ms more for input.",
    );
    expect(longestText(3, 5.73, "Input", 3)).toBe(
      "Step 3 took 5.73 ms longer than the mean; 3.00 ms of that is input.",
    );
    expect(longestText(3, 5.73, "Input", 1)).toBe("Step 3 took 5.73 ms longer than the mean.");
  });

  it("make no mean and no range of one call", () => {
    const one = { calls: 1, slow_calls: 1, mean_us: 51, min_us: 51, max_us: 51 };
    expect(callsText(one)).toBe("There was 1 call, of 51.0 µs.");
    expect(callsText({ ...one, calls: 2, min_us: 49, mean_us: 50 })).toBe(
      "2 calls, 1 of them slow; a call takes 50.0 µs on average, 49.0 µs to 51.0 µs.",
    );
  });
});

describe("tables of pipelines and calls", () => {
  it("have the rows of one pipeline of one host", () => {
    const data = { host: ["a", "b", "a", "a"], pipeline: ["Host:0", "Host:0", "Host:1", "Host:0"] };
    const table = { columns: [], data, rows: 4 };
    expect(rowsOf(table, { host: "a", name: "Host:0" })).toEqual([0, 3]);
    expect(rowsOf(table, { host: "c", name: "Host:0" })).toEqual([]);
  });
});

describe("graph", () => {
  const plan = layout(NODES, 137);
  const at = (name: string) => plan.nodes.find((item) => item.node.name === name);

  it("flows left to right, one column a depth, the root at the right", () => {
    const names = ["TFRecord", "Shuffle", "Zip", "Map", "BatchV2", "Root"];
    expect(names.map((name) => at(name)?.column)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(at("TensorSlice")?.column).toBe(1);
    for (const edge of plan.edges) expect(edge.from.x + 137).toBeLessThan(edge.to.x);
    expect(plan.edges).toHaveLength(NODES.length - 1);
  });

  it("never lays two nodes on each other, and holds all of them", () => {
    for (const a of plan.nodes) {
      expect(a.x + 137).toBeLessThanOrEqual(plan.width);
      expect(a.y + NODE_HEIGHT).toBeLessThanOrEqual(plan.height);
      for (const b of plan.nodes) {
        if (a !== b && a.column === b.column) expect(Math.abs(a.y - b.y)).toBeGreaterThanOrEqual(NODE_HEIGHT);
      }
    }
    expect(at("Zip")?.y).toBe(((at("Shuffle")?.y ?? 0) + (at("TensorSlice")?.y ?? 0)) / 2);
  });

  it("thickens only what lies on the critical path", () => {
    const thin = plan.edges.filter((edge) => !edge.critical).map((edge) => edge.from.node.name);
    expect(thin).toEqual(["TensorSlice"]);
  });

  it("outlines exactly one node", () => {
    expect(bottleneck(NODES)?.name).toBe("Map");
    expect(bottleneck(NODES.map((node) => ({ ...node, bottleneck: true })))?.name).toBe("Map");
    expect(bottleneck(NODES.map((node) => ({ ...node, bottleneck: false })))).toBeNull();
    expect(bottleneck([])).toBeNull();
  });

  it("says what part of what the bottleneck takes, where it is a part", () => {
    const [first] = NODES as [(typeof NODES)[0]];
    expect(bottleneckText({ ...first, percent: 82.4 }, TF_DATA)).toBe("bottleneck, 82% of the calls");
    expect(bottleneckText({ ...first, percent: null }, TF_DATA)).toBe("bottleneck");
  });

  it("survives parents that are missing or go round in a ring", () => {
    const [a, b] = NODES as [(typeof NODES)[0], (typeof NODES)[0]];
    const ring = [
      { ...a, parent: b.id },
      { ...b, parent: a.id },
    ];
    expect(layout(ring, 137).nodes).toHaveLength(2);
    expect(layout([{ ...a, parent: "nobody" }], 137).edges).toEqual([]);
  });
});

describe("input ops", () => {
  it("follow their nesting, largest first", () => {
    const { order, depth } = nested(INPUT_OPS);
    const names = order.map((row) => textAt(INPUT_OPS.data["op"], row).split("::").at(-1));
    expect(names).toEqual(
      ["Root", "BatchV2", "Map", "Zip[0]", "Shuffle", "TFRecord", "TensorSlice"].map((n) => n.replace("[0]", "")),
    );
    expect(order.map((row) => depth[row])).toEqual([1, 2, 3, 4, 5, 6, 5].map((n) => n - 1));
  });
});
