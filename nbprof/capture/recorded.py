"""Start and end the recording of a cell or a script without ever raising."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nbprof.core.errors import CaptureError

if TYPE_CHECKING:
    from nbprof.capture.session import Session
    from nbprof.sources.recording import Recording


def begin(session: Session) -> str:
    """Start a recording before the user's code runs; returns why it did not start, "" if it did."""
    try:
        session.start()
    except CaptureError as error:
        return str(error)
    except Exception as error:
        session.stop()
        return (
            f"the recording did not start ({type(error).__name__}: {error}); the {session.unit}"
            " runs unprofiled"
        )
    return ""


class Ended(NamedTuple):
    """The end of a recording: the recording to open, or why there is none.

    Attributes
    ----------
    recording : Recording or None
    message : str
        Empty with a recording.
    """

    recording: Recording | None
    message: str


def end(session: Session, error: BaseException | None) -> Ended:
    """Stop a recording after the user's code has run.

    Parameters
    ----------
    session : Session
    error : exception or None
        The exception that ended the code.
    """
    try:
        recording = session.stop(error)
    except Exception as fault:
        text = f"the recording could not be finished ({type(fault).__name__}: {fault})"
        return Ended(None, text)
    if session.superseded:
        message = "this recording was ended by a newer one"
        if recording and not recording.temporary:
            message += f"; its files are in {recording.path}"
        return Ended(None, message)
    if recording is None:
        return Ended(None, session.failure)
    return Ended(recording, "")
