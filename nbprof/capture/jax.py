"""Record a cell with ``jax.profiler``."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from nbprof.capture import notes
from nbprof.capture.clock import (
    GIVEN_UP,
    GRAIN_WAIT,
    WAIT,
    ContextSpan,
    Marker,
    Span,
    StepClock,
    stage,
)
from nbprof.capture.describe import keras_version
from nbprof.capture.options import Options
from nbprof.capture.patches import Patches
from nbprof.capture.shield import pressed, shielded
from nbprof.core import remedies
from nbprof.core.errors import CaptureError
from nbprof.core.receipt import Note
from nbprof.frameworks.register import JAX

NOTHING_RAN = "JAX was imported, but nothing ran on it: nothing was recorded"

ANNOTATION = "marked by jax.profiler.StepTraceAnnotation"
"""Origin of steps that the user marks by JAX."""

WAIT_S = 30.0
"""How long the start and the end of a recording wait for the device to finish pending work."""

_LOOK_S = 0.1
"""How soon that wait notices Ctrl-C."""


class JaxBackend:
    """Records with JAX's profiler, which writes TensorFlow's layout, and marks steps in its trace.

    Starting the profiler starts JAX's devices. A cell that imports JAX may still choose them
    (``jax.config.update("jax_platforms", ...)``, ``jax.distributed.initialize()``), which only
    works before. So where they have not been started, the profiler starts right after them.
    """

    name, title = JAX.name, JAX.title
    bytes_per_event = 250
    """Measured: growth of a process by the events of its recording, small ops on a CPU."""

    def __init__(self, module: ModuleType) -> None:
        self._jax = module
        self._recording = False
        self._ours = False
        self._waiting: Callable[[], None] | None = None
        self._failure = ""
        self._notes: list[Note] = []

    def start(self, folder: Path, options: Options) -> list[Note]:
        """Start recording into `folder`; returns notes for the user.

        Raises
        ------
        CaptureError
            If JAX is already recording, or refuses.
        """
        arguments: dict[str, Any] = {}
        if hasattr(self._jax.profiler, "ProfileOptions"):
            choice = self._jax.profiler.ProfileOptions()
            choice.host_tracer_level = options.host_level
            choice.python_tracer_level = int(options.python)
            arguments["profiler_options"] = choice
        if self._own_session() is not None:
            raise CaptureError(
                "JAX's profiler is already running: stop it first with jax.profiler.stop_trace()"
            )
        self._failure = ""
        self._recording = True
        if self._devices_are_there():
            self._begin(str(folder), arguments)
            if self._failure:
                self._recording = False
                raise CaptureError(self._failure)
        else:
            self._begin_later(str(folder), arguments)
        return self._about_options(options)

    def _about_options(self, options: Options) -> list[Note]:
        """Notes on options that JAX does not have, or that leave something out."""
        about_options = []
        version_has_options = hasattr(self._jax.profiler, "ProfileOptions")
        if not version_has_options and (options.host_level != 2 or options.python):
            text = (
                f"JAX {self._jax.__version__} supports neither --host-level nor --python: recorded"
                " with its defaults"
            )
            about_options.append(notes.without_effect(text))
        if not options.memory:
            text = "JAX cannot turn off allocation events: --no-memory has no effect"
            about_options.append(notes.without_effect(text))
        about_options += notes.without_npu(options.given_for_npu())
        if options.host_level == 0:
            about_options.append(notes.no_host_events())
        return about_options

    def stop(self) -> None:
        """Wait for the devices to finish pending work, end the recording and write its files.

        Raises
        ------
        CaptureError
            If there is nothing to write, or it cannot be written.
        """
        if not self._recording:
            return
        self._recording = False
        if self._waiting is not None:
            self._waiting()
            self._failure = self._failure or NOTHING_RAN
        if self._failure:
            raise CaptureError(self._failure)
        if not self._settled():
            when = "when Ctrl-C was pressed" if pressed() else f"{WAIT_S:.0f} s"
            self._note(notes.device_still_busy(when))
        try:
            self._call("stop_trace")
        except Exception as error:
            raise CaptureError(f"JAX's profiler wrote no file: {error}") from error

    def open_marker(self, kind: str, number: int) -> Marker:
        """Open a span that may become step `number`."""
        return _Annotation(self._jax.profiler, kind, number)

    def open_wait(self, name: str = WAIT) -> Span:
        """Open a span around what a step waits for."""
        if name == GRAIN_WAIT:
            # Grain annotates its iterators in traces of JAX.
            return ContextSpan(contextlib.nullcontext())
        return ContextSpan(self._jax.profiler.TraceAnnotation(name, **stage(name)))

    @staticmethod
    def serve(module: Any, port: int) -> None:
        """Start the profiler server of a process.

        Raises
        ------
        CaptureError
            If one is running already.
        """
        try:
            module.profiler.start_server(port)
        except ValueError as error:
            if "one profiler server" in str(error):
                raise CaptureError(
                    "JAX's profiler server is already running in this process, on the port it was"
                    " started with"
                ) from error
            raise

    def versions(self) -> str:
        """Versions that matter for reading the run."""
        return f"JAX {self._jax.__version__}{keras_version()}"

    def notes(self) -> list[Note]:
        """Notes gathered during the recording."""
        return self._notes

    def hook(self, clock: StepClock, patches: Patches, give_way: Callable[[], None]) -> None:
        """Notice the user's own ``StepTraceAnnotation`` and the user's own use of the profiler."""
        annotation = self._jax.profiler.StepTraceAnnotation
        enter, leave = annotation.__enter__, annotation.__exit__
        # Our own markers are plain annotations, so every step annotation met here is the user's.

        @wraps(enter)
        def opened(self: Any) -> Any:
            clock.root_begins(of_framework=True, origin=ANNOTATION)
            return enter(self)

        @wraps(leave)
        def closed(self: Any, exc_type: Any, exc_val: Any, exc_tb: Any) -> Any:
            result = leave(self, exc_type, exc_val, exc_tb)
            clock.root_ends("step", "done" if exc_type is None else "failed")
            return result

        patches.replace(annotation, "__enter__", opened)
        patches.replace(annotation, "__exit__", closed)
        start, stop = self._jax.profiler.start_trace, self._jax.profiler.stop_trace

        @wraps(start)
        def start_trace(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if self._recording and not self._ours:
                if self._waiting is not None:
                    self._failure = (
                        "the cell starts JAX's profiler itself, so nbprof recorded nothing"
                    )
                give_way()
            return start(*args, **kwargs)

        @wraps(stop)
        def stop_trace(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if self._recording and not self._ours:
                # The current profiler is nbprof's: without it the user would get this error.
                raise RuntimeError("No profile started")
            return stop(*args, **kwargs)

        # `with jax.profiler.trace(...)` finds them in the module that defines them.
        for module in (self._jax.profiler, sys.modules.get(getattr(start, "__module__", ""))):
            if getattr(module, "start_trace", None) is start:
                patches.replace(module, "start_trace", start_trace)
                patches.replace(module, "stop_trace", stop_trace)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Call JAX's profiler for ourselves."""
        self._ours = True
        try:
            getattr(self._jax.profiler, name)(*args, **kwargs)
        finally:
            self._ours = False

    def _begin(self, folder: str, arguments: dict[str, Any]) -> None:
        """Start the profiler; a failure is kept. Devices must have been started."""
        # Work of an earlier cell on the device is not part of this one.
        self._settled()
        choice: Any = arguments.get("profiler_options")
        # Unless it is asked to, JAX does not say that a recorder did not start.
        strict = hasattr(choice, "raise_error_on_start_failure")
        try:
            if strict:
                choice.raise_error_on_start_failure = True
            self._call("start_trace", folder, **arguments)
        except Exception as error:
            remedy = notes.gpu_not_recorded([str(error)])
            if not (strict and remedy):
                self._failure = f"JAX's profiler did not start: {error}"
                return
            self._note(remedy[0])
            choice.raise_error_on_start_failure = False
            try:
                self._call("start_trace", folder, **arguments)
            except Exception as again:
                self._failure = f"JAX's profiler did not start: {again}"
                return
        for note in notes.infos("gpu_not_seen", remedies.unseen_by_jax(self._jax)):
            self._note(note)

    def _begin_later(self, folder: str, arguments: dict[str, Any]) -> None:
        """Start the profiler when the cell has started JAX's devices."""
        bridge: Any = sys.modules["jax._src.xla_bridge"]
        original, process, lock = bridge.backends, os.getpid(), threading.Lock()

        def forget() -> None:
            self._waiting = None
            if bridge.backends is backends:
                bridge.backends = original

        @wraps(original)
        def backends(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            try:
                started = original(*args, **kwargs)
            except BaseException as error:
                self._failure = remedies.no_jax_device(error)
                raise
            with lock:
                due = self._waiting is not None and os.getpid() == process
                forget()
            if due:
                self._failure = ""
                try:
                    with shielded(soon=True):
                        self._begin(folder, arguments)
                except Exception as error:
                    # Nothing of ours may fail what the user calls.
                    self._failure = f"JAX's profiler did not start: {type(error).__name__}: {error}"
            return started

        bridge.backends = backends
        self._waiting = forget

    def _devices_are_there(self) -> bool:
        """Return whether JAX has started its devices; True if this JAX does not report it."""
        tells = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
        return True if tells is None else bool(tells())

    def _own_session(self) -> Any:
        """JAX's profiler session, where one is open."""
        state = getattr(sys.modules.get("jax._src.profiler"), "_profile_state", None)
        return getattr(state, "profile_session", None)

    def _settled(self) -> bool:
        """Wait for the work of the devices, as far as results exist; False if that takes too long.

        Calls in JAX return before the device has done the work, and a profiler that is stopped does
        not see what comes after.
        """
        if not hasattr(self._jax, "live_arrays"):
            return True
        done = threading.Event()

        def wait() -> None:
            with contextlib.suppress(Exception):
                for array in self._jax.live_arrays():
                    # A program that failed is the user's to see, and a buffer may be given away
                    # meanwhile.
                    with contextlib.suppress(Exception):
                        array.block_until_ready()
            done.set()

        # Not on this thread: a wait that is too long could not be left.
        threading.Thread(target=wait, name="nbprof-jax-wait", daemon=True).start()
        until = time.monotonic() + WAIT_S
        while not done.wait(_LOOK_S):
            # Who presses Ctrl-C has waited long enough.
            if pressed() or time.monotonic() > until:
                return False
        return True

    def _note(self, note: Note) -> None:
        if note not in self._notes:
            self._notes.append(note)


class _Annotation:
    """An annotation that becomes a step.

    It does so when it ends if this JAX can add metadata then, else from the beginning.
    """

    def __init__(self, profiler: Any, kind: str, number: int) -> None:
        plain = profiler.TraceAnnotation
        self._late = hasattr(plain, "set_metadata")
        self._span = plain(kind) if self._late else plain(kind, _r=1, step_num=number)
        self._span.__enter__()

    def close(self, step: int | None, batches: int = 1) -> None:
        del batches
        if self._late:
            metadata = GIVEN_UP if step is None else {"_r": 1, "step_num": step}
            self._span.set_metadata(**metadata)
        self._span.__exit__(None, None, None)
