"""Record Python, and each framework that the cell may use.

Before a cell has run, it is unknown which of the imported frameworks it uses; the recordings show
it afterwards. So the profilers of all candidates run, and the recording of the one that ran is
shown; if none ran, it is Python's. Profilers of two frameworks share a CPU, but not a GPU: with
one, a single framework is recorded.
"""

from __future__ import annotations

import contextlib
import gzip
import mmap
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbprof.capture import notes
from nbprof.capture.clock import WAIT, Marker, Span, StepClock
from nbprof.capture.jax import NOTHING_RAN
from nbprof.capture.options import Options
from nbprof.capture.patches import Patches
from nbprof.capture.python import PythonBackend
from nbprof.capture.windows import Backend, Since
from nbprof.core import remedies
from nbprof.core.errors import CaptureError
from nbprof.core.receipt import Note
from nbprof.frameworks.register import RECORDED, named

if TYPE_CHECKING:
    from nbprof.capture.windows import Windows

_ACCELERATORS = (
    "/dev/nvidiactl",
    "/dev/nvhost-ctrl",
    "/dev/kfd",
    "/dev/accel0",
    "/dev/accel/accel0",
    "/dev/vfio/0",
    "/dev/davinci_manager",
)
"""Device files of GPUs, TPUs and NPUs, whose tracing interfaces serve one profiler at a time."""

_CHUNK = 1 << 22


def one_at_a_time() -> bool:
    """Return whether the machine has an accelerator, whose tracing serves one profiler only."""
    return any(Path(path).exists() for path in _ACCELERATORS)


@dataclass
class _Part:
    """The state of one backend of several.

    Parameters
    ----------
    backend : Backend
    expected : bool
        The cell names it, or its variables lead to it: a failure to start is reported then.
    since : Since
        When it began to record.
    running : bool
    error : Exception or None
        Why it has no recording.
    idle : bool
        It has no recording because nothing of it ran.
    notes : list of Note
        Notes of its start.
    """

    backend: Backend
    expected: bool
    since: Since = field(default_factory=Since)
    running: bool = False
    error: Exception | None = None
    idle: bool = False
    notes: list[Note] = field(default_factory=list)

    @property
    def failure(self) -> str:
        """`error` as part of a sentence; "" without one."""
        if self.error is None:
            return ""
        if isinstance(self.error, (CaptureError, OSError)):
            return str(self.error)
        return f"{type(self.error).__name__}: {self.error}"


class AutoBackend:
    """Several backends as one.

    Parameters
    ----------
    clock : StepClock
        Counts the steps that had ended when a framework joined.

    Attributes
    ----------
    primary : Backend
        Before the end, the framework that is expected to run; afterwards the one whose recording is
        the run.
    """

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock
        self._code = PythonBackend()
        self._python = _Part(self._code, expected=False)
        self._parts: list[_Part] = []
        self._folder = Path()
        self._options = Options()
        self._recording = False
        self.primary: Backend = self._python.backend
        self._ended = False

    @property
    def name(self) -> str:
        """The name of the primary backend."""
        return self.primary.name

    @property
    def title(self) -> str:
        """Its name in sentences."""
        return self.primary.title

    @property
    def frameworks(self) -> list[Backend]:
        """The frameworks among the backends."""
        return [part.backend for part in self._parts]

    @property
    def ends_anywhere(self) -> bool:
        """True if any thread may end the recording."""
        running = [part.backend for part in self._parts if part.running]
        return all(getattr(backend, "ends_anywhere", True) for backend in running)

    @property
    def bytes_per_call(self) -> int:
        """Bytes that a call of a Python function takes when the recordings are stopped."""
        running = [part.backend for part in self._parts if part.running]
        return max((getattr(backend, "bytes_per_call", 0) for backend in running), default=0)

    @property
    def bytes_per_event(self) -> int:
        """The fewest bytes that an event takes in the process."""
        running = [part.backend for part in self._parts if part.running]
        each = [getattr(backend, "bytes_per_event", 0) for backend in running]
        return min(filter(None, each), default=0)

    @property
    def records_all(self) -> bool:
        """True if a framework is recorded to the end of the cell in any case."""
        return any(getattr(part.backend, "records_all", False) for part in self._parts)

    @property
    def since(self) -> Since | None:
        """When the recording of the primary backend began."""
        return next((part.since for part in self._all if part.backend is self.primary), None)

    @property
    def _all(self) -> list[_Part]:
        return [*self._parts, self._python]

    def code_begins(self) -> None:
        """All is set up: the user's code runs from here on."""
        self._code.code_begins()

    def code_ends(self) -> None:
        """The user's code has ended."""
        self._code.code_ends()

    def add(self, backend: Backend, *, expected: bool) -> list[Note]:
        """Record a framework as well, from now on; returns notes for the user.

        One whose profiler refuses is left out.

        Parameters
        ----------
        backend : Backend
        expected : bool
            The cell names it, or its variables lead to it: it is preferred to others then.
        """
        part = _Part(backend, expected)
        # Those that are expected come first, in the order in which they arrive.
        position = len(self._parts)
        if expected:
            position = sum(other.expected for other in self._parts)
        self._parts.insert(position, part)
        if self._recording:
            self._begin(part)
        self._choose_primary()
        return self._first_notes(part) if self._recording else []

    def drop(self, backend: Backend, error: Exception) -> None:
        """Stop recording a framework, whose steps could not be followed."""
        for part in self._parts:
            if part.backend is backend:
                part.error = error
                if part.running:
                    part.running = False
                    with contextlib.suppress(Exception):
                        backend.stop()
        self._choose_primary()

    def _choose_primary(self) -> None:
        self.primary = self._python.backend
        for part in self._parts:
            if part.error is None:
                self.primary = part.backend
                return

    def start(self, folder: Path, options: Options) -> list[Note]:
        """Start recording; returns notes for the user.

        Raises
        ------
        CaptureError
            If a framework refuses that the cell names.
        """
        self._folder, self._options = folder, options
        self._ended = False
        for part in self._all:
            self._begin(part)
            if part.error is not None and part.expected:
                self._abandon()
                raise part.error
        self._choose_primary()
        self._recording = True
        first = []
        for part in self._parts:
            first += self._first_notes(part)
        return first

    def _first_notes(self, part: _Part) -> list[Note]:
        """Notes that apply whatever ran: those of the only framework."""
        return part.notes if len(self._parts) == 1 else []

    def _begin(self, part: _Part) -> None:
        part.error, part.idle = None, False
        try:
            part.notes = part.backend.start(self._home(part), self._options)
            part.running = True
            part.since = Since(time.perf_counter(), self._clock.seen, self._clock.marked)
        except Exception as error:
            part.error = error

    def _abandon(self) -> None:
        """Stop the profilers that have begun, without a recording."""
        for part in self._all:
            if part.running:
                part.running = False
                with contextlib.suppress(Exception):
                    part.backend.stop()

    def _home(self, part: _Part) -> Path:
        return self._folder / part.backend.name

    def stop(self) -> None:
        """End the recordings, and save those of frameworks that ran.

        Raises
        ------
        CaptureError
            If nothing could be written.
        """
        self._recording = False
        for part in self._all:
            if not part.running:
                continue
            part.running = False
            try:
                part.backend.stop()
            except Exception as error:
                part.error = error
                part.idle = part.failure == NOTHING_RAN
        failed = [part.error for part in self._parts if part.error is not None]
        for part in self._parts:
            if part.error is not None and remedies.disk_remedy(part.failure):
                # The disk is full: a smaller recording that fits on it would hide that.
                raise part.error
        ran_parts = []
        for part in self._parts:
            if not part.failure and ran(part.backend, self._home(part), expected=part.expected):
                ran_parts.append(part)
        primary, *companions = ran_parts or [self._python]
        self.primary, self._ended = primary.backend, True
        if primary.error is not None:
            raise failed[0] if failed else primary.error
        try:
            self._move_runs(primary, companions)
        except OSError as error:
            raise CaptureError(
                f"the recording could not be kept in {self._folder}: {error.strerror or error}"
            ) from error

    def _move_runs(self, primary: _Part, companions: list[_Part]) -> None:
        """Move the runs of the primary backend and of companions to the folder; remove the rest."""
        runs = self._folder / "plugins" / "profile"
        runs.mkdir(parents=True, exist_ok=True)
        run = next(_runs(self._home(primary)))
        for part in companions:
            next(_runs(self._home(part))).rename(runs / f"{run.name}_{part.backend.name}")
        run.rename(runs / run.name)
        for part in self._all:
            shutil.rmtree(self._home(part), ignore_errors=True)

    def notes(self) -> list[Note]:
        """Notes on expected frameworks that ran nothing, and those of the primary backend."""
        gathered = []
        only_python = self._ended and self.primary is self._python.backend
        for part in self._parts:
            silent = part.idle or not part.failure
            if silent and only_python and part.expected:
                gathered.append(notes.nothing_ran(part.backend.title))
        if len(self._parts) > 1:
            for part in self._all:
                if part.backend is self.primary:
                    gathered += part.notes
        return gathered + getattr(self.primary, "notes", list)()

    def unrecorded(self) -> list[Note]:
        """Notes on work that may have run but is missing in the shown recording."""
        missing = []
        for part in self._parts:
            if part.failure and not part.idle:
                missing.append(notes.framework_not_recorded(part.backend.title, part.failure))
        return missing + getattr(self.primary, "unrecorded", list)()

    def open_marker(self, kind: str, number: int) -> Marker:
        """Open a span that may become step `number`, in each recording."""
        return _Markers(
            [part.backend.open_marker(kind, number) for part in self._all if part.running]
        )

    def open_wait(self, name: str = WAIT) -> Span:
        """Open a span around what a step waits for, in each recording."""
        openers = [getattr(part.backend, "open_wait", None) for part in self._all if part.running]
        return _Spans([opener(name) for opener in openers if opener is not None])

    def versions(self) -> str:
        """Versions that matter for reading the run."""
        return self.primary.versions()

    def hook(self, clock: StepClock, patches: Patches, give_way: Callable[[], None]) -> None:
        """Hooks nothing: the session hooks each framework as it arrives."""

    def npu_is_here(self, windows: Windows, patches: Patches, give_way: Callable[[], None]) -> None:
        """The adapter of an NPU of Ascend was imported."""
        for part in self._parts:
            join = getattr(part.backend, "npu_is_here", None)
            if join is not None:
                join(windows, patches, give_way)


class _Markers:
    """Markers of several recordings as one."""

    def __init__(self, markers: list[Marker]) -> None:
        self._markers = markers

    def close(self, step: int | None, batches: int = 1) -> None:
        """End them."""
        for marker in self._markers:
            marker.close(step, batches)


class _Spans:
    """Spans of several recordings as one."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans

    def close(self) -> None:
        """End them, the last first."""
        for span in reversed(self._spans):
            span.close()


def _runs(home: Path) -> Iterator[Path]:
    """The folders that a profiler wrote."""
    return (path for path in sorted((home / "plugins" / "profile").glob("*")) if path.is_dir())


def ran(backend: Backend, home: Path, *, expected: bool = False) -> bool:
    """Return whether a framework ran, by its recording in a logdir.

    Files of another format, as those of an NPU, count as a recording in which it ran. A recording
    without a profiler does not show it: the cell must be expected to use the framework.
    """
    if getattr(backend, "stepped", False):
        return next(_runs(home), None) is not None
    recorder = named(backend.name).recorder
    if not recorder.signs:
        return expected
    files: list[Path] = []
    for run in _runs(home):
        files += filter(Path.is_file, run.rglob("*"))
    traces = [path for path in files if path.match(recorder.files)]
    if not traces:
        return bool(files)
    return any(contains(path, recorder.signs) for path in traces)


def contains(path: Path, signs: tuple[bytes, ...]) -> bool:
    """Return whether a file, packed or not, contains one of some texts."""
    if not path.stat().st_size:
        return False
    if path.suffix != ".gz":
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return any(text.find(sign) >= 0 for sign in signs)
    overlap = max(map(len, signs))
    with gzip.open(path) as packed:
        rest = b""
        while chunk := packed.read(_CHUNK):
            if any(sign in rest + chunk for sign in signs):
                return True
            rest = chunk[-overlap:]
    return False


def used_before() -> list[str]:
    """Imported frameworks that report to be in use."""
    return [name for name, framework in RECORDED.items() if _or_none(framework.recorder.in_use)]


def _or_none(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception:
        return None
