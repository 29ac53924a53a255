/** What the dashboard makes of a place that an address names, and the place that it is at. */

import type { Payload, TabId } from "../lib/payload.js";
import type { Place, Times } from "../lib/place.js";
import type { Selection, State, Store } from "../lib/store.js";
import type { Hint } from "../lib/view.js";
import { toMoment } from "./jump.js";

/** Steps of which at least one is in the profile; null where there are none, as in a link to another one. */
export function stepsIn({ steps }: Pick<Payload, "steps">, selection: Selection | undefined): Selection | null {
  if (!selection) return null;
  const within = (step: number): boolean => step >= selection.first && step <= selection.last;
  return steps.step.some(within) ? selection : null;
}

/** The host and the device, as far as the profile has them. */
export function chosenAt({ meta }: Pick<Payload, "meta">, place: Place): Pick<State, "host" | "device"> {
  const host = meta.hosts?.includes(place.host ?? "") ? (place.host as string) : null;
  const shown = host ?? (meta.hosts ? null : meta.devices?.[0]?.host);
  const numbers = meta.devices?.find((each) => each.host === shown)?.devices ?? [];
  return { host, device: numbers.find((number) => number === place.device) ?? null };
}

/** The times, where the profile has any of them. */
function timesIn({ trace }: Payload, times: Times | undefined): Times | undefined {
  if (!times) return undefined;
  const start = trace.origin_ns / 1e6;
  const end = start + (trace.end * trace.tick_ns) / 1e6;
  return times[0] <= end && times[1] >= start ? times : undefined;
}

/** What a place says beyond the tab, for the view of that tab. */
export function hintAt(payload: Payload, id: TabId, place: Place): Hint | undefined {
  const { op, kernel, slice } = place;
  const name = kernel ?? op;
  if (id !== "trace") return name === undefined ? undefined : { filter: name, search: name };
  const times = timesIn(payload, place.window_ms);
  const window_ms = times && times[0] === times[1] ? toMoment(payload, times[0]).range_ms : times;
  const range_ms = timesIn(payload, place.range_ms);
  const steps = stepsIn(payload, place.steps);
  const hint: Hint = {
    ...(window_ms && { window_ms }),
    ...(range_ms && { range_ms }),
    ...(slice !== undefined && payload.trace.lanes.some(({ event }) => event.includes(slice)) && { slice }),
    ...(name !== undefined && { target: { kind: kernel === undefined ? "op" : "kernel", name } }),
  };
  if (Object.keys(hint).length) return hint;
  return steps ? { target: { kind: "step", step: steps.first } } : undefined;
}

/** Where a reader is. What is marked in a tab is only said while it is shown. */
export function placeIn(store: Store): Place {
  const { first, last } = store.get("selection") ?? {};
  const host = store.get("host");
  const device = store.get("device");
  const tab = store.get("tab");
  const op = store.get("op");
  const kernel = store.get("kernel");
  return {
    tab,
    ...(first !== undefined && last !== undefined && { steps: { first, last } }),
    ...(host !== null && { host }),
    ...(device !== null && { device }),
    ...(tab === "trace" && store.get("trace")),
    ...(tab === "ops" && op !== null && { op }),
    ...(tab === "kernels" && kernel !== null && { kernel }),
  };
}
