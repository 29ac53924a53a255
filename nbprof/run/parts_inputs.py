"""The input pipeline and tf.data."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nbprof.analysis.input import input_pipeline, tf_data
from nbprof.run.lazy import Cached, Kept
from nbprof.run.parts_ops import Ops


class Inputs(Ops):
    """Frames of the input pipeline."""

    @Kept
    def input_ops(self) -> pd.DataFrame:
        """Input ops by self time."""
        return input_pipeline.ops(self.activity, self._host_ops[0])

    @Kept
    def input_categories(self) -> pd.DataFrame:
        """The five kinds of input work."""
        return input_pipeline.categories(self.input_ops, self.activity.framework)

    @Kept
    def input_summary(self) -> dict[str, Any]:
        """How much of a step is input, of which kinds, and what to do next."""
        return input_pipeline.summary(self.activity, self.steps, self.input_ops, self._host_ops[0])

    @Kept
    def _tf_data(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        return tf_data.frames(self.activity, tf_data.calls(self.activity))

    @Cached
    def _tf_data_calls(self) -> tf_data.Calls:
        return tf_data.calls(self.activity)

    @property
    def tf_data_pipelines(self) -> pd.DataFrame:
        """tf.data pipelines, slowest first."""
        return self._tf_data[0]

    @property
    def tf_data_nodes(self) -> pd.DataFrame:
        """Iterators of the pipelines."""
        return self._tf_data[1]

    @property
    def tf_data_calls(self) -> pd.DataFrame:
        """Calls of the pipelines, the longest of each first."""
        return self._tf_data[2]

    @property
    def tf_data_slowest(self) -> pd.DataFrame:
        """Iterators of the slowest calls of each pipeline, with the rank of the call."""
        return self._tf_data[3]

    def tf_data_call(self, host: str, pipeline: str, rank: int) -> pd.DataFrame:
        """Iterators of one call, by its rank; empty where there is no such call."""
        if rank < tf_data.SLOWEST:
            kept = self.tf_data_slowest
            mine = (kept["host"] == host) & (kept["pipeline"] == pipeline) & (kept["rank"] == rank)
            return kept[mine].drop(columns=["rank"]).reset_index(drop=True)
        listed = self.tf_data_calls
        at = listed.index[(listed["host"] == host) & (listed["pipeline"] == pipeline) & (listed["rank"] == rank)]
        if not len(at):
            return self.tf_data_nodes.head(0)
        return tf_data.one_call(self.activity, self._tf_data_calls, int(at[0]))
