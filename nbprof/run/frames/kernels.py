"""GPU kernels and graphs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.analysis import graphs, kernels, multiprocessors
from nbprof.analysis.ops import longest_calls
from nbprof.run.combine import below, by
from nbprof.run.frame import Phase, frame
from nbprof.run.frames.steps import StepFrames


class KernelFrames(StepFrames):
    """GPU kernels and replays of graphs."""

    @frame(combine=by(kernels.added))
    def kernels(self) -> pd.DataFrame:
        """GPU kernels."""
        return kernels.frame(self.activity)

    @frame(combine=below(), phase=Phase.REST)
    def kernel_devices(self) -> pd.DataFrame:
        """How much of each GPU the kernels used."""
        return multiprocessors.frame(self.activity, self.steps, self.trace.events.start)

    @frame
    def longest_launches(self) -> pd.DataFrame:
        """The longest launch of each row of `kernels`: `at_ms for_ms`, NaN if unknown."""
        if self.parts is not None:
            # A position in the trace of one host is none in that of the run.
            return pd.DataFrame({"at_ms": np.nan, "for_ms": np.nan}, index=self.kernels.index)
        start_ms, length_ms = longest_calls.kernels(
            self.activity, self.kernels, self.trace.events.start
        )
        return pd.DataFrame({"at_ms": start_ms, "for_ms": length_ms})

    @frame(combine=below(), phase=Phase.REST)
    def graphs(self) -> pd.DataFrame:
        """Replays of CUDA and HIP graphs."""
        return graphs.graphs(self.activity)

    @frame
    def graph_nodes(self) -> pd.DataFrame:
        """Nodes of CUDA and HIP graphs over their replays.

        They are as many as kernels, so hosts that are read separately do not send them.
        """
        return graphs.nodes(self.activity)

    @frame
    def xprof_kernels(self) -> pd.DataFrame:
        """GPU kernels by the rules of XProf 2.24."""
        return kernels.as_xprof(self.activity)
