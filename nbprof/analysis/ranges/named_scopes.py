"""Time in the scopes that are part of the names of ops: `jax.named_scope`, `tf.name_scope`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.activity.tables import OpParts
from nbprof.analysis.ranges.instances import Steps
from nbprof.analysis.ranges.totals import (
    KEYS,
    PROGRAM,
    SEPARATOR,
    SIDES,
    SUMS,
    Floats,
    OpTimes,
    PathKey,
    with_inner,
)
from nbprof.core import nesting
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int64s
from nbprof.frameworks.register import JAX

if TYPE_CHECKING:
    from nbprof.analysis.scopes import Scope

_LATER = 1e18
"""Behind all moments of a trace, in ps."""


@dataclass(frozen=True)
class _Runs:
    """Runs of each op together: code of the name with the scopes, index in `SIDES`, self time and
    first start, ps.
    """

    name: Int64s
    side: Int64s
    time: Floats
    start: Int64s

    @classmethod
    def concat(cls, parts: Sequence[_Runs]) -> _Runs:
        """The rows of several tables, one after the other."""
        return cls(
            np.concatenate([part.name for part in parts]),
            np.concatenate([part.side for part in parts]),
            np.concatenate([part.time for part in parts]),
            np.concatenate([part.start for part in parts]),
        )

    def take(self, rows: npt.NDArray[Any]) -> _Runs:
        """Some of the rows."""
        return _Runs(self.name[rows], self.side[rows], self.time[rows], self.start[rows])


class _Names:
    """Names of ops, each with a code, and whether a compiler was given the name."""

    def __init__(self) -> None:
        self.codes: dict[tuple[str, bool], int] = {}

    def code(self, name: str, is_compiled: bool) -> int:
        return self.codes.setdefault((name, is_compiled), len(self.codes))

    def scopes(self) -> list[Scope]:
        """The scope of each name, by code."""
        # Late, as most profiles have no scopes.
        from nbprof.analysis import scopes

        by_code: dict[int, Scope] = {}
        for is_compiled in (True, False):
            names = {code: name for (name, flag), code in self.codes.items() if flag == is_compiled}
            of_names = scopes.of_ops(names.values(), compiled=is_compiled)
            by_code.update(zip(names, of_names, strict=True))
        return [by_code[code] for code in range(len(by_code))]


def scope_sums(
    activity: Activity, steps: Steps, host_ops: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Self time of ops by the scopes in their names, and these ops, as `rows` and `ops` of
    `Totals`; None where no op has any.
    """
    if not activity.framework.has_scopes:
        return None
    names = _Names()
    tables = []
    for side, ops, parts in (
        ("device", activity.device_ops, activity.op_parts),
        ("host", activity.cpu_ops, activity.cpu_parts),
    ):
        if len(ops):
            tables.append(_runs_in_steps(activity, steps, ops.frame(), parts, names, side))
    framework_ops = host_ops[~host_ops["dataset"].to_numpy(np.bool_)]
    if activity.framework is not JAX and len(framework_ops):
        tables.append(
            _runs_in_steps(activity, steps, framework_ops, OpParts.empty(), names, "host")
        )
    if not tables:
        return None
    scopes = names.scopes()
    if not scopes:
        return None
    runs = _Runs.concat(tables)
    has_path = np.array([bool(scope.path) for scope in scopes], np.bool_)
    runs = runs.take(has_path[runs.name])
    if not len(runs.name):
        return None
    return _sums_by_path(activity, runs, [name for name, _ in names.codes], scopes)


def _runs_in_steps(
    activity: Activity,
    steps: Steps,
    ops: pd.DataFrame,
    parts: OpParts,
    names: _Names,
    side: str,
) -> _Runs:
    """Ops of a side with their runs in steps; their names are added to `names`."""
    start = ops["start"].to_numpy(np.int64)
    used = np.flatnonzero(steps.number(ops["host"].to_numpy(np.int64), start) >= 0)
    op = ops["op"].to_numpy(np.int64)[used]
    part = np.full(len(used), -1, np.int64)
    if "part" in ops:
        part = ops["part"].to_numpy(np.int64)[used]
    first, code = unique_rows(part, op)
    framework_ops, compiled = parts.framework_op.tolist(), parts.hlo.tolist()
    texts = activity.ops.values
    name_codes = np.zeros(len(first), np.int64)
    for index, row in enumerate(first.tolist()):
        part_row = int(part[row])
        is_compiled = 0 <= part_row < len(compiled) and bool(compiled[part_row])
        name = framework_ops[part_row] if is_compiled else texts[op[row]]
        name_codes[index] = names.code(str(name or ""), is_compiled)
    # A few hundred ops from here on, where there may be a million runs.
    time = np.bincount(code, ops["own"].to_numpy(np.float64)[used], len(first)).astype(np.float64)
    first_start = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(first_start, code, start[used])
    return _Runs(name_codes, np.full(len(first), SIDES.index(side)), time, first_start)


def _sums_by_path(
    activity: Activity, runs: _Runs, names: list[str], scopes: list[Scope]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    number: dict[tuple[str, ...], int] = {(): -1}
    above_of: list[int] = []
    path_of_name = np.full(len(names), -1, np.int64)
    # Prefixes first, so that each path stands behind the one around it.
    for code in np.unique(runs.name).tolist():
        scope = scopes[code].path
        for length in range(1, len(scope) + 1):
            if scope[:length] not in number:
                number[scope[:length]] = len(above_of)
                above_of.append(number[scope[: length - 1]])
        path_of_name[code] = number[scope]
    above, path, count = np.array(above_of, np.int64), path_of_name[runs.name], len(above_of)
    is_backward = np.array([scope.backward for scope in scopes], np.bool_)[runs.name]
    columns: dict[str, Any] = dict.fromkeys(SUMS, np.nan)
    for side, side_name in enumerate(SIDES):
        of_side = runs.side == side
        if not of_side.any():
            continue
        forward, backward = of_side & ~is_backward, of_side & is_backward
        self_time = np.bincount(path[forward], runs.time[forward], count)
        columns[f"{side_name}_self"] = self_time
        columns[side_name] = with_inner(above, self_time)
        backward_time = np.bincount(path[backward], runs.time[backward], count)
        columns[f"backward_{side_name}"] = with_inner(above, backward_time)
    kind = "named_scope" if activity.framework is JAX else "name_scope"
    keys = [PathKey(PROGRAM, kind, SEPARATOR.join(scope)) for scope in list(number)[1:]]
    first = _first_start(runs, path, above, is_backward)
    rows = pd.DataFrame(keys, columns=list(KEYS)).assign(first=first, **columns)
    last_parts = [name.rstrip(":").rpartition("/")[2] for name in names]
    op_names, op_code = np.unique(last_parts, return_inverse=True)
    op_times = OpTimes(path, runs.side, op_code[runs.name].astype(np.int64), runs.time)
    return rows, op_times.largest(above).frame(keys, op_names.tolist())


def _first_start(
    runs: _Runs, path: Int64s, above: Int64s, is_backward: npt.NDArray[np.bool_]
) -> Floats:
    """When each path, or one in it, first began, in the order of the forward pass, which is that of
    the program.
    """
    first = np.full(len(above), np.inf)
    np.minimum.at(first, path, runs.start + np.where(is_backward, _LATER, 0.0))
    for level in reversed(nesting.levels(above.astype(np.int32))):
        inner = level[above[level] >= 0]
        np.minimum.at(first, above[inner], first[inner])
    return first
