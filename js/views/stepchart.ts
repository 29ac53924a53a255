/** Step time by step, stacked by category, with the brush strip under it: one chart for Overview and Steps & input. */

import { bottomTicks, leftAxis, rowByKey, ticksOf } from "../lib/chart.js";
import { boxOf, clear, h, handled, listen, modified, s, shareAt } from "../lib/dom.js";
import { ms, num } from "../lib/format.js";
import { categoryRows, hoverCard, link } from "../lib/parts.js";
import { CATEGORIES, type Steps } from "../lib/payload.js";
import { ticks } from "../lib/scale.js";
import { capital } from "../lib/unit.js";
import type { ViewContext } from "../lib/view.js";
import { brush, overlaps, selectBars, selectedBars } from "./brush.js";
import { stepsHint } from "./jump.js";
import { axisTop, type Bar, countSteps, bars as makeBars, rangeText, selectedRows, statistics } from "./stepstats.js";

const HEIGHT = 168;
const WAIT_HEIGHT = 44;
/** Least distance between two bars in px, and the most bars ever drawn. */
const PITCH = 2.5;
const MOST = 500;
/** Width of a bold digit at 11 px, at most. */
const LETTER = 7.6;
/** Width of a letter of a border's label, at most. */
const BORDER_LETTER = 6.2;
const INPUT = CATEGORIES.findIndex(({ key }) => key === "input");

export interface StepChartOptions {
  /** Adds the strip "% of step waiting for input". */
  waiting?: boolean;
  /** What follows "step number" under the strip. */
  hint?: string;
}

interface Frame {
  bars: Bar[];
  max: number;
}

const ticksColumn = (max: number, height: number, n: number): HTMLElement =>
  leftAxis(ticksOf(ticks(max, n), max), height);

function gridLines(max: number, height: number, n: number): SVGElement[] {
  return ticks(max, n).map((value, i) => {
    const y = height * (1 - value / max);
    return s("line", { class: i === 0 ? "g0" : "g", x1: 0, x2: "100%", y1: y, y2: y });
  });
}

/** Place of bar i of n in per cent: a little air between bars, less where they are many; one alone is no wider than a fifth. */
function place(i: number, n: number, alone = false): { x: string; width: string } {
  const air = n > 120 ? 0.04 : 0.09;
  if (n === 1 && alone) return { x: "40%", width: "20%" };
  return { x: `${(((i + air) / n) * 100).toFixed(3)}%`, width: `${(((1 - 2 * air) / n) * 100).toFixed(3)}%` };
}

/** The stack of one bar; cut at the axis with a break mark where it is longer. */
function stack(bar: Bar, span: { x: string; width: string }, max: number): SVGElement[] {
  const known = bar.parts_ms.some((part) => part > 0);
  const parts = known ? bar.parts_ms : CATEGORIES.map(({ key }) => (key === "other" ? bar.time_ms : 0));
  const marks: SVGElement[] = [];
  let base = 0;
  parts.forEach((part, c) => {
    if (!(part > 0)) return;
    const [low, high] = [Math.min(base, max), Math.min(base + part, max)];
    base += part;
    const height = ((high - low) / max) * HEIGHT;
    if (height < 0.05) return;
    // 0.7 px of background between segments; thin ones keep all of theirs.
    const gap = height > 1.5 ? 0.7 : 0;
    marks.push(
      s("rect", {
        class: `m ${CATEGORIES[c]?.css}`,
        ...span,
        y: (HEIGHT * (1 - high / max)).toFixed(1),
        height: (height - gap).toFixed(1),
      }),
    );
  });
  if (bar.time_ms > max) marks.push(s("rect.cut", { ...span, y: 9, height: 3 }));
  return marks;
}

/** Distance between labelled bars so that each label has 56 px. */
function labelEvery(n: number, width: number): number {
  const least = Math.max(1, n / Math.max(2, Math.floor(width / 56)));
  for (let power = 1; ; power *= 10) {
    for (const step of [1, 2, 4, 5]) if (step * power >= least) return step * power;
  }
}

export function stepChart(parent: HTMLElement, context: ViewContext, options: StepChartOptions = {}): void {
  const { store, signal } = context;
  const steps = context.payload.steps;
  const noun = steps.noun ?? "step";
  const time = noun === "recording" ? "Recording" : `${capital(noun)} time`;
  // A recording has no number, and of one there is nothing to select.
  const isRecording = noun === "recording";
  const status = h("span", null);
  const caption = h("div.axt");
  const live = h("span.sr", { "aria-live": "polite" });
  const left = h("div");
  const bands = s("rect.hov", { y: 0, height: HEIGHT, style: { display: "none" } });
  const lines = s("g");
  const marks = s("g");
  const cuts = s("g");
  const borders = s("g.borders", { "aria-hidden": "true" });
  const average = s("line.avg", { x1: 0, x2: "100%" });
  const svg = s("svg", { height: HEIGHT, role: "img" }, lines, bands, marks, borders, average, cuts);
  const mean = h("span.mean");
  const plot = h("div.plot", { tabindex: "0", role: "group" }, svg, mean);
  const waitMarks = s("g");
  const waitSvg = s("svg", {
    height: WAIT_HEIGHT,
    role: "img",
    "aria-label": "Share of each step that waits for input",
  });
  waitSvg.append(...gridLines(100, WAIT_HEIGHT, 2), waitMarks);
  const numbers = h("div.axp");
  const strip = brush(store);
  const chart = h(
    "div.chart.stepchart",
    h("div.unit", h("span", "ms"), status),
    left,
    plot,
    options.waiting && h("div.unit.wait", `% of ${noun} waiting for input`),
    options.waiting && ticksColumn(100, WAIT_HEIGHT, 2),
    options.waiting && h("div.plot2", waitSvg),
    numbers,
    !isRecording && strip.element,
    caption,
    live,
  );
  parent.append(chart);
  const card = hoverCard(parent, signal);
  let frame: Frame = { bars: [], max: 1 };
  let hovered = -1;
  let pinned = false;

  function draw(): void {
    const width = Math.max(120, plot.clientWidth || context.width() * 0.6);
    const bars = makeBars(steps, Math.min(MOST, Math.floor(width / PITCH)));
    const times = bars.map((bar) => bar.time_ms);
    const max = axisTop(times);
    frame = { bars, max };
    for (const element of [lines, marks, borders, cuts, waitMarks, numbers, left]) clear(element);
    left.append(ticksColumn(max, HEIGHT, 5));
    lines.append(...gridLines(max, HEIGHT, 5));
    const n = bars.length;
    bars.forEach((bar, i) => {
      const span = place(i, n, isRecording);
      marks.append(s("g", ...stack(bar, span, max)));
      if (options.waiting) {
        const share = Math.max(0, Math.min(100, ((bar.parts_ms[INPUT] as number) / bar.time_ms) * 100)) || 0;
        const height = (share / 100) * WAIT_HEIGHT;
        waitMarks.append(s("rect.m.input", { ...span, y: (WAIT_HEIGHT - height).toFixed(1), height }));
      }
    });
    const found = borderLabels(steps, bars, width);
    for (const { share, text } of found) {
      const x = `${(share * 100).toFixed(3)}%`;
      borders.append(s("line.bd", { x1: x, x2: x, y1: 0, y2: HEIGHT }, s("title", null, text)));
    }
    for (const { share, anchor, label } of found) {
      const dx = anchor === "end" ? -3 : 3;
      const y = times.some((time) => time > max) ? -17 : -3;
      if (label) borders.append(s("text.bd", { x: `${share * 100}%`, dx, y, "text-anchor": anchor }, label));
    }
    chart.classList.toggle(
      "bordered",
      found.some(({ label }) => label !== ""),
    );
    const labels = cutLabels(times, max, width);
    for (const { share, anchor, text } of labels)
      cuts.append(s("text.hl", { x: `${share * 100}%`, y: -3, "text-anchor": anchor }, text));
    chart.classList.toggle("cuts", cuts.childElementCount > 0);
    const every = labelEvery(n, width);
    const labelled = isRecording ? [] : bars.map((bar, i) => ({ share: (i + 0.5) / n, text: String(bar.first) }));
    numbers.append(...bottomTicks(labelled.filter((_, i) => i % every === 0)));
    const per = Math.max(0, ...bars.map((bar) => new Set(bar.rows.map((row) => steps.step[row])).size));
    const many = per > 1 ? `each bar is the mean of ${per} ${noun}s` : "";
    const tooLong = times.filter((time) => time > max).length;
    const room = labels.length < tooLong ? " where there is room" : "";
    const bordered = found.length ? bordersText(steps) : "";
    const truncated = tooLong ? `truncated bars are labelled with their value${room}` : "";
    const hosts = steps.hosts.length;
    const recordings = hosts > 1 ? `mean of the recordings of ${hosts} hosts` : "the recording";
    caption.textContent = [isRecording ? recordings : `${noun} number`, many, truncated, bordered]
      .filter(Boolean)
      .join(" · ");
    if (options.hint) caption.append(h("span.hint", ` · ${options.hint}`));
    strip.draw(bars, max);
    select();
  }

  function select(): void {
    const selection = store.get("selection");
    // Numbers may repeat: then the bars of a range of them do not all stand beside each other.
    const faded = selection !== null && selectedBars(frame.bars, store) !== null;
    const outside = (i: number): boolean => faded && !overlaps(frame.bars[i], selection);
    const fade = (group: SVGElement, i: number): void => {
      group.classList.toggle("faded", outside(i));
    };
    [...marks.children].forEach((group, i) => {
      fade(group as SVGElement, i);
    });
    [...waitMarks.children].forEach((mark, i) => {
      (mark as SVGElement).classList.toggle("out", outside(i));
    });
    strip.update();
    const rows = selectedRows(steps, selection);
    clear(status);
    if (selection) {
      const selected = countSteps(steps, rows);
      const all = countSteps(steps, [...steps.step.keys()]);
      status.append(
        `${rangeText(selection.first, selection.last, noun)} selected (${num(selected)} of ${num(all)}) `,
        link("clear", () => store.set("selection", null)),
        " ",
        link("show in trace →", () => context.go("trace", stepsHint(steps, selection, rows))),
      );
    }
    const stats = statistics(steps.step_time_ms, rows);
    const y = HEIGHT * (1 - Math.min(1, stats.mean / frame.max));
    const off = isRecording || !(stats.mean <= frame.max);
    average.setAttribute("y1", String(y));
    average.setAttribute("y2", String(y));
    average.style.display = off ? "none" : "";
    mean.textContent = isRecording ? "" : `mean ${num(stats.mean, 2)}`;
    const top = off ? 2 : Math.max(0, y - 18);
    const tops = frame.bars.map((bar) => HEIGHT * (1 - Math.min(1, bar.time_ms / frame.max || 0)));
    mean.style.top = `${top}px`;
    mean.style.left = `${clearest(tops, plot.clientWidth, mean.offsetWidth, top + 16)}px`;
    svg.setAttribute(
      "aria-label",
      isRecording
        ? `The recording of ${ms(stats.mean)}, stacked by category`
        : `${time} by ${noun}, stacked by category: mean ${ms(stats.mean)} over ${num(stats.n)} ${noun}s, ` +
            `${ms(stats.min)} to ${ms(stats.max)}`,
    );
    const keys = isRecording ? "" : ` Arrow keys move from ${noun} to ${noun}, Shift selects.`;
    plot.setAttribute("aria-label", `${time} chart.${keys}`);
  }

  function hover(i: number): void {
    const bar = frame.bars[i];
    hovered = bar ? i : -1;
    bands.style.display = bar ? "" : "none";
    if (!bar) {
      card.hide();
      return;
    }
    const n = frame.bars.length;
    bands.setAttribute("x", `${(i / n) * 100}%`);
    bands.setAttribute("width", `${100 / n}%`);
    const box = boxOf(svg);
    const mark = {
      left: box.left + (i / n) * box.width,
      right: box.left + ((i + 1) / n) * box.width,
      top: box.top,
      bottom: box.bottom,
    };
    const named = bar.rows.length === 1 ? steps.name[bar.rows[0] as number] : "";
    const range = rangeText(bar.first, bar.last, noun);
    const title = isRecording ? "The recording" : capital(range);
    // Top to bottom as drawn.
    const rows = categoryRows(bar.parts_ms, bar.time_ms, steps.labels).reverse();
    if (bar.rows.length > 1) {
      const longest = bar.rows.reduce((a, b) => ((steps.step_time_ms[b] ?? 0) > (steps.step_time_ms[a] ?? 0) ? b : a));
      const called = isRecording ? steps.hosts[steps.host?.[longest] ?? 0] : steps.step[longest];
      rows.push({ label: `Longest: ${called}`, value: num(steps.step_time_ms[longest], 2), note: "" });
    }
    const before = (steps.boundaries ?? []).filter(({ row }) => bar.rows.includes(row));
    for (const { text } of before) rows.push({ label: `Before it: ${text}`, value: "", note: "" });
    // Where all are called the same, the number says it all.
    const repeatsNumber = named === String(bar.first) || (steps.prefix !== "" && named?.endsWith(` ${bar.first}`));
    const shown = named && !repeatsNumber && !isRecording ? `${title}, ${named}` : title;
    card.show(mark, { title: shown, total: ms(bar.time_ms), rows });
    live.textContent = `${shown}: ${ms(bar.time_ms)}`;
  }

  const barAt = (event: MouseEvent): number => {
    return Math.floor(shareAt(event, svg) * frame.bars.length);
  };
  listen(plot, "pointermove", (event) => {
    const bar = barAt(event);
    if (!pinned && bar !== hovered) hover(bar);
  });
  listen(plot, "pointerleave", () => {
    if (!pinned) hover(-1);
  });
  listen(plot, "click", (event) => {
    const bar = barAt(event);
    pinned = !(pinned && bar === hovered);
    hover(bar);
    if (isRecording) return;
    if (pinned) selectBars(frame.bars, store, bar, bar);
    else store.set("selection", null);
  });
  listen(plot, "blur", () => {
    pinned = false;
    hover(-1);
  });
  listen(plot, "keydown", (event) => {
    const n = frame.bars.length;
    const before = hovered;
    const next = rowByKey(event, before < 0 && event.key === "ArrowLeft" ? n : before, n);
    if (next !== undefined && n > 0 && !modified(event)) {
      hover(next);
      if (event.shiftKey && !isRecording) {
        const range = selectedBars(frame.bars, store);
        const start = Math.max(0, before);
        // The end that the hover step stood on moves, the other one stays.
        const fixed = !range ? start : range[0] === start ? range[1] : range[1] === start ? range[0] : start;
        selectBars(frame.bars, store, fixed, next);
      }
    } else if (event.key === "Escape" && hovered >= 0) {
      pinned = false;
      hover(-1);
    } else return;
    handled(event);
  });
  store.subscribe("selection", select, signal);
  context.onResize(() => {
    hover(-1);
    draw();
  });
  draw();
}

/** A border in the chart: its place from 0 to 1, and its label, which stands to the right of it, or to the left at the end. */
export interface Border {
  share: number;
  text: string;
  anchor: "start" | "end";
  /** As much of the text as there is room for up to the next border; "" where there is none. */
  label: string;
}

/** What is said of a border in brackets, such as "(12 batches, 411.57 ms)". */
const DETAIL = / \(.*?\)/g;

/** The borders between steps, from left to right. */
export function borderLabels(steps: Steps, drawn: readonly Bar[], width: number): Border[] {
  const borders = (steps.boundaries ?? []).map(({ row, text }) => {
    const index = drawn.findIndex((bar) => bar.rows.includes(row));
    const bar = drawn[index];
    const within = bar && bar.rows.length > 1 ? bar.rows.indexOf(row) / bar.rows.length : 0;
    return { share: bar ? (index + within) / drawn.length : 1, text };
  });
  let taken = 0;
  return borders.map(({ share, text }, i) => {
    const x = share * width;
    const next = (borders[i + 1]?.share ?? 1) * width;
    for (const label of [text, text.replace(DETAIL, "")]) {
      const size = label.length * BORDER_LETTER + 6;
      if (x + size <= next) {
        taken = x + size;
        return { share, text, anchor: "start", label };
      }
      // At the end of the chart there is no room behind it.
      if (x - size >= taken && i + 1 === borders.length) return { share, text, anchor: "end", label };
    }
    taken = x;
    return { share, text, anchor: "start", label: "" };
  });
}

/** What the borders are, each once, for the caption. */
function bordersText(steps: Steps): string {
  const kinds = new Set((steps.boundaries ?? []).flatMap(({ text }) => text.replace(DETAIL, "").split(", ")));
  return `dashed: ${[...kinds].join(", ")}`;
}

/** Labels of the bars that are cut, the longest first: where two are too close to each other, the shorter bar goes without. */
export function cutLabels(
  times: readonly number[],
  max: number,
  width: number,
): { share: number; anchor: string; text: string }[] {
  const taken: { left: number; right: number }[] = [];
  const truncated = [...times.keys()].filter((i) => (times[i] as number) > max);
  return truncated
    .sort((a, b) => (times[b] as number) - (times[a] as number))
    .flatMap((i) => {
      const [share, text] = [(i + 0.5) / times.length, num(times[i], 2)];
      const { anchor, left, right } = anchored(share * width, text.length * LETTER, width);
      if (taken.some((other) => left < other.right + 6 && right > other.left - 6)) return [];
      taken.push({ left, right });
      return [{ share, anchor, text }];
    });
}

/**
 * Left edge of a label over a line so that the bars behind it show through least; the first such place from the left.
 *
 * @param tops y of the top of each bar, in px from the top of the plot
 * @param width of the plot in px
 * @param label width of the label in px
 * @param bottom y of the lower edge of the label
 */
export function clearest(tops: readonly number[], width: number, label: number, bottom: number): number {
  const pitch = width / Math.max(1, tops.length);
  const last = Math.max(0, width - label - 2);
  let best = { left: Math.min(2, last), covered: Number.POSITIVE_INFINITY };
  for (let i = 0; i <= tops.length; i++) {
    const left = Math.min(i * pitch + 2, last);
    const [from, to] = [Math.floor(left / pitch), Math.ceil((left + label) / pitch)];
    const covered = tops.slice(from, to).reduce((sum, top) => sum + Math.max(0, bottom - top), 0);
    if (covered < best.covered) best = { left, covered };
    if (left === last) break;
  }
  return best.left;
}

/**
 * The span of a text of `size` px at `center`, anchored so that it stays inside the plot.
 */
export function anchored(
  center: number,
  size: number,
  width: number,
): { anchor: "start" | "middle" | "end"; left: number; right: number } {
  if (center < size / 2) return { anchor: "start", left: center, right: center + size };
  if (center > width - size / 2) return { anchor: "end", left: center - size, right: center };
  return { anchor: "middle", left: center - size / 2, right: center + size / 2 };
}
