/** The options of a recording among the settings. Made of their declarations: python -m tests.support.options_page */

export interface Options {
  backend: string;
  steps: string;
  warmup: number;
  every: number;
  seconds: number;
  limit: number;
  memory: boolean;
  shapes: boolean;
  stacks: boolean;
  sampling: boolean;
  python: boolean;
  hostLevel: number;
  logdir: string;
  save: boolean;
  events: number;
}

export const OPTIONS: Readonly<Options> = {
  backend: "auto",
  steps: "",
  warmup: -1,
  every: 0,
  seconds: 0,
  limit: 0,
  memory: true,
  shapes: true,
  stacks: false,
  sampling: true,
  python: false,
  hostLevel: 2,
  logdir: "",
  save: true,
  events: 20_000,
};

/** The option of `%%nbprof` that each stands for. */
export const FLAGS: Readonly<Record<keyof Options, string>> = {
  backend: "--backend",
  steps: "--steps",
  warmup: "--warmup",
  every: "--every",
  seconds: "--seconds",
  limit: "--limit",
  memory: "--memory",
  shapes: "--shapes",
  stacks: "--stacks",
  sampling: "--sampling",
  python: "--python",
  hostLevel: "--host-level",
  logdir: "--logdir",
  save: "--save",
  events: "--events",
};
