"""``nbprof.transformers.Callback``: record some steps of a training by the `Trainer` of Hugging
Face.
"""

from __future__ import annotations

import sys
from collections.abc import Callable as Function
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from nbprof.capture.trainer import TrainerSteps

if TYPE_CHECKING:
    from pathlib import Path

    from nbprof.profiles.profile import Profile

__all__ = ["Callback"]


class Callback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Record some steps of each `Trainer.train`, and print where the run is.

    A step is one of the trainer's: an update of the weights, with all batches that it accumulates
    and the wait for them. Evaluations and checkpoints are in no step. Of a job with several
    processes, the first one is recorded; `nbprof run` records all of them.

    A recording that is already running is left alone: the steps are part of it.

    Parameters
    ----------
    steps : (int, int), int or str
        First and last step, as ``(10, 15)`` or ``"10:15"``, or the only one, by the trainer's count
        (`state.global_step`), which goes on after a checkpoint.
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
    >>> callback = nbprof.transformers.Callback(steps=(10, 15), logdir="logs")  # doctest: +SKIP
    >>> trainer = Trainer(model, train_dataset=data, callbacks=[callback])  # doctest: +SKIP
    >>> trainer.train()  # doctest: +SKIP
    nbprof: steps 10 to 15 of Trainer.train are recorded in
    logs/plugins/profile/2026_01_01_12_00_00; nbprof.load(...) opens the run
    """

    def __init__(
        self,
        steps: tuple[int, int] | int | str = (10, 15),
        logdir: str | None = None,
        say: Function[[str], Any] = print,
        **options: Any,
    ) -> None:
        owner = "nbprof.transformers.Callback"
        chosen = {**options, "logdir": logdir}
        self._steps = TrainerSteps(
            "steps of the Trainer of Transformers", "Trainer.train", owner, steps, say, chosen
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

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """A `train` begins."""
        if not state.is_world_process_zero:
            return
        self._steps.begin(state.global_step)
        loop = _local_of_train(sys._getframe(1))
        if loop is not None:
            # The trainer does not report that a training has failed; its locals are collected then.
            self._steps.leave_with(loop)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """A step begins: its first batch is there."""
        self._steps.step_begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """A step has ended."""
        self._steps.step_ends(state.global_step)
        if control.should_evaluate or control.should_save:
            self._steps.pause()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """The last step of an epoch has ended: an evaluation or a checkpoint may follow."""
        self._steps.pause()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """A `train` has ended."""
        self._steps.close()


def _local_of_train(frame: Any) -> Any:
    """A function that `Trainer.train` holds while it runs; None where that is unknown."""
    while frame is not None:
        if frame.f_code.co_name == "train" and "inner_training_loop" in frame.f_locals:
            return frame.f_locals["inner_training_loop"]
        frame = frame.f_back
    return None
