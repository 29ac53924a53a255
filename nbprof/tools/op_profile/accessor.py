"""`p.op_profile`: the time of compiled programs as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from nbprof.analysis.op_profile import op_profile
from nbprof.core.errors import NbprofError
from nbprof.tools.accessor import OfPrograms
from nbprof.tools.plot import displayed

if TYPE_CHECKING:
    from bokeh.model import Model


class OpProfile(OfPrograms):
    """Time of compiled programs as a tree: XProf's op profile.

    `frame` has one row per node, before its children, most time first: all programs, a program, a
    category, ops that the compiler made of the same code ("… and its duplicate(s)"), an op, and the
    ops inside a fusion (`kind`). Idle is left out; see `tree`.

    - `time_us`: self time of the node's ops on all devices; `time_fraction`: of the root's.
    - `flops_utilization`, `bandwidth_utilization`: FLOP/s (8-bit ones as half, 4-bit ones as a
      quarter) and bytes of main memory a second by the device's peaks. A cache may make more than 1
      of the second.
    - `unknown_fraction`: the part of the node's time in ops of which neither FLOPs nor bytes are
      known, as of most custom calls. Utilization and waste are those of the other ops, over their
      time.
    - `wasted_us`: the time times one less the better of the two, which is 1 at most: what would be
      saved at the peak. Of a node with several ops the two are those of all of them together (as in
      XProf), so that it is not the sum of its children's: it is more where some compute and others
      move bytes, and less where one is above a peak, which the sums have and its own figure leaves
      out.
    - Ops inside a fusion have no time of their own; their FLOPs are counted from the program. A
      fusion has at most 100 of them here.

    On the CPU (programs that XLA compiled for it) the time is that of its threads, and its peak
    rates are unknown.

    XProf 2.24.2 has nothing for the CPU, shows at most 100 children of a node, by default without
    idle too, and cuts utilization at 1.
    """

    def _repr_mimebundle_(self, **_: Any) -> Any:
        return self._profile.mimebundle(views=[self._tab])

    def __repr__(self) -> str:
        from nbprof.tools.op_profile import payload as drawn

        return drawn.text(self._profile.run.programs.op_profile_upper, self.missing)

    def tree(self, by: str = "program", *, idle: bool = False) -> pd.DataFrame:
        """The tree with other roots, in the columns of `frame`.

        Parameters
        ----------
        by : str
            "program"; "category": the same categories, groups and ops, of all programs together; or
            "provenance": the names of the framework's ops, scope in scope.
        idle : bool
            Whether the time in which devices ran nothing is a node.

        Raises
        ------
        NbprofError
            `by` is something else.
        """
        if by not in (op_profile.PROGRAM, op_profile.CATEGORY, op_profile.PROVENANCE):
            raise NbprofError(f"by must be 'program', 'category' or 'provenance', not {by!r}")
        if by == op_profile.PROGRAM and not idle:
            return self.frame
        programs = self._profile.run.programs
        return op_profile.frame(programs.activity, programs.measured, by, with_idle=idle)

    def top(self, count: int = 10, sort: str = "wasted_us") -> pd.DataFrame:
        """The ops with the most of something.

        Parameters
        ----------
        count : int
        sort : str
            "wasted_us", "time_us", "flops", "bytes" or "occurrences".

        Raises
        ------
        NbprofError
            No such column to sort by, or `count` is less than 1.
        """
        columns = ("wasted_us", "time_us", "flops", "bytes", "occurrences")
        if sort not in columns or not isinstance(cast("object", count), int) or count < 1:
            raise NbprofError(
                f"sort must be one of {', '.join(map(repr, columns))} and count 1 or more, not"
                f" {sort!r} and {count!r}"
            )
        frame = self.frame
        return (
            frame[frame["kind"] == "op"]
            .sort_values(sort, ascending=False, kind="stable")
            .head(count)
            .reset_index(drop=True)
        )

    def figure(self, by: str = "program", **options: Any) -> Model:
        """A Bokeh figure of the upper levels of the tree: one bar per node, as long as its time,
        with the wasted part pale.
        """
        from nbprof.tools.op_profile import figure as op_profile_figure

        return displayed(op_profile_figure.op_profile(self.tree(by), **options), self)
