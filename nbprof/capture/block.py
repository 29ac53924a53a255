"""``with nbprof.profile() as run:`` records a block, in a notebook or in a script."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nbprof.capture.options import options_of, signature
from nbprof.errors import CaptureError, NbprofError

if TYPE_CHECKING:
    from nbprof.capture.recording import Recording
    from nbprof.capture.session import Session
    from nbprof.profiles import Profile


class profile:  # noqa: N801 - a context manager that reads as a verb, like `warnings.catch_warnings`
    """Record the block and give its profile; everything a `Profile` has is on the object after the block.

    An exception in the block goes on as if nbprof were not there, and what was recorded until then is kept.

    Parameters
    ----------
    **options
        The fields of `nbprof.capture.options.Options`, which are the options of ``%%nbprof``; ``steps`` may be a text as well, ``"10:20"``.

    Raises
    ------
    CaptureError
        An option that there is not, or a value that makes no sense.

    Attributes
    ----------
    result : Profile or None
        The profile; None inside the block, and if nothing could be recorded.

    Examples
    --------
    >>> import nbprof
    >>> with nbprof.profile() as run:  # doctest: +SKIP
    ...     model.fit(data)
    >>> run.steps.summary  # doctest: +SKIP
    """

    def __init__(self, **options: Any) -> None:
        self._options = options_of(options)
        self._session: Session | None = None
        self._reason = "the block has not run yet"
        self.result: Profile | None = None

    def __enter__(self) -> profile:
        from nbprof.capture.session import Session

        self._reason = "the block has not ended yet"
        self._session = Session(self._options)
        try:
            self._session.start()
        except CaptureError as error:
            self._give_up(str(error))
        for message in self._session.messages:
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        recording = session.stop(error)
        if recording is None:
            self._give_up(session.failure)
            return
        self._read(recording)

    def _read(self, recording: Recording) -> None:
        from nbprof.profiles import open_recording

        try:
            self.result = open_recording(recording)
        except NbprofError as error:
            self._give_up(f"the run could not be read: {error}")
        except Exception as error:
            # A fault of nbprof must not take the place of what the block raised.
            self._give_up(f"the run in {recording.path} could not be read: {type(error).__name__}: {error}")

    def _give_up(self, reason: str) -> None:
        self._session = None
        self._reason = reason
        warnings.warn(f"nbprof: {reason}", RuntimeWarning, stacklevel=3)

    def __getattr__(self, name: str) -> Any:
        result = self.__dict__.get("result")
        if result is None:
            raise AttributeError(f"there is no profile to take {name!r} from: {self.__dict__.get('_reason', '')}")
        return getattr(result, name)

    def __repr__(self) -> str:
        return f"<nbprof.profile: {self._reason}>" if self.result is None else repr(self.result)


profile.__signature__ = signature()  # type: ignore[attr-defined]  # for completion and help
