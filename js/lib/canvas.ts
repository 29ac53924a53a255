/** A canvas at the pixel ratio of the screen, redrawn at most once a frame. */

import { h, listen, zoomOf } from "./dom.js";

export interface Canvas {
  element: HTMLCanvasElement;
  /** CSS pixels. */
  width(): number;
  height(): number;
  /** Draws with the next frame; many calls, one draw. */
  redraw(): void;
}

export interface CanvasOptions {
  signal: AbortSignal;
  /** Says what the drawing shows; a canvas has no other text. */
  label: string;
  /** CSS pixels; the width follows the parent. */
  height: number;
  /** Nothing shines through: `draw` covers all of it. */
  opaque?: boolean;
  /** It is out of the page now, as in a tab that is not open: what was painted in memory for it may go. */
  onHidden?(): void;
  draw(context: CanvasRenderingContext2D, width: number, height: number): void;
}

/** Pixels of the screen in one of an element. */
export const ratioOf = (element: Element): number => (globalThis.devicePixelRatio || 1) * zoomOf(element);

export function canvas(parent: HTMLElement, options: CanvasOptions): Canvas {
  const element = h("canvas", {
    role: "img",
    "aria-label": options.label,
    style: { display: "block", width: "100%", height: `${options.height}px` },
  });
  parent.append(element);
  let frame = 0;
  const size = () => ({ width: element.clientWidth, height: element.clientHeight });
  const draw = (): void => {
    cancelAnimationFrame(frame);
    frame = 0;
    const { width, height } = size();
    const ratio = ratioOf(element);
    const pixels = [Math.round(width * ratio), Math.round(height * ratio)] as const;
    if (pixels[0] === 0 || pixels[1] === 0) return;
    if (element.width !== pixels[0]) element.width = pixels[0];
    if (element.height !== pixels[1]) element.height = pixels[1];
    const context = element.getContext("2d", { alpha: !options.opaque });
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (!options.opaque) context.clearRect(0, 0, width, height);
    options.draw(context, width, height);
  };
  const redraw = (): void => {
    if (!frame && !options.signal.aborted) frame = requestAnimationFrame(draw);
  };
  const observer = new ResizeObserver(() => {
    const { width, height } = size();
    if (width && height) {
      // It comes back into the page: drawn now, so that no frame shows it empty.
      if (!element.width) draw();
      else redraw();
      return;
    }
    // Its picture is given back: hidden tabs and cells that a notebook has taken out of the page cost nothing.
    element.width = 0;
    element.height = 0;
    options.onHidden?.();
  });
  observer.observe(element);
  listen(options.signal, "abort", () => {
    observer.disconnect();
    cancelAnimationFrame(frame);
  });
  redraw();
  return { element, redraw, width: () => size().width, height: () => size().height };
}
