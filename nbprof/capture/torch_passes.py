"""Passes over DataLoaders: which of them train, and which run without an optimizer step, such as
validation.

A pass lasts from ``iter(loader)`` to the end of the loader, or to where the loop over it was left.
One in which an optimizer steps trains. One in which none does is an evaluation if a training pass
gives the next step its batch, or if no step follows: then it is no part of a step, whether the
model was put into evaluation mode or not. Batches of other loaders that most steps ask for are part
of the steps.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nbprof.capture.clock import EPOCH, EVALUATION, boundary

Place = tuple[tuple[int, int], ...]
"""Where in the program a batch is fetched."""

_MOST_VISITS = 10_000
"""Changes from one loader to another between two steps that are noted."""


class Pass:
    """A pass over a loader; times are in ns of Unix time, 0 where unknown.

    Attributes
    ----------
    began : int
        When the loader was asked for its iterator.
    end : int
        When the loader had no more batches, or its iterator was dropped.
    exhausted : bool
        Whether it gave all its batches.
    batches : int
    last : int
        When its last batch was asked for.
    steps : int
        How often an optimizer stepped between its first batch and its end.
    place : tuple
        Where its first batch was fetched.
    """

    __slots__ = ("_stepped", "batches", "began", "end", "exhausted", "last", "place", "steps")

    def __init__(self, began: int) -> None:
        self.began = began
        self.end = 0
        self.exhausted = False
        self.batches = 0
        self.last = 0
        self.steps = 0
        self.place: Place = ()
        self._stepped = False

    @property
    def over(self) -> int:
        """When it ended; of one whose iterator lives on, when it gave its last batch."""
        return self.end or self.last

    def stepped(self) -> None:
        """An optimizer has made a step; whether that was within this pass is known when it goes on
        or ends.
        """
        self._stepped = self.batches > 0

    def goes_on(self) -> None:
        """It gives a further batch, or is over."""
        self.steps += self._stepped
        self._stepped = False


@dataclass
class Visit:
    """Batches that came from one pass without another pass in between, within one step.

    Attributes
    ----------
    source : Pass
    start : int
        When the first of them was asked for; of the first batch of a pass, when that began.
    """

    source: Pass
    start: int

    @property
    def is_first(self) -> bool:
        """Whether the pass begins with it."""
        return self.start == self.source.began


class Step(Protocol):
    """What is known of a step here: `torch_steps.Mark`."""

    start: int
    number: int
    visits: list[Visit]


@dataclass
class Found:
    """What the passes say about the steps of a recording.

    Attributes
    ----------
    begins : dict of int to int
        When steps begin that follow an evaluation, by their number: with the first batch that they
        use.
    boundaries : list of dict
        Epochs and evaluations between the steps, as `CaptureInfo.boundaries` keeps them.
    evaluations : list of Pass
    """

    begins: dict[int, int] = field(default_factory=dict)
    boundaries: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[Pass] = field(default_factory=list)


class Passes:
    """Follows the passes of the thread that trains.

    Parameters
    ----------
    now : callable
        Unix time in ns.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._open: dict[int, tuple[weakref.ref[Any], Pass]] = {}
        self._visits: list[Visit] = []

    def begin(self, iterator: Any, began: int) -> Pass:
        """A loader gave its iterator, which it may give again for another pass."""
        found = Pass(began)
        key = id(iterator)

        def dropped(_: object) -> None:
            if not found.end:
                found.goes_on()
                found.end = self._now()
            if self._open.get(key, (None, None))[1] is found:
                del self._open[key]

        self._open[key] = weakref.ref(iterator, dropped), found
        return found

    def fetched(self, iterator: Any, began: int, place: Place) -> Pass:
        """An iterator gave a batch that was asked for at `began`."""
        opened = self._open.get(id(iterator))
        source = (
            opened[1]
            if opened is not None and opened[0]() is iterator
            else self.begin(iterator, began)
        )
        first = not source.batches
        source.goes_on()
        source.batches += 1
        source.last = began
        if first:
            source.place = place
        if (not self._visits or self._visits[-1].source is not source) and len(
            self._visits
        ) < _MOST_VISITS:
            self._visits.append(Visit(source, source.began if first else began))
        return source

    def exhausted(self, iterator: Any) -> None:
        """An iterator has no more batches."""
        opened = self._open.pop(id(iterator), None)
        if opened is not None:
            opened[1].goes_on()
            opened[1].end, opened[1].exhausted = self._now(), True

    def stepped(self) -> None:
        """An optimizer has made a step."""
        for _, source in list(self._open.values()):
            source.stepped()

    def take(self) -> list[Visit]:
        """The visits since the last call: those of the step that ends."""
        visits, self._visits = self._visits, []
        return visits

    def found(self, steps: Sequence[Step], none_since: bool) -> Found:
        """What the passes say about the steps that optimizers made, in time order; `none_since`
        says that no other step follows them.
        """
        found = Found()
        if not steps:
            return found
        usual = _usual(steps)
        for step in steps:
            _add_epoch(found, step)
            # Before the first step of all lies what prepares the training.
            if step.number > 1 and len(step.visits) > 1:
                _add_evaluation(found, step, usual)
        if none_since:
            last = [
                visit.source
                for visit in self._visits
                if visit.source.end and not visit.source.steps
            ]
            last = [source for source in last if source.place not in usual.trained]
            _note(
                found,
                steps[-1].number + 1,
                [source for source in last if source.exhausted or source.batches > 1],
            )
        if 2 * sum(each["kind"] == EPOCH for each in found.boundaries) > len(steps):
            # Each step makes an iterator of its own.
            found.boundaries = [each for each in found.boundaries if each["kind"] != EPOCH]
        return found


def _add_epoch(found: Found, step: Step) -> None:
    if step.visits and step.visits[-1].is_first and step.visits[-1].source.steps:
        found.boundaries.append(boundary(EPOCH, step.number))


@dataclass
class _Usual:
    """What most steps do.

    Attributes
    ----------
    asides : set of tuple
        Places at which most steps fetch batches in a pass of their own.
    always : set of tuple
        Those at which all do.
    trained : set of tuple
        Places of the passes that give most steps their last batch, though none has a step inside: a
        step takes all batches of a loader.
    """

    asides: set[Place]
    always: set[Place]
    trained: set[Place]


def _usual(steps: Sequence[Step]) -> _Usual:
    often: Counter[Place] = Counter()
    last: Counter[Place] = Counter()
    for step in steps:
        often.update({visit.source.place for visit in step.visits if not visit.source.steps})
        if step.visits and not step.visits[-1].source.steps:
            last[step.visits[-1].source.place] += 1
    asides = {place for place, count in often.items() if 2 * count >= len(steps)}
    always = {place for place, count in often.items() if count == len(steps)}
    return _Usual(
        asides, always, {place for place, count in last.items() if 2 * count >= len(steps)}
    )


def _is_evaluation(source: Pass, usual: _Usual) -> bool:
    if source.steps:
        return False
    # A single batch out of a loader, in most steps, is one that they use.
    return source.exhausted or source.batches > 1 or source.place not in usual.asides


def _add_evaluation(found: Found, step: Step, usual: _Usual) -> None:
    """What of a step is an evaluation: passes before the first training batch that the step uses
    itself.
    """
    visits = step.visits
    training = visits[-1].source
    if not training.steps and training.place not in usual.trained:
        return
    # Of steps that take all batches of a loader, another loader that each of them goes through
    # gives them batches as well.
    parts: set[Place] = set() if training.steps else {training.place, *usual.always}
    evaluated = [
        _is_evaluation(visit.source, usual) and visit.source.place not in parts for visit in visits
    ]
    which = [i for i, found_one in enumerate(evaluated) if found_one]
    if not which or which[-1] == len(visits) - 1:
        return
    _note(found, step.number, [visits[i].source for i in which])
    begin = visits[which[-1] + 1].start
    if begin > step.start and visits[which[-1]].source.over > step.start:
        found.begins[step.number] = begin


def _note(found: Found, before: int, passes: list[Pass]) -> None:
    if passes:
        found.evaluations += passes
        took = sum(source.over - source.began for source in passes) / 1e6
        batches = sum(source.batches for source in passes)
        found.boundaries.append(boundary(EVALUATION, before, batches, took))
