"""How each device spent its time."""

from __future__ import annotations

import pandas as pd

from nbprof.analysis.device_time import collectives, critical_path, launches
from nbprof.analysis.device_time import device_time as times
from nbprof.analysis.device_time import idle as device_time_idle
from nbprof.analysis.device_time import series as device_time_series
from nbprof.analysis.device_time.series import Floats
from nbprof.analysis.steps import steps
from nbprof.core import trim
from nbprof.core.trace import Note
from nbprof.run import combine
from nbprof.run.lazy import REST, Group, cached, of_hosts, persisted


class DeviceTimeFrames(Group):
    """Work of devices, waits, queues, collectives, the critical path: `run.device_time`."""

    prefix = "device_time_"

    @property
    def frames(self) -> dict[str, pd.DataFrame]:
        """The frames of `p.device_time`, but those of every launch, change or piece, by their name
        in nbprof/schema/device_time.py.
        """
        return {**self._of_devices, "device_overlap": self.overlap, **self._between_devices}

    @of_hosts(combine.below("start_ms"))
    def overlap(self) -> pd.DataFrame:
        """How much of each class of work overlaps another."""
        return times.overlap(self._spent)

    @cached
    def _spent(self) -> times.Spent:
        steps = self.run.steps
        return times.spent(times.work(self.run.activity, self.run.trace), steps)

    @of_hosts(combine.of_devices, REST)
    def _of_devices(self) -> dict[str, pd.DataFrame]:
        activity, trace, spent = self.run.activity, self.run.trace, self._spent
        # The work of the devices is put together once for all of these frames, and let go.
        done = times.work(activity, trace)
        pieces = self._pieces(done, None, None)
        out = {
            "device_time": times.frame(spent),
            "device_kernels": times.kernels(done, trace.display),
            "device_idle": device_time_idle.frame(done, trace),
            "device_idle_causes": device_time_idle.causes(done, activity, trace),
            "device_queue": device_time_series.queue(done, trace),
            "device_launches": launches.summary(done, trace),
            "device_bandwidth": device_time_series.bandwidth(activity, done.ranks),
            "device_critical_path": critical_path.summary(pieces),
        }
        # The classified spans are as many as the events: of a large recording they are made again
        # for the little that needs them later.
        if self.run.as_read.receipt.events >= trim.MANY_EVENTS:
            self.run.made_of_work()
            activity.forget("work")
        return out

    @of_hosts(combine.calls)
    def _calls(self) -> pd.DataFrame:
        return collectives.calls(self.run.activity, self.run.trace)

    @persisted
    def _between_devices(self) -> dict[str, pd.DataFrame]:
        each = self.each_collective()
        judged = self.run.pod_frames.stragglers
        return {
            "device_collectives": collectives.summary(each),
            "device_stragglers": collectives.stragglers(each, self.run.steps, judged),
        }

    @persisted
    def notes(self) -> list[Note]:
        """Receipt notes from comparing ranks; none for a single rank."""
        if len(self.run.hosts) < 2:
            return []
        return [
            *collectives.each(self._calls, self.run.hosts, self.run.steps)[1],
            *collectives.lengths(self.run.steps),
        ]

    @persisted
    def missing(self) -> str:
        """Why there is no device time; '' if there is."""
        if len(self.frames["device_time"]):
            return ""
        return (
            self.run.activity.missing.get("kernels")
            or "This profile has no device activity: the run used only the CPU, or recorded no device."
        )

    def not_launched_ms(self) -> float:
        """Time per step in which devices are idle and their next work is not launched, ms."""
        run = self.run
        return device_time_idle.not_launched_ms(
            times.work(run.activity, run.trace), run.trace, steps.counted(run.steps)
        )

    def each_launch(self) -> pd.DataFrame:
        """One row per launch."""
        return launches.each(times.work(self.run.activity, self.run.trace), self.run.trace)

    def each_collective(self) -> pd.DataFrame:
        """One row per collective and rank."""
        return collectives.each(self._calls, self.run.hosts, self.run.steps)[0]

    def queue_series(self) -> pd.DataFrame:
        """Queue lengths over time."""
        return device_time_series.queue_series(
            times.work(self.run.activity, self.run.trace), self.run.trace
        )

    def queue_curves(self, streams: list[tuple[str, int, str]]) -> list[tuple[Floats, Floats]]:
        """Time in ms and queue length of some streams: host, device and name."""
        return device_time_series.queue_curves(
            times.work(self.run.activity, self.run.trace), self.run.trace, streams
        )

    def bandwidth_series(self) -> pd.DataFrame:
        """Rates of copies over time."""
        ranks = [times.rank_of(host) for host in self.run.activity.hosts]
        return device_time_series.bandwidth_series(self.run.activity, ranks)

    def critical_path_pieces(
        self, step: int | None = None, host: str | None = None
    ) -> pd.DataFrame:
        """The critical path of a step, segment by segment; empty if there is no such step or no
        device.
        """
        return self._pieces(times.work(self.run.activity, self.run.trace), step, host)

    def critical_path_step(self) -> pd.Series | None:
        """The step whose critical path is shown; None for the whole recording."""
        return critical_path.choose(self.run.steps, self.run.hosts)

    def _pieces(self, done: times.Work, step: int | None, host: str | None) -> pd.DataFrame:
        row = critical_path.choose(self.run.steps, self.run.hosts, step, host)
        if not len(done) or (row is None and (step is not None or host is not None)):
            return pd.DataFrame(columns=critical_path.SEGMENTS)
        return critical_path.segments(
            done,
            self.run.activity,
            self.run.trace,
            critical_path.window(done, self.run.activity, self.run.trace, row),
        )
