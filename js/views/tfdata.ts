/** The graph of a pipeline, of tf.data or a DataLoader: its layout (pure) and its drawing. Data flows left to right, one column per depth. */

import { boxOf, h, listen, s } from "../lib/dom.js";
import { known, ms, num } from "../lib/format.js";
import { hoverCard } from "../lib/parts.js";
import type { PipelineNode } from "../lib/payload.js";

interface Placed {
  node: PipelineNode;
  column: number;
  x: number;
  y: number;
}

interface Edge {
  from: Placed;
  to: Placed;
  critical: boolean;
}

export interface Layout {
  nodes: Placed[];
  edges: Edge[];
  columns: number;
  width: number;
  height: number;
}

export const NODE_HEIGHT = 70;
const ROW = 90;
const GAP = 24;
/** Room above the first row for the words over the bottleneck. */
const TOP = 24;

/** Places each node: the last one to the data (no parent) at the right, its inputs to the left of it. */
export function layout(nodes: readonly PipelineNode[], nodeWidth: number): Layout {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const inputs = new Map<string, PipelineNode[]>();
  const roots: PipelineNode[] = [];
  for (const node of nodes) {
    if (node.parent === null || node.parent === node.id || !byId.has(node.parent)) roots.push(node);
    else inputs.set(node.parent, [...(inputs.get(node.parent) ?? []), node]);
  }
  const depth = new Map<string, number>();
  const row = new Map<string, number>();
  let nextRow = 0;
  const visit = (node: PipelineNode, level: number): number => {
    depth.set(node.id, level);
    // A ring cannot come from a tree of iterators, but a file may say anything.
    const children = (inputs.get(node.id) ?? []).filter((child) => !depth.has(child.id));
    const rows = children.map((child) => visit(child, level + 1));
    const y = rows.length ? ((rows[0] as number) + (rows.at(-1) as number)) / 2 : nextRow++;
    row.set(node.id, y);
    return y;
  };
  for (const root of roots) visit(root, 0);
  for (const node of nodes) if (!depth.has(node.id)) visit(node, 0);
  const columns = Math.max(0, ...depth.values()) + 1;
  const placed = nodes.map((node): Placed => {
    const column = columns - 1 - (depth.get(node.id) as number);
    return { node, column, x: 1 + column * (nodeWidth + GAP), y: TOP + (row.get(node.id) as number) * ROW };
  });
  const placeOf = new Map(placed.map((item) => [item.node.id, item]));
  const edges = placed.flatMap((from): Edge[] => {
    const to = from.node.parent === null ? undefined : placeOf.get(from.node.parent);
    return to && to !== from ? [{ from, to, critical: from.node.critical && to.node.critical }] : [];
  });
  return {
    nodes: placed,
    edges,
    columns,
    width: columns * (nodeWidth + GAP) - GAP + 2,
    height: TOP + Math.max(1, nextRow) * ROW - (ROW - NODE_HEIGHT) + 2,
  };
}

/** The one node to outline: the bottleneck; none where steps do not wait for the pipeline. */
export function bottleneck(nodes: readonly PipelineNode[]): PipelineNode | null {
  const marked = nodes.filter((node) => node.bottleneck);
  return marked.reduce<PipelineNode | null>((best, node) => (best && best.self_ms >= node.self_ms ? best : node), null);
}

/** Where an edge enters a node with several inputs: spread, so that arrow heads do not lie on each other. */
function entry(edge: Edge, all: readonly Edge[]): number {
  const siblings = all.filter((other) => other.to === edge.to);
  const middle = edge.to.y + NODE_HEIGHT / 2;
  if (siblings.length < 2) return middle;
  const spread = Math.min(16, 48 / siblings.length);
  return middle + (siblings.indexOf(edge) - (siblings.length - 1) / 2) * spread;
}

/** The words of a kind of pipeline. */
export interface Words {
  /** What is drawn: "tf.data graph of 4 iterators". */
  graph: (nodes: number) => string;
  /** What shares are parts of. */
  whole: string;
}

export const TF_DATA: Words = { graph: (nodes) => `tf.data graph of ${nodes} iterators`, whole: "of the calls" };

/** What stands over the bottleneck: its share of the whole, where it is a part of that. */
export function bottleneckText(node: PipelineNode, { whole }: Words): string {
  return known(node.percent) ? `bottleneck, ${num(node.percent, 0)}% ${whole}` : "bottleneck";
}

/** What a node shows when it is pointed at. */
function factsOf(node: PipelineNode): { label: string; value: string }[] {
  if (node.facts) return node.facts.map(({ label, value }) => ({ label, value }));
  return [
    ...(node.note ? [{ label: "Note", value: node.note }] : []),
    ...(known(node.start_ms) ? [{ label: "Start", value: ms(node.start_ms) }] : []),
    { label: "Excluding inputs", value: `${ms(node.self_ms)}, ${num(node.percent, 1)}%` },
    { label: "Including inputs", value: ms(node.total_ms) },
    { label: "Calls", value: num(node.calls) },
    { label: "Critical path", value: node.critical ? "yes" : "no" },
  ];
}

let serial = 0;

/** Draws one pipeline into `parent`, which scrolls with the bottleneck in view when the graph is wider. */
export function drawGraph(
  parent: HTMLElement,
  nodes: readonly PipelineNode[],
  words: Words,
  room: number,
  signal: AbortSignal,
  /** A node was clicked; the table of input ops offers the same by key. */
  onNode?: (long_name: string) => void,
): void {
  const probe = layout(nodes, 140);
  const fitting = (room - (probe.columns - 1) * GAP - 2) / probe.columns;
  const width = Math.max(140, Math.min(170, Math.floor(fitting)));
  const plan = layout(nodes, width);
  const hot = bottleneck(nodes);
  const id = `nbp-arrow-${++serial}`;
  const arrow = (name: string, color: string): SVGElement =>
    s(
      "marker",
      {
        id: name,
        viewBox: "0 0 8 8",
        refX: 7,
        refY: 4,
        markerWidth: 8,
        markerHeight: 8,
        orient: "auto",
        markerUnits: "userSpaceOnUse",
      },
      s("path", { d: "M0 0 8 4 0 8z", style: { fill: color } }),
    );
  const edges = plan.edges.map((edge) => {
    const x1 = edge.from.x + width;
    const y1 = edge.from.y + NODE_HEIGHT / 2;
    const x2 = edge.to.x - 1;
    const y2 = entry(edge, plan.edges);
    const bend = (x2 - x1) * 0.55;
    const d = y1 === y2 ? `M${x1} ${y1}H${x2}` : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
    return s("path", {
      class: edge.critical ? "e crit" : "e",
      d,
      "marker-end": `url(#${id}${edge.critical ? "c" : "o"})`,
    });
  });
  const svg = s(
    "svg",
    { width: plan.width, height: plan.height, "aria-hidden": "true" },
    s("defs", arrow(`${id}c`, "var(--c-input)"), arrow(`${id}o`, "var(--c-other)")),
    ...edges,
  );
  const card = hoverCard(parent, signal);
  const boxes = plan.nodes.map(({ node, x, y }) => {
    const percent = node.percent ?? Number.NaN;
    const box = h(
      "div",
      {
        class: node === hot ? "dn hot" : node.critical ? "dn crit" : "dn off",
        style: { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${NODE_HEIGHT}px` },
      },
      h("b", node.name),
      h("span", node.note || "\u00a0"),
      h("i", { style: { "--v": `${Math.max(0, Math.min(100, percent)) || 0}%` } }),
      h("span.v", h("span", node.value ?? ms(node.self_ms)), h("span", known(percent) ? `${num(percent, 1)}%` : "")),
    );
    listen(box, "pointerenter", () =>
      card.show(boxOf(box), {
        title: node.long_name || node.name,
        two: true,
        rows: factsOf(node),
      }),
    );
    listen(box, "pointerleave", card.hide);
    if (onNode && node.long_name) {
      box.style.cursor = "pointer";
      listen(box, "click", () => onNode(node.long_name));
    }
    return box;
  });
  const place = plan.nodes.find((item) => item.node === hot);
  const label =
    hot && place
      ? h("div.dnl", { style: { left: `${place.x}px`, top: `${place.y - 19}px` } }, bottleneckText(hot, words))
      : null;
  const named = hot ? `; data flows left to right; ${hot.name} is the ${bottleneckText(hot, words)}` : "";
  const graph = h(
    "div.graph",
    {
      role: "img",
      "aria-label": `${words.graph(nodes.length)}${named}`,
      style: { width: `${plan.width}px`, height: `${plan.height}px` },
    },
    svg,
    ...boxes,
    label,
  );
  const scroller = h("div.dag", { tabindex: plan.width > room ? "0" : undefined }, graph);
  parent.append(scroller);
  if (place && plan.width > scroller.clientWidth) {
    scroller.scrollLeft = Math.max(0, place.x + width / 2 - scroller.clientWidth / 2);
  }
}
