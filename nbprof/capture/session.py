"""The life of one recording: it begins before the cell, follows its steps, and ends whatever happens."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Protocol

from nbprof.capture import keras
from nbprof.capture.detect import TITLES, choose
from nbprof.capture.imports import ImportWatch
from nbprof.capture.options import Options
from nbprof.capture.patches import Patches
from nbprof.capture.place import Place
from nbprof.capture.recording import CaptureInfo, Recording
from nbprof.capture.shield import shielded
from nbprof.capture.steps import Marker, StepClock, set_current
from nbprof.errors import CaptureError

__all__ = ["CaptureInfo", "Recording", "Session", "active"]


class Backend(Protocol):
    """What a framework must be able to do."""

    name: str
    title: str

    def start(self, folder: Path, options: Options) -> list[str]: ...

    def stop(self) -> None: ...

    def open_marker(self, kind: str, number: int) -> Marker: ...

    def versions(self) -> str: ...

    def hook(self, clock: StepClock, patches: Patches, give_way: Callable[[], None]) -> None: ...


_lock = threading.Lock()
_active: Session | None = None
_numbers = itertools.count(1)


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
    on_step : callable, optional
        Called with the clock after each step, on the thread that runs the step.

    Attributes
    ----------
    messages : list of str
        Sentences for the person that concern the start (an old recording was stopped, nothing can be recorded).
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
        on_step: Callable[[StepClock], None] | None = None,
    ) -> None:
        self.options = options or Options()
        self.messages: list[str] = []
        self.recording: Recording | None = None
        self.failure = ""
        self.backend: Backend | None = None
        self.superseded = False
        self._source = source
        self._choice = choose(self.options.backend, source)
        self._notes: list[str] = []
        self._patches = Patches()
        self._watch: ImportWatch | None = None
        self._place: Place | None = None
        self._recording = False
        self._recorded = False
        self._stopped = False
        self._started_at = datetime.now().astimezone()
        self._imported_before = {name for name in TITLES if name in sys.modules}
        self._elapsed = 0.0
        self.clock = StepClock(window=self.options.steps, begin_window=self._begin, end_window=self._end_window, on_step=on_step)

    def start(self) -> Session:
        """Begin to record, or to wait for the cell to import its framework.

        Raises
        ------
        CaptureError
            If the framework refuses, or the one that was asked for is not installed. The session is over then.
        """
        global _active
        with shielded():
            with _lock:
                previous, _active = _active, self
            if previous is not None:
                previous.superseded = True
                kept = previous.stop()
                where = f"; its files are in {kept.path}" if kept and not kept.temporary else ""
                self.messages.append(f"nbprof: an earlier recording was still open and has been stopped{where}")
            self._check_installed()
            set_current(self.clock)
            self.clock.started = time.perf_counter()
            actions: dict[str, Callable[[ModuleType], None]] = {}
            for name in self._choice.candidates:
                actions[name] = self._framework_is_here
            actions[keras.MODULE] = self._keras_is_here
            self._watch = ImportWatch(actions)
            self._watch.install()
            if self.failure:
                self.stop()
                raise CaptureError(self.failure)
        return self

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
            self._end()
        finally:
            if self._watch is not None:
                self._watch.remove()
            self._patches.restore()
            with _lock:
                if _active is self:
                    _active = None
                    set_current(None)
        if self._recorded and self._place is not None:
            self._settle(self._place, self._describe(error, failed_at))
        elif not self.failure:
            self.failure = self._why_nothing()

    def _settle(self, place: Place, capture: CaptureInfo) -> None:
        try:
            folder = place.settle()
        except CaptureError as error:
            self.failure = self.failure or str(error)
            return
        self.recording = Recording(folder, capture, temporary=place.logdir if place.temporary else None)
        try:
            self.recording.write()
        except OSError as error:
            capture.notes.append(f"the run's {folder.name} has no nbprof.json beside it: {error.strerror}")
        if place.temporary:
            # The profile holds the info for as long as anybody holds the profile.
            weakref.finalize(capture, place.remove)

    def _check_installed(self) -> None:
        wanted = self.options.backend
        if wanted != "auto" and wanted not in sys.modules and not _installed(wanted):
            self.failure = f"{TITLES[wanted]} is not installed here: the cell runs unprofiled"
            self.stop()
            raise CaptureError(self.failure)

    def _framework_is_here(self, module: ModuleType) -> None:
        if self.backend is not None or not self.clock.alive:
            return
        try:
            self.backend = _make_backend(module)
            if self.options.steps is None:
                self._begin()
            self.backend.hook(self.clock, self._patches, self._give_way)
        except CaptureError as error:
            self.failure = str(error)
        except Exception as error:
            # Nothing of ours may fail the person's import.
            self.failure = f"{TITLES[module.__name__]} could not be recorded: {type(error).__name__}: {error}"

    def _keras_is_here(self, module: ModuleType) -> None:
        try:
            keras.hook(module, self.clock, self._patches)
        except Exception as error:
            self._notes.append(f"the steps of Keras could not be found: {type(error).__name__}: {error}")

    def _begin(self) -> None:
        """Start the framework's profiler."""
        if self._recording or self._recorded or self.backend is None:
            return
        try:
            self._place = Place(self.options)
            self._notes += self._place.notes
            with shielded():
                self._notes += self.backend.start(self._place.scratch, self.options)
                self._recording = True
        except (CaptureError, OSError) as error:
            self.failure = str(error)
            if self._place is not None:
                self._place.discard()
                self._place.remove()
            return
        self.clock.open_marker = self.backend.open_marker

    def _end(self) -> None:
        """Stop the framework's profiler."""
        self.clock.open_marker = None
        self._elapsed = time.perf_counter() - self.clock.started
        if not self._recording or self.backend is None:
            return
        self._recording = False
        try:
            with shielded():
                self.backend.stop()
                self._recorded = True
        except CaptureError as error:
            self.failure = str(error)
            if self._place is not None:
                self._place.discard()
                self._place.remove()

    def _end_window(self) -> None:
        self._end()

    def _give_way(self) -> None:
        if self._stopped:
            return
        title = self.backend.title if self.backend is not None else ""
        self._notes.append(f"the cell starts {title}'s profiler itself, so nbprof stopped recording there, after step {self.clock.seen}")
        self.clock.leave()
        self._end()

    def _describe(self, error: BaseException | None, failed_at: int | None) -> CaptureInfo:
        clock, backend = self.clock, self.backend
        notes = list(self._notes)
        if clock.fault:
            notes.append(f"steps after {clock.seen} are not marked: {clock.fault}")
        if clock.batches > 1:
            notes.append(f"each step covers {clock.batches} batches (steps_per_execution)")
        window = self.options.steps
        if window and window[1] and clock.seen < window[1]:
            notes.append(f"--steps asked for {window[0]} to {window[1]}, but the cell ended after step {clock.seen}")
        notes += self._second_framework()
        return CaptureInfo(
            backend=backend.name if backend else "",
            framework=backend.versions() if backend else "",
            started=self._started_at.isoformat(timespec="seconds"),
            elapsed_s=self._elapsed,
            steps_seen=clock.seen,
            steps_marked=clock.marked,
            cell_failed=error is not None,
            error=_sentence(error, failed_at, clock.seen) if error is not None else "",
            failed_at_step=failed_at if error is not None else None,
            notes=notes,
            label=f"run {next(_numbers)}",
            precision=_precision(),
            options=asdict(self.options),
        )

    def _second_framework(self) -> list[str]:
        if self.backend is None:
            return []
        used = set(self._choice.others) | {name for name in TITLES if name in sys.modules and name not in self._imported_before}
        others = [name for name in TITLES if name in used and name in sys.modules and name != self.backend.name]
        return [f"the cell uses {TITLES[name]} too, which was not recorded: --backend {name} records it instead" for name in others]

    def _why_nothing(self) -> str:
        window = self.options.steps
        if self.backend is not None and window:
            return f"--steps asked for step {window[0]}, but the cell ended after step {self.clock.seen}: nothing was recorded"
        if self.options.backend != "auto":
            return f"nothing to record: {TITLES[self.options.backend]} is not imported by this cell or before it"
        return "nothing to record: TensorFlow, JAX and PyTorch are not imported by this cell or before it"

    def forget(self) -> None:
        """Do nothing any more and touch nothing: this process is a child that merely inherited the session."""
        self._stopped = True
        self._recording = False
        self.clock.abandon()
        if self._watch is not None:
            self._watch.remove()


def _make_backend(module: ModuleType) -> Backend:
    name = module.__name__
    if name == "tensorflow":
        from nbprof.capture.tensorflow import TensorFlowBackend

        return TensorFlowBackend(module)
    if name == "jax":
        from nbprof.capture.jax import JaxBackend

        return JaxBackend(module)
    from nbprof.capture.torch import TorchBackend

    return TorchBackend(module)


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _precision() -> str:
    policies = sys.modules.get("keras.src.dtype_policies.dtype_policy")
    try:
        return str(policies.dtype_policy().name) if policies is not None else ""
    except Exception:
        return ""


def _sentence(error: BaseException, step: int | None, seen: int) -> str:
    where = f"at step {step}" if step is not None else (f"after step {seen}" if seen else "before its first step")
    if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):
        return f"cell interrupted {where}"
    lines = str(error).strip().splitlines()
    text = lines[0][:300] if lines else ""
    return f"cell failed {where}: {type(error).__name__}" + (f": {text}" if text else "")


def _forget_in_child() -> None:
    global _active, _lock
    session, _active = _active, None
    # The lock may have been held by a thread that does not exist here.
    _lock = threading.Lock()
    set_current(None)
    if session is not None:
        session.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
