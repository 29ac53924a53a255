"""``nbprof.lightning.Callback``: record some steps of a training by Lightning's `Trainer`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable as Function
from typing import TYPE_CHECKING, Any

from nbprof.capture.trainer import TrainerSteps

if TYPE_CHECKING:
    from pathlib import Path

    from nbprof.profiles.profile import Profile

__all__ = ["Callback"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The same library under its two names, with classes of its own each."""


def _base() -> Any:
    """The class of callbacks of the package that the program uses, or else has."""
    for name in _PACKAGES:
        if name in sys.modules:
            return sys.modules[name].Callback
    for name in _PACKAGES:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            return importlib.import_module(name).Callback
    raise ModuleNotFoundError(
        "nbprof.lightning needs the package lightning or pytorch_lightning", name="lightning"
    )


class Callback(_base()):  # type: ignore[misc]
    """Record some steps of each `Trainer.fit`, and print where the run is.

    A step is one of the trainer's: an update of the weights, with all batches that it accumulates
    and the wait for them. Validations and checkpoints are in no step. Of a job with several
    processes, the first one is recorded; `nbprof run` records all of them.

    A recording that is already running is left alone: the steps are part of it.

    Parameters
    ----------
    steps : (int, int), int or str
        First and last step, as ``(10, 15)`` or ``"10:15"``, or the only one, by the trainer's count
        (`trainer.global_step`), which goes on after a checkpoint.
    logdir : str, optional
        Folder that receives ``plugins/profile/<run>/``; by default ``nbprof-results`` in the
        working directory.
    say : callable, optional
        Receives the line that says where the run is; `print` by default.
    **options
        The others of `nbprof.profile`.

    Attributes
    ----------
    runs : list of Path
        Folders of the runs that it has written; `nbprof.load` opens one.

    Raises
    ------
    CaptureError
        Unknown option, or invalid value.

    Examples
    --------
    >>> callback = nbprof.lightning.Callback(steps=(10, 15), logdir="logs")  # doctest: +SKIP
    >>> Trainer(max_epochs=2, callbacks=[callback]).fit(model, loader)  # doctest: +SKIP
    nbprof: steps 10 to 15 of Trainer.fit are recorded in logs/plugins/profile/2026_01_01_12_00_00;
    nbprof.load(...) opens the run
    """

    def __init__(
        self,
        steps: tuple[int, int] | int | str = (10, 15),
        logdir: str | None = None,
        say: Function[[str], Any] = print,
        **options: Any,
    ) -> None:
        super().__init__()
        owner = "nbprof.lightning.Callback"
        chosen = {**options, "logdir": logdir}
        self._steps = TrainerSteps(
            "steps of the Trainer of Lightning", "Trainer.fit", owner, steps, say, chosen
        )

    @property
    def runs(self) -> list[Path]:
        """Folders of the runs that it has written."""
        return self._steps.runs

    @property
    def result(self) -> Profile | None:
        """The profile of the last run; None if there is none yet."""
        return self._steps.result

    def close(self, error: BaseException | None = None) -> None:
        """End the current recording, and print where it is.

        Called at the end of the training, and when it fails.
        """
        self._steps.close(error)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """A `fit` begins, after the check of the validation."""
        if trainer.is_global_zero:
            self._steps.begin(trainer.global_step)

    def on_train_batch_start(self, *_: Any) -> None:
        """A batch is there."""
        self._steps.step_begins()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """A batch has been trained on; it may have been the last one of a step."""
        self._steps.step_ends(trainer.global_step)

    def on_validation_start(self, *_: Any) -> None:
        """A validation begins within a `fit`."""
        self._steps.pause()

    def on_save_checkpoint(self, *_: Any) -> None:
        """A checkpoint is written, after the end of a step."""
        self._steps.pause()

    def on_train_epoch_end(self, *_: Any) -> None:
        """The last step of an epoch has ended."""
        self._steps.pause()

    def on_train_end(self, *_: Any) -> None:
        """A `fit` has ended."""
        self._steps.close()

    def on_exception(self, _trainer: Any, _pl_module: Any, exception: BaseException) -> None:
        """A `fit` has failed."""
        self._steps.close(exception)
