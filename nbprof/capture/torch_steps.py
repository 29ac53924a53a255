"""Find the steps of a PyTorch loop by its optimizers.

A step runs from the end of one optimizer step to the end of the next, so that waiting for data and
the forward pass lie in it. The first begins where the loop does: when a DataLoader is first
iterated over or a model is put into training mode.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import Any, NamedTuple

from nbprof.capture.clock import StepClock
from nbprof.capture.patches import Patches
from nbprof.capture.torch_passes import Pass, Passes, Place, Visit
from nbprof.core import remedies
from nbprof.core.units import duration_text

KIND = "train"
FOUND = "optimizer steps of torch.optim"

# Where Lightning, by either of its names, keeps which modules were training before an evaluation.
_OF_LIGHTNING = (
    "lightning.pytorch.utilities.model_helpers",
    "pytorch_lightning.utilities.model_helpers",
)


_MOST_FETCHES = 10_000
"""Batches between two steps that are noted."""
_FRAMES = 6
"""So many callers tell the place in the program at which a batch is fetched."""


class _Fetch(NamedTuple):
    """A batch that came from a loader: when it was asked for, Unix time in ns, where in the
    program, and in which pass.
    """

    began: int
    place: Place
    source: Pass


def _place(depth: int) -> Place:
    found: list[tuple[int, int]] = []
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and len(found) < _FRAMES:
        found.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


class Mark:
    """A span that may become a step; it is written into the trace when the recording has ended.

    Parameters
    ----------
    marks : list of Mark
        Where it puts itself once it is a step.
    now : callable
        Unix time in ns, the clock of PyTorch's own events.
    kind : str
        What the step is called: ``train``, ``test``, ``predict`` or the person's word.
    """

    def __init__(self, marks: list[Mark], now: Callable[[], int], kind: str = KIND) -> None:
        self._marks = marks
        self._now = now
        self.kind = kind
        self.thread = threading.get_native_id()
        self.start = now()
        self.end = 0
        self.number = 0
        self.fetched: list[_Fetch] = []
        """The batches that were fetched before it seemed to begin, and after whatever was before
        it.
        """
        self.visits: list[Visit] = []
        """From which loaders its batches came, and those of evaluations before it."""
        self.by_optimizer = False

    def close(self, step: int | None, batches: int = 1) -> None:
        """End here, as step `step`, or as none."""
        del batches
        self.end = self._now()
        if step is not None:
            self.number = step
            self._marks.append(self)


@dataclass
class _Optimizer:
    """What is known of an optimizer, which is not kept alive.

    Parameters
    ----------
    number : int
        Counts optimizers; the identity of one that is gone may be that of another.
    made : int
        When it was made, Unix time in ns; 0 where that was not seen.
    """

    ref: weakref.ref[Any]
    number: int
    made: int

    def parameters(self) -> set[int]:
        """The identities of the tensors that it updates; none once it is gone."""
        groups = getattr(self.ref(), "param_groups", None) or ()
        return {id(tensor) for group in groups for tensor in group["params"]}


class OptimizerSteps:
    """Which optimizer steps end a step of the run.

    Of optimizers that step in turn (the two of a GAN, one for each parameter), the last of the
    first round does. Another one takes its place when it steps twice in a row: then it belongs to a
    loop of its own, as the next trial of a search. One that was made since the last step does at
    its first, where the one before is gone, or had the same parameters: then that one will not step
    again.

    Where a loop goes on with an optimizer that was made after the last step of the one before, the
    time until then is of neither loop.

    Parameters
    ----------
    clock : StepClock
        Is told where steps end.
    """

    def __init__(self, clock: StepClock) -> None:
        self.marks: list[Mark] = []
        self.skipped = 0
        self.left_out: list[tuple[Mark, int]] = []
        """Steps that begin after an evaluation, and when that began, Unix time in ns."""
        self.elsewhere = False
        """Whether an optimizer stepped on a thread that is not recorded."""
        self.recorded_thread = 0
        """`threading.get_ident()` of the only thread that is recorded; 0 where all are."""
        self.other_thread = remedies.OTHER_THREAD
        """The note where `elsewhere` is true."""
        self._clock = clock
        self._lock = threading.RLock()
        self._at = 0
        self._mark: Mark | None = None
        self._last: Mark | None = None
        self._key: tuple[int, int] | None = None
        self._known: dict[int, _Optimizer] = {}
        self._optimizers = 0
        self._current: _Optimizer | None = None
        """The optimizer of `_key`."""
        self._stepped_at = 0
        """When that did."""
        self._made_at = 0
        """When the last optimizer was made that has not stepped, or a loop began since then; 0
        where none was made since the last step.
        """
        self._first: tuple[Mark, int] | None = None
        """The first step of a loop of its own, and when that loop began, until a second step shows
        that it is one.
        """
        self.between: list[float] = []
        self._round: set[tuple[int, int]] = set()
        self._waiting: dict[tuple[int, int], tuple[int, int]] = {}
        """Those that stepped once since the last step: when, and when a loop of theirs would have
        begun, 0 for unknown.
        """
        self._paused = False
        self._first_step: Mark | None = None
        """The first step, once a loop has begun in it."""
        self._fetches: list[_Fetch] = []
        """The batches that were fetched since the last step ended or an evaluation began."""
        self._places: set[Place] = set()
        """Where steps fetch their batches."""
        self._passes = Passes(time.time_ns)
        self._evaluations: list[Pass] = []
        self.told = 0
        """How many steps optimizers have made."""

    def now(self) -> int:
        """Unix time in ns; while a boundary of before is being told, the time of that."""
        return self._at or time.time_ns()

    def recording_began(self) -> None:
        """What is told from here on is in the recording; a boundary that is being told was before
        it.
        """
        self._at, self._mark, self._last, self._first = 0, None, None, None
        self._fetches = []
        self._passes.take()

    def begins_again(self, begin: Callable[[], None]) -> None:
        """Have `begin` start the recording once more: the step that runs begins with it."""
        mark = self._mark
        begin()
        if mark is not None:
            self._mark = mark
            mark.start = self.now()

    def open_mark(self, kind: str = KIND) -> Mark:
        """Begin a stretch that may become a step."""
        self._mark = Mark(self.marks, self.now, kind)
        return self._mark

    def begin(self) -> None:
        """From here on, time belongs to the first step."""
        if not self._clock.in_step:
            self._clock.enter(KIND)

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has made a step, on the thread that calls this."""
        with self._lock:
            self.told += 1
            thread = threading.get_ident()
            if self.recorded_thread and thread != self.recorded_thread:
                self.elsewhere = True
            clock = self._clock
            # Else a loop of Keras is running, which tells its batches itself.
            if clock.alive and clock.open_loop in ("", KIND):
                at = time.time_ns()
                self._passes.stepped()
                known = self._optimizer(optimizer)
                self._stepped((thread, known.number), known, at)
                self._made_at = 0
                if self._current is known:
                    self._stepped_at = at

    def made(self, optimizer: Any) -> None:
        """An optimizer has been made."""
        with self._lock:
            now = time.time_ns()
            self._optimizer(optimizer).made = now
            self._made_at = now

    def _optimizer(self, optimizer: Any) -> _Optimizer:
        known = self._known.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            self._optimizers += 1
            known = self._known[id(optimizer)] = _Optimizer(
                weakref.ref(optimizer), self._optimizers, 0
            )
        return known

    def _replaces(self, known: _Optimizer) -> bool:
        """Whether the optimizer that steps does so in place of that of `_key`, which will not step
        again.
        """
        current = self._current
        if current is None or known.made <= self._stepped_at:
            return False
        return current.ref() is None or not known.parameters().isdisjoint(current.parameters())

    def _begun(self, key: tuple[int, int], known: _Optimizer) -> int:
        """When the loop of another optimizer than that of `_key` began; 0 where that is not
        known.
        """
        if self._key is None or self._key[0] != key[0] or known.made <= self._stepped_at:
            return 0
        return max(known.made, self._made_at)

    def _stepped(self, key: tuple[int, int], known: _Optimizer, at: int) -> None:
        if key != self._key and self._replaces(known):
            # Those that stepped since the last step are part of the loop, which goes on with
            # another optimizer.
            others = {one for one in self._waiting if one[0] == key[0]}
            begun = 0 if others else self._begun(key, known)
            self._waiting.clear()
            self._round, self._key, self._current = {key, *others}, key, known
            self._end(at)
            self._first = (self._last, begun) if begun and self._last is not None else None
        elif key == self._key or self._key is None:
            if self._first is not None:
                first, begun = self._first
                self._leave_out(first, begun)
                self._first = None
            # Once it has stepped twice, the round of optimizers that step in turn is over.
            self._round = {key} if self._key is None else set()
            self._key, self._current = key, known
            self._waiting.clear()
            self._end(at)
        elif self._round and key not in self._round and key[0] == self._key[0]:
            # The first round goes on: the step that seemed to be over ends here.
            self._round.add(key)
            self._key, self._current, self._first = key, known, None
            if self._last is not None:
                self._last.end = at
            if self._mark is not None:
                self._mark.start = at
        elif key in self._waiting:
            before, begun = self._waiting[key]
            if len(self._waiting) == 1 and begun and self._mark is not None:
                self._leave_out(self._mark, begun)
            self._waiting.clear()
            self._round, self._key, self._current = set(), key, known
            self._end(before)
            self._end(at)
        else:
            self._round, self._first = set(), None
            self._waiting[key] = at, self._begun(key, known)

    def _leave_out(self, mark: Mark, begun: int) -> None:
        """The step of `mark` begins when its loop did: what was before is of no loop."""
        if begun > mark.start:
            self.between.append((begun - mark.start) / 1e9)
            mark.start = begun

    def _end(self, at: int) -> None:
        clock = self._clock
        if not clock.in_step:
            # The loop before was left; the one that goes on here has shown no beginning.
            clock.enter(KIND)
        mark, self._mark = self._mark, None
        if clock.open_loop:
            clock.adopt()
            if mark is not None:
                mark.thread = threading.get_native_id()
        self._at = at
        try:
            clock.end(KIND, found=FOUND)
        finally:
            self._at = 0
        self._last = mark if mark is not None and mark.number else None
        self._paused = False
        fetches, self._fetches = self._fetches, []
        visits = self._passes.take()
        if self._last is not None:
            self._last.visits, self._last.by_optimizer = visits, True
            start = self._last.start
            self._places |= {fetch.place for fetch in fetches if fetch.began >= start}
            self._last.fetched = [fetch for fetch in fetches if fetch.began < start]

    def fetched(self, iterator: Any, began: int, place: Place) -> None:
        """A loader gave a batch, which a step may use that begins later, once the model is in
        training mode.
        """
        source = self._passes.fetched(iterator, began, place)
        if len(self._fetches) < _MOST_FETCHES:
            self._fetches.append(_Fetch(began, place, source))

    def finished(self) -> list[Mark]:
        """The steps, each with the batches that it uses: those fetched before it from where steps
        fetch theirs, and no evaluation.
        """
        marks, self.marks[:] = self.marks[:], []
        found = self._passes.found(
            [mark for mark in marks if mark.by_optimizer],
            marks[-1].by_optimizer if marks else False,
        )
        self._clock.boundaries += found.boundaries
        self._evaluations += found.evaluations
        evaluations = set(map(id, self._evaluations))
        for mark in marks:
            if (begin := found.begins.get(mark.number)) is not None:
                mark.start = begin
                continue
            for fetch in reversed(mark.fetched):
                if fetch.place not in self._places or id(fetch.source) in evaluations:
                    break
                mark.start = min(mark.start, fetch.began)
        return marks

    def paused(self) -> None:
        """A model was put into evaluation mode: what comes is no step unless an optimizer steps."""
        self._fetches = []
        if self._key is not None and self._key[0] == threading.get_ident():
            self._paused = True

    def loop_begins(self, *, resumes: bool, again: bool = False) -> None:
        """A loop begins, or goes on after an evaluation: what was before it is no part of its first
        step.

        `again` says that the model was in training mode already: trainers say so for each batch of
        a step.
        """
        mark = self._mark
        if mark is None or self._clock.open_loop != KIND or self._clock.in_marker:
            return
        if self._made_at:
            self._made_at = time.time_ns()
        if self._key is None:
            if not (again and self._first_step is mark):
                mark.start = self.now()
            self._first_step = mark
        elif resumes and self._paused and self._key[0] == threading.get_ident():
            self.left_out.append((mark, mark.start))
            mark.start = self.now()
            self._paused = False

    def hook(self, torch: Any, patches: Patches) -> Any:
        """Listen to optimizers, models and loaders of `torch`; returns what ends the listening to
        optimizers.
        """
        from torch.optim.optimizer import (  # type: ignore[import-not-found,unused-ignore]
            Optimizer,
            register_optimizer_step_post_hook,
        )

        def stepped(optimizer: Any, *_: Any) -> None:
            self._safely(lambda: self.stepped(optimizer))

        handle = register_optimizer_step_post_hook(stepped)
        self._hook_making(Optimizer, patches)
        self._hook_models(torch, patches)
        self._hook_loaders(patches)
        self._hook_scalers(patches)
        return handle

    def _hook_making(self, kind: Any, patches: Patches) -> None:
        original = kind.__init__

        @wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            original(optimizer, *args, **kwargs)
            self._safely(lambda: self.made(optimizer))

        patches.replace(kind, "__init__", init)

    def _hook_models(self, torch: Any, patches: Patches) -> None:
        module = getattr(getattr(torch, "nn", None), "Module", None)
        if module is None or "train" not in vars(module):
            return
        original = module.train
        looked_at: set[str] = set()

        @wraps(original)
        def train(model: Any, mode: bool = True) -> Any:
            __tracebackhide__ = True
            training = getattr(model, "training", False)
            if mode is False and training:
                self._safely(self.paused)
                self._safely(lambda: self._hook_lightning(patches, looked_at))
            result = original(model, mode)
            if mode is True:
                self._safely(lambda: self.loop_begins(resumes=True, again=bool(training)))
            return result

        patches.replace(module, "train", train)

    def _hook_lightning(self, patches: Patches, looked_at: set[str]) -> None:
        """Lightning ends an evaluation by setting ``training`` of each module, not by `train`; it
        may be imported after PyTorch.
        """
        for name in _OF_LIGHTNING:
            modes = getattr(sys.modules.get(name), "_ModuleMode", None)
            if name in looked_at or modes is None or "restore" not in vars(modes):
                continue
            looked_at.add(name)
            original = modes.restore

            @wraps(original)
            def restore(
                self_: Any, model: Any, *args: Any, _original: Any = original, **kwargs: Any
            ) -> Any:
                __tracebackhide__ = True
                result = _original(self_, model, *args, **kwargs)
                if getattr(model, "training", False):
                    self._safely(lambda: self.loop_begins(resumes=True))
                return result

            patches.replace(modes, "restore", restore)

    def _hook_loaders(self, patches: Patches) -> None:
        loaders = sys.modules.get("torch.utils.data.dataloader")
        loader = getattr(loaders, "DataLoader", None)
        if loader is None or "__iter__" not in vars(loader):
            return
        original = loader.__iter__

        @wraps(original)
        def iterate(self_: Any) -> Any:
            __tracebackhide__ = True
            self._safely(lambda: self.loop_begins(resumes=False))
            began = time.time_ns()
            iterator = original(self_)
            self._safely(lambda: self._pass_begins(iterator, began))
            return iterator

        patches.replace(loader, "__iter__", iterate)
        iterator = getattr(loaders, "_BaseDataLoaderIter", None)
        if iterator is not None and "__next__" in vars(iterator):
            self._hook_fetches(iterator, patches)

    def _hook_fetches(self, owner: Any, patches: Patches) -> None:
        original = owner.__next__

        @wraps(original)
        def following(iterator: Any) -> Any:
            __tracebackhide__ = True
            began = time.time_ns()
            try:
                batch = original(iterator)
            except StopIteration:
                self._safely(lambda: self._passes.exhausted(iterator))
                raise
            thread = self._key[0] if self._key is not None else 0
            if self._clock.alive and thread in (0, threading.get_ident()):
                place = _place(2)
                self._safely(lambda: self.fetched(iterator, began, place))
            return batch

        patches.replace(owner, "__next__", following)

    def _pass_begins(self, iterator: Any, began: int) -> None:
        thread = self._key[0] if self._key is not None else 0
        if thread in (0, threading.get_ident()):
            self._passes.begin(iterator, began)

    def _hook_scalers(self, patches: Patches) -> None:
        """A step that a GradScaler skips, for gradients that are not finite, is the end of a step
        all the same.
        """
        for name in ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler"):
            scaler = getattr(sys.modules.get(name), "GradScaler", None)
            if scaler is None or "step" not in vars(scaler):
                continue
            original = scaler.step

            @wraps(original)
            def step(
                self_: Any, optimizer: Any, *args: Any, _original: Any = original, **kwargs: Any
            ) -> Any:
                __tracebackhide__ = True
                told = self.told
                result = _original(self_, optimizer, *args, **kwargs)
                if told == self.told:
                    self._safely(lambda: self._skip(optimizer))
                return result

            patches.replace(scaler, "step", step)
            return

    def _skip(self, optimizer: Any) -> None:
        self.skipped += 1
        self.stepped(optimizer)

    def _safely(self, tell: Callable[[], None]) -> None:
        clock = self._clock
        if not clock.alive:
            return
        try:
            tell()
        except Exception as error:
            # A fault in the counting must not break a training run.
            clock.fault = f"{type(error).__name__}: {error}"
            clock.abandon()

    def notes(self) -> list[str]:
        """Notes for readers of the step times."""
        out = []
        if not self._clock.seen:
            out.append(remedies.NO_STEPS)
        if self.elsewhere:
            out.append(self.other_thread)
        if self.skipped:
            one = self.skipped == 1
            out.append(
                f"{self.skipped:,} {'step' if one else 'steps'} without an update: GradScaler found"
                " gradients that were not finite"
            )
        if self._evaluations:
            some = _counted(len(self._evaluations), "pass", "passes")
            batches = _counted(sum(each.batches for each in self._evaluations), "batch", "batches")
            took = sum(each.over - each.began for each in self._evaluations) / 1e9
            what = f"{some} over a DataLoader without an optimizer step, such as validation"
            out.append(f"{what} ({batches}, {duration_text(took)}): not part of any step")
        if left_out := self._left_out():
            some = "a stretch" if len(left_out) == 1 else f"{len(left_out):,} stretches"
            took = sum(mark.start - began for mark, began in left_out) / 1e9
            out.append(
                f"{some} with the model in evaluation mode ({duration_text(took)}) between steps:"
                " not part of any step"
            )
        if self.between:
            some = "the time" if len(self.between) == 1 else f"{len(self.between):,} times"
            until = f"until the optimizer of the next was made ({duration_text(sum(self.between))})"
            out.append(f"{some} between two trainings, {until}: not part of any step")
        return out

    def _left_out(self) -> list[tuple[Mark, int]]:
        """Evaluations between steps that no pass over a loader tells of."""
        passes = [each.began for each in self._evaluations]
        return [
            (mark, began)
            for mark, began in self.left_out
            if not any(began <= at < mark.start for at in passes)
        ]
