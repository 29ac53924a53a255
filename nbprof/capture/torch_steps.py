"""Find the steps of a PyTorch loop by its optimizers.

A step runs from the end of one optimizer step to the end of the next, so that waiting for data and the forward pass lie in it. The first
begins where the loop does: when a DataLoader is first iterated over or a model is put into training mode.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from nbprof.capture.clock import StepClock
from nbprof.capture.patches import Patches
from nbprof.core import remedies

KIND = "train"
FOUND = "optimizer steps of torch.optim"

# Where Lightning, by either of its names, keeps which modules were training before an evaluation.
_OF_LIGHTNING = ("lightning.pytorch.utilities.model_helpers", "pytorch_lightning.utilities.model_helpers")


class Mark:
    """A span that may become a step; it is written into the trace when the recording has ended.

    Parameters
    ----------
    marks : list of Mark
        Where it puts itself once it is a step.
    now : callable
        Unix time in ns, the clock of PyTorch's own events.
    """

    def __init__(self, marks: list[Mark], now: Callable[[], int]) -> None:
        self._marks = marks
        self._now = now
        self.thread = threading.get_native_id()
        self.start = now()
        self.end = 0
        self.number = 0

    def close(self, step: int | None, batches: int = 1) -> None:
        """End here, as step `step`, or as none."""
        del batches
        self.end = self._now()
        if step is not None:
            self.number = step
            self._marks.append(self)


class OptimizerSteps:
    """Which optimizer steps end a step of the run.

    Of optimizers that step in turn (the two of a GAN, one for each parameter), the last of the first round does. Another one takes its
    place when it steps twice in a row: then it belongs to a loop of its own, as the next trial of a search.

    Parameters
    ----------
    clock : StepClock
        Is told where steps end.
    """

    def __init__(self, clock: StepClock) -> None:
        self.marks: list[Mark] = []
        self.skipped = 0
        self.left_out: list[float] = []
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
        self._round: set[tuple[int, int]] = set()
        self._waiting: dict[tuple[int, int], int] = {}
        self._paused = False
        self._told = 0

    def now(self) -> int:
        """Unix time in ns; while a boundary of before is being told, the time of that."""
        return self._at or time.time_ns()

    def recording_began(self) -> None:
        """What is told from here on is in the recording; a boundary that is being told was before it."""
        self._at, self._mark, self._last = 0, None, None

    def begins_again(self, begin: Callable[[], None]) -> None:
        """Have `begin` start the recording once more: the step that runs begins with it."""
        mark = self._mark
        begin()
        if mark is not None:
            self._mark = mark
            mark.start = self.now()

    def open_mark(self) -> Mark:
        """Begin a stretch that may become a step."""
        self._mark = Mark(self.marks, self.now)
        return self._mark

    def begin(self) -> None:
        """From here on, time belongs to the first step."""
        if not self._clock.in_step:
            self._clock.enter(KIND)

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has made a step, on the thread that calls this."""
        with self._lock:
            self._told += 1
            thread = threading.get_ident()
            if self.recorded_thread and thread != self.recorded_thread:
                self.elsewhere = True
            clock = self._clock
            # Else a loop of Keras is running, which tells its batches itself.
            if clock.alive and clock.open_loop in ("", KIND):
                self._stepped((thread, id(optimizer)), time.time_ns())

    def _stepped(self, key: tuple[int, int], at: int) -> None:
        if key == self._key or self._key is None:
            # Once it has stepped twice, the round of optimizers that step in turn is over.
            self._round = {key} if self._key is None else set()
            self._key = key
            self._waiting.clear()
            self._end(at)
        elif self._round and key not in self._round and key[0] == self._key[0]:
            # The first round goes on: the step that seemed to be over ends here.
            self._round.add(key)
            self._key = key
            if self._last is not None:
                self._last.end = at
            if self._mark is not None:
                self._mark.start = at
        elif key in self._waiting:
            before = self._waiting[key]
            self._waiting.clear()
            self._round, self._key = set(), key
            self._end(before)
            self._end(at)
        else:
            self._round = set()
            self._waiting[key] = at

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

    def paused(self) -> None:
        """A model was put into evaluation mode: what comes is no step unless an optimizer steps."""
        if self._key is not None and self._key[0] == threading.get_ident():
            self._paused = True

    def loop_begins(self, *, resumes: bool) -> None:
        """A loop begins, or goes on after an evaluation: what was before it is no part of its first step."""
        mark = self._mark
        if mark is None or self._clock.open_loop != KIND or self._clock.in_marker:
            return
        if self._key is None:
            mark.start = self.now()
        elif resumes and self._paused and self._key[0] == threading.get_ident():
            now = self.now()
            self.left_out.append((now - mark.start) / 1e9)
            mark.start = now
            self._paused = False

    def hook(self, torch: Any, patches: Patches) -> Any:
        """Listen to optimizers, models and loaders of `torch`; returns what ends the listening to optimizers."""
        from torch.optim.optimizer import (  # type: ignore[import-not-found,unused-ignore]
            register_optimizer_step_post_hook,
        )

        def stepped(optimizer: Any, *_: Any) -> None:
            self._safely(lambda: self.stepped(optimizer))

        handle = register_optimizer_step_post_hook(stepped)
        self._hook_models(torch, patches)
        self._hook_loaders(patches)
        self._hook_scalers(patches)
        return handle

    def _hook_models(self, torch: Any, patches: Patches) -> None:
        module = getattr(getattr(torch, "nn", None), "Module", None)
        if module is None or "train" not in vars(module):
            return
        original = module.train
        looked_at: set[str] = set()

        @wraps(original)
        def train(model: Any, mode: bool = True) -> Any:
            __tracebackhide__ = True
            if mode is False and getattr(model, "training", False):
                self._safely(self.paused)
                self._safely(lambda: self._hook_lightning(patches, looked_at))
            result = original(model, mode)
            if mode is True:
                self._safely(lambda: self.loop_begins(resumes=True))
            return result

        patches.replace(module, "train", train)

    def _hook_lightning(self, patches: Patches, looked_at: set[str]) -> None:
        """Lightning ends an evaluation by setting ``training`` of each module, not by `train`; it may be imported after PyTorch."""
        for name in _OF_LIGHTNING:
            modes = getattr(sys.modules.get(name), "_ModuleMode", None)
            if name in looked_at or modes is None or "restore" not in vars(modes):
                continue
            looked_at.add(name)
            original = modes.restore

            @wraps(original)
            def restore(self_: Any, model: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
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
            return original(self_)

        patches.replace(loader, "__iter__", iterate)

    def _hook_scalers(self, patches: Patches) -> None:
        """A step that a GradScaler skips, for gradients that are not finite, is the end of a step all the same."""
        for name in ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler"):
            scaler = getattr(sys.modules.get(name), "GradScaler", None)
            if scaler is None or "step" not in vars(scaler):
                continue
            original = scaler.step

            @wraps(original)
            def step(self_: Any, optimizer: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                told = self._told
                result = _original(self_, optimizer, *args, **kwargs)
                if told == self._told:
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
            out.append(f"{self.skipped:,} {'step' if one else 'steps'} without an update: GradScaler found gradients that were not finite")
        if self.left_out:
            some = "a stretch" if len(self.left_out) == 1 else f"{len(self.left_out):,} stretches"
            out.append(f"{some} with the model in evaluation mode ({sum(self.left_out):,.2f} s) between steps: part of no step")
        return out
