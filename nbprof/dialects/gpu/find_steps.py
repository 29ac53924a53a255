"""The steps of a Kineto trace, and which of them each instant of work counts for.

A step lasts from the later of the end of the previous step and its begin on the host, to the later
of its end on the host and the end of the last device work launched in it. So steps do not overlap,
and include all work of the device.

Device work that was pending when the recording began was launched in unknown steps. It belongs to
the step before the first, which begins when that work ends, and counts for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from nbprof.core.intervals import ends_before, one_at_a_time
from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s
from nbprof.dialects import torchnames
from nbprof.dialects.gpu import engines, lost_work, notes, serving
from nbprof.dialects.gpu.lanes import ANNOTATION, CALL, OP
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.iterations import Placed, first_events
from nbprof.dialects.lookups import of_host, rows_that
from nbprof.display import wording

_MARKS = ("ProfilerStep", torchnames.OTHER_STEP, "Optimizer.step#", "enumerate(")


def find(links: Links, *, batches: bool = True) -> Steps:
    """Finds the steps: iterations of an engine, marks, optimizer steps, or batches.

    A host uses the first kind of these that it has; batches only with `batches`, since something
    better may be known of the loop that asked for them.

    """
    return _of_hosts(links, range(len(links.trace.hosts)), batches=batches)


def with_batches(links: Links, steps: Steps) -> Steps:
    """The steps, and the batches that hosts without any asked for."""
    return Steps.joined([steps, _of_hosts(links, without_steps(links, steps), batches=True)])


def without_steps(links: Links, steps: Steps) -> list[int]:
    """The hosts that have none of these steps."""
    return sorted(set(range(len(links.trace.hosts))) - set(steps.host.tolist()))


def _of_hosts(links: Links, hosts: Iterable[int], *, batches: bool) -> Steps:
    parts = [_of_host(links, host, batches=batches) for host in hosts]
    return Steps.joined([part for part in parts if part is not None])


def of_iterations(links: Links, iterations: Placed) -> Steps:
    """The iterations of a loop as steps, with the device work that each launched."""
    rows = np.sort(np.concatenate([links.rows(OP, ANNOTATION, CALL), links.work]))
    if not len(rows):
        rows = np.arange(len(links.trace.events))
    marks = first_events(links.trace, rows, iterations.start)
    start, end, matched = _with_device(links, 0, iterations.start, iterations.end)
    none = np.zeros(len(start), np.int64)
    steps = Steps(
        none,
        np.arange(len(start)),
        marks,
        start,
        end,
        iterations.start,
        iterations.end,
        iterations.names,
    )
    lost_work.mark(links, 0, steps, matched)
    return steps


def _of_host(links: Links, host: int, *, batches: bool) -> Steps | None:
    trace, events = links.trace, links.trace.events
    rows = links.rows(ANNOTATION)
    rows = rows[links.host[rows] == host]
    rows = rows_that(trace, rows, lambda name: name.startswith(_MARKS))
    suffix = of_host(trace, host)
    engine = serving.find(links, host)
    if engine is not None:
        note = notes.steps_by_engine(suffix, len(engine.marks), engine.noun)
        labels = engines.labels(engine.iterations)
        marks = Marks(engine.marks, engine.begun, engine.done, labels, engine.iterations)
        return of_marks(links, host, marks, [note])
    steps = rows_that(trace, rows, torchnames.STEP.match)
    if len(steps):
        steps = one_thread(links, steps)
        labels = list(map(_label, map(str, trace.names[events.name[steps]])))
        marks = Marks(steps, events.start[steps], events.end[steps], labels)
        return of_marks(links, host, marks, [])
    turns = rows_that(trace, rows, torchnames.OPTIMIZER.match)
    turns = _last_of_cycle(links, turns)
    if len(turns) >= 2:
        end = events.end[turns]
        start = np.append(_first_work(links, turns[0]), end[:-1])
        noun, note = "step", notes.steps_by_optimizer(suffix, len(turns))
    elif not batches:
        return None
    else:
        turns = rows_that(trace, rows, torchnames.LOADER.match)
        turns = one_thread(links, turns)
        if len(turns) < 2:
            return None
        start = events.start[turns]
        end = np.append(start[1:], _last_work(links, turns[-1]))
        noun, note = "batch", notes.steps_by_batches(suffix, len(turns))
    labels = [f"{noun} {i}" for i in range(len(turns))]
    return of_marks(links, host, Marks(turns, start, end, labels), [note])


def _label(name: str) -> str:
    if not name.startswith(torchnames.OTHER_STEP):
        return name
    kind, _, number = name.removeprefix(torchnames.OTHER_STEP).rpartition("#")
    return f"{kind} {number}"


@dataclass(frozen=True)
class Marks:
    """The marks of a host's steps: events of one lane in time order.

    Attributes
    ----------
    event : int64[n]
    start, end : int64[n]
        Begin and end of each step on the host, ps.
    labels : list of str
    iterations : sequence of Iteration
        Iterations of an inference engine, if the steps are those.
    """

    event: Int64s
    start: Int64s
    end: Int64s
    labels: list[str]
    iterations: Sequence[engines.Iteration] = ()


def of_marks(links: Links, host: int, marks: Marks, about_marks: list[Note]) -> Steps:
    """The steps of a host by its marks, with the device work that each launched.

    Parameters
    ----------
    links : Links
    host : int
    marks : Marks
    about_marks : list of Note
        Lines for the receipt, to which those about the steps are added.
    """
    suffix = of_host(links.trace, host)
    start, end, matched = _with_device(links, host, marks.start, marks.end)
    group = np.arange(len(start))
    hidden = [marks.labels[i] for i in np.flatnonzero(end <= start).tolist()]
    if hidden:
        device_work = bool((links.host[links.work] == host).any())
        about_marks.append(notes.steps_without_time(suffix, hidden, device_work=device_work))
    truncated, evidence = _truncated(links, host, marks, matched)
    if truncated:
        about_marks.append(notes.truncated_steps(suffix, truncated, evidence))
    steps = Steps(
        host=np.full(len(start), host),
        group=group,
        event=marks.event,
        start=start,
        end=end,
        begun=marks.start,
        done=marks.end,
        names=marks.labels,
        notes=about_marks,
    )
    if truncated:
        steps.truncated.update(steps.keys[-truncated:])
    steps.iterations.update(zip(steps.keys, marks.iterations, strict=False))
    lost_work.mark(links, host, steps, matched)
    return steps


def _truncated(links: Links, host: int, marks: Marks, matched: Int64s) -> tuple[int, str]:
    """Number of steps at the end that the recording cut off, and the evidence; 0 and '' for none.

    `matched` is the number of device events of each step.
    """
    count = len(marks.event)
    comparable = np.arange(count)
    if marks.iterations:
        # An iteration may have a tenth of the work of another, unless they are alike.
        last = marks.iterations[-1]
        alike = [i for i, iteration in enumerate(marks.iterations) if iteration == last]
        comparable = np.array(alike, np.int64)
    incomplete, evidence = by_work(matched[comparable])
    if incomplete:
        return count - int(comparable[-incomplete]), evidence
    if not marks.iterations:
        evidence = by_ops(links, marks.event, marks.start, marks.end)
    evidence = evidence or _runs_on(links, host, marks)
    return int(bool(evidence)), evidence


# A last step this many times as long as any before it, and without work for most of that, goes on
# behind the loop.
_RUNS_ON, _FEWEST_BEFORE = 100, 3


def _runs_on(links: Links, host: int, marks: Marks) -> str:
    """Evidence that the last marker goes on long after the work of its step, '' for none."""
    length = marks.end - marks.start
    if len(length) <= _FEWEST_BEFORE or length[-1] < _RUNS_ON * length[:-1].max():
        return ""
    events = links.trace.events
    rows = np.concatenate([links.rows(OP, ANNOTATION, CALL), links.work])
    rows = rows[(links.host[rows] == host) & ~np.isin(rows, marks.event)]
    last = int(events.end[rows].max(initial=int(marks.start[-1])))
    idle = int(marks.end[-1]) - last
    if 2 * idle <= length[-1]:
        return ""
    return f"its marker goes on for {wording.millis(idle / 1e9)} after its last work"


def one_thread(links: Links, rows: Int64s) -> Int64s:
    """Events on the lane with most of them, in time order, without those inside others."""
    events = links.trace.events
    if not len(rows):
        return rows
    lanes, counts = np.unique(events.lane[rows], return_counts=True)
    rows = rows[events.lane[rows] == lanes[counts.argmax()]]
    start, end = events.start[rows], events.end[rows]
    reach = ends_before(end)
    # A marker inside another one is a step of a loop inside a step.
    return rows[(start >= reach) | (end > reach)]


def _last_of_cycle(links: Links, rows: Int64s) -> Int64s:
    """The last of several optimizers in turn: the most frequent, or the last to begin."""
    events = links.trace.events
    if not len(rows):
        return rows
    codes, first, counts = np.unique(events.name[rows], return_index=True, return_counts=True)
    frequent = np.flatnonzero(counts == counts.max())
    last = frequent[np.argmax(events.start[rows[first[frequent]]])]
    return one_thread(links, rows[events.name[rows] == codes[last]])


def _first_work(links: Links, mark: int) -> int:
    """When the thread of a marker began its first op, annotation or call."""
    events = links.trace.events
    rows = links.rows(OP, ANNOTATION, CALL)
    rows = rows[events.lane[rows] == events.lane[mark]]
    return int(events.start[rows[0]])


def _last_work(links: Links, mark: int) -> int:
    """When the thread of a marker ended its last op, annotation or call."""
    events = links.trace.events
    rows = links.rows(OP, ANNOTATION, CALL)
    return int(events.end[rows[events.lane[rows] == events.lane[mark]]].max())


def _with_device(
    links: Links, host: int, start: Int64s, end: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Steps stretched over the device work launched in them, and how many events of it each has."""
    events, work = links.trace.events, links.work
    host_work = np.flatnonzero((links.host[work] == host) & ~links.earlier)
    launch = links.launch[host_work]
    begun = np.where(launch >= 0, events.start[launch], events.start[work[host_work]])
    step = np.searchsorted(start, begun, side="right") - 1
    within = (step >= 0) & (begun < end[step])
    last = end.copy()
    np.maximum.at(last, step[within], events.end[work[host_work[within]]])
    # On a stream that runs nothing of the recording, old work delays nothing.
    old = work[(links.host[work] == host) & links.earlier]
    old = old[np.isin(events.lane[old], events.lane[work[host_work]])]
    free = int(events.end[old].max(initial=np.iinfo(np.int64).min))
    first, last = one_at_a_time(np.maximum(start, free), np.maximum(last, free))
    return first, last, np.bincount(step[within], minlength=len(start))


# The last steps of a recording are cut where less than this part of the device events of the step
# before was seen.
WHOLE_STEP = 0.8


def by_work(matched: Int64s) -> tuple[int, str]:
    """Number of incomplete steps at the end by their device events, and the evidence; 0 and ''.

    Parameters
    ----------
    matched : int64[n]
        Device events of each step.
    """
    last = len(matched)
    while last > 1 and matched[last - 1] < WHOLE_STEP * matched[last - 2]:
        last -= 1
    # A loop whose steps shrink all the way down says nothing about its end.
    if last in (1, len(matched)):
        return 0, ""
    evidence = f"{matched[-1]:,} device events against {matched[last - 1]:,} in the previous step"
    return len(matched) - last, evidence


def by_ops(links: Links, marks: Int64s, start: Int64s, end: Int64s) -> str:
    """Evidence that the last step ran only the first ops of the steps before, '' for none.

    A step that equals any step before is complete: some loops run a check after every few steps.

    Parameters
    ----------
    marks : int64[n]
        Markers of the steps, all of one lane.
    start, end : int64[n]
        Begin and end of the steps on that lane, ps.
    """
    if len(marks) < 2:
        return ""
    events = links.trace.events
    rows = links.rows(OP, ANNOTATION)
    rows = rows[(events.lane[rows] == events.lane[marks[0]]) & ~np.isin(rows, marks)]
    # Only what is in nothing else: ops of the last step may lack inner ones where it broke off.
    rows = rows[events.start[rows] >= ends_before(events.end[rows])]
    low, high = np.searchsorted(events.start[rows], start), np.searchsorted(events.start[rows], end)
    names = events.name[rows]
    count = high - low
    seen = names[low[-1] : high[-1]]
    n = len(seen)
    if not n:
        return ""

    def begins_alike(step: int) -> bool:
        return np.array_equal(names[low[step] : low[step] + n], seen)

    if any(map(begins_alike, np.flatnonzero(count[:-1] == n).tolist())):
        return ""
    # Two steps before it are evidence; of a single one at least a fifth must be missing.
    before = range(max(0, len(marks) - 3), len(marks) - 1)
    if (count[before] <= n).any() or not all(map(begins_alike, before)):
        return ""
    if len(before) == 1 and n >= WHOLE_STEP * count[-2]:
        return ""
    if n == 1:
        return "it ran only the first op of the previous step"
    return f"it ran the first {n:,} of the previous step's {count[-2]:,} ops"
