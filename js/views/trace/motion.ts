/** Zooming and panning while keys are held: it starts gently, gets faster, and glides out. */

import { listen } from "../../lib/dom.js";
import type { Model } from "./model.js";

/** Fastest zoom (factor a second, as a logarithm) and pan (windows a second). */
const FASTEST = { zoom: 3.2, pan: 1.6 };
/** Part of the fastest that a held key gains a second, and that is lost a second once it is let go. */
const GAIN = 5;
const LOSS = 9;
/** Speed of the first frame, so that a tap moves a little. */
const FIRST = 0.3;

const KEYS: Record<string, readonly [axis: "zoom" | "pan", sign: 1 | -1]> = {
  w: ["zoom", 1],
  s: ["zoom", -1],
  a: ["pan", -1],
  d: ["pan", 1],
};

/** Speeds of both axes, −1…1 of the fastest. */
export class Momentum {
  readonly speed = { zoom: 0, pan: 0 };
  private readonly held = new Map<string, boolean>();
  /** Keys that went down since the last frame, and of these the ones that are up again: a tap shorter than a frame moves too. */
  private readonly fresh = new Set<string>();
  private readonly tapped = new Set<string>();

  /** A key went down; false when it moves nothing. */
  down(key: string, far: boolean): boolean {
    if (!(key in KEYS)) return false;
    if (!this.held.has(key)) this.fresh.add(key);
    this.tapped.delete(key);
    this.held.set(key, far);
    return true;
  }

  up(key: string): void {
    if (this.fresh.has(key)) this.tapped.add(key);
    else this.held.delete(key);
  }

  /** All keys are let go; what moves stops. */
  stop(): void {
    this.held.clear();
    this.fresh.clear();
    this.tapped.clear();
    this.speed.zoom = 0;
    this.speed.pan = 0;
  }

  get moving(): boolean {
    return this.held.size > 0 || this.speed.zoom !== 0 || this.speed.pan !== 0;
  }

  /** Time passed (s): by which logarithm of a factor to zoom, and by which share of the window to pan. */
  pass(seconds: number): { zoom: number; pan: number } {
    const by = { zoom: 0, pan: 0 };
    for (const axis of ["zoom", "pan"] as const) {
      let want = 0;
      let far = 1;
      for (const [key, shifted] of this.held) {
        const [of, sign] = KEYS[key] as (typeof KEYS)[string];
        if (of !== axis) continue;
        want += sign;
        if (shifted) far = 3;
      }
      const now = this.speed[axis];
      // Against the hand is nothing to glide.
      const along = Math.sign(now) === want ? Math.max(Math.abs(now), FIRST) : FIRST;
      const next = want ? want * Math.min(1, along + GAIN * seconds) : now * Math.exp(-LOSS * seconds);
      this.speed[axis] = Math.abs(next) < 0.02 ? 0 : next;
      by[axis] = next * FASTEST[axis] * far * seconds;
    }
    for (const key of this.tapped) this.held.delete(key);
    this.fresh.clear();
    this.tapped.clear();
    return by;
  }
}

export interface Motion {
  /** Begins to move by a key; false when it is none of these. */
  press(event: KeyboardEvent): boolean;
}

/** `share`: the place that zooming keeps, as a share of the width. */
export function motion(element: HTMLElement, model: Model, share: () => number, signal: AbortSignal): Motion {
  const momentum = new Momentum();
  let frame = 0;
  let last = 0;
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  const step = (now: number): void => {
    frame = 0;
    // A frame that came late does not jump.
    const { zoom, pan } = momentum.pass(Math.max(0, Math.min(0.05, (now - last) / 1000)));
    last = now;
    if (zoom) model.zoomBy(Math.exp(zoom), share());
    if (pan) model.panBy(pan);
    if (momentum.moving) frame = requestAnimationFrame(step);
  };
  const stop = (): void => {
    momentum.stop();
    cancelAnimationFrame(frame);
    frame = 0;
  };
  listen(element, "keyup", (event) => momentum.up(event.key.toLowerCase()));
  listen(element, "blur", stop);
  listen(signal, "abort", stop);
  return {
    press(event) {
      // Whoever wants no motion gets the steps of keys.ts.
      if (still.matches || !momentum.down(event.key.toLowerCase(), event.shiftKey)) return false;
      if (!frame) {
        last = performance.now();
        frame = requestAnimationFrame(step);
      }
      return true;
    },
  };
}
