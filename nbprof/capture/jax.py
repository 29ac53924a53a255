"""Record a cell with ``jax.profiler``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from nbprof.capture.options import Options
from nbprof.capture.patches import Patches
from nbprof.capture.steps import Marker, StepClock
from nbprof.errors import CaptureError

MODULE = "jax"
TITLE = "JAX"


class JaxBackend:
    """Starts and stops JAX's profiler, which writes the same layout as TensorFlow's, and marks steps in its trace."""

    name = "jax"
    title = TITLE

    def __init__(self, module: ModuleType) -> None:
        self._jax = module
        self._recording = False

    def start(self, folder: Path, options: Options) -> list[str]:
        """Begin recording into `folder`; returns what the person should know about it."""
        profiler = self._jax.profiler
        notes = []
        arguments: dict[str, Any] = {}
        if hasattr(profiler, "ProfileOptions"):
            choice = profiler.ProfileOptions()
            choice.host_tracer_level = options.host_level
            choice.python_tracer_level = int(options.python)
            arguments["profiler_options"] = choice
        elif options.host_level != 2 or options.python:
            notes.append(f"JAX {self._jax.__version__} takes neither --host-level nor --python: recorded with its defaults")
        try:
            profiler.start_trace(str(folder), **arguments)
        except Exception as error:
            raise CaptureError(f"JAX's profiler did not start: {error}") from error
        self._recording = True
        if not options.memory:
            notes.append("JAX has no switch for allocations: --no-memory changes nothing")
        return notes

    def stop(self) -> None:
        """End the recording and write its files."""
        if not self._recording:
            return
        self._recording = False
        try:
            self._jax.profiler.stop_trace()
        except Exception as error:
            raise CaptureError(f"JAX's profiler wrote no file: {error}") from error

    def open_marker(self, kind: str, number: int) -> Marker:
        """Open a span that may become step `number`."""
        return _Annotation(self._jax.profiler, kind, number)

    def versions(self) -> str:
        """Return the versions that matter for reading the run."""
        keras = sys.modules.get("keras")
        text = f"JAX {self._jax.__version__}"
        return f"{text}, Keras {keras.__version__}" if keras is not None and hasattr(keras, "__version__") else text

    def hook(self, clock: StepClock, patches: Patches, give_way: Callable[[], None]) -> None:
        """Notice the person's own ``StepTraceAnnotation`` and the person's own use of the profiler."""
        annotation = self._jax.profiler.StepTraceAnnotation
        enter, leave = annotation.__enter__, annotation.__exit__
        # Our own markers are plain annotations, so every step annotation met here is the person's.

        @wraps(enter)
        def opened(self: Any) -> Any:
            clock.root_begins(of_framework=True, found="marked by jax.profiler.StepTraceAnnotation")
            return enter(self)

        @wraps(leave)
        def closed(self: Any, exc_type: Any, exc_val: Any, exc_tb: Any) -> Any:
            result = leave(self, exc_type, exc_val, exc_tb)
            clock.root_ends("step", "done" if exc_type is None else "failed")
            return result

        patches.replace(annotation, "__enter__", opened)
        patches.replace(annotation, "__exit__", closed)
        original = self._jax.profiler.start_trace

        @wraps(original)
        def start_trace(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if self._recording:
                give_way()
            return original(*args, **kwargs)

        patches.replace(self._jax.profiler, "start_trace", start_trace)


class _Annotation:
    """An annotation that becomes a step when it ends, where this JAX can still add metadata then, else from the beginning."""

    def __init__(self, profiler: Any, kind: str, number: int) -> None:
        plain = profiler.TraceAnnotation
        self._late = hasattr(plain, "set_metadata")
        self._span = plain(kind) if self._late else plain(kind, _r=1, step_num=number)
        self._span.__enter__()

    def close(self, step: int | None, batches: int = 1) -> None:
        del batches
        if step is not None and self._late:
            self._span.set_metadata(_r=1, step_num=step)
        self._span.__exit__(None, None, None)
