"""One profiled cell: the recording, the live status, and the dashboard below its outputs."""

from __future__ import annotations

import contextlib
import importlib
import keyword
import os
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from nbprof.capture import recorded
from nbprof.capture.experiments.requests import OPTION, check_try
from nbprof.capture.option_field import Setting, documented, option
from nbprof.capture.origin import PROCESSES, Rerun, Unrepeatable
from nbprof.capture.shield import Shield, shielded
from nbprof.core.errors import CaptureError, NbprofError
from nbprof.core.garbage import importing
from nbprof.core.receipt import info
from nbprof.display.slot import Slot
from nbprof.notebook import profile_button
from nbprof.tools.names import by_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nbprof.capture.clock import StepClock
    from nbprof.capture.options import Options
    from nbprof.capture.script.of_cell import Processes
    from nbprof.capture.session import Session
    from nbprof.core.unfinished import Unfinished
    from nbprof.notebook.live_status import Strip
    from nbprof.profiles.comparison import Comparison
    from nbprof.profiles.profile import Profile
    from nbprof.sources.recording import Recording

_RUNNING = "A cell is running. Try it again when it has ended."


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
    try_: str = option(
        "",
        "try the remedies of the findings on the cell, and measure what they save",
        flag="--try",
        metavar="RULE",
        alone="all",
        more=(
            "the cell runs again in turns with a change and without, and everything is restored;"
            " without a value all findings that have an experiment; also in Python; see"
            " [Trying remedies](#trying-remedies)"
        ),
    )
    budget: float = option(
        60.0,
        "seconds that `--try` may take",
        metavar="SECONDS",
        type=float,
        default="60",
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
        views = by_word()
        unknown = [name for name in self.views or () if name not in views]
        if unknown:
            raise CaptureError(f"unknown view {unknown[0]!r}; the views are {', '.join(views)}")
        if self.height is not None and self.height <= 0:
            raise CaptureError(f"--height takes a number of pixels above 0, not {self.height}")
        check_try(self.try_, self.budget, OPTION)
        if self.events is not None and self.events < 0:
            raise CaptureError(f"--events takes a number of 0 or more, not {self.events}")


class Cell:
    """Records one cell and shows its profile.

    Errors of nbprof are one sentence, and never raised: the user's code runs and fails as it would
    without.

    Parameters
    ----------
    shell : InteractiveShell
        Runs the cell.
    options : Options
        Options of the recording.
    show : Show
        Options of the output.
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
        self._processes: Processes | None = None
        self._strip: Strip | None = None
        self._shield = Shield()
        self.stored = True
        """True if IPython has added the cell to its inputs when the recording begins."""
        # Now, since the cell may assign another profile to that variable.
        self._before = self._find(show.against) if show.against else None

    def _find(self, against: str) -> Profile | str:
        """The run that `--against` names: a profile, or a path for `nbprof.load`.

        Raises
        ------
        UsageError
            There is no such variable and no such file, or the variable is not a profile.
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
            message = f"%%nbprof: --against {path}: there is no variable or file with that name."
            if path.isidentifier():
                message += (
                    f" `%%nbprof -o {path}` above a cell stores its profile in that variable."
                )
            raise UsageError(message)
        return path

    def begin(self) -> None:
        """Start to record, or print why not; a Ctrl-C interrupts the cell afterwards."""
        with shielded(soon=True):
            self._begin()

    def _begin(self) -> None:
        from nbprof.capture.session import Session

        session = Session(
            self._options, source=self._source, namespace=self._shell.user_ns, on_step=self._stepped
        )
        session.windows.notes += [info("options_in_effect", text) for text in self._notes]
        session.windows.label = recording_label(self._shell, stored=self.stored)
        session.windows.notebook = notebook_name(self._shell)
        session.windows.by = "cell"
        if self._options.children:
            from nbprof.capture.script.of_cell import Processes

            self._processes = Processes(session, quiet=self._show.quiet)
        if not self._show.quiet:
            # Now, since imports during the recording are part of the first step. Errors are
            # reported when it is shown.
            with contextlib.suppress(Exception):
                importlib.import_module("nbprof.notebook.live_status")
        unfinished = self._unfinished()
        refusal = recorded.begin(session)
        if refusal:
            self._say(refusal)
        for message in session.messages:
            sys.stderr.write(f"{self._redacted(message)}\n")
        if refusal:
            if self._processes is not None:
                self._processes.end(None, None)
            return
        self._session = session
        if not self._show.quiet:
            self._begin_strip(session)
            for recording in unfinished:
                with contextlib.suppress(Exception):
                    self._slot.close(
                        str(recording.facts.get("display") or ""),
                        f"nbprof: {self._redacted(recording.sentence)}",
                    )
        if self._processes is not None:
            self._processes.begin()
        session.windows.code_begins()

    def _unfinished(self) -> list[Unfinished]:
        """Recordings of kernels that died, whose outputs still show a running recording."""
        from nbprof.capture.place import DEFAULT
        from nbprof.core.unfinished import unfinished

        recordings = unfinished(Path(self._options.logdir or DEFAULT).expanduser())
        return [recording for recording in recordings if recording.facts and not recording.running]

    def _begin_strip(self, session: Session) -> None:
        try:
            from nbprof.notebook import live_status

            live_status.listen(self._shell)
            self._strip = live_status.Strip(session, self._slot)
            self._strip.begin()
            session.windows.display = self._slot.ident
            session.windows.mark()
        except Exception as error:
            text = f"the live status could not be shown: {type(error).__name__}: {error}"
            session.windows.notes.append(info("live_status_failed", text))

    def code_ends(self) -> None:
        """The code of the cell has run. Never raises."""
        if self._session is not None:
            self._session.windows.code_ends()

    def finish(self, error: BaseException | None = None) -> None:
        """Stop, read and show.

        Parameters
        ----------
        error : exception, optional
            The exception that ended the cell.
        """
        with Shield() as self._shield:
            session, self._session = self._session, None
            if session is None:
                return
            session.windows.code_ends()
            if self._processes is not None:
                self._processes.stop()
            try:
                self._cell_ended(session)
                self._finish(session, error)
            finally:
                self._end_strip()

    def _cell_ended(self, session: Session) -> None:
        """Let the live status show what nbprof does, below the outputs of the cell."""
        if self._strip is None:
            return
        stage = "finishing the recording"
        if session.windows.recording:
            title = session.backend.title if session.backend is not None else ""
            stage = f"{title} writes the recording"
        with contextlib.suppress(Exception):
            self._strip.say(stage)

    def _end_strip(self) -> None:
        live_status, self._strip = self._strip, None
        if live_status is not None:
            with contextlib.suppress(Exception):
                live_status.end()

    def _finish(self, session: Session, error: BaseException | None) -> None:
        alone, message = recorded.end(session, error)
        joint, processes = None, self._processes
        if processes is not None:
            joint = processes.end(alone, error)
            message = session.failure or message
        recording = joint or alone
        for note in session.elsewhere:
            sys.stderr.write(f"nbprof: {self._redacted(note.text)}\n")
        if isinstance(error, KeyboardInterrupt):
            # A second Ctrl-C was meant for the cell, which has ended.
            self._shield.pressed = False
        if recording is None:
            self._say(message)
        else:
            self._open(recording, again=joint is None)

    def _open(self, recording: Recording, *, again: bool) -> None:
        """Read and show a recording; `again` is True if its cell can run again."""
        with importing():
            from nbprof.profiles.load import open_recording

        remedy = "run the cell again"
        if not recording.temporary or recording.url:
            path = recording.url if recording.temporary else recording.path
            remedy = f'nbprof.load("{path}") opens it'
        interrupted = f"reading the run was interrupted: {remedy}"
        try:
            with self._shield.opened():
                profile = open_recording(recording, progress=self._stage)
            interrupted = "the analysis was interrupted; the run is saved: %nbprof shows it"
            if not recording.temporary:
                interrupted += f", {remedy}"
            profile.run.origin = Unrepeatable(PROCESSES)
            if again:
                profile.run.origin = self._origin(recording, profile)
            if self._show.out:
                self._shell.user_ns[self._show.out] = profile
            if self._show.probe and again:
                with self._shield.opened():
                    self._probe(recording, profile)
            if self._show.try_:
                with self._shield.opened():
                    self._try(recording, profile)
            if not self._show.quiet:
                self.present(profile)
        except KeyboardInterrupt:
            self._say(interrupted)
        except NbprofError as error:
            self._say(f"the run could not be read: {error}")
        except Exception as error:
            self._say(
                f"the run was recorded, but could not be shown ({type(error).__name__}: {error}):"
                f" {remedy}"
            )

    def _probe(self, recording: Recording, profile: Profile) -> None:
        """Run the cell again without its input, and store the result with the run."""
        from nbprof.notebook.probe import probe

        self._stage("running the cell again without its input")
        recording.info.probe = probe(
            self._shell, self._options, self._code, profile, in_place=self._show.in_place
        )
        recording.keep()

    def _try(self, recording: Recording, profile: Profile) -> None:
        """Run the experiments of the findings, and store the results with the run."""
        origin = profile.run.origin
        assert origin is not None
        recording.info.tried = origin.attempt(
            profile.run, self._show.try_, self._show.budget, self._stage
        )
        recording.keep()

    def _origin(self, recording: Recording, profile: Profile) -> Rerun:
        """The cell, to run it again. It does not hold the profile, which holds it."""
        from nbprof.capture.experiments import program

        shell, code, held = self._shell, self._code, weakref.ref(profile)

        def show() -> None:
            later = held()
            if later is not None and not self._show.quiet:
                self.present(later)

        return Rerun(
            lambda: program.of_cell(shell, code),
            self._options,
            recording,
            busy=lambda: _RUNNING if profile_button.runs_cell(shell) else "",
            show=show,
        )

    @property
    def _code(self) -> str:
        """The code to run again: of `%%nbprof` it is the complete cell, of `%nbprof` the statement
        after the options.
        """
        if self._source.startswith("%%nbprof"):
            return self._source.partition("\n")[2]
        return self._source

    def present(self, profile: Profile) -> None:
        """Show the dashboard, or the comparison of `--against`."""
        show = self._show
        presented: Profile | Comparison = profile
        with self._shield.opened():
            if self._before is not None:
                from nbprof.profiles.comparison import compare

                try:
                    presented = compare(self._before, profile)
                except NbprofError as error:
                    sys.stderr.write(self._redacted(f"nbprof: --against {show.against}: {error}\n"))
            has_overview = not show.views or "overview" in show.views
            if presented is profile and has_overview and not show.redact:
                self._show_early(profile)
            profile.payload(show.events, self._stage)
            bundle = presented.mimebundle(
                views=show.views,
                height=show.height,
                live=True,
                events=show.events,
                redact=show.redact,
            )
        self._end_strip()
        self._slot.final(*bundle)

    def _show_early(self, profile: Profile) -> None:
        """Show the first picture of a large run until the complete dashboard replaces it."""
        # The dashboard reports the same errors.
        with contextlib.suppress(Exception):
            data = profile._early(self._show.height) if self._slot.rewrites else None
            if data is not None:
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
            # No error here may stop a training run.
            with contextlib.suppress(Exception):
                live_status.stepped()

    def _redacted(self, text: str) -> str:
        """A sentence for the notebook, with pseudonyms if required."""
        if not self._show.redact:
            return text
        from nbprof.profiles.redaction import redactor

        return redactor(()).text(text)

    def _say(self, text: str) -> None:
        self._end_strip()
        sentence = self._redacted(f"nbprof: {text}")
        if self._show.quiet:
            sys.stderr.write(f"{sentence}\n")
        else:
            self._slot.sentence(sentence)


def notebook_name(shell: Any) -> str:
    """The file name of the notebook, such as `training.ipynb`; "" if it is unknown."""
    # Jupyter Server sets the path in the kernel's environment, VS Code in the user's namespace.
    path = str(shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME") or "")
    # Notebooks that several people edit at once are on a drive of that name.
    name = PurePath(path.replace("\\", "/")).name.removeprefix("RTC:")
    return name if name.endswith(".ipynb") else ""


def recording_label(shell: Any, *, stored: bool = True) -> str:
    """`training [3]`, or `training` without a number; "" if the notebook is unknown.

    Parameters
    ----------
    shell : InteractiveShell
    stored : bool
        The running cell is among the inputs already: IPython adds it right before its first line
        runs.
    """
    name = notebook_name(shell).removesuffix(".ipynb")
    # By the inputs: `execution_count` may be that of the next cell, depending on IPython's version.
    number = len(shell.user_ns.get("In") or ()) - stored
    return f"{name} [{number}]" if name and number > 0 else name
