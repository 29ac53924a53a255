"""Times what the loaders of grain make in this process: in the loop, and in their threads.

Each node of a pipeline asks those below it for elements. The methods that give one are replaced
until the end of the recording; on each thread the outermost call makes an element, and the calls
within it are timed, each without those inside of it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial, wraps
from types import FunctionType, MethodType
from typing import Any, NamedTuple, Protocol

from nbprof.capture.loader_workers import grain_nodes as nodes
from nbprof.capture.loader_workers.batches import CLOCK_SHARE, MOST_BATCHES
from nbprof.capture.loader_workers.entry import GRAIN
from nbprof.capture.loader_workers.items import Items
from nbprof.capture.loader_workers.reporter import Reporter
from nbprof.capture.loader_workers.samples import Samples
from nbprof.capture.loader_workers.stages import (
    Stage,
    Stages,
    Times,
    call_ns,
    cpu_clock_ns,
)
from nbprof.capture.loader_workers.totals import Sampled, Totals
from nbprof.capture.patches import Patches
from nbprof.core.worker_times import IN_PROCESS, MOST_ROWS, READ_AHEAD

_DATASET = "grain._src.python.dataset.dataset"
_TRACEBACKS = "grain._src.core.traceback_util"
_NEXT, _ITEM, _ITEMS = "__next__", "__getitem__", "_getitems"
_SHARE = 0.004
"""Share of the time of elements that timing them may take: of short ones, only some are timed."""
_CALLS = 8
"""Calls of `Stages` that take as long as all that times one element."""
_RESTS = 20
"""Elements that are not timed, from which on nodes that others ask are left alone meanwhile."""
_MOST_NODES = 5_000
_MOST_AT_A_TIME = 16
"""Threads that are sampled at a time."""
_THREADS = "grain-"
"""Names of grain's threads begin so."""

Hooked = tuple[type, str]


class _Node(NamedTuple):
    """A node that was seen: where its time goes, and whether it is the one that a thread takes its
    items from.
    """

    node: weakref.ref[Any]
    times: Times
    reads: bool


class Maker:
    """Times the elements that one thread makes for a loader.

    Parameters
    ----------
    worker : int
        Number of the thread in the loader, or `IN_PROCESS`.
    samples : bool
        Whether to sample the stack.

    Attributes
    ----------
    stages : Stages
    samples : Samples
    elements : int
        Those that were made.
    timed : bool
        Whether the one that is being made is timed.
    batches : bool
        Whether the loop gets them as they are.
    changes : int
        Methods that were replaced to time the next element.
    takes_batches : bool
        Whether worker processes make batches for it, of which they count the items.
    """

    def __init__(self, worker: int, *, samples: bool) -> None:
        self.worker = worker
        self.stages = Stages()
        self.samples = Samples(self.stages, enabled=samples)
        self.timed = self.batches = self.takes_batches = False
        self._handing_over = Times(Stage("", "", "", "", 0))
        """Of nodes that wait for threads or processes."""
        self._passing_on = Times(Stage("", "", "", "", 0))
        """Of nodes of grain's that only pass elements on, or choose them."""
        self._nodes: dict[int, _Node] = {}
        self._outermost: dict[int, weakref.ref[Any]] = {}
        """Nodes whose elements it makes."""
        self._sources: dict[int, weakref.ref[Any]] = {}
        self._node: Any = None
        """The innermost node that runs."""
        self.changes = 0
        self._skip = 0
        self._thread = weakref.ref(threading.current_thread())
        self.clear()

    @property
    def is_due(self) -> bool:
        """True if the next element is timed."""
        return self._skip <= 0

    @property
    def rests(self) -> bool:
        """True if many are not timed until then."""
        return self._skip > _RESTS

    @property
    def is_free(self) -> bool:
        """True if its thread has ended."""
        thread = self._thread()
        return thread is None or not thread.is_alive()

    def bind(self) -> None:
        """Time what the current thread makes from now on."""
        self._thread = weakref.ref(threading.current_thread())
        self.stages.bind()
        self.samples.bind()
        self._ended_ns = 0

    def clear(self) -> None:
        """Forget all elements so far."""
        self.stages.clear()
        self.samples.clear()
        self._handing_over.clear()
        self._passing_on.clear()
        self._cpu = Sampled(CLOCK_SHARE, cpu_clock_ns())
        self._batches: list[tuple[int, int, int, int]] = []
        self.elements = self._timed_elements = self._items = 0
        self._busy_ns = self._took_ns = self._waiting_ns = self._ended_ns = 0

    def reads_from(self, node: Any) -> None:
        """The elements of a node are made by this thread."""
        if _is(self._outermost.get(id(node)), node):
            return
        if len(self._outermost) >= _MOST_NODES:
            self._outermost.clear()
            self._sources.clear()
        self._outermost[id(node)] = weakref.ref(node)
        for source in nodes.sources(node):
            self._sources[id(source)] = weakref.ref(source)

    def make(self, node: Any, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Make an element by this call."""
        __tracebackhide__ = True
        self.timed = self.is_due
        if not self.timed:
            self._skip -= 1
            element = call(node, *args)
            self.elements += 1
            self._ended_ns = time.perf_counter_ns()
            return element
        before = self._calls, self._handing_over.self_ns, self._items
        of_cpu = self._cpu.is_due(self._busy_ns)
        cpu = time.thread_time_ns() if of_cpu else 0
        start_ns, began = time.time_ns(), time.perf_counter_ns()
        waiting = began - self._ended_ns if self._ended_ns else 0
        try:
            element = self.run(node, call, args)
        finally:
            self._ended_ns = time.perf_counter_ns()
            self._node = None
        took = self._ended_ns - began
        busy = max(took - (self._handing_over.self_ns - before[1]), 0)
        if of_cpu:
            self._cpu.add(time.thread_time_ns() - cpu, busy)
        self.elements += 1
        self._timed_elements += 1
        self._busy_ns += busy
        self._took_ns += took
        self._waiting_ns += waiting
        if self.batches and len(self._batches) < MOST_BATCHES:
            self._batches.append((-1, start_ns, took, self._items - before[2]))
        cost = (self._calls - before[0] + _CALLS + self.changes) * call_ns()
        self._skip = int(cost / max(_SHARE * took, 1.0))
        return element

    @property
    def _calls(self) -> int:
        return self.stages.calls() + self._handing_over.calls + self._passing_on.calls

    def run(self, node: Any, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call a method of a node that gives an element, or several."""
        __tracebackhide__ = True
        entry = self._nodes.get(id(node))
        if entry is None or entry.node() is not node:
            entry = self._look_at(node)
        # The method of a parent class, or the same one by another name.
        if node is self._node:
            return call(node, *args)
        count = len(args[0]) if args and isinstance(args[0], (list, tuple)) else 1
        times, items = entry.times, self._items
        longest, before = times.longest_ns, times.self_ns
        outer, self._node = self._node, node
        try:
            element = self.stages.run(times, call, (node, *args), {}, calls=count)
        except StopIteration:
            times.calls -= count
            raise
        finally:
            self._node = outer
            # Not with the nodes that it takes its elements from.
            times.longest_ns = max(longest, (times.self_ns - before) // max(count, 1))
        # Items that another thread hands over were read there.
        if entry.reads and self._items == items:
            self._items += count
        return element

    def _look_at(self, node: Any) -> _Node:
        times, reads = None, _is(self._sources.get(id(node)), node)
        with contextlib.suppress(Exception):
            if type(node).__name__ in nodes.HANDS_OVER:
                times, reads = self._handing_over, not self.takes_batches
            else:
                stage = nodes.stage_of_node(node)
                times = None if stage is None else self.stages.times(stage)
        entry = _Node(weakref.ref(node), times or self._passing_on, reads)
        if len(self._nodes) >= _MOST_NODES:
            self._nodes.clear()
        self._nodes[id(node)] = entry
        return entry

    @property
    def took_ns(self) -> int:
        """Time in which it made elements, or waited for other threads to."""
        return self._of_all(self._took_ns)

    @property
    def waiting_ns(self) -> int:
        """Time in which nothing was asked of it."""
        return self._of_all(self._waiting_ns)

    def _of_all(self, value: int) -> int:
        """A sum over all elements, by those that were timed."""
        return value * self.elements // max(self._timed_elements, 1)

    @property
    def has_stages(self) -> bool:
        """True if it did more than to pass elements on."""
        return bool(self.stages.values())

    def values(self, *, batches: bool) -> dict[str, Any]:
        """All that is entry, as plain values for JSON: of all elements, by those that were timed.

        Parameters
        ----------
        batches : bool
            Whether the elements are counted as batches.
        """
        # Innermost first, as items pass them.
        stages = self.stages.values()[::-1]
        for values in stages:
            values["total_ns"] = values["self_ns"]
            for name in ("calls", "total_ns", "self_ns"):
                values[name] = self._of_all(values[name])
        totals = dict(vars(Totals()))
        totals["items"] = totals["timed_items"] = self._of_all(self._items)
        totals["busy_ns"] = totals["timed_busy_ns"] = self._of_all(self._busy_ns)
        totals["waiting_ns"] = self.waiting_ns
        totals["cpu_ns"] = self._cpu.total(totals["busy_ns"])
        totals["batches"] = self.elements if batches else 0
        return {
            **totals,
            "stages": stages,
            "lines": self.samples.values(),
            "batch_times": list(self._batches) if batches else [],
            **Items().values(),
        }


def _is(reference: weakref.ref[Any] | None, node: Any) -> bool:
    return reference is not None and reference() is node


class _Method:
    """In place of a method of a class that grain does not define: where such a class is pickled,
    the method is.
    """

    def __init__(self, original: Any, timed: Any) -> None:
        self._original, self._timed = original, timed
        self.__wrapped__ = original

    def __get__(self, node: Any, owner: type | None = None) -> Any:
        return self if node is None else MethodType(self._timed, node)

    def __call__(self, *args: Any) -> Any:
        __tracebackhide__ = True
        return self._timed(*args)

    def __reduce__(self) -> Any:
        return _itself, (self._original,)


def _itself(method: Any) -> Any:
    return method


class _Root(NamedTuple):
    """An outermost node, the class of what it reads, empty if its elements are not timed, and
    whether worker processes make its elements as they are.
    """

    node: weakref.ref[Any]
    source: str
    takes_batches: bool


class Loop(Protocol):
    """Measures how long loops wait for iterators."""

    def begins(self, iterator: Any, source: str, workers: int) -> None:
        """A loop asks an iterator for a batch for the first time: it reads objects of this class,
        in so many processes.
        """

    def following(self, following: Callable[[Any], Any], iterator: Any) -> Any:
        """Ask an iterator for the next batch, by this function."""


class _Thread(threading.local):
    """The loaders that a thread makes elements for, with its makers."""

    def __init__(self) -> None:
        self.maker: Maker | None = None
        self.makers: dict[str, Maker] = {}
        name = threading.current_thread().name
        self.name = name if name.startswith(_THREADS) else ""


class GrainLoaders:
    """The loaders of grain whose elements this process makes.

    Those that read objects of the same class are one loader; threads that read ahead for others are
    one by themselves.

    Parameters
    ----------
    counts : callable
        Whether a window is open.
    number : callable
        The number in the recording of the loader that reads objects of this class; None if there
        are too many loaders.
    samples : callable
        Whether to sample the threads that make elements.
    loop : Loop
        What the loops over them report to.
    """

    def __init__(
        self,
        counts: Callable[[], bool],
        number: Callable[[str], int | None],
        samples: Callable[[], bool],
        loop: Loop,
    ) -> None:
        self._counts, self._number, self._samples = counts, number, samples
        self._loop = loop
        self._here = _Thread()
        self._idle = Maker(IN_PROCESS, samples=False)
        """In place of one while nothing is timed."""
        self._lock = threading.Lock()
        self._roots: dict[int, _Root] = {}
        self._elsewhere: dict[int, weakref.ref[Any]] = {}
        """Nodes whose elements threads make, and the loop gets as they are."""
        self._makers: dict[str, list[Maker]] = {}
        """By the class of what is read."""
        self._threads: dict[tuple[str, str], int] = {}
        """Numbers of threads, by loader and name."""
        self._making: dict[int, Maker] = {}
        """By thread, what makes an element that is timed."""
        self._hooked: dict[Hooked, tuple[Any, Any]] = {}
        """The original and what stands in its place."""
        self._original_of: dict[Any, Any] = {}
        self._entries: set[Hooked] = set()
        """Those of outermost nodes."""
        self._timing = 0
        """Threads that time an element."""
        self._rests = False
        """True while only outermost nodes are replaced."""
        self._process = os.getpid()
        self._reporter: Reporter | None = None

    def hook(self, patches: Patches) -> None:
        """Time the elements that are made from now on."""
        # Before threads start: both are measured once.
        call_ns()
        cpu_clock_ns()
        module = sys.modules[_DATASET]
        self._hook(sys.modules[GRAIN].DataLoaderIterator, _NEXT)
        for owner in _subclasses(module.DatasetIterator):
            self._hook(owner, _NEXT)
        output = getattr(module, "_OutputIterDataset", None)
        if output is not None:
            self._follow_filters(output, patches)
        patches.on_restore(self.close)

    def _follow_filters(self, output: Any, patches: Patches) -> None:
        """Stay outside of what grain puts around `__next__` of outermost iterators, for good: it
        shortens tracebacks.
        """
        original = output.__iter__

        @wraps(original)
        def iterate(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            iterator = original(*args, **kwargs)
            with contextlib.suppress(Exception):
                self._refit(type(iterator))
            return iterator

        patches.replace(output, "__iter__", iterate)

    def _refit(self, owner: type) -> None:
        current, hooked = vars(owner).get(_NEXT), self._hooked.get((owner, _NEXT))
        if hooked is None or current not in hooked:
            inner = self._original_of.get(getattr(current, "__wrapped__", None))
            if inner is not None:
                shortens = sys.modules[_TRACEBACKS].run_with_traceback_filter
                setattr(owner, _NEXT, shortens(inner))
            self._hooked.pop((owner, _NEXT), None)
            self._hook(owner, _NEXT)

    def _hook(self, owner: type, name: str) -> None:
        """Time what a class itself defines, from now on."""
        original = vars(owner).get(name)
        with self._lock:
            if not isinstance(original, FunctionType) or (owner, name) in self._hooked:
                return
            timed: Any = self._timed(original, of_loop=name == _NEXT)
            if not nodes.is_of_grain(owner):
                timed = _Method(original, timed)
            self._hooked[owner, name] = original, timed
            self._original_of[timed] = original
            setattr(owner, name, timed)

    def _timed(self, original: Any, *, of_loop: bool) -> Any:
        here = self._here

        # Most calls come from other nodes, while nothing is timed.
        @wraps(original)
        def timed(node: Any, *args: Any) -> Any:
            __tracebackhide__ = True
            maker = here.maker
            if maker is None:
                return self._outermost(original, node, args, of_loop=of_loop)
            if maker.timed:
                return maker.run(node, original, args)
            return original(node, *args)

        return timed

    def _outermost(self, original: Any, node: Any, args: tuple[Any, ...], *, of_loop: bool) -> Any:
        """Something else than another node asks a node for an element."""
        __tracebackhide__ = True
        # A slice of a dataset is a dataset.
        if args and isinstance(args[0], slice):
            return original(node, *args)
        here, maker = self._here, None
        with contextlib.suppress(Exception):
            maker = self._maker(node)
        here.maker = maker or self._idle
        try:
            if of_loop and not here.name:
                return self._loop.following(partial(self._make, maker, original, args), node)
            return self._make(maker, original, args, node)
        finally:
            here.maker = None

    def _make(self, maker: Maker | None, original: Any, args: tuple[Any, ...], node: Any) -> Any:
        __tracebackhide__ = True
        if maker is None:
            return original(node, *args)
        if not maker.is_due:
            return maker.make(node, original, args)
        thread = threading.get_ident()
        maker.changes = self._wake()
        self._making[thread] = maker
        try:
            return maker.make(node, original, args)
        finally:
            self._making.pop(thread, None)
            self._rest(maker)

    def _wake(self) -> int:
        """Time the nodes within the outermost ones; returns how many methods that replaces."""
        with self._lock:
            self._timing += 1
            if not self._rests:
                return 0
            self._rests = False
            for (owner, name), (original, timed) in self._hooked.items():
                if vars(owner).get(name) is original:
                    setattr(owner, name, timed)
            return len(self._hooked)

    def _rest(self, maker: Maker) -> None:
        """An element was timed: where the next one to be is far, only outermost nodes need to be
        replaced until then.
        """
        with self._lock:
            self._timing -= 1
            if self._timing or self._rests or not maker.rests:
                return
            makers = [each for makers in self._makers.values() for each in makers]
            if all(each.rests or each.is_free for each in makers):
                self._rests = True
                for hooked, (original, timed) in self._hooked.items():
                    if hooked not in self._entries and vars(hooked[0]).get(hooked[1]) is timed:
                        setattr(*hooked, original)

    def _maker(self, node: Any) -> Maker | None:
        """The maker of the elements of an outermost node on this thread; None if none is timed."""
        if not self._counts() or os.getpid() != self._process:
            return None
        here, root = self._here, self._roots.get(id(node))
        if root is None or root.node() is not node:
            root = self._see(node)
        if not root.source:
            return None
        maker = here.makers.get(root.source) or self._new_maker(root.source)
        if maker is not None:
            here.makers[root.source] = maker
            maker.batches = not here.name or self.makes_batches(node)
            maker.takes_batches = root.takes_batches
            maker.reads_from(node)
        return maker

    def _see(self, node: Any) -> _Root:
        """A node is asked for an element by something else than another one, for the first time."""
        for each in nodes.below(node):
            for owner, name in _methods(each):
                self._hook(owner, name)
            if type(each).__name__ in nodes.HANDS_OVER:
                self._entries.update(*map(_methods, nodes.parents(each)))
        self._entries.update(_methods(node))
        source, elsewhere = nodes.name_of_source(node), nodes.made_elsewhere(node)
        processes = nodes.processes(node)
        if not self._here.name:
            for each in elsewhere:
                self._elsewhere[id(each)] = weakref.ref(each)
            self._loop.begins(node, source, processes)
        if source and self._number(source) is None:
            source = ""
        if len(self._roots) >= _MOST_NODES:
            self._roots.clear()
        root = self._roots[id(node)] = _Root(
            weakref.ref(node), source, bool(elsewhere) and processes > 0
        )
        return root

    def _new_maker(self, source: str) -> Maker | None:
        with self._lock:
            makers = self._makers.setdefault(source, [])
            worker = IN_PROCESS
            if self._here.name:
                of_loader = sum(loader == source for loader, _ in self._threads)
                worker = self._threads.setdefault((source, self._here.name), of_loader)
            free = (maker for maker in makers if maker.worker == worker and maker.is_free)
            maker = next(free, None)
            if maker is not None:
                maker.bind()
                return maker
            if len(makers) >= MOST_ROWS:
                return None
            maker = Maker(worker, samples=self._samples())
            makers.append(maker)
            if self._reporter is None and self._samples():
                self._reporter = Reporter(self._look, lambda: None)
                self._reporter.start()
        return maker

    def _look(self) -> bool:
        for maker in list(self._making.values())[:_MOST_AT_A_TIME]:
            if maker.timed:
                maker.samples.take()
        return True

    def begin(self) -> None:
        """A window begins."""
        for makers in list(self._makers.values()):
            for maker in list(makers):
                maker.clear()

    def reports(self) -> list[dict[str, Any]]:
        """A report for each thread, like that of a worker."""
        # Threads are not processes.
        about = {"began_ns": 0, "start_ns": 0, "processes": 0}
        reports = []
        for source, makers in list(self._makers.items()):
            active = [maker for maker in list(makers) if maker.elements and maker.has_stages]
            in_loop = any(maker.worker == IN_PROCESS for maker in active)
            for maker in active:
                # The last ones to work on a batch make it.
                batches = maker.worker == IN_PROCESS or (maker.batches and not in_loop)
                number = self._number(source if batches else source + READ_AHEAD)
                if number is not None:
                    values = maker.values(batches=batches)
                    reports.append({"loader": number, "worker": maker.worker, **about, **values})
        return reports

    def of_loop(self) -> dict[str, int]:
        """The `elements` that loops got in this process, how long that took, `busy_ns`, and how
        long it was in between, `waiting_ns`.
        """
        makers = [each for makers in list(self._makers.values()) for each in makers]
        loops = [maker for maker in makers if maker.worker == IN_PROCESS]
        return {
            "elements": sum(each.elements for each in loops),
            "busy_ns": sum(each.took_ns for each in loops),
            "waiting_ns": sum(each.waiting_ns for each in loops),
        }

    def makes_batches(self, node: Any) -> bool:
        """Return whether the loop gets the elements of a node as they are, from elsewhere."""
        return _is(self._elsewhere.get(id(node)), node)

    def close(self) -> None:
        """The recording is over: leave all classes as they were."""
        reporter, self._reporter = self._reporter, None
        if reporter is not None:
            reporter.stop()
        with self._lock:
            for (owner, name), (original, timed) in list(self._hooked.items()):
                # Unless something else has wrapped it meanwhile.
                if vars(owner).get(name) is timed:
                    setattr(owner, name, original)
            self._hooked.clear()
            self._original_of.clear()
        self._roots.clear()
        self._elsewhere.clear()
        self._makers.clear()


def _methods(node: Any) -> list[Hooked]:
    """The methods of a node that give elements, with the classes that define them."""
    return [
        (owner, name)
        for owner in type(node).__mro__
        for name in (_NEXT, _ITEM, _ITEMS)
        if isinstance(vars(owner).get(name), (FunctionType, _Method))
    ]


def _subclasses(owner: type) -> list[type]:
    """All classes that extend one, those that extend others of them after these."""
    direct: list[type] = owner.__subclasses__()
    classes: list[type] = []
    for each in direct:
        classes += [each, *_subclasses(each)]
    return classes
