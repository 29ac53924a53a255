"""Step time and where it goes: the step breakdown of TensorFlow Profiler.

Every span of work has a class with a priority. Where spans of one step overlap the larger priority
wins, so that each instant counts once; what no span covers is `other`. Host work is merged into the
steps of GPU profiles, as the TensorFlow guide describes. (XProf today leaves it out when there is a
device, and drops the first and the last step.)
"""

from __future__ import annotations

import re
from typing import NamedTuple

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
    READ_IN_PART,
    SERVING,
    TRACED,
    UNKNOWN_COPIES,
    UNKNOWN_PRECISION,
    Activity,
    text_column,
)
from nbprof.analysis import sweep
from nbprof.analysis.figures import percent
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.steps.warmup import averaged, crowded, number_between, starting, warming
from nbprof.analysis.sweep import Classes
from nbprof.analysis.table import positions
from nbprof.core import clip_to_steps
from nbprof.core.factorize import unique_rows
from nbprof.core.intervals import (
    Intervals,
    end_to_end,
    ends_before,
    extents,
    index_by_group,
    union_by_group,
)
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
"""Device compute in 16 bit, in 32 bit, and in kernels of unknown width, ps."""
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
_OF_KERNELS = ("device_compute_ms", "device_collectives_ms")
_OF_COPIES = ("device_to_device_ms", "output_ms", "host_to_device_ms")


def frame(
    activity: Activity, work: pd.DataFrame | None = None, warmup: int | None = None
) -> pd.DataFrame:
    """One row per step of each host, in time order, in ms; the columns of `p.steps.frame`.

    Parameters
    ----------
    activity : Activity
    work : DataFrame, optional
        Work that is classified in another way than `activity.work`.
    warmup : int, optional
        How many of the first steps of each host are warm-up, unless that leaves none; by default
        they are found by their length.
    """
    return numbered(measured(activity, work), warmup, activity.traits)


def measured(activity: Activity, work: pd.DataFrame | None = None) -> tuple[pd.DataFrame, bool]:
    """The steps of each host as its recording alone has them, and whether anything was compiled:
    the arguments of `numbered`.
    """
    work = activity.work.frame() if work is None else work
    steps_by_host = (_host_steps(activity, work, host) for host in range(len(activity.hosts)))
    parts = [steps for steps in steps_by_host if len(steps)]
    if not parts:
        return pd.DataFrame(), False
    if len(parts) > 1:
        table = pd.concat(parts, ignore_index=True)
    else:
        table = parts[0].reset_index(drop=True)
    host = table["host"].map(positions(activity.hosts))
    keys = list(zip(host.tolist(), table["group"].tolist(), strict=True))
    for column, steps in (
        ("cut", activity.incomplete),
        ("lost", activity.lost),
        ("waited", activity.waited),
    ):
        flags = np.zeros(len(table), np.bool_)
        if steps:
            flags[:] = [key in steps for key in keys]
        table[column] = flags
    _forget(table, activity.traits)
    if activity.batches:
        table["batches"] = [activity.batches.get(key, 0) for key in keys]
    table["traces"] = _trace_anew(activity, table, host)
    table = pd.concat([table, _copied(activity, work, host, table["group"])], axis=1)
    return table, bool((work["cls"] == HOST_COMPILE).any())


def _forget(table: pd.DataFrame, traits: set[str]) -> None:
    """Set the categories to NaN that are unknown in steps that lost device work."""
    if READ_IN_PART not in traits:
        table.loc[table["lost"], list(_OF_KERNELS)] = np.nan
        return
    # The calls that launched the work may be missing, too: what the host computed includes them.
    categories = [f"{category}_ms" for category in CATEGORIES]
    rows = table["lost"] | (LOST_KERNELS in traits)
    table.loc[rows, [*categories, "host_to_device_ms", "waiting_ms"]] = np.nan


_COLUMNS = [
    "host",
    "step",
    "name",
    "start_ms",
    "step_time_ms",
    *(f"{category}_ms" for category in CATEGORIES),
    "kind",
    "warmup",
    "cut",
    "lost",
    "counted",
    "host_to_device_ms",
    "waiting_ms",
]


def numbered(
    steps: tuple[pd.DataFrame, bool], warmup: int | None, traits: set[str]
) -> pd.DataFrame:
    """The steps of all hosts in time order, with their numbers and kinds, and which of them
    averages use: see `frame`.

    `steps` is the result of `measured`. `traits` are those of the activity, as steps that are
    iterations warm up in another way, or not at all.
    """
    table, compiled = steps
    if not len(table):
        return pd.DataFrame(columns=[*_COLUMNS, "group"])
    if not compiled:
        table = table.assign(compile_ms=np.nan)
    table = table.sort_values(["start_ms", "host"], kind="stable", ignore_index=True)
    host, _ = pd.factorize(table["host"])
    stated_numbers = table["step"].to_numpy(np.float64)
    step = np.zeros(len(table), np.int64)
    for number in range(int(host.max()) + 1):
        rows = np.flatnonzero(host == number)
        step[rows] = number_between(stated_numbers[rows])
    # Training, validation and prediction are different populations: one of them is averaged.
    names = table["name"].tolist()
    kinds = _kinds(names)
    # A group without a stated number is called by its own: the step gets the name that its
    # neighbours give it.
    for row, group in enumerate(table["group"].tolist()):
        if names[row] == str(group):
            names[row] = f"{kinds[row]} {step[row]}".lstrip()
    table = table.assign(step=step, kind=kinds, name=names)
    # The length of a step that is incomplete, or holds the batches of several, means nothing.
    odd = table["cut"] | table["lost"] | crowded(table)
    warm = _warmup_flags(table, odd, warmup, traits)
    used = ~warm
    if len(set(kinds)) > 1:
        # An evaluation that compiles at its begin is not what the run is about.
        work_ms = table["step_time_ms"] - table["compile_ms"].fillna(0.0)
        main_kind = averaged(work_ms[used].groupby(table["kind"]).sum())
        used &= table["kind"].to_numpy(object) == main_kind
    # A profile of nothing but incomplete steps still has an average.
    complete = used & ~odd.to_numpy(np.bool_)
    table = table.assign(warmup=warm, counted=complete if complete.any() else used)
    optional = [column for column in (*COPIED.values(), "batches") if column in table]
    # The copy holds the columns of a dtype together: the counted rows are taken many times.
    return table[[*_COLUMNS, *optional, "group"]].copy()


def _warmup_flags(
    steps: pd.DataFrame, odd: pd.Series, warmup: int | None, traits: set[str]
) -> npt.NDArray[np.bool_]:
    """Flags of the steps that are warm-up."""
    if warmup is None and SERVING in traits:
        # Their time depends on the requests; an engine is warm before it serves any.
        flags = np.zeros(len(steps), np.bool_)
    elif warmup is None and ITERATIONS in traits:
        flags = np.asarray(starting(steps), np.bool_)
    else:
        flags = np.asarray(warming(steps.assign(cut=odd), warmup), np.bool_)
    if not steps["waited"].any():
        return flags
    # A rank that the others wait for at the start does not hurry in its own step: of all ranks that
    # step is warm-up.
    nth = steps.groupby("host", sort=False).cumcount()
    waited = nth.isin(nth[steps["waited"]]).to_numpy(np.bool_)
    return flags if (flags | waited).all() else flags | waited


def _kinds(names: list[str]) -> list[str]:
    """The kind of each step by its name; a step without one has that of the step before it, or of
    the next.
    """
    kinds: list[str] = []
    previous = ""
    for name in names:
        previous = _numbered(name).kind or previous
        kinds.append(previous)
    first = next((kind for kind in kinds if kind), "")
    return [kind or first for kind in kinds]


def _trace_anew(activity: Activity, steps: pd.DataFrame, host: pd.Series) -> npt.NDArray[np.bool_]:
    """Flags of the steps in which TensorFlow traces a function that was not traced before, as in
    the first step of each training.
    """
    flags = np.zeros(len(steps), np.bool_)
    calls = activity.functions
    if not len(calls):
        return flags
    texts = activity.texts.values
    modes = [code for code in np.unique(calls.mode) if str(texts[code]).startswith(TRACED)]
    calls = calls.take(np.isin(calls.mode, modes) & (calls.tracings == 1))
    host_of_calls = calls.host.astype(np.int64)
    step = index_by_group(step_bounds(steps), host.to_numpy(np.int64), calls.start, host_of_calls)
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
    """Bytes copied for each step, by direction; no columns where no size is known.

    The steps are given by host and group.
    """
    transfers = activity.transfers
    transfers = transfers.take(transfers.bytes >= 0)
    if not len(transfers):
        return pd.DataFrame(index=host.index)
    # A copy over the end of a step has a piece in each step; it counts for the first.
    work_events, work_groups = work["event"].to_numpy(), work["group"].to_numpy()
    rows = np.flatnonzero(np.isin(work_events, transfers.event))
    events, first = np.unique(work_events[rows], return_index=True)
    index = np.searchsorted(events, transfers.event)
    in_work = np.append(events, -1)[index] == transfers.event
    transfers, index = transfers.take(in_work), index[in_work]
    group_of_copies = work_groups[rows[first[index]]]
    steps = len(host)
    pairs, code = unique_rows(
        np.concatenate([np.asarray(host, np.int64), transfers.host.astype(np.int64)]),
        np.concatenate([np.asarray(group, np.int64), np.asarray(group_of_copies, np.int64)]),
    )
    kinds = activity.texts.values[transfers.kind]
    columns = {}
    for kind, column in COPIED.items():
        of_kind = kinds == kind
        total = np.zeros(len(pairs), np.int64)
        np.add.at(total, code[steps:][of_kind], transfers.bytes[of_kind])
        columns[column] = total[code[:steps]]
    return pd.DataFrame(columns, index=host.index)


def by_core(activity: Activity) -> pd.DataFrame:
    """The steps of each TPU core of hosts that have several: as `frame`, with `device`; only steps
    that all cores of a host have.
    """
    parts = []
    for host in range(len(activity.hosts)):
        core_steps = _steps_by_core(activity, host)
        if len(core_steps) and core_steps["device"].nunique() > 1:
            parts.append(core_steps)
    if not parts:
        return pd.DataFrame(columns=["host", "device", "group"])
    return pd.concat(parts, ignore_index=True)


def _steps_by_core(activity: Activity, host: int) -> pd.DataFrame:
    """The steps of each core of a host, by the core's markers if it has any."""
    core_markers = activity.core_markers.frame()
    host_markers = core_markers
    if len(core_markers):
        host_markers = core_markers[core_markers["host"] == host]
    if not len(host_markers):
        core_steps = _core_steps(activity, activity.work.frame(), host)
        return _named(activity, core_steps, host) if len(core_steps) else core_steps
    parts = []
    work = _united(activity.work.frame(), host)
    device = work["device"].to_numpy()
    for core, markers in host_markers.groupby("device"):
        in_time = markers.sort_values("start", kind="stable")
        begin, end, group = (in_time[name].to_numpy(np.int64) for name in ("start", "end", "group"))
        rows = np.flatnonzero((device < 0) | (device == core))
        core_work = clip_to_steps.split_at_steps(work, begin, end, group, rows)
        times = longest(markers).reset_index()
        core_steps = _steps_of(activity, core_work, host, int(str(core)), times)
        parts.append(core_steps.assign(device=core))
    return _named(activity, _on_all(parts), host)


def _named(activity: Activity, steps: pd.DataFrame, host: int) -> pd.DataFrame:
    """Steps of a host with the names of their groups, and their numbers; the groups of several
    cores are equal.
    """
    code, groups = pd.factorize(steps["group"])
    names = [activity.group_names.get((host, group), str(group)) for group in groups.tolist()]
    numbers = [_numbered(name).number for name in names]
    steps.insert(1, "step", np.array(numbers, np.float64)[code])
    steps.insert(2, "name", pd.Series(text_column(np.array(names, object), code), steps.index))
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
        # The step of a host is that of its slowest core.
        slowest = cores.groupby("group")["step_time_ms"].idxmax()
        steps = cores.loc[slowest].drop(columns="device").reset_index(drop=True)
        return _named(activity, steps, host)
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
    device = host_work["device"].to_numpy()
    parts = []
    for core in cores:
        if core in marked:
            core_work = host_work.take(np.flatnonzero((device < 0) | (device == core)))
            parts.append(_steps_of(activity, core_work, host, core).assign(device=core))
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
    is_tpu = devices["kind"].to_numpy(object) == "TPU"
    if not is_tpu.any():
        return []
    of_host = devices["host"].to_numpy(object) == activity.hosts[host]
    cores: list[int] = devices["device"].to_numpy()[is_tpu & of_host].tolist()
    return cores


def _on_all(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """The steps that all cores have."""
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    on_all = table.groupby("group")["group"].transform("count") == len(parts)
    return table[on_all].reset_index(drop=True)


def _steps_of(
    activity: Activity,
    work: pd.DataFrame,
    host: int,
    core: int | None = None,
    times: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The steps of a host, or of one core and the host; `times` states when they were, where the
    markers do not.
    """
    times = step_times(activity, host, core) if times is None else times
    group, begin, stop = (times[name].to_numpy(np.int64) for name in ("group", "start", "end"))
    device = work["device"].to_numpy()
    used = work["host"].to_numpy() == host
    if core is not None:
        used &= (device < 0) | (device == core)
    step, rows = step_of_spans(group, work["group"].to_numpy(), used)
    cls, device = work["cls"].to_numpy()[rows], device[rows]
    start, end = work["start"].to_numpy()[rows], work["end"].to_numpy()[rows]
    by_class = time_by_class(begin, stop, step, start, end, cls)
    facts = _host_facts(activity, host, cls, device)
    # A first or last step without any compute is only the edge of one: it was cut by the start or
    # the end of the capture. Where hosts mark the steps of devices (PyTorch) and run ahead of them,
    # a step may have nothing but device work.
    if facts.has_device_marks:
        computes = np.isin(cls, COMPUTE)
    else:
        computes = (cls == HOST_COMPUTE) | (device >= 0)
    is_complete = _between_first_and_last(begin, step[computes])
    time_ms = _time_ms(stop - begin, by_class, facts)
    return pd.DataFrame(
        {
            "host": activity.hosts[host],
            "start_ms": begin[is_complete] / 1e9,
            "step_time_ms": (stop - begin)[is_complete] / 1e9,
            **{column: values[is_complete] for column, values in time_ms.items()},
            "group": group[is_complete],
        }
    )


class _HostFacts(NamedTuple):
    """The parts of a host that were recorded: marks of its steps on devices, anything on devices,
    on threads, calls into a device's runtime, waits in these, ops; and the traits of the activity.
    """

    has_device_marks: bool
    has_devices: bool
    has_threads: bool
    has_calls: bool
    has_waits: bool
    has_ops: bool
    traits: set[str]


def _host_facts(
    activity: Activity, host: int, cls: Classes, device: npt.NDArray[np.integer]
) -> _HostFacts:
    marks = activity.markers.device[activity.markers.host == host]
    has_device_marks = bool((marks >= 0).any())
    has_calls = bool((activity.calls.host == host).any())
    return _HostFacts(
        has_device_marks,
        has_device_marks or bool((activity.device_extents.host == host).any()),
        bool((marks < 0).any() or (device < 0).any()),
        has_calls,
        bool((cls == HOST_WAIT_DEVICE).any()) or has_calls,
        activity.host_has_ops(host),
        activity.traits,
    )


def _between_first_and_last(begin: Int64s, with_compute: Int64s) -> npt.NDArray[np.bool_]:
    """Flags of the steps, in time order, from the first with compute to the last; all of them if
    none has any.
    """
    flags = np.zeros(len(begin), np.bool_)
    flags[with_compute] = True
    if not flags.any():
        return ~flags
    in_time = np.argsort(begin, kind="stable")
    rows = np.flatnonzero(flags[in_time])
    flags[in_time[rows[0] : rows[-1] + 1]] = True
    return flags


def _time_ms(
    length: Int64s, by_class: dict[int, Int64s], facts: _HostFacts
) -> dict[str, npt.NDArray[np.float64]]:
    """Time of the steps by category, copied to devices, and waited for devices, ms; NaN where
    unknown. `by_class` is the result of `time_by_class`.
    """
    total = by_category(length, by_class)
    unknown = np.full(len(length), np.nan)
    none = np.zeros(len(length), np.int64)
    columns: dict[str, npt.NDArray[np.float64]] = {
        f"{category}_ms": total[:, column] / 1e9 for column, category in enumerate(CATEGORIES)
    }
    columns["host_to_device_ms"] = by_class.get(HOST_TO_DEVICE, none) / 1e9
    # Without its kernels, a device that works looks like one that runs nothing.
    columns["waiting_ms"] = unknown
    if facts.has_waits and LOST_KERNELS not in facts.traits:
        columns["waiting_ms"] = by_class.get(HOST_WAIT_DEVICE, none) / 1e9
    # Time that was not recorded is unknown, not 0.
    silent: list[str] = []
    if not facts.has_devices:
        silent += _OF_DEVICE
    elif LOST_KERNELS in facts.traits:
        silent += _OF_KERNELS
    if not facts.has_threads:
        silent += _OF_HOST
    if UNKNOWN_COPIES in facts.traits:
        silent += _OF_COPIES
    if not facts.has_ops:
        # Calls of a device's runtime are all that is known of the host: that is not what it
        # computed, but time without a known cause.
        if not facts.has_calls:
            silent.append("kernel_launch_ms")
        columns["other_ms"] = columns["other_ms"] + columns["host_compute_ms"]
        columns["host_compute_ms"] = unknown
    for column in silent:
        if not np.nansum(columns[column]):
            columns[column] = unknown
    return columns


def step_of_spans(
    group: Int64s, of_span: npt.NDArray[np.integer], used: npt.NDArray[np.bool_]
) -> tuple[Int64s, Int64s | slice]:
    """The spans that belong to a step: the index of the step (groups ascend), and of the span; a
    slice where all do, which copies nothing.
    """
    last_group = int(group[-1]) if len(group) else -1
    if last_group >= _MOST_GROUPS:
        step = np.searchsorted(group, of_span)
        is_step = np.append(group, -1)[step] == of_span
        rows = np.flatnonzero(used & (of_span >= 0) & is_step)
        return step[rows], rows
    # Groups count from 0 nearly always: a table over them finds the step without a search a span.
    # The last row is for no step.
    table = np.full(last_group + 2, -1, np.int64)
    table[group[group >= 0]] = np.flatnonzero(group >= 0)
    outside = (of_span < 0) | (of_span > last_group)
    if outside.any():
        of_span = np.where(outside, last_group + 1, of_span)
    step = table[of_span]
    in_step = used & (step >= 0)
    if in_step.all():
        return step, slice(None)
    rows = np.flatnonzero(in_step)
    return step[rows], rows


def time_by_class(
    begin: Int64s, stop: Int64s, step: Int64s, start: Int64s, end: Int64s, cls: Classes
) -> dict[int, Int64s]:
    """By class: the time of each step in which it is the largest, ps, int64[steps].

    Parameters
    ----------
    begin, stop : int64[steps]
        The steps, ps; they may overlap.
    step, start, end, cls : [spans]
        Index of the step, begin, end and class of each piece of work; the parts outside its step do
        not count.
    """
    # All steps are swept at once: each span is clipped to its step, and the steps are laid end to
    # end.
    offset = end_to_end(begin, stop)

    def spans(value: int) -> tuple[Int64s, Int64s]:
        rows = np.flatnonzero(cls == value)
        # These are the largest arrays of an output: what is done with each is done in place.
        in_step, low, high = step[rows], start[rows], end[rows]
        del rows
        np.maximum(low, begin[in_step], out=low)
        np.minimum(high, stop[in_step], out=high)
        shift = offset[in_step]
        low += shift
        high += shift
        return low, high

    low, high = begin + offset, stop + offset
    layers = sweep.layers(sweep.occurring(cls), spans)
    return sweep.times(layers, lambda covered: covered.covered_within(low, high))


def by_category(step_time: Int64s, by_class: dict[int, Int64s]) -> Int64s:
    """int64[steps, categories]: the time of each category, ps; the rest of `step_time` is other."""
    total = np.zeros((len(step_time), len(CATEGORIES)), np.int64)
    for value, time in by_class.items():
        total[:, _COLUMN_OF_CLASS[value]] += time
    total[:, CATEGORIES.index("other")] += step_time - total.sum(axis=1)
    return total


def step_times(activity: Activity, host: int, core: int | None = None) -> pd.DataFrame:
    """Group, start and end of each step of a host, by group: the longest device marker, or the host
    marker that includes it.

    JAX returns before a GPU has done its work, so that a marked step may end before its work does.
    It lasts until that is done, and begins at its mark, or where the step before it ended: so the
    wait for its batch is in it, though no device has its work yet.
    """
    markers = activity.markers.frame()
    device = markers["device"].to_numpy(np.int64)
    of_host = markers["host"].to_numpy(np.int64) == host
    of_device = (device >= 0) if core is None else (device == core)
    on_host = _longest(markers, of_host & (device < 0))
    on_device = _longest(markers, of_host & of_device)
    if len(on_device[0]):
        lasts_longer = core is None and activity.framework is JAX
        group, start, end = _device_steps(activity, host, on_host, on_device, lasts_longer)
        used = end > start
    else:
        group, start, end = on_host
        # A group that only an eager op began is not a step: the program did not mark it.
        is_marked = [not _is_eager(activity, host, number) for number in group.tolist()]
        used = (end > start) & np.array(is_marked, np.bool_)
    order = np.flatnonzero(used)
    order = order[np.argsort(group[order], kind="stable")]
    return pd.DataFrame({"group": group[order], "start": start[order], "end": end[order]})


_Times = tuple[Int64s, Int64s, Int64s]


def _device_steps(
    activity: Activity, host: int, on_host: _Times, on_device: _Times, lasts_longer: bool
) -> _Times:
    """Group, start and end of steps with marks on devices; `lasts_longer` if the work of a step may
    end after its mark on the host.
    """
    group, start, end = on_host
    device_group, begin, stop = on_device
    first = begin.copy()
    if len(group):
        index = np.minimum(np.searchsorted(group, device_group), len(group) - 1)
        same = group[index] == device_group
        wider = same & (start[index] <= begin) & (end[index] >= stop)
        begin[wider], stop[wider] = start[index[wider]], end[index[wider]]
        if lasts_longer:
            begin = _from_mark(np.where(same, start[index], begin), stop, first)
    # A step that the host marks among those of the device, and that put nothing on it, is a step
    # all the same.
    idle = ~np.isin(group, device_group) & (start > begin.min()) & (start < begin.max())
    if idle.any():
        kinds = {_kind(activity, host, number) for number in device_group.tolist()} - {""}
        idle[idle] = [_kind(activity, host, number) in kinds for number in group[idle].tolist()]
    return (
        np.append(device_group, group[idle]),
        np.append(begin, start[idle]),
        np.append(stop, end[idle]),
    )


def _from_mark(marked: Int64s, stop: Int64s, first: Int64s) -> Int64s:
    """The begin of steps: at their mark or after the step before, but not after their first work on
    a device.
    """
    in_time = np.argsort(stop, kind="stable")
    earliest = np.maximum(marked[in_time], ends_before(stop[in_time]))
    begin = marked.copy()
    begin[in_time] = np.minimum(first[in_time], earliest)
    return begin


def _kind(activity: Activity, host: int, group: int) -> str:
    return _numbered(activity.group_names.get((host, group), "")).kind


def _is_eager(activity: Activity, host: int, group: int) -> bool:
    name = activity.group_names.get((host, group), "")
    # Few names are parsed: there may be a million steps.
    return name.startswith(_EAGER_OP) and _numbered(name).kind == _EAGER_OP


class _Numbered(NamedTuple):
    """The parts of the name of a step, such as "train 7"; `kind` is "" and `number` is NaN if it
    has no number.
    """

    kind: str
    number: float


def _numbered(name: str) -> _Numbered:
    match = _NUMBERED.match(name)
    return _Numbered(match[1], float(match[2])) if match else _Numbered("", np.nan)


def longest(markers: pd.DataFrame) -> pd.DataFrame:
    """Start and end of the longest marker of each group, by group; of equal ones the first."""
    group, start, end = _longest(markers, np.ones(len(markers), np.bool_))
    return pd.DataFrame({"start": start, "end": end}, index=pd.Index(group, name="group"))


def _longest(markers: pd.DataFrame, used: npt.NDArray[np.bool_]) -> _Times:
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
    if used.all():
        return steps.copy(deep=False)
    return steps.take(np.flatnonzero(used))


def mostly_lost(steps: pd.DataFrame) -> tuple[int, int] | None:
    """The number of steps that lost device work, and of all steps, if most did: the others are too
    few to say what the loop does. Else None.
    """
    if not len(steps):
        return None
    lost = int(steps["lost"].sum())
    return (lost, len(steps)) if 2 * lost > len(steps) else None


def waiting_percent(steps: pd.DataFrame) -> float:
    """Percent of the time of the counted steps in which the host waits for a device that runs
    nothing; 0 if unknown.

    It is a part of `other`; the rest of `other` is unexplained.
    """
    used = counted(steps)
    if not len(used):
        return 0.0
    return 100 * float(used["waiting_ms"].sum()) / float(used["step_time_ms"].sum())


def summary(steps: pd.DataFrame) -> pd.DataFrame:
    """Mean, sample sd (n - 1), median, 95th percentile, range and share of each category, over the
    counted steps.

    A category that some hosts did not record is averaged over the steps of the others, but its
    share is of the time of all steps, so that shares add up to 100; one step has no sd.
    """
    used = counted(steps)
    total = float(used["step_time_ms"].sum())
    categories = ["step_time", *CATEGORIES]
    figures: list[dict[str, float]] = []
    for category in categories:
        time = used[f"{category}_ms"].to_numpy(np.float64)
        figures.append(_statistics(time[~np.isnan(time)], total))
    columns = np.array([list(row.values()) for row in figures], np.float64).T
    return pd.DataFrame({"category": categories, **dict(zip(_STATISTICS, columns, strict=True))})


def _statistics(time: npt.NDArray[np.float64], total: float) -> dict[str, float]:
    if not len(time):
        return dict.fromkeys(_STATISTICS, np.nan)
    return {
        "mean_ms": time.mean(),
        "sd_ms": time.std(ddof=1) if len(time) > 1 else np.nan,
        "median_ms": float(np.median(time)),
        "p95_ms": float(np.percentile(time, 95, method="inverted_cdf")),
        "min_ms": time.min(),
        "max_ms": time.max(),
        "percent": percent(time.sum(), total),
    }


_STATISTICS = ("mean_ms", "sd_ms", "median_ms", "p95_ms", "min_ms", "max_ms", "percent")


def share_of_16_bit(compute: ByWidth | None) -> float | None:
    """Percent of device compute that is 16 bit (bfloat16 counted as 16 bit), over all steps; None
    without device compute.

    Kernels of unknown width count as 32 bit, up to 5 % of all; NaN if they take more. None also if
    nothing in the profile states widths. `compute` is the result of `compute_by_width`.
    """
    if compute is None or not any(compute):
        return None
    half, _, unknown = compute
    if unknown > _UNKNOWN_WIDTH * sum(compute):
        return np.nan
    return 100 * half / sum(compute)


def compute_by_width(activity: Activity) -> ByWidth | None:
    """Device compute in 16 bit, in 32 bit, and in kernels of unknown width, ps; None if nothing in
    the profile states widths.
    """
    if UNKNOWN_PRECISION in activity.traits:
        return None
    work = activity.work.take(activity.work.device >= 0)
    if not len(work):
        return 0, 0, 0
    # The groups are laid end to end, so that one sweep serves all of them.
    code, groups = pd.factorize(work.host.astype(np.int64) << 40 | work.group)
    shift = end_to_end(*extents(code, len(groups), work.start, work.end))[code]
    layers = sweep.layers_of(work.start + shift, work.end + shift, work.cls)
    time = sweep.times(layers, Intervals.total)
    half, full, unknown = (
        time.get(value, 0) for value in (DEVICE_COMPUTE_16, DEVICE_COMPUTE_32, DEVICE_COMPUTE)
    )
    return half, full, unknown
