"""How a value of each of several hosts becomes that of the run: for `nbprof.run.lazy.of_hosts`.

Counts and sums add up; what is of a host or of its devices stands one below the other, its times
moved to the clock of the run. Shares, means and ranks are no business of this module: a frame that
has them is made of what was combined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from nbprof.analysis import costs as costs_of
from nbprof.analysis import cpu, hlo
from nbprof.analysis import kernels as kernels_of
from nbprof.analysis.advice import checks
from nbprof.analysis.device_time import use
from nbprof.analysis.input import input_pipeline
from nbprof.analysis.memory import ops as memory_ops_of
from nbprof.analysis.ops import ops as ops_of
from nbprof.analysis.ops import torch_ops as torch_ops_of
from nbprof.analysis.ranges import ranges as ranges_of
from nbprof.analysis.ranges.totals import Totals as RangeTotals
from nbprof.analysis.steps import steps as steps_of
from nbprof.core.files import join_some
from nbprof.core.trace import Note
from nbprof.run.cache.values import record
from nbprof.run.lazy import Hosts

T = TypeVar("T")
Combine = Callable[[list[T], Hosts], T]


def below(*times: str) -> Combine[pd.DataFrame]:
    """The rows of all hosts, one host below the other; `times` are the columns that are moments, in
    ms.
    """
    return lambda values, hosts: stacked(values, hosts, times)


def stacked(
    values: Sequence[pd.DataFrame], hosts: Hosts, times: Sequence[str] = ()
) -> pd.DataFrame:
    """The rows of some frames; columns that a frame lacks are missing there."""
    used = []
    for value, late in zip(values, hosts.late_ms, strict=True):
        if len(value):
            moved = (
                {column: value[column] + late for column in times if column in value}
                if late
                else {}
            )
            used.append(value.assign(**moved))
    # pandas would take the types of frames without rows into account.
    return pd.concat(used, ignore_index=True) if used else values[0]


def before(hosts: Hosts) -> list[int]:
    """How many hosts stand before each group."""
    return [sum(map(len, hosts.groups[:at])) for at in range(len(hosts.groups))]


def memories(values: Sequence[pd.DataFrame], hosts: Hosts, *times: str) -> pd.DataFrame:
    """The rows of all hosts with the name of its host in front of each allocator, as where several
    hosts are read at once.
    """
    if len(values) == 1:
        return values[0]
    named = [
        value.assign(memory_id=[f"{names[0]} {name}" for name in value["memory_id"].tolist()])
        if len(names) == 1
        else value
        for value, names in zip(values, hosts.groups, strict=True)
    ]
    return stacked(named, hosts, times)


def memory_summaries(values: Sequence[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """One row an allocator, the largest peak first."""
    first = before(hosts)
    numbered = [
        value.assign(peak_host=value["peak_host"] + at) if len(value) else value
        for at, value in zip(first, values, strict=True)
    ]
    return memories(numbered, hosts, "peak_time_ms").sort_values(
        "peak_bytes", ascending=False, kind="stable", ignore_index=True
    )


def chained(values: list[list[Any]], _hosts: Hosts) -> list[Any]:
    """Lists one behind the other."""
    return [item for value in values for item in value]


def added(values: list[T], combine: Callable[[list[T]], T]) -> T:
    """What `combine` makes of the values; that of the only host as it is."""
    return values[0] if len(values) == 1 else combine(values)


def by(combine: Callable[[list[T]], T]) -> Combine[T]:
    """A function of the values alone, which gets the clocks and names of hosts out of them if it
    needs them.
    """
    return lambda values, _hosts: added(values, combine)


def folded(
    notes: Sequence[Sequence[Note]],
    groups: Sequence[Sequence[str]],
    files: Sequence[Sequence[str]] = (),
) -> list[Note]:
    """The notes of several groups of hosts: what all of them say is said once, what some say names
    them.

    `files` are what the files of each group are called: a note that begins with one is of its host
    alone.
    """
    by_note: dict[tuple[str, str], list[str]] = {}
    for names, of_group, own in zip(groups, notes, files or [()] * len(groups), strict=True):
        said: dict[tuple[str, str], dict[str, None]] = {}
        for note in of_group:
            text, of = note.text, list(names)
            at = (
                next((at for at, name in enumerate(own) if text.startswith(f"{name}: ")), None)
                if len(own) == len(names)
                else None
            )
            if at is not None and len(names) > 1:
                text, of = text.removeprefix(f"{own[at]}: "), [names[at]]
            # Of one host its own name does not make a note another one.
            text = text.replace(of[0], _HERE) if len(of) == 1 else text
            said.setdefault((note.level, text), {}).update(dict.fromkeys(of))
        for key, of_note in said.items():
            by_note.setdefault(key, []).extend(of_note)
    whole = sum(map(len, groups))
    out = []
    for (level, text), names in by_note.items():
        named = text.replace(_HERE, names[0] if len(names) == 1 else "this host")
        if len(names) < whole:
            where = "" if _HERE in text and len(names) == 1 else f"{join_some(names, 3)}: "
        else:
            # A figure in it is that of one of them.
            what = "hosts" if len(groups) == whole else "groups of hosts"
            where = (
                f"Each of {len(groups):,} {what}: "
                if len(groups) > 1 and re.search(r"\d", text)
                else ""
            )
        out.append(Note("warning" if level == "warning" else "info", where + named))
    return out


_HERE = "\0"

MeasuredSteps = tuple[pd.DataFrame, bool, list[float]]
"""The steps as each host recorded them, whether it compiled, and busy shares of devices."""
InSteps = tuple[list[ops_of.Side], pd.DataFrame]

record(ops_of.Side)
record(RangeTotals)


def measured_steps(values: list[MeasuredSteps], hosts: Hosts) -> MeasuredSteps:
    """The steps of all hosts."""
    frames, compiled, busy = zip(*values, strict=True)
    return (
        stacked(frames, hosts, ["start_ms"]),
        any(compiled),
        [share for of_host in busy for share in of_host],
    )


def cpu_totals(values: list[cpu.Totals | None], _hosts: Hosts) -> cpu.Totals | None:
    """What host compute of all hosts consists of."""
    return cpu.added(values)


def ranges(values: list[RangeTotals], _hosts: Hosts) -> RangeTotals:
    """Time in ranges of the program, over the steps of all hosts."""
    return added(values, ranges_of.added)


def widths(values: list[steps_of.ByWidth | None], _hosts: Hosts) -> steps_of.ByWidth | None:
    """The compute of all hosts by width."""
    known = [width for width in values if width is not None]
    # Where one host does not say how wide its numbers are, the share of all is not known.
    return (
        (sum(w[0] for w in known), sum(w[1] for w in known), sum(w[2] for w in known))
        if len(known) == len(values)
        else None
    )


def sums_in_steps(values: list[InSteps], _hosts: Hosts) -> InSteps:
    """Ops and kernels of all hosts, without what was launched before the recording began."""
    return added([sums for sums, _ in values], ops_of.added), added(
        [frame for _, frame in values], kernels_of.added
    )


def _eager(values: list[dict[str, tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    return {
        side: (sum(v[side][0] for v in values), sum(v[side][1] for v in values))
        for side in values[0]
    }


def _enqueued(values: list[input_pipeline.Enqueued]) -> input_pipeline.Enqueued:
    return sum(v[0] for v in values), sum(v[1] for v in values), any(v[2] for v in values)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def nowhere(values: list[pd.DataFrame], _hosts: Hosts) -> pd.DataFrame:
    """Nothing: a place in the trace of one host is none in that of the run."""
    return values[0].head(0)


def of_devices(values: list[dict[str, pd.DataFrame]], hosts: Hosts) -> dict[str, pd.DataFrame]:
    """The frames of device time, each of them with the rows of every host; the critical path is
    that of the first host that has one.
    """
    out = {
        name: stacked([value[name] for value in values], hosts, ["start_ms"])
        for name in values[0]
        if name != "device_critical_path"
    }
    paths = [value["device_critical_path"] for value in values]
    out["device_critical_path"] = next((path for path in paths if len(path)), paths[0])
    # A place in the trace of a host is none in that of the run.
    return {
        name: frame.assign(**{key: np.nan for key in ("_at_ms", "_for_ms") if key in frame})
        for name, frame in out.items()
    }


def recorded(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """What each host recorded, times in ps."""
    late = [round(late * 1e9) for late in hosts.late_ms]
    times = ["begin", "start", "end"]
    return stacked(
        [
            value.assign(**{key: value[key] + ps for key in times})
            for value, ps in zip(values, late, strict=True)
        ],
        hosts,
    )


def calls(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """Collectives of all hosts, times in ps."""
    late = [round(late * 1e9) for late in hosts.late_ms]
    moved = [
        value.assign(start=value["start"] + ps, end=value["end"] + ps)
        for value, ps in zip(values, late, strict=True)
    ]
    return stacked(moved, hosts)


def pipelines(
    values: list[tuple[pd.DataFrame, ...]], hosts: Hosts
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Pipelines of tf.data of all hosts, the slowest first, with their iterators and calls."""
    first, nodes, listed, slowest = (
        stacked(frames, hosts, ["start_ms"]) for frames in zip(*values, strict=True)
    )
    if "max_us" in first:
        first = first.sort_values("max_us", ascending=False, kind="stable", ignore_index=True)
    return first, nodes, listed, slowest


def findings(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """What most hosts should change: of each finding the one with the median gain, which says on
    how many hosts it was made.
    """
    rows = pd.concat(
        [value.assign(_host=number) for number, value in enumerate(values)], ignore_index=True
    )
    parts = []
    for _, mine in rows.groupby("rule", sort=False):
        if 2 * len(mine) <= len(values):
            continue
        middle = mine.sort_values("gain_ms_per_step", kind="stable").iloc[[(len(mine) - 1) // 2]]
        which = join_some(hosts.groups[int(middle["_host"].iloc[0])], 1)
        about = f" (Of {which}; found on {len(mine):,} of {len(values):,} hosts examined.)"
        parts.append(middle.assign(evidence=middle["evidence"] + about))
    if not parts:
        return values[0].head(0)
    out = pd.concat(parts, ignore_index=True).drop(columns="_host")
    return out.sort_values("gain_ms_per_step", ascending=False, kind="stable", ignore_index=True)


Told = tuple[list[Note], int, int, list[Note], int]
"""Notes on the events; host ops that overlap, and all; notes on memory; steps that were cut off."""


def told(values: list[Told], hosts: Hosts) -> Told:
    """What the receipt says of all hosts."""
    about, tangled, total, memory, cut = zip(*values, strict=True)
    return (
        folded(about, hosts.groups),
        sum(tangled),
        sum(total),
        folded(memory, hosts.groups),
        sum(cut),
    )


def memory_ops(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """The ops of each allocator, the largest increase first."""
    return memory_ops_of.in_order(memories(values, hosts))


OpsOfPrograms = tuple[pd.DataFrame, int, bool]
"""Ops of compiled programs, the time in ps in which devices ran none, and whether there are
devices.
"""


def ops_of_programs(values: list[OpsOfPrograms], hosts: Hosts) -> OpsOfPrograms:
    """Each op once that several hosts ran of the same program, with the sums of all of them."""
    has_device = any(device for _, _, device in values)
    # What ran on CPUs is left out where there are devices.
    told = [
        (found, idle, at)
        for (found, idle, device), at in zip(values, before(hosts), strict=True)
        if device == has_device
    ]
    frames = [found.assign(host=found["host"] + at) for found, _, at in told]
    return hlo.added(frames), sum(idle for _, idle, _ in told), has_device


def sums_of_steps(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """What the ops of each step computed and moved, in the order of the steps of the run."""
    # A memory that the ops of a host do not name is one to which they moved nothing.
    sums = stacked(values, hosts, ["start_ms"]).fillna(0.0)
    return sums.sort_values(["start_ms", "host"], kind="stable", ignore_index=True)


def listed(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """The compiled programs of all hosts, with the numbers that the hosts have in the run."""
    return stacked(
        [
            value.assign(host=value["host"] + at)
            for value, at in zip(values, before(hosts), strict=True)
        ],
        hosts,
    )


MOST_BYTES_OF_PROGRAMS = 2**28


def homes(programs: pd.DataFrame) -> list[int]:
    """The numbers of the hosts that are the first with a program, as many as have 256 MiB of
    programs; at least one where there is one.
    """
    of_host = programs.drop_duplicates("digest").groupby("host")["bytes"].sum()
    return [
        int(host)
        for host in of_host.index[
            (of_host.cumsum() <= MOST_BYTES_OF_PROGRAMS) | (of_host.index == of_host.index.min())
        ]
    ]


def united(values: list[dict[str, Any]]) -> dict[str, Any]:
    """What any of some dicts has."""
    return {key: item for value in values for key, item in value.items()}


op_sums = by(ops_of.added)
host_us = by(ops_of.added_host_us)
eager = by(_eager)
kernels = by(kernels_of.added)
input_ops = by(input_pipeline.added)
enqueued = by(_enqueued)
torch_ops = by(torch_ops_of.added)
torch_modules = by(torch_ops_of.added_modules)
functions = by(checks.added_functions)
costs = by(use.added)
costed = by(costs_of.added)
mean_of_known = by(_mean)
