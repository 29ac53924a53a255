"""Replaces impossible durations of device work and of calls before anything is summed up.

Profilers now and then write a wrong end. One kernel of 20 µs that states 3 s makes every average of
a short recording wrong, so such an event counts with what the other calls of its name take, and the
receipt says so. Two kinds of evidence are needed, as kernels may be long:

- The event contradicts its surroundings. On a stream work runs one after the other, yet later work
  began and ended before this event ended; or the host had waited for the device, and went on; or
  the event outlasts the recording. On a thread calls are nested, yet this one ends long after the
  call around it.
- It is of another magnitude than all other calls of its name.

Overlaps of microseconds (programmatic dependent launch) and long work behind which nothing runs
meanwhile are left as they are. So are the nodes of one graph, which may run side by side on one
stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core.intervals import ends_before
from nbprof.core.trace import Int64s

Flags = npt.NDArray[np.bool_]

# An end may be off by less than this, ps: clocks of devices drift, and dependent kernels begin
# early.
SLACK_PS = 1_000_000_000
# Least ratio of a wrong duration to those of all other calls of the name.
_MAGNITUDE, _FAR_MAGNITUDE = 10, 100
# Calls that were launched alike take the same time if the longest is this many times the median.
_ALIKE = 2
# Some files have whole microseconds: a duration of 0 is none of a magnitude.
_SHORTEST_PS = 1_000_000
# So many other calls tell how long one takes.
FEW_CALLS = 3
# Without other calls: the duration is this many times the time until the next work on the stream.
_FAR_PAST_NEXT = 100
# Without other calls: it ends so long after the host had waited for it. Clocks of hosts and devices
# are less apart.
_FAR_PAST_WAIT_PS = 100 * SLACK_PS
# So much later work must have ended meanwhile. The one next behind may have been launched early.
_ENDED_MEANWHILE, _LOOKED_AT = 2, 8
# A first collective that waits so long, ps, waits for another rank and for no data.
_FIRST_WAIT_PS = 100 * SLACK_PS
# Clocks of a host and a device that differ by less are taken for one, ps.
_CLOCKS_APART_PS = SLACK_PS // 10
# Work that begins so long, ps, before its launch, or after later work of its stream, states a wrong
# time.
_MISPLACED_PS = 100 * SLACK_PS
_NEVER = np.iinfo(np.int64).max // 4


@dataclass(frozen=True)
class Spans:
    """Events of one host, sorted by lane and start; times in ps.

    Attributes
    ----------
    lane, start, duration : integers[n]
    name : int64[n]
        A code for what calls are compared.
    launch : int64[n]
        What put each on its lane: events of one launch may run side by side. -1 for an event by
        itself.
    in_order : bool[n]
        Whether work of the lane runs one after the other.
    """

    lane: npt.NDArray[np.integer]
    start: Int64s
    duration: Int64s
    name: Int64s
    launch: Int64s
    in_order: Flags

    @property
    def end(self) -> Int64s:
        """The end of each event."""
        return self.start + self.duration


def of_device(
    work: Spans, others_end: int, waited: tuple[Int64s, Int64s], called: Int64s
) -> Int64s:
    """The durations of device work, with those that cannot be replaced by what they are at most.

    Parameters
    ----------
    work : Spans
    others_end : int
        When everything else that was recorded of the host had ended.
    waited : (int64[k], int64[k])
        Begin and end of calls that waited for all work of the only device, in time order. None
        where there are several devices.
    called : int64[n]
        When the launch of each had ended; `_NEVER` or later where that is not known.
    """
    duration = work.duration
    n = len(duration)
    if not n or duration.max() < SLACK_PS:
        return duration
    following = _next_of_another_launch(work)
    has_next = following < n
    until_next = np.where(has_next, work.start[np.minimum(following, n - 1)] - work.start, _NEVER)
    ended = _ended_meanwhile(work, following, has_next & (duration - until_next >= SLACK_PS))
    until_wait = _waited_at(waited, called) - work.start
    too_late = _after_wait(duration, until_wait)
    outlasting = _outlasting(work, others_end, (ended > 0) | too_late, _FAR_MAGNITUDE)
    candidates = (ended > 0) | too_late | outlasting
    if not candidates.any():
        return duration
    longest, median, calls = _other_calls(work, candidates)
    enough_calls = calls >= FEW_CALLS
    larger = enough_calls & (duration >= _MAGNITUDE * longest)
    far_larger = enough_calls & (duration >= _FAR_MAGNITUDE * longest)
    overtaken = work.in_order & (ended >= _ENDED_MEANWHILE)
    wrong = (overtaken & larger) | ((ended > 0) & far_larger)
    wrong |= overtaken & ~enough_calls & (duration // _FAR_PAST_NEXT >= until_next)
    wrong |= too_late & np.where(enough_calls, larger, duration - until_wait >= _FAR_PAST_WAIT_PS)
    wrong |= outlasting & far_larger
    at_most = np.minimum(until_next, np.maximum(until_wait, 0))
    mended = np.minimum(np.where(enough_calls, median, _NEVER), at_most)
    return np.where(wrong, np.minimum(mended, duration), duration)


def outlasting(work: Spans, others_end: int) -> Flags:
    """Work that ends long after everything else and took ten times as long as other calls of it.

    Work of that name may have been larger for once: `of_alike` compares it with calls that were
    launched as it was.

    Parameters
    ----------
    work, others_end
        As of `of_device`.
    """
    return _outlasting(work, others_end, np.zeros(len(work.duration), np.bool_), _MAGNITUDE)


def of_alike(work: Spans, doubtful: Flags) -> Int64s:
    """Durations of work that was launched alike; a doubtful one takes what the others always take.

    Parameters
    ----------
    work : Spans
        `name` is a code for what was launched alike: the same kernel with the same grid.
    doubtful : bool[n]
    """
    longest, median, calls = _other_calls(work, doubtful)
    always = (calls >= FEW_CALLS) & (longest <= _ALIKE * np.maximum(median, _SHORTEST_PS))
    wrong = doubtful & always & (work.duration >= _MAGNITUDE * longest)
    return np.where(wrong, median, work.duration)


def clock_shift(
    start: Int64s, launched: Int64s, waited: tuple[Int64s, Int64s], called: Int64s, others_end: int
) -> int:
    """The time in ps to add to a device whose clock is not that of the host; 0 if it is.

    No work begins before its launch, and none after the host had waited for it. The shift is the
    least that makes both so; a few events with wrong times are none of a clock.

    Parameters
    ----------
    start : int64[n]
        Of the work of one device whose launches are known.
    launched, waited, called, others_end
        As of `misplaced`.
    """
    if not len(start):
        return 0
    shift = _most_agree_on(launched - start)
    if shift < _CLOCKS_APART_PS:
        shift = -_most_agree_on(start - _waited_at(waited, called))
        if shift > -SLACK_PS:
            return 0
    # Work is not launched longer ago than the recording takes.
    delay = int(np.median(start + shift - launched))
    if not 0 <= delay <= others_end - int(launched.min()):
        return 0
    return shift


def misplaced(
    work: Spans, others_end: int, launched: Int64s, waited: tuple[Int64s, Int64s], called: Int64s
) -> Flags:
    """Device work that cannot have begun when it says.

    It began long before its launch, which no other work did; or, on a stream, long after most of
    the work that was launched next; or long after the host had waited for it; or long after
    everything else had ended that was recorded of the host and its devices.

    Parameters
    ----------
    work, others_end, waited, called
        As of `of_device`.
    launched : int64[n]
        When the launch of each began; `_NEVER` or later where that is not known.
    """
    has_launch = launched < _NEVER
    early = has_launch & (launched - work.start >= _MISPLACED_PS)
    if int(early.sum()) > max(FEW_CALLS, len(has_launch) // _FAR_MAGNITUDE):
        # The clocks of host and device are apart.
        early[:] = False
    late = work.start - _waited_at(waited, called) >= _MISPLACED_PS
    rows = np.flatnonzero(has_launch & work.in_order & ~early)
    rows = rows[np.lexsort((work.start[rows], launched[rows], work.lane[rows]))]
    overtaken, followed = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    lane, launch, start = work.lane[rows], launched[rows], work.start[rows]
    for nth in range(1, _LOOKED_AT + 1):
        follows = (lane[:-nth] == lane[nth:]) & (launch[nth:] > launch[:-nth])
        followed[:-nth] += follows
        overtaken[:-nth] += follows & (start[:-nth] - start[nth:] >= _MISPLACED_PS)
    late[rows] |= (overtaken >= _ENDED_MEANWHILE) & (2 * overtaken > followed)
    return early | late | (has_launch & _behind_all(work, early | late, others_end))


def first_waits(collectives: Spans) -> tuple[Flags, Int64s]:
    """Collectives that waited for late ranks when recording began, and their time without it.

    The first one of a stream waits for ranks whose recording, or whose first step, began later. A
    wait in any later one is what the program does in each step.
    """
    duration, lane = collectives.duration, collectives.lane
    first = np.append(True, np.diff(lane) != 0) if len(lane) else np.zeros(0, np.bool_)
    other_durations = duration[~first]
    if len(other_durations) < FEW_CALLS:
        return np.zeros(len(lane), np.bool_), duration
    waits = (
        first & (duration >= _FIRST_WAIT_PS) & (duration >= _MAGNITUDE * int(other_durations.max()))
    )
    taken = duration.copy()
    for row in np.flatnonzero(waits).tolist():
        alike = duration[~first & (collectives.name == collectives.name[row])]
        taken[row] = int(np.median(alike if len(alike) else other_durations))
    return waits, taken


def of_threads(calls: Spans) -> Int64s:
    """Durations of nested calls; those that end long after the call around them are replaced."""
    duration = calls.duration
    if not len(duration) or duration.max() < SLACK_PS:
        return duration
    reach = ends_before(calls.end, calls.lane)
    candidates = (calls.start < reach) & (calls.end - reach >= SLACK_PS)
    if not candidates.any():
        return duration
    longest, median, count = _other_calls(calls, candidates)
    wrong = candidates & (count >= FEW_CALLS) & (duration >= _FAR_MAGNITUDE * longest)
    return np.where(wrong, median, duration)


def of_ops(ops: Spans, until: Int64s) -> Int64s:
    """Durations of ops of compiled programs; impossible ones become the longest possible ones.

    Ops of control flow contain those that they run, so that an op which contains others proves
    nothing. But an op ends with its program, no op contains itself, and one that never runs others
    does not do so once.

    Parameters
    ----------
    ops : Spans
        Ops of one core by the name that they have in their program.
    until : int64[n]
        When the run of a program had ended in which each began; `_NEVER` where that is not known.
    """
    duration, start = ops.duration, ops.start
    if not len(duration) or duration.max() < SLACK_PS:
        return duration
    until_end = until - start
    over = duration - until_end
    outlasts = (over >= SLACK_PS) & (over >= duration // 2)
    until_itself = _until_next_call(ops)
    candidates = outlasts | (duration - until_itself >= SLACK_PS)
    candidates |= _contains_for_once(ops, candidates)
    if not candidates.any():
        return duration
    longest, median, calls = _other_calls(ops, candidates)
    enough_calls = calls >= FEW_CALLS
    wrong = candidates & enough_calls & (duration >= _FAR_MAGNITUDE * longest)
    # No op runs on after its program, so less of a difference to its other calls is enough.
    wrong |= outlasts & enough_calls & (duration >= _MAGNITUDE * longest)
    wrong |= outlasts & ~enough_calls & (over >= _FAR_PAST_WAIT_PS)
    at_most = np.minimum(np.maximum(until_end, 0), until_itself)
    mended = np.minimum(np.where(enough_calls, median, _NEVER), at_most)
    return np.where(wrong, np.minimum(mended, duration), duration)


def outside(ops: Spans, runs: Spans) -> Flags:
    """Ops that begin long before or after all runs of programs of their core, which contain ops."""
    if not len(runs.start) or not len(ops.start):
        return np.zeros(len(ops.start), np.bool_)
    begin, reach = runs.start, np.maximum.accumulate(runs.end)
    nth = np.searchsorted(begin, ops.start, side="right")
    since = np.where(nth > 0, ops.start - reach[np.maximum(nth - 1, 0)], _NEVER)
    until = np.where(nth < len(begin), begin[np.minimum(nth, len(begin) - 1)] - ops.start, _NEVER)
    far = np.minimum(since, until) >= _MISPLACED_PS
    if int(far.sum()) <= max(FEW_CALLS, len(far) // _FAR_MAGNITUDE) and far.sum() < len(far):
        return far
    return np.zeros(len(far), np.bool_)


def in_turn(steps: Spans) -> Int64s:
    """Durations of steps of a core, which follow one another: each ends before the next begins.

    Parameters
    ----------
    steps : Spans
    """
    until_next = np.full(len(steps.start), _NEVER, np.int64)
    follows = np.diff(steps.lane) == 0
    until_next[:-1][follows] = np.diff(steps.start)[follows]
    later = until_next > 0
    over = later & (steps.duration - until_next >= SLACK_PS)
    return np.where(over, until_next, steps.duration)


def of_markers(steps: Spans) -> Int64s:
    """Durations of step markers, trimmed to the begin of the next step.

    Parameters
    ----------
    steps : Spans
        Markers of steps; `launch` is the number of each. A loop inside a step counts anew.
    """
    duration = steps.duration
    if len(duration) < 2:
        return duration
    follows = (np.diff(steps.lane) == 0) & (np.diff(steps.name) == 0) & (np.diff(steps.launch) == 1)
    until_next = np.append(np.where(follows, np.diff(steps.start), _NEVER), _NEVER)
    over = duration - until_next
    return np.where((over >= SLACK_PS) & (over >= duration // 2), until_next, duration)


def _until_next_call(calls: Spans) -> Int64s:
    """Time from each call to the next of its name on its lane; `_NEVER` after the last."""
    order = np.lexsort((calls.start, calls.name, calls.lane))
    alike = (np.diff(calls.lane[order]) == 0) & (np.diff(calls.name[order]) == 0)
    limit = np.full(len(order), _NEVER, np.int64)
    limit[order[:-1][alike]] = np.diff(calls.start[order])[alike]
    return limit


def _contains_for_once(ops: Spans, wrong: Flags) -> Flags:
    """Long calls with ops inside whose names have none in any other call; without `wrong` ones."""
    n = len(wrong)
    following = np.minimum(np.arange(1, n + 1), n - 1)
    next_start = np.where(
        (ops.lane[following] == ops.lane) & (following > np.arange(n)), ops.start[following], _NEVER
    )
    contains = (ops.end - next_start >= SLACK_PS) & ~wrong
    name, count = np.unique(ops.name[(ops.end > next_start) & ~wrong], return_counts=True)
    once = name[count == 1]
    return contains & np.isin(ops.name, once)


def _next_of_another_launch(work: Spans) -> Int64s:
    """The next event of each lane by another launch; the number of events if there is none."""
    n = len(work.start)
    by_itself = work.launch < 0
    changes = np.append(
        True, (np.diff(work.lane) != 0) | (np.diff(work.launch) != 0) | by_itself[1:]
    )
    begins = np.append(np.flatnonzero(changes), n)
    following = begins[np.searchsorted(begins, np.arange(n), side="right")]
    other_lane = work.lane[np.minimum(following, n - 1)] != work.lane
    return np.where(other_lane, n, following)


def _ended_meanwhile(work: Spans, following: Int64s, asked: Flags) -> Int64s:
    """Number of the next few events of a lane that ended long before each event did."""
    result = np.zeros(len(following), np.int64)
    rows = np.flatnonzero(asked)
    lane, end = work.lane, work.end
    for nth in range(_LOOKED_AT):
        later = following[rows] + nth
        rows, later = rows[later < len(lane)], later[later < len(lane)]
        result[rows] += (lane[later] == lane[rows]) & (end[later] + SLACK_PS // 2 <= end[rows])
    return result


def _waited_at(waited: tuple[Int64s, Int64s], called: Int64s) -> Int64s:
    """Time at which a call after the launch of each had waited for the device; else `_NEVER`."""
    begin, end = waited
    if not len(begin):
        return np.full(len(called), _NEVER, np.int64)
    nth = np.searchsorted(begin, called, side="left")
    # Of calls on several threads, the first to return.
    earliest = np.minimum.accumulate(end[::-1])[::-1]
    return np.append(earliest, _NEVER)[nth]


def _after_wait(duration: Int64s, until_wait: Int64s) -> Flags:
    """Work that seems to have run on for most of its time after the host had waited for it."""
    over = duration - until_wait
    return (over >= SLACK_PS) & (over >= duration // 2)


def _most_agree_on(excess: Int64s) -> int:
    """The largest value, without a few that lie far above all others; 0 if there are only few."""
    few = max(FEW_CALLS, len(excess) // 1_000)
    if len(excess) <= few:
        return 0
    nth = np.partition(excess, -few - 1)[-few - 1]
    return int(excess[excess <= nth + SLACK_PS].max())


def _behind_all(work: Spans, wrong: Flags, others_end: int) -> Flags:
    """Work that begins after a gap as long as the recording; a few events, without wrong ones."""
    rows = np.flatnonzero(~wrong)
    rows = rows[np.argsort(work.start[rows], kind="stable")]
    is_wrong = np.zeros(len(wrong), np.bool_)
    if len(rows) < 2 or not others_end:
        return is_wrong
    reach = np.maximum(np.maximum.accumulate(work.end[rows])[:-1], others_end)
    gap = work.start[rows][1:] - reach
    far = np.flatnonzero((gap >= _MISPLACED_PS) & (gap >= reach - work.start[rows[0]]))
    if len(far) and len(rows) - 1 - far[0] <= max(FEW_CALLS, len(rows) // _FAR_MAGNITUDE):
        is_wrong[rows[far[0] + 1 :]] = True
    return is_wrong


def _outlasting(work: Spans, others_end: int, suspects: Flags, magnitude: int) -> Flags:
    """Work of another magnitude than its other calls that is alone for most of its time."""
    end = work.end
    late = (end - others_end >= SLACK_PS) & (work.duration >= SLACK_PS)
    if not late.any():
        return late
    longest, _, calls = _other_calls(work, late | suspects)
    late &= (calls >= FEW_CALLS) & (work.duration >= magnitude * longest)
    bound = max(others_end, int(end[~(late | suspects)].max(initial=others_end)))
    over = end - bound
    return late & (over >= SLACK_PS) & (over >= work.duration // 2)


def _other_calls(spans: Spans, candidates: Flags) -> tuple[Int64s, Int64s, Int64s]:
    """Longest, median and number of the other calls of each event's name, without candidates."""
    n = len(candidates)
    longest, median, count = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    for name in np.unique(spans.name[candidates]).tolist():
        same = spans.name == name
        durations = spans.duration[same & ~candidates]
        if len(durations):
            longest[same] = max(int(durations.max()), _SHORTEST_PS)
            median[same], count[same] = int(np.median(durations)), len(durations)
    return longest, median, count
