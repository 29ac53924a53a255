/** What describes the whole run, or all hosts, says so, and is grey, while some of the steps, one host or one device are selected. */

import { h } from "../lib/dom.js";
import { link } from "../lib/parts.js";
import type { Payload, TabId } from "../lib/payload.js";
import type { Store } from "../lib/store.js";
import { capital } from "../lib/unit.js";
import { follows, followsDevice, nameOf } from "./of-host.js";
import { rangeText } from "./stepstats.js";

/** Views that say of each part whether it follows the selection; the trace has every event. */
const TOLD: ReadonlySet<TabId> = new Set<TabId>(["overview", "input", "trace"]);

/** Marks a part that does not follow the selection. */
export function ofRun<E extends Element>(element: E): E {
  element.classList.add("of-run");
  return element;
}

/** What a view of all hosts says while one is chosen: the text to copy opens that one whole. */
const hostNote = (host: string): Node[] => [
  document.createTextNode(`${host} is selected, but this view covers all hosts. `),
  h("code", `p.rank(${JSON.stringify(host)})`),
  document.createTextNode(" opens only that host. "),
];

/** What a view of all devices says while one is chosen. */
const deviceNote = (device: number, host: string | null): Node[] => [
  document.createTextNode(
    `${capital(nameOf({ host: null, device }))} is selected, but this view covers all devices${host === null ? "" : ` of ${host}`}. `,
  ),
];

/** The line at the top of a view that does not follow the selection at all. */
export function wholeNote(
  id: TabId,
  { steps }: Pick<Payload, "steps">,
  store: Store,
  signal: AbortSignal,
): HTMLElement {
  const line = h("p.dim.whole-note", { role: "status" });
  const say = (): void => {
    const selection = TOLD.has(id) || steps.empty ? null : store.get("selection");
    const host = follows(id, { steps }) ? null : store.get("host");
    // Of a view of all hosts the sentence about the host says it all.
    const device = followsDevice(id) || host !== null ? null : store.get("device");
    line.hidden = !selection && host === null && device === null;
    line.replaceChildren(
      ...(selection
        ? [
            `${rangeText(selection.first, selection.last, capital(steps.noun ?? "step"))} is selected, but this view covers the whole run. `,
            link("clear", () => store.set("selection", null)),
            " ",
          ]
        : []),
      ...(host !== null ? [...hostNote(host), link("all hosts", () => store.set("host", null))] : []),
      ...(device !== null
        ? [...deviceNote(device, store.get("host")), link("all devices", () => store.set("device", null))]
        : []),
    );
  };
  say();
  store.subscribe("selection", say, signal);
  store.subscribe("host", say, signal);
  store.subscribe("device", say, signal);
  return line;
}
