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
from nbprof.run import combine
from nbprof.run.lazy import Group, cached, of_hosts, persisted


class TfDataFrames(Group):
    """tf.data bottleneck analysis: `run.tf_data`."""

    prefix = "tf_data_"

    @of_hosts(combine.pipelines)
    def _frames(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        return tf_data.frames(self.run.activity, tf_data.calls(self.run.activity))

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
        """Why steps wait for input: the answer that the advice, the tab and the text give."""
        run = self.run
        used, known = counted(run.steps), run.input_summary_of_files
        if known["level"] == "unknown" or not len(used) or used["input_ms"].isna().any():
            return tf_data_advice.NO_CAUSE
        unit, count = run.activity.unit, len(run.steps)
        main = (
            input_advice.main_pipeline(self.nodes, self.pipelines, first_calls(self.calls))
            if len(self.nodes)
            else None
        )
        waits = tf_data_advice.Waits(
            float(used["step_time_ms"].mean()),
            float(used["input_ms"].mean()),
            None if main is None else input_advice.work_ms(main[1], count),
            None if main is None else input_advice.waited_ms(main[1], count, unit),
            hidden=known["level"] == "potential",
        )
        return tf_data_advice.cause(waits, run.activity.has_device, unit)

    @persisted
    def summary(self) -> dict[str, Any]:
        """Whether the slowest host pipeline is the bottleneck."""
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
            kept = self.slowest
            mine = (kept["host"] == host) & (kept["pipeline"] == pipeline) & (kept["rank"] == rank)
            return kept[mine].drop(columns=["rank"]).reset_index(drop=True)
        listed = self.calls
        at = listed.index[
            (listed["host"] == host) & (listed["pipeline"] == pipeline) & (listed["rank"] == rank)
        ]
        if not len(at):
            return self.nodes.head(0)
        return tf_data.one_call(self.run.activity, self._calls, int(at[0]))
