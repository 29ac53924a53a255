"""`p.hlo`: ops of programs that XLA compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.tools.accessor import OfPrograms

if TYPE_CHECKING:
    from bokeh.model import Model


class Hlo(OfPrograms):
    """Time by op of compiled XLA programs, as XProf's HLO stats.

    `frame` has one row per op of a program, most self time first (ties by program and name). The
    same name in two programs is two ops.

    - `category` is XLA's: the kind of a fusion ("loop fusion", "input fusion", "output fusion",
      "custom fusion"), "non-fusion elementwise", "data formatting" (copy, transpose, reshape),
      "convolution" with its dilations, else the opcode.
    - `occurrences`: runs on all devices; a GPU may run an op as several kernels, of which the one
      that ran most counts.
    - `flops_per_second`, `bytes_per_second`: of all runs over `total_us`. TPUs state what an op
      computes and moves; for GPUs it is counted from the compiled program by XLA's cost analysis.
      `memory_bytes_per_second` is the device's main memory alone, where a TPU tells it apart. What
      is known of neither is missing: of custom calls those of cuBLAS, cuDNN's convolutions and
      attention, and kernels of Pallas with a `cost_estimate` are counted, all others are unknown. A
      rate that no memory reaches is missing too: of copies that only begin, or are found done, in
      no time.
    - `operational_intensity`: FLOPs per byte. `bound_by`: Compute or main memory (HBM, Device
      memory if it is not HBM, or Main memory of a CPU; XProf always says HBM), whichever is closer
      to the device's peak. `bound` is the same if the op reaches 60 % of that peak, as in Nsight
      Compute, else "Latency": see `p.roofline`.
    - `expression` is the op as XLA writes it, without metadata, shardings and backend settings.
    - An op whose program is not in the file is listed with what its events say about it: `in_file`
      is False.

    Where XProf 2.24.2 differs, which `as_xprof()` shows: ops whose program is not in the file are
    left out; each kernel counts as a run of its op, so one of two kernels has its FLOPs and bytes
    twice; matrix products by cuBLAS's older interface, attention of cuDNN and custom calls of which
    nothing is known have 0; shares are of the time with idle; the intensity is of FLOPs as of 16
    bits; bytes of a GPU's main memory leave out what an op writes as a tuple.
    """

    def as_xprof(self) -> pd.DataFrame:
        """The exact rows of XProf 2.24.2, for comparison; unknown values are 0. XProf orders equal
        self times differently.
        """
        return self._profile.run.programs.xprof_hlo.copy()

    def by(self, column: str = "category") -> pd.DataFrame:
        """Self time by another column, most first: XProf's charts.

        Parameters
        ----------
        column : str
            "category", "program", "op", "framework_op", "bound", "bound_by", "source",
            "rematerialized" or "in_file".

        Raises
        ------
        NbprofError
            No such column.
        """
        columns = (
            "category",
            "program",
            "op",
            "framework_op",
            "bound",
            "bound_by",
            "source",
            "rematerialized",
            "in_file",
        )
        if column not in columns:
            raise NbprofError(
                f"column must be one of {', '.join(map(repr, columns))}, not {column!r}"
            )
        sums = (
            self.frame.groupby(column, sort=False)[
                ["occurrences", "total_us", "self_us", "self_fraction"]
            ]
            .sum()
            .reset_index()
        )
        return sums.sort_values(
            ["self_us", column], ascending=[False, True], kind="stable", ignore_index=True
        )

    def figure(self, **options: Any) -> Model:
        """A Bokeh bar chart: self time by category, and within each by op."""
        return self._figure("hlo", **options)
