"""Finds repeats in a sequence of events: the first event of each, and their agreement.

The repeats are those of a loop whose body does the same work each time: the kernels that a stream
runs, or the ops that a thread runs. An event of the body that runs a fixed number of times in each
repeat has a count that is a multiple of the number of repeats; so the number that divides the
counts of most events is tried first, with the first event that has this count as the border between
repeats. Inserted and missing events cost only themselves, since each repeat is compared with the
others by how often it has each event.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Events, Int64s

FEWEST = 3
"""Repeats that make a repetition."""
FEWEST_ALONE = 8
"""The same where a repeat is a single event."""
AGREEMENT = 0.9
"""The least share of the events that fit, for a repetition to be claimed."""
_CANDIDATES = 8
_EQUAL = 0.005
_EPILOGUE = 1.5
"""The last repeat ends after so many times the usual number of events, at the latest: what follows
is not part of it.
"""


MOST_OF = 0.5
"""Of the time from the first event of work to the last that repeats take, at least, to be the unit
of a recording.
"""


@dataclass(frozen=True)
class Repeats:
    """A repetition.

    Attributes
    ----------
    first : int64[n]
        Position in the sequence of the first event of each repeat.
    end : int
        Position after the last event of the last repeat.
    length : int
        Events of a repeat: their median.
    agreement : float
        Share of all events of the sequence that fit, 0 to 1.
    """

    first: Int64s
    end: int
    length: int
    agreement: float


def on_busiest_lane(events: Events, rows: Int64s) -> Int64s:
    """Events on the lane on which they take most time, in time order."""
    busy = np.bincount(events.lane[rows], events.duration[rows].astype(np.float64))
    rows = rows[events.lane[rows] == busy.argmax()]
    return rows[np.argsort(events.start[rows], kind="stable")]


def find(codes: npt.NDArray[np.integer]) -> Repeats | None:
    """The repetition that most events of a sequence fit, with the most repeats if equally good.

    None where no repetition has at least `AGREEMENT`.

    Parameters
    ----------
    codes : int[n]
        What each event is, as a code from 0, in the order of time.
    """
    if len(codes) < FEWEST:
        return None
    counts = np.bincount(codes)
    best: Repeats | None = None
    for count in _candidates(counts):
        # Before they are compared: of few long repeats the part before the first border is much.
        candidate = between(codes, _from_the_first(codes, _borders(codes, counts, count)))
        if candidate is not None and (best is None or _better(candidate, best)):
            best = candidate
    if best is None:
        return None
    longer = _of_repeats(codes, best)
    return longer if longer is not None and _better(longer, best) else best


def _of_repeats(codes: npt.NDArray[np.integer], parts: Repeats) -> Repeats | None:
    """The repetition whose parts are repeats, as layers of a model are parts of a step.

    No event needs to occur once in each: the parts are compared by what they consist of.
    """
    if parts.agreement > 1 - _EQUAL:
        return None
    width = int(codes.max()) + 1
    part = np.searchsorted(parts.first, np.arange(parts.first[0], parts.end), side="right") - 1
    pairs, counts = np.unique(part * width + codes[parts.first[0] : parts.end], return_counts=True)
    edges = np.searchsorted(pairs, np.arange(len(parts.first) + 1) * width)
    contents = []
    for low, high in itertools.pairwise(edges):
        contents.append((pairs[low:high] % width).tobytes() + counts[low:high].tobytes())
    kinds = np.unique(np.array(contents, dtype=object), return_inverse=True)[1]
    repeated = find(kinds)
    if repeated is None or repeated.length == 1:
        return None
    return between(codes, _from_the_first(codes, parts.first[repeated.first]))


def _from_the_first(codes: npt.NDArray[np.integer], first: Int64s) -> Int64s:
    """Borders of the same repeats, beginning with the earliest matching event."""
    if len(first) < FEWEST:
        return first
    longest = min(int(first[0]), _length(first) - 1)
    before = 0
    while (
        before < longest
        and (codes[first - before - 1] == codes[first[0] - before - 1]).mean() >= AGREEMENT
    ):
        before += 1
    return first - before


def _length(first: Int64s) -> int:
    return max(int(np.median(np.diff(first))), 1)


def _better(candidate: Repeats, best: Repeats) -> bool:
    """True if more events fit, or as many with more repeats."""
    if abs(candidate.agreement - best.agreement) <= _EQUAL:
        return len(candidate.first) > len(best.first)
    return candidate.agreement > best.agreement


def between(codes: npt.NDArray[np.integer], first: Int64s) -> Repeats | None:
    """The repetition whose repeats begin at some positions; None where it is none.

    Parameters
    ----------
    codes : int[n]
        What each event is, as a code from 0.
    first : int64[k]
        Positions, ascending.
    """
    if len(first) < FEWEST:
        return None
    length = _length(first)
    if length == 1 and len(first) < FEWEST_ALONE:
        return None
    end = min(len(codes), int(first[-1]) + max(int(_EPILOGUE * length), length))
    agreement = _agreement(codes, first, end)
    if agreement < AGREEMENT:
        return None
    return Repeats(first, _end_of_last(codes, first, end), length, agreement)


def _candidates(counts: Int64s) -> list[int]:
    """Numbers of repeats to try, by the share of events whose counts they divide."""
    total = counts.sum()
    several = counts[counts >= FEWEST]
    possible = np.unique(several)
    scores = []
    for count in possible.tolist():
        scores.append((int(several[several % count == 0].sum()) / total, count))
    scores.sort(reverse=True)
    return [count for _, count in scores[:_CANDIDATES]]


def _borders(codes: npt.NDArray[np.integer], counts: Int64s, count: int) -> Int64s:
    """Index of the first event with a number of occurrences."""
    position = np.flatnonzero(counts[codes] == count)[0]
    return np.flatnonzero(codes == codes[position])


def _agreement(codes: npt.NDArray[np.integer], first: Int64s, end: int) -> float:
    """Share of events that each repeat has as often as the repeats have on average."""
    repeated = codes[first[0] : end]
    repeat = np.searchsorted(first, np.arange(first[0], end), side="right") - 1
    width = int(codes.max()) + 1
    pairs, counts = np.unique(repeat * width + repeated, return_counts=True)
    of_code = pairs % width
    expected = np.rint(np.bincount(repeated, minlength=width) / len(first)).astype(np.int64)
    fitting = int(np.minimum(counts, expected[of_code]).sum())
    return fitting / max(len(codes), int(expected.sum()) * len(first))


def _end_of_last(codes: npt.NDArray[np.integer], first: Int64s, end: int) -> int:
    """End of the last repeat: behind its last event that the previous one has as often."""
    before = np.bincount(codes[first[-2] : first[-1]], minlength=int(codes.max()) + 1)
    last = int(first[-1])
    for position in range(int(first[-1]), end):
        code = codes[position]
        if before[code] > 0:
            before[code] -= 1
            last = position
    return last + 1
