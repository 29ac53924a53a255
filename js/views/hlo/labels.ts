/** Where a label stands on a plot so that it covers nothing else. */

export interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export interface Circle {
  x: number;
  y: number;
  radius: number;
}

/** Letters above and below the baseline of 11 px type, px. */
const RISE = 9;
const FALL = 3;
/** From the mark to its label, px: the nearest first. */
const AWAY = [11, 20, 32, 48, 68, 92, 120];
/** Directions from the mark, the best first: beside it, then above and below. */
const TURNS = [
  [1, 0],
  [1, -0.7],
  [1, 0.7],
  [-1, 0],
  [-1, -0.7],
  [-1, 0.7],
  [0, -1],
  [0, 1],
] as const;

/** The box of a text whose baseline begins at a point. */
export function textBox(x: number, y: number, wide: number): Box {
  return { left: x, top: y - RISE, right: x + wide, bottom: y + FALL };
}

/** A text along a line as boxes of its letters, for nothing is as large as the box around a slanted one. */
export function slanted(x: number, y: number, angle: number, from: number, below: number, wide: number): Box[] {
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  const boxes: Box[] = [];
  for (let along = from; along < from + wide; along += 8) {
    const [cx, cy] = [x + along * cos - below * sin, y + along * sin + below * cos];
    boxes.push({ left: cx - 4, top: cy - RISE, right: cx + 8, bottom: cy + FALL });
  }
  return boxes;
}

/** The area that two boxes share, px². */
function shared(a: Box, b: Box): number {
  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  return wide > 0 && high > 0 ? wide * high : 0;
}

/** Whether a box covers a part of a circle. */
function touches(box: Box, { x, y, radius }: Circle): boolean {
  const [dx, dy] = [Math.max(box.left - x, 0, x - box.right), Math.max(box.top - y, 0, y - box.bottom)];
  return dx * dx + dy * dy < radius * radius;
}

/**
 * Where the baseline of a mark's label begins: the nearest place in the plot that is free; where none is, the one that covers least,
 * and rather a point than a text.
 */
export function besides(
  mark: { x: number; y: number },
  wide: number,
  plot: { width: number; height: number },
  texts: readonly Box[],
  points: readonly Circle[],
): { x: number; y: number } {
  let best = { x: mark.x + 11, y: mark.y + 4 };
  let least = Number.POSITIVE_INFINITY;
  for (const away of AWAY) {
    for (const [right, down] of TURNS) {
      const x = mark.x + (right > 0 ? away : right < 0 ? -away - wide : -wide / 2);
      const y = mark.y + 3 + down * (away + 5);
      const box = textBox(x, y, wide);
      if (box.left < 0 || box.right > plot.width || box.top < 0 || box.bottom > plot.height) continue;
      const over = texts.reduce((sum, text) => sum + shared(box, text), 0);
      const cost = 100 * over + points.filter((point) => touches(box, point)).length;
      if (cost < least) [best, least] = [{ x, y }, cost];
      if (least === 0) return best;
    }
  }
  return best;
}
