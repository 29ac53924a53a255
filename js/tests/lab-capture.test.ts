import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
  ASKED,
  addressesOf,
  check,
  DEFAULTS,
  doing,
  type Field,
  fieldsOf,
  resultOf,
  sentence,
  summary,
  workerOf,
} from "../lab/capture/fields.js";

// tests/server/test_capture.py holds Python's side to the same file.
const cases = JSON.parse(readFileSync(new URL("../../tests/data/capture-fields.json", import.meta.url), "utf8")) as {
  [name: string]: Record<string, unknown>;
};
const fieldOf = (name: string): Field =>
  (Object.keys(ASKED) as Field[]).find((field) => ASKED[field] === name) as Field;

describe("the fields", () => {
  for (const [name, rows] of Object.entries(cases)) {
    const field = fieldOf(name);
    it.each(Object.entries(rows))(`${name} %j`, (text, expected) => {
      const checked = check({ ...DEFAULTS, addresses: "a:1", [field]: text });
      if (expected === null) {
        if (!("wrong" in checked)) throw new Error("it was taken");
        expect(Object.keys(checked.wrong)).toEqual([field]);
      } else {
        if ("wrong" in checked) throw new Error(JSON.stringify(checked.wrong));
        expect(checked.request[name as keyof typeof checked.request]).toEqual(expected);
      }
    });
  }

  it("are asked of the server as it wants them", () => {
    const checked = check({ ...DEFAULTS, addresses: "grpc://a:1\nb:2 c:3", name: "  ", folder: " " });
    expect(checked).toEqual({
      request: {
        addresses: ["a:1", "b:2", "c:3"],
        duration_ms: 2000,
        host_level: 2,
        device_level: 1,
        python_level: 0,
        retries: 3,
        delay_ms: null,
        name: null,
        folder: "nbprof-results",
      },
    });
  });

  it("take a delay, or leave it to the server", () => {
    const delay = (text: string): unknown => {
      const checked = check({ ...DEFAULTS, addresses: "a:1", delay: text });
      return "request" in checked ? checked.request.delay_ms : checked.wrong.delay;
    };
    expect([" ", "0", "1,500"].map(delay)).toEqual([null, 0, 1500]);
    expect(delay("soon")).toBe("the delay must be 0 ms to 3,600,000 ms (an hour), a whole number, not 'soon'");
  });

  it("tell all that is wrong at once", () => {
    const checked = check({ ...DEFAULTS, addresses: "a", duration: "2s", retries: "", folder: "../x" });
    expect("wrong" in checked && Object.keys(checked.wrong).sort()).toEqual([
      "addresses",
      "duration",
      "folder",
      "retries",
    ]);
    expect("wrong" in checked && checked.wrong.duration).toBe(
      "the duration must be 1 ms to 3,600,000 ms (an hour), a whole number, not '2s'",
    );
  });

  it("take a duration with the commas that the sentences have", () => {
    const checked = check({ ...DEFAULTS, addresses: "a:1", duration: "3,600,000" });
    expect("request" in checked && checked.request.duration_ms).toBe(3_600_000);
  });

  it("take folders below the one that is served only", () => {
    for (const folder of ["/", "a/b", "ü b/c"]) {
      expect("request" in check({ ...DEFAULTS, addresses: "a:1", folder })).toBe(true);
    }
    for (const folder of ["..", "a/../b", ".hidden", "a/.b"]) {
      expect("wrong" in check({ ...DEFAULTS, addresses: "a:1", folder })).toBe(true);
    }
  });

  it("are as usual where what was kept is none", () => {
    expect(fieldsOf(null)).toEqual(DEFAULTS);
    expect(fieldsOf({ addresses: 5, retries: "7", other: "x" })).toEqual({ ...DEFAULTS, retries: "7" });
    expect(fieldsOf("x")).toEqual(DEFAULTS);
  });
});

it("says of an address what Python says", () => {
  expect(addressesOf("it's:1")).toEqual({
    wrong: `"it's:1" is not an address: write it as host:6009, with the port of the profiler server`,
  });
});

describe("what comes back", () => {
  it("is read with care", () => {
    expect(resultOf({ message: "no" })).toBeNull();
    expect(resultOf({ path: "a/b" })).toEqual({ path: "a/b", name: "", workers: [], notes: [] });
    expect(workerOf(null)).toEqual({ address: "", state: "", text: "" });
    expect(doing("again")).toBe("Retrying");
    expect(doing("constructor")).toBe("Waiting");
  });

  it("is counted in a sentence", () => {
    const worker = (state: string) => ({ address: "a:1", state, text: "" });
    expect(summary([worker("recorded")])).toBe("The worker was recorded.");
    expect(summary([worker("recorded"), worker("recorded")])).toBe("All 2 workers were recorded.");
    expect(summary([worker("recorded"), worker("failed")])).toBe("1 of 2 workers was recorded.");
    expect(summary(["recorded", "recorded", "failed"].map(worker))).toBe("2 of 3 workers were recorded.");
  });

  it("is told in whole sentences", () => {
    expect(sentence("the duration is short")).toBe("The duration is short.");
    expect(sentence("localhost has no port")).toBe("localhost has no port.");
    expect(sentence("localhost:1: nothing listens on this port: is it running?")).toBe(
      "localhost:1: nothing listens on this port: is it running?",
    );
  });
});
