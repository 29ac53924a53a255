"""`p.ascend`: what Ascend's profiler measured on an NPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.tools.accessor import Helped, ShownByMarimo, View, accessor
from nbprof.tools.plot import displayed

if TYPE_CHECKING:
    from bokeh.model import Model

    from nbprof.tools.accessor import Shown

_SHOWN = 20
"""Rows of a part that a notebook shows."""
BY = ("op", "op_type", "task_type", "core", "stream", "iteration", "op_state", "scope")


class Part(Helped, ShownByMarimo):
    """One table of an Ascend profile: `frame`, and `missing`, which says why it has no rows."""

    def __init__(self, profile: Shown, name: str) -> None:
        self._profile = profile
        self._name = name

    @property
    def frame(self) -> pd.DataFrame:
        """The rows; the columns are those of `nbprof.schema.ascend.SCHEMA`."""
        frame: pd.DataFrame = getattr(self._profile.run.ascend, self._name)
        return frame.copy()

    @property
    def missing(self) -> str:
        """Why there is nothing, and what to record, in a sentence; '' where there is something."""
        from nbprof.run.frames.ascend import LACKS

        if len(self.frame):
            return ""
        return LACKS.get(self._name, "The profile has no tables of Ascend's profiler.")

    def __repr__(self) -> str:
        text = self.missing or f"{len(self.frame)} rows; .frame is the DataFrame"
        return f"<nbprof ascend.{self._name}: {text}>"

    def _repr_mimebundle_(self, **_: Any) -> Any:
        from nbprof.tools.ascend import html as ascend_html

        return {
            "text/html": ascend_html.html(self._name, self.frame, _SHOWN, self.missing),
            "text/plain": repr(self),
        }


class Iterations(Part):
    """Time of each iteration of a graph by part: the iteration trace of TensorFlow and MindSpore.

    `frame` has one row per iteration, by recording, device, model and time. An iteration lasts from
    the end of the previous one to its own end:

        iteration_ms = data_aug_ms + fp_to_bp_ms + grad_refresh_ms
        grad_refresh_ms = all_reduce_ms + update_ms

    of the first one from its start. All are computed from the marks (FP Start, BP End, Iteration
    End). `reported_iteration_ms` is what the file calls `Iteration Time`, of which `summary` says
    in `convention` what it counts: "end to end" (with Data Aug Bound), "own start" (a mark before
    FP Start), "from FP Start", or '' for something else.

    - `data_aug_ms` is missing for the first iteration, and where an iteration begins before the
      previous one has ended.
    - `all_reduce_ms`: all-reduces of gradients after BP End, each moment once;
      `hidden_all_reduce_ms`: those behind the backward pass.
    - Averages exclude the first two of four or more iterations, the first of two or three
      (`warmup`).
    - `main`: of the model that most iterations of the device are of. Others initialise or validate.
    """

    @property
    def summary(self) -> pd.DataFrame:
        """The mean iteration of each model on each device, with the parts as shares of it."""
        return self._profile.run.ascend.iterations_summary.copy()

    def figure(self, device: int | None = None, model: int | None = None, **options: Any) -> Model:
        """A Bokeh bar chart: each iteration of a model, stacked by its parts.

        Parameters
        ----------
        device, model : int, optional
            By default, the first device and its main model.
        **options
            Passed to `bokeh.plotting.figure`.

        Raises
        ------
        NbprofError
            Bokeh is not installed, or no such iteration exists.
        """
        from nbprof.tools.ascend import figures as ascend_figures

        return displayed(
            ascend_figures.iterations(self._profile.run, device, model, **options), self
        )


class OpTypes(Part):
    """Time by op type and kind of core, most first, without communication: from op_statistic, else
    aggregated from op_summary.
    """

    @property
    def cores(self) -> pd.DataFrame:
        """Time by kind of core: `busy_us` with at least one of its tasks, `alone_us` with no task
        of another kind.
        """
        return self._profile.run.ascend.cores.copy()

    def figure(self, most: int = 15, **options: Any) -> Model:
        """A Bokeh bar chart of the types that take the most time, in the colour of the kind of
        core.
        """
        from nbprof.tools.ascend import figures as ascend_figures

        return displayed(ascend_figures.op_types(self._profile.run, most, **options), self)


class Ops(Part):
    """Tasks of the devices: op_summary, or kernel_details of PyTorch. `wait_us` counts on the
    task's own stream.
    """

    def by(self, column: str = "op_type") -> pd.DataFrame:
        """Tasks grouped by a column, most time first.

        Parameters
        ----------
        column : str
            "op", "op_type", "task_type", "core", "stream", "iteration", "op_state", or "scope": the
            first two parts of a name with slashes, which are layers of a TensorFlow graph.

        Raises
        ------
        NbprofError
            No such column.
        """
        from nbprof.analysis.ascend.ops import grouped, scoped

        if column not in BY:
            raise NbprofError(f"column must be one of {', '.join(map(repr, BY))}, not {column!r}")
        frame = self.frame
        return grouped(
            frame.assign(scope=scoped(frame["op"])) if column == "scope" else frame, column
        )

    def longest(self, most: int = 20) -> pd.DataFrame:
        """The longest single tasks, without communication: rows of `frame`, the longest first."""
        from nbprof.tools.ascend.payload import longest

        return longest(self._profile.run).head(most)


class Pmu(Part):
    """Hardware counters of the cores by task: which pipe an op keeps busy, and what it waits for.

    The columns depend on the recorded group (`aic_metrics`), see `groups`. For ops on both kinds of
    cores, each pipe has the larger value. `bound_by` is the busiest pipe; the op is bound by it
    where `bound_fraction` is above 0.8.
    """

    @property
    def groups(self) -> list[str]:
        """The recorded groups of counters, by the names of `aic_metrics`: PipeUtilization, Memory,
        L2Cache …; [] if there are none.
        """
        return list(self._profile.run.ascend.pmu_groups)

    @property
    def types(self) -> pd.DataFrame:
        """By type of op and kind of core, most time first: means over the tasks, weighted by their
        duration.
        """
        return self._profile.run.ascend.pmu_types.copy()

    def figure(self, most: int = 12, **options: Any) -> Model:
        """A Bokeh heat map: the op types that take the most time, by pipe."""
        from nbprof.tools.ascend import figures as ascend_figures

        return displayed(ascend_figures.pmu(self._profile.run, most, **options), self)


class Waits(Part):
    """Idle time of streams between their tasks: one row per stream, and one for all streams of a
    device (`stream` missing).

    `wait_us` is the time between the first and the last task in which none ran; `input_wait_us` its
    part within a Data Aug Bound. Communication has no stream, and keeps the device busy.
    """


class Fusion(Part):
    """Ops of the compiled graph, with the ops that each was fused from, most first; their tasks are
    found by name.
    """


class Api(Part):
    """Host calls by software layer, summed up. Layers are nested: `fraction` is of the layer's own
    calls.
    """


class Rules(Part):
    """The rules of Ascend's own tools, each with its result, findings first.

    `state` is "found", "not found", or "not known" if what the rule needs was not recorded;
    `evidence` then says so. Limits are those of msprof, msprof-analyze and msadvisor. `source` is
    "prof_rule" for what msprof itself wrote until 2024.
    """

    @property
    def found(self) -> pd.DataFrame:
        """Only the rules that found something, those that affect the most time first."""
        frame = self.frame
        return frame[frame["state"] == "found"].reset_index(drop=True)


class Ascend(View):
    """Measurements of Ascend's profiler (msprof, torch_npu, MindSpore) on an NPU; in a notebook it
    displays as the tab "Ascend".

    Each part has a `frame`, and says in `missing` why there is none. Graphs of TensorFlow and
    MindSpore have `iterations` and `fusion`; PyTorch's single ops have neither.
    """

    def __init__(self, profile: Shown) -> None:
        super().__init__(profile, "ascend")

    def _there(self) -> bool:
        return bool(self.kinds)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        # Tables tell the iterations where no script runs; a picture of steps would double the size
        # of the notebook.
        return self._profile.mimebundle(views=["ascend"], drawn=False)

    @accessor
    def iterations(self) -> Iterations:
        """Time of each iteration by part."""
        return Iterations(self._profile, "iterations")

    @accessor
    def op_types(self) -> OpTypes:
        """Time by type of op."""
        return OpTypes(self._profile, "op_types")

    @accessor
    def ops(self) -> Ops:
        """Tasks of the devices."""
        return Ops(self._profile, "ops")

    @accessor
    def pmu(self) -> Pmu:
        """Core counters."""
        return Pmu(self._profile, "pmu")

    @accessor
    def waits(self) -> Waits:
        """Idle time of streams between their tasks."""
        return Waits(self._profile, "waits")

    @accessor
    def fusion(self) -> Fusion:
        """Ops of the compiled graph, with the ops that each was fused from."""
        return Fusion(self._profile, "fusion")

    @accessor
    def api(self) -> Api:
        """Host calls by software layer, summed up."""
        return Api(self._profile, "api")

    @accessor
    def rules(self) -> Rules:
        """Findings of the rules of Ascend's tools."""
        return Rules(self._profile, "rules")

    @property
    def verdict(self) -> dict[str, Any]:
        """The bottleneck of the iterations: `bound`, `verdict`, `text`, `detail`; without
        iterations, whether the device was idle.
        """
        return dict(self._profile.run.ascend.verdict)

    @property
    def kinds(self) -> list[str]:
        """Kinds of tables in the profile: op_summary, step_trace …; [] if no Ascend profiler wrote
        it.
        """
        return list(self._profile.run.ascend.kinds)

    def table(self, kind: str) -> pd.DataFrame:
        """One kind of table as in the files, with `host` (the recording) and `device`.

        Raises
        ------
        NbprofError
            The profile has no such table; the message says which it has.
        """
        tables = self._profile.run.ascend.tables
        if kind not in tables:
            raise NbprofError(
                f"the profile has no table {kind!r}; it has"
                f" {', '.join(map(repr, tables)) or 'none'}"
            )
        return tables[kind].copy()

    def __repr__(self) -> str:
        verdict = self.verdict
        text = f"{verdict['verdict']}: {verdict['text']}" if verdict["text"] else verdict["verdict"]
        return f"<nbprof ascend: {text}; tables {', '.join(self.kinds) or 'none'}>"
