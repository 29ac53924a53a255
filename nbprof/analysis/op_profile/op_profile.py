"""Where the time of compiled programs goes, as a tree: program, category, duplicates, op, and the
ops inside a fusion; or by category, or by the scopes of the framework.

Utilization of a node is that of its ops together: their FLOPs (narrow ones by their width) over
their self time and the device's peak, and bytes of main memory likewise. Ops of which neither is
known (most custom calls) count for neither, nor do they waste anything: a column says which part of
the time they are. A node of such ops alone has no utilization.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis import hlo
from nbprof.analysis.ops import ops
from nbprof.core.errors import ReadError
from nbprof.hlo import category as hlo_category
from nbprof.hlo.programs import Programs
from nbprof.schema import frames

PROGRAM, CATEGORY, PROVENANCE = "program", "category", "provenance"
_ROOTS = {PROGRAM: "All programs", CATEGORY: "All categories", PROVENANCE: "All framework ops"}
IDLE = "IDLE"
COLUMNS = frames.names("op_profile.frame")
MOST_FUSED = 100
"""Ops inside a fusion that get a row, those with the most FLOPs."""
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
        self.flops, self.moved, self.runs = (
            _known(getattr(node, key) for node in self.children)
            for key in ("flops", "moved", "runs")
        )
        return self


def _known(values: Iterable[float]) -> float:
    """The sum of those that are known; NaN where none is."""
    known_values = [value for value in values if value == value]
    return sum(known_values) if known_values else float("nan")


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
        What `analysis.hlo.measured` found.
    by : str
        "program": program, category, duplicates, op, ops inside; "category": the same without
        programs; "provenance": the scopes of the framework, one in another, op, ops inside.
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
    tops = (
        _in_scopes(leaves, ops["framework_op"])
        if by == PROVENANCE
        else _in_categories(ops, leaves, texts, by)
    )
    root = _Node(_ROOTS[by], "total").add(tops)
    for node in [root, *(tops if by == PROGRAM else [])]:
        # A program runs, but how often is not what its ops' runs add up to.
        node.runs = float("nan")
    working = root.time
    if with_idle and activity.has_device:
        root.children = sorted(
            [*root.children, _Node(IDLE, "idle", IDLE, float(idle))],
            key=lambda node: (-node.time, node.name),
        )
        root.time += idle
    return _rows(activity, root, ops, working)


def _in_categories(
    ops: pd.DataFrame, leaves: list[_Node], texts: pd.DataFrame, by: str
) -> list[_Node]:
    groups: dict[str, list[int]] = {}
    for row, program in enumerate(texts["program"].tolist()):
        groups.setdefault(program if by == PROGRAM else "", []).append(row)
    tops = []
    for name, rows in groups.items():
        by_category: dict[str, list[int]] = {}
        for row in rows:
            by_category.setdefault(leaves[row].category, []).append(row)
        categories = [
            _Node(key, "category", key).add(_with_duplicates(ops, leaves, nodes))
            for key, nodes in by_category.items()
        ]
        tops += [_Node(name, "program").add(categories)] if by == PROGRAM else categories
    return tops


def _in_scopes(leaves: list[_Node], framework: pd.Series) -> list[_Node]:
    """Scopes in scopes: a node a part of the paths of the framework's ops, and the ops in the node
    of their whole path.
    """
    top = _Node("", "scope")
    nodes: dict[tuple[str, ...], _Node] = {(): top}
    for leaf, text in zip(leaves, framework.str.removesuffix(":").tolist(), strict=True):
        path = tuple(scopes(text))
        for deep in range(1, len(path) + 1):
            if path[:deep] not in nodes:
                node = nodes[path[:deep]] = _Node(path[deep - 1], "scope")
                nodes[path[: deep - 1]].children.append(node)
        nodes[path].children.append(leaf)
    # Those that are made last lie deepest on their path.
    for node in reversed(nodes.values()):
        node.add(node.children)
    return top.children


def _leaves(activity: Activity, ops: pd.DataFrame, told: pd.DataFrame, fused: bool) -> list[_Node]:
    nodes = []
    unknown = hlo.unknown(ops).tolist()
    columns = zip(
        *(
            ops[name].tolist()
            for name in (
                "name",
                "category",
                "own",
                "normalized",
                "memory",
                "runs",
                "host",
                "program",
            )
        ),
        *(told[name].tolist() for name in ("expression", "shape", "layout")),
        strict=True,
    )
    for row, (name, category, self_ps, flops, moved, runs, host, ident, *texts) in enumerate(
        columns
    ):
        if category in hlo.CONTAINERS:
            flops = moved = float("nan")
        lost = self_ps if unknown[row] else 0.0
        node = _Node(
            name,
            "op",
            category or "unknown",
            self_ps,
            lost,
            flops,
            moved,
            runs,
            row,
            (texts[0], texts[1], texts[2]),
        )
        if fused and activity.programs is not None:
            node.children = inside(activity.programs, host, ident, name, runs)
        nodes.append(node)
    return nodes


def inside(programs: Programs, host: int, ident: int, name: str, runs: float) -> list[_Node]:
    """The ops inside a fusion but its parameters, those with the most FLOPs first, then in program
    order.
    """
    program, costs = programs.program(host, ident), programs.costs(host, ident)
    fusion = None if program is None else program.place(name)
    if program is None or costs is None or fusion is None or program.opcodes[fusion] != "fusion":
        return []
    try:
        called = program.called(fusion)
    except ReadError:
        return []
    computation = program.computation(called[0]) if called else None
    if computation is None:
        return []
    instructions = []
    for position in range(computation.first, computation.first + computation.count):
        if program.opcodes[position] != "parameter":
            cost = costs.at(position)
            flops = float("nan") if cost is None else cost.normalized_flops * runs
            instructions.append((-flops if flops == flops else 0.0, position, flops))
    none = float("nan")
    return [
        _Node(
            program.names[position],
            "fused",
            hlo_category.category(program, position),
            none,
            flops=flops,
            text=hlo.written(program, position),
        )
        for _, position, flops in sorted(instructions)[:MOST_FUSED]
    ]


def _with_duplicates(ops: pd.DataFrame, leaves: list[_Node], rows: list[int]) -> list[_Node]:
    """Ops of a category; those that the compiler made of one and the same code lie in a node of
    their own.
    """
    # The one that the others are duplicates of may state nothing.
    names = ops["duplicate"].where(ops["duplicate"] != "", ops["name"]).to_numpy(object)
    originals = set(ops["duplicate"])
    alike: dict[str, list[int]] = {}
    for row in rows:
        if names[row] in originals:
            alike.setdefault(names[row], []).append(row)
    several = {name: copies for name, copies in alike.items() if len(copies) > 1}
    grouped = {row for copies in several.values() for row in copies}
    nodes = [leaves[row] for row in rows if row not in grouped]
    for copies in several.values():
        node = _Node("", "duplicates", leaves[copies[0]].category).add(
            leaves[row] for row in copies
        )
        node.name = f"{node.children[0].name} and its duplicate(s)"
        nodes.append(node)
    return nodes


def _rows(activity: Activity, root: _Node, found: pd.DataFrame, working: float) -> pd.DataFrame:
    nodes: list[_Node] = []
    depth: list[int] = []
    parent: list[int] = []
    paths: list[str] = []
    open_ = [(root, 0, -1)]
    while open_:
        node, deep, above = open_.pop()
        here = len(nodes)
        nodes.append(node)
        depth.append(deep)
        parent.append(above)
        paths.append(node.name if above <= 0 else f"{paths[above]}{_BETWEEN}{node.name}")
        open_ += [(child, deep + 1, here) for child in reversed(node.children)]
    time = np.array([node.time for node in nodes])
    # How well the devices were used while they ran, also where the root counts the time in which
    # they did not.
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
    rows = np.array([node.row for node in nodes])

    def said(column: str) -> list[str]:
        values = found[column].tolist()
        return [values[row] if row >= 0 else "" for row in rows.tolist()]

    table = pd.DataFrame(
        {
            "path": paths,
            "depth": depth,
            "name": [node.name for node in nodes],
            "category": [node.category for node in nodes],
            "time_us": time / 1e6,
            "time_fraction": time / time[0] if time[0] else np.zeros(len(time)),
            "flops_utilization": computing,
            "bandwidth_utilization": moving,
            "unknown_fraction": np.where(np.isnan(time) | idle, np.nan, share),
            "wasted_us": np.where(idle, np.nan, (1 - best) * busy / 1e6),
            "occurrences": pd.array(
                [None if node.runs != node.runs else int(node.runs) for node in nodes],
                dtype="Int64",
            ),
            "expression": [node.text[0] for node in nodes],
            "shape": [node.text[1] for node in nodes],
            "layout": [node.text[2] for node in nodes],
            "kind": [node.kind for node in nodes],
            "flops": flops,
            "bytes": moved,
            "framework_op": [text.removesuffix(":") for text in said("framework_op")],
            "source": said("source"),
            "parent": parent,
        }
    )
    return _typed(table)


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    return frames.typed("op_profile.frame", table, COLUMNS)


MOST_DEEP = 40
"""Scope levels of a path; deeper ones share a row with their remaining path."""
NONE = "(no framework op)"


def scopes(path: str) -> list[str]:
    """The scopes of a framework op and its own name: `jit(f)/transpose(jvp(a/b))/dot` has three. A
    slash in brackets parts nothing.

    Empty ones are left out; an op without a name is in a scope that says so.
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
    parts = [part for part in (*parts, path[begin:]) if part]
    return (
        [*parts[: MOST_DEEP - 1], "/".join(parts[MOST_DEEP - 1 :])]
        if len(parts) > MOST_DEEP
        else parts or [NONE]
    )
