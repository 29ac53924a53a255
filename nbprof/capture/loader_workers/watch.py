"""The workers of the loaders that a recording sees start."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from nbprof.capture.loader_workers import entry, running
from nbprof.capture.loader_workers.folder import PAUSED, Folder, remove_leftovers
from nbprof.capture.loader_workers.loop import Loop
from nbprof.capture.loader_workers.reports import Reports
from nbprof.capture.loader_workers.stages import call_ns, cpu_clock_ns
from nbprof.capture.patches import Patches
from nbprof.core import worker_times

if TYPE_CHECKING:
    from nbprof.capture.loader_workers.grain_loaders import GrainLoaders
    from nbprof.capture.loader_workers.grain_loaders import Loop as GrainLoop
    from nbprof.capture.loader_workers.grain_processes import GrainProcesses
    from nbprof.capture.loader_workers.in_process import InProcess
    from nbprof.capture.loader_workers.pools import Pools
    from nbprof.capture.loader_workers.py_datasets import PyDatasets
    from nbprof.capture.loader_workers.tf_functions import TfFunctions

_SCRIPT_OPS = "tensorflow.python.ops.script_ops"
_ITERATORS = "torch.utils.data.dataloader"


class Missing(NamedTuple):
    """Gaps in what the workers of a window reported.

    Attributes
    ----------
    error : OSError or None
        Why no worker could report.
    unreached, running : int
        Workers that ran at the end without a report, of so many.
    killed : int
        Workers that ended without a last report.
    """

    error: OSError | None = None
    unreached: int = 0
    running: int = 0
    killed: int = 0


class WorkerWatch:
    """Has the workers that start from now on record themselves, and collects what they report.

    Attributes
    ----------
    samples : bool
        Whether they sample their stacks.
    """

    def __init__(self) -> None:
        self.samples = True
        self._entry: entry.Entry | None = None
        self._in_process: InProcess | None = None
        self._py_datasets: PyDatasets | None = None
        self._pools: Pools | None = None
        self._tf_functions: TfFunctions | None = None
        self._of_tf_data: int | None = None
        """The number of tf.data as a loader."""
        self._grain: GrainLoaders | None = None
        self._grain_processes: GrainProcesses | None = None
        self._of_grain: dict[str, int] = {}
        """The numbers of the loaders of grain, by the class of what they read."""
        self._folder: Folder | None = None
        self._window = self._windows = 0
        self._number_of: dict[int, int] = {}
        """The number of each process of a pool."""
        self._reports = Reports(PAUSED, self._number_of)
        self._loop = Loop()
        self._error: OSError | None = None
        self._loaders: list[dict[str, Any]] = []
        self._number: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._earlier: weakref.WeakSet[Any] = weakref.WeakSet()
        """Iterators whose workers ran before the recording, and were not reached."""
        self._unreach: list[Callable[[], None]] = []
        """Leaves the queues of workers that are to be reached as they were."""
        self._process = os.getpid()

    def hook(self, patches: Patches) -> None:
        """Let PyTorch start our loop of a worker, if it is imported by now."""
        module = sys.modules.get(entry.MODULE)
        if self._entry is not None or module is None:
            return
        loop = vars(module).get(entry.LOOP)
        if loop is None:
            return
        # Late, and here, so that workers that are forked have it.
        importlib.import_module("nbprof.capture.loader_workers.loader_worker")
        from nbprof.capture.loader_workers.in_process import InProcess

        # Workers that are forked know these.
        call_ns()
        cpu_clock_ns()
        self._in_process = InProcess(
            lambda: self._window != PAUSED, self._number.get, samples=self.samples
        )
        self._in_process.hook(patches)
        self._entry = entry.Entry(loop, self.samples)
        patches.replace(module, entry.LOOP, self._entry)
        self._hook_iterators(patches)
        patches.on_restore(self.close)

    def _hook_iterators(self, patches: Patches) -> None:
        """Time how long a loop waits for workers to be started."""
        iterators = getattr(sys.modules.get(_ITERATORS), "_MultiProcessingDataLoaderIter", None)
        if iterators is None or "__init__" not in vars(iterators):
            return
        original = iterators.__init__

        @wraps(original)
        def make(iterator: Any, *args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            began = time.perf_counter_ns()
            original(iterator, *args, **kwargs)
            with contextlib.suppress(Exception):
                self._loop.made(iterator, time.perf_counter_ns() - began)

        patches.replace(iterators, "__init__", make)

    @property
    def _here(self) -> list[InProcess | PyDatasets | TfFunctions | GrainLoaders]:
        """The timers of batches that this process makes."""
        parts = (self._in_process, self._py_datasets, self._tf_functions, self._grain)
        return [each for each in parts if each is not None]

    def begin(self) -> None:
        """A window begins."""
        self._windows += 1
        self._reports = Reports(self._windows, self._number_of)
        self._loop.clear()
        for each in self._here:
            each.begin()
        self._open(self._windows)

    def hook_keras(self, module: Any, patches: Patches) -> None:
        """Watch what makes batches for Keras; `module` is `entry.PY_DATASETS`."""
        # Here, so that workers that are forked have it.
        from nbprof.capture.loader_workers.pools import Pools
        from nbprof.capture.loader_workers.py_datasets import PyDatasets

        here = PyDatasets(lambda: self._window != PAUSED, (module.PyDataset,), lambda: self.samples)
        self._pools = Pools(here.is_worker, self._pool_starts, self._number_of)
        self._pools.hook(module, patches)
        self._py_datasets = here
        patches.on_restore(self.close)

    def hook_tensorflow(self, patches: Patches) -> None:
        """Time the Python functions that tf.data calls, if TensorFlow is imported by now."""
        if self._tf_functions is not None or _SCRIPT_OPS not in sys.modules:
            return
        from nbprof.capture.loader_workers.tf_functions import TfFunctions

        functions = TfFunctions(
            lambda: self._window != PAUSED, self._number_of_tf_data, lambda: self.samples
        )
        functions.hook(patches)
        self._tf_functions = functions

    def _number_of_tf_data(self) -> int | None:
        if self._of_tf_data is None and len(self._loaders) < worker_times.MOST_ROWS:
            self._of_tf_data = len(self._loaders)
            self._loaders.append({"dataset": worker_times.TF_DATA, "workers": 0, "prefetch": 0})
        return self._of_tf_data

    def hook_grain(self, loop: GrainLoop, patches: Patches) -> None:
        """Time what the loaders of grain make, which is imported."""
        if self._grain is not None:
            return
        from nbprof.capture.loader_workers.grain_loaders import GrainLoaders
        from nbprof.capture.loader_workers.grain_processes import GrainProcesses

        grain = GrainLoaders(
            lambda: self._window != PAUSED, self._number_of_grain, lambda: self.samples, loop
        )
        processes = GrainProcesses(
            self._grain_starts, self._number_of_grain, grain.makes_batches, lambda: self.samples
        )
        grain.hook(patches)
        processes.hook(patches)
        self._grain, self._grain_processes = grain, processes
        patches.on_restore(self.close)

    def _number_of_grain(self, source: str) -> int | None:
        number = self._of_grain.get(source)
        if number is None and len(self._loaders) < worker_times.MOST_ROWS:
            number = self._of_grain[source] = len(self._loaders)
            self._loaders.append({"dataset": source[:100], "workers": 0, "prefetch": 0})
        return number

    def _grain_starts(self, number: int, worker: int, prefetch: int) -> Folder | None:
        """A worker process of a loader of grain starts: where it reports."""
        loader = self._loaders[number]
        loader["workers"], loader["prefetch"] = max(loader["workers"], worker + 1), prefetch
        return self._report_folder()

    def takes(self, adapter: Any, dataset: Any, patches: Patches) -> None:
        """Keras takes a PyDataset, with the adapter that holds it."""
        if self._py_datasets is None:
            return
        number = self._py_datasets.number(dataset)
        if number is None:
            if len(self._loaders) >= worker_times.MOST_ROWS:
                return
            number = len(self._loaders)
            self._loaders.append(_about(dataset))
        self._py_datasets.watch(dataset, number, adapter, patches)

    def _pool_starts(self, dataset: Any) -> tuple[Folder, int, bool] | None:
        """The processes for a PyDataset start: where they report, and its number."""
        number = None if self._py_datasets is None else self._py_datasets.number(dataset)
        folder = None if number is None else self._report_folder()
        return None if folder is None or number is None else (folder, number, self.samples)

    def iterates(self, loader: Any, iterator: Any) -> None:
        """A loader is iterated over; its workers start on this thread now, or run already."""
        if self._entry is None:
            return
        number = self._number.get(loader)
        if number is None:
            if len(self._loaders) >= worker_times.MOST_ROWS:
                return
            number = self._number[loader] = len(self._loaders)
            self._loaders.append({"dataset": "", "workers": 0, "prefetch": 0})
        attributes = object.__getattribute__(loader, "__dict__")
        dataset = type(attributes.get("dataset")).__name__
        self._loaders[number] = {
            "dataset": dataset[:100],
            "workers": int(attributes.get("num_workers") or 0),
            "prefetch": int(attributes.get("prefetch_factor") or 0),
        }
        if not attributes.get("num_workers"):
            return
        began_ns = time.time_ns()
        self._loop.begins(iterator, number, began_ns)
        if "_workers" not in vars(iterator):
            self._starts(number, began_ns)
            self._iterators.add(iterator)
        elif iterator not in self._iterators:
            self._reach(iterator, number)
            self._loop.watch(iterator)

    def gave(self, iterator: Any, wait_s: float) -> None:
        """The loop over an iterator has waited so long for a batch."""
        if self._window != PAUSED:
            self._loop.gave(iterator, round(wait_s * 1e9))

    def _starts(self, number: int, began_ns: int) -> None:
        """The loader with this number starts its workers."""
        assert self._entry is not None
        self._entry.folder = self._report_folder()
        self._entry.starts(number, began_ns)

    def _reach(self, iterator: Any, number: int) -> None:
        """The workers of an iterator run already: its next requests make them record themselves."""
        folder = self._report_folder()
        if folder is None:
            self._earlier.add(iterator)
            return
        about = running.About(str(folder.path), number, self.samples)
        for queue in vars(iterator)["_index_queues"]:
            self._unreach.append(running.reach(queue, about))
        self._iterators.add(iterator)

    def _report_folder(self) -> Folder | None:
        """The folder for the reports of workers that start now; None if there can be none."""
        if self._folder is None and self._error is None:
            try:
                self._make_folder()
            except OSError as error:
                self._error = error
        elif self._folder is not None:
            self._reports.collect_ended(self._folder, self._running())
        return self._folder

    @property
    def processes(self) -> set[int]:
        """The worker processes of loaders; none of them is asked whether it still runs."""
        processes = set()
        for iterator in list(self._iterators):
            processes |= {worker.pid for worker in vars(iterator).get("_workers", ())}
        return processes

    def _running(self) -> set[int]:
        """The worker processes that run now and report."""
        pools = set() if self._pools is None else self._pools.running()
        grain = set() if self._grain_processes is None else self._grain_processes.running()
        return _running(self._iterators) | pools | grain

    def _make_folder(self) -> None:
        remove_leftovers()
        folder = Folder.new()
        try:
            folder.open(self._window)
        except OSError:
            folder.remove()
            raise
        self._folder = folder

    def taken(self) -> tuple[dict[str, Any], Missing]:
        """The window ends: the reports of its workers, packed for the info, and what is missing."""
        self._window = PAUSED
        alive, earlier = self._running(), _running(self._earlier)
        reports = self._reports
        if self._folder is not None:
            self._open(PAUSED)
            reports.collect(self._folder, alive)
        if self._pools is not None:
            self._pools.release()
        for each in self._here:
            for report in each.reports():
                reports.merge.add(report)
        unseen = len((alive | earlier) - reports.processes)
        missing = Missing(self._error, unseen, len(alive | earlier), reports.killed)
        return reports.merge.packed(self._loaders, self._loop.values()), missing

    def _open(self, window: int) -> None:
        self._window = window
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.open(window)

    def close(self) -> None:
        """The recording is over: workers that still run take everything back."""
        self._loop.close()
        while self._unreach:
            self._unreach.pop()()
        if self._py_datasets is not None:
            self._py_datasets.close()
        if self._pools is not None:
            self._pools.release()
        folder, self._folder = self._folder, None
        if self._entry is not None:
            # Something else may have wrapped it, and start workers with it yet.
            self._entry.folder = None
        self._entry = None
        # A child that was forked meanwhile leaves the folder to its parent.
        if folder is not None and os.getpid() == self._process:
            folder.remove()


def _about(dataset: Any) -> dict[str, Any]:
    """The facts on a PyDataset that are stored of a loader."""
    attributes = object.__getattribute__(dataset, "__dict__")
    workers = int(attributes.get("_workers") or 0)
    if not attributes.get("_use_multiprocessing") and workers < 2:
        workers = 0
    return {
        "dataset": type(dataset).__name__[:100],
        "workers": workers,
        "prefetch": int(attributes.get("_max_queue_size") or 0) if workers else 0,
    }


def _running(iterators: Iterable[Any]) -> set[int]:
    """The processes of the workers of iterators that run now."""
    processes = set()
    for iterator in list(iterators):
        with contextlib.suppress(Exception):
            for worker in vars(iterator).get("_workers", ()):
                if worker.is_alive():
                    processes.add(worker.pid)
    return processes
