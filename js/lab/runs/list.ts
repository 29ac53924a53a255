/** The runs of some folders, as far as the server has told, and what became of asking for them. */

import type { Problem } from "./groups.js";
import { type Run, runOf } from "./run.js";

/** Asks the server for the runs of folders, and hands on each line of its answer. */
export type Ask = (
  folders: readonly string[],
  each: (line: Record<string, unknown>) => void,
  signal: AbortSignal,
) => Promise<void>;

/** "new": never asked. "failed": there is no list, `failure` says why. */
export type State = "new" | "loading" | "ready" | "failed";

const CUT = "The connection to the server was lost before all runs were listed.";

export class RunList {
  readonly runs = new Map<string, Run>();
  problems: Problem[] = [];
  state: State = "new";
  failure = "";
  /** Whether the server is looking for runs; what it found before is shown meanwhile. */
  busy = false;
  /** Whether the server is analysing runs that it has found. */
  working = false;
  /** How often something else was found than before. */
  changes = 0;
  private folders: readonly string[] = [];
  private ending = new AbortController();

  constructor(
    private readonly ask: Ask,
    private readonly explain: (error: unknown) => string,
    /** Told at each change; of these there may be many at a time. */
    private readonly changed: () => void,
  ) {}

  /** The folders to list; asks at once where they are others than before. True if they are. */
  watch(folders: readonly string[]): boolean {
    const sorted = [...folders].sort();
    if (this.state !== "new" && sorted.join("\0") === this.folders.join("\0")) return false;
    this.folders = sorted;
    void this.refresh();
    return true;
  }

  /** Asks again. An answer that is still coming is let go. */
  async refresh(): Promise<void> {
    this.ending.abort();
    if (this.folders.length === 0) {
      this.runs.clear();
      this.problems = [];
      this.settle("ready");
      return;
    }
    const ending = new AbortController();
    this.ending = ending;
    this.busy = this.working = true;
    if (this.state !== "ready") this.state = "loading";
    this.changed();
    const seen = new Set<string>();
    const problems: Problem[] = [];
    let listed = false;
    let message = "";
    const list = (): void => {
      if (listed) return;
      listed = true;
      this.busy = false;
      this.state = "ready";
      for (const path of [...this.runs.keys()]) {
        if (seen.has(path)) continue;
        this.runs.delete(path);
        this.changes++;
      }
      this.note(problems);
    };
    try {
      await this.ask(
        this.folders,
        (line) => {
          if (ending.signal.aborted) return;
          const run = runOf(line["run"]);
          if (run) {
            seen.add(run.path);
            this.take(run);
          }
          const problem = problemOf(line["problem"]);
          if (problem) {
            problems.push(problem);
            if (listed) this.note(problems);
          }
          if (typeof line["message"] === "string") message = line["message"];
          if (line["listed"] === true || line["done"] === true) list();
          this.changed();
        },
        ending.signal,
      );
      if (ending.signal.aborted) return;
      if (message || !listed) this.fail(message || CUT);
      else this.settle("ready");
    } catch (error) {
      if (!ending.signal.aborted) this.fail(this.explain(error));
    }
  }

  /** Lets go of what is under way; what was found stays. */
  stop(): void {
    if (!this.busy && !this.working) return;
    this.ending.abort();
    this.busy = this.working = false;
    if (this.state === "loading") this.state = "new";
    this.changed();
  }

  /** Runs that were deleted are gone at once; the next answer will say the same. */
  drop(paths: readonly string[]): void {
    for (const path of paths) this.runs.delete(path);
    this.changes++;
    this.changed();
  }

  private take(run: Run): void {
    const old = this.runs.get(run.path);
    // What is known of a run is known until its files are others; the first line of an answer is of what lies on the disk.
    const latest = old?.known && !run.known && old.modified === run.modified && old.bytes === run.bytes ? old : run;
    if (JSON.stringify(old) === JSON.stringify(latest)) return;
    this.runs.set(run.path, latest);
    this.changes++;
  }

  private note(problems: readonly Problem[]): void {
    if (JSON.stringify(problems) === JSON.stringify(this.problems)) return;
    this.problems = [...problems];
    this.changes++;
  }

  private fail(message: string): void {
    this.failure = message;
    this.settle("failed");
  }

  private settle(state: State): void {
    this.busy = this.working = false;
    this.state = state;
    this.changed();
  }
}

function problemOf(answer: unknown): Problem | null {
  const value = answer as Record<string, unknown> | null | undefined;
  if (typeof value?.["path"] !== "string" || typeof value["message"] !== "string") return null;
  return { path: value["path"], message: value["message"], gone: value["gone"] === true };
}
