/** The hosts of the run. */

import { h } from "../../lib/dom.js";
import type { View } from "../../lib/view.js";

export const render: View = (el, { payload }) => {
  el.append(h("section", h("ul", ...payload.machines.hosts.map((host) => h("li", host)))));
};
