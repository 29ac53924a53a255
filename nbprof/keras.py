"""``nbprof.keras.Callback``: record some batches of a training outside a notebook."""

from __future__ import annotations

import atexit
import contextlib
import inspect
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import keras

from nbprof.capture.describe import LeftEarlyError
from nbprof.capture.keras import LOOPS
from nbprof.capture.option_field import declared
from nbprof.capture.options import ALL, Options, options_of, signature
from nbprof.core.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Callable as Function
    from pathlib import Path
    from types import FrameType

    from nbprof.capture.session import Session
    from nbprof.profiles.profile import Profile

__all__ = ["Callback"]


class Callback(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    """Record some batches of each `fit`, `evaluate` or `predict`, and print where the run is.

    For scripts; in a notebook, ``%%nbprof --steps 10:15`` above the cell does the same and shows
    the result. It works with each backend of Keras, has no method that is called for each batch,
    and so changes nothing in how batches are dispatched.

    A recording that is already running is left alone: the batches are part of it.

    Parameters
    ----------
    batches : (int, int), int or str
        First and last batch, as ``(10, 15)`` or ``"10:15"``, or the only one, counted from 1 over
        all epochs of the loop, both included. Batches of a validation within `fit` are recorded
        where they lie in between, and not counted.
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
    >>> callback = nbprof.keras.Callback(batches=(10, 15), logdir="logs")  # doctest: +SKIP
    >>> model.fit(data, callbacks=[callback])  # doctest: +SKIP
    nbprof: batches 10 to 15 of fit are recorded in logs/plugins/profile/2026_01_01_12_00_00;
    nbprof.load(...) opens the run
    """

    def __init__(
        self,
        batches: tuple[int, int] | int | str = (10, 15),
        logdir: str | None = None,
        say: Function[[str], Any] = print,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(batches, int) and not isinstance(batches, bool):
            batches = (batches, batches)
        for each in declared(Options):
            if each.option.not_in_callback and each.name in options:
                raise CaptureError(
                    f"nbprof.keras.Callback has no option {each.name!r}:"
                    f" {each.option.not_in_callback}"
                )
        if batches in (None, ALL):
            raise CaptureError(
                "nbprof.keras.Callback needs the batches to record, for example batches=(10, 15)"
            )
        try:
            self._options: Options = options_of({**options, "steps": batches, "logdir": logdir})
        except CaptureError as error:
            raise CaptureError(f"nbprof.keras.Callback: {error}") from None
        self._say = say
        self._session: Session | None = None
        self._running: _Loop | None = None
        self._watch: weakref.finalize[Any, Any] | None = None
        self.runs: list[Path] = []

    @property
    def result(self) -> Profile | None:
        """The profile of the last run; None if there is none yet."""
        from nbprof.profiles.load import load

        return load(self.runs[-1]) if self.runs else None

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - as Keras calls it
        """A `fit` begins."""
        self._begins("train")

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """An `evaluate` begins, or the validation of a `fit`."""
        self._begins("test")

    def on_predict_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """A `predict` begins."""
        self._begins("predict")

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """A `fit` has ended."""
        self._ended("train")

    def on_test_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """An `evaluate` has ended."""
        self._ended("test")

    def on_predict_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """A `predict` has ended."""
        self._ended("predict")

    def close(self, error: BaseException | None = None) -> None:
        """End the current recording, and print where it is.

        Called at the end of the loop, and when the loop fails.

        Parameters
        ----------
        error : exception, optional
            What ended the loop, if it did not run to its end.
        """
        session, self._session = self._session, None
        watch, self._watch = self._watch, None
        loop, self._running = self._running, None
        if watch is not None:
            watch.detach()
        atexit.unregister(self._at_exit)
        if session is not None and loop is not None:
            self._tell(session, loop, error)

    def _begins(self, kind: str) -> None:
        loop = _Loop.around(kind, sys._getframe(2))
        if self._running is not None:
            if self._running.runs(loop):
                return
            # The loop before was left by an exception that somebody still holds.
            self.close(LeftEarlyError(self._running.name))
        from nbprof.capture.session import Session, active

        if active() is not None:
            self._say(
                "nbprof: a recording is already running; the callback's batches are part of it"
            )
            return
        try:
            session = Session(self._options, source="import keras", batches_of=kind).start()
            if kind != "train":
                # The hook at the beginning of the loop was called already, except that of an epoch.
                session.clock.loop(kind)
        except Exception as error:
            # No error of nbprof may fail a training.
            with_kind = "" if isinstance(error, CaptureError) else f"{type(error).__name__}: "
            self._say(f"nbprof: {loop.name} is not recorded: {with_kind}{error}")
            return
        self._session, self._running = session, loop
        if loop.callbacks is not None:
            # Keras does not report that a loop has failed; its list of callbacks is collected then.
            self._watch = weakref.finalize(loop.callbacks, _left, weakref.ref(self))
            self._watch.atexit = False
        loop.callbacks = None
        atexit.register(self._at_exit)
        _after_cell(self)

    def _ended(self, kind: str) -> None:
        if self._running is not None and self._running.is_of(kind, sys._getframe(2)):
            self.close()

    def _at_exit(self) -> None:
        # Python has printed what ended the script, and kept it.
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        self.close(error or LeftEarlyError(self._running.name if self._running else ""))

    def _tell(self, session: Session, loop: _Loop, error: BaseException | None) -> None:
        try:
            recording = session.stop(error)
            first, last = session.options.window or (1, None)
            if recording is None:
                self._say(f"nbprof: {session.failure}")
                return
            self.runs.append(recording.path)
            batches = f"from {first} on" if last is None else f"{first} to {last}"
            message = (
                f"nbprof: batches {batches} of {loop.name} are recorded in {recording.path};"
                f' nbprof.load("{recording.path}") opens the run'
            )
            if last is not None and session.clock.counted < last:
                message += f"; {loop.name} ended after batch {session.clock.counted}"
            if error is not None:
                message += f"; {recording.info.error}"
            self._say(message)
        except Exception as fault:
            self._say(
                f"nbprof: the recording of {loop.name} could not be finished"
                f" ({type(fault).__name__}: {fault})"
            )


def _signature() -> inspect.Signature:
    """The callback's own arguments, then the options of a recording that it takes."""
    *arguments, _ = inspect.signature(Callback.__init__).parameters.values()
    refused = {each.name for each in declared(Options) if each.option.not_in_callback}
    return signature(*arguments[1:], without=refused | {parameter.name for parameter in arguments})


# For completion and help.
Callback.__signature__ = _signature()  # type: ignore[attr-defined,unused-ignore]


class _Loop:
    """One call of `fit`, `evaluate` or `predict`."""

    def __init__(self, kind: str, callbacks: Any, frames: list[FrameType]) -> None:
        self.kind = kind
        self.name = LOOPS[kind]
        self.callbacks = callbacks
        self._callbacks_id = id(callbacks)
        self._thread = threading.get_ident()
        self._frames = [id(frame) for frame in frames]
        self._offsets: dict[int, int] = {}
        """Instructions of the frames around the loop while it runs, except those of Keras, which
        handle exceptions.
        """
        for frame in frames[2:]:
            if not str(frame.f_globals.get("__name__")).startswith("keras."):
                self._offsets[id(frame)] = frame.f_lasti

    @classmethod
    def around(cls, kind: str, frame: FrameType | None) -> _Loop:
        """The loop whose list of callbacks is calling; `frame` is that of the list's method."""
        callbacks = frame.f_locals.get("self") if frame is not None else None
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = None
        frames = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        return cls(kind, callbacks, frames)

    def runs(self, inner: _Loop) -> bool:
        """Return whether this loop still runs, around `inner`, by the callers of its callbacks."""
        if self._thread != inner._thread:
            return True
        return len(self._frames) > 1 and self._frames[1] in inner._frames

    def left_by(self, error: BaseException) -> bool:
        """Return whether an exception came out of the loop; a later one may have ended the cell."""
        in_loop = False
        trace = error.__traceback__
        while trace is not None:
            offset = self._offsets.get(id(trace.tb_frame))
            if offset is not None:
                if offset != trace.tb_lasti:
                    return False
                in_loop = True
            trace = trace.tb_next
        return in_loop

    def is_of(self, kind: str, frame: FrameType | None) -> bool:
        """Return whether a frame that reports the end of a loop is of this one."""
        if kind != self.kind or frame is None:
            return False
        return id(frame.f_locals.get("self")) == self._callbacks_id


def _left(reference: weakref.ref[Callback], error: BaseException | None = None) -> None:
    callback = reference()
    if callback is None or callback._running is None:
        return
    loop = callback._running
    if error is None or not loop.left_by(error):
        error = LeftEarlyError(loop.name)
    callback.close(error)


def _after_cell(callback: Callback) -> None:
    """In a notebook, which holds the frames of an exception, end the loop with the cell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return
    reference = weakref.ref(callback)

    def ended(result: Any = None) -> None:
        with contextlib.suppress(ValueError):
            shell.events.unregister("post_run_cell", ended)
        _left(reference, getattr(result, "error_in_exec", None))

    shell.events.register("post_run_cell", ended)
