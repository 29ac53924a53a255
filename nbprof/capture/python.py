"""Record a cell without a framework: its steps, what they wait for, and the process's use of cores
and memory.

The file is a Chrome trace, so that any viewer opens it. Its times count from `baseTimeNanoseconds`,
ns since 1970, by which other data of the same recording is placed.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from nbprof.capture import torch_trace
from nbprof.capture.clock import WAIT, Marker, Span, StepClock
from nbprof.capture.options import Options
from nbprof.capture.patches import Patches
from nbprof.core.errors import CaptureError
from nbprof.core.version import __version__
from nbprof.frameworks.register import PYTHON, of_module

SUFFIX = ".py.trace.json"

RECORDER = "nbprof"
"""`otherData.recorder` of the file."""

CELL, STEP, INPUT, SPAN = "nbprof_recording", "nbprof_step", "nbprof_wait", "nbprof_span"
"""Categories (``cat``): the recording, a step, the wait for its next item, and a marked span that
became no step.
"""

GAUGE_S = 0.25
"""How often the process's use of cores and memory is read."""

LEVEL = 3
"""Of gzip, as for traces of PyTorch."""

_LIBRARIES = {
    "numpy": "NumPy",
    "scipy": "SciPy",
    "pandas": "pandas",
    "polars": "Polars",
    "numba": "Numba",
    "cupy": "CuPy",
    "sklearn": "scikit-learn",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
}
"""Libraries whose versions matter, by module."""


class _Event(NamedTuple):
    """A span: times are ns since 1970, `thread` is the native id."""

    name: str
    category: str
    thread: int
    start: int
    end: int


class _Reading(NamedTuple):
    """The process at one moment (ns since 1970): CPU time of all threads in s, resident bytes or
    -1.
    """

    time: int
    cpu: float
    resident: int


class PythonBackend:
    """Records spans of steps and waits, without a profiler, for a cell of NumPy, pandas,
    scikit-learn or plain Python.

    Parameters
    ----------
    module : module, optional
        A framework that has no profiler.
    """

    def __init__(self, module: ModuleType | None = None) -> None:
        self._module = module
        self.framework = of_module(module.__name__) if module is not None else PYTHON
        self.name, self.title = self.framework.name, self.framework.title
        self._folder = Path()
        self._events: list[_Event] = []
        self._threads: dict[int, str] = {}
        self._gauge: _Gauge | None = None
        self._began = 0
        self._code_began = self._code_ended = 0
        self._thread = 0

    def code_begins(self) -> None:
        """All is set up: what runs from here on is the person's code."""
        self._code_began = time.time_ns()

    def code_ends(self) -> None:
        """What runs from here on ends the recording."""
        self._code_ended = time.time_ns()

    def start(self, folder: Path, options: Options) -> list[str]:
        """Start recording; the file will go to `folder`. Returns notes for the user."""
        del options
        self._folder, self._events, self._threads = folder, [], {}
        self._thread = self.thread()
        self._began = time.time_ns()
        self._code_began = self._code_ended = 0
        self._gauge = _Gauge().start()
        return []

    def stop(self) -> None:
        """End the recording and write its file.

        Raises
        ------
        CaptureError
            If it cannot be written.
        """
        gauge, self._gauge = self._gauge, None
        if gauge is None:
            return
        self._synchronize()
        ended = max(time.time_ns(), self._began)
        readings = gauge.stop()
        begins = max(self._code_began, self._began)
        ends = max(self._code_ended, begins) if self._code_ended else ended
        events = [_Event("cell", CELL, self._thread, begins, ends), *self._events]
        self._events = []
        run = self._folder / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
        target = run / f"{torch_trace.worker()}{SUFFIX}.gz"
        try:
            run.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.part")
            with gzip.open(part, "wt", LEVEL, encoding="utf-8") as out:
                json.dump(
                    _document(self._began, events, readings, self._threads, self._stated()), out
                )
            part.replace(target)
        except OSError as error:
            raise CaptureError(
                f"the recording could not be written to {run}: {error.strerror or error}"
            ) from error

    def thread(self) -> int:
        """The native id of the thread that calls this, whose name is noted."""
        thread = threading.get_native_id()
        if thread not in self._threads:
            self._threads[thread] = threading.current_thread().name
        return thread

    def add(self, name: str, category: str, thread: int, start: int) -> None:
        """Add a span that ends now; one that began before the recording begins with it."""
        if self._gauge is not None:
            start = max(start, self._began)
            self._events.append(_Event(name, category, thread, start, max(time.time_ns(), start)))

    def open_marker(self, kind: str, number: int) -> Marker:
        """Begin a span that may become step `number`."""
        del number
        return _Mark(self, kind)

    def open_wait(self, name: str = WAIT) -> Span:
        """Open a span around what a step waits for."""
        return _Wait(self, name)

    def versions(self) -> str:
        """The framework, Python and the libraries that are imported, with their versions."""
        texts = [
            f"Python {platform.python_version()}",
            *(f"{_LIBRARIES[name]} {version}" for name, version in _imported().items()),
        ]
        if self._module is not None:
            texts.insert(0, f"{self.title} {getattr(self._module, '__version__', '')}".rstrip())
        return ", ".join(texts)

    def _stated(self) -> dict[str, Any]:
        """Facts that the file states."""
        versions = _imported()
        if self._module is not None and hasattr(self._module, "__version__"):
            versions = {self.name: str(self._module.__version__), **versions}
        return {
            "otherData": {"recorder": RECORDER, "version": __version__, "framework": self.title},
            "python_version": platform.python_version(),
            **{f"{name}_version": version for name, version in versions.items()},
        }

    def _synchronize(self) -> None:
        """Wait for work that the program has given to devices."""
        # A program that failed is the user's to see.
        with contextlib.suppress(Exception):
            self.framework.recorder.synchronize(self._module)

    def hook(self, clock: StepClock, patches: Patches, give_way: Callable[[], None]) -> None:
        """Nothing to hook: the steps are those that `clock` is told of by others."""


class _Mark:
    """A span that may become a step."""

    def __init__(self, backend: PythonBackend, kind: str) -> None:
        self._backend = backend
        self._kind = kind
        self._thread = backend.thread()
        self._start = time.time_ns()

    def close(self, step: int | None, batches: int = 1) -> None:
        """End here, as step `step`, or as none."""
        del batches
        name, category = (f"{self._kind} {step}", STEP) if step is not None else (self._kind, SPAN)
        self._backend.add(name, category, self._thread, self._start)


class _Wait:
    """A span around what a step waits for."""

    def __init__(self, backend: PythonBackend, name: str) -> None:
        self._backend = backend
        self._name = name
        self._thread = backend.thread()
        self._start = time.time_ns()

    def close(self) -> None:
        """End it."""
        self._backend.add(self._name, INPUT, self._thread, self._start)


class _Gauge:
    """Reads the process's CPU time and resident memory on a thread of its own, four times a
    second.
    """

    def __init__(self) -> None:
        self._readings: list[_Reading] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nbprof-gauge", daemon=True)

    def start(self) -> _Gauge:
        """Begin to read."""
        self._read()
        # A process that has no thread left to start is recorded without.
        with contextlib.suppress(RuntimeError):
            self._thread.start()
        return self

    def stop(self) -> list[_Reading]:
        """End, with the readings in time order."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._read()
        return self._readings

    def _run(self) -> None:
        while not self._over.wait(GAUGE_S):
            self._read()

    def _read(self) -> None:
        self._readings.append(_Reading(time.time_ns(), time.process_time(), _resident()))


def _resident() -> int:
    """Resident bytes of this process; -1 where the system does not say so cheaply."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return -1


def _imported() -> dict[str, str]:
    """Versions of the libraries that are imported, by module."""
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in _LIBRARIES}
    return {
        name: version for name, version in found.items() if isinstance(version, str) and version
    }


def _document(
    began: int,
    events: list[_Event],
    readings: list[_Reading],
    threads: dict[int, str],
    stated: dict[str, Any],
) -> dict[str, Any]:
    """The trace as JSON; `began` is when the recording did, ns since 1970."""
    pid = os.getpid()
    # Readers take a time of 0 for one that was lost.
    origin = began - 1000
    listed: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": "Python"}}
    ]
    listed += [
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for tid, name in threads.items()
    ]
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        times = {"ts": (event.start - origin) / 1000, "dur": (event.end - event.start) / 1000}
        listed.append(
            {
                "ph": "X",
                "cat": event.category,
                "name": event.name,
                "pid": pid,
                "tid": event.thread,
                **times,
            }
        )
    listed += _counters(origin, readings, pid)
    return {
        "schemaVersion": 1,
        "baseTimeNanoseconds": origin,
        "displayTimeUnit": "ms",
        **stated,
        "traceEvents": listed,
    }


def _counters(origin: int, readings: list[_Reading], pid: int) -> list[dict[str, Any]]:
    """Counter events: cores in use since the reading before, drawn from that on, and resident
    memory.
    """
    out: list[dict[str, Any]] = []
    for before, reading in itertools.pairwise(readings):
        passed = (reading.time - before.time) / 1e9
        if passed > 0:
            cores = round(max(reading.cpu - before.cpu, 0.0) / passed, 3)
            at = (before.time - origin) / 1000
            out.append(
                {
                    "ph": "C",
                    "name": "CPU cores in use",
                    "pid": pid,
                    "ts": at,
                    "args": {"cores": cores},
                }
            )
    for reading in readings:
        if reading.resident >= 0:
            at = (reading.time - origin) / 1000
            out.append(
                {
                    "ph": "C",
                    "name": "Resident memory",
                    "pid": pid,
                    "ts": at,
                    "args": {"bytes": reading.resident},
                }
            )
    return out
