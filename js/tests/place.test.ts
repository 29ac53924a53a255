import { describe, expect, it } from "vitest";
import { type Place, placeText, readPlace } from "../lib/place.js";

describe("the place that a fragment names", () => {
  it("is a tab, steps, a window, a range, a slice, a host, a device, an op or a kernel", () => {
    expect(readPlace("#tab=trace&t=12.5ms..13ms&step=7&range=12.6ms..12.7ms&slice=31")).toEqual({
      tab: "trace",
      window_ms: [12.5, 13],
      steps: { first: 7, last: 7 },
      range_ms: [12.6, 12.7],
      slice: 31,
    });
    expect(readPlace("tab=ops&op=aten%3A%3Amm&kernel=void%20f%3Cint%3E(int)&host=a%26b&device=0&step=3..5")).toEqual({
      tab: "ops",
      op: "aten::mm",
      kernel: "void f<int>(int)",
      host: "a&b",
      device: 0,
      steps: { first: 3, last: 5 },
    });
  });
  it("has times in any unit; one without has that of the other, or is in ms", () => {
    const times = (text: string) => readPlace(`t=${text}`).window_ms;
    expect(times("1s..2s")).toEqual([1000, 2000]);
    expect(times("5..7us")).toEqual([0.005, 0.007]);
    expect(times("5..7%C2%B5s")).toEqual([0.005, 0.007]);
    expect(times("250ns")).toEqual([0.00025, 0.00025]);
    expect(times("3")).toEqual([3, 3]);
    expect(times(".5..1.")).toEqual([0.5, 1]);
    // Events may lie before the start of the profile.
    expect(times("-3.2ms..5ms")).toEqual([-3.2, 5]);
  });
  it("leaves out what is damaged or unknown, and keeps the rest", () => {
    for (const text of ["", "#", "#section-2", "&&=&", "#t=&step=&tab=", "%", "=tab"])
      expect(readPlace(text)).toEqual({});
    const damaged = "t=2ms..1ms&step=9..3&device=-1&slice=1e3&range=a..b&op=%E0%A4%A&mood=blue&tab=ops&tab=trace";
    expect(readPlace(damaged)).toEqual({ tab: "ops" });
    for (const text of ["1..2..3", "1h", "NaN", "Infinity", "--1..1", "1e400", "0x10", "9".repeat(400)])
      expect(readPlace(`t=${text}`)).toEqual({});
    expect(readPlace("step=12345678901234567890")).toEqual({});
  });
  it("reads as it was written, to the ns", () => {
    const places: Place[] = [
      {},
      { tab: "overview" },
      { tab: "trace", window_ms: [12.5, 13.000001], range_ms: [0, 0.25], slice: 0, steps: { first: 1, last: 9 } },
      { tab: "kernels", kernel: "void f<a, b>(int&)#%=+ ü", host: "host-1, rank 0", device: 3 },
      { window_ms: [7, 7], op: "a/b:c" },
    ];
    for (const place of places) expect(readPlace(`#${placeText(place)}`)).toEqual(place);
    expect(placeText(places[2] as Place)).toBe("tab=trace&step=1..9&t=12.5ms..13.000001ms&range=0ms..0.25ms&slice=0");
    expect(placeText(places[4] as Place)).toBe("t=7ms&op=a/b:c");
  });
});
