"""One profiled cell: the recording, the progress line, and the dashboard that takes its place."""

from __future__ import annotations

import contextlib
import html
import keyword
import sys
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from IPython.display import display, update_display

from nbprof.errors import CaptureError, NbprofError

if TYPE_CHECKING:
    from nbprof.capture.options import Options
    from nbprof.capture.recording import Recording
    from nbprof.capture.session import Session
    from nbprof.capture.steps import StepClock
    from nbprof.profiles import Profile

VIEWS = ("overview", "steps", "input", "ops", "kernels", "memory", "pods", "trace")
"""Tabs that `--views` takes; `steps` and `input` are one."""

REPAINT_S = 0.25
"""The progress line changes at most four times a second."""


@dataclass(frozen=True)
class Show:
    """How the result of a cell is shown.

    Parameters
    ----------
    out : str
        Variable that receives the profile; empty for none.
    quiet : bool
        Show nothing.
    views : list of str, optional
        Tabs to show; all when left out.
    height : int, optional
        Height in px.
    events : int, optional
        Events of the trace that the output holds; 20,000 when left out.
    """

    out: str = ""
    quiet: bool = False
    views: list[str] | None = None
    height: int | None = None
    events: int | None = None

    def __post_init__(self) -> None:
        if self.out and (not self.out.isidentifier() or keyword.iskeyword(self.out)):
            raise CaptureError(f"-o takes the name of a variable, not {self.out!r}")
        unknown = [name for name in self.views or () if name not in VIEWS]
        if unknown:
            raise CaptureError(f"there is no view {unknown[0]!r}; there are {', '.join(VIEWS)}")
        if self.height is not None and self.height <= 0:
            raise CaptureError(f"--height takes a number of pixels above 0, not {self.height}")
        if self.events is not None and self.events < 0:
            raise CaptureError(f"--events takes a number from 0 on, not {self.events}")


class Slot:
    """The one place among a cell's outputs where nbprof writes.

    A line of text first, then the dashboard, by display id. A cell that clears its output takes the place away with it; then what comes
    next is displayed anew.

    Parameters
    ----------
    shell : InteractiveShell
        In a terminal there are no places to rewrite: only what is final is shown there.
    """

    def __init__(self, shell: Any) -> None:
        self._id: str | None = None
        self._publisher: Any = shell.display_pub if hasattr(shell, "kernel") else None
        self._hooked = False

    def line(self, text: str) -> None:
        """Show a line that something else will follow."""
        if self._publisher is not None:
            self._put(*_line(text))

    def final(self, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Show what stays."""
        self._put(data, metadata)
        self._unhook()

    def sentence(self, text: str) -> None:
        """Show a sentence that stays."""
        self.final(*_line(text))

    def _put(self, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        if self._id is not None and self._publisher is not None:
            update_display(  # type: ignore[no-untyped-call]
                data, metadata=metadata, raw=True, display_id=self._id
            )
            return
        self._id = uuid.uuid4().hex
        self._hook()
        display(data, metadata=metadata, raw=True, display_id=self._id)  # type: ignore[no-untyped-call]

    def _hook(self) -> None:
        if not self._hooked and hasattr(self._publisher, "register_hook"):
            self._publisher.register_hook(self._watch)
            self._hooked = True

    def _unhook(self) -> None:
        if self._hooked and self._publisher is not None:
            with contextlib.suppress(Exception):
                self._publisher.unregister_hook(self._watch)
            self._hooked = False

    def _watch(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["header"]["msg_type"] == "clear_output":
            self._id = None
        return message


class Cell:
    """Records one cell and shows its profile.

    Nothing here raises on account of nbprof: what goes wrong is one sentence, and the person's code runs and fails as it would have.

    Parameters
    ----------
    shell : InteractiveShell
        Where the cell runs.
    options : Options
        What to record.
    show : Show
        How to show it.
    source : str
        The text of the cell.
    """

    def __init__(self, shell: Any, options: Options, show: Show, source: str = "") -> None:
        self._shell = shell
        self._options = options
        self._show = show
        self._source = source
        self._slot = Slot(shell)
        self._session: Session | None = None
        self._painted = 0.0

    def begin(self) -> None:
        """Start to record, or say in a sentence why not."""
        from nbprof.capture.session import Session

        session = Session(self._options, source=self._source, on_step=self._stepped)
        try:
            session.start()
        except CaptureError as error:
            self._say(str(error))
            return
        except Exception as error:
            session.stop()
            self._say(f"the recording did not start ({type(error).__name__}: {error}); the cell runs unprofiled")
            return
        finally:
            for message in session.messages:
                sys.stderr.write(f"{message}\n")
        self._session = session
        if not self._show.quiet:
            self._slot.line("nbprof: recording")

    def finish(self, error: BaseException | None = None) -> None:
        """Stop, read and show.

        Parameters
        ----------
        error : exception, optional
            What ended the cell.
        """
        session, self._session = self._session, None
        if session is None:
            return
        try:
            recording = session.stop(error)
        except KeyboardInterrupt:
            # The files were finished first.
            recording = session.recording
        if session.superseded:
            where = f"; its files are in {recording.path}" if recording and not recording.temporary else ""
            self._say(f"this recording ended when another one began{where}")
        elif recording is None:
            self._say(session.failure)
        else:
            self._open(recording)

    def _open(self, recording: Recording) -> None:
        from nbprof.profiles import open_recording

        again = f'nbprof.load("{recording.path}") opens it'
        if recording.temporary:
            again = "run the cell again"
        try:
            profile = open_recording(recording, progress=self._reading)
            if self._show.out:
                self._shell.user_ns[self._show.out] = profile
            if not self._show.quiet:
                self.present(profile)
        except KeyboardInterrupt:
            self._say(f"reading the run was interrupted: {again}")
        except NbprofError as error:
            self._say(f"the run could not be read: {error}")
        except Exception as error:
            self._say(f"the run was recorded but could not be shown ({type(error).__name__}: {error}): {again}")

    def present(self, profile: Profile) -> None:
        """Put the dashboard where the line was."""
        self._slot.final(*profile.mimebundle(views=self._show.views, height=self._show.height, live=True, events=self._show.events))

    def _reading(self, text: str) -> None:
        if not self._show.quiet and self._due():
            self._slot.line(f"nbprof: {text}")

    def _stepped(self, clock: StepClock) -> None:
        if self._show.quiet or not self._due():
            return
        elapsed = time.perf_counter() - clock.started
        window, session = clock.window, self._session
        if session is not None and session.windows.recording:
            text = f"recording · step {clock.seen}"
        elif window and clock.seen < window[0] - 1:
            text = f"waiting for step {window[0]} · now at step {clock.seen}"
        elif session is not None and session.windows.recordings:
            text = f"recorded · now at step {clock.seen}"
        else:
            text = f"recording · step {clock.seen}"
        try:
            self._slot.line(f"nbprof: {text} · {elapsed:.1f} s")
        except Exception:
            # A front end that has gone must not stop a training run.
            self._painted = float("inf")

    def _due(self) -> bool:
        now = time.monotonic()
        if now - self._painted < REPAINT_S:
            return False
        self._painted = now
        return True

    def _say(self, text: str) -> None:
        sentence = f"nbprof: {text}"
        if self._show.quiet:
            sys.stderr.write(f"{sentence}\n")
        else:
            self._slot.sentence(sentence)


def _line(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    style = "font-size:12px;line-height:20px;opacity:.75;font-variant-numeric:tabular-nums"
    return {"text/plain": text, "text/html": f'<div style="{style}">{html.escape(text)}</div>'}, {}
