/** Which runs stand under which folder, and in what order. */

import { matcher } from "../../lib/rows.js";
import { inside, logdirOf, type Run, searched } from "./run.js";

/** A folder whose runs are listed. */
export interface Watched {
  readonly path: string;
  /** Whether the person added it; else it belongs to the notebook. */
  readonly chosen: boolean;
  /** Whether the notebook's runs are saved there. */
  readonly notebook: boolean;
  /** File name of that notebook; "" where there is none. */
  readonly name: string;
}

/** What the server could not look at. */
export interface Problem {
  readonly path: string;
  readonly message: string;
  /** Whether there is no such folder or file. */
  readonly gone: boolean;
}

export interface Group {
  /** The logdir. */
  readonly path: string;
  /** The folder of the list that it is or lies in. */
  readonly watched: Watched;
  /** Newest first. */
  readonly runs: readonly Run[];
  /** By the path of a run, the one that the same notebook recorded before it on the same kind of device. */
  readonly before: ReadonlyMap<string, Run>;
  /** What could not be looked at, of which no run tells. */
  readonly problems: readonly Problem[];
  /** Why a run could not be analysed, by its path. */
  readonly broken: ReadonlyMap<string, string>;
}

interface Making extends Group {
  readonly runs: Run[];
  readonly before: Map<string, Run>;
  readonly problems: Problem[];
  readonly broken: Map<string, string>;
}

/** Newest first; what has no time comes last, equal times by their names. */
export function newest(a: Run, b: Run): number {
  const [left, right] = [a.time, b.time].map((time) => (Number.isFinite(time) ? time : Number.NEGATIVE_INFINITY));
  if (left !== right) return (right as number) - (left as number);
  return names.compare(a.path, b.path);
}
const names = new Intl.Collator("en", { numeric: true });

/** The folder of the list that a path belongs to: the nearest above it. */
function watcherOf(path: string, watched: readonly Watched[]): Watched | null {
  let best: Watched | null = null;
  for (const folder of watched) {
    if (inside(path, folder.path) && (best === null || folder.path.length > best.path.length)) best = folder;
  }
  return best;
}

/** Whether a list that belongs to a notebook has a run: another notebook may save to the same folder. */
const owned = (run: Run, { notebook, chosen, name }: Watched): boolean =>
  !notebook || chosen || !run.notebook || !name || run.notebook === name;

/** The newest earlier run of each one's notebook with its framework and device. */
function linked(group: Making): void {
  const last = new Map<string, Run>();
  for (const run of [...group.runs].reverse()) {
    if (!run.notebook || run.step_ms === null) continue;
    const key = [run.notebook, run.framework, run.device].join("\n");
    const earlier = last.get(key);
    if (earlier) group.before.set(run.path, earlier);
    last.set(key, run);
  }
}

/**
 * The runs by their logdirs. Those of the notebook come first, then those with the newest run; a folder that the person
 * chose stands there also without runs.
 */
export function grouped(runs: Iterable<Run>, problems: readonly Problem[], watched: readonly Watched[]): Group[] {
  const byPath = new Map<string, Making>();
  const groupAt = (path: string, owner: Watched): Making => {
    let group = byPath.get(path);
    if (!group) {
      group = { path, watched: owner, runs: [], before: new Map(), problems: [], broken: new Map() };
      byPath.set(path, group);
    }
    return group;
  };
  // A logdir above the folder of the list is not what the person asked for.
  const home = (path: string, owner: Watched): string => {
    const logdir = logdirOf(path);
    return inside(logdir, owner.path) || path === owner.path ? logdir : owner.path;
  };
  for (const run of runs) {
    const owner = watcherOf(run.path, watched);
    if (owner && owned(run, owner)) groupAt(home(run.path, owner), owner).runs.push(run);
  }
  for (const problem of problems) {
    const owner = watcherOf(problem.path, watched);
    // Of a notebook that has no runs, or none any more, nobody asked for a folder.
    if (!owner || (problem.gone && !owner.chosen && problem.path === owner.path)) continue;
    const group = groupAt(problem.path === owner.path ? owner.path : home(problem.path, owner), owner);
    if (group.runs.some(({ path }) => path === problem.path)) group.broken.set(problem.path, problem.message);
    else group.problems.push(problem);
  }
  const groups = [...byPath.values()];
  for (const owner of watched) {
    if (owner.chosen && !groups.some(({ path }) => inside(path, owner.path))) groupAt(owner.path, owner);
  }
  for (const group of byPath.values()) {
    group.runs.sort(newest);
    linked(group);
  }
  const time = (group: Group): number => {
    const first = group.runs[0]?.time;
    return first !== undefined && Number.isFinite(first) ? first : Number.NEGATIVE_INFINITY;
  };
  return [...byPath.values()].sort((a, b) => {
    if (a.watched.notebook !== b.watched.notebook) return a.watched.notebook ? -1 : 1;
    const [left, right] = [time(a), time(b)];
    return left === right ? names.compare(a.path, b.path) : right - left;
  });
}

/** Only the runs in which the text is found; groups without any are left out. Throws where it is no regular expression. */
export function filtered(groups: readonly Group[], text: string): Group[] {
  const match = matcher(text);
  if (!match) return [...groups];
  return groups
    .map((group) => ({ ...group, runs: group.runs.filter((run) => searched(run).some(match)), problems: [] }))
    .filter((group) => group.runs.length > 0);
}
