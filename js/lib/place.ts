/** Where a reader is in a report, as the fragment of its address says it: "#tab=trace&t=12.5ms..13ms&step=7". */

import type { TabId } from "./payload.js";
import type { Selection } from "./store.js";

/** From and to, in ms since the start of the profile, as the tables count. */
export type Times = readonly [from_ms: number, to_ms: number];

export interface Place {
  tab?: TabId;
  steps?: Selection;
  host?: string;
  device?: number;
  /** Window of the trace; a moment where both are the same. */
  window_ms?: Times;
  /** The range that is marked there. */
  range_ms?: Times;
  /** The number of the event whose slice is selected. */
  slice?: number;
  op?: string;
  kernel?: string;
}

const UNITS: Record<string, number> = { ns: 1e-6, us: 1e-3, µs: 1e-3, μs: 1e-3, ms: 1, s: 1e3 };
const BETWEEN = "..";

function timeOf(text: string, usual: string): { ms: number; unit: string } | null {
  const [, digits, unit = usual] = /^(-?(?:\d+(?:\.\d*)?|\.\d+))(ns|us|µs|μs|ms|s)?$/.exec(text) ?? [];
  const ms = Number(digits) * (UNITS[unit] as number);
  return Number.isFinite(ms) ? { ms, unit } : null;
}

/** "12.5ms..13ms", "12.5..13ms", "12.5ms". A time without a unit has that of the other one, or is in ms. */
function timesOf(text: string): Times | undefined {
  const [first = "", second = first, ...more] = text.split(BETWEEN);
  const to = timeOf(second, "ms");
  const from = to && timeOf(first, to.unit);
  return from && to && !more.length && from.ms <= to.ms ? [from.ms, to.ms] : undefined;
}

const countOf = (text: string): number | undefined => (/^\d{1,15}$/.test(text) ? Number(text) : undefined);

/** "7" or "5..9". */
function stepsOf(text: string): Selection | undefined {
  const [first = "", second = first, ...more] = text.split(BETWEEN);
  const [from, to] = [countOf(first), countOf(second)];
  return from === undefined || to === undefined || more.length || from > to ? undefined : { first: from, last: to };
}

const textOf = (text: string): string | undefined => text || undefined;

/** The parts by their names; what reads one gives nothing of a text that it does not understand. */
const PARTS: { [K in keyof Place]-?: { name: string; read(text: string): Place[K] } } = {
  tab: { name: "tab", read: (text) => textOf(text) as TabId | undefined },
  steps: { name: "step", read: stepsOf },
  host: { name: "host", read: textOf },
  device: { name: "device", read: countOf },
  window_ms: { name: "t", read: timesOf },
  range_ms: { name: "range", read: timesOf },
  slice: { name: "slice", read: countOf },
  op: { name: "op", read: textOf },
  kernel: { name: "kernel", read: textOf },
};

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
};

/** What a fragment says; parts that are unknown or damaged are left out, and of those that come twice the first counts. */
export function readPlace(fragment: string): Place {
  const texts = new Map<string, string>();
  for (const part of fragment.replace(/^#/, "").split("&")) {
    const [name = "", ...rest] = part.split("=");
    if (!texts.has(name)) texts.set(name, decoded(rest.join("=")));
  }
  const place: Record<string, unknown> = {};
  for (const [key, { name, read }] of Object.entries(PARTS)) {
    const value = read(texts.get(name) ?? "");
    if (value !== undefined) place[key] = value;
  }
  return place;
}

/** ms to the ns, with no more digits than it takes. */
const timeText = (ms: number): string => `${Number(ms.toFixed(6))}ms`;
const timesText = ([from, to]: Times): string =>
  from === to ? timeText(from) : `${timeText(from)}${BETWEEN}${timeText(to)}`;

/** Of what is no letter or digit, "/", ":", "," and "@" mean nothing in a fragment and stay readable. */
const encoded = (text: string): string => encodeURIComponent(text).replace(/%(2F|3A|2C|40)/g, decodeURIComponent);

/** The fragment without "#"; "" where it would say nothing. */
export function placeText(place: Place): string {
  const { steps, window_ms, range_ms } = place;
  const texts: Record<keyof Place, string | number | undefined> = {
    ...{ tab: place.tab, host: place.host, device: place.device, slice: place.slice },
    ...{ op: place.op, kernel: place.kernel },
    steps: steps && (steps.first === steps.last ? steps.first : `${steps.first}${BETWEEN}${steps.last}`),
    window_ms: window_ms && timesText(window_ms),
    range_ms: range_ms && timesText(range_ms),
  };
  return (Object.keys(PARTS) as (keyof Place)[])
    .flatMap((key) => (texts[key] === undefined ? [] : [`${PARTS[key].name}=${encoded(String(texts[key]))}`]))
    .join("&");
}
