import { describe, expect, it } from "vitest";
import { endNear, opposite, withEnd } from "../views/trace/ends.js";

const range = { from: 1000, to: 2000 };

describe("an end of the range", () => {
  it("is taken hold of from either side of it, and from nowhere else", () => {
    expect([990, 1000, 1010, 1011, 1500, 1989, 1990, 2010, 2011].map((time) => endNear(range, time, 10))).toEqual([
      ...["from", "from", "from", null, null, null, "to", "to", null],
    ]);
    expect(endNear(null, 1000, 10)).toBeNull();
  });
  it("of a range as short as the pointer is wide is that of the side the pointer is on", () => {
    const short = { from: 1000, to: 1004 };
    expect([995, 1001, 1003, 1012].map((time) => endNear(short, time, 10))).toEqual(["from", "from", "to", "to"]);
  });
  it("stays inside of the profile and on its side of the other", () => {
    expect(withEnd(range, "from", -5, 1, 5000)).toEqual({ from: 0, to: 2000 });
    expect(withEnd(range, "from", 2500, 1, 5000)).toEqual({ from: 1999, to: 2000 });
    expect(withEnd(range, "to", 6000, 1, 5000)).toEqual({ from: 1000, to: 5000 });
    expect(withEnd(range, "to", 10, 1, 5000)).toEqual({ from: 1000, to: 1001 });
    expect(withEnd(range, "to", 1200, 1, 5000)).toEqual({ from: 1000, to: 1200 });
    expect([opposite("from"), opposite("to")]).toEqual(["to", "from"]);
  });
});
