/** One host of several: what of a payload is of one host alone, and the control in the header that chooses it. */

import { clear, h, handled, listen } from "../lib/dom.js";
import { num } from "../lib/format.js";
import { button } from "../lib/parts.js";
import type { Payload, Steps, TabId } from "../lib/payload.js";
import type { Store } from "../lib/store.js";

/** Views that show the host that is chosen, drawn anew for it; Pods marks it among the others. */
export const OF_HOST: ReadonlySet<TabId> = new Set<TabId>(["overview", "input", "memory"]);

/** Hosts that the list shows at once; more are found by typing. */
const MOST = 100;
/** Hosts that need no filter. */
const FEW = 8;

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

/** Whether the steps of each host are in the payload: of very many hosts it has their means. */
const hasSteps = (steps: Steps): boolean => steps.empty !== null || steps.hosts.length > 0;

/** Whether a view shows what is of this host alone. */
export const follows = (id: TabId, { steps }: Pick<Payload, "steps">): boolean =>
  id === "pods" || (OF_HOST.has(id) && (id === "memory" || hasSteps(steps)));

/** The payload with what is of this host alone in place of what is of all; null: all. */
export function ofHost(payload: Payload, host: string | null): Payload {
  if (host === null) return payload;
  const { steps, input, memory } = payload;
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
