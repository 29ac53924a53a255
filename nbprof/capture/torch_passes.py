"""Passes over DataLoaders: training, and evaluation without optimizer steps, such as validation.

A pass lasts from ``iter(loader)`` to the end of the loader, or to where the loop over it was left.
A pass in which an optimizer steps is training. One in which none does is an evaluation if a
training pass gives the next step its batch, or if no step follows; it is not part of a step then,
even if the model stays in training mode. Batches of other loaders that most steps ask for are part
of the steps.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nbprof.capture.clock import EPOCH, EVALUATION, boundary

CallSite = tuple[tuple[int, int], ...]
"""Identity of the code and offset of the instruction of the innermost callers."""

_MAX_VISITS = 10_000
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
        True if it gave all its batches.
    batches : int
    last : int
        When its last batch was asked for.
    steps : int
        How often an optimizer stepped between its first batch and its end.
    call_site : tuple
        Where its first batch was fetched.
    """

    __slots__ = ("_stepped", "batches", "began", "call_site", "end", "exhausted", "last", "steps")

    def __init__(self, began: int) -> None:
        self.began = began
        self.end = 0
        self.exhausted = False
        self.batches = 0
        self.last = 0
        self.steps = 0
        self.call_site: CallSite = ()
        self._stepped = False

    @property
    def over(self) -> int:
        """When it ended; of one whose iterator lives on, when it gave its last batch."""
        return self.end or self.last

    def stepped(self) -> None:
        """An optimizer has made a step, within this pass if it goes on or ends later."""
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
        """True if the pass begins with it."""
        return self.start == self.source.began


class Step(Protocol):
    """A step of the run: `torch_steps.Mark`."""

    start: int
    number: int
    visits: list[Visit]


@dataclass
class Summary:
    """Epochs and evaluations between the steps of a recording.

    Attributes
    ----------
    begins : dict of int to int
        Begin of each step that follows an evaluation, by its number: that of the first batch that
        it uses.
    boundaries : list of dict
        Epochs and evaluations between the steps, as in `CaptureInfo.boundaries`.
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
        source = Pass(began)
        key = id(iterator)

        def dropped(_: object) -> None:
            if not source.end:
                source.goes_on()
                source.end = self._now()
            if self._open.get(key, (None, None))[1] is source:
                del self._open[key]

        self._open[key] = weakref.ref(iterator, dropped), source
        return source

    def fetched(self, iterator: Any, began: int, call_site: CallSite) -> Pass:
        """An iterator gave a batch that was asked for at `began`."""
        opened = self._open.get(id(iterator))
        if opened is not None and opened[0]() is iterator:
            source = opened[1]
        else:
            source = self.begin(iterator, began)
        start = began
        if not source.batches:
            source.call_site = call_site
            start = source.began
        source.goes_on()
        source.batches += 1
        source.last = began
        visits = self._visits
        changed = not visits or visits[-1].source is not source
        if changed and len(visits) < _MAX_VISITS:
            visits.append(Visit(source, start))
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
        """Visits since the last call: those of the step that ends."""
        visits, self._visits = self._visits, []
        return visits

    def summarize(self, steps: Sequence[Step], *, is_last: bool) -> Summary:
        """Find epochs and evaluations between steps that optimizers made.

        Parameters
        ----------
        steps : sequence of Step
            In time order.
        is_last : bool
            True if no other step follows them.
        """
        summary = Summary()
        if not steps:
            return summary
        usual = _usual(steps)
        for step in steps:
            _add_epoch(summary, step)
            # Passes before the very first step prepare the training.
            if step.number > 1 and len(step.visits) > 1:
                _add_evaluation(summary, step, usual)
        if is_last:
            remaining = [visit.source for visit in self._visits]
            _note(
                summary,
                steps[-1].number + 1,
                [source for source in remaining if _is_last_evaluation(source, usual)],
            )
        boundaries = summary.boundaries
        without_epochs = [boundary for boundary in boundaries if boundary["kind"] != EPOCH]
        if 2 * (len(boundaries) - len(without_epochs)) > len(steps):
            # Each step creates its iterator: those are not epochs.
            summary.boundaries = without_epochs
        return summary


def _add_epoch(summary: Summary, step: Step) -> None:
    if step.visits and step.visits[-1].is_first and step.visits[-1].source.steps:
        summary.boundaries.append(boundary(EPOCH, step.number))


@dataclass
class _Usual:
    """Call sites at which most steps fetch batches.

    Attributes
    ----------
    asides : set of tuple
        Call sites at which most steps fetch batches in a separate pass.
    always : set of tuple
        Those at which all steps do.
    trained : set of tuple
        Call sites of the passes that give most steps their last batch although no step is within
        such a pass: a step takes all batches of a loader.
    """

    asides: set[CallSite]
    always: set[CallSite]
    trained: set[CallSite]


def _usual(steps: Sequence[Step]) -> _Usual:
    often: Counter[CallSite] = Counter()
    last: Counter[CallSite] = Counter()
    for step in steps:
        sources = [visit.source for visit in step.visits]
        often.update({source.call_site for source in sources if not source.steps})
        if sources and not sources[-1].steps:
            last[sources[-1].call_site] += 1
    return _Usual(
        asides=_at_least(often, len(steps) / 2),
        always=_at_least(often, len(steps)),
        trained=_at_least(last, len(steps) / 2),
    )


def _at_least(counts: Counter[CallSite], minimum: float) -> set[CallSite]:
    return {call_site for call_site, count in counts.items() if count >= minimum}


def _is_evaluation(source: Pass, usual: _Usual) -> bool:
    if source.steps:
        return False
    # A single batch out of a loader, in most steps, is one that they use.
    return source.exhausted or source.batches > 1 or source.call_site not in usual.asides


def _is_last_evaluation(source: Pass, usual: _Usual) -> bool:
    """Return whether a pass after the last step is an evaluation."""
    if not source.end or source.steps or source.call_site in usual.trained:
        return False
    return source.exhausted or source.batches > 1


def _add_evaluation(summary: Summary, step: Step, usual: _Usual) -> None:
    """Note the passes before the first training batch that the step itself uses."""
    visits = step.visits
    training = visits[-1].source
    if not training.steps and training.call_site not in usual.trained:
        return
    parts: set[CallSite] = set()
    if not training.steps:
        # Of steps that take all batches of a loader, another loader that each of them goes through
        # gives them batches as well.
        parts = {training.call_site, *usual.always}
    evaluations = []
    for index, visit in enumerate(visits):
        if _is_evaluation(visit.source, usual) and visit.source.call_site not in parts:
            evaluations.append(index)
    if not evaluations or evaluations[-1] == len(visits) - 1:
        return
    _note(summary, step.number, [visits[index].source for index in evaluations])
    begin = visits[evaluations[-1] + 1].start
    if begin > step.start and visits[evaluations[-1]].source.over > step.start:
        summary.begins[step.number] = begin


def _note(summary: Summary, before: int, passes: list[Pass]) -> None:
    if passes:
        summary.evaluations += passes
        took = sum(source.over - source.began for source in passes) / 1e6
        batches = sum(source.batches for source in passes)
        summary.boundaries.append(boundary(EVALUATION, before, batches, took))
