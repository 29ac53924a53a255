"""One profiled cell: the recording, the live status, and the dashboard below what the cell has
shown.
"""

from __future__ import annotations

import contextlib
import importlib
import keyword
import os
import sys
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from nbprof.capture.option_field import Setting, documented, option
from nbprof.capture.shield import Shield, shielded
from nbprof.core.errors import CaptureError, NbprofError
from nbprof.display.slot import Slot
from nbprof.tools.names import by_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nbprof.capture.clock import StepClock
    from nbprof.capture.options import Options
    from nbprof.capture.session import Session
    from nbprof.core.unfinished import Unfinished
    from nbprof.notebook.live_status import Strip
    from nbprof.profiles.comparison import Comparison
    from nbprof.profiles.profile import Profile
    from nbprof.sources.recording import Recording


@documented
@dataclass(frozen=True)
class Show:
    """How the result of a cell is shown.

    Raises
    ------
    CaptureError
        Invalid value.
    """

    out: str = option("", "variable that receives the profile", short="-o", metavar="NAME")
    quiet: bool = option(False, "show nothing, and keep the files only with --logdir", short="-q")
    views: list[str] | None = option(
        None,
        "tabs to show, such as overview,steps,memory",
        metavar="A,B",
        default="all",
        undo="all",
    )
    height: int | None = option(
        None,
        "height of the dashboard in pixels",
        metavar="PX",
        type=int,
        default="the height of its content",
        undo="auto",
    )
    events: int | None = option(
        None,
        "events of the trace, the longest ones, to keep in the notebook",
        metavar="N",
        default="20,000",
        setting=Setting(
            "Events in a saved notebook",
            unset=20_000,
            limits={"minimum": 0, "maximum": 1_000_000},
            note="More events make the notebook larger. A tab shows all of them.",
        ),
    )
    against: str = option(
        "",
        "compare with an earlier run: a variable that holds its profile, or a path",
        metavar="RUN",
        more="the tab *Compare* comes first, with the outcome of each finding",
    )
    probe: str = option(
        "",
        "run the cell again without its input, and show the measured step time next to the"
        " predicted one",
        metavar="WHAT",
        choices=("", "input"),
        more=(
            "it replaces the gains that the advice on input predicts; with `--against`, the"
            " comparison mentions it; see [A probe](#a-probe-the-step-without-its-input)"
        ),
    )
    in_place: bool = option(
        False,
        "also run it again if something it changes cannot be restored",
        flag="--probe-in-place",
    )
    redact: bool = option(
        False,
        "show pseudonyms instead of names; numbers are kept",
        negative="don't",
        more="see [sharing.md](sharing.md)",
    )

    def __post_init__(self) -> None:
        if self.out and (not self.out.isidentifier() or keyword.iskeyword(self.out)):
            raise CaptureError(f"-o takes the name of a variable, not {self.out!r}")
        known = by_word()
        unknown = [name for name in self.views or () if name not in known]
        if unknown:
            raise CaptureError(f"unknown view {unknown[0]!r}; the views are {', '.join(known)}")
        if self.height is not None and self.height <= 0:
            raise CaptureError(f"--height takes a number of pixels above 0, not {self.height}")
        if self.events is not None and self.events < 0:
            raise CaptureError(f"--events takes a number of 0 or more, not {self.events}")


class Cell:
    """Records one cell and shows its profile.

    Nothing here raises on account of nbprof: what goes wrong is one sentence, and the user's code
    runs and fails as it would have.

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
    notes : sequence of str
        Sentences for the receipt.
    """

    def __init__(
        self, shell: Any, options: Options, show: Show, source: str = "", notes: Sequence[str] = ()
    ) -> None:
        self._shell = shell
        self._options = options
        self._show = show
        self._source = source
        self._notes = notes
        self._slot = Slot(shell)
        self._session: Session | None = None
        self._strip: Strip | None = None
        self._shield = Shield()
        self.stored = True
        """Whether IPython has put the text of the cell among its inputs when the recording
        begins.
        """
        # Now, for the cell may put another profile into that variable.
        self._before = self._find(show.against) if show.against else None

    def _find(self, against: str) -> Profile | str:
        """The run that `--against` names: a profile, or what `nbprof.load` takes.

        Raises
        ------
        UsageError
            There is no such variable and no such file, or what the variable holds is no profile.
        """
        from nbprof.profiles.profile import Profile

        held = self._shell.user_ns.get(against, against)
        if isinstance(held, Profile):
            return held
        if not isinstance(held, (str, Path)):
            raise UsageError(
                f"%%nbprof: --against takes a profile or a path; {against} is neither, but"
                f" {type(held).__name__}"
            )
        path = str(held)
        if "://" not in path and not Path(path).expanduser().exists():
            kept = (
                f" `%%nbprof -o {path}` above a cell stores its profile in that variable."
                if path.isidentifier()
                else ""
            )
            raise UsageError(
                f"%%nbprof: --against {path}: there is no variable or file with that name.{kept}"
            )
        return path

    def begin(self) -> None:
        """Start to record, or say in a sentence why not. A Ctrl-C interrupts the cell, after
        that.
        """
        with shielded(soon=True):
            self._begin()

    def _begin(self) -> None:
        from nbprof.capture.session import Session

        session = Session(
            self._options, source=self._source, namespace=self._shell.user_ns, on_step=self._stepped
        )
        session.windows.notes.extend(self._notes)
        session.windows.label = recording_label(self._shell, stored=self.stored)
        session.windows.notebook = notebook_name(self._shell)
        session.windows.by = "cell"
        if not self._show.quiet:
            # What is imported while it records is part of the first step. A failure is told where
            # it is shown.
            with contextlib.suppress(Exception):
                importlib.import_module("nbprof.notebook.live_status")
        left = self._left()
        try:
            session.start()
        except CaptureError as error:
            self._say(str(error))
            return
        except Exception as error:
            session.stop()
            self._say(
                f"the recording did not start ({type(error).__name__}: {error}); the cell runs"
                " unprofiled"
            )
            return
        finally:
            for message in session.messages:
                sys.stderr.write(f"{self._shown(message)}\n")
        self._session = session
        if not self._show.quiet:
            self._begin_strip(session)
            for one in left:
                with contextlib.suppress(Exception):
                    self._slot.close(
                        str(one.facts.get("display") or ""), f"nbprof: {self._shown(one.sentence)}"
                    )
        session.windows.code_begins()

    def _left(self) -> list[Unfinished]:
        """Recordings of kernels that ended before them: their outputs go on saying that they
        record.
        """
        from nbprof.capture.place import DEFAULT
        from nbprof.core.unfinished import unfinished

        return [
            one
            for one in unfinished(Path(self._options.logdir or DEFAULT).expanduser())
            if one.facts and not one.running
        ]

    def _begin_strip(self, session: Session) -> None:
        try:
            from nbprof.notebook import live_status

            live_status.listen(self._shell)
            self._strip = live_status.Strip(session, self._slot)
            self._strip.begin()
            session.windows.display = self._slot.ident
            session.windows.mark()
        except Exception as error:
            session.windows.notes.append(
                f"the live status could not be shown: {type(error).__name__}: {error}"
            )

    def code_ends(self) -> None:
        """The code of the cell has run. Never raises."""
        if self._session is not None:
            self._session.windows.code_ends()

    def finish(self, error: BaseException | None = None) -> None:
        """Stop, read and show.

        Parameters
        ----------
        error : exception, optional
            What ended the cell.
        """
        with Shield() as self._shield:
            session, self._session = self._session, None
            if session is None:
                return
            session.windows.code_ends()
            try:
                self._cell_ended(session)
                self._finish(session, error)
            finally:
                self._end_strip()

    def _cell_ended(self, session: Session) -> None:
        """From here on the live status is of what nbprof does, below what the cell has shown."""
        if self._strip is None:
            return
        title = session.backend.title if session.backend is not None else ""
        with contextlib.suppress(Exception):
            self._strip.say(
                f"{title} writes the recording"
                if session.windows.recording
                else "finishing the recording"
            )

    def _end_strip(self) -> None:
        live_status, self._strip = self._strip, None
        if live_status is not None:
            with contextlib.suppress(Exception):
                live_status.end()

    def _finish(self, session: Session, error: BaseException | None) -> None:
        try:
            recording = session.stop(error)
        except Exception as fault:
            self._say(f"the recording could not be finished ({type(fault).__name__}: {fault})")
            return
        for note in session.elsewhere:
            sys.stderr.write(f"nbprof: {self._shown(note)}\n")
        if isinstance(error, KeyboardInterrupt):
            # Who pressed again meant the cell, which has ended.
            self._shield.pressed = False
        if session.superseded:
            where = (
                f"; its files are in {recording.path}"
                if recording and not recording.temporary
                else ""
            )
            self._say(f"this recording was ended by a newer one{where}")
        elif recording is None:
            self._say(session.failure)
        else:
            self._open(recording)

    def _open(self, recording: Recording) -> None:
        from nbprof.profiles.load import open_recording

        again = f'nbprof.load("{recording.path}") opens it'
        if recording.temporary:
            again = (
                f'nbprof.load("{recording.url}") opens it'
                if recording.url
                else "run the cell again"
            )
        stopped = f"reading the run was interrupted: {again}"
        try:
            with self._shield.opened():
                profile = open_recording(recording, progress=self._stage)
            stopped = (
                "the analysis was interrupted; the run is saved: %nbprof shows"
                f" it{'' if recording.temporary else f', {again}'}"
            )
            if self._show.out:
                self._shell.user_ns[self._show.out] = profile
            if self._show.probe:
                with self._shield.opened():
                    self._probe(recording, profile)
            if not self._show.quiet:
                self.present(profile)
        except KeyboardInterrupt:
            self._say(stopped)
        except NbprofError as error:
            self._say(f"the run could not be read: {error}")
        except Exception as error:
            self._say(
                f"the run was recorded, but could not be shown ({type(error).__name__}: {error}):"
                f" {again}"
            )

    def _probe(self, recording: Recording, profile: Profile) -> None:
        """Run the cell again without its input; what that gave is kept beside the files of the
        run.
        """
        from nbprof.notebook.probe import probe

        self._stage("running the cell again without its input")
        # By `%%nbprof` it is the whole cell, by `%nbprof` what stands behind the options.
        source = (
            self._source.partition("\n")[2] if self._source.startswith("%%nbprof") else self._source
        )
        recording.info.probe = probe(
            self._shell, self._options, source, profile, in_place=self._show.in_place
        )
        with contextlib.suppress(OSError):
            recording.write()

    def present(self, profile: Profile) -> None:
        """Show the dashboard, with the comparison first where one was asked for."""
        show = self._show
        shown: Profile | Comparison = profile
        with self._shield.opened():
            if self._before is not None:
                from nbprof.profiles.comparison import compare

                try:
                    shown = compare(self._before, profile)
                except NbprofError as error:
                    sys.stderr.write(self._shown(f"nbprof: --against {show.against}: {error}\n"))
            if (
                shown is profile
                and not show.redact
                and (not show.views or "overview" in show.views)
            ):
                self._show_early(profile)
            profile.payload(show.events, self._stage)
            bundle = shown.mimebundle(
                views=show.views,
                height=show.height,
                live=True,
                events=show.events,
                redact=show.redact,
            )
        self._end_strip()
        self._slot.final(*bundle)

    def _show_early(self, profile: Profile) -> None:
        """Show the first picture of a large run in the place where the whole will stand."""
        # What cannot be made of it is told by the whole, which needs the same.
        with contextlib.suppress(Exception):
            if self._slot.rewrites and (data := profile._early(self._show.height)) is not None:
                with self._shield.closed():
                    self._end_strip()
                    self._slot.draw(data)

    def _stage(self, text: str) -> None:
        if self._strip is not None:
            with self._shield.closed():
                self._strip.say(text)

    def _stepped(self, clock: StepClock) -> None:  # noqa: ARG002  the strip knows it
        live_status = self._strip
        if live_status is not None:
            # Whatever it is, it must not stop a training run.
            with contextlib.suppress(Exception):
                live_status.stepped()

    def _shown(self, text: str) -> str:
        """A sentence as the notebook keeps it."""
        if not self._show.redact:
            return text
        from nbprof.profiles.redaction import redactor

        return redactor(()).text(text)

    def _say(self, text: str) -> None:
        self._end_strip()
        sentence = self._shown(f"nbprof: {text}")
        if self._show.quiet:
            sys.stderr.write(f"{sentence}\n")
        else:
            self._slot.sentence(sentence)


def notebook_name(shell: Any) -> str:
    """The file name of the notebook, as `training.ipynb`; "" where the front end does not tell the
    kernel.
    """
    # Jupyter Server puts the path into the environment of the kernel; VS Code into the user's
    # names.
    path = str(shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME") or "")
    # Notebooks that several people edit at once are on a drive of that name.
    name = PurePath(path.replace("\\", "/")).name.removeprefix("RTC:")
    return name if name.endswith(".ipynb") else ""


def recording_label(shell: Any, *, stored: bool = True) -> str:
    """`training [3]`, or `training` for what has no number; "" where the notebook is not known.

    Parameters
    ----------
    shell : InteractiveShell
    stored : bool
        Whether the running cell is among the inputs already: IPython adds it right before its first
        line runs.
    """
    name = notebook_name(shell)
    # By the inputs: whether `execution_count` is already that of the next cell depends on the
    # version of IPython.
    number = len(shell.user_ns.get("In") or ()) - stored
    return (
        f"{name.removesuffix('.ipynb')} [{number}]"
        if name and number > 0
        else name.removesuffix(".ipynb")
    )
