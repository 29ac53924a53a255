"""Pipelines of tf.data."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nbprof.analysis.advice import input as input_advice
from nbprof.analysis.advice import tf_data as tf_data_advice
from nbprof.analysis.advice.evidence import first_calls
from nbprof.analysis.input import tf_data
from nbprof.analysis.steps.steps import counted
from nbprof.frameworks.register import PYTORCH
from nbprof.run.combine import stacked
from nbprof.run.frame import Group, Hosts, cached, frame
from nbprof.run.frames.overview import OverviewFrames

PipelineFrames = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]
"""Pipelines, iterators, calls, and iterators of the slowest calls."""


def _stack_pipelines(values: list[PipelineFrames], hosts: Hosts) -> PipelineFrames:
    """Pipelines of all hosts, the slowest first, with their iterators and calls."""
    pipelines, nodes, calls, slowest = (
        stacked(frames, hosts, ["start_ms"]) for frames in zip(*values, strict=True)
    )
    if "max_us" in pipelines:
        pipelines = pipelines.sort_values(
            "max_us", ascending=False, kind="stable", ignore_index=True
        )
    return pipelines, nodes, calls, slowest


class TfDataFrames(Group[OverviewFrames]):
    """tf.data bottleneck analysis: `run.tf_data`."""

    prefix = "tf_data_"

    @frame(combine=_stack_pipelines)
    def _frames(self) -> PipelineFrames:
        return tf_data.frames(self.run.activity)

    @cached
    def _calls(self) -> tf_data.Calls:
        return tf_data.calls(self.run.activity)

    @cached
    def pipelines(self) -> pd.DataFrame:
        """tf.data pipelines, slowest first."""
        return self._frames[0]

    @cached
    def nodes(self) -> pd.DataFrame:
        """Iterators of the pipelines."""
        return self._frames[1]

    @cached
    def calls(self) -> pd.DataFrame:
        """Calls of the pipelines, the longest of each first."""
        return self._frames[2]

    @cached
    def slowest(self) -> pd.DataFrame:
        """Iterators of the slowest calls of each pipeline, with the rank of the call."""
        return self._frames[3]

    @cached
    def cause(self) -> tf_data_advice.Cause:
        """Why steps wait for input, for the advice, the tab and the text."""
        run = self.run
        steps, level = counted(run.steps), run.input_summary_of_files["level"]
        if level == "unknown" or not len(steps) or steps["input_ms"].isna().any():
            return tf_data_advice.NO_CAUSE
        unit, count = run.activity.unit, len(run.steps)
        work_ms = waited_ms = None
        if len(self.nodes):
            main = input_advice.main_pipeline(self.nodes, self.pipelines, first_calls(self.calls))
            if main is not None:
                work_ms = input_advice.work_ms(main[1], count)
                waited_ms = input_advice.waited_ms(main[1], count, unit)
        waits = tf_data_advice.Waits(
            float(steps["step_time_ms"].mean()),
            float(steps["input_ms"].mean()),
            work_ms,
            waited_ms,
            hidden=level == "potential",
        )
        return tf_data_advice.cause(waits, run.activity.has_device, unit)

    @frame
    def summary(self) -> dict[str, Any]:
        """The slowest host pipeline, and if it is the bottleneck."""
        activity = self.run.activity
        missing = activity.missing.get("input", "")
        if not missing and activity.framework is PYTORCH:
            source = "a PyTorch DataLoader or a Python iterator"
            missing = f"The input comes from {source}, not from tf.data: see the input pipeline."
        return tf_data_advice.summary(
            self.pipelines,
            missing,
            self.run.overview_of_files["input_percent"],
            activity.unit,
            self.cause,
        )

    def call(self, host: str, pipeline: str, rank: int) -> pd.DataFrame:
        """Iterators of one call, by its rank; empty if there is no such call."""
        if rank < tf_data.SLOWEST:
            rows = _rows_of_call(self.slowest, host, pipeline, rank)
            return rows.drop(columns=["rank"]).reset_index(drop=True)
        calls = _rows_of_call(self.calls, host, pipeline, rank)
        if not len(calls):
            return self.nodes.head(0)
        return tf_data.one_call(self.run.activity, self._calls, int(calls.index[0]))


def _rows_of_call(frame: pd.DataFrame, host: str, pipeline: str, rank: int) -> pd.DataFrame:
    return frame[
        (frame["host"] == host) & (frame["pipeline"] == pipeline) & (frame["rank"] == rank)
    ]
