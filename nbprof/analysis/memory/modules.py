"""The compiled programs of a profile, the memory of each, and the selection of one by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.figures import sum_of_known
from nbprof.analysis.memory import viewer as memory_viewer
from nbprof.core.errors import NbprofError, ReadError
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Module
from nbprof.hlo import buffers as hlo_buffers
from nbprof.hlo.buffers import Assignment
from nbprof.hlo.hlo import Program
from nbprof.schema import frames

NO_ASSIGNMENT = "no buffer assignment"
NOT_READ = "not read, because there are too many programs; open its host separately"
NO_CAPACITY = "The memory of the device is unknown."
_MOST_NAMED = 5
_COLUMNS = ("argument_bytes", "output_bytes", "constant_bytes", "temporary_bytes")
_PARTS = (
    memory_viewer.PARAMETER,
    memory_viewer.OUTPUT,
    memory_viewer.CONSTANT,
    memory_viewer.TEMPORARY,
)


class NoModuleError(NbprofError, KeyError):
    """No compiled program, or several, have the name."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass
class Named:
    """A compiled program under a unique name, and the machines that recorded it."""

    name: str
    module: Module
    hosts: list[str] = field(default_factory=list)


def named(modules: Iterable[Module], hosts: list[str]) -> dict[str, Named]:
    """The compiled programs of a trace by name.

    A program that several machines recorded is there once. Different ones of the same name, as
    machines with programs of their own have, are told apart by the machine that is the first with
    it: `jit_step(8) on host1`.
    """
    by_name: dict[str, Named] = {}
    variants: dict[tuple[str, bytes], Named] = {}
    for module in modules:
        host = hosts[module.host] if 0 <= module.host < len(hosts) else str(module.host)
        twins = variants.get((module.title, module.data))
        if twins is None:
            name, number = module.title, 1
            while name in by_name:
                name = f"{module.title} on {host}" + (f" ({number})" if number > 1 else "")
                number += 1
            twins = by_name[name] = variants[module.title, module.data] = Named(name, module)
        twins.hosts.append(host)
    return by_name


def choose(name: str, candidates: Iterable[str]) -> str:
    """The full name of a program, given that name or, if unique, the part before its id.

    Raises
    ------
    NoModuleError
        None has the name, or several have; says which there are.
    """
    names = list(candidates)
    if name in names:
        return name
    if (plain := str(name).removesuffix("(0)")) in names:
        # With the number that the name is shown without.
        return plain
    fitting = [full for full in names if full.partition("(")[0] == name]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise NoModuleError(
            f"{len(fitting)} compiled programs are named {name!r}; choose one of {_listed(fitting)}"
        )
    if not names:
        raise NoModuleError(f"no compiled program {name!r}: this profile has no compiled programs")
    names_of_base: dict[str, list[str]] = {}
    for full in names:
        names_of_base.setdefault(full.partition("(")[0], []).append(full)
    base = str(name).partition("(")[0]
    near: list[str] = []
    for close in difflib.get_close_matches(base, sorted(names_of_base), _MOST_NAMED, 0.5):
        near += names_of_base[close]
    hint = f"did you mean {_listed(near)}?" if near else f"it has {_listed(names)}"
    raise NoModuleError(f"no compiled program {str(name)[:80]!r} in this profile; {hint}")


def _listed(names: list[str]) -> str:
    text, more = ", ".join(names[:_MOST_NAMED]), len(names) - _MOST_NAMED
    return f"{text} and {more:,} more" if more > 0 else text


def frame(
    modules: Mapping[str, Named],
    times: Mapping[tuple[str, int], float],
    capacity: int | None = None,
) -> pd.DataFrame:
    """One row per compiled program, the largest peak first; those with unknown memory last.

    Parameters
    ----------
    modules : mapping
        As `named` gives it.
    times : mapping
        Time of the ops of a program on devices in ms, by (machine, ident).
    capacity : int, optional
        Bytes of a device.
    """
    rows = [_row(module, times, capacity) for module in modules.values()]
    table = frames.typed(
        "memory_viewer.modules", pd.DataFrame(rows, columns=frames.names("memory_viewer.modules"))
    )
    return table.sort_values(
        "peak_bytes", ascending=False, kind="stable", na_position="last"
    ).reset_index(drop=True)


def _row(
    module: Named, times: Mapping[tuple[str, int], float], capacity: int | None
) -> tuple[object, ...]:
    note = ""
    instructions: object = pd.NA
    peak: Any = pd.NA
    figures: tuple[Any, ...] = (pd.NA,) * 6
    batch: tuple[Any, ...] = (pd.NA, pd.NA, "")
    try:
        program = Program(module.module.data)
        instructions = len(program)
        assignment = hlo_buffers.read(program)
        if assignment is None:
            note = NO_ASSIGNMENT
        else:
            seen = memory_viewer.view(program, 0, assignment)
            peak = seen.peak_bytes
            parts = [seen.bytes_at_peak(category) for category in _PARTS]
            figures = (seen.peak_unpadded_bytes, *parts, seen.total_bytes)
            batch = _batch(program, assignment, seen.peak_bytes, capacity)
    except ReadError as error:
        note = f"damaged: {error}" if module.module.read else NOT_READ
    time = sum_of_known(times.get((host, module.module.ident), nan) for host in module.hosts)
    spare: Any = pd.NA
    if capacity is not None and not pd.isna(peak):
        spare = capacity - peak
    # A program that ran has fitted: what is stated of the device is less than it has.
    of_device: tuple[Any, Any] = (pd.NA, pd.NA)
    if not pd.isna(spare) and (spare >= 0 or isnan(time)):
        of_device = (capacity, spare)
    elif note == "":
        batch = (batch[0], pd.NA, NO_CAPACITY)
    return (
        module.name,
        module.module.ident,
        module.hosts[0],
        len(module.hosts),
        instructions,
        peak,
        *figures,
        *of_device,
        *batch,
        time,
        note,
    )


def _batch(
    program: Program, assignment: Assignment, peak: int, capacity: int | None
) -> tuple[Any, ...]:
    """Batch, largest batch and note of a program."""
    if capacity is None:
        return pd.NA, pd.NA, NO_CAPACITY
    from nbprof.analysis.memory.largest_batch import largest_batch

    return largest_batch(program, assignment, peak, capacity)


def roles(modules: pd.DataFrame) -> pd.DataFrame:
    """Memory by role at the peak of each compiled program, as the compiler planned it: the columns
    of `p.memory.roles`, in the order of `modules`, most first.
    """
    from nbprof.core.memory_roles import OF_PROGRAMS

    planned = modules[modules["peak_bytes"].notna()].reset_index(drop=True)
    parts = []
    for role, column in zip(OF_PROGRAMS, _COLUMNS, strict=True):
        sizes = planned[column].astype("int64")
        percent = 100 * sizes / planned["peak_bytes"].astype("int64").clip(lower=1)
        part = {"memory_id": planned["module"], "role": role, "bytes": sizes, "percent": percent}
        parts.append(pd.DataFrame(part))
    rows = pd.concat(parts).assign(blocks=np.nan)
    order = np.lexsort((-rows["bytes"].to_numpy(np.int64), rows.index.to_numpy(np.int64)))
    rows = rows.iloc[order]
    return frames.typed("memory.roles", rows[rows["bytes"] > 0].reset_index(drop=True))


def device_bytes(devices: pd.DataFrame, allocators: pd.DataFrame) -> int | None:
    """Memory of a device, the smallest if they differ; None if it is unknown.

    As the devices state it, else by their names, else what their allocator may use.

    Parameters
    ----------
    devices : DataFrame
        `Run.devices`.
    allocators : DataFrame
        The rows of `p.memory.summary` that are of devices.
    """
    from nbprof.dialects import device_peaks

    sizes = devices["memory_bytes"]
    if not len(sizes) or sizes.isna().any():
        named = [device_peaks.capacity_bytes(str(name)) for name in devices["name"]]
        sizes = pd.Series(named, dtype="float64")
    if not len(sizes) or sizes.isna().any():
        sizes = allocators["capacity_bytes"]
    if not len(sizes) or sizes.isna().any():
        return None
    smallest = int(sizes.min())
    if smallest <= 0:
        return None
    return smallest


def times(activity: Activity) -> pd.DataFrame:
    """Time of the ops of each compiled program on devices, without the ops inside: `host program
    ms`; `program` is its ident.
    """
    ops, parts = activity.device_ops, activity.op_parts
    rows = np.flatnonzero(ops.part >= 0) if len(parts) else np.zeros(0, np.int64)
    # First by part: of a million runs there are a few hundred.
    first, part_run = unique_rows(ops.host[rows].astype(np.int64), ops.part[rows].astype(np.int64))
    self_ps = np.zeros(len(first), np.int64)
    np.add.at(self_ps, part_run, ops.own[rows])
    part = ops.part[rows[first]]
    by_part = pd.DataFrame(
        {"host": ops.host[rows[first]], "program": parts.program[part], "own": self_ps}
    )
    spent = by_part[by_part["program"] != 0].groupby(["host", "program"])["own"].sum()
    return pd.DataFrame(
        {
            "host": np.array(activity.hosts, object)[spent.index.get_level_values("host")],
            "program": spent.index.get_level_values("program"),
            "ms": spent.to_numpy() / 1e9,
        }
    )
