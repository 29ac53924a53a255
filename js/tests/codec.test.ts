import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { fromBase64, fromText, inPage, numberAt, textAt, unpack } from "../lib/codec.js";

type Buffers = (Float64Array | Uint32Array | Int32Array | Uint8Array)[];

/** Packs as nbprof/display/codec.py does. */
function pack(header: (offsets: number[]) => unknown, buffers: Buffers, gzip = true): Uint8Array {
  const offsets: number[] = [];
  let size = 0;
  for (const buffer of buffers) {
    offsets.push(size);
    size += Math.ceil(buffer.byteLength / 8) * 8;
  }
  const json = new TextEncoder().encode(JSON.stringify(header(offsets)));
  const base = Math.ceil((4 + json.length) / 8) * 8;
  const container = new Uint8Array(base + size);
  new DataView(container.buffer).setUint32(0, json.length, true);
  container.set(json, 4);
  buffers.forEach((buffer, i) => {
    container.set(new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength), base + (offsets[i] as number));
  });
  return gzip ? new Uint8Array(gzipSync(container)) : container;
}

describe("unpack", () => {
  const floats = Float64Array.of(1.5, Number.NaN, -2);
  const deltas = Uint32Array.of(10, 5, 0, 7);
  const codes = Uint8Array.of(1, 0, 1);
  const header = ([a, b, c]: number[]) => ({
    meta: { label: "run 7 µ" },
    time: { $: ["f8", a, 3] },
    start: { $: ["u4", b, 4, "delta"] },
    op: { codes: { $: ["u1", c, 3] }, values: ["a", "b"] },
    list: [{ x: null }, 1],
  });

  it.each([true, false])("restores arrays, deltas and columns (gzip %s)", async (gzip) => {
    const payload = (await unpack(pack(header, [floats, deltas, codes], gzip))) as unknown as Record<string, never>;
    expect(payload["meta"]).toEqual({ label: "run 7 µ" });
    expect(payload["time"]).toEqual(floats);
    expect(payload["start"]).toEqual(Uint32Array.of(10, 15, 15, 22));
    expect(payload["list"]).toEqual([{ x: null }, 1]);
    expect([0, 1, 2].map((i) => textAt(payload["op"], i))).toEqual(["b", "a", "b"]);
  });

  it("reads a view into a larger buffer, as a comm message is", async () => {
    const packed = pack(header, [floats, deltas, codes], false);
    const message = new Uint8Array(packed.length + 3);
    message.set(packed, 3);
    const payload = await unpack(new DataView(message.buffer, 3));
    expect((payload as unknown as Record<string, unknown>)["time"]).toEqual(floats);
  });

  it("decodes deltas of signed integers", async () => {
    const packed = pack(([a]) => ({ x: { $: ["i4", a, 3, "delta"] } }), [Int32Array.of(5, -3, -4)]);
    expect(((await unpack(packed)) as unknown as { x: Int32Array }).x).toEqual(Int32Array.of(5, 2, -2));
  });

  it("says what is wrong with a file that is cut or of an unknown kind", async () => {
    const cut = pack(() => ({ x: { $: ["f8", 0, 99] } }), [floats]);
    await expect(unpack(cut)).rejects.toThrow(/truncated/);
    const odd = pack(() => ({ x: { $: ["c16", 0, 1] } }), [floats]);
    await expect(unpack(odd)).rejects.toThrow(/unknown type "c16"/);
    await expect(unpack(pack(header, [floats, deltas, codes]).subarray(0, 60))).rejects.toThrow(
      /gzip data cannot be decompressed/,
    );
    await expect(unpack(new Uint8Array(10))).rejects.toThrow(/header cannot be read/);
    await expect(unpack(new Uint8Array(0))).rejects.toThrow(/empty/);
    await expect(unpack(Uint8Array.of(255, 0, 0, 0, 1))).rejects.toThrow(/header is incomplete/);
  });
});

describe("cells", () => {
  it("are missing rather than zero", () => {
    expect(numberAt(Float64Array.of(1), 5)).toBeNaN();
    expect(numberAt(["a"], 0)).toBeNaN();
    expect(numberAt(undefined, 0)).toBeNaN();
    expect(textAt(Float64Array.of(Number.NaN), 0)).toBe("");
    expect(textAt({ codes: Uint8Array.of(9), values: ["a"] }, 0)).toBe("");
  });

  it("fromBase64 gives the bytes", () => {
    expect(fromBase64("AAH/")).toEqual(Uint8Array.of(0, 1, 255));
  });

  it("fromText gives the bytes of what Python wrote; the same pair is in tests/views/test_codec.py", () => {
    const bytes = [0, 1, 2, 253, 254, 255, 60, 38, 36, 96, 120];
    expect(Array.from(fromText("009F1{{K8CBw%;"))).toEqual(bytes);
    expect(Array.from(inPage('<script>const code = "x";\nconst data = "009F1{{K8CBw%;";</script>') ?? [])).toEqual(
      bytes,
    );
    expect(inPage("<p>no script</p>")).toBeNull();
  });

  it("joins bytes that were stored apart", async () => {
    const values = Uint32Array.of(1, 70_001, 140_001, 4_000_000_000);
    const bytes = new Uint8Array(values.buffer);
    const planes = Uint8Array.from(bytes, (_, i) => bytes[(i % 4) * 4 + Math.floor(i / 4)] as number);
    const reference = (coding: string) => ({ $: ["u4", 0, 4, coding] });
    const packed = pack(() => ({ a: reference("planes"), b: reference("delta planes") }), [planes]);
    const found = (await unpack(packed)) as unknown as { a: Uint32Array; b: Uint32Array };
    expect(Array.from(found.a)).toEqual(Array.from(values));
    expect(Array.from(found.b)).toEqual([1, 70_002, 210_003, 4_000_210_003]);
  });
});
