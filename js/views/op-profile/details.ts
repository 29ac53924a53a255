/** What is known of one node of the op profile. */

import { numberAt, textAt } from "../../lib/codec.js";
import { type Child, h } from "../../lib/dom.js";
import { bytesText, count, known, MISSING, num, percent, us } from "../../lib/format.js";
import { copyButton, heading, link } from "../../lib/parts.js";
import { type Kind, type Node, type Profile, use, worst } from "./model.js";

const KINDS: Record<Kind, string> = {
  total: "",
  program: "Compiled program",
  category: "Op category",
  scope: "Framework scope",
  duplicates: "Ops that the compiler generated from the same code",
  op: "Op",
  fused: "Op inside a fusion",
  rest: "Ops that take too little time to be listed individually",
  idle: "Time in which no op ran",
};
/** From here on an op is near what the device can do; below, far from it. */
const NEAR = 0.7;

/** With the prefix that leaves 1 to 999: "1.2 TFLOP/s". */
export function si(value: number, unit: string): string {
  if (!known(value)) return MISSING;
  const power = value > 0 ? Math.max(0, Math.min(5, Math.floor(Math.log10(value) / 3))) : 0;
  const scaled = value / 1000 ** power;
  return `${num(scaled, scaled < 10 ? 2 : scaled < 100 ? 1 : 0)} ${["", "k", "M", "G", "T", "P"][power]}${unit}`;
}

/** In a sentence, what limits it. */
export function verdict(profile: Profile, node: Node): string {
  const { flops, bytes } = use(profile, node);
  // Of several ops some may be near the peak and others far from it.
  if (node.kind !== "op" && node.kind !== "duplicates") return "";
  const of = [
    known(flops) && `${percent(100 * flops)} of the peak FLOP/s`,
    known(bytes) && `${percent(100 * bytes)} of the memory bandwidth`,
  ];
  const parts = of.filter(Boolean).join(" and ");
  if (!parts) return "";
  if (/-done$/.test(node.category))
    return "Waits for work started earlier: more work in between, or less data to move, shortens the wait.";
  const moves = !(flops >= bytes);
  const best = moves ? bytes : flops;
  if (best > 1) return `Uses ${parts}: what exceeds main memory bandwidth comes from caches.`;
  if (best >= NEAR)
    return `Uses ${parts}: near the peak. Only ${moves ? "moving fewer bytes" : "computing less"} makes it faster.`;
  return `Uses ${parts}: far from both peaks.`;
}

type Line = [label: string, value: string];

function lines(profile: Profile, root: Node, node: Node): Line[] {
  const { flops, bytes, wasted } = use(profile, node);
  const time = (value: number): string => us(value, 2);
  const share = (value: number): string => (root.time > 0 ? `, ${percent((100 * value) / root.time)}` : "");
  const { ops } = profile;
  const rate = (total: number, unit: string, used: number): string =>
    known(total) && node.busy > 0
      ? `${si((total / node.busy) * 1e6, unit)}${known(used) ? `, ${percent(100 * used)} of the peak` : ""}`
      : "";
  const each = (total: number): number => total / node.runs;
  const op = node.kind === "op" ? node.row : -1;
  const text = (key: "program" | "framework_op" | "source"): string => textAt(ops[key], op);
  return [
    ["Self time", known(node.time) ? time(node.time) + share(node.time) : ""],
    ["Wasted", known(wasted) ? time(wasted) + share(wasted) : ""],
    ["Cost unknown", node.unknown > 0 ? `of ops with ${time(node.unknown)}${share(node.unknown)}` : ""],
    ["Runs", known(node.runs) ? `${count(node.runs)}, ${time(node.time / node.runs)} each` : ""],
    ["Longest run", known(numberAt(ops.for_ms, op)) ? time(1000 * numberAt(ops.for_ms, op)) : ""],
    ["FLOPS", rate(node.flops, "FLOP/s", flops)],
    ["Memory", rate(node.bytes, "B/s", bytes)],
    [
      "Per run",
      known(each(node.flops)) || known(each(node.bytes))
        ? `${si(each(node.flops), "FLOP")}, ${bytesText(each(node.bytes))}`
        : "",
    ],
    ["Intensity", node.bytes > 0 && known(node.flops) ? `${num(node.flops / node.bytes, 2)} FLOP per byte` : ""],
    ["FLOPs", node.kind === "fused" && known(node.flops) ? `${si(node.flops, "FLOP")} in all runs` : ""],
    ["Program", text("program")],
    ["Framework op", text("framework_op")],
    ["Source", text("source")],
  ].filter((line): line is Line => line[1] !== "");
}

const sizes = (shape: string): string[] => /\[(.*)\]/.exec(shape)?.[1]?.split(",") ?? [];

/** What the layout of an array adds, by dimension where it tells. */
export function padding({ arrays: all }: Profile, i: number): string {
  const [bare, size] = [numberAt(all.bytes, i), numberAt(all.padded_bytes, i)];
  const long = sizes(textAt(all.padded, i));
  const grown = sizes(textAt(all.shape, i)).flatMap((length, axis) =>
    long[axis] && length !== long[axis] ? [`dimension ${axis}: ${length} → ${long[axis]}`] : [],
  );
  const more = size > bare ? `padded to ${bytesText(size)}, ${num(size / bare, 2)} ×` : "no padding";
  return [bytesText(bare), more, ...grown].join("; ");
}

/** The arrays that an op makes and reads. */
function arrays(profile: Profile, op: number): HTMLElement | null {
  const { arrays: all } = profile;
  const rows = Array.from({ length: all.rows }, (_, i) => i).filter((i) => numberAt(all.op, i) === op);
  const item = (i: number): HTMLElement =>
    h(
      "li",
      h("span.dim", textAt(all.role, i)),
      " ",
      h("code", textAt(all.shape, i), h("span", textAt(all.layout, i))),
      h(
        "small",
        { class: numberAt(all.padded_bytes, i) > numberAt(all.bytes, i) * 1.25 ? "pad hot" : "pad" },
        padding(profile, i),
      ),
    );
  return rows.length ? h("ul.arrays", ...rows.map(item)) : null;
}

export interface Links {
  /** To the longest run of an op. */
  trace: ((node: Node) => void) | null;
  hlo: ((node: Node) => void) | null;
  reveal: (node: Node) => void;
}

export function details(profile: Profile, root: Node, node: Node, links: Links): Child[] {
  const { ops, inside } = profile;
  const op = node.kind === "op";
  const expression = op
    ? textAt(ops.expression, node.row)
    : node.kind === "fused"
      ? textAt(inside.expression, node.row)
      : "";
  const more = op ? numberAt(ops.inside_left_out, node.row) : 0;
  const list = op ? arrays(profile, node.row) : null;
  const below = node.children.length && !op ? worst(profile, node) : [];
  const wastes = below.some((each) => known(use(profile, each).wasted));
  const verdictText = verdict(profile, node);
  const several = new Set(below.map(({ row }) => textAt(ops.program, row))).size > 1;
  return [
    h("h4", h("code", node.name)),
    h("p.dim", [KINDS[node.kind], node.kind === "category" ? "" : node.category].filter(Boolean).join(", ")),
    op && (links.trace || links.hlo)
      ? h(
          "p.links",
          links.trace && link("Longest run in the trace →", () => links.trace?.(node)),
          links.hlo && link("In HLO & roofline →", () => links.hlo?.(node)),
        )
      : "",
    verdictText ? h("p", verdictText) : "",
    h("dl.env", ...lines(profile, root, node).flatMap(([label, text]) => [h("dt", label), h("dd", text)])),
    below.length
      ? h(
          "div",
          heading(wastes ? "Most wasted inside" : "Longest inside"),
          h(
            "ul.worst",
            ...below.map((each) =>
              h(
                "li",
                link(each.name, () => links.reveal(each)),
                several && h("small.dim", textAt(ops.program, each.row)),
                h("span", percent((100 * (wastes ? use(profile, each).wasted : each.time)) / root.time)),
              ),
            ),
          ),
        )
      : "",
    expression
      ? h(
          "div.fix",
          copyButton(() => expression),
          h("pre", expression),
        )
      : op
        ? h("p.dim", "Its program is not in the file, so its code is unknown.")
        : "",
    list ? h("div", heading("Makes and reads"), list) : "",
    more > 0 ? h("p.dim", `${count(more)} more ops inside it are in p.op_profile.frame.`) : "",
  ];
}
