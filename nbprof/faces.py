"""The views of a Profile as a person meets them: `p.steps`, `p.ops`, `p.memory` … with frame, figure and widget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.errors import NbprofError
from nbprof.trace import BYTES, DOUBLE, TEXT, UINT, Trace

if TYPE_CHECKING:
    from bokeh.model import Model

    from nbprof.profiles import Profile
    from nbprof.widget import DashboardWidget


class View:
    """One view of a profile: its frame, its Bokeh figure and its widget. In a notebook it displays as the dashboard at that tab."""

    def __init__(self, profile: Profile, tab: str) -> None:
        self._profile = profile
        self._tab = tab

    def widget(self, **options: Any) -> DashboardWidget:
        """A live widget of this view; its selected steps can be read and set from Python."""
        return self._profile.widget(**{"views": [self._tab], **options})

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


class Pods(Framed):
    """Each step on each worker: the hosts of a job, the cores of a TPU host, the ranks of PyTorch."""

    @property
    def frame(self) -> pd.DataFrame:
        """One row a step and worker; the columns are those of `nbprof.frames.SCHEMA`."""
        return super().frame.drop(columns=["host"])

    @property
    def summary(self) -> pd.DataFrame:
        """One row a step: the slowest worker and the spread."""
        summary: pd.DataFrame = self._profile.run.pods_summary
        return summary.copy()


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
        return timeline.drop(columns=["order", "address", "lifetime_peak_bytes", "capacity_bytes"])

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
        self,
        lane: int | str | None = None,
        name: str | None = None,
        between: tuple[float, float] | None = None,
        args: tuple[str, ...] = (),
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
        out = pd.DataFrame(
            {
                "host": where["host"].to_numpy(),
                "process": where["process"].to_numpy(),
                "lane": where["thread"].to_numpy(),
                "name": trace.names[events.name[rows]],
                "start_us": events.start[rows] / 1e6,
                "duration_us": events.duration[rows] / 1e6,
                "depth": events.depth[rows],
                "self_us": events.self_time[rows] / 1e6,
            }
        )
        for arg in args:
            out[arg] = pd.Series(_arg(trace, arg, rows), dtype=object)
        return out


def _arg(trace: Trace, name: str, rows: Any) -> list[object]:
    column = trace.args.get(name)
    if column is None:
        raise NbprofError(f"no event of this profile has an arg {name!r}; there are {', '.join(sorted(trace.args)[:20])}")
    found = np.searchsorted(column.event, rows)
    found[found == len(column)] = 0
    has = column.event[found] == rows if len(column) else np.zeros(len(rows), np.bool_)
    kinds, values, floats = column.kinds, column.values, column.floats()
    out: list[object] = []
    for i, known in zip(found.tolist(), has.tolist(), strict=True):
        if not known:
            out.append(None)
        elif kinds[i] == TEXT:
            out.append(trace.strings[values[i]])
        elif kinds[i] == BYTES:
            out.append(trace.blobs[values[i]] if len(trace.blobs) else None)
        else:
            out.append(float(floats[i]) if kinds[i] == DOUBLE else int(values[i].view(np.uint64)) if kinds[i] == UINT else int(values[i]))
    return out
