"""Step rate of a running cell, and how long its steps wait for input."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from itertools import pairwise
from statistics import median
from typing import Any

from nbprof.capture.loaders import Loaders, of_grain
from nbprof.capture.patches import Patches

RECENT = 64
"""Number of last steps that count as recent."""

# Classes whose `__next__` gives a Python loop its next batch.
_ITERATORS = (
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter"),
    ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator"),
)


class Waits:
    """Seconds that the thread of the steps has spent in iterators, and items that it got.

    Where the framework takes the batch inside its own program, as `fit` of Keras on TensorFlow
    does, nothing of it is seen here.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.total = 0.0
        self.items = 0
        self.thread = 0
        """The thread that ends the steps, whose waits count; 0 while unknown: then any thread
        counts. Filling a queue on another thread delays no step."""
        self.loaders = Loaders()
        """What the iterators belong to."""
        self._since = 0.0
        self._asked_iterator = False
        """True if the open wait is one for an iterator of a framework."""
        self._steps_thread = 0
        """The thread on which `nbprof.steps` waits and has asked no iterator of a framework yet."""
        self._now = now

    @property
    def open_s(self) -> float:
        """Duration of the current wait so far; 0 if nothing waits."""
        since = self._since
        if not since:
            return 0.0
        return max(self._now() - since, 0.0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block, unless it is inside of another one or elsewhere."""
        if self._since or self.thread not in (0, threading.get_ident()):
            yield
            return
        self._asked_iterator = False
        asked = self.loaders.clocks() if self.loaders.counting else None
        self._steps_thread = threading.get_ident()
        self._since = began = self._now()
        try:
            yield
        finally:
            self._since, self._steps_thread = 0.0, 0
            self.total += self._now() - began
            self.items += 1
            if asked is not None and not self._asked_iterator:
                self.loaders.steps_gave(asked)

    def hook(self, patches: Patches) -> None:
        """Watch the iterators of the imported frameworks, and their loaders."""
        self.loaders.hook(patches)
        for module, name in _ITERATORS:
            owner = getattr(sys.modules.get(module), name, None)
            if owner is not None and "__next__" in vars(owner):
                self._around(owner, patches)

    def hook_grain(
        self, patches: Patches, mark: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Watch the iterators of grain, which is imported, and mark their waits in the trace."""
        self.loaders.workers.hook_grain(_GrainLoop(self, mark), patches)

    def _around(self, owner: Any, patches: Patches) -> None:
        original = owner.__next__

        @wraps(original)
        def following(iterator: Any) -> Any:
            __tracebackhide__ = True
            return self.following(original, iterator)

        patches.replace(owner, "__next__", following)

    def following(self, following: Callable[[Any], Any], iterator: Any) -> Any:
        """Ask an iterator for the next batch by this function, and count the time."""
        __tracebackhide__ = True
        # Not the context manager: this runs for every batch, and its frames would stand in the
        # user's traceback.
        thread, loaders = threading.get_ident(), self.loaders
        if self._since or self.thread not in (0, thread):
            self._asked_iterator = True
            if self._steps_thread != thread:
                return following(iterator)
            # `nbprof.steps` has the wait, the loader the batch; loaders inside of it have none.
            self._steps_thread, asked = 0, loaders.clocks()
            try:
                batch = following(iterator)
            finally:
                self._steps_thread = thread
            loaders.gave(iterator, asked)
            return batch
        asked = loaders.clocks()
        self._since = began = self._now()
        try:
            batch = following(iterator)
            loaders.gave(iterator, asked)
            return batch
        finally:
            self._since = 0.0
            self.total += self._now() - began
            self.items += 1


class _GrainLoop:
    """The waits for iterators of grain, also those that `nbprof.steps` goes over."""

    def __init__(self, waits: Waits, mark: Callable[[], AbstractContextManager[None]]) -> None:
        self._waits, self._mark = waits, mark

    def begins(self, iterator: Any, source: str, workers: int) -> None:
        """An iteration begins."""
        self._waits.loaders.iterates(iterator, lambda: of_grain(iterator, source, workers))

    def following(self, following: Callable[[Any], Any], iterator: Any) -> Any:
        """Ask for the next batch."""
        __tracebackhide__ = True
        waits, thread = self._waits, threading.get_ident()
        # Within a wait, or beside the steps, it is none of its own.
        if waits.open_s or waits.thread not in (0, thread):
            return waits.following(following, iterator)
        with self._mark():
            return waits.following(following, iterator)


class Pace:
    """When the last steps ended. What is asked of it may be asked on another thread."""

    def __init__(self, waits: Waits, now: Callable[[], float] = time.perf_counter) -> None:
        self._waits = waits
        self._now = now
        self._ends: deque[tuple[float, float, int]] = deque(maxlen=RECENT + 1)

    def stepped(self) -> None:
        """A step has ended, on the thread that calls this."""
        waits = self._waits
        waits.thread = threading.get_ident()
        self._ends.append((self._now(), waits.total, waits.items))

    def step_ms(self) -> float | None:
        """The median of the recent steps, in ms; None before the second one."""
        ends = self._recent()
        if len(ends) < 2:
            return None
        return median((after[0] - before[0]) * 1e3 for before, after in pairwise(ends))

    def waiting_share(self) -> float | None:
        """The share of the recent steps spent waiting for input, 0 to 1; None if it is unknown."""
        ends = self._recent()
        if len(ends) < 2:
            return None
        took, waited, items = (last - first for first, last in zip(ends[0], ends[-1], strict=True))
        # A loop that takes its batches elsewhere may still use an iterator now and then, as while
        # its program is traced.
        if took <= 0 or items < (len(ends) - 1) / 2:
            return None
        return min(max(waited / took, 0.0), 1.0)

    def waits_now(self) -> bool:
        """Return whether the current step has waited for longer than a step and than a second."""
        return self._waits.open_s > max(1.0, (self.step_ms() or 0.0) / 1e3)

    def _recent(self) -> list[tuple[float, float, int]]:
        for _ in range(3):
            try:
                return list(self._ends)
            except RuntimeError:
                # A step ended meanwhile.
                continue
        return []
