"""Enough of a cell: when the recording of marked steps may end."""

from __future__ import annotations

import re
from statistics import median

from nbprof.core.units import duration_text, size_text
from nbprof.core.warmup_limits import ALIKE, FEW_FACTOR, FOLLOWING, MOST_WARMUP, WARMUP_FACTOR

STEPS, SECONDS = 20, 3.0
"""So many steps after warm-up that together last so long are enough."""
MOST_S = 10.0
"""No more than so many seconds of steps after warm-up are recorded, but always `FEWEST` steps."""
FEWEST = 2
EVENTS = 1_000_000
"""No more than about so many events are recorded after `SECONDS`, in which recorders make hardly
more.
"""

_FIRST = MOST_WARMUP + STEPS
"""Steps by whose times the warm-up is found."""
_TRAIN, _EVALUATIONS = "train", ("test", "predict")
_TRAINS = re.compile(r"\b(?:fit|train\w*)\(")
_NS = 1_000_000_000


def trains(source: str) -> bool:
    """Return whether the code of a cell calls a function that trains by its name."""
    return _TRAINS.search(re.sub(r"#.*", "", source)) is not None


def warmup_steps(times: list[int]) -> int:
    """The number of first steps that are warm-up, by the rule of `nbprof.analysis.steps.warmup`."""
    if len(times) < 2:
        return 0
    first, rest = times[0], times[1:]
    if len(times) <= FOLLOWING:
        alike = len(rest) > 1 and max(rest) <= ALIKE * min(rest)
        return int(first > (FEW_FACTOR if alike else WARMUP_FACTOR) * max(rest))
    count = 0
    while count < min(MOST_WARMUP, len(times) - FOLLOWING) and times[
        count
    ] > WARMUP_FACTOR * median(times[count + 1 :]):
        count += 1
    return count


class _Series:
    """The steps of one kind.

    Parameters
    ----------
    warmup : int or None
        The number of them that are warm-up, if that was asked for.
    """

    __slots__ = ("_asked", "_settled", "count", "first", "kept", "starts", "total_ns")

    def __init__(self, warmup: int | None) -> None:
        self.count = self.total_ns = 0
        self.first: list[int] = []
        self.starts: list[int] = []
        self.kept = max(_FIRST, (warmup or 0) + FEWEST)
        """The number of steps whose times are kept."""
        self._asked = warmup
        self._settled: tuple[int, int] | None = None

    def warmup(self) -> tuple[int, int]:
        """The number of the steps so far that are warm-up, and the ns that they took."""
        if self._settled is not None:
            return self._settled
        count = warmup_steps(self.first[:_FIRST])
        if self._asked is not None:
            count = min(self._asked, len(self.first) - 1)
        result = count, sum(self.first[:count])
        if len(self.first) == self.kept:
            self._settled = result
        return result

    def alike(self, warmup: int) -> bool:
        """True if the first steps after warm-up take about the same time."""
        after = self.first[warmup:]
        return max(after) <= FEW_FACTOR * min(after)


class Enough:
    """Decides at the end of each recorded step whether enough is known.

    Training is what a recording is about: once a step of it was seen, or where the cell is known to
    train, the steps of evaluations are not enough.

    Parameters
    ----------
    warmup : int or None
        The number of first steps that are warm-up, if that was asked for.
    trains : bool
        True if the cell trains.

    Attributes
    ----------
    grown : int
        Bytes by which the process has grown since the first step, once about `EVENTS` events take
        them; else 0. It is set by another thread.
    why : str
        What the recording went on until, as part of a sentence; empty while it goes on.
    """

    def __init__(self, warmup: int | None = None, *, trains: bool = False) -> None:
        self.grown = 0
        self.why = ""
        self._warmup = warmup
        self._trains = trains
        self._series: dict[str, _Series] = {}
        self._total_ns = 0
        self._due_ns = 0

    def stepped(self, kind: str, start_ns: int, end_ns: int) -> bool:
        """A step has ended; True once enough is known."""
        series = self._series.get(kind)
        if series is None:
            series = self._begin(kind, start_ns)
        series.count += 1
        took_ns = end_ns - start_ns
        series.total_ns += took_ns
        self._total_ns += took_ns
        if series.count <= series.kept:
            series.first.append(took_ns)
            series.starts.append(start_ns)
        if end_ns < self._due_ns:
            return False
        return self._decide(kind, series, end_ns)

    def _begin(self, kind: str, start_ns: int) -> _Series:
        if not self._series or kind == _TRAIN:
            # Evaluations before a training do not count.
            self._due_ns, self._total_ns = start_ns + int(SECONDS * _NS), 0
        # A program may call each step by another name.
        key = kind if kind == _TRAIN or len(self._series) < 100 else ""
        return self._series.setdefault(key, _Series(self._warmup))

    def _decide(self, kind: str, series: _Series, end_ns: int) -> bool:
        trained = self._series.get(_TRAIN)
        if trained is None and self._trains and kind in _EVALUATIONS:
            return False
        main = trained or series
        warmup, warmup_ns = main.warmup()
        count = main.count - warmup
        if count < FEWEST or main.count <= FEWEST:
            return False
        if main.count < MOST_WARMUP + FOLLOWING and not main.alike(warmup):
            # These may be warm-up, too.
            return False
        steps_s = (main.total_ns - warmup_ns) / _NS
        # Of steps with time in between, and of those that return before their work is done.
        passed_s = (end_ns - main.starts[warmup]) / _NS
        if main is series and count >= STEPS and (steps_s >= SECONDS or passed_s >= MOST_S):
            lasted = duration_text(steps_s if steps_s >= SECONDS else passed_s)
            self.why = f"{count:,} steps after warm-up had taken {lasted}"
        elif (self._total_ns - warmup_ns) / _NS >= MOST_S:
            lasted = duration_text((self._total_ns - warmup_ns) / _NS)
            self.why = f"steps after warm-up had taken {lasted}"
        elif self.grown and passed_s >= SECONDS:
            # Other memory that it took counts as well.
            self.why = f"the process had grown by {size_text(self.grown)}, as by a million events"
        return bool(self.why)
