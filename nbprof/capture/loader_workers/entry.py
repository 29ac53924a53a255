"""The target of the worker processes of a DataLoader while it is recorded."""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import time
from pathlib import Path
from typing import Any

from nbprof.capture.loader_workers.folder import Folder

MODULE = "torch.utils.data._utils.worker"
LOOP = "_worker_loop"
PY_DATASETS = "keras.src.trainers.data_adapters.py_dataset_adapter"
"""The module in which Keras takes a PyDataset."""
GRAIN = "grain._src.python.data_loader"
"""The module of grain that is imported after those of its iterators."""


class Entry:
    """In place of PyTorch's loop of a worker, which it runs.

    Parameters
    ----------
    loop : callable
        PyTorch's own.
    samples : bool
        Whether to sample their stacks.
    folder : Folder or None
        Where workers report; None until a loader starts workers.
    loader, began_ns : int
        The loader that starts workers now, and since when, in ns since 1970.
    """

    def __init__(
        self,
        loop: Any,
        samples: bool,
        folder: Folder | None = None,
        loader: int = 0,
        began_ns: int = 0,
    ) -> None:
        self._loop = loop
        self._samples = samples
        self.folder = folder
        # Threads may start the workers of several loaders at a time.
        self._now = threading.local()
        self._now.loader, self._now.began_ns = loader, began_ns

    def starts(self, loader: int, began_ns: int) -> None:
        """The loader with this number starts its workers, on this thread, since then."""
        self._now.loader, self._now.began_ns = loader, began_ns

    def _of_now(self) -> tuple[int, int]:
        return getattr(self._now, "loader", 0), getattr(self._now, "began_ns", time.time_ns())

    def __reduce__(self) -> Any:
        path = "" if self.folder is None else str(self.folder.path)
        return _in_worker, (path, self._samples, *self._of_now())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record this process while PyTorch's loop runs in it."""
        __tracebackhide__ = True
        recorder = None
        with contextlib.suppress(Exception):
            recorder = self._record(args, kwargs)
        try:
            return self._loop(*args, **kwargs)
        finally:
            if recorder is not None:
                with contextlib.suppress(Exception):
                    recorder.end()

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from nbprof.capture.loader_workers.loader_worker import LoaderWorker

        if self.folder is None:
            return None
        # A fork has the parent's lock.
        self.folder.leave()
        arguments = inspect.signature(self._loop).bind(*args, **kwargs).arguments
        loader, began_ns = self._of_now()
        worker = arguments.get("worker_id", -1)
        recorder = LoaderWorker(self.folder, loader, worker, began_ns, self._samples)
        recorder.hook(arguments.get("index_queue"), arguments.get("data_queue"))
        recorder.start()
        return recorder


def _in_worker(path: str, samples: bool, loader: int, began_ns: int) -> Entry:
    """The same in a process that did not inherit it."""
    import importlib

    importlib.import_module(MODULE)
    folder = Folder(Path(path)) if path else None
    return Entry(getattr(sys.modules[MODULE], LOOP), samples, folder, loader, began_ns)
