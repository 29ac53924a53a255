"""Hosts and devices compared with each other: stragglers, collectives, clocks, device time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.analysis.device_time import collectives, critical_path, launches
from nbprof.analysis.device_time import device_time as times
from nbprof.analysis.device_time import idle as device_time_idle
from nbprof.analysis.device_time import series as device_time_series
from nbprof.analysis.device_time.series import Floats
from nbprof.analysis.pods import clocks, memory, sums
from nbprof.analysis.pods.compare import compare, nothing
from nbprof.analysis.steps import pods, steps
from nbprof.core import trim
from nbprof.core.receipt import Note
from nbprof.run.combine import below, stacked
from nbprof.run.frame import Group, Hosts, Phase, cached, frame
from nbprof.run.frames.ops import OpFrames


def _stack_device_frames(
    values: list[dict[str, pd.DataFrame]], hosts: Hosts
) -> dict[str, pd.DataFrame]:
    """The frames of device time of all hosts; the critical path of the first host that has one."""
    frames = {}
    for name in values[0]:
        if name == "device_critical_path":
            continue
        frame = stacked([value[name] for value in values], hosts, ["start_ms"])
        # A position in the trace of one host is none in that of the run.
        positions = [column for column in ("_at_ms", "_for_ms") if column in frame]
        frames[name] = frame.assign(**dict.fromkeys(positions, np.nan))
    paths = [value["device_critical_path"] for value in values]
    frames["device_critical_path"] = next((path for path in paths if len(path)), paths[0])
    return frames


def _stack_calls(values: list[pd.DataFrame], hosts: Hosts) -> pd.DataFrame:
    """Collectives of all hosts, times in ps."""
    moved = []
    for value, offset_ms in zip(values, hosts.clock_offsets_ms, strict=True):
        offset = round(offset_ms * 1e9)
        moved.append(value.assign(start=value["start"] + offset, end=value["end"] + offset))
    return stacked(moved, hosts)


class DeviceTimeFrames(Group["HostFrames"]):
    """Work of devices, waits, queues, collectives, the critical path: `run.device_time`."""

    prefix = "device_time_"

    @property
    def frames(self) -> dict[str, pd.DataFrame]:
        """The frames of `p.device_time` by their names in nbprof/schema/device_time.py.

        Without those with a row per launch, change or segment.
        """
        return {**self._of_devices, "device_overlap": self.overlap, **self._between_devices}

    @frame(combine=below("start_ms"))
    def overlap(self) -> pd.DataFrame:
        """How much of each class of work overlaps another."""
        return times.overlap(self._spent)

    @cached
    def _spent(self) -> times.Spent:
        """How much of each class of work ran in the recording, and in each step."""
        steps = self.run.steps
        return times.spent(self._work(), steps)

    @frame(combine=_stack_device_frames, phase=Phase.REST)
    def _of_devices(self) -> dict[str, pd.DataFrame]:
        activity, trace, spent = self.run.activity, self.run.trace, self._spent
        # Built once for all of these frames, and freed with them.
        work = self._work()
        path = self._critical_path(work)
        frames = {
            "device_time": times.frame(spent),
            "device_kernels": times.kernels(work, trace.display),
            "device_idle": device_time_idle.frame(work, trace),
            "device_idle_causes": device_time_idle.causes(work, activity, trace),
            "device_queue": device_time_series.queue(work, trace),
            "device_launches": launches.summary(work, trace),
            "device_bandwidth": device_time_series.bandwidth(activity, work.ranks),
            "device_critical_path": critical_path.summary(path),
        }
        # There are as many classified spans as events: those of a large recording are built again
        # for the few frames that need them later.
        if self.run.as_read.receipt.events >= trim.MANY_EVENTS:
            self.run.compute_from_work()
            activity.forget("work")
        return frames

    def _work(self) -> times.Work:
        """The work of all devices. It is not cached, as it is as large as the recording."""
        return times.work(self.run.activity, self.run.trace)

    @frame(combine=_stack_calls)
    def _calls(self) -> pd.DataFrame:
        return collectives.calls(self.run.activity, self.run.trace)

    @frame
    def _between_devices(self) -> dict[str, pd.DataFrame]:
        calls = self.each_collective()
        stragglers = self.run.pod_frames.stragglers
        return {
            "device_collectives": collectives.summary(calls),
            "device_stragglers": collectives.stragglers(calls, self.run.steps, stragglers),
        }

    @frame
    def notes(self) -> list[Note]:
        """Receipt notes from comparing ranks; none for a single rank."""
        if len(self.run.hosts) < 2:
            return []
        return [
            *collectives.each(self._calls, self.run.hosts, self.run.steps)[1],
            *collectives.lengths(self.run.steps),
        ]

    @frame
    def missing(self) -> str:
        """Why there is no device time; '' if there is."""
        if len(self.frames["device_time"]):
            return ""
        return (
            self.run.activity.missing.get("kernels")
            or "This profile has no device activity: the run used only the CPU, or recorded no"
            " device."
        )

    def not_launched_ms(self) -> float:
        """Time per step in which devices are idle and their next work is not launched, ms."""
        return device_time_idle.not_launched_ms(
            self._work(), self.run.trace, steps.counted(self.run.steps)
        )

    def each_launch(self) -> pd.DataFrame:
        """One row per launch."""
        return launches.each(self._work(), self.run.trace)

    def each_collective(self) -> pd.DataFrame:
        """One row per collective and rank."""
        return collectives.each(self._calls, self.run.hosts, self.run.steps)[0]

    def queue_series(self) -> pd.DataFrame:
        """Queue lengths over time."""
        return device_time_series.queue_series(self._work(), self.run.trace)

    def queue_curves(self, streams: list[tuple[str, int, str]]) -> list[tuple[Floats, Floats]]:
        """Time in ms and queue length of some streams: host, device and name."""
        return device_time_series.queue_curves(self._work(), self.run.trace, streams)

    def bandwidth_series(self) -> pd.DataFrame:
        """Rates of copies over time."""
        ranks = [times.rank_of(host) for host in self.run.activity.hosts]
        return device_time_series.bandwidth_series(self.run.activity, ranks)

    def critical_path_pieces(
        self, step: int | None = None, host: str | None = None
    ) -> pd.DataFrame:
        """The segments of the critical path of a step; none without that step or a device."""
        return self._critical_path(self._work(), step, host)

    def critical_path_step(self) -> pd.Series | None:
        """The step whose critical path is shown; None for the whole recording."""
        return critical_path.choose(self.run.steps, self.run.hosts)

    def _critical_path(
        self, work: times.Work, step: int | None = None, host: str | None = None
    ) -> pd.DataFrame:
        activity, trace = self.run.activity, self.run.trace
        row = critical_path.choose(self.run.steps, self.run.hosts, step, host)
        unknown_step = row is None and (step is not None or host is not None)
        if not len(work) or unknown_step:
            return pd.DataFrame(columns=critical_path.SEGMENTS)
        window = critical_path.window(work, activity, trace, row)
        return critical_path.segments(work, activity, trace, window)


class PodFrames(Group["HostFrames"]):
    """Stragglers, outliers, clocks: `run.pod_frames`."""

    prefix = "pods_"

    @frame(combine=below())
    def sums(self) -> pd.DataFrame:
        """Time by op and kernel of each host."""
        host_ops = self.run._host_ops[0]
        return sums.by_host(
            self.run.activity, self.run.trace.events.start, host_ops, self.run.steps
        )

    @frame(combine=below())
    def memory_calls(self) -> pd.DataFrame:
        """Time of each host in calls that allocate and free device memory, by step."""
        return memory.calls(self.run.activity, self.run.steps)

    @frame(combine=below("start_ms"))
    def host_communication(self) -> pd.DataFrame:
        """Time of each step in collectives that run on the host, as Gloo's do."""
        from nbprof.analysis.pods import host_communication

        return host_communication.by_step(self.run.trace, self.run.activity, self.run.steps)

    @frame
    def ahead_ms(self) -> dict[str, float]:
        """How far the clock of each host is ahead of that of the first, by their collectives.

        Empty if the collectives do not tell it for every host.
        """
        hosts = self.run.hosts
        calls = self.run.device_time.each_collective() if len(hosts) > 1 else pd.DataFrame()
        frame = clocks.clocks(hosts, calls, pd.DataFrame(), pd.DataFrame())
        if not len(frame) or frame[clocks.AHEAD].isna().any():
            return {}
        return dict(zip(frame["host"], frame[clocks.AHEAD].astype(float), strict=True))

    @frame
    def frames(self) -> dict[str, pd.DataFrame]:
        """The frames of `p.pods` that compare hosts, by their names in nbprof/schema/pods.py."""
        run = self.run
        if len(run.hosts) < 2 and len(run.devices) < 2:
            return nothing()
        overlap, all_steps = run.device_time.overlap, run.steps
        if not len(overlap) and len(self.host_communication):
            from nbprof.analysis.pods import host_communication

            overlap = self.host_communication
            all_steps = host_communication.without_waiting(all_steps, overlap)
        calls = run.device_time.each_collective()
        frames = compare(
            run.hosts,
            all_steps,
            run.pods,
            overlap,
            calls,
            self.sums,
            run.devices,
            self.memory_calls,
        )
        if run.activity.unit.is_recording:
            # Recordings that nothing divides may cover different work, so a longer one is not slow.
            empty = nothing()
            for name in ("stragglers", "what_if", "outliers"):
                frames[name] = empty[name]
        return frames

    @cached
    def stragglers(self) -> pd.DataFrame:
        """Ranks by how long the others wait for them."""
        return self.frames["stragglers"]

    @cached
    def what_if(self) -> pd.DataFrame:
        """Step times if one thing changed."""
        return self.frames["what_if"]

    @cached
    def outliers(self) -> pd.DataFrame:
        """Ops and kernels that are slow on some hosts."""
        return self.frames["outliers"]

    @cached
    def collectives(self) -> pd.DataFrame:
        """Collectives by their members."""
        return self.frames["collectives"]

    @cached
    def clocks(self) -> pd.DataFrame:
        """Differences between the clocks of hosts."""
        return self.frames["clocks"]


class HostFrames(OpFrames):
    """Steps by worker, and the families that compare hosts and devices."""

    @property
    def device_time(self) -> DeviceTimeFrames:
        """How each device spent its time."""
        return DeviceTimeFrames(self)

    @property
    def pod_frames(self) -> PodFrames:
        """Hosts compared with each other."""
        return PodFrames(self)

    @frame
    def _pods(self) -> tuple[pd.DataFrame, list[Note]]:
        return pods.frame(
            self.steps, self._steps_of_cores, self.pod_frames.ahead_ms, self.activity.unit
        )

    @cached
    def pods(self) -> pd.DataFrame:
        """Each step on each worker."""
        return self._pods[0]

    @frame
    def pods_summary(self) -> pd.DataFrame:
        """The slowest worker of each step, and the spread."""
        return pods.summary(self.pods)
