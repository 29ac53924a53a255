"""Time by op of compiled XLA programs: XProf's HLO stats.

A row is an op of a program. What one run of it computes and moves is stated with the event (TPUs)
or counted from the program (GPUs); rates are those of all its runs over their whole time, since an
op's bytes are those of the ops inside too.
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
        return parts.frame().head(0).assign(
            part=np.zeros(0, np.int64), **{name: np.zeros(0) for name in SUMS}
        ), 0
    if as_xprof:
        runs = runs.take(parts.xprof[runs.part])
    idle = 0 if runs is activity.cpu_ops else ops.device_idle(activity, runs.frame())
    count = np.bincount(runs.part, minlength=len(parts))
    sums = {
        "flops": parts.flops,
        "normalized": parts.normalized_flops,
        "moved": parts.bytes,
        "memory": parts.memory_bytes,
    }
    if as_xprof:
        sums["normalized"] = parts.normalized_flops + (parts.xprof_flops - parts.flops)
        sums["flops"] = parts.xprof_flops
        # What nobody knows is 0 there.
        uncounted = (
            np.isnan(sums["normalized"])
            & np.isnan(sums["memory"])
            & (parts.category == "custom-call")
        )
        sums = {
            name: np.where(uncounted, 0.0, values) * parts.xprof_runs
            for name, values in sums.items()
        }
    if not (as_xprof or _on_tpu(activity)):
        sums["memory"] = sums["moved"]
    # On a TPU main memory moved what is stated to be of it, or all where nothing is stated.
    sums["memory"] = np.where(np.isnan(sums["memory"]), sums["moved"], sums["memory"])
    sums["total"] = np.bincount(
        runs.part, (runs.end - runs.start).astype(np.float64), len(parts)
    ).astype(np.float64)
    sums["own"] = np.bincount(runs.part, runs.own.astype(np.float64), len(parts)).astype(np.float64)
    columns = {_SUM_OF.get(name, name): array for name, array in parts.arrays.items()} | sums
    if as_xprof:
        columns["runs"] = count.astype(np.float64)
    columns["part"] = np.arange(len(parts))
    rows = np.flatnonzero(parts.hlo & (count > 0))
    name, _ = pd.factorize(parts.name[rows], sort=True)
    rows = rows[np.lexsort((name, parts.program[rows], -sums["own"][rows]))]
    arrays = {
        name: pd.Index(values[rows], dtype=object) if values.dtype == object else values[rows]
        for name, values in columns.items()
    }
    return pd.DataFrame(arrays, copy=False), idle


def unknown(ops: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Of which ops of `measured` neither FLOPs nor bytes are known, as of most custom calls: what
    is said of use leaves out their time.
    """
    normalized, memory = (ops[name].to_numpy(np.float64) for name in ("normalized", "memory"))
    contains = np.isin(ops["category"].to_numpy(object), CONTAINERS)
    return np.asarray(np.isnan(normalized) & np.isnan(memory) & ~contains, np.bool_)


def _ran(activity: Activity) -> tuple[OpParts, DeviceOps]:
    """What ops ran, and their runs: `op_parts` and `device_ops`, or where no program ran on a
    device what the CPU ran.
    """
    return (
        (activity.op_parts, activity.device_ops)
        if activity.has_device
        else (activity.cpu_parts, activity.cpu_ops)
    )


def ran(activity: Activity) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same as DataFrames."""
    parts, runs = _ran(activity)
    return parts.frame(), runs.frame()


def _on_tpu(activity: Activity) -> bool:
    return bool((activity.devices["kind"] == "TPU").any())


def added(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """What `measured` found on several hosts, or groups of them, as if it had been asked for all at
    once.

    Parameters
    ----------
    found : list of DataFrame
        Each with `identity`, which with its program's ident tells an op's program from others: see
        `identities`.
    """
    every = pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)
    code = (
        every.groupby(["identity", "program", "name", "framework_op"], sort=False)
        .ngroup()
        .to_numpy(np.int64)
    )
    table = every[~pd.Series(code).duplicated()].reset_index(drop=True)
    for name in (*SUMS, *(level for level in ON_CHIP if level in every.columns)):
        # What one of them does not know nobody knows of all.
        table[name] = np.bincount(code, every[name].to_numpy(np.float64), len(table))
    # A row of a table of events is none of that of the run.
    table["part"] = -1
    return table.sort_values(
        ["own", "program", "name"], ascending=[False, True, True], kind="stable", ignore_index=True
    )


def identities(activity: Activity, table: pd.DataFrame) -> list[str]:
    """For each op what its program is known by on every host: the digest of its content.

    Of programs that are not in the file nothing tells: on devices those of one ident are taken for
    one, on CPUs, which number them by themselves, those of a host.
    """
    programs: dict[tuple[int, int], str] = {}
    for key in zip(table["host"].tolist(), table["program"].tolist(), strict=True):
        if key not in programs:
            digest = activity.programs.digest(*key) if activity.programs is not None else ""
            programs[key] = digest or (
                "" if activity.has_device else f"on {activity.hosts[key[0]]}"
            )
    return [
        programs[key] for key in zip(table["host"].tolist(), table["program"].tolist(), strict=True)
    ]


def frame(activity: Activity, measured: tuple[pd.DataFrame, int]) -> pd.DataFrame:
    """The public frame, `p.hlo.frame`, of what `measured` found."""
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
    """Rates of ops, the limit that each comes closest to, and what bounds it.

    Parameters
    ----------
    found : DataFrame
        With `total`, `flops`, `normalized`, `moved`, `memory`.
    peak_flops, peak_bytes : float
        Of a device in a second, or of what each op computes with; NaN where not known.
    on_chip : dict, optional
        The same of its memories on the chip, by the names of `nbprof.activity.given_peaks.ON_CHIP`.
    impossible : bool
        XProf's rules: rates are left in that no memory reaches, of ops that only begin a transfer
        or find it done, and the intensity is of FLOPs as of 16 bits.
    main : str
        What main memory is called where an op is bound by it.
    """
    seconds = seconds_of(measured_ops["total"])
    total_flops, total_moved, total_memory = (
        measured_ops[name].to_numpy(np.float64) for name in ("flops", "moved", "memory")
    )
    flops, normalized = (
        total_flops / seconds,
        measured_ops["normalized"].to_numpy(np.float64) / seconds,
    )
    # An asynchronous copy states its bytes of main memory where it begins or where it is done, and
    # its time is elsewhere.
    waits = np.isin(measured_ops["category"].to_numpy(object), _COPIES) & ~(total_memory > 0)
    moved, memory = total_moved / seconds, np.where(waits, total_moved, total_memory) / seconds
    if not impossible:
        far = (moved > ops.IMPOSSIBLE * peak_bytes) | (memory > ops.IMPOSSIBLE * peak_bytes)
        moved, memory = np.where(far, np.nan, moved), np.where(far, np.nan, memory)
    with np.errstate(divide="ignore", invalid="ignore"):
        used = {ops.COMPUTE: normalized / peak_flops, main: memory / peak_bytes}
    is_known = ~np.isnan(used[ops.COMPUTE]) & ~np.isnan(used[main])
    used |= {
        ON_CHIP[level]: of_chip
        for level, of_chip in on_chip_use(measured_ops, on_chip or {}).items()
    }
    near = nearest(used, is_known)
    return {
        "flops_per_second": flops,
        "normalized_flops_per_second": normalized,
        "bytes_per_second": moved,
        "memory_bytes_per_second": memory,
        # XProf's are those that the roofline is drawn with.
        "operational_intensity": measured_ops["normalized" if impossible else "flops"].to_numpy(
            np.float64
        )
        / np.where(total_moved > 0, total_moved, np.nan),
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
    table = np.nan_to_num(
        np.stack(list(used.values()), axis=1), nan=0.0, posinf=np.inf, neginf=-np.inf
    )
    nearest_level = table.argmax(axis=1)
    return np.where(
        is_known & (table > 0).any(axis=1), np.array(list(used), object)[nearest_level], ""
    )


def titles(activity: Activity, ops: pd.DataFrame) -> list[tuple[str, bool]]:
    """For each op the name of its program with its id, and whether the file has the program."""
    programs: dict[tuple[int, int], str] = {}
    names = []
    for host, ident, module in zip(
        *(ops[column].tolist() for column in ("host", "program", "module")), strict=True
    ):
        if (host, ident) not in programs:
            programs[host, ident] = (
                activity.programs.name(host, ident) if activity.programs is not None else ""
            )
        title = programs[host, ident]
        names.append(
            (title or (f"{module}({ident % (1 << 64)})" if ident else str(module)), bool(title))
        )
    return names


def described(activity: Activity, ops: pd.DataFrame) -> pd.DataFrame:
    """What ops are: `program` (its name with its ident), `in_file` (whether the file has it),
    `expression`, `shape`, `layout`.
    """
    rows = []
    columns = zip(
        *(ops[column].tolist() for column in ("host", "program", "name", "expression")),
        strict=True,
    )
    for (title, is_titled), (host, ident, name, text) in zip(
        titles(activity, ops), columns, strict=True
    ):
        program = activity.programs.program(host, ident) if is_titled else None
        expression, shape, layout = _written(program, name)
        if text:
            expression = text
            if not shape and (match := _SHAPE.match(text)):
                shape = match.group(1)
        rows.append((title, is_titled, expression, shape, layout))
    return pd.DataFrame(rows, columns=["program", "in_file", "expression", "shape", "layout"])


def _written(program: Program | None, name: str) -> tuple[str, str, str]:
    """The op as XLA writes it, the shape that it makes, and how that lies in memory; '' where the
    program does not tell.
    """
    position = None if program is None else program.place(name)
    if program is None or position is None:
        return "", "", ""
    return written(program, position)


def written(program: Program, position: int) -> tuple[str, str, str]:
    """The instruction at a place as HLO text, its shape and its layout; '' if damaged."""
    try:
        shape = program.shape(position)
        return (
            hlo_text.expression(program, position),
            shape.short,
            "" if shape.is_tuple else shape.layout,
        )
    except ReadError:
        return "", "", ""


def missing(has_device: bool) -> str:
    """Why there are no ops of compiled programs, where there are none."""
    if not has_device:
        return "This profile has no device, and no ops of a program that XLA compiled for the CPU."
    return "No ops of a compiled XLA program ran on a device in this profile."
