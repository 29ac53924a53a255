"""The base of all frames: trace and activity, hosts and devices, how a run was recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.steps import tpu_cores
from nbprof.core.files import RunFiles, SourceFile
from nbprof.core.guard import Failures
from nbprof.core.trace import Trace
from nbprof.dialects import sanity
from nbprof.dialects.xplane import tpu_cores as xplane_tpu_cores
from nbprof.run import stated
from nbprof.run.cache.run_cache import RunCache
from nbprof.run.combine import below, chained, stacked
from nbprof.run.frame import Frames, Hosts, Memo, cached, frame
from nbprof.run.source import Dialect, RunSource

if TYPE_CHECKING:
    from nbprof.analysis.pools import Pools
    from nbprof.core.loader_uses import LoaderUse
    from nbprof.core.worker_times import WorkerTimes
    from nbprof.dialects.gpu.captures import Capture
    from nbprof.sources.recording import CaptureInfo

T = TypeVar("T")


def _stack_intervals(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """When each host recorded; times are in ps."""
    moved = []
    for value, offset_ms in zip(values, hosts.clock_offsets_ms, strict=True):
        times = {name: value[name] + round(offset_ms * 1e9) for name in ("begin", "start", "end")}
        moved.append(value.assign(**times))
    return stacked(moved, hosts)


class Recording(Frames):
    """A recorded run, as all of its frames see it.

    Parameters
    ----------
    trace : Trace
        As the reader of its format returned it.
    interpret : callable
        The dialect; called when something is first needed that is not cached.
    source : RunSource
    capture : CaptureInfo, optional
        How it was recorded, if nbprof recorded it.
    run_cache : RunCache, optional
        The cache of this run; none by default.
    given_peaks : dict, optional
        Peaks of the devices, by the names of `given_peaks.KEYS`.

    Attributes
    ----------
    as_read : Trace
        The trace before the dialect names its lanes; `trace` is the one after.
    files : RunFiles, optional
        Its files.
    snapshot_pieces : sequence of SourceFile
        Files of allocator snapshots: the profile itself, or files next to its trace.
    graph_captures : sequence of Capture
        The graphs that it replays, from the traces that captured them.
    """

    def __init__(
        self,
        trace: Trace,
        interpret: Dialect,
        source: RunSource,
        capture: CaptureInfo | None = None,
        run_cache: RunCache | None = None,
        given_peaks: Mapping[str, float] | None = None,
    ) -> None:
        self.source = source
        self.capture = capture
        self.files: RunFiles | None = None
        self.as_read = trace
        self.snapshot_pieces: Sequence[SourceFile] = ()
        self.graph_captures: Sequence[Capture] = ()
        self.memo = Memo(
            source, run_cache, Failures(partial(trace.receipt.warn, key="part_failed"))
        )
        self._interpret = interpret
        self._given_peaks = dict(given_peaks or {})

    def persist(self, name: str, compute: Callable[[], T]) -> T:
        """A value that follows from the files alone, from the cache if possible, else computed."""
        return self.memo.persisted(name, compute)

    @cached
    def activity(self) -> Activity:
        """The activity that the dialect derives from the trace."""
        activity = self._interpret(self.as_read)
        activity.give_peaks(self._given_peaks)
        return activity

    @property
    def trace(self) -> Trace:
        """Every event, on lanes named by the dialect."""
        _ = self.activity
        return self.as_read

    @frame(combine=chained)
    def hosts(self) -> list[str]:
        """Machines that recorded."""
        return list(self.trace.hosts)

    @property
    def recorded_s(self) -> float | None:
        """Seconds from the start of the recording to its last event; of several hosts, the longest.

        None without events.
        """
        length_ps = sanity.length_ps(self._recorded_intervals)
        return None if length_ps is None else length_ps / 1e12

    @frame(combine=below())
    def devices(self) -> pd.DataFrame:
        """One row per device."""
        return self.activity.devices

    @frame(combine=stated.combined)
    def stated(self) -> dict[str, Any]:
        """Facts that the profile states about itself."""
        return stated.of(self.activity, len(self.as_read.modules))

    @frame(combine=below())
    def devices_and_cores(self) -> pd.DataFrame:
        """One row per device and per SparseCore of a TPU."""
        return tpu_cores.with_sparse_cores(
            self.activity.devices, xplane_tpu_cores.sparse_cores(self.trace)
        )

    @property
    def loaders(self) -> tuple[LoaderUse, ...]:
        """The data loaders that the program iterated over, as the recording states them."""
        if self.capture is None:
            return ()
        from nbprof.core import loader_uses

        return loader_uses.unpacked(self.capture.loaders)

    @cached
    def worker_times(self) -> WorkerTimes:
        """Times of the workers of loaders, as the recording states it."""
        from nbprof.core import worker_times

        return worker_times.unpacked(self.capture.workers if self.capture is not None else None)

    @cached
    def input_workers(self) -> pd.DataFrame:
        """One row per worker of a loader."""
        from nbprof.analysis.input import workers

        return workers.workers(self.worker_times)

    @cached
    def input_transforms(self) -> pd.DataFrame:
        """One row per stage of the items that workers made."""
        from nbprof.analysis.input import workers

        return workers.transforms(self.worker_times, self.cells)

    @cached
    def pools(self) -> Pools:
        """The process pools that tasks were sent to, as the recording states them."""
        from nbprof.analysis.pools import Pools
        from nbprof.core import pool_times

        recorded = pool_times.unpacked(self.capture.pools if self.capture is not None else None)
        return Pools(recorded, self.cells)

    @property
    def cells(self) -> dict[str, int]:
        """Execution counts of the notebook's cells by the names of their files."""
        return self.capture.cells if self.capture is not None else {}

    @frame(combine=_stack_intervals)
    def _recorded_intervals(self) -> pd.DataFrame:
        return sanity.recorded(self.trace)
