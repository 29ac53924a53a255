"""Record a cell with ``tf.profiler.experimental``."""

from __future__ import annotations

import contextlib
import mmap
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from nbprof.capture import notes, tensorflow_npu, tensorflow_variables
from nbprof.capture.clock import GIVEN_UP, WAIT, ContextSpan, Marker, Span, StepClock, stage
from nbprof.capture.describe import keras_version
from nbprof.capture.options import POINTS, Options
from nbprof.capture.patches import Patches
from nbprof.core import remedies, wire
from nbprof.core.errors import CaptureError, ReadError
from nbprof.core.receipt import Note, info
from nbprof.frameworks.register import TENSORFLOW

if TYPE_CHECKING:
    from nbprof.capture.windows import Windows

USUAL_LEVELS = (2, 0)
"""Levels of the host and of Python that TensorFlow records by itself. Requesting them is not only
needless: TensorFlow 2.21 logs four lines for any options, "… expects an i value", and ignores them.
"""


def _levels(options: Options) -> tuple[int, int]:
    return options.host_level, int(options.python)


class TensorFlowBackend:
    """Starts and stops TensorFlow's profiler, and marks steps in its trace."""

    name, title = TENSORFLOW.name, TENSORFLOW.title
    bytes_per_event = 120
    """Measured: growth of a process by the events of its recording, small ops on a CPU."""

    def __init__(self, module: ModuleType) -> None:
        self._tf = module
        self._recording = False
        self._npu: Any = None
        self._adapter: tensorflow_npu.AdapterOptions | None = None
        self._notes: list[Note] = []
        self._asked: tuple[Path, Options] | None = None

    def start(self, folder: Path, options: Options) -> list[Note]:
        """Start recording into `folder`; returns notes for the user.

        Raises
        ------
        CaptureError
            If TensorFlow is already recording, or refuses.
        """
        npu = tensorflow_npu.profiler()
        if npu is not None:
            return self._start_npu(npu, folder, options)
        experimental = self._tf.profiler.experimental
        choice = None
        if _levels(options) != USUAL_LEVELS:
            choice = experimental.ProfilerOptions(
                host_tracer_level=options.host_level,
                python_tracer_level=int(options.python),
                device_tracer_level=1,
            )
        try:
            experimental.start(str(folder), options=choice)
        except self._tf.errors.AlreadyExistsError as error:
            raise CaptureError(
                "TensorFlow's profiler is already running: stop it first with"
                " tf.profiler.experimental.stop()"
            ) from error
        except Exception as error:
            raise CaptureError(f"TensorFlow's profiler did not start: {error}") from error
        self._recording, self._asked = True, (folder, options)
        about_start = notes.infos("gpu_not_seen", remedies.unseen_by_tensorflow(self._tf))
        if not options.memory:
            text = (
                "TensorFlow cannot turn off allocation events: they were recorded despite"
                " --no-memory"
            )
            about_start.append(notes.without_effect(text))
        return about_start

    @property
    def records_all(self) -> bool:
        """True if the adapter of an NPU records it to the end of the session."""
        return self._adapter is not None and self._adapter.used

    def stop(self) -> None:
        """End the recording and write its files.

        Raises
        ------
        CaptureError
            If there is nothing to write, or it cannot be written.
        """
        if not self._recording:
            return
        self._recording = False
        npu, self._npu = self._npu, None
        if npu is not None:
            try:
                npu.__exit__(None, None, None)
            except Exception as error:
                raise CaptureError(f"the NPU's profiler wrote no file: {error}") from error
            return
        try:
            self._tf.profiler.experimental.stop()
        except Exception as error:
            raise CaptureError(f"TensorFlow's profiler wrote no file: {error}") from error
        if self._asked is not None:
            self._add_variables(*self._asked)
            self._check_levels(*self._asked)
            if self._adapter is None or not self._adapter.used:
                self._notes += notes.without_npu(self._asked[1].given_for_npu())

    def _add_variables(self, folder: Path, options: Options) -> None:
        """Say in the file what its allocations are; where that fails, memory by role knows less."""
        if options.memory:
            with contextlib.suppress(Exception):
                tensorflow_variables.add(self._tf, folder)

    def _check_levels(self, folder: Path, options: Options) -> None:
        """Say what was not recorded as asked."""
        asked = _levels(options)
        if asked == USUAL_LEVELS:
            return
        for path in folder.rglob("*.xplane.pb"):
            levels = recorded_levels(path)
            if levels is not None and levels != asked:
                self._note(self._ignored(asked, levels))

    def _ignored(self, asked: tuple[int, int], levels: tuple[int, int]) -> Note:
        """The note on levels of the host and of Python that were not recorded as requested."""
        ignored = []
        if levels[0] != asked[0]:
            ignored.append(f"--host-level {asked[0]}")
        if levels[1] != asked[1]:
            ignored.append("--python")
        calls = "with" if levels[1] else "without"
        return notes.without_effect(
            f"TensorFlow {self._tf.__version__} ignored {' and '.join(ignored)}: it recorded"
            f" with host level {levels[0]} and {calls} Python's calls"
        )

    def _start_npu(self, kind: Any, folder: Path, options: Options) -> list[Note]:
        run = folder / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
        run.mkdir(parents=True)
        try:
            self._npu = kind(
                level=tensorflow_npu.level(options),
                aic_metrics=options.aic_metrics,
                output_path=str(run),
            )
            self._npu.__enter__()
        except Exception as error:
            self._npu = None
            raise CaptureError(f"the NPU's profiler did not start: {error}") from error
        self._recording = True
        about_start = [info("npu_profiler", remedies.ADAPTER_PROFILER)]
        points = options.given_for_npu(*POINTS)
        if points:
            text = (
                "the adapter's session profiler detects iterations itself:"
                f" {' and '.join(points)} had no effect"
            )
            about_start.append(notes.without_effect(text))
        return about_start

    def npu_is_here(self, windows: Windows, patches: Patches, give_way: Callable[[], None]) -> None:
        """The adapter of an NPU was imported after TensorFlow."""
        del give_way
        if self._recording and self._npu is None and tensorflow_npu.profiler() is not None:
            if windows.clock.seen:
                self._note(info("npu_imported_late", remedies.ADAPTER_LATE))
            else:
                windows.restart()
        self._join(windows.options, patches)

    def _join(self, options: Options, patches: Patches) -> None:
        if self._adapter is None:
            self._adapter = tensorflow_npu.AdapterOptions(options, self._note)
        self._adapter.join(self._tf, patches)

    def _note(self, note: Note) -> None:
        if note not in self._notes:
            self._notes.append(note)

    def notes(self) -> list[Note]:
        """Notes gathered during the recording."""
        return self._notes

    def open_marker(self, kind: str, number: int) -> Marker:
        """Open a span that may become step `number`."""
        del number
        return _TraceSpan(self._tf.profiler.experimental.Trace, kind)

    def open_wait(self, name: str = WAIT) -> Span:
        """Open a span around what a step waits for."""
        return ContextSpan(self._tf.profiler.experimental.Trace(name, **stage(name)))

    @staticmethod
    def serve(module: Any, port: int) -> None:
        """Start the profiler server of a process."""
        module.profiler.experimental.server.start(port)

    def versions(self) -> str:
        """Versions that matter for reading the run."""
        text = f"TensorFlow {self._tf.__version__}"
        for adapter in (tensorflow_npu.BRIDGE, tensorflow_npu.DEVICE):
            if adapter in sys.modules:
                text += f", {adapter}"
        return text + keras_version()

    def hook(self, clock: StepClock, patches: Patches, give_way: Callable[[], None]) -> None:
        """Hook the step markers of the user, and their use of the profiler.

        Parameters
        ----------
        clock : StepClock
            Is told about each ``Trace(..., _r=1)``.
        patches : Patches
            Remembers what to restore.
        give_way : callable
            Called before the user's own ``tf.profiler.experimental.start``: a process has one
            profiler, and theirs comes first.
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

    TensorFlow takes metadata until a span is closed, and ``_r=1`` is what makes it the root of a
    step. So the span can be opened before it is known whether a batch will come, and given up
    without leaving a step behind.
    """

    def __init__(self, trace: Any, kind: str) -> None:
        self._trace = trace(kind)

    def close(self, step: int | None, batches: int = 1) -> None:
        if step is not None:
            extra = {"batches": batches} if batches > 1 else {}
            self._trace.set_metadata(step_num=step, _r=1, **extra)
        else:
            self._trace.set_metadata(**GIVEN_UP)
        self._trace.__exit__(None, None, None)


def _hook_roots(trace: Any, clock: StepClock, patches: Patches) -> None:
    init, leave = trace.__init__, trace.__exit__
    # Two clocks may listen: that of a recording, and that of a program that is sampled from
    # elsewhere.
    mark = f"_nbprof_kind_{id(clock)}"

    @wraps(init)
    def opened(self: Any, name: str, **kwargs: Any) -> None:
        # A step range may have to start recording before the span opens.
        root = bool(kwargs.get("_r")) and clock.alive
        if root:
            clock.root_begins(of_framework=True, origin="marked by tf.profiler.experimental.Trace")
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


# Numbers of fields: XSpace.planes; XPlane.name, .stat_metadata, .stats; XStat.metadata_id,
# .bytes_value; ProfileOptions.
_PLANES, _NAME, _STAT_NAMES, _STATS, _ID, _BYTES, _HOST_LEVEL, _PYTHON_LEVEL = (
    1,
    2,
    5,
    6,
    1,
    6,
    2,
    4,
)
_PLANE, _STAT = b"Task Environment", b"profile_options"


def recorded_levels(path: Path) -> tuple[int, int] | None:
    """Host level and level of Python calls that an XSpace file states; None if it states none.

    Parameters
    ----------
    path : Path
        Only the heads of its planes are read, but for the one that tells.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _levels_of(cast("wire.Data", data))
    except (OSError, ValueError, ReadError, IndexError):
        return None


def _levels_of(data: wire.Data) -> tuple[int, int] | None:
    for number, kind, start, end in wire.fields(data, 0, len(data)):
        # The name is among the first fields; in a plane of events the others are a million.
        if (number, kind) == (_PLANES, wire.LENGTH) and _PLANE in bytes(
            data[start : min(end, start + 64)]
        ):
            options = _options_stat(data, start, end)
            if options is not None:
                values = {}
                for field, kind, value, _ in wire.fields(options, 0, len(options)):
                    if kind == wire.VARINT:
                        values[field] = value
                return values.get(_HOST_LEVEL, 0), values.get(_PYTHON_LEVEL, 0)
    return None


def _options_stat(data: wire.Data, start: int, end: int) -> bytes | None:
    """The value of the plane's stat that holds the options."""
    requested, values = 0, {}
    for number, kind, offset, stop in wire.fields(data, start, end):
        if kind != wire.LENGTH or number not in (_STAT_NAMES, _STATS):
            continue
        inner = {field: (value, upto) for field, _, value, upto in wire.fields(data, offset, stop)}
        if number == _STAT_NAMES and _STAT in bytes(data[offset:stop]):
            requested = inner.get(_ID, (0, 0))[0]
        elif number == _STATS and _BYTES in inner:
            values[inner.get(_ID, (0, 0))[0]] = bytes(data[slice(*inner[_BYTES])])
    return values.get(requested)
