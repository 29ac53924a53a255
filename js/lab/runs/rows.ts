/** The rows of the tree: what is drawn of a folder, of a run and of a note, and drawn again where it has changed. */

import { h, s } from "../../lib/dom.js";
import type { Group } from "./groups.js";
import {
  ago,
  called,
  changeOf,
  facts,
  fullTime,
  isNoise,
  many,
  type Run,
  spoken,
  stepTime,
  subtitle,
  timeOf,
  verdict,
} from "./run.js";

interface FolderLine {
  readonly kind: "folder";
  readonly group: Group;
}

interface RunLine {
  readonly kind: "run";
  readonly run: Run;
  /** The earlier one that its step time is compared with. */
  readonly before: Run | undefined;
  /** Why it could not be analysed, or "". */
  readonly problem: string;
}

interface NoteLine {
  readonly kind: "note";
  readonly text: string;
  readonly problem: boolean;
}

const EMPTY = "No runs here yet.";
/** As many problems of a folder are told one by one. */
const MOST_PROBLEMS = 3;

/** A row as it is drawn; a row of a run has a run, that of a folder a group. */
export interface Row {
  readonly node: HTMLElement;
  readonly key: string;
  run: Run | null;
  group: Group | null;
  /** What renaming replaces. */
  readonly name?: HTMLElement;
  update(line: FolderLine | RunLine | NoteLine, now: number, flag: boolean): void;
}

export function set(node: Element, name: string, value: string): void {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

function write(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

export function folderRow(key: string): Row {
  // Where it is cut, it is cut at the beginning: the end tells folders apart.
  const path = h("bdi");
  const badge = h("span.own");
  const count = h("span.count");
  const node = h(
    "div.nbprof-row.nbprof-folder",
    { role: "treeitem", "aria-level": 1, "data-key": key },
    h("i.twist", { "aria-hidden": "true" }),
    h("span.path", path),
    badge,
    count,
  );
  const row: Row = {
    key,
    node,
    run: null,
    group: null,
    update(line, _now, open) {
      const { group } = line as FolderLine;
      row.group = group;
      const shown = group.path || "/";
      write(path, shown);
      write(badge, group.watched.notebook ? "this notebook" : "");
      write(count, String(group.runs.length));
      set(node, "aria-expanded", String(open));
      set(node, "title", group.path ? shown : "The folder that Jupyter serves");
      set(node, "aria-label", [shown, badge.textContent, many(group.runs.length, "run")].filter(Boolean).join(", "));
      set(node, "data-chosen", String(group.watched.chosen));
    },
  };
  return row;
}

export function runRow(key: string): Row {
  const name = h("span.name");
  const was = h("span.was");
  const time = h("time");
  const known = h("span.facts");
  const step = h("span.step");
  const delta = h("span.delta");
  const course = h("span.course", { "aria-hidden": "true" });
  const head = h("b");
  const rest = h("span.rest");
  const node = h(
    "div.nbprof-row.nbprof-run",
    { role: "treeitem", "aria-level": 2, "data-key": key },
    h("div.line", name, was, time),
    h("div.line", known, course, step, delta),
    h("div.line.low", head, rest),
  );
  let drawn = "";
  const row: Row = {
    key,
    node,
    name,
    run: null,
    group: null,
    update(line, now, busy) {
      const { run, before, problem } = line as RunLine;
      // Most rows are what they were.
      const change = changeOf(run, before);
      const state = `${problem}\n${busy && !run.known}\n${ago(run.time, now)}\n${change}`;
      if (row.run === run && drawn === state) return;
      drawn = state;
      row.run = run;
      const why = verdict(run, busy, problem);
      write(name, called(run));
      write(was, subtitle(run));
      write(time, ago(run.time, now));
      set(time, "datetime", Number.isFinite(run.time) ? new Date(run.time).toISOString() : "");
      write(known, facts(run).join(" · "));
      write(step, stepTime(run));
      write(delta, change);
      set(
        delta,
        "title",
        before
          ? `${timeOf(run)} compared with ${called(before)}, ${subtitle(before)}${isNoise(run, before) ? ": the change is within noise" : ""}`
          : "",
      );
      course.replaceChildren(...sparkline(run.times_ms));
      write(head, why.head);
      write(rest, why.rest);
      set(head, "class", why.colour);
      set(node, "data-wrong", String(why.wrong));
      set(
        node,
        "title",
        [run.path, run.label, run.framework, fullTime(run.time), ...facts(run), sentence(why)]
          .filter(Boolean)
          .join("\n"),
      );
      set(node, "aria-label", spoken(run, now, busy, problem, change));
    },
  };
  return row;
}

const [WIDE, HIGH] = [48, 12];

/** The course of step time, from 0 to its largest; nothing of fewer than three points. */
function sparkline(times: readonly number[]): SVGElement[] {
  const top = Math.max(...times);
  if (times.length < 3 || !(top > 0)) return [];
  const labelAt = (time: number, i: number): string =>
    `${((i / (times.length - 1)) * WIDE).toFixed(1)},${(HIGH - 1 - (time / top) * (HIGH - 2)).toFixed(1)}`;
  return [s("svg", { width: WIDE, height: HIGH }, s("polyline", { points: times.map(labelAt).join(" ") }))];
}

const sentence = ({ head, rest }: { head: string; rest: string }): string => [head, rest].filter(Boolean).join(": ");

export function noteRow(key: string): Row {
  const node = h("div.nbprof-note", { role: "treeitem", "aria-level": 2, "data-key": key });
  return {
    key,
    node,
    run: null,
    group: null,
    update(line) {
      const note = line as NoteLine;
      write(node, note.text);
      set(node, "data-problem", String(note.problem));
    },
  };
}

/** What stands under a folder besides its runs. */
export function notes(group: Group, busy: boolean): NoteLine[] {
  const lines = group.problems.slice(0, MOST_PROBLEMS).map(({ path, message, gone }): NoteLine => {
    const about =
      path === group.path || !path
        ? ""
        : `${path.startsWith(`${group.path}/`) ? path.slice(group.path.length + 1) : path}: `;
    const text =
      gone && path === group.path ? "This folder no longer exists. Was it moved or deleted?" : `${about}${message}`;
    return { kind: "note", text, problem: true };
  });
  const left = group.problems.length - lines.length;
  if (left > 0) lines.push({ kind: "note", text: `${many(left, "more problem")}.`, problem: true });
  if (!lines.length && !group.runs.length)
    lines.push({ kind: "note", text: busy ? "Looking for runs…" : EMPTY, problem: false });
  return lines;
}
