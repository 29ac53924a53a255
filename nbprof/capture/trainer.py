"""Record some steps of a training whose loop belongs to a trainer with callbacks, as those of
Transformers and Lightning.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbprof.capture.describe import LeftEarlyError
from nbprof.capture.option_field import declared
from nbprof.capture.options import ALL, Options, options_of
from nbprof.capture.steps import Root
from nbprof.core.errors import CaptureError

if TYPE_CHECKING:
    from nbprof.capture.session import Session
    from nbprof.profiles.profile import Profile

_UNUSED, _DONE = "unused", "done"


class TrainerSteps:
    """Records the same steps of each training, by the trainer's own numbers.

    A step lasts from the end of the one before, so that the wait for its batch is in it. Work
    between steps, such as an evaluation, is in none.

    Parameters
    ----------
    origin : str
        How the receipt says that steps were found.
    loop : str
        The call that trains, as "Trainer.train".
    owner : str
        The callback, in messages.
    steps : (int, int), int or str
        First and last step.
    say : callable
        Receives the line that says where the run is.
    options : dict
        The other options of a recording.

    Raises
    ------
    CaptureError
        Unknown option, or invalid value.
    """

    def __init__(
        self,
        origin: str,
        loop: str,
        owner: str,
        steps: tuple[int, int] | int | str,
        say: Callable[[str], Any],
        options: dict[str, Any],
    ) -> None:
        self._origin, self._loop, self._say = origin, loop, say
        if isinstance(steps, int) and not isinstance(steps, bool):
            steps = (steps, steps)
        if steps in (None, ALL):
            raise CaptureError(f"{owner} needs the steps to record, for example steps=(10, 15)")
        for each in declared(Options):
            if each.option.not_in_callback and each.name in options:
                raise CaptureError(
                    f"{owner} has no option {each.name!r}: {each.option.not_in_callback}"
                )
        try:
            self._options = options_of({**options, "steps": steps})
        except CaptureError as error:
            raise CaptureError(f"{owner}: {error}") from None
        window = self._options.window
        if window is None or window[1] is None:
            raise CaptureError(f"{owner}: steps={steps!r} has no last step")
        self._first, self._last = window[0], window[1]
        self._session: Session | None = None
        self._root: Root | None = None
        self._completed = 0
        self.runs: list[Path] = []

    @property
    def result(self) -> Profile | None:
        """The profile of the last run; None if there is none yet."""
        from nbprof.profiles.load import load

        return load(self.runs[-1]) if self.runs else None

    def begin(self, completed: int) -> None:
        """A training begins.

        Parameters
        ----------
        completed : int
            Steps that it has done already, as after a checkpoint.
        """
        # The training before may have ended by an exception that the trainer does not report.
        self.close(LeftEarlyError(self._loop))
        from nbprof.capture.session import Session, active

        if active() is not None:
            self._say("nbprof: a recording is already running; the steps are part of it")
            return
        if completed >= self._last:
            self._say(
                f"nbprof: {self._loop} is not recorded: it goes on after step {completed}, and"
                f" steps {self._first} to {self._last} were asked for"
            )
            return
        self._completed = completed
        self._said_several = False
        options = options_of(
            {
                **vars(self._options),
                "steps": (max(self._first - completed, 1), self._last - completed),
            }
        )
        try:
            self._session = Session(options, source="import torch")
            self._session.called = "training"
            self._session.start()
        except CaptureError as error:
            self._session = None
            self._say(f"nbprof: {self._loop} is not recorded: {error}")
            return
        except KeyboardInterrupt:
            self._stop_at_once()
            raise
        except Exception as error:
            # No error of nbprof may fail a training.
            self._stop_at_once()
            self._say(f"nbprof: {self._loop} is not recorded: {type(error).__name__}: {error}")
            return
        atexit.register(self._at_exit)
        _after_cell(self)
        self.step_begins()

    def _stop_at_once(self) -> None:
        """End a session that did not start, with whatever of it did."""
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def leave_with(self, local: object) -> None:
        """End the recording when an object is collected that lives as long as the training, if
        nothing else has ended it.
        """
        if self._session is None:
            return
        watch = weakref.finalize(local, _left, weakref.ref(self), weakref.ref(self._session))
        watch.atexit = False

    def step_begins(self) -> None:
        """A step begins, unless it has begun already at the end of the one before."""
        if self._session is not None and self._root is None:
            self._root = Root("train", self._completed + 1, self._origin)

    def step_ends(self, completed: int) -> None:
        """A step has ended; the next one begins here.

        Parameters
        ----------
        completed : int
            Steps done, this one included.
        """
        if self._session is None or completed <= self._completed:
            return
        if completed > self._completed + 1 and not self._said_several:
            self._said_several = True
            several = completed - self._completed
            self._say(
                f"nbprof: {self._loop} counts {several} steps at a time, such as those of several"
                " optimizers: the recorded steps are batches"
            )
        self._close_root(_DONE)
        self._completed = completed
        self.step_begins()

    def pause(self) -> None:
        """An evaluation, a checkpoint or other work between steps begins."""
        self._close_root(_UNUSED)

    def close(self, error: BaseException | None = None) -> None:
        """End the current recording, and say where it is; nothing without one.

        Parameters
        ----------
        error : exception, optional
            What ended the training, if it did not run to its end.
        """
        self._close_root(_UNUSED if error is None else "failed")
        session, self._session = self._session, None
        if session is None:
            return
        atexit.unregister(self._at_exit)
        try:
            self._tell(session, error)
        except Exception as fault:
            self._say(
                f"nbprof: the recording of {self._loop} could not be finished"
                f" ({type(fault).__name__}: {fault})"
            )

    def _close_root(self, outcome: str) -> None:
        root, self._root = self._root, None
        if root is not None:
            root.close(outcome)

    def _tell(self, session: Session, error: BaseException | None) -> None:
        recording = session.stop(error)
        if recording is None:
            self._say(f"nbprof: {session.failure}")
            return
        self.runs.append(recording.path)
        message = (
            f"nbprof: steps {self._first} to {self._last} of {self._loop} are recorded in"
            f' {recording.path}; nbprof.load("{recording.path}") opens the run'
        )
        if error is None and self._completed < self._last:
            message += f"; {self._loop} ended after step {self._completed}"
        if error is not None:
            message += f"; {recording.info.error}"
        self._say(message)

    def _at_exit(self) -> None:
        # Python has printed what ended the script, and kept it.
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        self.close(error or LeftEarlyError(self._loop))


def _left(steps: weakref.ref[TrainerSteps], session: weakref.ref[Session]) -> None:
    recorder = steps()
    if recorder is not None and recorder._session is not None and recorder._session is session():
        recorder.close(LeftEarlyError(recorder._loop))


def _after_cell(recorder: TrainerSteps) -> None:
    """In a notebook, which holds the frames of an exception, end the training with the cell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return
    reference = weakref.ref(recorder)

    def ended(result: Any = None) -> None:
        with contextlib.suppress(ValueError):
            shell.events.unregister("post_run_cell", ended)
        left = reference()
        if left is not None:
            error = getattr(result, "error_in_exec", None)
            left.close(error or LeftEarlyError(left._loop))

    shell.events.register("post_run_cell", ended)
