/** One host of several, or one device of a host: what of a payload is of it alone, and the controls in the header that choose it. */

import { numberAt, textAt } from "../lib/codec.js";
import { clear, h, handled, listen } from "../lib/dom.js";
import { num } from "../lib/format.js";
import { button, picker } from "../lib/parts.js";
import type { ColumnData, DeviceTime, Payload, Steps, TabId, Table } from "../lib/payload.js";
import type { Store } from "../lib/store.js";

/** Views that show the host that is chosen, drawn anew for it; Pods marks it among the others, the trace hides their lanes. */
export const OF_HOST: ReadonlySet<TabId> = new Set<TabId>(["overview", "input", "memory", "device_time"]);
/** Of these, and the trace, the ones that show a single device of it. */
const OF_DEVICE: ReadonlySet<TabId> = new Set<TabId>(["device_time", "trace"]);

/** Hosts that the list shows at once; more are found by typing. */
const MOST = 100;
/** Hosts that need no filter. */
const FEW = 8;

/** What is chosen; null: all of them. */
export interface Chosen {
  host: string | null;
  device: number | null;
}

export const chosenIn = (store: Store): Chosen => ({ host: store.get("host"), device: store.get("device") });

function stepsOf(steps: Steps, host: string): Steps {
  const code = steps.hosts.indexOf(host);
  const rows = Array.from(steps.step, (_, row) => row).filter((row) => (steps.host?.[row] ?? 0) === code);
  const take = (values: Float64Array): Float64Array => Float64Array.from(rows, (row) => values[row] as number);
  const { typical: _typical, count: _count, host: _host, warmup, ...rest } = steps;
  return {
    ...rest,
    empty: rows.length ? null : { title: `No steps of ${host}`, text: "None of its steps are in this report." },
    step: Int32Array.from(rows, (row) => steps.step[row] as number),
    name: rows.map((row) => steps.name[row] ?? ""),
    start_ms: take(steps.start_ms),
    step_time_ms: take(steps.step_time_ms),
    categories: Object.fromEntries(Object.entries(steps.categories).map(([key, values]) => [key, take(values)])),
    hosts: [host],
    ...(warmup && { warmup: Uint8Array.from(rows, (row) => warmup[row] as number) }),
  };
}

/** The rows of a column, in this order. */
function rowsOf(column: ColumnData, rows: readonly number[]): ColumnData {
  if (Array.isArray(column)) return rows.map((row) => column[row] as string);
  if ("codes" in column) return { ...column, codes: rowsOf(column.codes, rows) as typeof column.codes };
  const part = column.slice(0, rows.length);
  rows.forEach((row, i) => {
    part[i] = column[row] as number;
  });
  return part;
}

function tableOf(table: Table, passes: (row: number) => boolean): Table {
  const rows = Array.from({ length: table.rows }, (_, row) => row).filter(passes);
  const data = Object.entries(table.data).map(([key, column]) => [key, rowsOf(column, rows)]);
  return { ...table, rows: rows.length, data: Object.fromEntries(data) };
}

/** What a host or a device is called in a sentence: "host-1", "device 2 of host-1". */
export const nameOf = ({ host, device }: Chosen): string =>
  [device !== null && `device ${device}`, host].filter((part) => part !== false && part !== null).join(" of ");

function deviceTimeOf(data: DeviceTime, chosen: Chosen): DeviceTime {
  const passes = (host: string, device: number): boolean =>
    (chosen.host === null || host === chosen.host) && (chosen.device === null || device === chosen.device);
  const kept = data.places.flatMap(({ host, device }, i) => (passes(host, device) ? [i] : []));
  const name = nameOf(chosen);
  const text = data.left_out
    ? `It recorded no device work, or is among what is left out. ${data.left_out}`
    : "It recorded no device work.";
  const none = { title: `No device time of ${name}`, text };
  const parts = data.devices.length ? data.parts_ms.length / data.devices.length / data.windows.length : 0;
  const windows = data.windows.flatMap((_, window) =>
    kept.flatMap((device) => {
      const first = (window * data.devices.length + device) * parts;
      return [...data.parts_ms.subarray(first, first + parts)];
    }),
  );
  const tables = Object.entries(data.tables).map(([key, table]) => {
    const { host, device } = table.data;
    // Collectives are of all that took part.
    if (!host || !device) return [key, table];
    return [key, tableOf(table, (row) => passes(textAt(host, row), numberAt(device, row)))];
  });
  return {
    ...data,
    empty: data.empty ?? (kept.length ? null : none),
    devices: kept.map((i) => data.devices[i] as string),
    places: kept.flatMap((i) => data.places[i] ?? []),
    parts_ms: Float32Array.from(windows),
    waits: data.waits.length ? kept.map((i) => data.waits[i] ?? []) : [],
    streams: data.streams.filter(({ device: of }) => passes(of.host, of.device)),
    tables: Object.fromEntries(tables),
  };
}

/** Whether the steps of each host are in the payload: of very many hosts it has their means. */
const hasSteps = (steps: Steps): boolean => steps.empty !== null || steps.hosts.length > 0;

/** Whether a view shows what is of this host alone. */
export const follows = (id: TabId, { steps }: Pick<Payload, "steps">): boolean =>
  id === "pods" || id === "trace" || id === "device_time" || (OF_HOST.has(id) && (id === "memory" || hasSteps(steps)));

/** Whether a view shows what is of this device alone. */
export const followsDevice = (id: TabId): boolean => OF_DEVICE.has(id);

/** The payload with what is of this host, or device, alone in place of what is of all. */
export function ofHost(payload: Payload, chosen: Chosen): Payload {
  const { host, device } = chosen;
  if (host === null && device === null) return payload;
  const { steps, input, memory } = payload;
  const device_time = payload.device_time && deviceTimeOf(payload.device_time, chosen);
  if (host === null) return { ...payload, device_time };
  const ids = memory.ids.filter((id) => id.memory_id === host || id.memory_id.startsWith(`${host} `));
  const none = memory.peaks
    ? {
        title: `${host} is not shown`,
        text: "With many hosts, only the one with the highest peak is shown; p.rank() opens another.",
      }
    : { title: `No allocations of ${host}`, text: "This report does not include its memory events." };
  return {
    ...payload,
    steps: steps.empty || !hasSteps(steps) ? steps : stepsOf(steps, host),
    input: { ...input, pipelines: input.pipelines.filter((pipeline) => pipeline.host === host) },
    memory: { ...memory, empty: memory.empty ?? (ids.length ? null : none), ids },
    device_time,
  };
}

/** Names that contain the text, whatever their case; those that begin with it first. */
export function matching(hosts: readonly string[], text: string): string[] {
  const wanted = text.trim().toLowerCase();
  const found = hosts.filter((host) => host.toLowerCase().includes(wanted));
  const begins = (host: string): boolean => host.toLowerCase().startsWith(wanted);
  return [...found.filter(begins), ...found.filter((host) => !begins(host))];
}

/** "All hosts", or one; nothing where one host recorded. */
export function hostPicker(hosts: readonly string[], store: Store, signal: AbortSignal): HTMLElement | null {
  if (hosts.length < 2) return null;
  const open = button("", () => (menu.hidden ? show() : close()), {
    "aria-haspopup": "dialog",
    "aria-expanded": "false",
  });
  const field = h("input", {
    type: "text",
    placeholder: `Filter ${num(hosts.length)} hosts`,
    "aria-label": "Filter hosts",
    spellcheck: "false",
    autocomplete: "off",
  });
  const list = h("div", { role: "listbox", "aria-label": "Hosts" });
  const more = h("p.more", { role: "status" });
  const menu = h(
    "div.menu.hosts",
    { role: "dialog", "aria-label": "Choose a host", hidden: true },
    hosts.length > FEW && h("label.field", field),
    list,
    more,
  );
  const element = h("span.menu-of", open, menu);

  const option = (host: string | null): HTMLButtonElement => {
    const on = store.get("host") === host;
    const choose = (): void => {
      close();
      open.focus();
      store.set("host", host);
    };
    const mark = on && h("small", "shown");
    return h(
      "button",
      { role: "option", tabindex: "-1", "aria-selected": String(on), on: { click: choose } },
      h("bdi", host ?? "All hosts"),
      mark,
    );
  };
  const fill = (): void => {
    const found = matching(hosts, field.value);
    clear(list);
    list.append(...(field.value ? [] : [option(null)]), ...found.slice(0, MOST).map(option));
    more.textContent = !found.length
      ? "No host name contains this."
      : found.length > MOST
        ? `${num(found.length - MOST)} more; type part of the name.`
        : "";
    more.hidden = more.textContent === "";
  };
  function show(): void {
    field.value = "";
    fill();
    menu.hidden = false;
    open.setAttribute("aria-expanded", "true");
    if (hosts.length > FEW) field.focus();
    else list.querySelector<HTMLElement>("[aria-selected=true]")?.focus();
  }
  function close(): void {
    menu.hidden = true;
    open.setAttribute("aria-expanded", "false");
  }
  listen(field, "input", fill);
  listen(menu, "keydown", (event) => {
    const items = [...list.querySelectorAll("button")];
    const index = items.indexOf(event.target as HTMLButtonElement);
    const typing = event.target === field;
    const to = { ArrowDown: index + 1, ArrowUp: index - 1, ...(typing ? {} : { Home: 0, End: items.length - 1 }) }[
      event.key
    ];
    if (event.key === "Escape") {
      close();
      open.focus();
    } else if (event.key === "Enter" && typing) items[0]?.click();
    else if (to !== undefined && items.length) {
      if (to < 0 && hosts.length > FEW) field.focus();
      else items[(to + items.length) % items.length]?.focus();
    } else return;
    handled(event);
  });
  listen(open, "keydown", (event) => {
    if (event.key !== "ArrowDown" || !menu.hidden) return;
    show();
    handled(event);
  });
  listen(element, "focusout", (event) => {
    const { relatedTarget } = event as FocusEvent;
    if (!menu.hidden && relatedTarget && !element.contains(relatedTarget as Node)) close();
  });
  const say = (): void => {
    const host = store.get("host");
    open.replaceChildren(h("bdi", host ?? "All hosts"), " ▾");
    open.setAttribute("aria-label", `Host: ${host ?? "all"}`);
    open.title = host === null ? `${num(hosts.length)} hosts recorded; choose one` : `Shown: ${host}`;
  };
  say();
  store.subscribe("host", say, signal);
  return element;
}

/** "All devices", or one of the host that is shown; nothing where no host has several. */
export function devicePicker(meta: Payload["meta"], store: Store, signal: AbortSignal): HTMLElement | null {
  const { devices, hosts } = meta;
  if (!devices) return null;
  const element = h("span.devices");
  const only = hosts ? null : devices[0]?.host;
  const draw = (): void => {
    const host = store.get("host") ?? only;
    const numbers = devices.find((each) => each.host === host)?.devices ?? [];
    const choices = numbers.map((device) => ({ id: String(device), label: String(device) }));
    const now = store.get("device");
    const select = picker("Device", [{ id: "", label: "all" }, ...choices], now === null ? "" : String(now), (id) =>
      store.set("device", id === "" ? null : Number(id)),
    );
    element.hidden = numbers.length < 2;
    const hadFocus = element.contains((element.getRootNode() as Document | ShadowRoot).activeElement);
    element.replaceChildren(...(numbers.length < 2 ? [] : [select]));
    if (hadFocus) element.querySelector("select")?.focus();
  };
  draw();
  store.subscribe("host", draw, signal);
  store.subscribe("device", draw, signal);
  return element;
}
