"""One recording: it begins before the cell, follows its steps, and ends in any case."""

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
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from nbprof.capture import compiles, describe, keras, notes, pools, torch_threads
from nbprof.capture.auto import AutoBackend, one_at_a_time, used_before
from nbprof.capture.clock import GRAIN_WAIT, StepClock, set_current
from nbprof.capture.compiles import hooks as compiler_hooks
from nbprof.capture.compiles.recorder import Compiles
from nbprof.capture.detect import choose
from nbprof.capture.enough import trains
from nbprof.capture.host_memory import HostMemoryRecorder
from nbprof.capture.imports import ImportWatch
from nbprof.capture.loader_workers.entry import GRAIN, PY_DATASETS
from nbprof.capture.options import BACKENDS, PYTHON, Options
from nbprof.capture.patches import Patches
from nbprof.capture.python import PythonBackend
from nbprof.capture.shield import shielded
from nbprof.capture.steps import Waiting
from nbprof.capture.windows import Backend, Windows, backend_class
from nbprof.core.errors import CaptureError
from nbprof.core.receipt import Note
from nbprof.core.units import listed
from nbprof.frameworks.register import is_imported, named, of_module
from nbprof.sources.recording import SCRIPT, CaptureInfo, Recording

__all__ = ["CaptureInfo", "Recording", "Session", "active"]


NPU_MODULES = ("torch_npu", "npu_device", "npu_bridge", "npu_bridge.profiler.profiler")
"""Adapters of NPUs of Ascend for PyTorch and TensorFlow, which a program may import after these."""

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
    joined : bool
        The program runs already, on other threads than this one.

    Attributes
    ----------
    messages : list of str
        Sentences for the user that concern the start (an old recording was stopped, nothing can be
        recorded).
    recording : Recording or None
        After `stop`, what was recorded.
    failure : str
        After `stop`, why nothing was recorded.
    called : str
        The recorded unit in sentences; "" for a cell or a script.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        source: str = "",
        namespace: Mapping[str, Any] | None = None,
        on_step: Callable[[StepClock], None] | None = None,
        batches_of: str = "",
        joined: bool = False,
    ) -> None:
        self.options = options or Options()
        self.messages: list[str] = []
        self.recording: Recording | None = None
        self.failure = ""
        self.superseded = False
        self.called = ""
        self._source = source
        self._choice = choose(self.options.backend, source, namespace)
        self._patches = Patches()
        self._compiles: Compiles | None = None
        self._host_memory: HostMemoryRecorder | None = None
        self._watch: ImportWatch | None = None
        self._auto: AutoBackend | None = None
        self._stopped = False
        self._imported_before = set(filter(is_imported, BACKENDS))
        self.clock = StepClock(
            window=self.options.window,
            every=self.options.every,
            batches_of=batches_of,
            begin_window=lambda: self.windows.begin(),
            end_window=lambda: self.windows.end(),
            on_step=on_step,
            joined=joined,
        )
        self.windows = Windows(self.options, self.clock, trains=trains(source))

    @property
    def backend(self) -> Backend | None:
        """The backend, once the framework is imported."""
        return self.windows.backend

    @property
    def unit(self) -> str:
        """The recorded unit: cell, script, or a process that one of them started."""
        return self.called or (SCRIPT if self.windows.by == SCRIPT else "cell")

    @property
    def awaited(self) -> list[str]:
        """Frameworks, of which the first to be imported will be recorded."""
        return [named(name).title for name in self._choice.candidates]

    @property
    def elsewhere(self) -> list[Note]:
        """Notes on why the run is not in the requested logdir, and where it is."""
        folder = self.windows.folder
        if folder is not None and self.windows.recordings:
            return folder.notes
        return []

    def start(self) -> Session:
        """Begin to record, or to wait for the cell to import its framework.

        Raises
        ------
        CaptureError
            If the framework refuses, or the requested one is not installed. The session is over
            then.
        """
        global _active
        with shielded():
            with _lock:
                previous, _active = _active, self
            if previous is not None:
                previous.superseded = True
                recording = previous.stop()
                message = "nbprof: an earlier recording was still running and has been stopped"
                if recording and not recording.temporary:
                    message += f"; its files are in {recording.path}"
                self.messages.append(message)
            self._check_installed()
            set_current(self.clock)
            self.windows.loops.start()
            self.clock.started = time.perf_counter()
            workers = self.clock.waits.loaders.workers
            self._host_memory = HostMemoryRecorder(
                self.clock.times.since_ns, lambda: workers.processes
            )
            self._host_memory.start()
            actions = self._begin_to_record()
            actions[keras.MODULE] = self._keras_is_here
            actions[PY_DATASETS] = self._py_datasets_are_here
            actions[GRAIN] = self._grain_is_here
            actions |= dict.fromkeys(NPU_MODULES, self._npu_is_here)
            actions |= dict.fromkeys(pools.MODULES, self._pools_are_here)
            clock = self.clock
            # Not of the session, which would refer to itself and outlive its last use.
            self._compiles = Compiles(lambda: clock.current_step)
            actions |= dict.fromkeys(compiles.MODULES, self._compiler_is_here)
            self._watch = ImportWatch(actions)
            self._watch.install()
            if self.failure:
                self.stop()
                raise CaptureError(self.failure)
        return self

    def _begin_to_record(self) -> dict[str, Callable[[ModuleType], None]]:
        """Record the imported frameworks; returns actions for those that arrive, by module."""
        requested = self.options.backend
        if requested in BACKENDS:
            return {named(requested).recorder.module: self._framework_is_here}
        auto = self._auto
        if requested == PYTHON:
            self.windows.backend = PythonBackend()
        else:
            self.windows.backend = self._auto = auto = AutoBackend(self.clock)
            for name in self._imported_candidates():
                module = sys.modules[named(name).recorder.module]
                expected = name in self._choice.expected
                auto.add(self._new_backend(module), expected=expected)
        if self.options.window is None:
            self.windows.begin()
        self.failure = self.windows.failure
        if auto is not None and not self.failure:
            for backend in auto.frameworks:
                self._hook(backend)
        self.clock.waits.hook(self._patches)
        if auto is None:
            return {}
        recorders = [named(name).recorder for name in BACKENDS]
        awaited = [recorder.module for recorder in recorders if not recorder.imported]
        return dict.fromkeys(awaited, self._framework_joins)

    def _imported_candidates(self) -> list[str]:
        """The imported frameworks to record: those that the cell is expected to use, else all.

        If only one can be recorded at a time, it is the first; of unexpected ones, the first that
        was used before.
        """
        imported = list(filter(is_imported, BACKENDS))
        expected = list(filter(is_imported, self._choice.expected))
        if not one_at_a_time():
            return expected or imported
        if self._choice.expected:
            return expected[:1]
        used = used_before()
        return sorted(imported, key=lambda name: name not in used)[:1]

    def ends_here(self, why: str) -> bool:
        """Return whether `stop` may be called on this thread.

        If it may not, the recording is ended on its thread, after the current step. If no step has
        ended, the recording of Python alone can be saved.
        """
        windows = self.windows
        return (
            windows.ends_here
            or windows.end_there(why)
            or (self._auto is not None and not self.clock.seen)
        )

    def stop(self, error: BaseException | None = None) -> Recording | None:
        """End the recording and return it; None with `failure` set if there is nothing.

        Safe to call twice. Ctrl-C waits until the files are complete.

        Parameters
        ----------
        error : exception, optional
            The exception that ended the cell.
        """
        with shielded():
            if not self._stopped:
                self._stopped = True
                self._stop(error)
        return self.recording

    def _stop(self, error: BaseException | None) -> None:
        global _active
        failed_at = self.clock.current_step
        if self._host_memory is not None:
            self._host_memory.stop()
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
            # Nothing refers to the session any more, so that it is collected with its holder, and
            # with it temporary files.
            self.clock.release()
        if self.windows.recordings:
            self._finish(error, failed_at)
        else:
            self.failure = self.failure or self.windows.failure or self._why_nothing()
            if self.windows.folder is not None:
                self.windows.folder.remove()

    def _finish(self, error: BaseException | None, failed_at: int | None) -> None:
        """Complete the infos of the window to show and of the last one."""
        main, last = self.windows.main_recording(), self.windows.recordings[-1]
        self._complete(main, error, failed_at)
        if last is not main:
            self._complete(last, error, failed_at)
        for recording in self.windows.recordings:
            recording.note_upload()
        self.recording = main
        folder = self.windows.folder
        if folder is None or not folder.temporary:
            return
        if any(recording.temporary is None for recording in self.windows.recordings):
            folder.keep()
        else:
            # The profile holds the info for as long as anybody holds the profile.
            weakref.finalize(main.info, folder.remove)

    def _complete(
        self, recording: Recording, error: BaseException | None, failed_at: int | None
    ) -> None:
        self._describe_cell(recording.info, error, failed_at)
        recording.info.notes += self._companion_notes(recording.path)
        try:
            recording.write()
        except OSError as trouble:
            recording.info.notes.append(
                notes.info_not_written(recording.path.name, trouble, has_old=True)
            )

    def _check_installed(self) -> None:
        requested = self.options.backend
        if requested not in BACKENDS or is_imported(requested):
            return
        if not _installed(named(requested).recorder.module):
            self.failure = (
                f"{named(requested).title} is not installed: the {self.unit} runs unprofiled"
            )
            self.stop()
            raise CaptureError(self.failure)

    def _framework_is_here(self, module: ModuleType) -> None:
        if self.backend is not None or not self.clock.alive:
            return
        try:
            self.windows.backend = backend = self._new_backend(module)
            if self.options.window is None:
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
        """The cell imported a framework: record it, unless another one is expected."""
        auto, name = self._auto, of_module(module.__name__).name
        if auto is None or not self.clock.alive or self.windows.over:
            return
        expected = name in self._choice.expected
        try:
            if auto.frameworks and (one_at_a_time() or not expected):
                return
            backend = self._new_backend(module)
            self.windows.notes += auto.add(backend, expected=expected)
            self._hook(backend)
            self._npu_is_here(module)
            self.clock.waits.hook(self._patches)
        except Exception as error:
            # Nothing of ours may fail the user's import.
            self.windows.notes.append(notes.framework_refused(named(name).title, error))

    def _new_backend(self, module: ModuleType) -> Backend:
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
        """The adapter of an NPU was imported: by PyTorch or the cell, after the framework."""
        backend = self.backend
        try:
            if backend is None or not self.clock.alive:
                return
            join = getattr(backend, "npu_is_here", None)
            if join is not None:
                join(self.windows, self._patches, self._give_way)
        except Exception as error:
            # Nothing of ours may fail the user's import.
            self.windows.notes.append(notes.npu_refused(module.__name__, error))

    def _keras_is_here(self, module: ModuleType) -> None:
        try:
            keras.hook(module, self.clock, self._patches)
        except Exception as error:
            self.windows.notes.append(notes.keras_steps_not_marked(error))

    def _py_datasets_are_here(self, module: ModuleType) -> None:
        # Nothing of ours may fail the user's import.
        with contextlib.suppress(Exception):
            self.clock.waits.loaders.hook_keras(module, self._patches)

    def _grain_is_here(self, _: ModuleType) -> None:
        # Nothing of ours may fail the user's import.
        with contextlib.suppress(Exception):
            waiting = partial(Waiting, self.clock, GRAIN_WAIT)
            self.clock.waits.hook_grain(self._patches, waiting)

    def _pools_are_here(self, module: ModuleType) -> None:
        # Nothing of ours may fail the user's import.
        with contextlib.suppress(Exception):
            self.windows.pools.hook(module, self._patches)

    def _compiler_is_here(self, module: ModuleType) -> None:
        if self._compiles is not None:
            compiler_hooks.hook(module, self._patches, self._compiles)

    def _give_way(self, title: str = "") -> None:
        if self._stopped:
            return
        if not title and self.backend is not None:
            title = self.backend.title
        self.windows.notes.append(notes.own_profiler_started(title, self.clock.seen))
        self.clock.leave()
        self.windows.close()

    def _describe_cell(
        self, capture: CaptureInfo, error: BaseException | None, failed_at: int | None
    ) -> None:
        """Add facts about the complete cell to the info of one of its windows."""
        clock = self.clock
        capture.steps_seen = clock.seen
        capture.boundaries = list(clock.boundaries)
        capture.step_times = clock.times.packed()
        if self._compiles is not None:
            capture.compiles = self._compiles.packed()
        if self._host_memory is not None:
            capture.host_memory = self._host_memory.packed()
        capture.cell_failed = error is not None
        capture.cell_s = time.perf_counter() - clock.started
        capture.ended_before = self.windows.ended_before
        if error is not None:
            capture.error = describe.failure(error, failed_at, clock.seen, self.unit)
            capture.failed_at_step = failed_at
        capture.out_of_memory = describe.out_of_memory(error)
        primary = self.backend
        if self._auto is not None:
            primary = self._auto.primary
        unrecorded: list[Note] = getattr(primary, "unrecorded", list)()
        capture.unrecorded = [note.text for note in unrecorded]
        about_cell = [*getattr(self.backend, "unrecorded", list)(), *self._notes_on_cell()]
        if self._auto is not None and self._auto.name == PYTHON:
            # Nothing of the recorded frameworks ran: those that may have are most important.
            capture.notes = self._other_frameworks() + about_cell
        else:
            capture.notes = about_cell + self._other_frameworks()

    def _notes_on_cell(self) -> list[Note]:
        """Notes on the steps and windows of the cell, and those of the backend."""
        clock = self.clock
        about_cell = [
            *describe.how_steps_were_found(clock),
            *self.windows.notes,
            *self.windows.about_rest(),
            *getattr(self.backend, "notes", list)(),
        ]
        if self._compiles is not None:
            for framework, error in self._compiles.failures.items():
                about_cell.append(notes.compilations_not_recorded(named(framework).title, error))
        if self.windows.failure:
            about_cell.append(notes.window_not_recorded(self.windows.failure))
        if clock.fault:
            about_cell.append(notes.steps_not_marked(clock.seen, clock.fault))
        if clock.batches > 1:
            about_cell.append(notes.batches_per_step(clock.batches))
        if self.options.window is not None and not clock.batches_of:
            first, last = self.options.window
            if last and clock.seen < last:
                about_cell.append(notes.steps_not_reached(first, last, clock.seen))
        return about_cell

    def _other_frameworks(self) -> list[Note]:
        """Notes on frameworks that the cell used or may have used, but that were not recorded."""
        if self.backend is None:
            return []
        recorded = {self.backend.name}
        if self._auto is not None:
            recorded = {backend.name for backend in self._auto.frameworks}
        imported = list(filter(is_imported, BACKENDS))
        used = set(self._choice.others) | (set(imported) - self._imported_before)
        about_others = []
        for name in imported:
            if name in used - recorded:
                about_others.append(notes.other_framework_used(named(name).title, name))
        if self.clock.seen:
            # Those steps are of the recorded framework.
            return about_others
        possible = [name for name in self._unnamed() if name not in used | recorded]
        if possible:
            title = self.backend.title
            if self._auto is not None and self._auto.name == PYTHON and self._auto.frameworks:
                title = f"{self._auto.frameworks[0].title}, of which nothing ran,"
            titles = {name: named(name).title for name in possible}
            about_others.append(notes.other_frameworks_imported(title, titles))
        return about_others

    def _unnamed(self) -> list[str]:
        """The frameworks that the cell may use as well, as far as is known before it runs."""
        if self._choice.expected or self._auto is None:
            return []
        return [name for name in BACKENDS if name in self._imported_before and is_imported(name)]

    def _companion_notes(self, path: Path) -> list[Note]:
        """Notes on the recordings of further frameworks that ran during the run of a folder."""
        companions = []
        for run in self.windows.companion_runs.get(path, ()):
            title = next(
                (named(name).title for name in BACKENDS if f"_{name}" in run.name),
                "another framework",
            )
            companions.append(notes.recorded_separately(title, run))
        return companions

    def _why_nothing(self) -> str:
        window = self.options.window
        if self.backend is not None and window:
            return self._why_no_window(self.backend, window)
        awaited = f"{listed(self.awaited, 'and')} {_be(self.awaited)}"
        text = f"nothing to record: {awaited} imported neither by this {self.unit} nor before it"
        # If one was requested, or named by the cell, another may be imported.
        imported = list(filter(is_imported, BACKENDS))
        if imported:
            titles = listed([named(name).title for name in imported], "and")
            options = listed([f"--backend {name}" for name in imported], "or")
            text += f"; {titles} {_be(imported)}, which {options} records"
        return text

    def _why_no_window(self, backend: Backend, window: tuple[int, int | None]) -> str:
        """Why no window of steps or batches was recorded."""
        first, last = window
        clock = self.clock
        if clock.batches_of:
            batches = f"from {first} on"
            if last:
                batches = f"{first} to {last}"
            return (
                f"batches {batches} were asked for, but {keras.LOOPS[clock.batches_of]} ended after"
                f" batch {clock.counted}: nothing was recorded"
            )
        if clock.seen:
            return (
                f"--steps asked for step {first}, but the {self.unit} ended after step"
                f" {clock.seen}:"
                " nothing was recorded"
            )
        framework = named(backend.name)
        later = ""
        if framework.recorder.steps_found_late:
            later = f", and {framework.title} steps are only found after the recording"
        return (
            f"--steps asked for step {first}, but the {self.unit} marks no steps{later}: mark"
            " them with 'for batch in nbprof.steps(batches):', or record without --steps"
        )

    def forget(self) -> None:
        """Do nothing any more: this process is a child that merely inherited the session."""
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
        # A script that ends, or a kernel that is shut down.
        recording = session.stop()
        if recording is not None and (recording.url or not recording.temporary):
            location = recording.url or recording.path
            sys.stderr.write(
                f"nbprof: the recording ended with the process; its files are in {location}\n"
            )


atexit.register(_finish_at_exit)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
