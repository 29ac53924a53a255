"""Run a program and record it, as ``%%nbprof`` does with a cell."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from nbprof.capture import describe, ranks, recorded
from nbprof.capture.describe import EndedBySignalError
from nbprof.capture.place import DEFAULT, ignore_by_git
from nbprof.capture.script.exits import Exits, wait_for_threads
from nbprof.capture.script.job import Member, job, requested_name
from nbprof.capture.script.program import Program, Work
from nbprof.capture.session import Session
from nbprof.capture.shield import Shield
from nbprof.core.errors import NbprofError
from nbprof.core.garbage import importing
from nbprof.sources.recording import SCRIPT
from nbprof.sources.urls import is_url

if TYPE_CHECKING:
    from nbprof.capture.options import Options
    from nbprof.profiles.profile import Profile
    from nbprof.sources.recording import Recording

FAILED = 1
"""Exit code of Python after an exception."""

OTHERS_S = 10.0
"""How long the rank that shows a run waits for the others, whose work may take a little longer."""
SHOWN_S = 20.0
"""How long a rank that a signal ends may read the run: launchers kill it later, as after 30 s."""

_PACKAGE = __name__.rpartition(".")[0]


class End(NamedTuple):
    """The end of a program.

    Attributes
    ----------
    code : int
        Its exit code.
    interrupted : bool
        True if Ctrl-C ended it: Python then ends the process by SIGINT.
    """

    code: int
    interrupted: bool = False


class Following(Protocol):
    """Lets the processes that a program starts be recorded."""

    def install(self, session: Session | None) -> None:
        """Begin; the session, if there is one, records the program itself."""

    def remove(self) -> None:
        """End."""


class Script:
    """Records one program.

    Errors of nbprof are one sentence on stderr, and never raised: the program runs, fails and exits
    as it would without.

    Parameters
    ----------
    program : Program
    options : Options
        Options of the recording.
    present : callable or None
        Shows the profile at the end of the program, and where it is; "" if it is not kept. None if
        another process shows it.
    quiet : bool
        True to write nothing of nbprof's own.
    member : Member, optional
        This process among those of the run; by default a rank of a job, if it is one.
    following : Following, optional
        Lets the Python processes that the program starts be recorded, too.

    Raises
    ------
    CaptureError
        The environment asks for a name that a run cannot have.
    """

    def __init__(
        self,
        program: Program | Work,
        options: Options,
        present: Callable[[Profile, str], None] | None,
        *,
        quiet: bool = False,
        member: Member | None = None,
        following: Following | None = None,
    ) -> None:
        self._program = program
        self._options = options
        self._present = present
        self._quiet = quiet
        self._session: Session | None = None
        self._following = following
        self._member = member or _member(options)
        self._exits = Exits(self._before_exit)
        self._saving = False
        # The program may replace or close it.
        self._stderr = sys.stderr

    def run(self) -> End:
        """Run the program, end the recording and show the profile."""
        try:
            code = self._program.code()
        except Exception as error:
            return ended_by(error)
        self._begin()
        self._exits.install()
        if self._following is not None:
            self._following.install(self._session)
        raised = self._run(code)
        end = End(0)
        if raised is not None:
            end = ended_by(raised)
        # The threads run on with the program's traceback on the screen, as without nbprof.
        with contextlib.suppress(KeyboardInterrupt):
            wait_for_threads()
        failed = raised if end.code or end.interrupted else None
        if self._following is not None:
            # The processes that read the run are not the program's.
            self._following.remove()
        self._finish(failed)
        self._exits.remove()
        return end

    def run_within(self) -> None:
        """Run the program inside another one, which sees its exceptions, and end the recording."""
        self._begin()
        self._exits.install()
        raised = self._run(None)
        failed = raised
        if isinstance(raised, SystemExit):
            # PyTorch's launchers write down what a process raised, and have it exit.
            failed = (raised.__context__ or raised) if raised.code else None
        self._finish(failed)
        self._exits.remove()
        if raised is not None:
            raise raised.with_traceback(_without_own(raised.__traceback__))

    def _run(self, code: CodeType | None) -> BaseException | None:
        try:
            if self._session is not None:
                self._session.windows.code_begins()
            self._program.run(code)
        except BaseException as error:
            return error
        return None

    def _begin(self) -> None:
        session = Session(
            self._options,
            source=self._program.text,
            namespace=vars(self._program.module),
            on_step=self._member.stepped if self._member is not None else None,
        )
        session.windows.label = self._program.label
        session.windows.by = SCRIPT
        session.called = self._program.unit
        session.windows.member = self._member
        message = recorded.begin(session)
        for line in session.messages:
            self._write(line)
        if message:
            self._say(message)
        else:
            self._session = session

    def _before_exit(self, how: str) -> bool:
        """Save the recording of a process that is about to end at once, and show it if possible.

        Returns False while it is being saved.
        """
        session = self._session
        if self._saving or session is None:
            return not self._saving
        try:
            main = threading.current_thread() is threading.main_thread()
            by_call = how.startswith("os.")
            error = None if by_call else EndedBySignalError(how)
            if self._member is not None and not main:
                self._member.note_end(f"{self._program.unit} was ended by {how}")
            if main or session.ends_here(f"{how} was called on another thread"):
                # Other threads may hold locks that imports need.
                self._finish(error, shows=main and by_call)
            elif self._member is not None and error is not None:
                self._saving = True
                if self._member.leave_failed():
                    self._present_run(None, shows=False)
        except Exception as fault:
            self._say(f"the recording could not be finished ({type(fault).__name__}: {fault})")
        return True

    def _finish(self, error: BaseException | None, *, shows: bool = True) -> None:
        with Shield() as shield:
            session, self._session = self._session, None
            if session is None:
                return
            self._saving = True
            session.windows.code_ends()
            recording, message = recorded.end(session, error)
            for note in session.elsewhere:
                self._say(note.text)
            if isinstance(error, KeyboardInterrupt):
                # A second Ctrl-C was meant for the program, which has ended.
                shield.pressed = False
            speaks = self._ended(recording, error, waits=shows and error is None)
            if recording is None and not self._holds_others:
                self._say(message)
            if self._member is None:
                self._signals_take_effect()
            if speaks:
                self._present_run(recording, shows=shows, shield=shield)
            self._signals_take_effect()

    @property
    def _holds_others(self) -> bool:
        """True if the run is that of the processes which the program started."""
        return self._following is not None and getattr(self._member, "rank", 0) < 0

    def _signals_take_effect(self) -> None:
        self._saving = False
        self._exits.settle()

    def _ended(
        self, recording: Recording | None, error: BaseException | None, *, waits: bool
    ) -> bool:
        """Note the end of this rank of a job; returns whether this process shows the run."""
        member = self._member
        if member is None:
            return True
        # The run has the files of this rank in any case.
        with contextlib.suppress(OSError):
            info = recording.info if recording is not None else None
            failure = ""
            if error is not None:
                failure = (
                    info.error
                    if info is not None
                    else describe.failure(error, None, 0, self._program.unit)
                )
            member.state(info, over=True, error=failure)
            if error is not None:
                # The others may wait for this process to end.
                return member.leave_failed()
            speaks = member.shows()
            if speaks:
                member.wait_for_others(OTHERS_S if waits else 0)
            member.leave()
            return speaks
        return member.rank == 0

    def _present_run(
        self, recording: Recording | None, *, shows: bool, shield: Shield | None = None
    ) -> None:
        """Show the run of the job, or that of this process alone.

        Parameters
        ----------
        recording : Recording or None
            That of this process.
        shows : bool
            False if the process is about to end: then that of a job is shown in a limited time.
        shield : Shield, optional
            Lets Ctrl-C interrupt it.
        """
        member = self._member
        if member is None or (recording is not None and recording.rank is None):
            if recording is None:
                return
            location = self._location(recording)
            if shows:
                self._show(partial(_opened, recording), location, shield)
            elif location:
                self._say(f"{location} holds what was recorded")
            return
        location = str(member.run)
        if not member.any_recorded:
            if reason := member.failure:
                self._say(reason)
        elif shows:
            self._show(partial(_loaded, member.run), location, shield)
        else:
            self._show_in_time(partial(_loaded, member.run), location)

    def _show_in_time(self, opened: Callable[[], Profile], location: str) -> None:
        """Show a run while a signal waits to end this process."""
        self._say(f"reading the run in {location}")
        # It may wait for a lock that the interrupted code holds.
        reading = threading.Thread(target=self._show, args=(opened, location), daemon=True)
        with contextlib.suppress(RuntimeError):
            reading.start()
            reading.join(SHOWN_S)
        if reading.is_alive():
            self._say(f'this takes too long: nbprof.load("{location}") opens it')

    def _show(
        self, opened: Callable[[], Profile], location: str, shield: Shield | None = None
    ) -> None:
        again = "run the program again"
        if location:
            again = f'nbprof.load("{location}") opens it'
        try:
            with shield.opened() if shield is not None else contextlib.nullcontext():
                if self._present is not None:
                    self._present(opened(), location)
        except KeyboardInterrupt:
            self._say(f"reading the run was interrupted: {again}")
        except NbprofError as error:
            self._say(f"the run could not be read: {error}")
        except Exception as error:
            self._say(
                "the run was recorded, but could not be shown"
                f" ({type(error).__name__}: {error}): {again}"
            )

    @staticmethod
    def _location(recording: Recording) -> str:
        """The folder or URL of a run; "" if it goes with the process."""
        return recording.url if recording.temporary else str(recording.path)

    def _say(self, text: str) -> None:
        rank = ""
        if self._member is not None and self._following is None:
            rank = f"rank {self._member.rank}: "
        self._write(f"nbprof: {rank}{text}")

    def _write(self, line: str) -> None:
        if self._quiet:
            return
        # It may be closed, or nobody may read it any more.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._stderr.write(f"{line}\n")
            self._stderr.flush()


def _member(options: Options) -> Member | None:
    """Join the other ranks of a job, which record into one run; None if this process is alone.

    Raises
    ------
    CaptureError
        The environment asks for a name that a run cannot have.
    """
    position = ranks.position()
    if position is None or position.size == 1:
        return None
    requested_name(os.environ)
    try:
        logdir = shared_logdir(options)
        return Member(job(position, os.environ), logdir) if logdir is not None else None
    except Exception:
        # Then this rank records a separate run.
        return None


def shared_logdir(options: Options) -> Path | None:
    """Prepare the logdir for a run of several processes; None where they have separate runs.

    Raises
    ------
    OSError
        It cannot be made.
    """
    if options.every or not options.save or is_url(options.logdir or ""):
        return None
    logdir = Path(options.logdir or DEFAULT).expanduser().absolute()
    logdir.mkdir(parents=True, exist_ok=True)
    if not options.logdir:
        ignore_by_git(logdir)
    return logdir


def _opened(recording: Recording) -> Profile:
    with importing():
        from nbprof.profiles.load import open_recording
    return open_recording(recording)


def _loaded(run: Path) -> Profile:
    with importing():
        from nbprof.profiles.load import load
    return load(run)


def ended_by(error: BaseException) -> End:
    """The end of a program by an exception, which is shown as Python shows it."""
    if isinstance(error, SystemExit):
        return End(_exit_code(error))
    error.__traceback__ = _without_own(error.__traceback__)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:
        # As Python does with a hook that fails.
        sys.__excepthook__(type(error), error, error.__traceback__)
    return End(FAILED, isinstance(error, KeyboardInterrupt))


def _exit_code(error: SystemExit) -> int:
    """The exit code of `sys.exit(…)`; anything but a number is written to stderr, as by Python."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{error.code}\n")
    return FAILED


def _without_own(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without its first frames, which are nbprof's."""
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(_PACKAGE):
        trace = trace.tb_next
    return trace
