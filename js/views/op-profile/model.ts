/** The trees of the op profile: made of its ops, by program, by category or by the scopes of the framework. No drawing. */

import { numberAt, textAt } from "../../lib/codec.js";
import { count } from "../../lib/format.js";
import type { OpProfile } from "../../lib/payload.js";

/** The op profile of a run with ops of compiled programs. */
export type Profile = OpProfile & Required<Pick<OpProfile, "ops" | "rest" | "inside" | "arrays">>;

export const hasOps = (profile: OpProfile): profile is Profile => !profile.empty && !!profile.ops?.rows;

export type By = "program" | "category" | "provenance";
export type Sort = "time" | "wasted" | "flops" | "bytes" | "runs";
export type Kind = "total" | "program" | "category" | "scope" | "duplicates" | "op" | "fused" | "rest" | "idle";

export interface Node {
  /** Its path: the same in every tree of one grouping. */
  key: string;
  name: string;
  kind: Kind;
  category: string;
  time: number;
  /** The part of it of which neither FLOPs nor bytes are known. */
  unknown: number;
  flops: number;
  bytes: number;
  runs: number;
  parent: Node | null;
  children: Node[];
  /** Row of the ops, or of what is inside them; -1 where it is none. */
  row: number;
  /** What its use is a part of: its time, without that of which nothing is known, of the root without idle. */
  busy: number;
  /** Its category, or its program, where no row above it says so. */
  note: string;
}

const ROOTS = { program: "All programs", category: "All categories", provenance: "All framework ops" };
const NO_SCOPE = "(no framework op)";
const SMALLER = "(smaller ops)";
const MOST_DEEP = 40;

/** The sum of what is known; NaN where nothing is. */
const plus = (a: number, b: number): number => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : a + b);

/** The scopes of a framework op and its own name; a slash in brackets parts nothing. The twin of op_profile.py of nbprof/analysis. */
export function scopes(path: string): string[] {
  const labels: string[] = [];
  let depth = 0;
  let begin = 0;
  for (let index = 0; index < path.length; index++) {
    const letter = path[index] as string;
    if ("([{".includes(letter)) depth++;
    else if (")]}".includes(letter)) depth = Math.max(0, depth - 1);
    else if (letter === "/" && depth === 0) {
      labels.push(path.slice(begin, index));
      begin = index + 1;
    }
  }
  const parts = [...labels, path.slice(begin)].filter(Boolean);
  if (parts.length > MOST_DEEP) parts.push(parts.splice(MOST_DEEP - 1).join("/"));
  return parts.length ? parts : [NO_SCOPE];
}

const node = (kind: Kind, name: string, parent: Node | null, row = -1, category = ""): Node => {
  const none = Number.NaN;
  const key = parent ? `${parent.key}\n${kind} ${name}` : "";
  return {
    key,
    name,
    kind,
    category,
    time: 0,
    unknown: 0,
    flops: none,
    bytes: none,
    runs: none,
    parent,
    children: [],
    row,
    busy: 0,
    note: "",
  };
};

/** The tree; with idle its time is part of the root's. */
export function build(profile: Profile, by: By, idle: boolean): Node {
  const { ops, rest, inside } = profile;
  const root = node("total", ROOTS[by], null);
  const groups = new Map<string, Node>();
  const under = (parent: Node, kind: Kind, name: string, category = ""): Node => {
    const child = node(kind, name, parent, -1, category);
    const known = groups.get(child.key);
    if (known) return known;
    groups.set(child.key, child);
    parent.children.push(child);
    return child;
  };
  const put = (parent: Node, leaf: Node, from: Profile["ops"] | Profile["rest"], row: number): Node => {
    const known = (values: Profile["ops"]["time_us"]): number => numberAt(values, row);
    Object.assign(leaf, {
      time: known(from.time_us),
      unknown: known(from.unknown_us) || 0,
      flops: known(from.flops),
      bytes: known(from.bytes),
      runs: known(from.runs),
      // Names may be the same in two programs of one category.
      key: `${leaf.key} ${from === ops ? row : ""}`,
    });
    parent.children.push(leaf);
    return leaf;
  };
  const place = (from: Profile["ops"] | Profile["rest"], row: number): Node => {
    const category = textAt(from.category, row) || "other";
    const program = textAt(from.program, row) || "(other programs)";
    const top = by === "program" ? under(root, "program", program) : root;
    return under(top, "category", category, category);
  };
  const shared = new Map<string, number>();
  const alike = (row: number): string => `${place(ops, row).key}\n${textAt(ops.duplicate, row)}`;
  if (by !== "provenance") {
    for (let row = 0; row < ops.rows; row++) shared.set(alike(row), (shared.get(alike(row)) ?? 0) + 1);
  }
  const several = ops.program.codes.some((code) => code !== ops.program.codes[0]);
  const within = new Map<number, number[]>();
  for (let row = 0; row < inside.rows; row++) {
    const op = numberAt(inside.op, row);
    within.set(op, [...(within.get(op) ?? []), row]);
  }
  for (let row = 0; row < ops.rows; row++) {
    let parent = root;
    if (by === "provenance") {
      for (const scope of scopes(textAt(ops.framework_op, row))) parent = under(parent, "scope", scope);
    } else {
      parent = place(ops, row);
      const of = textAt(ops.duplicate, row);
      if (of && (shared.get(alike(row)) ?? 0) > 1) parent = under(parent, "duplicates", of, parent.category);
    }
    const leaf = put(parent, node("op", textAt(ops.name, row), parent, row, textAt(ops.category, row)), ops, row);
    if (by !== "program" && several) leaf.note = textAt(ops.program, row);
    for (const member of within.get(row) ?? []) {
      const inner = node("fused", textAt(inside.name, member), leaf, member, textAt(inside.category, member));
      leaf.children.push({ ...inner, time: Number.NaN, flops: numberAt(inside.flops, member) });
    }
  }
  for (let row = 0; row < rest.rows; row++) {
    const parent = by === "provenance" ? under(root, "scope", SMALLER) : place(rest, row);
    const many = numberAt(rest.ops, row);
    const what = by === "program" ? "" : ` of ${textAt(rest.program, row) || "other programs"}`;
    put(parent, node("rest", `${count(many)} smaller ${many === 1 ? "op" : "ops"}${what}`, parent), rest, row);
  }
  add(root);
  if (by === "provenance") for (const child of root.children) join(child);
  if (by === "program") for (const child of root.children) lift(child);
  root.busy = root.time - root.unknown;
  root.runs = Number.NaN;
  if (by === "program") for (const program of root.children) program.runs = Number.NaN;
  if (idle && profile.idle_us !== null) {
    const none = Object.assign(node("idle", "Idle", root), { time: profile.idle_us });
    root.children.push(none);
    root.time += none.time;
  }
  return root;
}

/** Sums of what is below, from the leaves up. */
function add(into: Node): void {
  if (into.kind !== "op" && into.kind !== "rest") {
    for (const child of into.children) {
      add(child);
      into.time = plus(into.time, child.time);
      into.unknown += child.unknown;
      into.flops = plus(into.flops, child.flops);
      into.bytes = plus(into.bytes, child.bytes);
      into.runs = plus(into.runs, child.runs);
    }
    if (into.kind === "duplicates") {
      const most = into.children.reduce((a, b) => (b.time > a.time ? b : a));
      into.name = `${most.name} and its ${into.children.length === 2 ? "duplicate" : "duplicates"}`;
    }
  }
  into.busy = into.time - into.unknown;
}

/** Scopes with nothing but one more scope inside are one row: "jit(f)/transpose(jvp())". */
function join(scope: Node): void {
  let [only] = scope.children;
  while (scope.children.length === 1 && only?.kind === "scope") {
    scope.name += `/${only.name}`;
    scope.children = only.children;
    for (const child of scope.children) child.parent = scope;
    [only] = scope.children;
  }
  for (const child of scope.children) if (child.kind === "scope") join(child);
}

/** A category of a program with a single op is no row of its own: the op says it. */
function lift(program: Node): void {
  program.children = program.children.map((category) => {
    const [only] = category.children;
    if (category.children.length !== 1 || only?.kind !== "op") return category;
    return Object.assign(only, { parent: program, note: category.name });
  });
}

export interface Use {
  flops: number;
  bytes: number;
  /** µs that would be saved at the peak of what is used best. */
  wasted: number;
}

/** How well a node uses the device: parts of its peaks. */
export function use(profile: Profile, { kind, flops, bytes, busy }: Node): Use {
  const peak = (value: number, most: number | null): number =>
    busy > 0 ? value / (busy / 1e6) / (most ?? Number.NaN) : Number.NaN;
  const [computing, moved] = [peak(flops, profile.peak_flops), peak(bytes, profile.peak_bytes)];
  const moving = moved > profile.impossible ? Number.NaN : moved;
  const best = Math.min(
    1,
    Number.isNaN(moving) ? computing : Number.isNaN(computing) ? moving : Math.max(computing, moving),
  );
  return {
    flops: computing,
    bytes: moving,
    wasted: kind === "idle" || kind === "fused" ? Number.NaN : (1 - best) * busy,
  };
}

/** Below this part of the peak FLOP/s the use of them is low; from so much of the bandwidth on, memory is why. */
const LOW = 0.3;
const NEAR = 0.7;

/** Whether an op, or what lies in a group, computes far below the peak although memory does not hold it up. */
export function isLow(profile: Profile, node: Node): boolean {
  const { flops, bytes } = use(profile, node);
  return flops < LOW && !(bytes >= NEAR);
}

/** What a node is ordered by. */
export function value(profile: Profile, of: Node, sort: Sort): number {
  if (of.kind === "fused") return of.flops;
  if (sort === "time" || sort === "runs") return of[sort];
  const { wasted, flops, bytes } = use(profile, of);
  // Where no peak is known, by the rate.
  const rate = {
    wasted,
    flops: Number.isNaN(flops) ? of.flops / of.busy : flops,
    bytes: Number.isNaN(bytes) ? of.bytes / of.busy : bytes,
  };
  return rate[sort];
}

export interface Row {
  node: Node;
  depth: number;
  /** Not 0: the row stands for so many of the children of `node` that are not shown. */
  more: number;
  time: number;
  at: number;
  of: number;
}

export interface Shown {
  open: ReadonlySet<string>;
  /** Nodes whose children are all shown. */
  full: ReadonlySet<string>;
  sort: Sort;
  descending: boolean;
  /** Children of a node at most. */
  most: number;
  /** Least part of the root's time. */
  least: number;
  /** Only nodes that fit, and what they lie in. */
  fits: ((node: Node) => boolean) | null;
}

/** Nodes that fit a search, and those they lie in. */
function found(root: Node, fits: (node: Node) => boolean): Set<Node> {
  const nodes = new Set<Node>();
  const look = (each: Node): boolean => {
    const below = each.children.map(look).some(Boolean);
    const here = below || (each !== root && fits(each));
    if (here) nodes.add(each);
    return here;
  };
  look(root);
  return nodes;
}

/** The rows of the tree in order, a node before its children. */
export function rows(profile: Profile, root: Node, how: Shown): Row[] {
  const hits = how.fits && found(root, how.fits);
  const rows: Row[] = [];
  const sign = how.descending ? -1 : 1;
  const walk = (each: Node, depth: number, index: number, of: number): void => {
    rows.push({ node: each, depth, more: 0, time: each.time, at: index, of });
    const inHit = hits && each.children.some((child) => hits.has(child));
    if (each.children.length === 0 || !(inHit || how.open.has(each.key))) return;
    const order = each.children
      .map((child, i) => ({ child, i, by: value(profile, child, how.sort) }))
      .filter(({ child }) => !inHit || hits.has(child))
      .sort((a, b) => Number(Number.isNaN(a.by)) - Number(Number.isNaN(b.by)) || (a.by - b.by) * sign || a.i - b.i);
    const small = ({ child }: { child: Node }): boolean =>
      child.kind !== "fused" && child.kind !== "idle" && child.time < how.least * root.time;
    const all = hits !== null || how.full.has(each.key);
    const shown = all ? order : order.filter((child) => !small(child)).slice(0, how.most);
    const left = order.filter((child) => !shown.includes(child));
    // One that would be left out alone is shown: the row that says so takes as much room.
    if (left.length === 1) shown.push(left.pop() as (typeof left)[0]);
    for (const [i, { child }] of shown.entries()) walk(child, depth + 1, i + 1, shown.length + Number(left.length > 0));
    if (left.length) {
      const time = left.reduce((sum, { child }) => plus(sum, child.time), Number.NaN);
      rows.push({ node: each, depth: depth + 1, more: left.length, time, at: shown.length + 1, of: shown.length + 1 });
    }
  };
  walk(root, 0, 1, 1);
  return rows;
}

/** What is open at first: the longest nodes one after another, until there are about so many rows. Ops stay closed. */
export function opened(root: Node, most = 16, each = 10): Set<string> {
  const open = new Set([root.key]);
  let shown = Math.min(each, root.children.length);
  const next = [...root.children];
  while (next.length && shown < most) {
    next.sort((a, b) => b.time - a.time);
    const current = next.shift() as Node;
    if (current.kind === "op" || !current.children.length || !(current.time >= 0.02 * root.time)) continue;
    open.add(current.key);
    shown += Math.min(each, current.children.length);
    next.push(...current.children);
  }
  return open;
}

/** All below a node, itself first. */
export function* all(of: Node): Generator<Node> {
  yield of;
  for (const child of of.children) yield* all(child);
}

/** The ops below a node that waste most; without known peaks those that take most time. */
export function worst(profile: Profile, of: Node, most = 5): Node[] {
  const ops = [...all(of)].filter(({ kind }) => kind === "op");
  const known = ops.some((op) => !Number.isNaN(use(profile, op).wasted));
  const by = (op: Node): number => (known ? use(profile, op).wasted : op.time);
  return ops
    .filter((op) => !Number.isNaN(by(op)))
    .sort((a, b) => by(b) - by(a))
    .slice(0, most);
}
