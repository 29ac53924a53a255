"""Mark the steps of a program that serves, so that whoever samples it sees steps.

Nobody starts a recording in the program itself, so the markers are always there. While nothing is recorded, the framework drops them.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

from nbprof.capture import keras
from nbprof.capture.clock import Marker, Span, StepClock, current, set_standing
from nbprof.capture.imports import ImportWatch
from nbprof.capture.patches import Patches


class Unmarked:
    """Stands where a step is marked by somebody else."""

    def close(self, step: int | None, batches: int = 1) -> None:
        """Do nothing."""


class StandingMarks:
    """Marks the steps of this process from now on: of Keras, and those that ``nbprof.step`` and ``nbprof.steps`` tell of.

    A recording that is made in this process, as by ``%%nbprof``, marks its steps itself, and these are silent meanwhile.

    Parameters
    ----------
    name : str
        ``tensorflow`` or ``jax``.
    module : module
        The framework.
    """

    def __init__(self, name: str, module: ModuleType) -> None:
        backends = importlib.import_module(f"nbprof.capture.{name}")
        self._backend: Any = (backends.TensorFlowBackend if name == "tensorflow" else backends.JaxBackend)(module)
        self.clock = StepClock()
        self.clock.open_marker = self._open
        self.clock.open_wait = self._open_wait
        self._patches = Patches()
        self._watch = ImportWatch({keras.MODULE: self._keras_is_here})

    def install(self) -> None:
        """Begin."""
        self._backend.hook(self.clock, self._patches, lambda: None)
        self._watch.install()
        set_standing(self.clock)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.clock.abandon)

    def remove(self) -> None:
        """End."""
        set_standing(None)
        self._watch.remove()
        self._patches.restore()
        self.clock.abandon()

    def _open(self, kind: str, number: int) -> Marker:
        # Two roots around one batch would be two steps.
        if current() is not self.clock:
            return Unmarked()
        marker: Marker = self._backend.open_marker(kind, number)
        return marker

    def _open_wait(self) -> Span:
        span: Span = self._backend.open_wait()
        return span

    def _keras_is_here(self, module: ModuleType) -> None:
        try:
            keras.hook(module, self.clock, self._patches)
        except Exception as error:
            # Nothing of ours may fail the person's import.
            self.clock.fault = f"the steps of Keras could not be found: {type(error).__name__}: {error}"
