"""Records the worker processes of loaders of grain, which grain spawns."""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

from nbprof.capture.loader_workers import grain_nodes as nodes
from nbprof.capture.loader_workers.batches import BatchTimer
from nbprof.capture.loader_workers.entry import GRAIN
from nbprof.capture.loader_workers.folder import Folder
from nbprof.capture.loader_workers.grain_loaders import GrainLoaders
from nbprof.capture.loader_workers.recorder import Recorder
from nbprof.capture.loader_workers.stages import Stage
from nbprof.capture.patches import Patches
from nbprof.core.worker_times import READ_AHEAD

_MODULE = "grain._src.python.dataset.transformations.process_prefetch"
_LOOP = "_put_dataset_elements_in_buffer"
_BY_VALUE = "<dynamic-code>"
"""The file of code that cloudpickle made of values."""
_SHARED, _TREES = "grain._src.python.ipc.shared_memory_array", "grain._src.core.tree_lib"


class About(NamedTuple):
    """The facts that a worker process gets.

    Attributes
    ----------
    folder : str
        Where it reports.
    loader, ahead : int
        The number of its loader in the recording, and of that of threads that read ahead for it.
    worker : int
        Its number in the loader.
    batches : bool
        Whether the loop gets its elements as they are.
    began_ns : int
        When the loader began to start it, in ns since 1970.
    samples : bool
        Whether to sample the stack.
    stages : tuple of Stage
        Those that are known here: code of the program's own loses its file on the way.
    """

    folder: str
    loader: int
    ahead: int
    worker: int
    batches: bool
    began_ns: int
    samples: bool
    stages: tuple[Stage, ...]


class GrainProcesses:
    """The worker processes that grain starts while it is recorded.

    Parameters
    ----------
    starts : callable
        Is called before a process starts, with the number of its loader, its own and how many
        elements it makes ahead; returns the folder to report through, None if there is none.
    number : callable
        As of `GrainLoaders`.
    makes_batches : callable
        Whether the loop gets the elements of a node as they are.
    samples : callable
        Whether to sample their stacks.
    """

    def __init__(
        self,
        starts: Callable[[int, int, int], Folder | None],
        number: Callable[[str], int | None],
        makes_batches: Callable[[Any], bool],
        samples: Callable[[], bool],
    ) -> None:
        self._starts, self._number, self._samples = starts, number, samples
        self._makes_batches = makes_batches
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._entry: _Entry | None = None

    def hook(self, patches: Patches) -> None:
        """Record the processes that start from now on."""
        module = sys.modules.get(_MODULE)
        loop = getattr(module, _LOOP, None)
        owner = getattr(module, nodes.PROCESS, None)
        if loop is None or owner is None or "start_prefetch" not in vars(owner):
            return
        entry = self._entry = _Entry(loop)
        original = owner.start_prefetch

        @wraps(original)
        def start(iterator: Any) -> Any:
            __tracebackhide__ = True
            if vars(iterator).get("_prefetch_process") is not None:
                return original(iterator)
            entry.now.about = None
            with contextlib.suppress(Exception):
                entry.now.about = self._about(iterator)
                self._iterators.add(iterator)
            try:
                return original(iterator)
            finally:
                entry.now.about = None

        patches.replace(module, _LOOP, entry)
        patches.replace(owner, "start_prefetch", start)

    def _about(self, iterator: Any) -> About | None:
        """The facts for the worker that an iterator starts now."""
        began_ns = time.time_ns()
        (node,) = nodes.parents(iterator)
        source = nodes.name_of_source(node)
        if not source:
            return None
        batches = self._makes_batches(node)
        context = nodes.attributes_of(node).get("_mp_context")
        worker = int(getattr(context, "process_index", 0))
        # Grain starts them on several threads at a time.
        with self._lock:
            loader = self._number(source if batches else source + READ_AHEAD)
            ahead = self._number(source + READ_AHEAD)
            if loader is None or ahead is None:
                return None
            folder = self._starts(loader, worker, int(vars(iterator)["_buffer_size"]))
        if folder is None:
            return None
        path, samples = str(folder.path), self._samples()
        stages = tuple(filter(None, map(nodes.stage_of_node, nodes.below(node))))
        return About(path, loader, ahead, worker, batches, began_ns, samples, stages)

    def running(self) -> set[int]:
        """The processes that run now."""
        processes = set()
        for iterator in list(self._iterators):
            with contextlib.suppress(Exception):
                process = vars(iterator).get("_prefetch_process")
                if process is not None and process.is_alive():
                    processes.add(process.pid)
        return processes


class _Entry:
    """In place of what grain runs in a worker process, which it calls."""

    def __init__(self, loop: Any, about: About | None = None) -> None:
        self._loop, self._about = loop, about
        # Several threads start processes at a time.
        self.now = threading.local()

    def __reduce__(self) -> Any:
        return _in_worker, (getattr(self.now, "about", None),)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record this process while grain's loop runs in it."""
        __tracebackhide__ = True
        recorder = None
        if self._about is not None:
            with contextlib.suppress(Exception):
                recorder = GrainWorker(self._about)
                recorder.hook(kwargs.get("buffer"))
                recorder.start()
        try:
            return self._loop(*args, **kwargs)
        finally:
            if recorder is not None:
                with contextlib.suppress(Exception):
                    recorder.end()


def _in_worker(about: About | None) -> _Entry:
    """The same in the process that was started."""
    return _Entry(getattr(importlib.import_module(_MODULE), _LOOP), about)


class GrainWorker(Recorder):
    """Times the elements that this process makes, on its main thread and on those that read ahead
    for that.
    """

    def __init__(self, about: About) -> None:
        folder = Folder(Path(about.folder))
        super().__init__(folder, about.loader, about.worker, about.began_ns, False)
        self._about = about
        loop = _Loop(self.ready)
        loaders = GrainLoaders(lambda: self.counts, self._number, lambda: about.samples, loop)
        self._loaders = loaders
        self.timer = _Timer(loaders, about)

    def hook(self, buffer: Any) -> None:
        """Time what the worker does from now on; the queue is its own."""
        importlib.import_module(GRAIN)
        patches = Patches()
        self._loaders.hook(patches)
        self._hook_shared_memory(patches)
        self.undo.append(patches.restore)
        self.hook_pickler(lambda: threading.current_thread() is getattr(buffer, "_thread", None))

    def _hook_shared_memory(self, patches: Patches) -> None:
        module, trees = sys.modules[_SHARED], importlib.import_module(_TREES)
        original = module.copy_to_shm

        @wraps(original)
        def copy(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            copied = original(*args, **kwargs)
            if self.counts:
                with contextlib.suppress(Exception):
                    trees.map_structure(self._shares, copied)
            return copied

        patches.replace(module, "copy_to_shm", copy)

    def _shares(self, leaf: Any) -> None:
        if type(leaf).__name__ == "SharedMemoryArrayMetadata":
            size = sys.modules["numpy"].dtype(leaf.dtype).itemsize
            self.timer.totals.shared_bytes += math.prod(leaf.shape) * size

    def _number(self, source: str) -> int:
        """The number of a loader, of which a worker knows two."""
        is_ahead = source.endswith(READ_AHEAD)
        return self._about.ahead if is_ahead else self._about.loader


class _Loop:
    """The loop of a worker over its elements, whose waits its loader measures."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready = ready

    def begins(self, *_: Any) -> None:
        """It asks for its first element."""
        self._ready()

    def following(self, following: Callable[[Any], Any], iterator: Any) -> Any:
        """It asks for the next one."""
        __tracebackhide__ = True
        return following(iterator)


class _Timer(BatchTimer):
    """The times of a worker, as `Recorder` reports them."""

    def __init__(self, loaders: GrainLoaders, about: About) -> None:
        self._loaders, self._about = loaders, about
        super().__init__(lambda: False, samples=False)

    def clear(self) -> None:
        """Forget all elements so far."""
        super().clear()
        self._loaders.begin()

    def leave(self) -> None:
        """Leave all classes as they were."""
        self._loaders.close()

    def values(self) -> dict[str, Any]:
        """As plain values for JSON: of this worker, and of the threads that read ahead for it."""
        about = self._about
        values: dict[str, Any] = super().values()
        ahead: dict[str, Any] = {**BatchTimer(lambda: False, samples=False).values()}
        for report in self._loaders.reports():
            report = _with_files(report, about.stages)
            _add(values if report["loader"] == about.loader else ahead, report)
        # The loop of the worker waits for its threads, as the loader does.
        loop = self._loaders.of_loop()
        values["busy_ns"], values["waiting_ns"] = loop["busy_ns"], loop["waiting_ns"]
        values["batches"] = loop["elements"] if about.batches else 0
        if not about.batches:
            values["batch_times"] = []
        if about.ahead == about.loader:
            return values
        about_ahead = {"loader": about.ahead, "worker": about.worker, "began_ns": 0, "start_ns": 0}
        return {**values, "others": [{**ahead, **about_ahead}] if ahead["stages"] else []}


def _with_files(report: dict[str, Any], in_program: tuple[Stage, ...]) -> dict[str, Any]:
    """A report with the files of stages whose code came by value, as a cell's does; the lines that
    were sampled in such code are of an unknown file.
    """
    files = {(stage.kind, stage.name, stage.line): stage.file for stage in in_program}
    stages = []
    for stage in report["stages"]:
        file = files.get((stage["kind"], stage["name"], stage["line"]), "")
        stages.append({**stage, "file": file} if stage["file"] == _BY_VALUE else stage)
    lines = []
    for *stage, function, file, line, count in report["lines"]:
        if _BY_VALUE not in (stage[3], file):
            lines.append([*stage, function, file, line, count])
    return {**report, "stages": stages, "lines": lines}


_ADDED = ("items", "busy_ns", "cpu_ns", "waiting_ns", "timed_items", "timed_busy_ns")


def _add(sums: dict[str, Any], report: dict[str, Any]) -> None:
    """Add the report of a thread to that of its process."""
    for name in _ADDED:
        sums[name] += report[name]
    for name in ("stages", "lines", "batch_times"):
        sums[name] = [*sums[name], *report[name]]
