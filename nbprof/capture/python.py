"""Record a cell without a framework: its steps, their waits, and the use of cores and memory.

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
from nbprof.core.receipt import Note
from nbprof.core.version import __version__
from nbprof.frameworks.register import PYTHON, of_module

SUFFIX = ".py.trace.json"

RECORDER = "nbprof"
"""`otherData.recorder` of the file."""

CELL, STEP, INPUT, SPAN = "nbprof_recording", "nbprof_step", "nbprof_wait", "nbprof_span"
"""Categories (``cat``): the recording, a step, a wait for its next item, and a span that is not a
step.
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
    """The process at one time (ns since 1970): CPU seconds of all threads, resident bytes or -1."""

    time: int
    cpu: float
    resident: int


class PythonBackend:
    """Records spans of steps and waits, without a profiler: for NumPy, pandas or plain Python.

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
        """All is set up: the user's code runs from here on."""
        self._code_began = time.time_ns()

    def code_ends(self) -> None:
        """The user's code has ended."""
        self._code_ended = time.time_ns()

    def start(self, folder: Path, options: Options) -> list[Note]:
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
            trace = _document(self._began, events, readings, self._threads, self._facts())
            with gzip.open(part, "wt", LEVEL, encoding="utf-8") as file:
                json.dump(trace, file)
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
        texts = []
        if self._module is not None:
            texts.append(f"{self.title} {getattr(self._module, '__version__', '')}".rstrip())
        texts.append(f"Python {platform.python_version()}")
        for name, version in _imported().items():
            texts.append(f"{_LIBRARIES[name]} {version}")
        return ", ".join(texts)

    def _facts(self) -> dict[str, Any]:
        """Facts about the recording for the file."""
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
        """Hooks nothing: other sources report steps to `clock`."""


class _Mark:
    """A span that may become a step."""

    def __init__(self, backend: PythonBackend, kind: str) -> None:
        self._backend = backend
        self._kind = kind
        self._thread = backend.thread()
        self._start = time.time_ns()

    def close(self, step: int | None, batches: int = 1) -> None:
        """End here, as step `step`, or as a plain span."""
        del batches
        if step is None:
            self._backend.add(self._kind, SPAN, self._thread, self._start)
        else:
            self._backend.add(f"{self._kind} {step}", STEP, self._thread, self._start)


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
    """Reads the process's CPU time and resident memory on a thread, four times a second."""

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
    """Resident bytes of this process; -1 if the system has no cheap way to read them."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return -1


def _imported() -> dict[str, str]:
    """Versions of the libraries that are imported, by module."""
    versions = {}
    for name in _LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str) and version:
            versions[name] = version
    return versions


def _document(
    began: int,
    events: list[_Event],
    readings: list[_Reading],
    threads: dict[int, str],
    facts: dict[str, Any],
) -> dict[str, Any]:
    """The trace as JSON; `began` is the beginning of the recording, ns since 1970."""
    pid = os.getpid()
    # Readers take a time of 0 for a lost one.
    origin = began - 1000
    records: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": "Python"}}
    ]
    for tid, name in threads.items():
        arguments = {"name": name}
        records.append(
            {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": arguments}
        )
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        record = {
            "ph": "X",
            "cat": event.category,
            "name": event.name,
            "pid": pid,
            "tid": event.thread,
            "ts": (event.start - origin) / 1000,
            "dur": (event.end - event.start) / 1000,
        }
        records.append(record)
    for record in _counters(origin, readings):
        records.append({"ph": "C", "pid": pid, **record})
    return {
        "schemaVersion": 1,
        "baseTimeNanoseconds": origin,
        "displayTimeUnit": "ms",
        **facts,
        "traceEvents": records,
    }


def _counters(origin: int, readings: list[_Reading]) -> list[dict[str, Any]]:
    """Counter events: cores in use, drawn from the previous reading on, and resident memory."""
    counters: list[dict[str, Any]] = []
    for before, reading in itertools.pairwise(readings):
        passed = (reading.time - before.time) / 1e9
        if passed > 0:
            cores = round(max(reading.cpu - before.cpu, 0.0) / passed, 3)
            time_us = (before.time - origin) / 1000
            counters.append({"name": "CPU cores in use", "ts": time_us, "args": {"cores": cores}})
    for reading in readings:
        if reading.resident >= 0:
            time_us = (reading.time - origin) / 1000
            memory = {"bytes": reading.resident}
            counters.append({"name": "Resident memory", "ts": time_us, "args": memory})
    return counters
