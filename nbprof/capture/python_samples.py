"""Samples the stacks of the Python threads of this process while a recording runs.

A daemon thread reads ``sys._current_frames()`` about 100 times a second, at uneven intervals. It
holds the GIL for some
20 µs each time: stacks are compared as numbers, and get their names when the recording ends. The
interval grows if samples take more than `SHARE` of a core, after `FIRST_S` in total, and as much
again from the first step on: imports before it may have used that up.
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

from nbprof.capture import notes
from nbprof.core.cells import stem
from nbprof.core.receipt import Note
from nbprof.core.sample_limits import (
    FIRST_S,
    INTERVAL_S,
    LONGEST_S,
    MOST_NODES,
    MOST_ROWS,
    MOST_SAMPLES,
    SHARE,
    SWITCH_S,
    jitter,
)

if TYPE_CHECKING:
    from nbprof.core.python_samples import PythonSamples

_MAX_DEPTH = 500
_MAX_THREADS = 5_000
_MAX_STACKS = 5_000
"""Complete stacks that are cached; with more, all are dropped from the cache, not their nodes."""
_KERNEL = frozenset({"ipykernel", "IPython"})
_SERVICES = _KERNEL | {
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
    """A thread that was sampled."""

    __slots__ = ("clock", "cpu", "is_service", "name", "node", "number", "same")

    def __init__(self, thread: threading.Thread | None, cpu: int | None) -> None:
        self.name = "thread of a library"
        self.same: weakref.ref[threading.Thread] | None = None
        self.is_service = False
        if thread is not None:
            self.name, self.same = thread.name, weakref.ref(thread)
            self.is_service = _is_service(thread)
        self.number = -1
        self.node = -1
        self.clock = _clock_of(thread)
        self.cpu = cpu
        if cpu is None:
            self.cpu = _read(self.clock)

    def is_of(self, thread: threading.Thread | None) -> bool:
        """Return whether it is this thread, or nothing is known of that."""
        return thread is None or (self.same is not None and self.same() is thread)


class PythonSampler:
    """Samples the stacks, from `start` to `stop`; `samples` then gives them."""

    def __init__(self) -> None:
        self.trouble: Note | None = None
        self.on = False
        self._gate = _thread.allocate_lock()
        self._sampling: threading.Thread | None = None
        self._cell_thread = 0
        self._times, self._cpu, self._late = array("q"), array("q"), array("q")
        self._sample, self._thread_index, self._node = array("i"), array("i"), array("i")
        self._thread_cpu = array("q")
        self._threads: dict[int, _Thread] = {}
        self._names: list[str] = []
        self._stacks: dict[tuple[int, ...], int] = {}
        self._codes: dict[int, CodeType] = {}
        self._globals: dict[int, dict[str, Any]] = {}
        self._nodes: dict[tuple[int, int, int], int] = {}
        """By the node of the caller, the id of the code and the offset of the instruction, which is
        negative for an innermost frame.
        """
        self._cells: set[int] = set()
        self._truncated = False
        self._each = 1
        self._switch_s = 0.0
        self._switched = False
        self._allows_more = False

    def start(self, thread: threading.Thread | None = None) -> PythonSampler:
        """Begin; `thread`, by default the one that calls, is that of the cell."""
        thread = thread or threading.current_thread()
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            # Without the GIL frames change while they are read.
            self.trouble = notes.stacks_not_sampled_without_gil()
            return self
        self._cell_thread = thread.ident or threading.get_ident()
        for each in threading.enumerate():
            if each.ident is not None:
                self._threads[each.ident] = _Thread(each, None)
        cell = _Thread(thread, None)
        cell = self._threads.setdefault(self._cell_thread, cell)
        cell.is_service = False
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

    def allow_more(self) -> None:
        """Begin the account of CPU time anew: what matters most begins now."""
        self._allows_more = True

    def _switch_sooner(self) -> None:
        """Let a thread that holds the GIL release it after a fifth of the usual time.

        A sample waits until then, and shows the code that runs at that moment: of a shorter loop,
        always the call that releases the GIL.
        """
        usual = sys.getswitchinterval()
        if usual > SWITCH_S:
            self._switch_s = usual
            sys.setswitchinterval(SWITCH_S)
            self._switched = True

    def _switch_as_before(self) -> None:
        usual, self._switch_s = self._switch_s, 0.0
        # Unless the program has set it meanwhile.
        if usual and abs(sys.getswitchinterval() - SWITCH_S) < 1e-9:
            sys.setswitchinterval(usual)

    def abandon(self) -> None:
        """Do nothing any more in this child process, which lacks the sampling thread."""
        self.on, self._sampling = False, None
        self._switch_as_before()

    def _run(self) -> None:
        # Recorders of Python calls set a profile function for each new thread.
        sys.setprofile(None)
        try:
            self._loop()
        except Exception as error:
            self.trouble = notes.stacks_sampled_in_part(error)

    def _loop(self) -> None:
        wait, pause, began = self._gate.acquire, INTERVAL_S, time.perf_counter()
        asked, free, stretch = began, FIRST_S, jitter()
        while not wait(timeout=pause):
            if not self.on:
                return
            self._take(time.perf_counter() - asked - pause)
            if self._allows_more:
                self._allows_more = False
                free, began = time.thread_time() + FIRST_S, time.perf_counter()
            # This thread may use no more CPU time than its share of the time so far.
            due = max(time.thread_time() - free, 0.0) / SHARE - (time.perf_counter() - began)
            pause = max(min(due, LONGEST_S), INTERVAL_S * self._each) * next(stretch)
            asked = time.perf_counter()

    def _moment(self, late_ns: int) -> None:
        self._times.append(time.time_ns())
        self._cpu.append(time.process_time_ns())
        self._late.append(late_ns)

    def _take(self, late_s: float) -> None:
        """One sample of all threads, which waited for the GIL for some time."""
        self._moment(max(int(late_s * 1e9), 0))
        index = len(self._times) - 1
        active: dict[int, threading.Thread] = getattr(threading, "_active", {})
        for ident, frame in sys._current_frames().items():
            seen, thread = self._threads.get(ident), active.get(ident)
            if seen is None or not seen.is_of(thread):
                # It began since the last sample, so that all its time is new. Idents of threads
                # that ended are used again.
                seen = self._threads[ident] = _Thread(thread, 0)
            if seen.is_service:
                continue
            cpu = _read(seen.clock)
            spent = -1
            if cpu is not None:
                spent = max(cpu - (seen.cpu or 0), 0)
                seen.cpu = cpu
            if spent != 0 or seen.node < 0:
                seen.node = self._node_of(frame)
            elif ident != self._cell_thread:
                # It has not run since.
                continue
            if seen.node < 0:
                continue
            if seen.number < 0:
                self._number(seen)
            self._sample.append(index)
            self._thread_index.append(seen.number)
            self._node.append(seen.node)
            self._thread_cpu.append(spent)
        if index >= MOST_SAMPLES or len(self._sample) >= MOST_ROWS:
            self._halve()

    def _number(self, thread: _Thread) -> None:
        if len(self._names) < _MAX_THREADS:
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
            if code in cells or depth >= _MAX_DEPTH:
                break
            frame = frame.f_back
        key = tuple(stack)
        node = self._stacks.get(key)
        # Ids of cached code are not reused, since `_codes` refers to it.
        if node is None:
            node = self._add_stack(key, innermost)
        return node

    def _add_stack(self, key: tuple[int, ...], innermost: FrameType | None) -> int:
        """Add a stack and return its node."""
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
        self._truncated = self._truncated or len(frames) >= _MAX_DEPTH
        frames = self._program_frames(frames)
        node = -1
        for i in range(len(frames) - 1, -1, -1):
            number, offset = frames[i]
            if i == 0:
                offset = -2 - offset
            edge = (node, number, offset)
            inner = self._nodes.get(edge)
            if inner is None:
                if len(self._nodes) >= MOST_NODES:
                    self._truncated = True
                    break
                inner = self._nodes[edge] = len(self._nodes)
            node = inner
        if len(self._stacks) >= _MAX_STACKS:
            self._stacks.clear()
        self._stacks[key] = node
        return node

    def _program_frames(self, frames: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The frames of a stack within the cell; none if the kernel runs no cell."""
        in_kernel, outermost = False, -1
        for index, (code, _) in enumerate(frames):
            if _package(self._globals[code].get("__name__")) in _KERNEL:
                in_kernel = True
            if _is_cell(self._codes[code]):
                outermost = index
        if outermost < 0 and in_kernel:
            return []
        if outermost < 0:
            return frames
        code = frames[outermost][0]
        is_module = self._codes[code].co_name == "<module>"
        if is_module:
            self._cells.add(code)
        if is_module or in_kernel:
            return frames[: outermost + 1]
        return frames

    def _halve(self) -> None:
        """Retain every second sample, and take half as many from now on."""
        self._each *= 2
        count = len(self._times) - 1
        retained = [0, *range(2 - count % 2, count + 1, 2)]
        self._times = array("q", map(self._times.__getitem__, retained))
        self._cpu = array("q", map(self._cpu.__getitem__, retained))
        self._late = array("q", map(self._late.__getitem__, retained))
        rows: dict[tuple[int, int], list[int]] = {}
        shift = count % 2
        for sample, thread, node, cpu in zip(
            self._sample, self._thread_index, self._node, self._thread_cpu, strict=True
        ):
            row = rows.setdefault(((sample + 1 + shift) // 2, thread), [node, 0])
            row[0] = node
            if cpu >= 0 and row[1] >= 0:
                row[1] += cpu
            else:
                row[1] = -1
        self._sample = array("i", [sample for sample, _ in rows])
        self._thread_index = array("i", [thread for _, thread in rows])
        self._node = array("i", [node for node, _ in rows.values()])
        self._thread_cpu = array("q", [cpu for _, cpu in rows.values()])

    def _waits(self, np: Any) -> Any:
        """Time that each sample waited for the GIL; -1 if the switch interval is not `SWITCH_S`."""
        if not self._switched:
            return np.full(len(self._late), -1, np.int64)
        return np.array(self._late, np.int64)

    def samples(self) -> PythonSamples | None:
        """The samples, after `stop`; None if there are none."""
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
        times = np.maximum.accumulate(np.array(self._times, np.int64))
        return PythonSamples(
            tree.functions,
            tree.places,
            np.array(tree.parent, np.int32),
            np.array(tree.place, np.int32),
            self._names,
            times,
            np.maximum.accumulate(np.array(self._cpu, np.int64)),
            np.array(self._sample, np.int32),
            np.array(self._thread_index, np.int32),
            node,
            np.array(self._thread_cpu, np.int64),
            self._waits(np),
            names.source(),
            self._truncated,
        )


def _is_service(thread: threading.Thread) -> bool:
    """Return whether a thread is of nbprof, the kernel or a debugger."""
    if thread.name.startswith("nbprof") or _package(type(thread).__module__) in _SERVICES:
        return True
    target = getattr(thread, "_target", None)
    if type(target) is MethodType:
        target = target.__func__
    return type(target) is FunctionType and _package(target.__module__) in _SERVICES


def _package(module: object) -> str:
    if type(module) is not str:
        return ""
    return module.partition(".")[0]


def _is_cell(code: CodeType) -> bool:
    """Return whether it is code of a cell, or of an input of IPython."""
    return bool(stem(code.co_filename)) or code.co_filename.startswith("<ipython-input")


def _clock_of(thread: threading.Thread | None) -> int | None:
    """The clock of the CPU time of a thread on Linux, computed as `clock_getcpuclockid` does."""
    if sys.platform != "linux" or thread is None or thread.native_id is None:
        return None
    return ~thread.native_id << 3 | 6


def _read(clock: int | None) -> int | None:
    """CPU time in ns; None if unknown. Does not release the GIL, as reading a file would."""
    if clock is None:
        return None
    try:
        return time.clock_gettime_ns(clock)
    except OSError:
        # The thread has ended, or this system has no such clock.
        return None
