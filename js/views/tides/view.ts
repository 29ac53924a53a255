/** Tides: how far the time of a step rises and falls. */

import { h } from "../../lib/dom.js";
import { num } from "../../lib/format.js";
import { emptyView, heading } from "../../lib/parts.js";
import type { View } from "../../lib/view.js";

declare module "../../lib/payload.js" {
  interface Payload {
    tides?: { empty: Empty | null; high_ms: number | null; low_ms: number | null };
  }
}

export const render: View = (el, { payload }) => {
  const { tides } = payload;
  if (!tides || tides.empty) {
    el.append(h("section", emptyView(tides?.empty ?? { title: "No tides", text: "This report has none." })));
    return;
  }
  el.append(h("section", heading("Tides"), h("p", `${num(tides.low_ms, 2)} to ${num(tides.high_ms, 2)} ms`)));
};
