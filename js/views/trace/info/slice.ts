/** One slice in words: what the canvas shows of it, and all that was recorded with it. */

import { type Child, h } from "../../../lib/dom.js";
import { count, num } from "../../../lib/format.js";
import { copyButton, heading, link, swatch } from "../../../lib/parts.js";
import { CATEGORIES } from "../../../lib/payload.js";
import { capital } from "../../../lib/unit.js";
import type { Arrow, Direction, SliceInfo, SliceRef, Where } from "../source.js";
import { folded, longText, more } from "./folded.js";
import {
  comparison,
  exactLength,
  exactMoment,
  type LaneOf,
  laneText,
  length,
  missingWords,
  moment,
  otherEnd,
  short,
} from "./words.js";

/** What the links of the details do. */
export interface Go {
  to(slice: SliceRef): void;
  move(direction: Direction): void;
  row(tab: Where, filter: string): void;
}

/** Arguments, lines of a stack and arrows shown at first. */
const FIRST = { args: 8, stack: 4, arrows: 4 };
const TABS: Record<Where, string> = { ops: "Ops", kernels: "Kernels", input: "Steps & input", memory: "Memory" };

type Line = [term: string, ...parts: Child[]];

/** What is known at once, while the rest is asked for. */
export function briefly(slice: SliceRef, lane: ReturnType<LaneOf>): HTMLElement[] {
  return [
    heading("Slice", lane?.name),
    lines([
      ["Name", longText(slice.name)],
      ["Start, duration", `${exactMoment(slice.start_ns)}, ${exactLength(slice.duration_ns)}`],
      ["Lane", lane?.name ?? "", " ", dim(lane?.process ?? "")],
    ]),
  ];
}

export interface SliceView {
  info: SliceInfo;
  laneOf: LaneOf;
  go: Go;
  /** What is known of slices but not here, for a sentence. */
  lacks: readonly string[];
  /** What a step is called. */
  noun?: string | undefined;
}

export function sliceView({ info, laneOf, go, lacks, noun = "step" }: SliceView): HTMLElement[] {
  const { slice, launch, row, same } = info;
  const category = CATEGORIES.find(({ key, label }) => key === info.category || label === info.category);
  const part = slice.duration_ns > 0 ? `${num((100 * info.self_ns) / slice.duration_ns, 1)}% of it` : "";
  const to = (target: SliceRef): HTMLElement => link(short(target.name, 60), () => go.to(target));
  const steps: Line[] = [];
  const isRecording = noun === "recording";
  if (info.step && !isRecording) steps.push([capital(noun), info.step]);
  if (category)
    steps.push([isRecording ? "Counts as" : `${capital(noun)} time`, swatch(category.css), ` ${category.label}`]);
  const call = launch?.slice;
  const delay = launch && `${length(Math.abs(launch.delay_ns))} ${launch.delay_ns < 0 ? "after" : "before"} it ran, `;
  // The launch has its own line.
  const arrows = info.arrows.filter((arrow) => !(call && arrow.kind === "launch" && arrow.from.event === call.event));
  return [
    heading("Slice", info.thread, row && link(`${TABS[row.tab]} →`, () => go.row(row.tab, row.filter))),
    lines([
      ["Name", longText(info.full_name || slice.name)],
      ...(info.op && info.op !== info.full_name ? [["Op", longText(info.op)] as Line] : []),
      [
        "Start, duration",
        `${exactMoment(slice.start_ns)}, ${exactLength(slice.duration_ns)} `,
        dim(bracketed(comparison(slice.duration_ns, same.mean_ns, same.count))),
        ...(same.median && same.median.event !== slice.event && same.median.duration_ns !== slice.duration_ns
          ? [" ", link(`median call, ${exactLength(same.median.duration_ns)} →`, () => go.to(same.median as SliceRef))]
          : []),
      ],
      ["Self time", exactLength(info.self_ns), " ", dim(part)],
      ["Lane", info.thread, " ", dim(info.process)],
      ...steps,
      ...(launch
        ? [
            [
              "Launched",
              delay,
              ...(call ? ["by ", to(call), " "] : []),
              dim(`on ${laneText(laneOf(call ? call.lane : (launch as { lane: number }).lane)) || "another lane"}`),
            ] as Line,
          ]
        : []),
      ...(info.parent ? [["Inside", to(info.parent)] as Line] : []),
      ...arrowLines(arrows, slice.event, laneOf, go),
      ...(same.count > 1 ? [["Same name", ...sameName(same.count, go)] as Line] : []),
      ...(info.stack.length ? [["Stack", stackList(info.stack)] as Line] : []),
    ]),
    ...argsTable(info.args),
    ...(lacks.length ? [h("p.dim", missingWords(lacks))] : []),
  ];
}

const dim = (text: string): HTMLElement => h("span.dim", text);
const bracketed = (text: string): string => text && `(${text})`;

const lines = (rows: readonly Line[]): HTMLElement =>
  h("dl.env", ...rows.flatMap(([term, ...parts]) => [h("dt", term), h("dd", ...parts)]));

/** Previous and next of the same name, as the keys , and . do. */
function sameName(n: number, go: Go): Child[] {
  const button = (text: string, key: string, to: Direction): HTMLElement =>
    more(text, () => go.move(to), { title: `Key ${key}` });
  return [
    button("‹ previous", ",", "previous_same"),
    " · ",
    button("next ›", ".", "next_same"),
    dim(` of ${count(n)} slices`),
  ];
}

/** Where the arrows of a slice lead, by what they mean. */
function arrowLines(arrows: readonly Arrow[], event: number, laneOf: LaneOf, go: Go): Line[] {
  const groups = new Map<string, SliceRef[]>();
  for (const arrow of arrows) {
    const { word, slice } = otherEnd(arrow, event);
    groups.set(word, [...(groups.get(word) ?? []), slice]);
  }
  return [...groups].map(([word, slices]) => [
    word,
    folded(
      slices,
      FIRST.arrows,
      (slice) =>
        h(
          "div",
          link(short(slice.name, 60), () => go.to(slice)),
          dim(` on ${laneOf(slice.lane)?.name ?? "another lane"}, ${moment(slice.start_ns)}`),
        ),
      h("div"),
    ),
  ]);
}

const stackList = (stack: readonly string[]): HTMLElement =>
  folded(stack, FIRST.stack, (line) => h("div", h("code", line)), h("div.stack-list"));

/** All arguments, the first eight at once; what a producer calls them stays as it is. */
function argsTable(args: SliceInfo["args"]): HTMLElement[] {
  if (!args.length) return [];
  const box = folded(
    args,
    FIRST.args,
    ({ key, value }) => h("div.arg", h("span.dim", key), longText(value)),
    h("div.args", { role: "group", "aria-label": "Arguments" }),
  );
  const copy = copyButton(() => argsText(args));
  copy.setAttribute("aria-label", "Copy the arguments");
  return [h("h4.args-head", `Arguments `, dim(count(args.length)), copy), box];
}

/** One line an argument, tab between: pastes into a sheet as two columns. */
export const argsText = (args: SliceInfo["args"]): string =>
  args.map(({ key, value }) => `${key}\t${value.replace(/[\t\r\n]+/g, " ")}`).join("\n");
