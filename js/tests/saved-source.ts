/** A trace as a saved report has it, for tests. */

import type { Trace } from "../lib/payload.js";
import { SavedSource } from "../views/trace/saved.js";
import { sample } from "./sample.js";

/** The source of a saved report with nothing but a trace. */
export function sourceOf(of: Trace): SavedSource {
  const { steps, ops, kernels, input } = sample();
  return new SavedSource({ trace: of, steps: { ...steps, step: new Int32Array() }, ops, kernels, input });
}
