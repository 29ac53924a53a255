/** Arrows of the selected slice: where each lies, and how it is drawn. */

import type { Theme } from "../../lib/palette.js";
import { RULER } from "./draw.js";
import { length, otherEnd, short } from "./info/words.js";
import type { Band } from "./layout.js";
import type { Arrow, SliceRef } from "./source.js";

/** More are not told apart; the details list all. */
const MOST_ARROWS = 64;
/** Length and half the width of a head, in px. */
const HEAD = { length: 7, half: 4 };
/** How far an arrow goes straight before it bends. */
const LEAST_BEND = 18;

/** Dashes tell the kinds apart, beside the words in the details. */
const DASHES: Record<Arrow["kind"], number[]> = { launch: [], flow: [], producer: [6, 3], forward: [2, 3] };

/** What the geometry asks of the trace: y counts from the top of the canvas. */
export interface Stage {
  width: number;
  /** The slices lie between these heights. */
  top: number;
  bottom: number;
  x(time_ns: number): number;
  /** Where a slice is drawn; of one that is folded away the heading it is under; null where there is neither. */
  place(slice: SliceRef): { top: number; bottom: number } | null;
}

export interface Curve {
  kind: Arrow["kind"];
  /** From here to there; `from` and `to` lie inside the stage. */
  from: [x: number, y: number];
  to: [x: number, y: number];
  /** Points that pull it, as of a cubic curve. */
  bend: [[x: number, y: number], [x: number, y: number]];
  /** 1: goes down into its end, −1: up. */
  down: 1 | -1;
  /** What lies beyond the edge, where the other end of the slice's arrow is not in view. */
  label: { text: string; x: number; y: number; align: "left" | "right" } | null;
}

const clamp = (value: number, least: number, most: number): number => Math.min(most, Math.max(least, value));

/** When an arrow leaves its first slice: as late as it can without going back in time. */
export const leaves = ({ from, to }: Arrow): number =>
  clamp(to.start_ns, from.start_ns, from.start_ns + from.duration_ns);

/** The curves of the arrows of a slice, nearest first. */
export function curves(arrows: readonly Arrow[], event: number, stage: Stage): Curve[] {
  const drawn = arrows.slice(0, MOST_ARROWS);
  return drawn.flatMap((arrow): Curve[] => {
    const [a, b] = [stage.place(arrow.from), stage.place(arrow.to)];
    if (!a || !b) return [];
    const same = a.top === b.top;
    // Up or down from edge to edge; within one row in an arc over it.
    const down = !same && b.top > a.top ? 1 : -1;
    const [x1, x2] = [stage.x(leaves(arrow)), stage.x(arrow.to.start_ns)];
    const y1 = down > 0 ? a.bottom : a.top;
    const y2 = same || down > 0 ? b.top : b.bottom;
    if ((x1 < 0 && x2 < 0) || (x1 > stage.width && x2 > stage.width)) return [];
    if (Math.max(y1, y2) < stage.top || Math.min(y1, y2) > stage.bottom) return [];
    const from: [number, number] = [clamp(x1, 0, stage.width), clamp(y1, stage.top, stage.bottom)];
    const to: [number, number] = [clamp(x2, 0, stage.width), clamp(y2, stage.top, stage.bottom)];
    const bend = Math.max(LEAST_BEND, Math.abs(to[1] - from[1]) / 2);
    const [leaving, into] = same ? [-bend, -bend] : [down * bend, -down * bend];
    const end = same ? 1 : down;
    const curve: Curve = {
      kind: arrow.kind,
      from,
      to,
      bend: [
        [from[0], from[1] + leaving],
        [to[0], to[1] + into],
      ],
      down: end,
      label: null,
    };
    const other = otherEnd(arrow, event);
    const [end_x, end_y] = other.out ? [x2, y2] : [x1, y1];
    const shown = other.out ? to : from;
    if (end_x < 0 || end_x > stage.width || end_y < stage.top || end_y > stage.bottom) {
      curve.label = {
        text: labelOf(arrow, event),
        x: shown[0],
        y: shown[1],
        align: shown[0] > stage.width / 2 ? "right" : "left",
      };
    }
    return [curve];
  });
}

/** "→ wgrad, 36 µs later": what is at the end that is not in view. */
function labelOf(arrow: Arrow, event: number): string {
  const { slice, out: outgoing } = otherEnd(arrow, event);
  const near = outgoing ? arrow.from : arrow.to;
  const delay_ns = slice.start_ns - near.start_ns;
  return `${outgoing ? "→" : "←"} ${short(slice.name, 28)}, ${length(Math.abs(delay_ns))} ${delay_ns < 0 ? "earlier" : "later"}`;
}

/** The arrow to follow: of those that leave (1) or reach (−1) the slice the one whose other end is nearest in time. */
export function follow(arrows: readonly Arrow[], event: number, by: 1 | -1): SliceRef | null {
  let best: SliceRef | null = null;
  let nearest = Number.POSITIVE_INFINITY;
  for (const arrow of arrows) {
    const [near, other] = by > 0 ? [arrow.from, arrow.to] : [arrow.to, arrow.from];
    if (near.event !== event) continue;
    const distance_ns = Math.abs(other.start_ns - near.start_ns);
    if (distance_ns < nearest) [best, nearest] = [other, distance_ns];
  }
  return best;
}

/** The closed heading under which a lane is folded away. */
export function headingOf(bands: readonly Band[], lane: number): { top: number; bottom: number } | null {
  // The innermost: that of the threads with little in them stands below that of their process.
  const band = bands.findLast((each) => each.kind !== "lane" && !each.open && each.lanes.includes(lane));
  return band ? { top: band.top, bottom: band.top + band.height } : null;
}

/** What of the picture the arrows are drawn into. */
export interface ArrowScene {
  model: {
    span: { from: number; to: number };
    bands: readonly Band[];
    pinnedHeight: number;
    selected: SliceRef | null;
    placeOf(slice: SliceRef): { top: number; bottom: number; pinned: boolean } | null;
  };
  theme: Theme;
  scroll: number;
  arrows: readonly Arrow[];
}

/** Draws the arrows of the selected slice over the lanes. */
export function drawArrows(context: CanvasRenderingContext2D, scene: ArrowScene, width: number, height: number): void {
  const { model, theme, arrows, scroll } = scene;
  if (!arrows.length || !model.selected) return;
  const { from, to } = model.span;
  const below = RULER + model.pinnedHeight;
  const stage: Stage = {
    width,
    top: RULER,
    bottom: height,
    x: (time) => ((time - from) / (to - from)) * width,
    place(slice) {
      const place = model.placeOf(slice) ?? headingOf(model.bands, slice.lane);
      if (!place) return null;
      const offset = "pinned" in place && place.pinned ? RULER : below - scroll;
      return { top: place.top + offset, bottom: place.bottom + offset };
    },
  };
  context.save();
  context.beginPath();
  context.rect(0, RULER, width, height - RULER);
  context.clip();
  const drawn = curves(arrows, model.selected.event, stage);
  for (const curve of drawn) drawCurve(context, curve, theme);
  for (const { label } of drawn) if (label) drawLabel(context, label, theme, width, RULER, height);
  context.restore();
}

function drawCurve(context: CanvasRenderingContext2D, curve: Curve, theme: Theme): void {
  const { from, to, bend, down } = curve;
  const path = new Path2D();
  path.moveTo(...from);
  path.bezierCurveTo(...bend[0], ...bend[1], to[0], to[1] - down * HEAD.length);
  const head = new Path2D();
  head.moveTo(...to);
  head.lineTo(to[0] - HEAD.half, to[1] - down * HEAD.length);
  head.lineTo(to[0] + HEAD.half, to[1] - down * HEAD.length);
  head.closePath();
  // A rim of the background keeps it visible over slices of any colour.
  context.strokeStyle = theme.bg;
  context.lineWidth = 4;
  context.setLineDash([]);
  context.stroke(path);
  context.lineWidth = 3;
  context.stroke(head);
  context.strokeStyle = context.fillStyle = theme.ink;
  context.lineWidth = 1.5;
  context.setLineDash(DASHES[curve.kind]);
  context.stroke(path);
  context.setLineDash([]);
  context.fill(head);
  context.beginPath();
  context.arc(from[0], from[1], 2, 0, 7);
  context.fill();
}

function drawLabel(
  context: CanvasRenderingContext2D,
  label: NonNullable<Curve["label"]>,
  theme: Theme,
  width: number,
  top: number,
  bottom: number,
): void {
  context.font = `11px ${theme.font}`;
  context.textBaseline = "middle";
  const size = context.measureText(label.text).width + 8;
  const x = clamp(label.align === "right" ? label.x - size - 6 : label.x + 6, 2, Math.max(2, width - size - 2));
  const y = clamp(label.y, top + 10, bottom - 10);
  context.fillStyle = theme.bg;
  context.strokeStyle = theme.ink;
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(x, y - 8, size, 16, 3);
  context.fill();
  context.stroke();
  context.fillStyle = theme.ink;
  context.fillText(label.text, x + 4, y + 0.5);
}
