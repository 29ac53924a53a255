"""Time by the program's own code: ranges, lines, Python functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from nbprof.analysis import lines as lines_analysis
from nbprof.analysis import unexplained
from nbprof.analysis.ranges import ranges as ranges_analysis
from nbprof.analysis.ranges.totals import Totals
from nbprof.analysis.steps import steps
from nbprof.core.codec.records import record
from nbprof.core.line_times import LineTimes
from nbprof.dialects.environment import origin_ns
from nbprof.run.combine import by
from nbprof.run.frame import cached, frame
from nbprof.run.frames.steps import StepFrames

if TYPE_CHECKING:
    from nbprof.analysis.python import Python, PythonUse

record(Totals)


class CodeFrames(StepFrames):
    """Time in ranges that the program names, in lines of its cells and in Python."""

    @frame(combine=by(ranges_analysis.added))
    def _range_totals(self) -> Totals:
        """Time of the counted steps in ranges that the program named."""
        return ranges_analysis.totals(
            self.activity,
            self.trace,
            steps.counted(self._numbered_steps),
            lambda: self._host_ops[0],
        )

    @frame
    def ranges(self) -> pd.DataFrame:
        """Time by range that the program named."""
        return ranges_analysis.frame(self._range_totals)

    @property
    def outside_ranges(self) -> dict[str, float]:
        """Time per step, in ms, that is in no range."""
        return ranges_analysis.outside_ms(self._range_totals)

    @cached
    def lines(self) -> lines_analysis.Lines:
        """Time by line of the notebook's cells, and of the code of compiled programs."""
        return lines_analysis.lines(
            self.activity, self.trace, self.line_times, self.cells, self.python
        )

    @cached
    def line_times(self) -> LineTimes | None:
        """The line that ran at each moment; None if that was not recorded."""
        if self.capture is None or not self.capture.lines:
            return None
        return LineTimes.unpacked(self.capture.lines)

    @cached
    def python(self) -> Python | None:
        """Python time from sampled stacks; None if none were recorded."""
        if self.capture is None or not self.capture.python:
            return None
        # Imported late, as most profiles have none.
        from nbprof.analysis.python import Python
        from nbprof.core.python_samples import PythonSamples

        samples = PythonSamples.unpacked(self.capture.python)
        return Python(samples, self.cells) if samples is not None else None

    @cached
    def unexplained(self) -> PythonUse | None:
        """Python's part of the time in counted steps in which nothing was recorded.

        None if Python's stacks were not sampled.
        """
        recorded = self._steps_and_busy[0]
        if self.capture is None or self.python is None or not len(recorded):
            return None
        if self.parts is not None or len(self.hosts) != 1:
            return None
        waited = self.capture.contention.get("waited_percent", 0.0) / 100
        return unexplained.use(
            self.python, self.activity, steps.counted(recorded), origin_ns(self.trace), waited
        )
