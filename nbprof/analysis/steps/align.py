"""Which steps of several hosts are one step: TensorFlow Profiler's intersection of steps.

The hosts of a job run the same steps, but their recordings begin and end at different ones. Each host is shifted by a whole number of
steps against the chief, so that the steps that are laid on one another overlap for the longest time; common steps are those that all
hosts have then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int64s, Note

Floats = npt.NDArray[np.float64]


@dataclass
class HostSteps:
    """The steps of one host in time order: name of the host, begin and end of each (any unit, one for all hosts), number of each."""

    host: str
    begin: Floats
    end: Floats
    number: Int64s


@dataclass
class Aligned:
    """Which steps are common.

    Attributes
    ----------
    steps : how many steps all hosts have
    first : by host, the index of its step that is the first common one; None for a host that could not be aligned
    chief : index of the host whose numbers the steps have
    notes : what a reader must know of it
    """

    steps: int
    first: list[int | None]
    chief: int
    notes: list[Note] = field(default_factory=list)


def align(hosts: Sequence[HostSteps]) -> Aligned:
    """The common steps of several hosts, each with at least one step.

    The chief is the host with the shortest time from the begin of its first step to the end of its last. Every other host gets the offset
    k (its step i is step i + k of the chief) for which the steps overlap longest in time; of equal ones 0, 1, 2 … and then -1, -2 …

    Where the steps of a host overlap with none of the chief's, its clock is another one or it ran at another time: then the offset is the
    one under which most steps have the same number. (XProf takes offset 0 there.) A host that shares no number either is left out.
    """
    spans = [float(h.end.max() - h.begin.min()) for h in hosts]
    chief = int(np.argmin(spans))
    notes: list[Note] = []
    offsets: list[int | None] = []
    for at, one in enumerate(hosts):
        offset = 0 if at == chief else offset_by_overlap(one, hosts[chief])
        if offset is None:
            offset = _offset_by_number(one, hosts[chief])
            apart = f"The steps of {one.host} and of {hosts[chief].host} do not overlap in time"
            if offset is None:
                notes.append(Note("warning", f"{apart} and have no number in common: they are not compared, {one.host} is left out."))
            else:
                notes.append(Note("warning", f"{apart}: they are compared by their numbers."))
        elif at != chief:
            notes += _renumbered(one, hosts[chief], offset)
        offsets.append(offset)
    # In the chief's numbering.
    low = max(k for k in offsets if k is not None)
    high = min(len(h.begin) + k for h, k in zip(hosts, offsets, strict=True) if k is not None)
    low = max(low, 0)
    if high <= low:
        notes.append(Note("warning", "No step was recorded by all hosts: there is none to compare them by."))
        return Aligned(0, [None] * len(hosts), chief, notes)
    first = [None if k is None else low - k for k in offsets]
    used = [h for h, k in zip(hosts, offsets, strict=True) if k is not None]
    if outside := sum(len(h.begin) - (high - low) for h in used):
        what = "step is" if outside == 1 else "steps are"
        notes.append(
            Note(
                "info",
                f"{outside:,} {what} left out of the comparison of hosts: not all of them recorded {'it' if outside == 1 else 'them'}.",
            )
        )
    return Aligned(high - low, first, chief, notes)


def offset_by_overlap(one: HostSteps, chief: HostSteps) -> int | None:
    """The offset under which the steps of two hosts overlap longest; None where no step overlaps with any."""
    count, other = len(one.begin), len(chief.begin)
    # Steps are in order of their begin. Those of the chief that a step can overlap with lie between two places.
    reached = np.maximum.accumulate(chief.end)
    low = np.searchsorted(reached, one.begin, side="right")
    high = np.searchsorted(chief.begin, one.end, side="left")
    many = np.maximum(high - low, 0)
    mine = np.repeat(np.arange(count), many)
    theirs = np.arange(len(mine)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(low, many)
    overlap = np.minimum(one.end[mine], chief.end[theirs]) - np.maximum(one.begin[mine], chief.begin[theirs])
    score = np.bincount(theirs - mine + count - 1, weights=np.maximum(overlap, 0), minlength=count + other - 1)
    return _best(score, count)


def _offset_by_number(one: HostSteps, chief: HostSteps) -> int | None:
    """The offset under which most steps of two hosts have the same number; None where they share none."""
    count, other = len(one.number), len(chief.number)
    order = np.argsort(chief.number, kind="stable")
    ordered = chief.number[order]
    low = np.searchsorted(ordered, one.number, side="left")
    many = np.searchsorted(ordered, one.number, side="right") - low
    mine = np.repeat(np.arange(count), many)
    theirs = order[np.arange(len(mine)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(low, many)]
    return _best(np.bincount(theirs - mine + count - 1, minlength=count + other - 1), count)


def _best(score: npt.NDArray[np.floating] | npt.NDArray[np.integer], count: int) -> int | None:
    """The offset of the largest score; `score` begins with that of offset -(count - 1)."""
    if not len(score) or score.max() <= 0:
        return None
    zero = count - 1
    preferred = np.concatenate([score[zero:], score[:zero][::-1]])
    best = int(np.argmax(preferred))
    ahead = len(score) - zero
    return best if best < ahead else ahead - 1 - best


def _renumbered(one: HostSteps, chief: HostSteps, offset: int) -> list[Note]:
    """Says it where two hosts count the same steps by different numbers."""
    low, high = max(0, -offset), min(len(one.number), len(chief.number) - offset)
    differ = np.unique(one.number[low:high] - chief.number[low + offset : high + offset])
    if len(differ) != 1 or not differ[0]:
        return []
    at, there = int(one.number[low]), int(chief.number[low + offset])
    return [Note("info", f"Steps are matched by time: number {at} of {one.host} is number {there} of {chief.host}.")]
