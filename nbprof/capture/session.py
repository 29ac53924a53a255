"""The life of one recording: it begins before the cell, follows its steps, and ends whatever
happens.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from nbprof.capture import describe, keras, torch_threads
from nbprof.capture.auto import AutoBackend, one_at_a_time, used_before
from nbprof.capture.clock import StepClock, set_current
from nbprof.capture.detect import choose, either
from nbprof.capture.imports import ImportWatch
from nbprof.capture.loaders import PY_DATASETS
from nbprof.capture.options import BACKENDS, PYTHON, Options
from nbprof.capture.patches import Patches
from nbprof.capture.python import PythonBackend
from nbprof.capture.shield import shielded
from nbprof.capture.windows import Backend, Windows, backend_class
from nbprof.core.errors import CaptureError
from nbprof.frameworks.register import is_imported, named, of_module
from nbprof.sources.recording import CaptureInfo, Recording

__all__ = ["CaptureInfo", "Recording", "Session", "active"]


NPU_MODULES = ("torch_npu", "npu_device", "npu_bridge", "npu_bridge.profiler.profiler")
"""What drives an NPU of Ascend under PyTorch and TensorFlow; a program may import it after
these.
"""

_lock = threading.Lock()
_active: Session | None = None


def active() -> Session | None:
    """Return the session that is recording or waiting for its framework, if one is."""
    return _active


class Session:
    """One recording, from `start` to `stop`.

    There is one at a time in a process: starting another one stops the first, whose files are kept.

    Parameters
    ----------
    options : Options, optional
        What to record.
    source : str
        The text of the cell, to see which framework it uses.
    namespace : mapping, optional
        The variables that it may name, for the same.
    on_step : callable, optional
        Called with the clock after each step, on the thread that runs the step.
    batches_of : str
        Not empty: ``options.steps`` counts batches of this kind of loop of Keras instead of steps.

    Attributes
    ----------
    messages : list of str
        Sentences for the user that concern the start (an old recording was stopped, nothing can be
        recorded).
    recording : Recording or None
        After `stop`, what was recorded.
    failure : str
        After `stop`, why nothing was recorded.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        source: str = "",
        namespace: Mapping[str, Any] | None = None,
        on_step: Callable[[StepClock], None] | None = None,
        batches_of: str = "",
    ) -> None:
        self.options = options or Options()
        self.messages: list[str] = []
        self.recording: Recording | None = None
        self.failure = ""
        self.superseded = False
        self._source = source
        self._choice = choose(self.options.backend, source, namespace)
        self._patches = Patches()
        self._watch: ImportWatch | None = None
        self._auto: AutoBackend | None = None
        self._stopped = False
        self._imported_before = {name for name in BACKENDS if is_imported(name)}
        self.clock = StepClock(
            window=self.options.steps,
            every=self.options.every,
            batches_of=batches_of,
            begin_window=lambda: self.windows.begin(),
            end_window=lambda: self.windows.end(),
            on_step=on_step,
        )
        self.windows = Windows(self.options, self.clock)

    @property
    def backend(self) -> Backend | None:
        """What records, as soon as the framework is there."""
        return self.windows.backend

    @property
    def awaited(self) -> list[str]:
        """What will be recorded, or the first of them to be there."""
        return [named(name).title for name in self._choice.candidates]

    @property
    def elsewhere(self) -> list[str]:
        """Why the run is not kept where it was to be, and where it is."""
        return (
            self.windows.place.notes
            if self.windows.place is not None and self.windows.recordings
            else []
        )

    def start(self) -> Session:
        """Begin to record, or to wait for the cell to import its framework.

        Raises
        ------
        CaptureError
            If the framework refuses, or the one that was asked for is not installed. The session is
            over then.
        """
        global _active
        with shielded():
            with _lock:
                previous, _active = _active, self
            if previous is not None:
                previous.superseded = True
                kept = previous.stop()
                where = f"; its files are in {kept.path}" if kept and not kept.temporary else ""
                self.messages.append(
                    f"nbprof: an earlier recording was still running and has been stopped{where}"
                )
            self._check_installed()
            set_current(self.clock)
            self.windows.loops.start()
            self.clock.started = time.perf_counter()
            actions = self._begin_to_record()
            actions[keras.MODULE] = self._keras_is_here
            actions[PY_DATASETS] = self._py_datasets_are_here
            actions |= dict.fromkeys(NPU_MODULES, self._npu_is_here)
            self._watch = ImportWatch(actions)
            self._watch.install()
            if self.failure:
                self.stop()
                raise CaptureError(self.failure)
        return self

    def _begin_to_record(self) -> dict[str, Callable[[ModuleType], None]]:
        """Record what is there by now; returns what is to be done with a framework that arrives, by
        its module.
        """
        asked = self.options.backend
        if asked in BACKENDS:
            return {named(asked).recorder.module: self._framework_is_here}
        if asked == PYTHON:
            self.windows.backend = PythonBackend()
        else:
            self.windows.backend = self._auto = AutoBackend(self.clock)
            for name in self._at_once():
                self._auto.add(
                    self._made(sys.modules[named(name).recorder.module]),
                    expected=name in self._choice.expected,
                )
        if self.options.steps is None:
            self.windows.begin()
        self.failure = self.windows.failure
        for backend in self._auto.frameworks if self._auto is not None and not self.failure else ():
            self._hook(backend)
        self.clock.waits.hook(self._patches)
        if self._auto is None:
            return {}
        awaited = [named(name).recorder for name in BACKENDS]
        return {
            recorder.module: self._framework_joins for recorder in awaited if not recorder.imported
        }

    def _at_once(self) -> list[str]:
        """The imported frameworks to record: those that the cell is expected to use, else, as
        nothing tells, all of them.

        Where one can be recorded at a time, it is the first, of unexpected ones the first that was
        used before.
        """
        imported = [name for name in (*self._choice.expected, *BACKENDS) if is_imported(name)]
        expected = [name for name in self._choice.expected if is_imported(name)]
        alone = one_at_a_time()
        if expected:
            return expected[:1] if alone else expected
        if not alone:
            return list(dict.fromkeys(imported))
        used = used_before()
        return (
            sorted(imported, key=lambda name: name not in used)[:1]
            if not self._choice.expected
            else []
        )

    def ends_here(self, why: str) -> bool:
        """Whether `stop` may be called on this thread; where it may not, the recording is ended on
        its own, after the step that runs.

        Where no step has ended, what was recorded of Python alone can be kept.
        """
        windows = self.windows
        return (
            windows.ends_here
            or windows.end_there(why)
            or (self._auto is not None and not self.clock.seen)
        )

    def stop(self, error: BaseException | None = None) -> Recording | None:
        """End the recording and return it; None with `failure` set if there is nothing.

        Safe to call twice. Ctrl-C waits until the files are whole.

        Parameters
        ----------
        error : exception, optional
            What ended the cell, if it did not run to its end.
        """
        with shielded():
            if not self._stopped:
                self._stopped = True
                self._stop(error)
        return self.recording

    def _stop(self, error: BaseException | None) -> None:
        global _active
        failed_at = self.clock.current_step
        self.clock.stop()
        try:
            self.windows.close()
        finally:
            self.windows.loops.stop()
            if self._watch is not None:
                self._watch.remove()
            self._patches.restore()
            with _lock:
                if _active is self:
                    _active = None
                    set_current(None)
            # Nothing leads back to the session, so that it goes with its holder, and with it the
            # files that were not to be kept.
            self.clock.release()
        if self.windows.recordings:
            self._finish(error, failed_at)
        else:
            self.failure = self.failure or self.windows.failure or self._why_nothing()
            if self.windows.place is not None:
                self.windows.place.remove()

    def _finish(self, error: BaseException | None, failed_at: int | None) -> None:
        """Tell the window to show, and the last one, how the cell ended."""
        shown, last = self.windows.shown(), self.windows.recordings[-1]
        for recording in (shown,) if last is shown else (shown, last):
            self._tell(recording.info, error, failed_at)
            recording.info.notes += self._ran_too(recording.path)
            try:
                recording.write()
            except OSError as trouble:
                recording.info.notes.append(
                    f"the run's {recording.path.name} has no complete nbprof.json next to it:"
                    f" {trouble.strerror}"
                )
        for recording in self.windows.recordings:
            recording.note_upload()
        self.recording = shown
        place = self.windows.place
        if (
            place is not None
            and place.temporary
            and any(recording.temporary is None for recording in self.windows.recordings)
        ):
            place.keep()
        if place is not None and place.temporary:
            # The profile holds the info for as long as anybody holds the profile.
            weakref.finalize(shown.info, place.remove)

    def _check_installed(self) -> None:
        wanted = self.options.backend
        if (
            wanted in BACKENDS
            and not is_imported(wanted)
            and not _installed(named(wanted).recorder.module)
        ):
            self.failure = f"{named(wanted).title} is not installed: the cell runs unprofiled"
            self.stop()
            raise CaptureError(self.failure)

    def _framework_is_here(self, module: ModuleType) -> None:
        if self.backend is not None or not self.clock.alive:
            return
        try:
            self.windows.backend = backend = self._made(module)
            if self.options.steps is None:
                self.windows.begin()
            self.failure = self.windows.failure
            self._hook(backend)
            self._npu_is_here(module)
            self.clock.waits.hook(self._patches)
        except CaptureError as error:
            self.failure = str(error)
        except Exception as error:
            # Nothing of ours may fail the user's import.
            self.failure = (
                f"{of_module(module.__name__).title} could not be recorded: {type(error).__name__}:"
                f" {error}"
            )

    def _framework_joins(self, module: ModuleType) -> None:
        """A framework was imported by the cell: record it beside Python, unless the cell is
        expected to use another one.
        """
        auto, name = self._auto, of_module(module.__name__).name
        if auto is None or not self.clock.alive or self.windows.over:
            return
        expected = name in self._choice.expected
        try:
            if auto.frameworks and (one_at_a_time() or not expected):
                return
            backend = self._made(module)
            self.windows.notes += auto.add(backend, expected=expected)
            self._hook(backend)
            self._npu_is_here(module)
            self.clock.waits.hook(self._patches)
        except Exception as error:
            # Nothing of ours may fail the user's import.
            self.windows.notes.append(
                f"{named(name).title} could not be recorded: {type(error).__name__}: {error}"
            )

    def _made(self, module: ModuleType) -> Backend:
        """The backend of a framework, for this cell."""
        backend = _make_backend(module)
        if hasattr(backend, "starts_threads"):
            backend.starts_threads = torch_threads.starts_threads(self._source)
        return backend

    def _hook(self, backend: Backend) -> None:
        try:
            backend.hook(self.clock, self._patches, lambda: self._give_way(backend.title))
        except Exception as error:
            if self._auto is None:
                raise
            self._auto.drop(backend, error)

    def _npu_is_here(self, module: ModuleType) -> None:
        """What drives an NPU of Ascend was imported: by PyTorch or the cell, after PyTorch or
        TensorFlow.
        """
        backend = self.backend
        try:
            if backend is None or not self.clock.alive:
                return
            join = getattr(backend, "npu_is_here", None)
            if join is not None:
                join(self.windows, self._patches, self._give_way)
        except Exception as error:
            # Nothing of ours may fail the user's import.
            self.windows.notes.append(
                f"the NPU could not be recorded: {module.__name__}: {type(error).__name__}: {error}"
            )

    def _keras_is_here(self, module: ModuleType) -> None:
        try:
            keras.hook(module, self.clock, self._patches)
        except Exception as error:
            self.windows.notes.append(
                f"Keras steps could not be marked: {type(error).__name__}: {error}"
            )

    def _py_datasets_are_here(self, module: ModuleType) -> None:
        # Nothing of ours may fail the user's import.
        with contextlib.suppress(Exception):
            self.clock.waits.loaders.hook_keras(module, self._patches)

    def _give_way(self, title: str = "") -> None:
        if self._stopped:
            return
        title = title or (self.backend.title if self.backend is not None else "")
        own = f"the cell starts {title}'s profiler itself"
        where = f", after step {self.clock.seen}" if self.clock.seen else ""
        self.windows.notes.append(f"{own}, so nbprof stopped recording there{where}")
        self.clock.leave()
        self.windows.close()

    def _tell(
        self, capture: CaptureInfo, error: BaseException | None, failed_at: int | None
    ) -> None:
        """Put what is known by now about the whole cell into the info of one of its windows."""
        clock = self.clock
        capture.steps_seen = clock.seen
        capture.boundaries = list(clock.boundaries)
        capture.cell_failed = error is not None
        capture.error = describe.failure(error, failed_at, clock.seen) if error is not None else ""
        capture.failed_at_step = failed_at if error is not None else None
        capture.out_of_memory = describe.out_of_memory(error)
        notes = [
            *describe.how_steps_were_found(clock),
            *self.windows.notes,
            *getattr(self.backend, "notes", list)(),
        ]
        if self.windows.failure:
            notes.append(f"a later window could not be recorded: {self.windows.failure}")
        if clock.fault:
            notes.append(f"steps after {clock.seen} are not marked: {clock.fault}")
        if clock.batches > 1:
            notes.append(f"each step covers {clock.batches} batches (steps_per_execution)")
        window = self.options.steps
        if window and window[1] and not clock.batches_of and clock.seen < window[1]:
            notes.append(
                f"--steps asked for {window[0]} to {window[1]}, but the cell ended after step"
                f" {clock.seen}"
            )
        second = self._second_framework()
        # Where nothing ran of what was recorded, what else may have is the first thing to know.
        notes = [*getattr(self.backend, "unrecorded", list)(), *notes]
        shown = self._auto.shown if self._auto is not None else self.backend
        capture.unrecorded = getattr(shown, "unrecorded", list)()
        capture.notes = (
            second + notes
            if self._auto is not None and self._auto.name == PYTHON
            else notes + second
        )

    def _second_framework(self) -> list[str]:
        if self.backend is None:
            return []
        recorded = (
            {backend.name for backend in self._auto.frameworks}
            if self._auto is not None
            else {self.backend.name}
        )
        used = set(self._choice.others) | {
            name for name in BACKENDS if is_imported(name) and name not in self._imported_before
        }
        others = [
            name for name in BACKENDS if name in used and is_imported(name) and name not in recorded
        ]
        notes = [
            f"the cell also uses {named(name).title}, which was not recorded; to record it instead:"
            f" --backend {name}"
            for name in others
        ]
        # Steps that were seen are of the framework that was recorded.
        maybe = (
            [name for name in self._unnamed() if name not in used | recorded]
            if not self.clock.seen
            else []
        )
        if maybe:
            there = either([named(name).title for name in maybe], "and")
            it, one = ("it", "it") if len(maybe) == 1 else ("them", "one of them")
            instead = either([f"--backend {name}" for name in maybe], "or")
            title = self.backend.title
            if self._auto is not None and self._auto.name == PYTHON and self._auto.frameworks:
                title = f"{self._auto.frameworks[0].title}, of which nothing ran,"
            notes.append(
                f"the cell names no framework, so {title} was recorded; {there} {_be(maybe)}"
                f" imported too, and anything that the cell did with {it} was not recorded; to"
                f" record {one} instead: {instead}"
            )
        return notes

    def _unnamed(self) -> list[str]:
        """The frameworks that the cell may use as well, for all that is known before it runs."""
        if self._choice.expected or self._auto is None:
            return []
        return [name for name in BACKENDS if name in self._imported_before and is_imported(name)]

    def _ran_too(self, path: Path) -> list[str]:
        """Where the recordings of further frameworks are that ran while the run of a folder was
        recorded.
        """
        found = []
        for run in self.windows.beside.get(path, ()):
            title = next(
                (named(name).title for name in BACKENDS if f"_{name}" in run.name),
                "another framework",
            )
            found.append(
                f'the cell also ran {title}, which was recorded separately: nbprof.load("{run}")'
                " opens that"
            )
        return found

    def _why_nothing(self) -> str:
        window = self.options.steps
        if self.backend is not None and window and self.clock.batches_of:
            loop = keras.LOOPS[self.clock.batches_of]
            asked = (
                f"batches {window[0]} to {window[1]} were"
                if window[1]
                else f"batches from {window[0]} on were"
            )
            return (
                f"{asked} asked for, but {loop} ended after batch {self.clock.counted}: nothing was"
                " recorded"
            )
        if self.backend is not None and window and not self.clock.seen:
            recorded = named(self.backend.name)
            later = (
                f", and {recorded.title} steps are only found after the recording"
                if recorded.recorder.steps_found_late
                else ""
            )
            return (
                f"--steps asked for step {window[0]}, but the cell marks no steps{later}: mark them"
                " with 'for batch in nbprof.steps(batches):', or record without --steps"
            )
        if self.backend is not None and window:
            return (
                f"--steps asked for step {window[0]}, but the cell ended after step"
                f" {self.clock.seen}: nothing was recorded"
            )
        text = (
            f"nothing to record: {either(self.awaited, 'and')} {_be(self.awaited)} imported neither"
            " by this cell nor before it"
        )
        # Where one was asked for, or named by the cell, another may be there.
        there = [name for name in BACKENDS if is_imported(name)]
        if there:
            options = either([f"--backend {name}" for name in there], "or")
            text += (
                f"; {either([named(name).title for name in there], 'and')} {_be(there)}, which"
                f" {options} records"
            )
        return text

    def forget(self) -> None:
        """Do nothing any more and touch nothing: this process is a child that merely inherited the
        session.
        """
        self._stopped = True
        self.windows.abandon()
        self.clock.abandon()
        if self._watch is not None:
            self._watch.remove()


def _make_backend(module: ModuleType) -> Backend:
    """The backend that records the framework of a module."""
    backend: Backend = backend_class(of_module(module.__name__))(module)
    return backend


def _be(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _forget_in_child() -> None:
    global _active, _lock
    session, _active = _active, None
    # The lock may have been held by a thread that does not exist here.
    _lock = threading.Lock()
    set_current(None)
    if session is not None:
        session.forget()


def _finish_at_exit() -> None:
    session = _active
    if session is not None:
        # A script that ends, a kernel that is shut down: what was recorded is kept.
        recording = session.stop()
        if recording is not None and (recording.url or not recording.temporary):
            where = recording.url or recording.path
            sys.stderr.write(
                f"nbprof: the recording ended with the process; its files are in {where}\n"
            )


atexit.register(_finish_at_exit)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
