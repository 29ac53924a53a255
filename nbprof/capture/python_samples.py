"""Samples the stacks of the Python threads of this process while a recording runs.

A daemon thread reads ``sys._current_frames()`` about 100 times a second. It holds the GIL for some
20 µs each time: stacks are compared as numbers, and get their names when the recording ends. It
takes more time between samples where they cost more than `SHARE` of a core, after `FIRST_S` in all.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
import weakref
from array import array
from types import CodeType, FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from nbprof.core.cells import stem
from nbprof.core.sample_limits import MOST_NODES, MOST_ROWS, MOST_SAMPLES, SWITCH_S

if TYPE_CHECKING:
    from nbprof.core.python_samples import PythonSamples

INTERVAL_S = 0.01
LONGEST_S = 0.1
"""Least and most time between samples."""
SHARE, FIRST_S = 0.003, 0.004
"""Of a core, which the sampling thread may use, after so many seconds of CPU time at once: short
cells get their samples from these.
"""
_MOST_DEPTH = 500
_MOST_THREADS = 5_000
_MOST_STACKS = 5_000
"""Stacks that are looked up whole; more than that and all are forgotten, not their nodes."""
_KERNEL = frozenset({"ipykernel", "IPython"})
_BESIDE = _KERNEL | {
    "nbprof",
    "jupyter_client",
    "zmq",
    "tornado",
    "debugpy",
    "pydevd",
    "_pydevd_bundle",
}
"""Packages whose threads are not the program's."""


class _Thread:
    """A thread that was seen."""

    __slots__ = ("beside", "clock", "cpu", "name", "node", "number", "same")

    def __init__(self, thread: threading.Thread | None, cpu: int | None) -> None:
        self.name = thread.name if thread is not None else "thread of a library"
        self.same = weakref.ref(thread) if thread is not None else None
        self.beside = thread is not None and _is_beside(thread)
        self.number = -1
        self.node = -1
        self.clock = _clock_of(thread)
        self.cpu = cpu if cpu is not None else _read(self.clock)


class PythonSampler:
    """Samples the stacks, from `start` to `stop`; `samples` then gives them."""

    def __init__(self) -> None:
        self.trouble = ""
        self.on = False
        self._gate = _thread.allocate_lock()
        self._sampling: threading.Thread | None = None
        self._cell_thread = 0
        self._at, self._cpu, self._late = array("q"), array("q"), array("q")
        self._sample, self._of_thread, self._node, self._thread_cpu = (
            array("i"),
            array("i"),
            array("i"),
            array("q"),
        )
        self._known: dict[int, _Thread] = {}
        self._names: list[str] = []
        self._stacks: dict[tuple[int, ...], int] = {}
        self._codes: dict[int, CodeType] = {}
        self._globals: dict[int, dict[str, Any]] = {}
        self._nodes: dict[tuple[int, int, int], int] = {}
        """By the node of the caller, the code by its id and the offset of the instruction, negative
        for an innermost frame.
        """
        self._cells: set[int] = set()
        self._truncated = False
        self._each = 1
        self._switch_s = 0.0
        self._switched = False

    def start(self) -> PythonSampler:
        """Begin; the thread that calls is that of the cell."""
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            # There frames change while they are read.
            self.trouble = "Python stacks are not sampled in free-threaded Python (without the GIL)"
            return self
        self._cell_thread = threading.get_ident()
        for thread in threading.enumerate():
            if thread.ident is not None:
                self._known[thread.ident] = _Thread(thread, None)
        cell = self._known.setdefault(self._cell_thread, _Thread(threading.current_thread(), None))
        cell.beside = False
        self._number(cell)
        self._moment(-1)
        self._gate.acquire()
        self.on = True
        self._switch_sooner()
        self._sampling = threading.Thread(target=self._run, name="nbprof-samples", daemon=True)
        self._sampling.start()
        return self

    def stop(self) -> PythonSampler:
        """End, on any thread."""
        sampling, self._sampling = self._sampling, None
        if sampling is not None:
            self.on = False
            self._gate.release()
            sampling.join()
            self._switch_as_before()
        return self

    def _switch_sooner(self) -> None:
        """Have a thread that holds the GIL give it up after a fifth of the usual time.

        Until it does, a sample waits, and then shows what runs at that moment: of a loop that is
        done sooner, always the call that releases the GIL.
        """
        usual = sys.getswitchinterval()
        if usual > SWITCH_S:
            self._switch_s = usual
            sys.setswitchinterval(SWITCH_S)
            self._switched = True

    def _switch_as_before(self) -> None:
        usual, self._switch_s = self._switch_s, 0.0
        # A program that has set it meanwhile has its way.
        if usual and abs(sys.getswitchinterval() - SWITCH_S) < 1e-9:
            sys.setswitchinterval(usual)

    def abandon(self) -> None:
        """Do nothing any more: this process is a child, in which the sampling thread does not
        exist.
        """
        self.on, self._sampling = False, None
        self._switch_as_before()

    def _run(self) -> None:
        # Recorders of Python calls set a function of theirs for each new thread.
        sys.setprofile(None)
        try:
            self._loop()
        except Exception as error:
            self.trouble = (
                "Python stacks were sampled for part of the recording only:"
                f" {type(error).__name__}: {error}"
            )

    def _loop(self) -> None:
        wait, pause, began = self._gate.acquire, INTERVAL_S, time.perf_counter()
        asked = began
        while not wait(timeout=pause):
            if not self.on:
                return
            self._take(time.perf_counter() - asked - pause)
            # The CPU time of this thread, which has no more than its share of the time so far.
            due = max(time.thread_time() - FIRST_S, 0.0) / SHARE - (time.perf_counter() - began)
            pause = max(min(due, LONGEST_S), INTERVAL_S * self._each)
            asked = time.perf_counter()

    def _moment(self, late_ns: int) -> None:
        self._at.append(time.time_ns())
        self._cpu.append(time.process_time_ns())
        self._late.append(late_ns)

    def _take(self, late_s: float) -> None:
        """One sample of all threads, which waited for the GIL for some time."""
        self._moment(max(int(late_s * 1e9), 0))
        index = len(self._at) - 1
        active: dict[int, threading.Thread] = getattr(threading, "_active", {})
        for ident, frame in sys._current_frames().items():
            known, thread = self._known.get(ident), active.get(ident)
            if known is None or (
                thread is not None and (known.same is None or known.same() is not thread)
            ):
                # It began since the last sample, so that all its time is new. Idents of threads
                # that ended are used again.
                known = self._known[ident] = _Thread(thread, 0)
            if known.beside:
                continue
            cpu = _read(known.clock)
            spent = -1
            if cpu is not None:
                spent = max(cpu - (known.cpu or 0), 0)
                known.cpu = cpu
            if spent != 0 or known.node < 0:
                known.node = self._node_of(frame)
            elif ident != self._cell_thread:
                # It has not run since.
                continue
            if known.node < 0:
                continue
            if known.number < 0:
                self._number(known)
            self._sample.append(index)
            self._of_thread.append(known.number)
            self._node.append(known.node)
            self._thread_cpu.append(spent)
        if index >= MOST_SAMPLES or len(self._sample) >= MOST_ROWS:
            self._halve()

    def _number(self, thread: _Thread) -> None:
        if len(self._names) < _MOST_THREADS:
            self._names.append(thread.name)
        thread.number = len(self._names) - 1

    def _node_of(self, frame: FrameType | None) -> int:
        stack: list[int] = []
        add = stack.append
        cells, depth = self._cells, 0
        innermost = frame
        while frame is not None:
            code = id(frame.f_code)
            add(code)
            add(frame.f_lasti)
            depth += 1
            if code in cells or depth >= _MOST_DEPTH:
                break
            frame = frame.f_back
        key = tuple(stack)
        node = self._stacks.get(key)
        # Ids of code that is known are not used again, for it is kept.
        return node if node is not None else self._added(key, innermost)

    def _added(self, key: tuple[int, ...], innermost: FrameType | None) -> int:
        """The node of a stack that was not seen before."""
        frames = []
        frame = innermost
        for _ in range(len(key) // 2):
            if frame is None:
                break
            code = frame.f_code
            number = id(code)
            if number not in self._codes:
                self._codes[number] = code
                self._globals[number] = frame.f_globals
            frames.append((number, frame.f_lasti))
            frame = frame.f_back
        self._truncated = self._truncated or len(frames) >= _MOST_DEPTH
        frames = self._program(frames)
        node = -1
        for i in range(len(frames) - 1, -1, -1):
            number, offset = frames[i]
            edge = (node, number, offset if i else -2 - offset)
            inner = self._nodes.get(edge)
            if inner is None:
                if len(self._nodes) >= MOST_NODES:
                    self._truncated = True
                    break
                inner = self._nodes[edge] = len(self._nodes)
            node = inner
        if len(self._stacks) >= _MOST_STACKS:
            self._stacks.clear()
        self._stacks[key] = node
        return node

    def _program(self, frames: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The calls of a stack without those that started a cell; none where the kernel runs no
        cell.
        """
        codes = [code for code, _ in frames]
        of_kernel = any(_package(self._globals[code].get("__name__")) in _KERNEL for code in codes)
        outermost = max(
            (i for i, code in enumerate(codes) if _is_cell(self._codes[code])), default=-1
        )
        if outermost < 0:
            return [] if of_kernel else frames
        if self._codes[codes[outermost]].co_name == "<module>":
            self._cells.add(codes[outermost])
            return frames[: outermost + 1]
        return frames[: outermost + 1] if of_kernel else frames

    def _halve(self) -> None:
        """Keep every second sample, and take half as many from now on."""
        self._each *= 2
        count = len(self._at) - 1
        kept = [0, *range(2 - count % 2, count + 1, 2)]
        self._at, self._cpu, self._late = (
            array("q", [column[i] for i in kept]) for column in (self._at, self._cpu, self._late)
        )
        rows: dict[tuple[int, int], list[int]] = {}
        shift = count % 2
        for sample, thread, node, cpu in zip(
            self._sample, self._of_thread, self._node, self._thread_cpu, strict=True
        ):
            row = rows.setdefault(((sample + 1 + shift) // 2, thread), [node, 0])
            row[0] = node
            row[1] = row[1] + cpu if cpu >= 0 and row[1] >= 0 else -1
        self._sample, self._of_thread = (
            array("i", [key[0] for key in rows]),
            array("i", [key[1] for key in rows]),
        )
        self._node, self._thread_cpu = (
            array("i", [row[0] for row in rows.values()]),
            array("q", [row[1] for row in rows.values()]),
        )

    def _waits(self, np: Any) -> Any:
        """How long each sample waited for the GIL; -1 of all where threads do not give it up after
        `SWITCH_S`.
        """
        late = np.array(self._late, np.int64)
        return late if self._switched else np.full(len(late), -1, np.int64)

    def samples(self) -> PythonSamples | None:
        """What was sampled, after `stop`; None where that is nothing."""
        if not len(self._sample):
            return None
        # Late, for these import numpy, and a cell may be recorded that does not.
        import numpy as np

        from nbprof.capture.python_names import Names
        from nbprof.core.python_samples import PythonSamples

        names = Names(self._codes, self._globals)
        tree = names.tree(self._nodes)
        node = np.array(tree.node, np.int32)[np.array(self._node, np.int64)]
        # The clock of the machine may be set back meanwhile.
        at = np.maximum.accumulate(np.array(self._at, np.int64))
        return PythonSamples(
            tree.functions,
            tree.places,
            np.array(tree.parent, np.int32),
            np.array(tree.place, np.int32),
            self._names,
            at,
            np.maximum.accumulate(np.array(self._cpu, np.int64)),
            np.array(self._sample, np.int32),
            np.array(self._of_thread, np.int32),
            node,
            np.array(self._thread_cpu, np.int64),
            self._waits(np),
            names.source(),
            self._truncated,
        )


def _is_beside(thread: threading.Thread) -> bool:
    if thread.name.startswith("nbprof"):
        return True
    target = getattr(thread, "_target", None)
    if type(target) is MethodType:
        target = target.__func__
    modules = [type(thread).__module__, target.__module__ if type(target) is FunctionType else None]
    return any(_package(module) in _BESIDE for module in modules)


def _package(module: object) -> str:
    return module.partition(".")[0] if type(module) is str else ""


def _is_cell(code: CodeType) -> bool:
    """Whether it is code of a cell, or of what was typed into IPython."""
    return bool(stem(code.co_filename)) or code.co_filename.startswith("<ipython-input")


def _clock_of(thread: threading.Thread | None) -> int | None:
    """The clock of the CPU time of a thread, on Linux: `clock_getcpuclockid` makes its number of
    the thread's id in this way.
    """
    number = thread.native_id if thread is not None and sys.platform == "linux" else None
    return None if number is None else ~number << 3 | 6


def _read(clock: int | None) -> int | None:
    """CPU time in ns; None where it is unknown. It does not let go of the GIL, as reading a file
    would.
    """
    if clock is None:
        return None
    try:
        return time.clock_gettime_ns(clock)
    except OSError:
        # The thread has ended, or this system has no such clock.
        return None
