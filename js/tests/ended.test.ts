import { describe, expect, it } from "vitest";
import { endedText, hasEnded } from "../lib/ended.js";

describe("the status of a cell whose kernel has ended", () => {
  it("does not go on saying that it records", () => {
    const text = endedText("nbprof: recording · step 3");
    expect(text).toBe("nbprof: the kernel ended before this cell did; last shown: recording · step 3");
    expect(endedText(text)).toBe(text);
    expect([hasEnded(text), hasEnded("nbprof: recording · step 3")]).toEqual([true, false]);
  });
});
