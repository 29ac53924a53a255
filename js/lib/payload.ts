/**
 * What Python sends and the views draw, as it is declared in nbprof/tools.
 *
 * Nothing here is HTML: every string is foreign text.
 */

import type { CategoryKey } from "./payload.gen.js";

export type * from "./payload.gen.js";

/** Stack order, bottom to top. The key is also the CSS class that sets the colour. */
export const CATEGORIES = [
  { key: "device_compute", css: "device", label: "Device compute" },
  { key: "device_to_device", css: "d2d", label: "Device to device" },
  { key: "device_collectives", css: "coll", label: "Device collectives" },
  { key: "host_compute", css: "host", label: "Host compute" },
  { key: "kernel_launch", css: "launch", label: "Kernel launch" },
  { key: "input", css: "input", label: "Input" },
  { key: "output", css: "output", label: "Output" },
  { key: "compile", css: "compile", label: "Compile" },
  { key: "other", css: "other", label: "Other" },
] as const satisfies readonly { key: CategoryKey; css: string; label: string }[];
