"""The leaves of the op profile, for display: the ops with most time and their details, and the sums
of all others.

Every tree (by program, by category, by the scopes of the framework) has the same ops as its leaves,
so these are all that a page needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis import hlo
from nbprof.analysis.op_profile import op_profile
from nbprof.analysis.ops import longest_calls
from nbprof.core.errors import ReadError
from nbprof.core.factorize import unique_rows
from nbprof.hlo.hlo import Program
from nbprof.hlo.shapes import Shape

MOST_OPS, MOST_TOLD, MOST_INSIDE = 1000, 200, 16
"""Limits: ops listed one by one; ops, from the first, whose fused ops and arrays are listed; fused
ops listed in each.
"""
MOST_RESTS = 300
"""Pairs of program and category whose smaller ops are summed by themselves."""
SUMS = ["time", "unknown", "flops", "moved", "runs"]
"""Of all runs: self time in ps, that of ops of which neither FLOPs nor bytes are known, FLOPs
(narrow ones by their width), bytes of main memory, how many they are."""
_MOST_ARRAYS = 8
_RESULT = "result"


@dataclass(frozen=True)
class Leaves:
    """The leaves of the op profile.

    Attributes
    ----------
    ops : DataFrame
        The ops with most self time, most first: `program`, `name`, `category`, `duplicate` (what it
        shares with its duplicates, '' where there are none), `framework_op`, `source`,
        `expression`, `shape`, `layout`, `in_file`, `SUMS`, `at_ms` and `for_ms` (the longest run,
        after the start of the profile; NaN where the events are not at hand), `trace_op` (what the
        runs go by in the trace).
    rest : DataFrame
        The other ops, summed by `program` and `category`: `ops` (how many), `SUMS`. `program` and
        `category` are '' of the last row, where there are more such pairs than `MOST_RESTS`.
    fused_ops : DataFrame
        Ops inside fusions: `op` (row of `ops`), `name`, `category`, `flops` of all runs,
        `expression`, `shape`.
    fused_ops_left_out : int64[ops]
        How many more each op has inside.
    arrays : DataFrame
        Arrays that ops write and read: `op` (row of `ops`), `role` ("result", or the name of what
        is read), `shape`, `layout`, `padded` (the shape with each dimension as long as it is in
        memory; '' where the layout does not tell it by dimension), `bytes`, `padded_bytes`.
    idle : float
        Time in which devices ran nothing, ps; NaN if unknown.
    """

    ops: pd.DataFrame
    rest: pd.DataFrame
    fused_ops: pd.DataFrame
    fused_ops_left_out: npt.NDArray[np.int64]
    arrays: pd.DataFrame
    idle: float


def leaves(
    activity: Activity,
    measured: tuple[pd.DataFrame, int],
    start: npt.NDArray[np.int64] | None,
    *,
    most_ops: int = MOST_OPS,
    most_described: int = MOST_TOLD,
    most_inside: int = MOST_INSIDE,
) -> Leaves:
    """The leaves of the op profile.

    Parameters
    ----------
    activity : Activity
    measured : (DataFrame, int)
        The result of `analysis.hlo.measured`.
    start : int64[events], optional
        When each event of the trace starts, ps; None where the events are not at hand.
    most_ops, most_described, most_inside : int
        How many ops at most, see `MOST_OPS`.
    """
    ops, idle = measured
    # The FLOPs and bytes of an op that runs others are theirs; its time is not.
    contains = ops["category"].isin(hlo.CONTAINERS)
    ops = ops.assign(
        time=ops["own"],
        unknown=ops["own"].where(hlo.unknown(ops), 0.0),
        flops=ops["normalized"].mask(contains),
        moved=ops["memory"].mask(contains),
        category=ops["category"].replace("", "unknown"),
    )
    head, rest = ops.head(most_ops), ops.iloc[most_ops:]
    table = pd.concat(
        [
            head.reset_index(drop=True)[["name", "category", "source", *SUMS]],
            hlo.described(activity, head),
        ],
        axis=1,
    )
    table["framework_op"] = head["framework_op"].str.removesuffix(":").to_numpy(object)
    table["duplicate"] = _duplicates(ops)[: len(head)]
    table = table.assign(**_longest(activity, head, start))
    within, left_out, arrays = _fused_ops(activity, head.head(most_described), most_inside)
    not_described = np.zeros(len(head) - len(left_out), np.int64)
    return Leaves(
        table,
        _rest(activity, rest),
        within,
        np.append(left_out, not_described),
        arrays,
        float(idle) if activity.has_device else float("nan"),
    )


def _duplicates(ops: pd.DataFrame) -> npt.NDArray[np.object_]:
    """The name that each op shares with its duplicates; '' if it has none."""
    duplicate = ops["duplicate"].to_numpy(object)
    names = np.where(duplicate != "", duplicate, ops["name"].to_numpy(object))
    stated = set(duplicate.tolist()) - {""}
    is_stated = np.array([name in stated for name in names.tolist()], np.bool_)
    # Within a category of a program, as in the tree.
    keys = [ops[key].to_numpy() for key in ("program", "host", "category")]
    _, group = unique_rows(*(pd.factorize(key)[0].astype(np.int64) for key in (*keys, names)))
    several = np.bincount(group)[group] > 1
    return np.where(is_stated & several, names, "")


def _longest(
    activity: Activity, head: pd.DataFrame, start: npt.NDArray[np.int64] | None
) -> dict[str, npt.NDArray[Any]]:
    if start is None:
        unknown = np.full(len(head), np.nan)
        return {"at_ms": unknown, "for_ms": unknown, "trace_op": np.full(len(head), "", object)}
    runs = hlo.ran(activity)[1]
    part = runs["part"].to_numpy(np.int64)
    began = runs["start"].to_numpy(np.int64)
    length = runs["end"].to_numpy(np.int64) - began
    size = int(head["part"].max()) + 1 if len(head) else 0
    first = np.append(longest_calls.longest(part, length), np.full(size, -1))[
        head["part"].to_numpy(np.int64)
    ]
    event = runs["event"].to_numpy(np.int64)[first]
    start_time = np.where(event >= 0, start[event], began[first])
    code = runs["op"].to_numpy(np.int64)[first]
    # Runs on a device are found by the framework's op, on the CPU by the name of the event.
    names = activity.ops.values[code] if activity.has_device else head["name"].to_numpy(object)
    return {"at_ms": start_time / 1e9, "for_ms": length[first] / 1e9, "trace_op": names}


def _rest(activity: Activity, rest: pd.DataFrame) -> pd.DataFrame:
    titles = [title for title, _ in hlo.titles(activity, rest)]
    named = rest.assign(program=titles, ops=1)
    sums = (
        named.groupby(["program", "category"], sort=False)[["ops", *SUMS]]
        .sum(min_count=1)
        .reset_index()
    )
    sums = sums.sort_values("time", ascending=False, kind="stable", ignore_index=True)
    if len(sums) <= MOST_RESTS:
        return sums
    remainder = sums.iloc[MOST_RESTS:][["ops", *SUMS]].sum(min_count=1)
    return pd.concat(
        [sums.head(MOST_RESTS), pd.DataFrame([{"program": "", "category": "", **remainder}])],
        ignore_index=True,
    )


def _fused_ops(
    activity: Activity, head: pd.DataFrame, most_inside: int
) -> tuple[pd.DataFrame, npt.NDArray[np.int64], pd.DataFrame]:
    """Ops inside ops, the number left out, and the arrays that they write and read."""
    within: list[tuple[object, ...]] = []
    arrays: list[tuple[object, ...]] = []
    left = np.zeros(len(head), np.int64)
    programs = activity.programs
    columns = zip(
        *(head[name].tolist() for name in ("host", "program", "name", "runs")), strict=True
    )
    for row, (host, ident, name, runs) in enumerate(columns if programs is not None else ()):
        nodes = op_profile.fused_ops(programs, host, ident, name, runs)
        left[row] = max(0, len(nodes) - most_inside)
        within += [
            (row, node.name, node.category, node.flops, *node.text[:2])
            for node in nodes[:most_inside]
        ]
        program = programs.program(host, ident)
        position = None if program is None else program.index_of_name(name)
        if program is not None and position is not None:
            arrays += [(row, *array) for array in _arrays(program, position)]
    return (
        pd.DataFrame(within, columns=["op", "name", "category", "flops", "expression", "shape"]),
        left,
        pd.DataFrame(
            arrays, columns=["op", "role", "shape", "layout", "padded", "bytes", "padded_bytes"]
        ),
    )


def _arrays(program: Program, position: int) -> list[tuple[str, str, str, str, int, int]]:
    """The arrays that an op writes, then those that it reads: the first of them."""
    arrays: list[tuple[str, str, str, str, int, int]] = []
    for role, shape in _shapes(program, position):
        for array in shape.arrays():
            if len(arrays) >= _MOST_ARRAYS:
                return arrays
            if array.element not in ("token", "opaque"):
                arrays.append(
                    (
                        role,
                        array.short,
                        array.layout,
                        padded(array),
                        array.bytes,
                        array.padded_bytes,
                    )
                )
    return arrays


def _shapes(program: Program, position: int) -> Iterator[tuple[str, Shape]]:
    try:
        yield _RESULT, program.shape(position)
        for ident in program.instruction(position).operands:
            operand = program.index_of_ident(ident)
            if operand is not None:
                yield program.names[operand], program.shape(operand)
    except ReadError:
        return


def padded(shape: Shape) -> str:
    """The shape with each dimension as long as it is in memory, as `f32[8,128]`; '' where the
    layout does not tell it by dimension.
    """
    sizes = list(shape.dimensions)
    order = shape.minor_to_major
    tile = shape.tiles[0] if shape.tiles else ()
    if (
        sorted(order) != list(range(len(sizes)))
        or any(size <= 0 for size in tile)
        or len(tile) > len(sizes)
    ):
        return ""
    for dimension, size in zip(order, reversed(tile), strict=False):
        sizes[dimension] = -(-sizes[dimension] // size) * size
    text = f"{shape.element}[{','.join(map(str, sizes))}]"
    # Later tiles may add padding that is not part of any dimension.
    padded = int(-(-int(np.prod(sizes, dtype=object)) * shape.element_bytes // 1))
    return text if padded == shape.padded_bytes else ""
