/** Under the lanes: the selected slice at the left, the marked range at the right. */

import { type Child, clear, h } from "../../lib/dom.js";
import { count, num } from "../../lib/format.js";
import { heading, link } from "../../lib/parts.js";
import { CATEGORIES, type Coded, type ColumnData, type Payload, type Steps, type Trace } from "../../lib/payload.js";
import type { ViewContext } from "../../lib/view.js";
import { fillName } from "../names.js";
import { MOST_NAME } from "./ask.js";
import { lengthText } from "./draw.js";
import { codeOf, durationOf, nameOf, peers, startOf } from "./find.js";
import { processes } from "./layout.js";
import type { Model } from "./model.js";
import { aggregate, fold, idle } from "./range.js";

/** Names shown before the rest is one line. */
const FIRST = 6;

/** Number of the step that is running at a time; null between steps and without any. */
export function stepAt(steps: Steps, time_ms: number): number | null {
  for (let i = 0; i < steps.step.length; i++) {
    const start = steps.start_ms[i] as number;
    if (time_ms >= start && time_ms < start + (steps.step_time_ms[i] as number)) return steps.step[i] as number;
  }
  return null;
}

/** "0.9% over the mean of 21"; nothing for a name that occurs once. */
export function comparison(duration: number, mean: number, n: number): string {
  if (n < 2 || !(mean > 0)) return n < 2 ? "the only one" : "";
  const part = (100 * duration) / mean - 100;
  if (Math.abs(part) < 0.05) return `the mean of ${count(n)}`;
  return `${num(Math.abs(part), 1)}% ${part > 0 ? "over" : "under"} the mean of ${count(n)}`;
}

const holds = (column: ColumnData | undefined, fits: (text: string) => boolean): boolean =>
  column !== undefined && (Array.isArray(column) ? column : ((column as Coded).values ?? [])).some(fits);

/** The view whose table lists a slice's name as kernel, op or type of op, if any does. */
export function tableOf(payload: Payload, name: string, kind: string): "kernels" | "ops" | null {
  // Names in the trace are cut, those of kernels are not.
  const cut = (text: string): boolean => text.slice(0, MOST_NAME) === name;
  if (kind === "device" && holds(payload.kernels.table.data.kernel, cut)) return "kernels";
  const { op, type } = payload.ops.table.data;
  return holds(op, cut) || holds(type, cut) ? "ops" : null;
}

/**
 * How the slices of a lane of steps are called in the other views; by lane. Where a lane has another number of
 * slices than there are steps, its own names stay.
 */
export function stepNames(trace: Trace, steps: Steps): (lane: number, index: number) => string {
  return (lane, index) => {
    const data = trace.lanes[lane];
    if (data?.kind !== "steps" || data.start.length !== steps.step.length) return "";
    return steps.name[index] || [steps.prefix, steps.step[index]].filter((part) => part !== "").join(" ");
  };
}

export interface Details {
  element: HTMLElement;
  drawSlice(): void;
  drawRange(): void;
}

export function details(context: ViewContext, model: Model): Details {
  const left = h("div.slice");
  const right = h("div.range");
  const toMs = model.trace.tick_ns / 1e6;
  let all = false;

  function drawSlice(): void {
    clear(left);
    const { selected, trace } = model;
    if (!selected) {
      left.append(heading("Slice"), h("p.dim", "Click a slice, or search, to see it here."));
      return;
    }
    const lane = trace.lanes[selected.lane];
    const name = stepNames(trace, context.payload.steps)(selected.lane, selected.index) || nameOf(trace, selected);
    const duration = durationOf(trace, selected) * toMs;
    const start = startOf(trace, selected) * toMs;
    const self = (lane?.self[selected.index] ?? 0) * toMs;
    const { count: n, mean } = peers(trace, selected);
    const target = tableOf(context.payload, name, lane?.kind ?? "");
    const step = stepAt(context.payload.steps, start);
    const category = CATEGORIES[(trace.category[codeOf(trace, selected)] ?? 0) - 1];
    const rows: [string, Child[]][] = [
      ["Name", [h("code", name)]],
      [
        "Start, duration",
        [`${num(start, 3)} ms, ${lengthText(duration)} `, dim(`(${comparison(duration, mean * toMs, n)})`)],
      ],
      ["Self time", [lengthText(self), " ", duration > 0 && dim(`${num((100 * self) / duration, 1)}% of it`)]],
      ["Lane", [lane?.name ?? "", " ", dim(lane?.process ?? "")]],
    ];
    if (lane?.kind === "steps") rows.splice(2, 2);
    else if (step !== null) rows.push(["Step", [String(step)]]);
    if (category) rows.push(["Step time", [h("i", { class: `sw ${category.css}` }), ` ${category.label}`]]);
    left.append(
      heading(
        "Slice",
        lane?.name,
        target &&
          link(target === "kernels" ? "GPU kernels →" : "Ops →", () =>
            context.go(target, { filter: name, search: name }),
          ),
      ),
      h("dl.env", ...rows.flatMap(([term, parts]) => [h("dt", term), h("dd", ...parts)])),
    );
  }

  function drawRange(): void {
    clear(right);
    const { range, trace } = model;
    if (!range) {
      right.append(
        heading("Range"),
        h("p.dim", "Shift+drag marks a range; M marks the selected slice. Its self time by name comes here."),
      );
      return;
    }
    const shares = aggregate(trace, model.rows, range.from, range.to);
    const { head, rest } = all ? { head: shares, rest: null } : fold(shares, FIRST);
    const scope = `${num(range.from * toMs, 2)}–${num(range.to * toMs, 2)} ms, ${lengthText((range.to - range.from) * toMs)}`;
    const body = head.map((share) => {
      const css = CATEGORIES[(trace.category[share.code] ?? 0) - 1]?.css ?? "other";
      const name = trace.names[share.code] ?? "";
      return line(name, share.count, share.self * toMs, share.percent, css);
    });
    if (rest) {
      const show = link(`${count(rest.names)} others`, () => {
        all = true;
        drawRange();
      });
      body.push(line(show, rest.count, rest.self * toMs, rest.percent, "other", true));
    }
    right.append(
      heading("Range", scope, ...idleChips(model)),
      shares.length
        ? h(
            "div.tx",
            { tabindex: "0", role: "group", "aria-label": "Self time in the range, by name" },
            h(
              "table.t",
              h(
                "thead",
                h(
                  "tr",
                  h("th", "Name"),
                  h("th.n", "Count"),
                  h("th.n.on", { "aria-sort": "descending" }, "Self ms ↓"),
                  h("th.n", { title: "Lanes run at the same time: the sum may pass 100" }, "% of range"),
                ),
              ),
              h("tbody", ...body),
            ),
          )
        : h("p.dim", "No slice in this range."),
    );
  }

  const draw = (): void => {
    all = false;
    drawRange();
  };
  drawSlice();
  draw();
  return { element: h("div.details", left, right), drawSlice, drawRange: draw };
}

const dim = (text: string): HTMLElement => h("span.dim", text);

function line(
  name: string | Node,
  n: number,
  self_ms: number,
  percent: number,
  css: string,
  faint = false,
): HTMLElement {
  const n_class = faint ? "n dim" : "n";
  const bar = { "--v": `${Math.min(100, percent).toFixed(1)}%` };
  const cell = h("td.name");
  if (typeof name === "string") fillName(cell, name);
  else cell.append(name);
  return h(
    "tr",
    cell,
    h("td", { class: n_class }, count(n)),
    h("td", { class: n_class }, num(self_ms, 3)),
    h("td.n", h("span", { class: `ib ${css}`, style: bar }, h("b", num(percent, 1)))),
  );
}

function idleChips(model: Model): Child[] {
  const { range, trace } = model;
  if (!range) return [];
  const chips: Child[] = [];
  for (const [process, lanes] of processes(trace.lanes)) {
    const part = idle(trace, model.rows, lanes, range.from, range.to);
    if (part !== null)
      chips.push(h("span", { class: part >= 50 ? "chip in" : "chip" }, `${process} idle ${num(part, 0)}%`));
  }
  // More devices than fit: the table tells the rest.
  return chips.slice(0, 4);
}
