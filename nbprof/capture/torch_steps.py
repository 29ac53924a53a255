"""Find the steps of a PyTorch loop by its optimizers.

A step runs from the end of one optimizer step to the end of the next, so it includes waiting for
data and the forward pass. The first begins where the loop does: when a DataLoader is first iterated
over or a model is put into training mode.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from nbprof.capture import deepspeed, notes
from nbprof.capture.clock import StepClock
from nbprof.capture.imports import ImportWatch
from nbprof.capture.patches import Patches
from nbprof.capture.torch_passes import CallSite, Pass, Passes, Visit
from nbprof.capture.torch_tensors import KnownTensors
from nbprof.core import remedies
from nbprof.core.receipt import Note, info

KIND = "train"
ORIGIN = "optimizer steps of torch.optim"

_LIGHTNING_MODULES = (
    "lightning.pytorch.utilities.model_helpers",
    "pytorch_lightning.utilities.model_helpers",
)
"""Modules of Lightning, by either of its names, that store which modules of a model were training
before an evaluation.
"""

_MAX_FETCHES = 10_000
"""Batches between two steps that are noted."""
_FRAMES = 6
"""Number of callers that identify where in the program a batch is fetched."""


class _Fetch(NamedTuple):
    """A batch that a loader gave.

    Attributes
    ----------
    began : int
        When it was asked for, Unix time in ns.
    call_site : tuple
    source : Pass
    """

    began: int
    call_site: CallSite
    source: Pass


def _call_site(depth: int) -> CallSite:
    frames: list[tuple[int, int]] = []
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and len(frames) < _FRAMES:
        frames.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return tuple(frames)


class Mark:
    """A span that may become a step; it is written into the trace when the recording has ended.

    Parameters
    ----------
    marks : list of Mark
        Receives the span once it is a step.
    now : callable
        Unix time in ns, the clock of PyTorch's own events.
    kind : str
        Name of the step: ``train``, ``test``, ``predict`` or the user's word.
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
        """Batches that were fetched after the previous step, before this one seemed to begin."""
        self.visits: list[Visit] = []
        """Loaders of its batches, and of the batches of evaluations before it."""
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
    """An optimizer, which is not kept alive.

    Parameters
    ----------
    ref : weakref.ref
    number : int
        Counts optimizers, since Python reuses the identity of an object that is gone.
    created : int
        When it was created, Unix time in ns; 0 if unknown.
    origin : str
        How its steps are found.
    """

    ref: weakref.ref[Any]
    number: int
    created: int
    origin: str = ORIGIN

    def parameters(self) -> set[int]:
        """Identities of the tensors that it updates; none once it is gone."""
        groups = getattr(self.ref(), "param_groups", None) or ()
        return {id(tensor) for group in groups for tensor in group["params"]}


class OptimizerSteps:
    """Decides which optimizer steps end a step of the run.

    Of optimizers that step in turn (the two of a GAN, one for each parameter), the last of the
    first round does. Another one takes over when it steps twice in a row: it belongs to a separate
    loop then, such as the next trial of a search. An optimizer that was created since the last step
    takes over at its first step if the previous one is gone or had the same parameters, since that
    one will not step again.

    If a loop continues with an optimizer that was created after the last step of the previous one,
    the time in between belongs to neither loop.

    Parameters
    ----------
    clock : StepClock
        Notified of the end of each step.
    """

    def __init__(self, clock: StepClock) -> None:
        self.marks: list[Mark] = []
        self.skipped = 0
        self.left_out: list[tuple[Mark, int]] = []
        """Steps that begin after an evaluation, and when that began, Unix time in ns."""
        self.elsewhere = False
        """True if an optimizer stepped on a thread that is not recorded."""
        self.recorded_thread = 0
        """`threading.get_ident()` of the only thread that is recorded; 0 if all are."""
        self.other_thread = notes.optimizer_thread_not_recorded()
        """The note if `elsewhere` is true."""
        self.tensors: KnownTensors | None = None
        """Told of each step before it ends, while a recording runs. A hook of its own could not
        come and go in the hook of a step, where recordings begin and end.
        """
        self._clock = clock
        self._lock = threading.RLock()
        self._boundary_ns = 0
        """Time of the past boundary that is being reported to the clock; else 0."""
        self._mark: Mark | None = None
        self._last: Mark | None = None
        self._key: tuple[int, int] | None = None
        self._by_identity: dict[int, _Optimizer] = {}
        self._optimizers = 0
        self._current: _Optimizer | None = None
        """The optimizer of `_key`."""
        self._stepped_at = 0
        """When the current optimizer stepped."""
        self._created_at = 0
        """When the last optimizer was created that has not stepped, or a loop began since then; 0
        if none was created since the last step.
        """
        self._first: tuple[Mark, int] | None = None
        """The first step of a separate loop and when that loop began, until a second step confirms
        the loop.
        """
        self.between: list[float] = []
        """Seconds between two trainings that belong to neither."""
        self._round: set[tuple[int, int]] = set()
        self._waiting: dict[tuple[int, int], tuple[int, int]] = {}
        """Optimizers that stepped once since the last step: when, and when a loop of theirs would
        have begun (0 if unknown).
        """
        self._paused = False
        self._first_step: Mark | None = None
        """The first step, once a loop has begun in it."""
        self._fetches: list[_Fetch] = []
        """Batches that were fetched since the last step ended or an evaluation began."""
        self._call_sites: set[CallSite] = set()
        """Call sites at which steps fetch their batches."""
        self._passes = Passes(time.time_ns)
        self._evaluations: list[Pass] = []
        self.step_count = 0
        """Number of steps that optimizers have made."""
        self._in_step: set[int] = set()
        """Threads that are within `single_step`."""

    @property
    def reported_ns(self) -> int:
        """Unix time in ns of the end of the step that is being reported to the clock; else 0."""
        return self._boundary_ns

    def now(self) -> int:
        """Unix time in ns; while a past boundary is being reported, the time of that."""
        return self._boundary_ns or time.time_ns()

    def recording_began(self) -> None:
        """The recording begins here; a boundary that is being reported precedes it."""
        self._boundary_ns = 0
        self._mark = self._last = self._first = None
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
        """Begin a span that may become a step."""
        self._mark = Mark(self.marks, self.now, kind)
        return self._mark

    def begin(self) -> None:
        """From here on, time belongs to the first step."""
        if not self._clock.in_step:
            self._clock.enter(KIND)

    @contextlib.contextmanager
    def single_step(self, optimizer: Any, origin: str) -> Iterator[None]:
        """Let the steps of optimizers in the block, on this thread, be one step of `optimizer`."""
        thread = threading.get_ident()
        self._in_step.add(thread)
        try:
            yield
        finally:
            self._in_step.discard(thread)
        self._safely(lambda: self.stepped(optimizer, origin))

    def stepped(self, optimizer: Any, origin: str = ORIGIN) -> None:
        """An optimizer has made a step, on the thread that calls this."""
        with self._lock:
            self.step_count += 1
            thread = threading.get_ident()
            if thread in self._in_step:
                return
            if self.recorded_thread and thread != self.recorded_thread:
                self.elsewhere = True
            clock = self._clock
            # Otherwise a loop of Keras is running, which reports its batches.
            if clock.alive and clock.open_loop in ("", KIND):
                now = time.time_ns()
                self._passes.stepped()
                stepping = self._optimizer(optimizer)
                stepping.origin = origin
                self._stepped((thread, stepping.number), stepping, now)
                self._created_at = 0
                if self._current is stepping:
                    self._stepped_at = now

    def created(self, optimizer: Any) -> None:
        """An optimizer has been created."""
        with self._lock:
            now = time.time_ns()
            self._optimizer(optimizer).created = now
            self._created_at = now

    def _optimizer(self, optimizer: Any) -> _Optimizer:
        entry = self._by_identity.get(id(optimizer))
        if entry is None or entry.ref() is not optimizer:
            self._optimizers += 1
            entry = self._by_identity[id(optimizer)] = _Optimizer(
                weakref.ref(optimizer), self._optimizers, 0
            )
        return entry

    def _replaces(self, stepping: _Optimizer) -> bool:
        """Return whether an optimizer replaces that of `_key`, which will not step again."""
        current = self._current
        if current is None or stepping.created <= self._stepped_at:
            return False
        return current.ref() is None or not stepping.parameters().isdisjoint(current.parameters())

    def _loop_begin(self, key: tuple[int, int], stepping: _Optimizer) -> int:
        """When the loop of another optimizer than that of `_key` began; 0 if unknown."""
        if self._key is None or self._key[0] != key[0] or stepping.created <= self._stepped_at:
            return 0
        return max(stepping.created, self._created_at)

    def _stepped(self, key: tuple[int, int], stepping: _Optimizer, time_ns: int) -> None:
        if key != self._key and self._replaces(stepping):
            # Those that stepped since the last step are part of the loop, which goes on with
            # another optimizer.
            same_thread = {waiting for waiting in self._waiting if waiting[0] == key[0]}
            begun = 0
            if not same_thread:
                begun = self._loop_begin(key, stepping)
            self._waiting.clear()
            self._round, self._key, self._current = {key, *same_thread}, key, stepping
            self._end(time_ns)
            self._first = None
            if begun and self._last is not None:
                self._first = self._last, begun
        elif key == self._key or self._key is None:
            if self._first is not None:
                first, begun = self._first
                self._leave_out(first, begun)
                self._first = None
            # Once it has stepped twice, the round of optimizers that step in turn is over.
            self._round = {key} if self._key is None else set()
            self._key, self._current = key, stepping
            self._waiting.clear()
            self._end(time_ns)
        elif self._round and key not in self._round and key[0] == self._key[0]:
            # The first round goes on: the step that seemed to be over ends here.
            self._round.add(key)
            self._key, self._current, self._first = key, stepping, None
            if self._last is not None:
                self._last.end = time_ns
            if self._mark is not None:
                self._mark.start = time_ns
        elif key in self._waiting:
            before, begun = self._waiting[key]
            if len(self._waiting) == 1 and begun and self._mark is not None:
                self._leave_out(self._mark, begun)
            self._waiting.clear()
            self._round, self._key, self._current = set(), key, stepping
            self._end(before)
            self._end(time_ns)
        else:
            self._round, self._first = set(), None
            self._waiting[key] = time_ns, self._loop_begin(key, stepping)

    def _leave_out(self, mark: Mark, begun: int) -> None:
        """Let the step of `mark` begin when its loop did: time before belongs to no loop."""
        if begun > mark.start:
            self.between.append((begun - mark.start) / 1e9)
            mark.start = begun

    def _end(self, time_ns: int) -> None:
        clock = self._clock
        if not clock.in_step:
            # The previous loop was left; the beginning of this one was not seen.
            clock.enter(KIND)
        mark, self._mark = self._mark, None
        if clock.open_loop:
            clock.adopt()
            if mark is not None:
                mark.thread = threading.get_native_id()
        self._boundary_ns = time_ns
        try:
            clock.end(KIND, origin=self._current.origin if self._current else ORIGIN)
        finally:
            self._boundary_ns = 0
        self._last = None
        if mark is not None and mark.number:
            self._last = mark
        self._paused = False
        fetches, self._fetches = self._fetches, []
        visits = self._passes.take()
        if self._last is not None:
            self._last.visits, self._last.by_optimizer = visits, True
            start = self._last.start
            for fetch in fetches:
                if fetch.began >= start:
                    self._call_sites.add(fetch.call_site)
                else:
                    self._last.fetched.append(fetch)

    def fetched(self, iterator: Any, began: int, call_site: CallSite) -> None:
        """A loader gave a batch, possibly to a step that begins later, in training mode."""
        source = self._passes.fetched(iterator, began, call_site)
        if len(self._fetches) < _MAX_FETCHES:
            self._fetches.append(_Fetch(began, call_site, source))

    def finished(self) -> list[Mark]:
        """Steps, each of which begins with the first batch that it uses.

        Those are the batches fetched before it where steps fetch theirs, except of evaluations.
        """
        marks, self.marks[:] = self.marks[:], []
        summary = self._passes.summarize(
            [mark for mark in marks if mark.by_optimizer],
            is_last=bool(marks) and marks[-1].by_optimizer,
        )
        self._clock.boundaries += summary.boundaries
        self._evaluations += summary.evaluations
        evaluations = set(map(id, self._evaluations))
        for mark in marks:
            begin = summary.begins.get(mark.number)
            if begin is not None:
                mark.start = begin
                continue
            for fetch in reversed(mark.fetched):
                if fetch.call_site not in self._call_sites or id(fetch.source) in evaluations:
                    break
                mark.start = min(mark.start, fetch.began)
        return marks

    def paused(self) -> None:
        """A model was put into evaluation mode, which is not a step unless an optimizer steps."""
        self._fetches = []
        if self._key is not None and self._key[0] == threading.get_ident():
            self._paused = True

    def loop_begins(self, *, resumes: bool, again: bool = False) -> None:
        """A loop begins, or goes on after an evaluation; its first step excludes earlier time.

        Parameters
        ----------
        resumes : bool
            A model was put into training mode.
        again : bool
            It was in training mode already: trainers set it for each batch of a step.
        """
        mark = self._mark
        if mark is None or self._clock.open_loop != KIND or self._clock.in_marker:
            return
        if self._created_at:
            self._created_at = time.time_ns()
        if self._key is None:
            if not (again and self._first_step is mark):
                mark.start = self.now()
            self._first_step = mark
        elif resumes and self._paused and self._key[0] == threading.get_ident():
            self.left_out.append((mark, mark.start))
            mark.start = self.now()
            self._paused = False

    def hook(self, torch: Any, patches: Patches) -> Any:
        """Listen to optimizers, models and loaders; returns the handle of the optimizer hook."""
        from torch.optim.optimizer import (  # type: ignore[import-not-found,unused-ignore]
            Optimizer,
            register_optimizer_step_post_hook,
        )

        def stepped(optimizer: Any, *_: Any) -> None:
            tensors = self.tensors
            if tensors is not None:
                tensors.stepped(optimizer)
            self._safely(lambda: self.stepped(optimizer))

        handle = register_optimizer_step_post_hook(stepped)
        self._hook_creation(Optimizer, patches)
        self._hook_models(torch, patches)
        self._hook_loaders(patches)
        self._hook_scalers(patches)
        self._hook_engines(patches)
        return handle

    def _hook_engines(self, patches: Patches) -> None:
        """Hook DeepSpeed, which may be imported after PyTorch."""

        def arrived(module: ModuleType) -> None:
            self._safely(lambda: deepspeed.hook(module, patches, self))

        watch = ImportWatch({deepspeed.MODULE: arrived})
        watch.install()
        patches.on_restore(watch.remove)

    def _hook_creation(self, kind: Any, patches: Patches) -> None:
        original = kind.__init__

        @wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            original(optimizer, *args, **kwargs)
            self._safely(lambda: self.created(optimizer))

        patches.replace(kind, "__init__", init)

    def _hook_models(self, torch: Any, patches: Patches) -> None:
        module = getattr(getattr(torch, "nn", None), "Module", None)
        if module is None or "train" not in vars(module):
            return
        original = module.train
        hooked: set[str] = set()

        @wraps(original)
        def train(model: Any, mode: bool = True) -> Any:
            __tracebackhide__ = True
            training = getattr(model, "training", False)
            if mode is False and training:
                self._safely(self.paused)
                self._safely(lambda: self._hook_lightning(patches, hooked))
            result = original(model, mode)
            if mode is True:
                self._safely(lambda: self.loop_begins(resumes=True, again=bool(training)))
            return result

        patches.replace(module, "train", train)

    def _hook_lightning(self, patches: Patches, hooked: set[str]) -> None:
        """Hook Lightning, which may be imported after PyTorch.

        It ends an evaluation by setting ``training`` of each module, not by calling `train`.
        """
        for name in _LIGHTNING_MODULES:
            modes = getattr(sys.modules.get(name), "_ModuleMode", None)
            if name in hooked or modes is None or "restore" not in vars(modes):
                continue
            hooked.add(name)
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
            if self._clock.alive and self._is_training_thread():
                call_site = _call_site(2)
                self._safely(lambda: self.fetched(iterator, began, call_site))
            return batch

        patches.replace(owner, "__next__", following)

    def _pass_begins(self, iterator: Any, began: int) -> None:
        if self._is_training_thread():
            self._passes.begin(iterator, began)

    def _is_training_thread(self) -> bool:
        """Return whether this thread trains, as far as is known."""
        if self._clock.in_earlier_step:
            # Its batches are of a step that is not recorded.
            return False
        return self._key is None or self._key[0] in (0, threading.get_ident())

    def _hook_scalers(self, patches: Patches) -> None:
        """Count steps that a GradScaler skips because gradients are not finite."""
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
                before = self.step_count
                result = _original(self_, optimizer, *args, **kwargs)
                if before == self.step_count:
                    self._safely(lambda: self._skip(optimizer))
                return result

            patches.replace(scaler, "step", step)
            return

    def _skip(self, optimizer: Any) -> None:
        self.skipped += 1
        self.stepped(optimizer)

    def _safely(self, report: Callable[[], None]) -> None:
        clock = self._clock
        if not clock.alive:
            return
        try:
            report()
        except Exception as error:
            # A fault in the counting must not break a training run.
            clock.fault = f"{type(error).__name__}: {error}"
            clock.abandon()

    def notes(self) -> list[Note]:
        """Notes for readers of the step times."""
        about_steps = []
        if not self._clock.seen:
            about_steps.append(info("no_optimizer_steps", remedies.NO_STEPS))
        if self.elsewhere:
            about_steps.append(self.other_thread)
        if self.skipped:
            about_steps.append(notes.steps_without_update(self.skipped))
        if self._evaluations:
            about_steps.append(notes.evaluation_passes(self._evaluations))
        evaluation_modes = self._without_loader()
        if evaluation_modes:
            seconds = sum(mark.start - began for mark, began in evaluation_modes) / 1e9
            about_steps.append(notes.evaluation_mode(len(evaluation_modes), seconds))
        if self.between:
            about_steps.append(notes.between_trainings(self.between))
        return about_steps

    def _without_loader(self) -> list[tuple[Mark, int]]:
        """Evaluations between steps that do not iterate over a loader."""
        passes = [source.began for source in self._evaluations]
        evaluations = []
        for mark, began in self.left_out:
            if not any(began <= begin < mark.start for begin in passes):
                evaluations.append((mark, began))
        return evaluations
