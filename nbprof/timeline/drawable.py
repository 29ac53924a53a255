"""The part of a run that the timeline uses: its events, their meaning, and the frames that it
points into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import pandas as pd

    from nbprof.activity.activity import Activity
    from nbprof.core.trace import Trace
    from nbprof.core.worker_times import WorkerTimes

T = TypeVar("T")


class Source(Protocol):
    """The files of a run."""

    def content_key(self) -> str:
        """The key by which a saved output identifies the run."""


class Drawable(Protocol):
    """A run whose events can be drawn; `nbprof.run.run.Run` is one."""

    @property
    def source(self) -> Source: ...  # noqa: D102
    @property
    def trace(self) -> Trace: ...  # noqa: D102
    @property
    def activity(self) -> Activity: ...  # noqa: D102
    @property
    def cells(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def hosts(self) -> list[str]: ...  # noqa: D102
    @property
    def worker_times(self) -> WorkerTimes: ...  # noqa: D102
    @property
    def steps(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def input_ops(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def ops(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def kernels(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def memory_summary(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def memory_timeline(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def memory_peak(self) -> pd.DataFrame: ...  # noqa: D102

    def persist(self, name: str, compute: Callable[[], T]) -> T:
        """A value that follows from the files alone, out of the cache where that has it; `compute`
        makes it otherwise.
        """
