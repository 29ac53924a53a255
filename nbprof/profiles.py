"""What a person holds: a `Profile`, a run with a face. The only place where everything meets."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.errors import NbprofError
from nbprof.faces import InputPipeline, Kernels, Memory, Ops, Steps, TfData, TraceView
from nbprof.formats.pieces import RunFiles
from nbprof.formats.sniff import find
from nbprof.formats.sniff import runs as find_runs
from nbprof.run import Run

if TYPE_CHECKING:
    from nbprof.capture.session import Recording
    from nbprof.widget import DashboardWidget


class Profile:
    """One profile: frames to work with, views to look at, a report to share.

    In a notebook a Profile displays as the dashboard. Get one from `%%nbprof`, `nbprof.profile()` or `nbprof.load()`.

    Examples
    --------
    >>> p = nbprof.load("logs/")                       # doctest: +SKIP
    >>> p.steps.summary                                # doctest: +SKIP
    >>> p.save("report.html")                          # doctest: +SKIP
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._payload: dict[str, Any] | None = None
        self._temporary: Path | None = None

    @property
    def steps(self) -> Steps:
        """Step time and where it goes."""
        return Steps(self, "input", "steps")

    @property
    def overview(self) -> dict[str, Any]:
        """What bounds the step, and the figures that prove it."""
        return dict(self.run.overview)

    @property
    def input_pipeline(self) -> InputPipeline:
        """Where the host spends its time on input."""
        return InputPipeline(self, "input", "input_ops")

    @property
    def tf_data(self) -> TfData:
        """tf.data bottleneck analysis."""
        return TfData(self, "input")

    @property
    def ops(self) -> Ops:
        """Time by framework op."""
        return Ops(self, "ops", "ops")

    @property
    def kernels(self) -> Kernels:
        """GPU kernels."""
        return Kernels(self, "kernels", "kernels")

    @property
    def memory(self) -> Memory:
        """Memory by allocator."""
        return Memory(self, "memory")

    @property
    def trace(self) -> TraceView:
        """Every event on its lane."""
        return TraceView(self, "trace")

    @property
    def advice(self) -> pd.DataFrame:
        """Findings with evidence and fix, largest gain first."""
        advice: pd.DataFrame = self.run.advice
        return advice.copy()

    @property
    def hosts(self) -> list[str]:
        """Machines that recorded."""
        return list(self.run.hosts)

    @property
    def devices(self) -> pd.DataFrame:
        """One row a device."""
        return self.run.devices.copy()

    @property
    def receipt(self) -> Any:
        """What was read, skipped or looks wrong; `print(p.receipt)`."""
        return self.run.receipt

    @property
    def path(self) -> str:
        """Folder of the recorded files."""
        return self.run.source.path

    def payload(self) -> dict[str, Any]:
        """What the dashboard draws: small numbers, texts and typed arrays."""
        from nbprof.views import payload

        if self._payload is None:
            self._payload = payload.dashboard(self.run)
        return self._payload

    def text(self) -> str:
        """Ten lines of plain text."""
        from nbprof.views import text

        return text.summary(self.payload())

    def save(self, path: str | Path) -> Path:
        """Writes the report: one HTML file that needs no network and no kernel.

        Raises
        ------
        NbprofError
            The file could not be written.
        """
        from nbprof.report import html

        target = Path(path).expanduser()
        page = html.page(self.run, self.payload())
        try:
            target.write_text(page, encoding="utf-8")
        except OSError as error:
            raise NbprofError(
                f"{target}: the report could not be written ({error.strerror}). Choose a folder that you may write to."
            ) from error
        return target

    def widget(self, **options: Any) -> DashboardWidget:
        """A live anywidget of the dashboard; `widget.selected` are the selected steps, to read and to set.

        Parameters
        ----------
        views : list of str, optional
            Tabs to show; all when left out.
        height : int, optional
            Height in px; the natural one when left out.
        """
        from nbprof.widget import DashboardWidget

        return DashboardWidget(self.run, **options)

    def mimebundle(
        self, views: list[str] | None = None, height: int | None = None, live: bool = True
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The four mime types of the notebook output, and their metadata."""
        from nbprof.report import mimebundle

        return mimebundle.mimebundle(self.run, self.payload(), views=views, height=height, live=live)

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.mimebundle()

    def __repr__(self) -> str:
        return self.text()

    def __del__(self) -> None:
        if getattr(self, "_temporary", None) is not None:
            shutil.rmtree(str(self._temporary), ignore_errors=True)


_last: list[Profile] = []


def set_last(profile: Profile) -> None:
    """Makes a profile the one that `nbprof.last` gives."""
    _last[:] = [profile]


def last() -> Profile | None:
    """The last profile that was recorded or loaded; None before there is one."""
    return _last[0] if _last else None


def load(path: str | Path, run: str | None = None, progress: Callable[[str], None] | None = None) -> Profile:
    """A profile from a `*.xplane.pb` file, a run folder or a TensorBoard logdir.

    Parameters
    ----------
    path : str or Path
    run : str, optional
        Name of the run, where a logdir holds several; the newest when left out.
    progress : callable, optional
        Called with a sentence as reading goes on.

    Raises
    ------
    ReadError
        Nothing is there, or it is no profile, or it is damaged; says where and what to do.
    """
    from nbprof.capture.recording import CaptureInfo

    files = find(path, run)
    profile = Profile(Run.read(files, capture=CaptureInfo.read(Path(files.folder)), progress=progress))
    set_last(profile)
    return profile


def runs(logdir: str | Path) -> pd.DataFrame:
    """What is in a logdir, newest first, without reading it: `run hosts bytes modified path`."""
    rows = [
        {
            "run": r.name,
            "hosts": len(r.files),
            "bytes": sum(f.size or 0 for f in r.files),
            "modified": pd.Timestamp.fromtimestamp(r.modified),
            "path": str(r.folder),
        }
        for r in find_runs(logdir)
    ]
    return pd.DataFrame(rows, columns=["run", "hosts", "bytes", "modified", "path"])


def open_recording(recording: Recording, progress: Callable[[str], None] | None = None) -> Profile:
    """The profile of a recording that was just stopped; becomes `nbprof.last`."""
    files: RunFiles = find(recording.path)
    profile = Profile(Run.read(files, capture=recording.info, progress=progress))
    if recording.temporary:
        profile._temporary = Path(recording.temporary)
    set_last(profile)
    return profile
