"""The unit of a recording without marked steps: iterations, repeats, or the recording.

In this order: iterations of the loop of a recorded cell; ranges that a program named, or calls of
one module, if the work between their begins repeats; the repeating sequence of kernels of the
busiest stream; that of the outermost ops of the busiest thread; else all of it, from the first to
the last event of work. What is inferred from repeats is called an estimate, with the share of
events that fit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.activity.unit import ANY, CALL, ITERATION, NAMED, RECORDING, Unit
from nbprof.core.trace import Int64s
from nbprof.dialects import repeats
from nbprof.dialects.gpu import find_steps
from nbprof.dialects.gpu.lanes import ANNOTATION, KERNEL, PYTHON
from nbprof.dialects.gpu.lanes import CALL as RUNTIME_CALL
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.lookups import names_that

CHOOSE = "`for batch in nbprof.steps(batches):` marks the steps of another loop."
_NUMBERS = re.compile(r"\d+")
_MODULE = "nn.Module: "
_MOST_FAMILIES = 20


@dataclass(frozen=True)
class Found:
    """The units of one host.

    Attributes
    ----------
    kind : str
        One of the kinds of `nbprof.activity.unit`.
    how : str
        What they are, as a sentence without its end.
    agreement : float
    event, start, end : int64[n]
        The event that begins each, and its begin and end on the host, ps.
    """

    kind: str
    how: str
    agreement: float
    event: Int64s
    start: Int64s
    end: Int64s


def find(links: Links) -> tuple[Steps, Unit]:
    """The units of all hosts that have work; of several hosts these are their recordings."""
    hosts = [host for host in range(len(links.trace.hosts)) if len(_work(links, host))]
    searches = {ANY: (_by_ranges, _by_kernels, _by_ops), NAMED: (_by_ranges,)}
    if len(hosts) == 1:
        for search in searches.get(links.trace.units, ()):
            units = search(links, hosts[0])
            if units is None:
                continue
            steps = _steps(links, hosts[0], units)
            if _covers(links, hosts[0], steps):
                return steps, _unit(units)
    return _recordings(links, hosts)


def _covers(links: Links, host: int, steps: Steps) -> bool:
    """True if units with their device work take most of the time in which a host worked."""
    events = links.trace.events
    rows = _work(links, host)
    recorded = events.end[rows].max() - events.start[rows].min()
    return bool((steps.end - steps.start).sum() >= repeats.MOST_OF * recorded)


def _unit(units: Found) -> Unit:
    share = f"{100 * units.agreement:.0f}%"
    how = (
        f"No steps are marked. The {units.how}: an estimate that fits {share} of the events."
        f" {CHOOSE}"
    )
    return Unit(units.kind, how, units.agreement)


def _steps(links: Links, host: int, units: Found) -> Steps:
    labels = [f"{units.kind} {number}" for number in range(len(units.start))]
    marks = find_steps.Marks(units.event, units.start, units.end, labels)
    return find_steps.of_marks(links, host, marks, [])


def _recordings(links: Links, hosts: list[int]) -> tuple[Steps, Unit]:
    """Each host's recording as a whole."""
    events = links.trace.events
    parts = []
    for host in hosts:
        rows = _work(links, host)
        first = rows[np.argmin(events.start[rows])]
        start, end = np.array([events.start[first]]), np.array([events.end[rows].max()])
        mark = np.array([first])
        parts.append(
            Steps(
                np.array([host]), np.zeros(1, np.int64), mark, start, end, start, end, [RECORDING]
            )
        )
    how = (
        f"No steps are marked and nothing repeats, so figures are for the whole recording. {CHOOSE}"
    )
    return Steps.joined(parts), Unit(RECORDING, how)


def _work(links: Links, host: int) -> Int64s:
    """Ops, annotations, calls of the runtime and device work of a host."""
    rows = np.concatenate(
        [links.ops.rows, links.rows(ANNOTATION, RUNTIME_CALL), links.work[~links.earlier]]
    )
    rows = rows[links.host[rows] == host]
    return np.sort(rows[~_waits_for_nothing(links, rows)])


def _waits_for_nothing(links: Links, rows: Int64s) -> npt.NDArray[np.bool_]:
    """True for waits for an idle device, as of PyTorch's profiler at its start and stop."""
    events, names = links.trace.events, links.trace.names
    waits = names_that(lambda name: name.endswith("DeviceSynchronize"), names)[events.name[rows]]
    work = rows[np.isin(rows, links.work)]
    if not len(work) or not waits.any():
        return np.zeros(len(rows), np.bool_)
    first, last = events.start[work].min(), events.end[work].max()
    aside = (events.end[rows] <= first) | (events.start[rows] >= last)
    return np.asarray(waits & aside, np.bool_)


def _launched(links: Links, host: int) -> tuple[Int64s, Int64s]:
    """Device work of a host in order of its launches, and the times of launch (or own start)."""
    events = links.trace.events
    host_work = np.flatnonzero((links.host[links.work] == host) & ~links.earlier)
    work, launch = links.work[host_work], links.launch[host_work]
    time = np.where(launch >= 0, events.start[launch], events.start[work])
    order = np.argsort(time, kind="stable")
    return work[order], time[order]


def _codes(values: npt.NDArray[np.integer]) -> Int64s:
    codes: Int64s = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes


def _by_kernels(links: Links, host: int) -> Found | None:
    """The repeating sequence of kernels of the busiest stream."""
    events = links.trace.events
    work, time = _launched(links, host)
    is_kernel = links.kind[work] == KERNEL
    work, time = work[is_kernel], time[is_kernel]
    if not len(work):
        return None
    on_busiest = np.isin(work, repeats.on_busiest_lane(events, work))
    work, time = work[on_busiest], time[on_busiest]
    repeated = repeats.find(_codes(events.name[work]))
    if repeated is None:
        return None
    start = time[repeated.first]
    end = np.append(start[1:], max(int(time[repeated.end - 1]) + 1, int(start[-1]) + 1))
    how = (
        f"{len(start):,} iterations are repeats of {_sequence(repeated.length, 'kernel')} that a"
        " stream repeats"
    )
    return Found(ITERATION, how, repeated.agreement, work[repeated.first], start, end)


def _by_ops(links: Links, host: int) -> Found | None:
    """The repeating sequence of outermost ops of the busiest thread."""
    events = links.trace.events
    outer = links.ops.rows[links.ops.parent < 0]
    outer = outer[links.host[outer] == host]
    if not len(outer):
        return None
    rows = repeats.on_busiest_lane(events, outer)
    repeated = repeats.find(_codes(events.name[rows]))
    if repeated is None:
        return None
    first = rows[repeated.first]
    start = events.start[first]
    end = np.append(start[1:], events.end[rows[repeated.end - 1]])
    how = (
        f"{len(start):,} iterations are repeats of {_sequence(repeated.length, 'op')} that a thread"
        " repeats"
    )
    return Found(ITERATION, how, repeated.agreement, first, start, end)


def _sequence(length: int, noun: str) -> str:
    if length == 1:
        return f"a single {noun}"
    return f"the sequence of {length:,} {noun}s"


def _by_ranges(links: Links, host: int) -> Found | None:
    """Ranges of one name or calls of one module with nearly all work, by most time."""
    events = links.trace.events
    rows = links.rows(ANNOTATION, PYTHON)
    rows = rows[links.host[rows] == host]
    candidates = []
    for family, codes in _families(links, rows).items():
        marks = find_steps.one_thread(links, rows[np.isin(events.name[rows], codes)])
        if len(marks) >= repeats.FEWEST:
            candidates.append((family, marks))
    # The most time first; of equal times the earliest.
    candidates.sort(
        key=lambda candidate: (
            -int(events.duration[candidate[1]].sum()),
            int(events.start[candidate[1][0]]),
        )
    )
    time = _times_of_work(links, host)
    for family, marks in candidates[:_MOST_FAMILIES]:
        units = _of_range(links, family, marks, time)
        if units.agreement >= repeats.AGREEMENT:
            return units
    return None


def _families(links: Links, rows: Int64s) -> dict[str, list[int]]:
    """The codes of the names of ranges and calls, by the common name of their family."""
    names = links.trace.events.name[rows]
    python_names = set(names[links.kind[rows] == PYTHON].tolist())
    families: dict[str, list[int]] = {}
    for code in np.unique(names).tolist():
        family = _family(str(links.trace.names[code]), code in python_names)
        if family:
            families.setdefault(family, []).append(code)
    return families


def _of_range(links: Links, family: str, marks: Int64s, time: Int64s) -> Found:
    """Units from calls of a module, or from each range to the next, with their share of work."""
    events = links.trace.events
    start, end = events.start[marks], events.end[marks]
    is_call = family.startswith(_MODULE)
    if not is_call:
        end = np.append(start[1:], end[-1])
    in_range = np.searchsorted(time, end) - np.searchsorted(time, start)
    described = f"ranges called {family!r}"
    if is_call:
        described = f"calls of the module {family.removeprefix(_MODULE)}"
    agreement = float(in_range.sum()) / len(time) if len(time) else 0.0
    return Found(
        CALL if is_call else ITERATION,
        f"units are the {len(marks):,} {described}",
        agreement,
        marks,
        start,
        end,
    )


def _family(name: str, is_python: bool) -> str:
    """Common name of ranges of one kind; "" for those that are not candidates."""
    if is_python:
        # "nn.Module: ResNet_0": each number is a different instance.
        return name if name.startswith(_MODULE) else ""
    return _NUMBERS.sub("N", name)


def _times_of_work(links: Links, host: int) -> Int64s:
    """Times at which the host launched work, or began outermost ops if there is none, ascending."""
    work, time = _launched(links, host)
    if len(work):
        return time
    outer = links.ops.rows[links.ops.parent < 0]
    return np.sort(links.trace.events.start[outer[links.host[outer] == host]])
