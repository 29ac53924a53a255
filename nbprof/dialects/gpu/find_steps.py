"""The steps of a Kineto trace, and which of them each instant of work counts for.

A step lasts from the end of the one before, or its own begin on the host where that is later, to
its end on the host or the end of the last device work launched in it, whichever is later: so steps
neither overlap nor leave work out that the device still had to do.

What the device still had to do when the recording began was launched in steps that nothing is known
of. It stands for the step before the first, which begins when the last of it ends, and counts for
none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nbprof.core.intervals import ends_before, one_at_a_time
from nbprof.core.trace import Int64s, Note
from nbprof.dialects import torchnames
from nbprof.dialects.gpu import engines, lost_work, serving
from nbprof.dialects.gpu.lanes import ANNOTATION, CALL, OP
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.iterations import Placed, first_events
from nbprof.display import wording

_MARKS = ("ProfilerStep", torchnames.OTHER_STEP, "Optimizer.step#", "enumerate(")


def find(links: Links, *, batches: bool = True) -> Steps:
    """Finds the steps: iterations of an engine, marks, optimizer steps, or batches.

    A host uses the first kind of these that it has; batches only with `batches`, since something
    better may be known of the loop that asked for them.

    Without `batches` these are no steps: something better is known of the loop that asked for them.
    """
    parts = [_of_host(links, host, batches=batches) for host in range(len(links.trace.hosts))]
    return Steps.joined([part for part in parts if part is not None])


def with_batches(links: Links, steps: Steps) -> Steps:
    """The steps, and the batches that hosts without any asked for."""
    done = set(steps.host.tolist())
    rest = [
        _of_host(links, host, batches=True)
        for host in range(len(links.trace.hosts))
        if host not in done
    ]
    return Steps.joined([steps, *(part for part in rest if part is not None)])


def of_iterations(links: Links, iterations: Placed) -> Steps:
    """The iterations of a loop as steps, with the device work that each launched."""
    rows = np.sort(np.concatenate([links.rows(OP, ANNOTATION, CALL), links.work]))
    marks = first_events(
        links.trace, rows if len(rows) else np.arange(len(links.trace.events)), iterations.start
    )
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
    named = [*np.flatnonzero([n.startswith(_MARKS) for n in trace.names])]
    rows = links.rows(ANNOTATION)
    rows = rows[np.isin(events.name[rows], named) & (links.host[rows] == host)]
    names = [str(trace.names[c]) for c in events.name[rows].tolist()]
    notes: list[Note] = []
    of_host = f" of {trace.hosts[host]}" if len(trace.hosts) > 1 else ""
    if (engine := serving.find(links, host)) is not None:
        notes.append(
            Note(
                "info",
                f"Steps{of_host} are the {len(engine.marks):,} iterations of an inference engine, by"
                f" its {engine.what}.",
            )
        )
        return of_marks(
            links,
            host,
            engine.marks,
            engine.begun,
            engine.done,
            engines.labels(engine.said),
            notes,
            engine.said,
        )
    marks = rows[[bool(torchnames.STEP.match(n)) for n in names]] if names else rows
    if len(marks):
        marks = one_thread(links, marks)
        start, end = events.start[marks], events.end[marks]
        labels = [_label(str(trace.names[c])) for c in events.name[marks].tolist()]
    else:
        turns = rows[[bool(torchnames.OPTIMIZER.match(n)) for n in names]] if names else rows
        turns = _last_of_cycle(links, turns)
        if len(turns) >= 2:
            end = events.end[turns]
            start = np.append(_first_work(links, turns[0]), end[:-1])
            noun, text = "step", f"the {len(turns)} optimizer steps"
        elif not batches:
            return None
        else:
            turns = rows[[bool(torchnames.LOADER.match(n)) for n in names]] if names else rows
            turns = one_thread(links, turns)
            if len(turns) < 2:
                return None
            start = events.start[turns]
            end = np.append(start[1:], _last_work(links, turns[-1]))
            noun, text = (
                "batch",
                f"the {len(turns)} batches that the loop requested from its DataLoader",
            )
        marks, labels = turns, [f"{noun} {i}" for i in range(len(turns))]
        text = (
            f"The profile has no ProfilerStep{of_host}: steps are taken from {text}. prof.step()"
            " marks them exactly."
        )
        notes.append(Note("info", text))
    return of_marks(links, host, marks, start, end, labels, notes)


def _label(name: str) -> str:
    if not name.startswith(torchnames.OTHER_STEP):
        return name
    kind, _, number = name.removeprefix(torchnames.OTHER_STEP).rpartition("#")
    return f"{kind} {number}"


def of_marks(
    links: Links,
    host: int,
    marks: Int64s,
    start: Int64s,
    end: Int64s,
    labels: list[str],
    notes: list[Note],
    iterations: Sequence[engines.Iteration] = (),
) -> Steps:
    """The steps of a host by what marks them, with the device work that each launched.

    Parameters
    ----------
    links : Links
    host : int
    marks : int64[n]
        Events of one lane, in time order.
    start, end : int64[n]
        When the host began and ended each, ps.
    labels : list of str
    notes : list of Note
        Lines for the receipt, to which those about the steps are added.
    iterations : sequence of Iteration
        What an inference engine ran in each, where that is what they are.
    """
    of_host = f" of {links.trace.hosts[host]}" if len(links.trace.hosts) > 1 else ""
    broken = "" if iterations else by_ops(links, marks, start, end)
    begun, done = start, end
    start, end, matched = _with_device(links, host, start, end)
    group = np.arange(len(start))
    if hidden := [
        name for name, length in zip(labels, (end - start).tolist(), strict=True) if length <= 0
    ]:
        listed = ", ".join(hidden[:4]) + (
            f" and {len(hidden) - 4:,} more" if len(hidden) > 4 else ""
        )
        single = len(hidden) == 1
        ended = (
            "ended while the device was still running the previous one, and launched nothing that"
            " ran later"
        )
        if not (links.host[links.work] == host).any():
            # Nothing but the marks themselves can hide a step.
            ended = "ended no later than the previous one, or as soon as it began"
        notes.append(
            Note(
                "warning",
                f"{'A step' if single else f'{len(hidden):,} steps'}{of_host} {ended}:"
                f" {'it has' if single else 'they have'} no time of {'its' if single else 'their'} own"
                f" and {'is' if single else 'are'} not listed ({listed}).",
            )
        )
    # One iteration may have a tenth of the work of another, unless they are alike.
    alike = np.array(
        [i for i, iteration in enumerate(iterations) if iteration == iterations[-1]]
        if iterations
        else group,
        np.int64,
    )
    truncated, last = by_work(matched[alike])
    truncated = len(group) - int(alike[-truncated]) if truncated else 0
    if not truncated:
        last = broken or _runs_on(links, host, marks, begun, done)
        truncated = int(bool(last))
    if truncated:
        text = (
            f"The last step{of_host} was"
            if truncated == 1
            else f"The last {truncated} steps{of_host} were"
        )
        notes.append(
            Note(
                "warning",
                f"{text} cut off by the end of the recording ({last}): shown, but not averaged.",
            )
        )
    last_ones = {(host, int(g)) for g in group[len(group) - truncated :]}
    by_step = {(host, i): iteration for i, iteration in enumerate(iterations)}
    steps = Steps(
        np.full(len(start), host),
        group,
        marks,
        start,
        end,
        begun,
        done,
        labels,
        last_ones,
        set(),
        notes,
        by_step,
    )
    lost_work.mark(links, host, steps, matched)
    return steps


# A last step this many times as long as any before it, and without work for most of that, goes on
# behind the loop.
_RUNS_ON, _FEWEST_BEFORE = 100, 3


def _runs_on(links: Links, host: int, marks: Int64s, begun: Int64s, done: Int64s) -> str:
    """Evidence that the last marker goes on long after the work of its step, '' for none."""
    length = done - begun
    if len(length) <= _FEWEST_BEFORE or length[-1] < _RUNS_ON * length[:-1].max():
        return ""
    events = links.trace.events
    rows = np.concatenate([links.rows(OP, ANNOTATION, CALL), links.work])
    rows = rows[(links.host[rows] == host) & ~np.isin(rows, marks)]
    last = int(events.end[rows].max(initial=int(begun[-1])))
    idle = int(done[-1]) - last
    return (
        f"its marker goes on for {wording.millis(idle / 1e9)} after its last work"
        if 2 * idle > length[-1]
        else ""
    )


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
    """The last of several optimizers that step in turn: the most frequent, else the last to begin."""
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
    truncated = len(matched) - last if last > 1 else 0
    return (
        truncated,
        (
            f"{matched[-1]:,} device events against {matched[-truncated - 1]:,} in the previous step"
            if truncated
            else ""
        ),
    )


def by_ops(links: Links, marks: Int64s, start: Int64s, end: Int64s) -> str:
    """Evidence that the last step ran only the first ops of the steps before, '' for none.

    A step that equals any step before is complete: some loops run a check after every few steps.

    That holds for a step as well that follows two with a check behind their training, so it must
    not equal any step before.

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
    if not n or any(
        np.array_equal(names[low[i] : high[i]], seen)
        for i in np.flatnonzero(count[:-1] == n).tolist()
    ):
        return ""
    # Two steps before it are evidence; of a single one at least a fifth must be missing.
    before = range(max(0, len(marks) - 3), len(marks) - 1)
    if any(count[i] <= n or not np.array_equal(names[low[i] : low[i] + n], seen) for i in before):
        return ""
    if len(before) == 1 and n >= WHOLE_STEP * count[-2]:
        return ""
    return (
        f"it ran the first {n:,} of the previous step's {count[-2]:,} ops"
        if n > 1
        else "it ran only the first op of the previous step"
    )
