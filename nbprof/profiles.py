"""What a person holds: a `Profile`, a run with a face. The only place where everything meets."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.errors import NbprofError
from nbprof.formats.sniff import RunFiles, find
from nbprof.formats.sniff import runs as find_runs
from nbprof.run import Run

if TYPE_CHECKING:
    from bokeh.model import Model

    from nbprof.capture.session import Recording
    from nbprof.widget import DashboardWidget

VIEWS = ("overview", "input", "ops", "kernels", "memory", "trace")


class View:
    """One view of a profile: its frame, its Bokeh figure and its widget. In a notebook it displays as the dashboard at that tab."""

    def __init__(self, profile: Profile, tab: str) -> None:
        self._profile = profile
        self._tab = tab

    def widget(self, **options: Any) -> DashboardWidget:
        """A live widget of this view; its selected steps can be read and set from Python."""
        return self._profile.widget(views=[self._tab], **options)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        return self._profile.mimebundle(views=[self._tab])


class Framed(View):
    """A view with one main frame."""

    def __init__(self, profile: Profile, tab: str, name: str) -> None:
        super().__init__(profile, tab)
        self._name = name

    @property
    def frame(self) -> pd.DataFrame:
        """The view's data; the columns are those of `nbprof.frames.SCHEMA`."""
        frame: pd.DataFrame = getattr(self._profile.run, self._name)
        return frame.drop(columns=["group"], errors="ignore").copy()

    def __repr__(self) -> str:
        frame = self.frame
        return f"<nbprof {self._name}: {len(frame)} rows; .frame is the DataFrame>"


class Steps(Framed):
    """Step time and where it goes."""

    @property
    def summary(self) -> pd.DataFrame:
        """Mean, sample sd, range and share of each category."""
        summary: pd.DataFrame = self._profile.run.steps_summary
        return summary.copy()

    def figure(self, **options: Any) -> Model:
        """A Bokeh figure: one stacked bar a step."""
        from nbprof.views import figures

        return figures.steps(self._profile.run, **options)


class InputPipeline(Framed):
    """Where the host spends its time on input."""

    @property
    def categories(self) -> pd.DataFrame:
        """The five kinds of input work."""
        categories: pd.DataFrame = self._profile.run.input_categories
        return categories.copy()


class TfData(View):
    """tf.data bottleneck analysis."""

    @property
    def pipelines(self) -> pd.DataFrame:
        """Pipelines, slowest first."""
        return self._profile.run.tf_data_pipelines.copy()

    @property
    def nodes(self) -> pd.DataFrame:
        """Iterators of the pipelines."""
        return self._profile.run.tf_data_nodes.copy()


class Ops(Framed):
    """Time by framework op."""

    @property
    def with_idle(self) -> pd.DataFrame:
        """The ops with the IDLE row of each side."""
        return self._profile.run.ops_with_idle.copy()

    def figure(self, **options: Any) -> Model:
        """Bokeh pies: device and host, by op and by type."""
        from nbprof.views import figures

        return figures.ops(self._profile.run, **options)


class Kernels(Framed):
    """GPU kernels by name, op and launch shape."""

    def figure(self, **options: Any) -> Model:
        """A Bokeh bar chart of the kernels with the most time."""
        from nbprof.views import figures

        return figures.kernels(self._profile.run, **options)


class Memory(View):
    """Memory by allocator."""

    @property
    def summary(self) -> pd.DataFrame:
        """One row an allocator, largest peak first."""
        summary: pd.DataFrame = self._profile.run.memory_summary
        return summary.copy()

    @property
    def timeline(self) -> pd.DataFrame:
        """Allocations and deallocations in time order."""
        timeline: pd.DataFrame = self._profile.run.memory_timeline
        return timeline.drop(columns=["address", "lifetime_peak_bytes"])

    @property
    def peak(self) -> pd.DataFrame:
        """Allocations alive at the peak."""
        peak: pd.DataFrame = self._profile.run.memory_peak
        return peak.copy()

    def figure(self, **options: Any) -> Model:
        """A Bokeh figure: stack, heap and free over time, fragmentation on the right axis."""
        from nbprof.views import figures

        return figures.memory(self._profile.run, **options)


class TraceView(View):
    """Every event on its lane."""

    @property
    def lanes(self) -> pd.DataFrame:
        """One row a lane."""
        lanes = self._profile.run.trace.lanes
        return lanes[["lane", "host", "process", "thread", "kind", "device", "events"]].copy()

    def events(
        self, lane: int | str | None = None, name: str | None = None, between: tuple[float, float] | None = None, args: tuple[str, ...] = ()
    ) -> pd.DataFrame:
        """Events as a frame, in time order on each lane.

        Parameters
        ----------
        lane : int or str, optional
            Number of a lane, or a text that its thread's name holds.
        name : str, optional
            A text that the event's name holds.
        between : (float, float), optional
            Only events that touch this range, in ms.
        args : tuple of str
            Args to add as columns; NA where an event has no such arg.
        """
        import numpy as np

        trace = self._profile.run.trace
        events = trace.events
        keep = np.ones(len(events), np.bool_)
        if isinstance(lane, str):
            keep &= trace.lanes["thread"].str.contains(lane, regex=False).to_numpy()[events.lane]
        elif lane is not None:
            keep &= events.lane == lane
        if name is not None:
            keep &= np.array([name in n for n in trace.names], np.bool_)[events.name]
        if between is not None:
            keep &= (events.end >= between[0] * 1e9) & (events.start <= between[1] * 1e9)
        rows = np.flatnonzero(keep)
        where = trace.lanes.iloc[events.lane[rows]]
        out = pd.DataFrame({
            "host": where["host"].to_numpy(), "process": where["process"].to_numpy(), "lane": where["thread"].to_numpy(),
            "name": trace.names[events.name[rows]], "start_us": events.start[rows] / 1e6, "duration_us": events.duration[rows] / 1e6,
            "depth": events.depth[rows], "self_us": events.self_time[rows] / 1e6,
        })  # fmt: skip
        for arg in args:
            out[arg] = _arg(trace, arg, rows)
        return out


def _arg(trace: Any, name: str, rows: Any) -> list[object]:
    column = trace.args.get(name)
    if column is None:
        raise NbprofError(f"no event of this profile has an arg {name!r}; there are {', '.join(sorted(trace.args)[:20])}")
    at = {int(e): i for i, e in enumerate(column.event.tolist())}
    floats = column.floats()
    out: list[object] = []
    for row in rows.tolist():
        i = at.get(row)
        if i is None:
            out.append(None)
        elif column.kind[i] == 4:
            out.append(trace.strings[column.value[i]])
        else:
            out.append(float(floats[i]) if column.kind[i] == 3 else int(column.value[i]))
    return out


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
            raise NbprofError(f"{target}: the report could not be written ({error.strerror}). Choose a folder that you may write to.") from error
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

    def mimebundle(self, views: list[str] | None = None, height: int | None = None, live: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
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
    profile = Profile(Run.read(find(path, run), progress=progress))
    set_last(profile)
    return profile


def runs(logdir: str | Path) -> pd.DataFrame:
    """What is in a logdir, newest first, without reading it: `run hosts bytes modified path`."""
    rows = [
        {
            "run": r.name, "hosts": len(r.files), "bytes": sum(f.stat().st_size for f in r.files),
            "modified": pd.Timestamp(r.modified, unit="s"), "path": str(r.folder),
        }
        for r in find_runs(logdir)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["run", "hosts", "bytes", "modified", "path"])


def open_recording(recording: Recording, progress: Callable[[str], None] | None = None) -> Profile:
    """The profile of a recording that was just stopped; becomes `nbprof.last`."""
    files: RunFiles = find(recording.path)
    profile = Profile(Run.read(files, capture=recording.info, progress=progress))
    if recording.temporary:
        profile._temporary = Path(recording.temporary)
    set_last(profile)
    return profile
