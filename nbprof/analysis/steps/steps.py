"""Step time and where it goes: the step breakdown of TensorFlow Profiler.

Every span of work has a class with a priority. Where spans of one step overlap the larger priority
wins, so that each instant counts once; what no span covers is `other`. Host work is merged into the
steps of GPU profiles, as the TensorFlow guide describes. (XProf today leaves it out when there is a
device, and drops the first and the last step.)
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import (
    CATEGORIES,
    CATEGORY_OF_CLASS,
    DEVICE_COMPUTE,
    DEVICE_COMPUTE_16,
    DEVICE_COMPUTE_32,
    HOST_COMPILE,
    HOST_COMPUTE,
    HOST_TO_DEVICE,
    HOST_WAIT_DEVICE,
    ITERATIONS,
    LOST_KERNELS,
    SERVING,
    TRACED,
    UNKNOWN_COPIES,
    UNKNOWN_PRECISION,
    Activity,
    text_column,
)
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.steps.warmup import averaged, crowded, number_between, starting, warming
from nbprof.analysis.sweep import Classes, flatten
from nbprof.core import clip_to_steps
from nbprof.core.factorize import unique_rows
from nbprof.core.intervals import end_to_end, ends_before, extents, index_by_group, union_by_group
from nbprof.core.trace import Int64s
from nbprof.frameworks.register import JAX

_MOST_GROUPS = 1 << 22
# The kind and the number of a step: "train 500", "ProfilerStep#6".
NUMBERED = r"(.*)[ #](\d+)\Z"
_NUMBERED = re.compile(NUMBERED)

_EAGER_OP = "EagerKernelExecute"

_COLUMN_OF_CLASS = np.zeros(max(CATEGORY_OF_CLASS) + 1, np.int64)
for _cls, _category in CATEGORY_OF_CLASS.items():
    _COLUMN_OF_CLASS[_cls] = CATEGORIES.index(_category)


COMPUTE = (DEVICE_COMPUTE_32, DEVICE_COMPUTE, DEVICE_COMPUTE_16)
ByWidth = tuple[int, int, int]
"""Device compute in 16 bit, in 32 bit, and in kernels that do not say, ps."""
_UNKNOWN_WIDTH = 0.05

_OF_DEVICE = (
    "device_compute_ms",
    "device_to_device_ms",
    "device_collectives_ms",
    "kernel_launch_ms",
    "output_ms",
    "host_to_device_ms",
)
_OF_HOST = ("host_compute_ms", "kernel_launch_ms")
_OF_COPIES = ("device_to_device_ms", "output_ms", "host_to_device_ms")


def frame(
    activity: Activity, work: pd.DataFrame | None = None, warmup: int | None = None
) -> pd.DataFrame:
    """One row per step of each host, in time order, in ms; the columns of `p.steps.frame`.

    `work` is classified in another way than `activity.work`, when given. `warmup` is how many of
    the first steps of each host are warm-up, unless that leaves none; None finds them by their
    length.
    """
    return numbered(measured(activity, work), warmup, activity.traits)


def measured(activity: Activity, work: pd.DataFrame | None = None) -> tuple[pd.DataFrame, bool]:
    """The steps of each host as its recording alone has them, and whether anything was compiled:
    what `numbered` is given.
    """
    work = activity.work.frame() if work is None else work
    parts = [
        part
        for host in range(len(activity.hosts))
        if len(part := _host_steps(activity, work, host))
    ]
    if not parts:
        return pd.DataFrame(), False
    table = pd.concat(parts, ignore_index=True)
    host = table["host"].map({h: i for i, h in enumerate(activity.hosts)})
    for column, steps in (
        ("cut", activity.cut),
        ("lost", activity.lost),
        ("waited", activity.waited),
    ):
        table[column] = [pair in steps for pair in zip(host, table["group"], strict=True)]
    if activity.batches:
        table["batches"] = [
            activity.batches.get(pair, 0) for pair in zip(host, table["group"], strict=True)
        ]
    table["traces"] = _trace_anew(activity, table, host)
    return pd.concat([table, _copied(activity, work, host, table["group"])], axis=1), bool(
        (work["cls"] == HOST_COMPILE).any()
    )


def numbered(
    measured_steps: tuple[pd.DataFrame, bool], warmup: int | None, traits: set[str]
) -> pd.DataFrame:
    """The steps of all hosts in time order, with their numbers and kinds, and which of them
    averages use: see `frame`.

    `traits` are those of the activity, as steps that are iterations of something warm up in another
    way, or not at all.
    """
    times = ["start_ms", "step_time_ms", *(f"{c}_ms" for c in CATEGORIES)]
    columns = [
        "host",
        "step",
        "name",
        *times,
        "kind",
        "warmup",
        "cut",
        "lost",
        "counted",
        "host_to_device_ms",
        "waiting_ms",
    ]
    table, compiled = measured_steps
    if not len(table):
        return pd.DataFrame(columns=[*columns, "group"])
    if not compiled:
        table = table.assign(compile_ms=np.nan)
    table = table.sort_values(["start_ms", "host"], kind="stable", ignore_index=True)
    host, _ = pd.factorize(table["host"])
    stated_numbers, step = table["step"].to_numpy(np.float64), np.zeros(len(table), np.int64)
    for number in range(int(host.max()) + 1):
        rows = np.flatnonzero(host == number)
        step[rows] = number_between(stated_numbers[rows])
    # Training, validation and prediction are populations of their own: one of them is averaged.
    names = table["name"].tolist()
    kinds = _kinds(names)
    # The recorder calls a group that states no number by its own: the step has the name that its
    # neighbours give it.
    for row, group in enumerate(table["group"].tolist()):
        if names[row] == str(group):
            names[row] = f"{kinds[row]} {step[row]}".lstrip()
    table = table.assign(step=step, kind=kinds, name=names)
    # Of a step that is incomplete, or holds the batches of several, the length says nothing.
    odd = table["cut"] | table["lost"] | crowded(table)
    if warmup is None and SERVING in traits:
        # How long they take depends on the requests; an engine is warm before it serves any.
        table["warmup"] = False
    else:
        table["warmup"] = (
            warming(table.assign(cut=odd), warmup)
            if warmup is not None or ITERATIONS not in traits
            else starting(table)
        )
    # A rank that the others wait for at the start is in no hurry in its own step: of all ranks that
    # step is warm-up.
    if table["waited"].any():
        nth = table.groupby("host", sort=False).cumcount()
        waited = nth.isin(nth[table["waited"]])
        if not (table["warmup"] | waited).all():
            table["warmup"] |= waited
    # What an evaluation compiles at its begin does not make it what the run is about.
    at_work = table["step_time_ms"] - table["compile_ms"].fillna(0.0)
    main = averaged(at_work[~table["warmup"]].groupby(table["kind"]).sum())
    used = ~table["warmup"] & (table["kind"] == main)
    # A profile of nothing but incomplete steps still has an average.
    complete = used & ~odd
    table["counted"] = complete if complete.any() else used
    return table[
        [
            *columns,
            *(column for column in (*COPIED.values(), "batches") if column in table),
            "group",
        ]
    ]


def _kinds(names: list[str]) -> list[str]:
    """The kind of each step by its name; of a step without one that of the step before it, or of
    the next.
    """
    kinds: list[str] = []
    for name in names:
        match = _NUMBERED.search(name)
        kinds.append((match[1] if match else "") or (kinds[-1] if kinds else ""))
    first = next((kind for kind in kinds if kind), "")
    return [kind or first for kind in kinds]


def _trace_anew(activity: Activity, steps: pd.DataFrame, host: pd.Series) -> npt.NDArray[np.bool_]:
    """In which steps TensorFlow traces a function that was not traced before, as in the first step
    of each training.
    """
    flags = np.zeros(len(steps), np.bool_)
    calls = activity.functions.frame()
    if not len(calls):
        return flags
    traced = [
        code
        for code in calls["mode"].unique().tolist()
        if str(activity.texts.values[code]).startswith(TRACED)
    ]
    calls = calls[calls["mode"].isin(traced) & (calls["tracings"] == 1)]
    start, of_host = (calls[name].to_numpy(np.int64) for name in ("start", "host"))
    step = index_by_group(step_bounds(steps), host.to_numpy(np.int64), start, of_host)
    flags[step[step >= 0]] = True
    return flags


# By kind of transfer; the columns are there where the sizes of copies are known.
COPIED = {
    "H2D": "host_to_device_bytes",
    "D2H": "device_to_host_bytes",
    "D2D": "device_to_device_bytes",
}


def _copied(
    activity: Activity, work: pd.DataFrame, host: pd.Series, group: pd.Series
) -> pd.DataFrame:
    """Bytes copied for each step, by direction; the steps are given by host and group. No columns
    where no size is known.
    """
    transfers = activity.transfers
    moved, event, size, of_host = transfers.kind, transfers.event, transfers.bytes, transfers.host
    is_known = np.flatnonzero(size >= 0)
    if not len(is_known):
        return pd.DataFrame(index=host.index)
    # What runs over the end of a step has a piece in each; it counts for the first.
    spans = np.flatnonzero(np.isin(work["event"].to_numpy(), event[is_known]))
    events, first = np.unique(work["event"].to_numpy()[spans], return_index=True)
    index = np.searchsorted(events, event[is_known])
    in_work = np.append(events, -1)[index] == event[is_known]
    is_known, index = is_known[in_work], index[in_work]
    in_group = work["group"].to_numpy()[spans[first[index]]]
    both = ((host, of_host[is_known]), (group, in_group))
    rows, code = unique_rows(
        *(np.concatenate([np.asarray(part, np.int64) for part in parts]) for parts in both)
    )
    kinds = activity.texts.values[moved[is_known]]
    columns = {}
    for kind, column in COPIED.items():
        total = np.zeros(len(rows), np.int64)
        np.add.at(total, code[len(host) :][kinds == kind], size[is_known][kinds == kind])
        columns[column] = total[code[: len(host)]]
    return pd.DataFrame(columns, index=host.index)


def by_core(activity: Activity) -> pd.DataFrame:
    """The steps of each TPU core of hosts that have several: as `frame`, with `device`; only steps
    that all cores of a host have.
    """
    hosts = range(len(activity.hosts))
    parts = [
        part
        for host in hosts
        if len(part := _own_steps(activity, host)) and part["device"].nunique() > 1
    ]
    return (
        pd.concat(parts, ignore_index=True)
        if parts
        else pd.DataFrame(columns=["host", "device", "group"])
    )


def _own_steps(activity: Activity, host: int) -> pd.DataFrame:
    """The steps of each core of a host, by its own markers where it has such."""
    marked = activity.core_markers.frame()
    host_markers = marked[marked["host"] == host] if len(marked) else marked
    if not len(host_markers):
        core_steps = _core_steps(activity, activity.work.frame(), host)
        return _named(activity, core_steps, host) if len(core_steps) else core_steps
    parts = []
    work = _united(activity.work.frame(), host)
    device = work["device"].to_numpy()
    for core, markers in host_markers.groupby("device"):
        in_time = markers.sort_values("start", kind="stable")
        begin, end, group = (in_time[name].to_numpy(np.int64) for name in ("start", "end", "group"))
        marked = clip_to_steps.cut(
            work, begin, end, group, np.flatnonzero((device < 0) | (device == core))
        )
        times = longest(markers).reset_index()
        parts.append(_steps_of(activity, marked, host, int(str(core)), times).assign(device=core))
    return _named(activity, _on_all(parts), host)


def _named(activity: Activity, steps: pd.DataFrame, host: int) -> pd.DataFrame:
    """Steps of a host with what its groups are called, and their numbers; those of several cores
    have equal groups.
    """
    group_code, group = pd.factorize(steps["group"])
    names = [activity.group_names.get((host, g), str(g)) for g in group.tolist()]
    numbers = [float(match.group(2)) if (match := _NUMBERED.match(n)) else np.nan for n in names]
    steps.insert(1, "step", np.array(numbers, np.float64)[group_code])
    steps.insert(
        2, "name", pd.Series(text_column(np.array(names, object), group_code), steps.index)
    )
    return steps


def edges(activity: Activity, steps: pd.DataFrame) -> int:
    """The number of marked steps at the start or end of a recording excluded from the frame, as no
    compute was recorded in them.
    """
    marked = sum(len(step_times(activity, host)) for host in range(len(activity.hosts)))
    return marked - len(steps)


def _host_steps(activity: Activity, work: pd.DataFrame, host: int) -> pd.DataFrame:
    cores = _core_steps(activity, work, host)
    if len(cores):
        # The step of a host lasts as long as that of its slowest core, and goes where that one's
        # goes.
        longest_of_each = (
            cores.loc[cores.groupby("group")["step_time_ms"].idxmax()]
            .drop(columns="device")
            .reset_index(drop=True)
        )
        return _named(activity, longest_of_each, host)
    return _named(activity, _steps_of(activity, work, host), host)


def _core_steps(activity: Activity, work: pd.DataFrame, host: int) -> pd.DataFrame:
    """The steps of the TPU cores of a host, by core; of each those groups that all cores have.
    Empty for a host without TPU.
    """
    cores = tensor_cores(activity, host)
    if not cores:
        return pd.DataFrame()
    markers = activity.markers.frame()
    marked = set(markers.loc[markers["host"] == host, "device"].tolist())
    host_work = _united(work, host)
    parts = [
        _steps_of(activity, host_work, host, core).assign(device=core)
        for core in cores
        if core in marked
    ]
    return _on_all(parts)


def _united(work: pd.DataFrame, host: int) -> pd.DataFrame:
    """The work of a host, that of its threads as the union by class and step: each core is swept
    with few intervals.
    """
    of_host, device = work["host"].to_numpy() == host, work["device"].to_numpy()
    rows, on_devices = (
        np.flatnonzero(of_host & (device < 0)),
        np.flatnonzero(of_host & (device >= 0)),
    )
    start, end, group, cls = (
        work[name].to_numpy()[rows] for name in ("start", "end", "group", "cls")
    )
    first, code = unique_rows(group, cls)
    # Touching intervals are merged: of one class in one step, they count alike.
    covered = union_by_group(code, start, end)
    row = first[covered.group]
    threads = {"group": group[row], "start": covered.start, "end": covered.end, "cls": cls[row]}
    columns = {
        name: np.concatenate([values, work[name].to_numpy()[on_devices]])
        for name, values in threads.items()
    }
    columns["device"] = np.concatenate([np.full(len(row), -1, np.int32), device[on_devices]])
    return pd.DataFrame(
        {"host": np.full(len(row) + len(on_devices), host, np.int32), **columns}, copy=False
    )


def tensor_cores(activity: Activity, host: int) -> list[int]:
    """The TPU cores of a host."""
    devices = activity.devices
    tpus = np.flatnonzero(devices["kind"].to_numpy(object) == "TPU")
    if not len(tpus):
        return []
    cores: list[int] = (
        devices["device"]
        .to_numpy()[tpus[devices["host"].to_numpy(object)[tpus] == activity.hosts[host]]]
        .tolist()
    )
    return cores


def _on_all(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """The steps that all cores have."""
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    return table[table.groupby("group")["group"].transform("count") == len(parts)].reset_index(
        drop=True
    )


def _steps_of(
    activity: Activity,
    work: pd.DataFrame,
    host: int,
    core: int | None = None,
    times: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The steps of a host, or of one core and the host; `times` says when they were, where the
    markers do not.
    """
    times = step_times(activity, host, core) if times is None else times
    group, begin, stop = (times[c].to_numpy(np.int64) for c in ("group", "start", "end"))
    device = work["device"].to_numpy()
    used = work["host"].to_numpy() == host
    if core is not None:
        used &= (device < 0) | (device == core)
    step, rows = step_of_spans(group, work["group"].to_numpy(), used)
    cls, device = work["cls"].to_numpy()[rows], device[rows]
    index, length, c = segments(
        begin, stop, step, work["start"].to_numpy()[rows], work["end"].to_numpy()[rows], cls
    )
    total = by_category(len(group), stop - begin, index, length, c)
    copied = np.zeros(len(group), np.int64)
    inward = c == HOST_TO_DEVICE
    np.add.at(copied, index[inward], length[inward])
    marks = activity.markers.device[activity.markers.host == host]
    on_device = bool((marks >= 0).any())
    # A first or last step without any compute is only the edge of one: it was cut by the start or
    # the end of the capture. Where hosts mark the steps of devices (PyTorch) and run ahead of them,
    # a step may have nothing but device work.
    compute = np.isin(cls, COMPUTE) if on_device else (cls == HOST_COMPUTE) | (device >= 0)
    is_complete = np.zeros(len(group), np.bool_)
    is_complete[step[compute]] = True
    if is_complete.any():
        in_time = np.argsort(begin, kind="stable")
        complete_rows = np.flatnonzero(is_complete[in_time])
        is_complete[in_time[complete_rows[0] : complete_rows[-1] + 1]] = True
    else:
        is_complete[:] = True
    spent: dict[str, npt.NDArray[np.float64]] = {
        f"{c}_ms": total[:, i] / 1e9 for i, c in enumerate(CATEGORIES)
    }
    spent["host_to_device_ms"] = copied / 1e9
    waiting = np.zeros(len(group), np.int64)
    np.add.at(waiting, index[c == HOST_WAIT_DEVICE], length[c == HOST_WAIT_DEVICE])
    # Which calls wait is known only where calls into a device's runtime were recorded.
    called = bool((activity.calls.host == host).any())
    # Without its kernels, a device that works looks like one that runs nothing.
    known_waits = (
        bool((cls == HOST_WAIT_DEVICE).any()) or called
    ) and LOST_KERNELS not in activity.traits
    spent["waiting_ms"] = waiting / 1e9 if known_waits else np.full(len(group), np.nan)
    # What was not recorded was not measured, which is not the same as 0.
    recorded = on_device or bool((activity.device_extents.host == host).any())
    silent: tuple[str, ...] = () if recorded else _OF_DEVICE
    silent += () if (marks < 0).any() or (device < 0).any() else _OF_HOST
    silent += _OF_COPIES if UNKNOWN_COPIES in activity.traits else ()
    if not activity.host_has_ops(host):
        # Calls of a device's runtime are all that is known of the host: that is not what it
        # computed, but time without a known cause.
        silent += ("kernel_launch_ms",) if not called else ()
        spent["other_ms"] = spent["other_ms"] + spent["host_compute_ms"]
        spent["host_compute_ms"] = np.full(len(group), np.nan)
    spent |= {
        column: np.full(len(group), np.nan) for column in silent if not np.nansum(spent[column])
    }
    return pd.DataFrame(
        {
            "host": activity.hosts[host],
            "start_ms": begin[is_complete] / 1e9,
            "step_time_ms": (stop - begin)[is_complete] / 1e9,
            **{column: values[is_complete] for column, values in spent.items()},
            "group": group[is_complete],
        }
    )


def step_of_spans(
    group: Int64s, of_span: npt.NDArray[np.integer], used: npt.NDArray[np.bool_]
) -> tuple[Int64s, Int64s]:
    """Which spans belong to a step: the index of the step (groups ascend), and of the span."""
    last_group = int(group[-1]) if len(group) else -1
    if last_group >= _MOST_GROUPS:
        step = np.searchsorted(group, of_span)
        rows = np.flatnonzero(used & (of_span >= 0) & (np.append(group, -1)[step] == of_span))
        return step[rows], rows
    # Groups count from 0 nearly always: a table over them finds the step without a search a span.
    # The last place is for no step.
    table = np.full(last_group + 2, -1, np.int64)
    table[group[group >= 0]] = np.flatnonzero(group >= 0)
    of_span = np.where((of_span < 0) | (of_span > last_group), last_group + 1, of_span)
    step = table[of_span]
    rows = np.flatnonzero(used & (step >= 0))
    return step[rows], rows


def segments(
    begin: Int64s, stop: Int64s, step: Int64s, start: Int64s, end: Int64s, cls: Classes
) -> tuple[Int64s, Int64s, Classes]:
    """What each instant of the steps counts for: pieces as (index of the step, length, class). An
    instant without work is in none.

    Parameters
    ----------
    begin, stop : int64[steps]
        The steps, ps; they may overlap.
    step, start, end, cls : [spans]
        Index of the step, begin, end and class of each piece of work; what lies outside its step
        does not count.
    """
    # All steps are swept at once: each span is clipped to its step, and the steps are laid end to
    # end.
    offset = end_to_end(begin, stop)
    low = np.maximum(start, begin[step])
    high = np.maximum(np.minimum(end, stop[step]), low)
    shift = offset[step]
    a, b, c = flatten(low + shift, high + shift, cls)
    of_step = np.diff(np.append(np.searchsorted(a, begin + offset), len(a)))
    return np.repeat(np.arange(len(begin)), of_step), b - a, c


def by_category(
    steps: int, step_time: Int64s, step: Int64s, length: Int64s, cls: Classes
) -> Int64s:
    """int64[steps, categories]: the time of each category, ps; the rest of the step (`whole` is its
    time) is other.
    """
    total = np.zeros((steps, len(CATEGORIES)), np.int64)
    np.add.at(total.reshape(-1), step * len(CATEGORIES) + _COLUMN_OF_CLASS[cls], length)
    total[:, CATEGORIES.index("other")] += step_time - total.sum(axis=1)
    return total


def step_times(activity: Activity, host: int, core: int | None = None) -> pd.DataFrame:
    """Group, start and end of each step of a host, by group: the longest device marker, or the host
    marker that includes it.

    JAX returns before a GPU has done what it was given, so that a marked step may end before its
    work does. It lasts until that is done, and begins as it is marked, or where the step before it
    ended: so the wait for its batch is in it, though no device has its work yet.
    """
    markers = activity.markers.frame()
    device = markers["device"].to_numpy(np.int64)
    on_host = markers["host"].to_numpy(np.int64) == host
    group, start, end = _longest(markers, on_host & (device < 0))
    on_device, begin, stop = _longest(
        markers, on_host & ((device >= 0) if core is None else (device == core))
    )
    if len(on_device):
        index = np.minimum(np.searchsorted(group, on_device), len(group) - 1)
        wider = (
            (group[index] == on_device) & (start[index] <= begin) & (end[index] >= stop)
            if len(group)
            else np.zeros(len(begin), np.bool_)
        )
        first = begin.copy()
        begin[wider], stop[wider] = start[index[wider]], end[index[wider]]
        if core is None and activity.framework is JAX and len(group):
            begin = _from_mark(
                np.where(group[index] == on_device, start[index], begin), stop, first
            )
        # A step that the host marks among those of the device, and that put nothing on it, is a
        # step all the same.
        idle = ~np.isin(group, on_device) & (start > begin.min()) & (start < begin.max())
        if idle.any():
            kinds = {_kind(activity, host, number) for number in on_device.tolist()} - {""}
            idle[idle] = [_kind(activity, host, number) in kinds for number in group[idle].tolist()]
        group, start, end = (
            np.append(*both)
            for both in ((on_device, group[idle]), (begin, start[idle]), (stop, end[idle]))
        )
        used = end > start
    else:
        # A group that nothing but an eager op began: none that the program marked, and no step of
        # anything.
        used = (end > start) & np.array(
            [_kind(activity, host, number) != _EAGER_OP for number in group.tolist()], np.bool_
        )
    order = np.flatnonzero(used)
    order = order[np.argsort(group[order], kind="stable")]
    return pd.DataFrame({"group": group[order], "start": start[order], "end": end[order]})


def _from_mark(marked: Int64s, stop: Int64s, first: Int64s) -> Int64s:
    """When steps begin that were marked at `marked` and of which a device first ran anything at
    `first`: after the step before.
    """
    in_time = np.argsort(stop, kind="stable")
    begin = marked.copy()
    begin[in_time] = np.minimum(
        first[in_time], np.maximum(marked[in_time], ends_before(stop[in_time]))
    )
    return begin


def _kind(activity: Activity, host: int, group: int) -> str:
    match = _NUMBERED.match(activity.group_names.get((host, group), ""))
    return match.group(1) if match else ""


def longest(markers: pd.DataFrame) -> pd.DataFrame:
    """Start and end of the longest marker of each group, by group; of equal ones the first."""
    group, start, end = _longest(markers, np.ones(len(markers), np.bool_))
    return pd.DataFrame({"start": start, "end": end}, index=pd.Index(group, name="group"))


def _longest(markers: pd.DataFrame, used: npt.NDArray[np.bool_]) -> tuple[Int64s, Int64s, Int64s]:
    """Group, start and end of the longest of some markers of each group."""
    group, start, end = (
        markers[name].to_numpy(np.int64)[used] for name in ("group", "start", "end")
    )
    order = np.lexsort((start - end, group))
    order = order[np.flatnonzero(np.diff(group[order], prepend=-1 << 62))]
    return group[order], start[order], end[order]


def counted(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps in the averages: not warm-up, not cut off, and of one kind (train, test,
    predict).
    """
    if not len(steps):
        return steps
    used = steps["counted"].to_numpy(np.bool_)
    return steps.copy(deep=False) if used.all() else steps.take(np.flatnonzero(used))


def mostly_lost(steps: pd.DataFrame) -> tuple[int, int] | None:
    """How many steps lost device work, and of how many, where most did: the others are too few to
    say what the loop does. Else None.
    """
    if not len(steps):
        return None
    lost = int(steps["lost"].sum())
    return (lost, len(steps)) if 2 * lost > len(steps) else None


def waiting_percent(steps: pd.DataFrame) -> float:
    """Percent of the time of the counted steps in which the host waits for a device that runs
    nothing; 0 where that is not known.

    It is a part of `other`, and the rest of that is what nothing explains.
    """
    used = counted(steps)
    return (
        100 * float(used["waiting_ms"].sum()) / float(used["step_time_ms"].sum())
        if len(used)
        else 0.0
    )


def summary(steps: pd.DataFrame) -> pd.DataFrame:
    """Mean, sample sd (n - 1), median, 95th percentile, range and share of each category, over the
    counted steps.

    A category that some hosts did not record is averaged over the steps of the others, but its
    share is of the time of all steps, so that shares add up to 100; one step has no sd.
    """
    used = counted(steps)
    rows = []
    total = float(used["step_time_ms"].sum())
    for category in ("step_time", *CATEGORIES):
        values = used[f"{category}_ms"].to_numpy(np.float64)
        values = values[~np.isnan(values)]
        rows.append(
            {
                "category": category,
                "mean_ms": values.mean() if len(values) else np.nan,
                "sd_ms": values.std(ddof=1) if len(values) > 1 else np.nan,
                "median_ms": np.median(values) if len(values) else np.nan,
                "p95_ms": np.percentile(values, 95, method="inverted_cdf")
                if len(values)
                else np.nan,
                "min_ms": values.min() if len(values) else np.nan,
                "max_ms": values.max() if len(values) else np.nan,
                "percent": 100 * values.sum() / total if len(values) and total else np.nan,
            }
        )
    return pd.DataFrame(rows)


def share_of_16_bit(compute: ByWidth | None) -> float | None:
    """Percent of device compute that is 16 bit (bfloat16 counted as 16 bit), over all steps; None
    without device compute.

    Kernels that do not say how wide their numbers are count as 32 bit, up to 5 % of all; NaN where
    they take more. None also where nothing in the profile could say so. `compute` is what
    `compute_by_width` gives.
    """
    if compute is None or not any(compute):
        return None
    half, _, unknown = compute
    return 100 * half / sum(compute) if unknown <= _UNKNOWN_WIDTH * sum(compute) else np.nan


def compute_by_width(activity: Activity) -> ByWidth | None:
    """Device compute in 16 bit, in 32 bit, and in kernels that do not say, ps; None where nothing
    says how wide the numbers are.
    """
    if UNKNOWN_PRECISION in activity.traits:
        return None
    work = activity.work.frame()
    rows = np.flatnonzero(work["device"].to_numpy() >= 0)
    if not len(rows):
        return 0, 0, 0
    start, end, cls = (work[name].to_numpy()[rows] for name in ("start", "end", "cls"))
    # The groups are laid end to end, so that one sweep serves all of them.
    ident, seen = pd.factorize(
        work["host"].to_numpy(np.int64)[rows] << 40 | work["group"].to_numpy(np.int64)[rows]
    )
    shift = end_to_end(*extents(ident, len(seen), start, end))[ident]
    a, b, c = flatten(start + shift, end + shift, cls)
    half, full, unknown = (
        int((b - a)[c == value].sum())
        for value in (DEVICE_COMPUTE_16, DEVICE_COMPUTE_32, DEVICE_COMPUTE)
    )
    return half, full, unknown
