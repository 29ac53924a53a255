"""The process pools that a recorded cell sends tasks to."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import Any

from nbprof.capture.loader_workers import folder as folders
from nbprof.capture.loader_workers.folder import PAUSED, Folder, remove_leftovers
from nbprof.capture.loader_workers.reports import Reports
from nbprof.capture.loader_workers.watch import Missing
from nbprof.capture.patches import Patches
from nbprof.capture.pools import EXECUTORS, POOL
from nbprof.capture.pools.calls import CHUNK, batch_of, counted
from nbprof.capture.pools.task import Report, Task
from nbprof.capture.pools.use import PoolUse
from nbprof.core import pool_times

_EXECUTOR = "ProcessPoolExecutor"
FIRST = 500
"""Tasks that are timed in any case, each sent on its own."""
COST_NS = 40_000
"""Upper bound of what it costs a worker to receive and time one."""
SHARE = 0.005
"""Share of the time of workers that this may take beyond the first ones."""
_ANSWER_S = 0.3
"""Longest wait for the reports of workers that are about to be terminated."""
_POLL_S = 0.002


class PoolWatch:
    """Has the tasks that are sent from now on time themselves, and collects what workers report.

    Attributes
    ----------
    samples : bool
        Whether workers sample their stacks.
    """

    def __init__(self) -> None:
        self.samples = True
        self._process = os.getpid()
        self._window, self._windows = PAUSED, 0
        self._folder: Folder | None = None
        self._error: OSError | None = None
        self._lock = threading.Lock()
        self._uses: list[PoolUse] = []
        self._use: weakref.WeakKeyDictionary[Any, PoolUse] = weakref.WeakKeyDictionary()
        self._created: weakref.WeakSet[Any] = weakref.WeakSet()
        """Pools of `multiprocessing` that were made meanwhile."""
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()
        """Results of pools that tell when they are complete."""
        self._timed = self._began_ns = 0
        self._hooked: set[str] = set()

    def hook(self, module: ModuleType, patches: Patches) -> None:
        """Watch the pools of a module, one of `MODULES`."""
        if module.__name__ in self._hooked:
            return
        self._hooked.add(module.__name__)
        if module.__name__ == POOL:
            self._hook_pool(module, patches)
        else:
            self._hook_executor(module, patches)
        if len(self._hooked) == 1:
            patches.on_restore(self.close)

    def _hook_pool(self, module: Any, patches: Patches) -> None:
        pools = module.Pool
        generate, apply, end = pools._guarded_task_generation, pools.apply_async, pools.terminate
        make = pools.__init__

        @wraps(make)
        def init(pool: Any, *args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            make(pool, *args, **kwargs)
            if os.getpid() == self._process:
                self._created.add(pool)

        @wraps(generate)
        def tasks(pool: Any, job: Any, call: Any, arguments: Any) -> Any:
            use = self._use_of(pool, module.ThreadPool, _kind(pool))
            if use is not None:
                with contextlib.suppress(Exception):
                    arguments = counted(arguments, call, use.add)
                    call = self._task(call, use)
                    self._follow(pool, job, use)
            return generate(pool, job, call, arguments)

        @wraps(apply)
        def apply_async(pool: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            use = None
            if not _of_keras(func):
                use = self._use_of(pool, module.ThreadPool, _kind(pool))
            if use is None:
                return apply(pool, func, *args, **kwargs)
            with use.handing_over(_calls_in(func, ())):
                result = apply(pool, self._task(func, use), *args, **kwargs)
                with contextlib.suppress(Exception):
                    self._follow(pool, result._job, use)
            return result

        @wraps(end)
        def terminate(pool: Any) -> Any:
            use = self._use.get(pool) if os.getpid() == self._process else None
            if use is not None:
                with contextlib.suppress(Exception):
                    use.count_processes()
                    self._ask(use.running())
            try:
                return end(pool)
            finally:
                if use is not None:
                    use.ends_all()

        patches.replace(pools, "__init__", init)
        patches.replace(pools, "_guarded_task_generation", tasks)
        patches.replace(pools, "apply_async", apply_async)
        patches.replace(pools, "terminate", terminate)

    def _hook_executor(self, module: Any, patches: Patches) -> None:
        executors, kind = getattr(module, _EXECUTOR), EXECUTORS[module.__name__]
        original = executors.submit

        @wraps(original)
        def submit(executor: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            use = self._use_of(executor, (), kind)
            if use is None:
                return original(executor, fn, *args, **kwargs)
            with use.handing_over(_calls_in(fn, args)):
                future = original(executor, self._task(fn, use), *args, **kwargs)
                use.starts(id(future))
                future.add_done_callback(partial(_ended, use))
            return future

        patches.replace(executors, "submit", submit)

    def _use_of(self, pool: Any, excluded: Any, kind: str) -> PoolUse | None:
        """The counts of a pool; None if its tasks do not count."""
        if self._window == PAUSED or os.getpid() != self._process or isinstance(pool, excluded):
            return None
        with contextlib.suppress(Exception), self._lock:
            use = self._use.get(pool)
            if use is None and len(self._uses) < pool_times.MOST_POOLS and self._open_folder():
                use = self._use[pool] = PoolUse(pool, kind, fresh=pool in self._created)
                self._uses.append(use)
            return use
        return None

    def _open_folder(self) -> bool:
        if self._folder is None and self._error is None:
            remove_leftovers()
            try:
                folder = Folder.new()
                folder.open(self._window)
                self._folder = folder
            except OSError as error:
                self._error = error
        return self._folder is not None

    def _task(self, call: Callable[..., Any], use: PoolUse) -> Task:
        return Task(call, partial(self._report, use, self._uses.index(use)))

    def _report(self, use: PoolUse, number: int) -> Report | None:
        """The recording that the task reports to; None if timing it would cost too much."""
        folder, window = self._folder, self._window
        if folder is None or window == PAUSED:
            return None
        # Tasks are sent when a worker is about to be free.
        passed = time.perf_counter_ns() - self._began_ns
        allowed = FIRST + SHARE * passed * max(use.processes, 1) / COST_NS
        if self._timed >= allowed:
            return None
        self._timed += 1
        return Report(str(folder.path), window, number, self.samples)

    def _follow(self, pool: Any, job: Any, use: PoolUse) -> None:
        """Learn when a job of `multiprocessing.pool` is done: its result leaves the pool's list."""
        cache = pool._cache
        result = cache.get(job)
        if result is None:
            return
        use.starts(job)
        reference = weakref.ref(result)
        for name in ("_set", "_set_length"):
            original = getattr(type(result), name, None)
            if original is not None:
                setattr(result, name, partial(_set, original, reference, cache, job, use))
        self._watched.add(result)

    def _ask(self, running: set[int]) -> None:
        """Have workers report that are about to be terminated."""
        folder = self._folder
        if folder is None or self._window == PAUSED:
            return
        awaited = running & set(folder.files())
        asked = folder.ask() if awaited else None
        deadline = time.perf_counter() + _ANSWER_S
        while awaited and asked is not None and time.perf_counter() < deadline:
            time.sleep(_POLL_S)
            files = folder.files()
            for process in list(awaited):
                if process not in files or folders.read(files[process][0]).get("asked") == asked:
                    awaited.discard(process)

    def begin(self) -> None:
        """A window begins."""
        self._windows += 1
        self._timed, self._began_ns = 0, time.perf_counter_ns()
        for use in self._uses:
            use.begin()
        self._open(self._windows)

    def taken(self) -> tuple[dict[str, Any], Missing]:
        """The window ends: what its workers reported, packed for the info, and what is missing."""
        reports, intervals, running = Reports(self._window), [], set()
        for use in self._uses:
            intervals.append(use.intervals())
            running |= use.running()
        self._open(PAUSED)
        if self._folder is not None:
            reports.collect(self._folder, running & set(self._folder.files()))
        missing = Missing(self._error, killed=reports.killed)
        return pool_times.packed(self._uses, intervals, reports.merge), missing

    def _open(self, window: int) -> None:
        self._window = window
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.open(window)

    def close(self) -> None:
        """The recording is over: workers take everything back before their next task."""
        self._window = PAUSED
        for result in list(self._watched):
            for name in ("_set", "_set_length"):
                vars(result).pop(name, None)
        self._watched.clear()
        folder, self._folder = self._folder, None
        # A child that was forked meanwhile leaves the folder to its parent.
        if folder is not None and os.getpid() == self._process:
            folder.remove()


def _set(original: Any, reference: Any, cache: Any, job: Any, use: PoolUse, *args: Any) -> None:
    """In place of a method of a result, which the pool calls; the result must not have itself."""
    original(reference(), *args)
    if job not in cache:
        use.ends(job)


def _ended(use: PoolUse, future: Any) -> None:
    use.ends(id(future))


def _kind(pool: Any) -> str:
    module = type(pool).__module__
    return "joblib" if module.startswith("joblib.") else f"{type(pool).__name__}"


def _calls_in(call: Any, args: tuple[Any, ...]) -> int:
    """Calls of the person's functions in one that is sent."""
    if isinstance(call, partial) and getattr(call.func, "__name__", "") == CHUNK and args:
        return len(args[0])
    batch = batch_of(call)
    return 1 if batch is None else len(batch.items)


def _of_keras(func: Any) -> bool:
    """True for what makes the batches of a PyDataset, which is timed as a loader."""
    return str(getattr(func, "__module__", "")).startswith("keras.")
