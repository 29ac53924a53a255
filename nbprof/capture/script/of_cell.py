"""The Python processes that a cell or a block starts, as further hosts of its run."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from nbprof.capture import describe, notes, ranks
from nbprof.capture.script.children import follow
from nbprof.sources.recording import CaptureInfo, Recording
from nbprof.sources.urls import is_url

if TYPE_CHECKING:
    from nbprof.capture.options import Options
    from nbprof.capture.script.children import Following
    from nbprof.capture.script.job import Parent
    from nbprof.capture.session import Session


class Processes:
    """Follows the processes that a cell or a block starts.

    Parameters
    ----------
    session : Session
        The recording of the cell, which has not begun.
    quiet : bool
        True to have the processes write nothing of nbprof's own.
    """

    def __init__(self, session: Session, *, quiet: bool) -> None:
        self._session = session
        self._member: Parent | None = None
        self._following: Following | None = None
        refusal = _refusal(session.options)
        if not refusal:
            refusal = "the logdir cannot be written"
            label = session.windows.label or session.unit
            joined = follow(session.options, label, quiet=quiet)
            if joined is not None:
                self._member, self._following = joined
                session.windows.member = self._member
                return
        session.windows.notes.append(notes.children_refused(refusal))

    def begin(self) -> None:
        """The recording has begun: follow what starts from now on."""
        if self._following is not None:
            self._following.install(self._session)

    def stop(self) -> None:
        """Follow nothing that starts from now on; what runs already is recorded to its end."""
        if self._following is not None:
            self._following.remove()

    def end(self, alone: Recording | None, error: BaseException | None) -> Recording | None:
        """The recording of the cell and its processes; None if it is that of the cell alone.

        Parameters
        ----------
        alone : Recording or None
            That of the cell.
        error : exception or None
            The exception that ended the cell.
        """
        member = self._member
        if member is None:
            return None
        try:
            if alone is None and not member.has_others:
                return None
            info, failure = None, ""
            if error is not None:
                failure = describe.failure(error, None, 0, self._session.unit)
            if alone is not None:
                info, failure = alone.info, alone.info.error
            member.state(info, over=True, error=failure)
            if not member.has_others:
                return None
            return self._joint(member)
        except OSError:
            # The run has the files that could be written.
            return None
        finally:
            with contextlib.suppress(OSError):
                member.leave()

    def _joint(self, member: Parent) -> Recording | None:
        info = CaptureInfo.read(member.run)
        if info is None or not member.any_recorded:
            self._session.failure = member.failure or self._session.failure
            return None
        windows = self._session.windows
        # So far it is that of one of the processes.
        info = replace(info, label=windows.label, notebook=windows.notebook, by=windows.by)
        if running := member.running:
            info.warnings.append(notes.children_still_run(running, windows.by, str(member.run)))
        joint = Recording(member.run, info)
        joint.keep()
        return joint


def _refusal(options: Options) -> str:
    """Why the processes cannot be hosts of one run; "" if they can."""
    launched = ranks.position()
    if launched is not None and launched.size > 1:
        return "this process is itself a rank of a job"
    if options.every:
        return "--every makes a run of each window"
    if not options.save:
        return "the run is not saved"
    if is_url(options.logdir or ""):
        return "the logdir is a URL, and they need a folder that they share"
    return ""
