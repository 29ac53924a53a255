"""Time by op of compiled XLA programs: XProf's HLO stats.

A row is an op of a program. The FLOPs and bytes of a run are stated with the event (TPUs) or
counted from the program (GPUs); rates are those of all its runs over their total time, since an
op's bytes include those of the ops inside.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.activity.given_peaks import ON_CHIP
from nbprof.activity.tables import DeviceOps, OpParts
from nbprof.analysis.ops import ops
from nbprof.analysis.table import stacked, table
from nbprof.core.errors import ReadError
from nbprof.hlo import text as hlo_text
from nbprof.hlo.hlo import Program
from nbprof.schema import frames

_SHAPE = re.compile(r"%?\S+ = (.+?) [a-z][\w\-]*\(")
COLUMNS = frames.names("hlo.frame")
CONTAINERS = ("while", "conditional", "call")
"""Ops that run other ops: the latter count, so sums leave out the FLOPs and bytes of the former."""
Floats = npt.NDArray[np.float64]

_COPIES = ("copy-start", "copy-done")
_SUM_OF = {"normalized_flops": "normalized", "bytes": "moved", "memory_bytes": "memory"}
"""Sums by the columns of `OpParts` that are called otherwise there."""
SUMS = ["total", "own", "runs", "flops", "normalized", "moved", "memory"]
"""Over all runs: time and self time in ps, their number, FLOPs, FLOPs scaled to 16 bit, bytes, and
main memory bytes.
"""


def measured(activity: Activity, *, as_xprof: bool = False) -> tuple[pd.DataFrame, int]:
    """The ops of compiled programs that ran on devices, and the time in ps in which the devices ran
    no op.

    Parameters
    ----------
    activity : Activity
    as_xprof : bool
        Without the ops whose program is not in the file; each kernel of an op a run of it.

    Returns
    -------
    DataFrame
        The columns of `activity.op_parts`, `SUMS`, and `part`, the row there; most self time first,
        equal ones by program and name.
    int
    """
    parts, runs = (activity.op_parts, activity.device_ops) if as_xprof else _ran(activity)
    if not len(parts) or not len(runs):
        empty = parts.frame().head(0).assign(part=np.zeros(0, np.int64))
        return empty.assign(**{name: np.zeros(0) for name in SUMS}), 0
    if as_xprof:
        runs = runs.take(parts.xprof[runs.part])
    idle = 0 if runs is activity.cpu_ops else ops.device_idle(activity, runs.frame())
    count = np.bincount(runs.part, minlength=len(parts))
    sums = _xprof_sums(parts) if as_xprof else _sums(parts)
    if not (as_xprof or _on_tpu(activity)):
        sums["memory"] = sums["moved"]
    # On a TPU main memory moved the bytes stated for it, or all if none are stated.
    sums["memory"] = np.where(np.isnan(sums["memory"]), sums["moved"], sums["memory"])
    duration = (runs.end - runs.start).astype(np.float64)
    sums["total"] = np.bincount(runs.part, duration, len(parts)).astype(np.float64)
    sums["own"] = np.bincount(runs.part, runs.own.astype(np.float64), len(parts)).astype(np.float64)
    columns = {_SUM_OF.get(name, name): array for name, array in parts.arrays.items()} | sums
    if as_xprof:
        columns["runs"] = count.astype(np.float64)
    columns["part"] = np.arange(len(parts))
    rows = np.flatnonzero(parts.hlo & (count > 0))
    name_rank, _ = pd.factorize(parts.name[rows], sort=True)
    rows = rows[np.lexsort((name_rank, parts.program[rows], -sums["own"][rows]))]
    return table({name: values[rows] for name, values in columns.items()}), idle


def _sums(parts: OpParts) -> dict[str, Floats]:
    return {
        "flops": parts.flops,
        "normalized": parts.normalized_flops,
        "moved": parts.bytes,
        "memory": parts.memory_bytes,
    }


def _xprof_sums(parts: OpParts) -> dict[str, Floats]:
    sums = _sums(parts)
    sums["normalized"] = parts.normalized_flops + (parts.xprof_flops - parts.flops)
    sums["flops"] = parts.xprof_flops
    # Unknown values are 0 there.
    uncounted = (
        np.isnan(sums["normalized"]) & np.isnan(sums["memory"]) & (parts.category == "custom-call")
    )
    return {
        name: np.where(uncounted, 0.0, values) * parts.xprof_runs for name, values in sums.items()
    }


def unknown(ops: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Flags of the ops of `measured` with neither FLOPs nor bytes known, as most custom calls;
    statements on utilization exclude their time.
    """
    normalized, memory = (ops[name].to_numpy(np.float64) for name in ("normalized", "memory"))
    contains = np.isin(ops["category"].to_numpy(object), CONTAINERS)
    return np.asarray(np.isnan(normalized) & np.isnan(memory) & ~contains, np.bool_)


def _ran(activity: Activity) -> tuple[OpParts, DeviceOps]:
    """The ops that ran and their runs: `op_parts` and `device_ops`, or those of the CPU if no
    program ran on a device.
    """
    if activity.has_device:
        return activity.op_parts, activity.device_ops
    return activity.cpu_parts, activity.cpu_ops


def ran(activity: Activity) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same as DataFrames."""
    parts, runs = _ran(activity)
    return parts.frame(), runs.frame()


def _on_tpu(activity: Activity) -> bool:
    return bool((activity.devices["kind"] == "TPU").any())


def added(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The results of `measured` of several hosts, or groups of them, together.

    Parameters
    ----------
    tables : list of DataFrame
        Each with `identity`, which with its program's ident distinguishes an op's program from
        others: see `identities`.
    """
    rows = stacked(tables)
    by_op = rows.groupby(["identity", "program", "name", "framework_op"], sort=False)
    code = by_op.ngroup().to_numpy(np.int64)
    table = rows[~pd.Series(code).duplicated()].reset_index(drop=True)
    levels = [level for level in ON_CHIP if level in rows.columns]
    for name in (*SUMS, *levels):
        # A value that is unknown on one host is unknown in the sum.
        table[name] = np.bincount(code, rows[name].to_numpy(np.float64), len(table))
    # Rows of a host's tables do not exist in those of the run.
    table["part"] = -1
    return table.sort_values(
        ["own", "program", "name"], ascending=[False, True, True], kind="stable", ignore_index=True
    )


def identities(activity: Activity, table: pd.DataFrame) -> list[str]:
    """For each op the identity of its program on every host: the digest of its content.

    Programs that are not in the file have none: on devices those of one ident are taken for the
    same, on CPUs, which number them independently, those of a host.
    """
    identity_of: dict[tuple[int, int], str] = {}
    keys = list(zip(table["host"].tolist(), table["program"].tolist(), strict=True))
    for key in dict.fromkeys(keys):
        digest = activity.programs.digest(*key) if activity.programs is not None else ""
        if not digest and not activity.has_device:
            digest = f"on {activity.hosts[key[0]]}"
        identity_of[key] = digest
    return [identity_of[key] for key in keys]


def frame(activity: Activity, measured: tuple[pd.DataFrame, int]) -> pd.DataFrame:
    """The public frame, `p.hlo.frame`; `measured` is the result of the function of that name."""
    measured_ops, _ = measured
    return _public(activity, measured_ops, int(measured_ops["own"].sum()), impossible=False)


def as_xprof(activity: Activity) -> pd.DataFrame:
    """The rows of XProf 2.24: shares include idle time, unknown values are 0, and no rate is left
    out.
    """
    if not activity.xprof:
        return frame(activity, measured(activity)).head(0)
    measured_ops, idle = measured(activity, as_xprof=True)
    table = _public(activity, measured_ops, int(measured_ops["own"].sum()) + idle, impossible=True)
    numbers = [name for name in table.columns if table[name].dtype == np.float64]
    table[numbers] = table[numbers].fillna(0.0)
    table["bound_by"] = table["bound_by"].where(table["bound_by"] != "", "Unknown")
    return table.drop(columns="bound")


def _public(
    activity: Activity, measured_ops: pd.DataFrame, total_ps: int, *, impossible: bool
) -> pd.DataFrame:
    texts = described(activity, measured_ops)
    total, self_ps, runs = (
        measured_ops[name].to_numpy(np.float64) for name in ("total", "own", "runs")
    )
    share = self_ps / total_ps if total_ps else self_ps * 0.0
    runs = np.where(runs > 0, runs, np.nan)
    return frames.build(
        "hlo.frame",
        {
            "rank": np.arange(1, len(measured_ops) + 1),
            "program": texts["program"],
            "op": measured_ops["name"],
            "category": measured_ops["category"],
            "framework_op": [op.removesuffix(":") for op in measured_ops["framework_op"].tolist()],
            "occurrences": np.nan_to_num(measured_ops["runs"].to_numpy(np.float64)),
            "total_us": total / 1e6,
            "avg_us": total / runs / 1e6,
            "self_us": self_ps / 1e6,
            "avg_self_us": self_ps / runs / 1e6,
            "self_fraction": share,
            "cumulative_fraction": np.cumsum(share),
            **rates(
                measured_ops,
                *ops.peaks(activity, impossible),
                ops.on_chip_peaks(activity),
                impossible=impossible,
                main=ops.HBM if impossible else ops.main_memory(activity),
            ),
            "flops": measured_ops["flops"],
            "bytes": measured_ops["moved"],
            "rematerialized": [".remat" in name for name in measured_ops["name"].tolist()],
            "expression": texts["expression"],
            "shape": texts["shape"],
            "layout": texts["layout"],
            "source": measured_ops["source"],
            "in_file": texts["in_file"],
            "program_id": measured_ops["program"],
        },
        COLUMNS,
    )


def rates(
    measured_ops: pd.DataFrame,
    peak_flops: float | Floats,
    peak_bytes: float,
    on_chip: dict[str, float] | None = None,
    *,
    impossible: bool,
    main: str = ops.HBM,
) -> dict[str, npt.NDArray[Any]]:
    """Rates of ops, the resource that each comes closest to, and its bound.

    Parameters
    ----------
    measured_ops : DataFrame
        With `total`, `flops`, `normalized`, `moved`, `memory`.
    peak_flops, peak_bytes : float
        Per second, of a device or of the units that each op computes with; NaN if unknown.
    on_chip : dict, optional
        The same of its memories on the chip, by the names of `nbprof.activity.given_peaks.ON_CHIP`.
    impossible : bool
        XProf's rules: rates that no memory reaches, of ops that only begin a transfer or find it
        done, are included, and the intensity is of FLOPs as of 16 bits.
    main : str
        The name of main memory where an op is bound by it.
    """
    seconds = seconds_of(measured_ops["total"])
    flops, normalized, moved, memory = (
        measured_ops[name].to_numpy(np.float64)
        for name in ("flops", "normalized", "moved", "memory")
    )
    # An asynchronous copy states its bytes of main memory where it begins or where it is done, and
    # its time is elsewhere.
    waits = np.isin(measured_ops["category"].to_numpy(object), _COPIES) & ~(memory > 0)
    moved_rate, memory_rate = moved / seconds, np.where(waits, moved, memory) / seconds
    if not impossible:
        limit = ops.IMPOSSIBLE * peak_bytes
        too_fast = (moved_rate > limit) | (memory_rate > limit)
        moved_rate = np.where(too_fast, np.nan, moved_rate)
        memory_rate = np.where(too_fast, np.nan, memory_rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        used = {
            ops.COMPUTE: normalized / seconds / peak_flops,
            main: memory_rate / peak_bytes,
        }
    is_known = ~np.isnan(used[ops.COMPUTE]) & ~np.isnan(used[main])
    for level, use in on_chip_use(measured_ops, on_chip or {}).items():
        used[ON_CHIP[level]] = use
    near = nearest(used, is_known)
    # XProf's intensity is the one that its roofline is drawn with.
    counted_flops = normalized if impossible else flops
    return {
        "flops_per_second": flops / seconds,
        "normalized_flops_per_second": normalized / seconds,
        "bytes_per_second": moved_rate,
        "memory_bytes_per_second": memory_rate,
        "operational_intensity": counted_flops / np.where(moved > 0, moved, np.nan),
        "bound_by": near,
        "bound": ops.bound(near, np.fmax.reduce(list(used.values()))),
    }


def seconds_of(total_ps: pd.Series) -> Floats:
    """Times in seconds; NaN for 0."""
    total = total_ps.to_numpy(np.float64)
    return np.where(total > 0, total, np.nan) / 1e12


def on_chip_use(ops: pd.DataFrame, on_chip: dict[str, float]) -> dict[str, Floats]:
    """Utilization of each on-chip memory's peak by ops, for memories whose bytes the profile
    states.
    """
    seconds = seconds_of(ops["total"])
    return {
        level: ops[level].to_numpy(np.float64) / seconds / peak
        for level, peak in on_chip.items()
        if level in ops.columns
    }


def nearest(used: dict[str, Floats], is_known: npt.NDArray[np.bool_]) -> npt.NDArray[np.object_]:
    """The most used resource, the first of equal ones; '' if none is used or it is unknown."""
    table = np.stack(list(used.values()), axis=1)
    table = np.nan_to_num(table, nan=0.0, posinf=np.inf, neginf=-np.inf)
    resource = np.array(list(used), object)[table.argmax(axis=1)]
    return np.where(is_known & (table > 0).any(axis=1), resource, "")


def titles(activity: Activity, ops: pd.DataFrame) -> list[tuple[str, bool]]:
    """For each op the name of its program with its id, and whether the file has the program."""
    name_of: dict[tuple[int, int], str] = {}
    names = []
    columns = (ops[column].tolist() for column in ("host", "program", "module"))
    for host, ident, module in zip(*columns, strict=True):
        if (host, ident) not in name_of:
            programs = activity.programs
            name_of[host, ident] = programs.name(host, ident) if programs is not None else ""
        title = name_of[host, ident]
        is_titled = bool(title)
        if not is_titled:
            title = f"{module}({ident % (1 << 64)})" if ident else str(module)
        names.append((title, is_titled))
    return names


def described(activity: Activity, ops: pd.DataFrame) -> pd.DataFrame:
    """Texts of ops: `program` (its name with its ident), `in_file` (whether the file has it),
    `expression`, `shape`, `layout`.
    """
    rows = []
    columns = [ops[column].tolist() for column in ("host", "program", "name", "expression")]
    for (title, in_file), host, ident, name, text in zip(
        titles(activity, ops), *columns, strict=True
    ):
        program = None
        if in_file and activity.programs is not None:
            program = activity.programs.program(host, ident)
        expression, shape, layout = _written(program, name)
        if text:
            expression = text
            match = _SHAPE.match(text)
            if not shape and match:
                shape = match.group(1)
        rows.append((title, in_file, expression, shape, layout))
    return pd.DataFrame(rows, columns=["program", "in_file", "expression", "shape", "layout"])


def _written(program: Program | None, name: str) -> tuple[str, str, str]:
    """The op as XLA writes it, its shape, and the layout of that in memory; '' if the program does
    not state them.
    """
    position = None if program is None else program.index_of_name(name)
    if program is None or position is None:
        return "", "", ""
    return written(program, position)


def written(program: Program, position: int) -> tuple[str, str, str]:
    """The instruction at a position as HLO text, its shape and its layout; '' if damaged."""
    try:
        shape = program.shape(position)
        layout = "" if shape.is_tuple else shape.layout
        return hlo_text.expression(program, position), shape.short, layout
    except ReadError:
        return "", "", ""


def missing(has_device: bool) -> str:
    """Why there are no ops of compiled programs, where there are none."""
    if not has_device:
        return "This profile has no device, and no ops of a program that XLA compiled for the CPU."
    return "No ops of a compiled XLA program ran on a device in this profile."
