"""Time of compiled programs as a tree: program, category, duplicates, op, and the ops inside a
fusion; or by category, or by the scopes of the framework.

Utilization of a node is that of its ops together: their FLOPs (narrow ones by their width) over
their self time and the device's peak, and bytes of main memory likewise. Ops with neither known
(most custom calls) are excluded, also from waste: a column has their fraction of the time. A node
of such ops alone has no utilization.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import nan
from typing import NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis import hlo
from nbprof.analysis.figures import sum_of_known
from nbprof.analysis.ops import ops
from nbprof.core.errors import ReadError
from nbprof.hlo import category as hlo_category
from nbprof.hlo.hlo import Computation, Program
from nbprof.hlo.programs import Programs
from nbprof.schema import frames

PROGRAM, CATEGORY, PROVENANCE = "program", "category", "provenance"
_ROOTS = {PROGRAM: "All programs", CATEGORY: "All categories", PROVENANCE: "All framework ops"}
IDLE = "IDLE"
COLUMNS = frames.names("op_profile.frame")
MOST_FUSED = 100
"""Ops inside a fusion with a row, those with the most FLOPs."""
_BETWEEN = " › "


@dataclass
class _Node:
    name: str
    kind: str
    category: str = ""
    time: float = 0.0
    unknown: float = 0.0
    flops: float = float("nan")
    moved: float = float("nan")
    runs: float = float("nan")
    row: int = -1
    text: tuple[str, str, str] = ("", "", "")
    children: list[_Node] = field(default_factory=list)

    def add(self, children: Iterable[_Node]) -> _Node:
        """Takes nodes as its children, most time first, equal ones by name; its sums are theirs."""
        self.children = sorted(children, key=lambda node: (-node.time, node.name))
        self.time = sum(node.time for node in self.children)
        self.unknown = sum(node.unknown for node in self.children)
        self.flops = sum_of_known(node.flops for node in self.children)
        self.moved = sum_of_known(node.moved for node in self.children)
        self.runs = sum_of_known(node.runs for node in self.children)
        return self


def frame(
    activity: Activity,
    measured: tuple[pd.DataFrame, int],
    by: str = PROGRAM,
    *,
    with_idle: bool = False,
    fused: bool = True,
) -> pd.DataFrame:
    """The tree as a frame, a node before its children: `p.op_profile.frame`.

    Parameters
    ----------
    activity : Activity
    measured : (DataFrame, int)
        The result of `analysis.hlo.measured`.
    by : str
        "program": program, category, duplicates, op, ops inside; "category": the same without
        programs; "provenance": the scopes of the framework, nested, op, ops inside.
    with_idle : bool
        Whether the time in which a device ran nothing is a node, and part of the root's time.
    fused : bool
        Whether ops inside fusions have rows.
    """
    ops, idle = measured
    if not len(ops):
        return _typed(pd.DataFrame(columns=COLUMNS))
    texts = hlo.described(activity, ops)
    leaves = _leaves(activity, ops, texts, fused)
    if by == PROVENANCE:
        tops = _in_scopes(leaves, ops["framework_op"])
    else:
        tops = _in_categories(ops, leaves, texts, by)
    root = _Node(_ROOTS[by], "total").add(tops)
    # The runs of a program are not the sum of the runs of its ops.
    root.runs = float("nan")
    if by == PROGRAM:
        for program in tops:
            program.runs = float("nan")
    working = root.time
    if with_idle and activity.has_device:
        root.children.append(_Node(IDLE, "idle", IDLE, float(idle)))
        root.children.sort(key=lambda node: (-node.time, node.name))
        root.time += idle
    return _rows(activity, root, ops, working)


def _in_categories(
    ops: pd.DataFrame, leaves: list[_Node], texts: pd.DataFrame, by: str
) -> list[_Node]:
    rows_by_program: dict[str, list[int]] = {}
    for row, program in enumerate(texts["program"].tolist()):
        key = program if by == PROGRAM else ""
        rows_by_program.setdefault(key, []).append(row)
    tops = []
    for program, rows in rows_by_program.items():
        rows_by_category: dict[str, list[int]] = {}
        for row in rows:
            rows_by_category.setdefault(leaves[row].category, []).append(row)
        categories = []
        for category, of_category in rows_by_category.items():
            node = _Node(category, "category", category)
            categories.append(node.add(_with_duplicates(ops, leaves, of_category)))
        if by == PROGRAM:
            tops.append(_Node(program, "program").add(categories))
        else:
            tops += categories
    return tops


def _in_scopes(leaves: list[_Node], framework: pd.Series) -> list[_Node]:
    """A node for each part of the paths of the framework's ops, nested, with the ops in the node of
    their full path.
    """
    top = _Node("", "scope")
    nodes: dict[tuple[str, ...], _Node] = {(): top}
    for leaf, text in zip(leaves, framework.str.removesuffix(":").tolist(), strict=True):
        path = tuple(scopes(text))
        for depth in range(1, len(path) + 1):
            if path[:depth] not in nodes:
                node = nodes[path[:depth]] = _Node(path[depth - 1], "scope")
                nodes[path[: depth - 1]].children.append(node)
        nodes[path].children.append(leaf)
    # The innermost nodes of a path were created last.
    for node in reversed(nodes.values()):
        node.add(node.children)
    return top.children


def _leaves(activity: Activity, ops: pd.DataFrame, texts: pd.DataFrame, fused: bool) -> list[_Node]:
    nodes = []
    facts = ops[["name", "category", "own", "normalized", "memory", "runs", "host", "program"]]
    written = texts[["expression", "shape", "layout"]].itertuples(index=False, name=None)
    rows = zip(facts.itertuples(index=False, name=None), written, hlo.unknown(ops), strict=True)
    for row, (op, text, is_unknown) in enumerate(rows):
        name, category, self_ps, flops, moved, runs, host, ident = op
        node = _Node(name, "op", category or "unknown", self_ps, runs=runs, row=row, text=text)
        if category not in hlo.CONTAINERS:
            node.flops, node.moved = flops, moved
        if is_unknown:
            node.unknown = self_ps
        if fused and activity.programs is not None:
            node.children = fused_ops(activity.programs, host, ident, name, runs)
        nodes.append(node)
    return nodes


def fused_ops(programs: Programs, host: int, ident: int, name: str, runs: float) -> list[_Node]:
    """The ops inside a fusion except its parameters, those with the most FLOPs first, then in
    program order.
    """
    program, costs = programs.program(host, ident), programs.costs(host, ident)
    if program is None or costs is None:
        return []
    computation = _fused_computation(program, name)
    if computation is None:
        return []
    flops_of: dict[int, float] = {}
    for position in range(computation.first, computation.first + computation.count):
        if program.opcodes[position] != "parameter":
            cost = costs.of_instruction(position)
            flops_of[position] = nan if cost is None else cost.normalized_flops * runs
    # Unknown FLOPs stand with 0; equal ones keep their order.
    in_order = sorted(flops_of, key=lambda position: -np.nan_to_num(flops_of[position]))
    nodes = []
    for position in in_order[:MOST_FUSED]:
        category, text = hlo_category.category(program, position), hlo.written(program, position)
        node = _Node(program.names[position], "fused", category, nan, text=text)
        node.flops = flops_of[position]
        nodes.append(node)
    return nodes


def _fused_computation(program: Program, name: str) -> Computation | None:
    """The computation of a fusion; None if the op is something else."""
    fusion = program.index_of_name(name)
    if fusion is None or program.opcodes[fusion] != "fusion":
        return None
    try:
        called = program.called(fusion)
    except ReadError:
        return None
    return program.computation(called[0]) if called else None


def _with_duplicates(ops: pd.DataFrame, leaves: list[_Node], rows: list[int]) -> list[_Node]:
    """Ops of a category, with a node for those that the compiler built from the same code."""
    # The op that the others are duplicates of may not be marked.
    duplicate = ops["duplicate"].to_numpy(object)
    names = np.where(duplicate != "", duplicate, ops["name"].to_numpy(object))
    originals = set(duplicate.tolist())
    rows_by_name: dict[str, list[int]] = {}
    for row in rows:
        if names[row] in originals:
            rows_by_name.setdefault(names[row], []).append(row)
    copies = [of_name for of_name in rows_by_name.values() if len(of_name) > 1]
    grouped: set[int] = set().union(*copies)
    nodes = [leaves[row] for row in rows if row not in grouped]
    for of_name in copies:
        node = _Node("", "duplicates", leaves[of_name[0]].category)
        node.add(leaves[row] for row in of_name)
        node.name = f"{node.children[0].name} and its duplicate(s)"
        nodes.append(node)
    return nodes


class _Position(NamedTuple):
    """A node in the order of the tree: its depth, row of its parent (-1: none), and path."""

    node: _Node
    depth: int
    parent: int
    path: str


def _preorder(root: _Node) -> list[_Position]:
    """The nodes, each before its children."""
    positions: list[_Position] = []
    pending = [(root, 0, -1)]
    while pending:
        node, depth, parent = pending.pop()
        row = len(positions)
        path = node.name
        if parent > 0:
            path = f"{positions[parent].path}{_BETWEEN}{node.name}"
        positions.append(_Position(node, depth, parent, path))
        pending += [(child, depth + 1, row) for child in reversed(node.children)]
    return positions


def _rows(
    activity: Activity, root: _Node, measured_ops: pd.DataFrame, working: float
) -> pd.DataFrame:
    positions = _preorder(root)
    nodes = [position.node for position in positions]
    time = np.array([node.time for node in nodes])
    # Utilization is of the time in which the devices ran, also where the root includes idle time.
    busy = time.copy()
    busy[0] = working
    unknown = np.array([node.unknown for node in nodes])
    share = np.divide(unknown, busy, out=np.zeros(len(busy)), where=busy > 0)
    busy -= unknown
    peak_flops, peak_bytes = ops.peaks(activity)
    seconds = np.where(busy > 0, busy, np.nan) / 1e12
    flops = np.array([node.flops for node in nodes])
    moved = np.array([node.moved for node in nodes])
    computing, moving = flops / seconds / peak_flops, moved / seconds / peak_bytes
    moving = np.where(moving > ops.IMPOSSIBLE, np.nan, moving)
    idle = np.array([node.kind == "idle" for node in nodes])
    best = np.minimum(np.fmax(computing, moving), 1.0)
    runs = pd.array(np.trunc([node.runs for node in nodes]), dtype="Float64")
    framework_op = _of_nodes(nodes, measured_ops["framework_op"])
    expression, shape, layout = zip(*(node.text for node in nodes), strict=True)
    table = pd.DataFrame(
        {
            "path": [position.path for position in positions],
            "depth": [position.depth for position in positions],
            "name": [node.name for node in nodes],
            "category": [node.category for node in nodes],
            "time_us": time / 1e6,
            "time_fraction": time / (time[0] or np.inf),
            "flops_utilization": computing,
            "bandwidth_utilization": moving,
            "unknown_fraction": np.where(np.isnan(time) | idle, np.nan, share),
            "wasted_us": np.where(idle, np.nan, (1 - best) * busy / 1e6),
            "occurrences": runs.astype("Int64"),
            "expression": expression,
            "shape": shape,
            "layout": layout,
            "kind": [node.kind for node in nodes],
            "flops": flops,
            "bytes": moved,
            "framework_op": [text.removesuffix(":") for text in framework_op],
            "source": _of_nodes(nodes, measured_ops["source"]),
            "parent": [position.parent for position in positions],
        }
    )
    return _typed(table)


def _of_nodes(nodes: list[_Node], column: pd.Series) -> list[str]:
    """A text of each node's op; "" for nodes that are not ops."""
    values = column.tolist()
    return [values[node.row] if node.row >= 0 else "" for node in nodes]


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    return frames.typed("op_profile.frame", table, COLUMNS)


MOST_DEEP = 40
"""Scope levels of a path; deeper ones share a row with their remaining path."""
NONE = "(no framework op)"


def scopes(path: str) -> list[str]:
    """The scopes and the name of a framework op: `jit(f)/transpose(jvp(a/b))/dot` has three parts.
    Slashes in brackets do not separate.

    Empty ones are left out; an op without a name is in the scope `NONE`.
    """
    parts, depth, begin = [], 0, 0
    for index, letter in enumerate(path):
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth = max(0, depth - 1)
        elif letter == "/" and depth == 0:
            parts.append(path[begin:index])
            begin = index + 1
    parts = list(filter(None, [*parts, path[begin:]]))
    if len(parts) > MOST_DEEP:
        return [*parts[: MOST_DEEP - 1], "/".join(parts[MOST_DEEP - 1 :])]
    return parts or [NONE]
