import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { type Guest, openedBytes, settle } from "../hosts/budget.js";

function guest(weight: number, seen: number, far = true): Guest & { rested: boolean } {
  return {
    seen,
    rested: false,
    weight() {
      return this.rested ? 0 : weight;
    },
    far: () => far,
    rest() {
      this.rested = true;
    },
  };
}

describe("the budget of a page", () => {
  it("lets those rest that were seen longest ago, as few as it takes", () => {
    const all = [guest(40, 3), guest(40, 1), guest(40, 2)];
    expect(settle(100, all)).toBe(80);
    expect(all.map(({ rested }) => rested)).toEqual([false, true, false]);
    expect(settle(100, all)).toBe(80);
  });

  it("never takes what is in view, however much that is", () => {
    const all = [guest(80, 1, false), guest(80, 2, false), guest(10, 3)];
    expect(settle(100, all)).toBe(160);
    expect(all.map(({ rested }) => rested)).toEqual([false, false, true]);
  });
});

it("the size of an opened payload is read off the packed one", () => {
  const raw = new Uint8Array(70_000);
  const packed = new Uint8Array(gzipSync(raw));
  const inside = new Uint8Array(packed.length + 3);
  inside.set(packed, 3);
  expect(openedBytes(packed)).toBe(openedBytes(inside.subarray(3)));
  expect(openedBytes(packed) / openedBytes(raw)).toBeCloseTo(1);
});
