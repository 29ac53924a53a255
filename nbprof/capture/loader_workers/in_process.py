"""Times the batches of loaders without workers, in the process of the cell."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from nbprof.capture.loader_workers.batches import BatchTimer
from nbprof.capture.loader_workers.entry import PY_DATASETS
from nbprof.capture.loader_workers.reporter import Reporter
from nbprof.capture.patches import Patches
from nbprof.core.worker_times import IN_PROCESS, MOST_ROWS

_ITERATORS = "torch.utils.data.dataloader"


class InProcess:
    """The loaders whose batches the loop makes itself.

    Their items are timed and sampled as in a worker process, on the thread that iterates.

    Parameters
    ----------
    counts : callable
        Whether a window is open.
    number : callable
        The number of a loader in the recording; None if there are too many.
    samples : bool
        Whether to sample the stack while batches are made.
    """

    def __init__(
        self,
        counts: Callable[[], bool],
        number: Callable[[Any], int | None],
        *,
        samples: bool,
    ) -> None:
        self._counts, self._number, self._samples = counts, number, samples
        self._timers: dict[tuple[int, int], _Timer] = {}
        """By thread and loader."""
        self.making: BatchTimer | None = None
        """The timer that makes a batch now, whose thread is sampled."""
        self._reporter: Reporter | None = None

    def hook(self, patches: Patches) -> None:
        """Time the iterators that are made from now on."""
        owner = getattr(sys.modules.get(_ITERATORS), "_SingleProcessDataLoaderIter", None)
        if owner is None or "__init__" not in vars(owner):
            return
        original = owner.__init__

        @wraps(original)
        def make(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            original(iterator, loader, *args, **kwargs)
            with contextlib.suppress(Exception):
                self._watch(iterator, loader)

        patches.replace(owner, "__init__", make)
        patches.on_restore(self.close)

    def _watch(self, iterator: Any, loader: Any) -> None:
        number, dataset = self._number(loader), vars(iterator)["_dataset"]
        if number is None or _is_of_py_dataset(dataset):
            return
        key = (threading.get_ident(), number)
        timer = self._timers.get(key)
        if timer is None:
            if len(self._timers) >= MOST_ROWS:
                return
            timer = self._timers[key] = _Timer(self, self._counts, samples=self._samples)
        timer.watch(vars(iterator)["_dataset_fetcher"], dataset)
        if self._reporter is None and self._samples:
            self._reporter = Reporter(self._look, lambda: None)
            self._reporter.start()

    def _look(self) -> bool:
        making = self.making
        if making is not None:
            making.samples.take()
        return True

    def begin(self) -> None:
        """A window begins."""
        for timer in list(self._timers.values()):
            timer.clear()

    def reports(self) -> list[dict[str, Any]]:
        """A report for each loader, like that of a worker."""
        about = {"worker": IN_PROCESS, "began_ns": 0, "start_ns": 0}
        return [
            {"loader": loader, **about, **timer.values()}
            for (_, loader), timer in list(self._timers.items())
            if timer.totals.batches
        ]

    def close(self) -> None:
        """Leave all iterators as they were."""
        reporter, self._reporter = self._reporter, None
        if reporter is not None:
            reporter.stop()
        for timer in list(self._timers.values()):
            timer.leave()
        self._timers.clear()


def _is_of_py_dataset(dataset: Any) -> bool:
    """True if Keras made a dataset of the batches of a PyDataset, which are timed themselves."""
    code = getattr(vars(dataset).get("iterable"), "gi_code", None)
    file = getattr(sys.modules.get(PY_DATASETS), "__file__", None)
    return code is not None and code.co_filename == file


class _Timer(BatchTimer):
    """Times the batches of a loader on the thread that makes this object."""

    def __init__(self, loaders: InProcess, counts: Callable[[], bool], *, samples: bool) -> None:
        self._loaders = loaders
        self._ended_ns = 0
        """When the last batch of this iteration was made."""
        super().__init__(counts, samples=samples)

    def clear(self) -> None:
        """Forget all batches so far."""
        super().clear()
        self._ended_ns = 0

    def watch(self, fetcher: Any, dataset: Any) -> None:
        """Time the batches of an iteration."""
        self._ended_ns, self.number = 0, -1
        super().watch(fetcher, dataset)

    def began(self) -> None:
        """Until now the loop did something else."""
        self.number += 1
        if self._ended_ns:
            self.totals.waiting_ns += time.perf_counter_ns() - self._ended_ns
        self._loaders.making = self

    def ended(self) -> None:
        """From now on the loop does something else."""
        self._loaders.making = None
        self._ended_ns = time.perf_counter_ns()
