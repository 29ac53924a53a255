/** Ranked parts of one thing as a ring with its list. */

import { cuts } from "./cut.js";
import { h, s } from "./dom.js";
import { displayName, num } from "./format.js";
import { nameNode } from "./name.js";
import type { RingPart } from "./payload.js";

const LIGHTNESS = {
  5: [100, 80, 63, 48, 35],
  10: [100, 90, 80, 71, 63, 55, 48, 41, 35, 29],
} as const;

/** Ranked parts of one thing: hue says where (d: device, h: host), lightness says rank. */
export function donut(options: {
  title: string;
  /** At the right of the title: "32.5 ms". */
  total: string;
  hue: "d" | "h";
  parts: readonly RingPart[];
  center?: [string, string];
  size?: number;
}): HTMLElement {
  const ranked = options.parts.filter((part) => (part.kind ?? "rank") === "rank").length;
  const steps = LIGHTNESS[ranked > 5 ? 10 : 5];
  const size = options.size ?? 88;
  const shorten = cuts(
    options.parts.filter(({ kind }) => (kind ?? "rank") === "rank").map(({ label }) => displayName(label)),
  );
  let rank = 0;
  let start = 0;
  const arcs: SVGElement[] = [];
  const rows: HTMLElement[] = [];
  for (const part of options.parts) {
    const kind = part.kind ?? "rank";
    const css = kind === "rank" ? `r-${options.hue}` : kind === "idle" ? "r-idle" : "r-o";
    const style = { "--k": `${kind === "rank" ? (steps[rank++] ?? 29) : 100}%` };
    if (part.percent > 0) {
      // A gap of 0.6 parts of 100 between slices, but never a slice that is not to be seen.
      const length = Math.max(0.2, part.percent - 0.6);
      arcs.push(
        s("circle", {
          class: css,
          style,
          cx: 44,
          cy: 44,
          r: 36,
          pathLength: 100,
          "stroke-dasharray": `${length.toFixed(2)} ${(100 - length).toFixed(2)}`,
          "stroke-dashoffset": (-start).toFixed(2),
        }),
      );
    }
    start += Math.max(0, part.percent);
    rows.push(
      h(
        "li",
        { class: css, style },
        h("i"),
        h("span", { title: part.label }, nameNode(part.label, shorten)),
        `${num(part.percent, 1)}%`,
      ),
    );
  }
  const biggest = options.parts[0];
  // A ring of one part is a circle.
  const several = arcs.length > 1;
  return h(
    several ? "figure.donut" : "figure.donut.lone",
    h("h4", h("b", options.title), h("span", options.total)),
    several &&
      s(
        "svg",
        {
          width: size,
          height: size,
          viewBox: "0 0 88 88",
          role: "img",
          "aria-label": biggest
            ? `${options.title}: ${biggest.label} ${num(biggest.percent, 1)}%`
            : `${options.title}: nothing recorded`,
        },
        s("g", { transform: "rotate(-90 44 44)" }, ...arcs),
        options.center && s("text", { x: 44, y: 43 }, options.center[0]),
        options.center && s("text", { x: 44, y: 57 }, options.center[1]),
      ),
    h("ul.dl", ...rows),
  );
}
