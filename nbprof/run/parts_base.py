"""What every other frame is made of: the activity, the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis import overview
from nbprof.analysis.steps import steps
from nbprof.core.trace import Trace
from nbprof.run.lazy import Cached, Kept, Lazy
from nbprof.run.source import Dialect, RunSource

if TYPE_CHECKING:
    from nbprof.run.cache.run_cache import Shelf
    from nbprof.sources.recording import CaptureInfo


class Base(Lazy):
    """The activity of a profile, its devices and its steps."""

    def __init__(
        self,
        trace: Trace,
        interpret: Dialect,
        source: RunSource,
        capture: CaptureInfo | None = None,
        shelf: Shelf | None = None,
        given_peaks: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(source, shelf)
        self._given_peaks = dict(given_peaks or {})
        self._trace = trace
        self._interpret = interpret
        self.capture = capture

    @Cached
    def activity(self) -> Activity:
        """What the dialect makes of the trace."""
        activity = self._interpret(self._trace)
        activity.give_peaks(self._given_peaks)
        return activity

    @property
    def trace(self) -> Trace:
        """Every event, on lanes that the dialect has named."""
        _ = self.activity
        return self._trace

    @Kept
    def hosts(self) -> list[str]:
        """Machines that recorded."""
        return list(self.trace.hosts)

    @Kept
    def devices(self) -> pd.DataFrame:
        """One row a device."""
        return self.activity.devices

    @Kept
    def _steps_and_share(self) -> tuple[pd.DataFrame, float | None, pd.DataFrame, float | None]:
        frame = steps.frame(self.activity, warmup=self.capture.warmup if self.capture is not None else None)
        busy = overview.busy(self.activity, frame)
        out = frame, steps.share_of_16_bit(self.activity), steps.by_core(self.activity), busy
        # Nothing else is made of the classified spans, and they are as many as the events.
        self.activity.forget("work")
        return out

    @property
    def steps(self) -> pd.DataFrame:
        """Steps with their breakdown."""
        return self._steps_and_share[0]

    @Kept
    def steps_summary(self) -> pd.DataFrame:
        """Mean, sd and range of each category."""
        return steps.summary(self.steps)
