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
        self.children = sorted(children, key=lambda one: (-one.time, one.name))
        self.time = sum(one.time for one in self.children)
        self.unknown = sum(one.unknown for one in self.children)
        self.flops, self.moved, self.runs = (
            _known(getattr(one, key) for one in self.children) for key in ("flops", "moved", "runs")
        )
        return self


def _known(values: Iterable[float]) -> float:
    """The sum of those that are known; NaN where none is."""
    known = [value for value in values if value == value]
    return sum(known) if known else float("nan")


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
    found, idle = measured
    if not len(found):
        return _typed(pd.DataFrame(columns=COLUMNS))
    told = hlo.described(activity, found)
    leaves = _leaves(activity, found, told, fused)
    tops = (
        _in_scopes(leaves, found["framework_op"])
        if by == PROVENANCE
        else _in_categories(found, leaves, told, by)
    )
    root = _Node(_ROOTS[by], "total").add(tops)
    for node in [root, *(tops if by == PROGRAM else [])]:
        # A program runs, but how often is not what its ops' runs add up to.
        node.runs = float("nan")
    working = root.time
    if with_idle and activity.has_device:
        root.children = sorted(
            [*root.children, _Node(IDLE, "idle", IDLE, float(idle))],
            key=lambda one: (-one.time, one.name),
        )
        root.time += idle
    return _rows(activity, root, found, working)


def _in_categories(
    found: pd.DataFrame, leaves: list[_Node], told: pd.DataFrame, by: str
) -> list[_Node]:
    groups: dict[str, list[int]] = {}
    for row, program in enumerate(told["program"].tolist()):
        groups.setdefault(program if by == PROGRAM else "", []).append(row)
    tops = []
    for name, rows in groups.items():
        by_category: dict[str, list[int]] = {}
        for row in rows:
            by_category.setdefault(leaves[row].category, []).append(row)
        made = [
            _Node(key, "category", key).add(_with_duplicates(found, leaves, mine))
            for key, mine in by_category.items()
        ]
        tops += [_Node(name, "program").add(made)] if by == PROGRAM else made
    return tops


def _in_scopes(leaves: list[_Node], framework: pd.Series) -> list[_Node]:
    """Scopes in scopes: a node a part of the paths of the framework's ops, and the ops in the node
    of their whole path.
    """
    top = _Node("", "scope")
    inside: dict[tuple[str, ...], _Node] = {(): top}
    for leaf, text in zip(leaves, framework.str.removesuffix(":").tolist(), strict=True):
        path = tuple(scopes(text))
        for deep in range(1, len(path) + 1):
            if path[:deep] not in inside:
                node = inside[path[:deep]] = _Node(path[deep - 1], "scope")
                inside[path[: deep - 1]].children.append(node)
        inside[path].children.append(leaf)
    # Those that are made last lie deepest on their path.
    for node in reversed(inside.values()):
        node.add(node.children)
    return top.children


def _leaves(
    activity: Activity, found: pd.DataFrame, told: pd.DataFrame, fused: bool
) -> list[_Node]:
    out = []
    unknown = hlo.unknown(found).tolist()
    columns = zip(
        *(
            found[name].tolist()
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
    for row, (name, category, own, flops, moved, runs, host, ident, *texts) in enumerate(columns):
        if category in hlo.CONTAINERS:
            flops = moved = float("nan")
        lost = own if unknown[row] else 0.0
        node = _Node(
            name,
            "op",
            category or "unknown",
            own,
            lost,
            flops,
            moved,
            runs,
            row,
            (texts[0], texts[1], texts[2]),
        )
        if fused and activity.programs is not None:
            node.children = inside(activity.programs, host, ident, name, runs)
        out.append(node)
    return out


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
    out = []
    for place in range(computation.first, computation.first + computation.count):
        if program.opcodes[place] != "parameter":
            cost = costs.at(place)
            flops = float("nan") if cost is None else cost.normalized_flops * runs
            out.append((-flops if flops == flops else 0.0, place, flops))
    none = float("nan")
    return [
        _Node(
            program.names[place],
            "fused",
            hlo_category.category(program, place),
            none,
            flops=flops,
            text=hlo.written(program, place),
        )
        for _, place, flops in sorted(out)[:MOST_FUSED]
    ]


def _with_duplicates(found: pd.DataFrame, leaves: list[_Node], rows: list[int]) -> list[_Node]:
    """Ops of a category; those that the compiler made of one and the same code lie in a node of
    their own.
    """
    # The one that the others are duplicates of may state nothing.
    names = found["duplicate"].where(found["duplicate"] != "", found["name"]).to_numpy(object)
    stated = set(found["duplicate"])
    alike: dict[str, list[int]] = {}
    for row in rows:
        if names[row] in stated:
            alike.setdefault(names[row], []).append(row)
    several = {name: mine for name, mine in alike.items() if len(mine) > 1}
    grouped = {row for mine in several.values() for row in mine}
    out = [leaves[row] for row in rows if row not in grouped]
    for mine in several.values():
        node = _Node("", "duplicates", leaves[mine[0]].category).add(leaves[row] for row in mine)
        node.name = f"{node.children[0].name} and its duplicate(s)"
        out.append(node)
    return out


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

    out = pd.DataFrame(
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
    return _typed(out)


def _typed(out: pd.DataFrame) -> pd.DataFrame:
    return frames.typed("op_profile.frame", out, COLUMNS)


MOST_DEEP = 40
"""Scope levels of a path; deeper ones share a row with their remaining path."""
NONE = "(no framework op)"


def scopes(path: str) -> list[str]:
    """The scopes of a framework op and its own name: `jit(f)/transpose(jvp(a/b))/dot` has three. A
    slash in brackets parts nothing.

    Empty ones are left out; an op without a name is in a scope that says so.
    """
    out, depth, begin = [], 0, 0
    for at, letter in enumerate(path):
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth = max(0, depth - 1)
        elif letter == "/" and depth == 0:
            out.append(path[begin:at])
            begin = at + 1
    out = [part for part in (*out, path[begin:]) if part]
    return (
        [*out[: MOST_DEEP - 1], "/".join(out[MOST_DEEP - 1 :])]
        if len(out) > MOST_DEEP
        else out or [NONE]
    )
