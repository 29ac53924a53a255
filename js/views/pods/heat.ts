/** The heat map: a row a worker, a column a step. */

import { canvas, ratioOf } from "../../lib/canvas.js";
import { boxOf, h, handled, listen, modified, pointIn } from "../../lib/dom.js";
import { num, signed } from "../../lib/format.js";
import { onTheme, themeReader } from "../../lib/palette.js";
import { hoverCard, picker, segmented } from "../../lib/parts.js";
import type { Heat, HeatLayer } from "../../lib/payload.js";
import { CATEGORIES, type Pods } from "../../lib/payload.js";
import { cssColor } from "../../lib/theme.js";
import { capital, timeTitle, type Unit, unitOf } from "../../lib/unit.js";
import type { ViewContext } from "../../lib/view.js";
import {
  BLANK,
  columnOf,
  columnsIn,
  ordered,
  overText,
  picture,
  type RowOrder,
  type Scale,
  SHADES,
  share,
  shownIn,
  stepAt,
  type Told,
  toldAt,
  toldText,
} from "./cells.js";
import { tailOf } from "./draw.js";
import { inside } from "./model.js";
import type { Shown } from "./shown.js";

/** Most and least px of the rows together, and of one. */
const TALLEST = 512;
const ROW = 20;
const AXIS = 34;
/** Cells of fewer px have no lines between them. */
const APART = 5;
/** Least px between two names, and between two step numbers. */
const NAMES = 15;
const NUMBERS = 56;
/** Of the step: a category that a worker is less over in is no cause. */
const LEAST_PERCENT = 1;

export const labelOf = (layer: HeatLayer, unit: Unit): string =>
  CATEGORIES.find(({ key }) => key === layer.key)?.label ?? timeTitle(unit);

const cssOf = (layer: HeatLayer): string | undefined => CATEGORIES.find(({ key }) => key === layer.key)?.css;

/** The category in which a cell is farthest over the median; null where it is in none. */
export function causeAt(
  pods: Pods,
  heat: Heat,
  row: number,
  column: number,
): { layer: HeatLayer; told: Told; median: number } | null {
  let found: ReturnType<typeof causeAt> = null;
  // Less than that is what any worker differs by.
  let most = (LEAST_PERCENT / 100) * (heat.median_ms[column] as number);
  for (const layer of heat.layers) {
    if (layer.key === "step_time") continue;
    const median = layer.median_ms[column] as number;
    const tip = toldAt(pods, heat, layer, row, column);
    if (!(tip.ms - median > most)) continue;
    most = tip.ms - median;
    found = { layer, told: tip, median };
  }
  return found;
}

/** Two colours about a middle one, or one colour on the ground, as 255 shades and what was not recorded. */
function shades(el: Element, scale: Scale, css: string | undefined): Uint32Array {
  const strip = h("canvas", { width: SHADES + 1, height: 1 });
  const graphics = strip.getContext("2d", { willReadFrequently: true });
  const palette = new Uint32Array(BLANK + 1);
  if (!graphics) return palette;
  const ends = scale === "over" ? ["--under", "--middle", "--over"] : ["--middle", "--middle", `--c-${css ?? "other"}`];
  const gradient = graphics.createLinearGradient(0.5, 0, SHADES + 0.5, 0);
  for (const [i, name] of ends.entries()) gradient.addColorStop(i / 2, cssColor(el, name));
  graphics.fillStyle = gradient;
  graphics.fillRect(0, 0, SHADES + 1, 1);
  palette.set(new Uint32Array(graphics.getImageData(0, 0, SHADES + 1, 1).data.buffer));
  return palette;
}

export function heatMap(parent: HTMLElement, context: ViewContext, heat: Heat, state: Shown): void {
  const { pods } = context.payload;
  const { store, signal } = context;
  const unit = unitOf(context.payload.meta);
  const columns = columnsIn(heat);
  const first = heat.layers[0] as HeatLayer;
  let layer = heat.layers.find(({ key }) => key === heat.show) ?? first;
  let scale: Scale = "over";
  let order: RowOrder = "slow";
  let rows = ordered(layer, order);
  /** The cell under the pointer, or where the keyboard is. */
  let cursor: { y: number; column: number } | null = null;
  let image: HTMLCanvasElement | null = null;
  let size = "";

  const named = (y: number): string => pods.workers[heat.rows[rows[y] as number] as number] ?? "";
  const lineOf = (worker: number): number => rows.findIndex((row) => heat.rows[row] === worker);
  const tall = Math.min(TALLEST, rows.length * ROW);

  const live = h("span.sr", { "aria-live": "polite" });
  const stage = h("div.pod-heat", { tabindex: "0", role: "group" });
  const bar = h("i");
  const ends = [h("span"), h("span")] as const;
  const note = h("p.more", { hidden: true });
  const theme = themeReader(stage);
  const card = hoverCard(stage, signal);

  const choose = picker(
    "Shown",
    heat.layers.map((each) => ({ id: each.key, label: labelOf(each, unit) })),
    layer.key,
    (key) => {
      layer = heat.layers.find((each) => each.key === key) ?? first;
      turn();
    },
  );
  const scales = segmented<Scale>(
    "Scale",
    [
      { id: "over", label: "From the median" },
      { id: "ms", label: "ms" },
    ],
    scale,
    (next) => {
      scale = next;
      turn();
    },
  );
  const orders = segmented<RowOrder>(
    "Order",
    [
      { id: "slow", label: "Slowest first" },
      { id: "name", label: "By name" },
    ],
    order,
    (next) => {
      order = next;
      turn();
    },
  );

  /** Room left of the cells: as wide as the longest name, within reason. */
  let left = 0;
  const room = (width: number): number => Math.max(1, width - left);
  const columnAt = (x: number, width: number): number => Math.floor(((x - left) / room(width)) * columns);

  const area = canvas(stage, {
    signal,
    height: tall + AXIS,
    label: "Heat map",
    onHidden: () => {
      image = null;
    },
    draw(graphics, width) {
      const colours = theme();
      graphics.font = `600 12px ${colours.font}`;
      const longest = pods.workers.reduce((most, name) => (name.length > most.length ? name : most), "");
      left = Math.ceil(Math.min(0.26 * width, 180, graphics.measureText(longest).width + 12));
      paint(width);
      if (image) {
        graphics.imageSmoothingEnabled = false;
        graphics.drawImage(image, left, 0, room(width), tall);
      }
      overlay(graphics, width);
    },
  });

  /** The cells, painted once for as long as nothing of them changes. */
  function paint(width: number): void {
    const ratio = ratioOf(stage);
    const [across, down] = [
      Math.min(columns, Math.max(1, Math.round(room(width) * ratio))),
      Math.min(rows.length, Math.max(1, Math.round(tall * ratio))),
    ];
    const key = `${across} ${down}`;
    if (image && size === key) return;
    size = key;
    image = h("canvas", { width: across, height: down });
    const graphics = image.getContext("2d");
    if (!graphics) return;
    const codes = picture(heat, layer, rows, scale, across, down);
    const lut = shades(stage, scale, cssOf(layer));
    const pixels = graphics.createImageData(across, down);
    const target = new Uint32Array(pixels.data.buffer);
    for (let i = 0; i < codes.length; i++) target[i] = lut[codes[i] as number] as number;
    graphics.putImageData(pixels, 0, 0);
    const shared = [
      Math.ceil(rows.length / down) > 1 && `${Math.ceil(rows.length / down)} workers`,
      Math.ceil(columns / across) > 1 && `${Math.ceil(columns / across)} columns`,
    ].filter(Boolean);
    const which = scale === "over" ? "the one farthest from the median" : "the longest";
    const text = [heat.note, shared.length && `Up to ${shared.join(" and ")} share a pixel, which shows ${which}.`]
      .filter(Boolean)
      .join(" ");
    note.textContent = text;
    note.hidden = text === "";
  }

  function overlay(graphics: CanvasRenderingContext2D, width: number): void {
    const colours = theme();
    const [wide, high] = [room(width) / columns, tall / rows.length];
    const x = (column: number): number => left + column * wide;
    graphics.fillStyle = colours.bg;
    if (wide >= APART) for (let c = 1; c < columns; c++) graphics.fillRect(Math.round(x(c)), 0, 1, tall);
    if (high >= APART) for (let y = 1; y < rows.length; y++) graphics.fillRect(left, Math.round(y * high), width, 1);
    const selection = store.get("selection");
    if (selection) {
      graphics.globalAlpha = 0.68;
      for (let c = 0; c < columns; c++) {
        if (inside(heat.first[c] as number, selection) || inside(heat.last[c] as number, selection)) continue;
        graphics.fillRect(x(c), 0, wide, tall);
      }
      graphics.globalAlpha = 1;
    }
    const marked = state.worker < 0 ? -1 : lineOf(state.worker);
    const shown = columnOf(heat, pods.step[state.at] as number);
    graphics.strokeStyle = colours.accent;
    graphics.lineWidth = 1.5;
    // A row and a column of a pixel are still seen.
    const frame = (from: number, of: number, least: number): [number, number] =>
      of >= least ? [from, of] : [from + of / 2 - least / 2, least];
    if (marked >= 0) {
      const [top, tallness] = frame(marked * high, high, 5);
      graphics.strokeRect(left + 0.75, Math.max(0.75, top), room(width) - 1.5, Math.min(tallness, tall - top - 0.75));
    }
    if (shown >= 0) {
      graphics.fillStyle = colours.accent;
      const [from, wideness] = frame(x(shown), wide, 3);
      graphics.fillRect(from, tall, wideness, 3);
    }
    if (cursor) {
      const [from, wideness] = frame(x(cursor.column), wide, 4);
      const [top, tallness] = frame(cursor.y * high, high, 4);
      graphics.strokeStyle = colours.ink;
      graphics.lineWidth = 1;
      graphics.strokeRect(from + 0.5, top + 0.5, Math.max(2, wideness - 1), Math.max(2, tallness - 1));
    }
    names(graphics, high, marked);
    numbers(graphics, wide, width);
  }

  function names(graphics: CanvasRenderingContext2D, high: number, marked: number): void {
    const colours = theme();
    graphics.textAlign = "right";
    graphics.textBaseline = "middle";
    const pinnedRows = [marked, cursor?.y ?? -1].filter((y) => y >= 0);
    const middle = (y: number): number => Math.max(6, Math.min(tall - 6, (y + 0.5) * high));
    const write = (y: number, bold: boolean): void => {
      graphics.font = `${bold ? "600 " : ""}12px ${colours.font}`;
      graphics.fillStyle = bold ? colours.ink : colours.fg2;
      graphics.fillText(tailOf(graphics, named(y), left - 8), left - 6, middle(y));
    };
    const every = Math.max(1, Math.ceil(NAMES / high));
    let last = -NAMES;
    for (let y = 0; y < rows.length; y += every) {
      // The first and the last are moved inside the picture, towards their neighbours.
      if ([last, ...pinnedRows.map(middle)].some((y0) => Math.abs(y0 - middle(y)) < NAMES)) continue;
      write(y, false);
      last = middle(y);
    }
    for (const y of pinnedRows) write(y, true);
    graphics.textAlign = "left";
  }

  function numbers(graphics: CanvasRenderingContext2D, wide: number, width: number): void {
    const colours = theme();
    graphics.font = `11px ${colours.font}`;
    graphics.fillStyle = colours.fg2;
    graphics.textBaseline = "alphabetic";
    graphics.textAlign = "center";
    const every = Math.max(1, Math.ceil(NUMBERS / wide));
    for (let c = 0; c < columns; c += every) {
      const x = left + (c + 0.5) * wide;
      if (x < width - 8) graphics.fillText(String(heat.first[c]), x, tall + 16);
    }
    graphics.fillText(`${unit.noun} number`, left + room(width) / 2, tall + AXIS - 4);
    graphics.textAlign = "left";
  }

  /** Another layer, scale or order. */
  function turn(): void {
    rows = ordered(layer, order);
    image = null;
    cursor = null;
    card.hide();
    const over = scale === "over";
    const limit = num(layer.limit_percent, layer.limit_percent < 10 ? 1 : 0);
    const [low, high] = [layer.low_ms, layer.high_ms].map((ms) => num(ms, ms < 10 ? 2 : 1));
    ends[0].textContent = over ? `−${limit}%` : `${low} ms`;
    ends[1].textContent = over
      ? `+${limit}% of the ${unit.time} or beyond, from the median worker`
      : `${high} ms or beyond`;
    bar.className = over ? "from-median" : (cssOf(layer) ?? "other");
    const slowest = pods.workers[heat.rows[ordered(layer, "slow")[0] ?? 0] as number] ?? "";
    area.element.setAttribute(
      "aria-label",
      `${labelOf(layer, unit)} of ${num(rows.length)} workers by ${unit.noun}; the most, on average, on ${slowest}`,
    );
    stage.setAttribute(
      "aria-label",
      `${labelOf(layer, unit)} of workers by ${unit.noun}. Arrow keys move, Enter selects a worker, Escape clears.`,
    );
    area.redraw();
  }

  function point(next: { y: number; column: number } | null, aloud = false): void {
    if (cursor?.y === next?.y && cursor?.column === next?.column) return;
    cursor = next;
    area.redraw();
    if (!next) {
      card.hide();
      return;
    }
    const row = rows[next.y] as number;
    const { column } = next;
    const tip = toldAt(pods, heat, layer, row, column);
    const { ms } = tip;
    const median = layer.median_ms[column] as number;
    const cause = causeAt(pods, heat, row, column);
    const away = Number.isNaN(ms)
      ? ""
      : `${signed((100 * (ms - median)) / (heat.median_ms[column] as number), 1)}% of ${unit.the}`;
    const box = boxOf(area.element);
    const [wide, high] = [room(box.width) / columns, tall / rows.length];
    const x = box.left + left + column * wide;
    const top = box.top + next.y * high;
    const title = named(next.y);
    const step = `${capital(unit.noun)} ${stepAt(heat, row, column)}`;
    card.show(
      { left: x, right: x + wide, top, bottom: top + high },
      {
        title,
        total: step,
        rows: Number.isNaN(ms)
          ? [{ label: "Not recorded by this worker", value: "" }]
          : [
              {
                label: labelOf(layer, unit),
                value: toldText(tip),
                note: "ms",
                ...(cssOf(layer) && { css: cssOf(layer) as string }),
              },
              { label: "Median worker", value: num(median, tip.digits), note: "ms" },
              { label: "From the median", value: overText(tip, median), note: away },
              ...(cause && cause.layer !== layer
                ? [
                    {
                      css: cssOf(cause.layer) ?? "other",
                      label: `Most over in ${labelOf(cause.layer, unit).toLowerCase()}`,
                      value: overText(cause.told, cause.median),
                      note: "ms",
                    },
                  ]
                : []),
            ],
      },
    );
    if (aloud)
      live.textContent = Number.isNaN(ms)
        ? `${title}, ${step}: not recorded`
        : `${title}, ${step}: ${toldText(tip)} ms, ${away}`;
  }

  /** The cell at a place of the page: of those that share its pixel the one that is seen. */
  function cellAt(event: MouseEvent): { y: number; column: number } | null {
    const box = boxOf(area.element);
    const { x, y } = pointIn(event, area.element);
    const column = columnAt(x, box.width);
    if (y < 0 || y >= tall || column >= columns || x < 0) return null;
    const down = Math.min(rows.length, Math.round(tall * ratioOf(stage)));
    const lines = share(Math.floor((y / tall) * down), down, rows.length);
    // A name is its row.
    if (x < left) return { y: lines[0], column: Math.max(0, columnOf(heat, pods.step[state.at] as number)) };
    const across = Math.min(columns, Math.round(room(box.width) * ratioOf(stage)));
    const boxes = share(Math.floor(((x - left) / room(box.width)) * across), across, columns);
    return shownIn(heat, layer, scale, rows, lines, boxes);
  }

  function open(cell: { y: number; column: number }): void {
    const row = rows[cell.y] as number;
    const worker = heat.rows[row] as number;
    const number = stepAt(heat, row, cell.column);
    const index = pods.step.indexOf(number);
    state.select(worker, index < 0 ? state.at : index);
  }

  listen(area.element, "pointermove", (event) => point(cellAt(event)));
  listen(area.element, "pointerleave", () => point(null));
  listen(area.element, "click", (event) => {
    const cell = cellAt(event);
    if (cell) open(cell);
  });
  listen(stage, "blur", () => point(null));
  listen(stage, "keydown", (event) => {
    if (modified(event)) return;
    const from = cursor ?? {
      y: Math.max(0, lineOf(state.worker)),
      column: Math.max(0, columnOf(heat, pods.step[state.at] as number)),
    };
    const by = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      PageUp: [-10, 0],
      PageDown: [10, 0],
      Home: [0, -columns],
      End: [0, columns],
    }[event.key] as [number, number] | undefined;
    if (by) {
      const clamp = (value: number, of: number): number => Math.max(0, Math.min(of - 1, value));
      // The first key shows where one is.
      const [down, right] = cursor ? by : [0, 0];
      point({ y: clamp(from.y + down, rows.length), column: clamp(from.column + right, columns) }, true);
    } else if (event.key === "Enter" || event.key === " ") open(from);
    else if (event.key === "Escape" && (cursor || state.worker >= 0)) {
      point(null);
      state.select(-1);
    } else return;
    handled(event);
  });
  state.onChange(area.redraw);
  onTheme(stage, signal, () => {
    image = null;
    area.redraw();
  });
  parent.append(
    h("div.toolbar", heat.layers.length > 1 && choose, scales, rows.length > 2 && orders),
    stage,
    live,
    h("p.pod-scale", { "aria-hidden": "true" }, ends[0], bar, ends[1]),
    note,
  );
  turn();
}
