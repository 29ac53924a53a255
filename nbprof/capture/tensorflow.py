"""Record a cell with ``tf.profiler.experimental``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from nbprof.capture import trouble
from nbprof.capture.clock import STAGE, WAIT, Marker, Span, StepClock
from nbprof.capture.options import Options
from nbprof.capture.patches import Patches
from nbprof.errors import CaptureError

MODULE = "tensorflow"
TITLE = "TensorFlow"


class TensorFlowBackend:
    """Starts and stops TensorFlow's profiler, and marks steps in its trace."""

    name = "tensorflow"
    title = TITLE

    def __init__(self, module: ModuleType) -> None:
        self._tf = module
        self._recording = False

    def start(self, folder: Path, options: Options) -> list[str]:
        """Begin recording into `folder`; returns what the person should know about it.

        Raises
        ------
        CaptureError
            If TensorFlow is recording already, or refuses.
        """
        experimental = self._tf.profiler.experimental
        choice = experimental.ProfilerOptions(
            host_tracer_level=options.host_level, python_tracer_level=int(options.python), device_tracer_level=1
        )
        try:
            experimental.start(str(folder), options=choice)
        except self._tf.errors.AlreadyExistsError as error:
            raise CaptureError("TensorFlow's profiler is already recording: end that first with tf.profiler.experimental.stop()") from error
        except Exception as error:
            raise CaptureError(f"TensorFlow's profiler did not start: {error}") from error
        self._recording = True
        notes = trouble.unseen_by_tensorflow(self._tf)
        if not options.memory:
            notes.append("TensorFlow has no switch for allocations: they were recorded although --no-memory asked for none")
        return notes

    def stop(self) -> None:
        """End the recording and write its files.

        Raises
        ------
        CaptureError
            If TensorFlow has nothing to write or cannot write it.
        """
        if not self._recording:
            return
        self._recording = False
        try:
            self._tf.profiler.experimental.stop()
        except Exception as error:
            raise CaptureError(f"TensorFlow's profiler wrote no file: {error}") from error

    def open_marker(self, kind: str, number: int) -> Marker:
        """Open a span that may become step `number`."""
        del number
        return _TraceSpan(self._tf.profiler.experimental.Trace, kind)

    def open_wait(self) -> Span:
        """Open a span around what a step waits for."""
        return _Wait(self._tf.profiler.experimental.Trace(WAIT, **STAGE))

    def versions(self) -> str:
        """Return the versions that matter for reading the run."""
        text = f"TensorFlow {self._tf.__version__}"
        keras = sys.modules.get("keras")
        return f"{text}, Keras {keras.__version__}" if keras is not None and hasattr(keras, "__version__") else text

    def hook(self, clock: StepClock, patches: Patches, give_way: Callable[[], None]) -> None:
        """Notice the person's own step markers and the person's own use of the profiler.

        Parameters
        ----------
        clock : StepClock
            Is told about each ``Trace(..., _r=1)``.
        patches : Patches
            Remembers what to restore.
        give_way : callable
            Called before the person's own ``tf.profiler.experimental.start``: there is one profiler in a process, and theirs comes first.
        """
        experimental = self._tf.profiler.experimental
        _hook_roots(experimental.Trace, clock, patches)
        profiler = sys.modules.get("tensorflow.python.profiler.profiler_v2")
        original = experimental.start

        @wraps(original)
        def start(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if self._recording:
                give_way()
            return original(*args, **kwargs)

        patches.replace(experimental, "start", start)
        if profiler is not None and getattr(profiler, "start", None) is original:
            patches.replace(profiler, "start", start)


class _TraceSpan:
    """A TraceMe that becomes a step only when it ends.

    TensorFlow takes metadata until a span is closed, and ``_r=1`` is what makes it the root of a step. So the span can be opened
    before it is known whether a batch will come, and given up without leaving a step behind.
    """

    def __init__(self, trace: Any, kind: str) -> None:
        self._trace = trace(kind)

    def close(self, step: int | None, batches: int = 1) -> None:
        if step is not None:
            extra = {"batches": batches} if batches > 1 else {}
            self._trace.set_metadata(step_num=step, _r=1, **extra)
        self._trace.__exit__(None, None, None)


class _Wait:
    """A TraceMe, which is open from the beginning."""

    def __init__(self, trace: Any) -> None:
        self._trace = trace

    def close(self) -> None:
        self._trace.__exit__(None, None, None)


def _hook_roots(trace: Any, clock: StepClock, patches: Patches) -> None:
    init, leave = trace.__init__, trace.__exit__
    # Two clocks may listen: that of a recording, and that of a program that is sampled from elsewhere.
    mark = f"_nbprof_kind_{id(clock)}"

    @wraps(init)
    def opened(self: Any, name: str, **kwargs: Any) -> None:
        # A step range may have to start recording before the span opens.
        root = bool(kwargs.get("_r")) and clock.alive
        if root:
            clock.root_begins(of_framework=True, found="marked by tf.profiler.experimental.Trace")
            setattr(self, mark, name)
        init(self, name, **kwargs)

    @wraps(leave)
    def closed(self: Any, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        leave(self, exc_type, exc_val, exc_tb)
        kind = self.__dict__.pop(mark, None)
        if kind is not None:
            clock.root_ends(kind, "done" if exc_type is None else "failed")

    patches.replace(trace, "__init__", opened)
    patches.replace(trace, "__exit__", closed)
