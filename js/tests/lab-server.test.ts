/** The answer of nbprof's server extension to `open`: lines, the first picture among them, and the profile. */

import { describe, expect, it } from "vitest";
import { Lines } from "../lab/lines.js";

/** A reader that gives the bytes in pieces of that length. */
function inPieces(data: Uint8Array, length: number): ReadableStreamDefaultReader<Uint8Array> {
  return new ReadableStream<Uint8Array>({
    start(controller) {
      for (let at = 0; at < data.length; at += length) controller.enqueue(data.slice(at, at + length));
      controller.close();
    },
  }).getReader();
}

const picture = Uint8Array.from([1, 10, 13, 10, 0, 255]);
const whole = Uint8Array.from({ length: 300 }, (_, i) => i % 256);

function answer(): Uint8Array {
  const line = (said: object): Uint8Array => new TextEncoder().encode(`${JSON.stringify(said)}\n`);
  const parts = [
    line({ progress: "Reading…" }),
    line({ progress: "Analysing", early: picture.length }),
    picture,
    line({ bytes: whole.length }),
    whole,
  ];
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}

describe("an answer in lines with bytes between them", () => {
  it.each([1, 2, 7, 64, 10_000])("is read whole where it comes in pieces of %i bytes", async (length) => {
    const lines = new Lines(inPieces(answer(), length));
    expect(JSON.parse((await lines.line()) ?? "")).toEqual({ progress: "Reading…" });
    expect(JSON.parse((await lines.line()) ?? "").early).toBe(picture.length);
    expect([...(await lines.bytes(picture.length))]).toEqual([...picture]);
    expect(JSON.parse((await lines.line()) ?? "").bytes).toBe(whole.length);
    expect([...(await lines.bytes(whole.length))]).toEqual([...whole]);
    expect(await lines.line()).toBeNull();
  });

  it("that ends too early is an error", async () => {
    const lines = new Lines(inPieces(picture, 2));
    await expect(lines.bytes(picture.length + 1)).rejects.toThrow("was lost before the profile was loaded");
  });
});
