"""`p.device_time`: how devices spent their time, and what they waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.analysis.device_time import critical_path
from nbprof.core.errors import NbprofError
from nbprof.tools.accessor import View

if TYPE_CHECKING:
    from bokeh.model import Model

    from nbprof.tools.accessor import Shown


class DeviceTime(View):
    """Time of devices: computing, communicating, copying or idle, and the causes of idle time.

    The analyses are those of Holistic Trace Analysis (HTA), for every profile with device work:
    PyTorch on CUDA, ROCm and others, TensorFlow and JAX on GPUs and TPUs. Times are whole
    picoseconds until they are shown.

    - Work is every kernel, copy and fill on any stream; on a TPU, every op of a core. Waits that a
      profiler draws on streams are not work.
    - `class` is `communication` for collectives (by name, by the arguments of the kernel, or by the
      op that launched it), `memory` for copies and fills, else `compute`.
    - Rows with a missing `step` cover the whole recording, from the first work of the device to its
      last. Other rows cover the steps of `p.steps`, at whose borders work is cut.
    - `rank` is from the file's `distributedInfo`, else the number in its name (`rank3`), else
      missing.

    Where HTA 0.5 differs: it rounds to microseconds; puts the sum of a kernel in place of its mean,
    least and largest time where there are more kernels than it is to list; knows the launches of
    CUDA alone, and not those of graphs; counts waits of `cuda_sync` as work; finds no straggler
    among kernels of NCCL 2.19 and later; keeps one stream of those with a full queue; averages
    queue lengths over changes instead of time; leaves the last step out; takes copies without a
    duration for copies of 1 µs.
    """

    def __init__(self, profile: Shown) -> None:
        super().__init__(profile, "device_time")

    def _frame(self, name: str) -> pd.DataFrame:
        frame = self._profile.run.device_time.frames[name]
        return frame.drop(columns=[c for c in frame.columns if c.startswith("_")]).copy()

    @property
    def missing(self) -> str:
        """Why there is nothing, in a sentence; '' where there is something."""
        return self._profile.run.device_time.missing

    @property
    def frame(self) -> pd.DataFrame:
        """Temporal breakdown: one row per device for the whole recording, then one for each step.

        Each moment counts once: as computation where any kernel computes, else as communication,
        else as memory, else as idle; so the four add up to `time_ms`. `overlap` says how much of
        each overlapped another.
        """
        return self._frame("device_time")

    @property
    def overlap(self) -> pd.DataFrame:
        """Total time of each class, and how long two of them overlapped, in the rows of `frame`.

        `communication_overlap_percent` is the part of communication hidden by computation; missing
        if nothing communicated.
        """
        return self._frame("device_overlap")

    @property
    def idle(self) -> pd.DataFrame:
        """Idle time breakdown: the gaps between two pieces of work on a stream, and on the whole
        device (`stream` empty), by category.

        `host_wait`: the next work was launched after the gap began. Else `kernel_wait` if the gap
        is shorter than 30 µs, the usual time between two kernels. Else `other`: the work was queued
        and waited for an event, another stream or another rank; also where its launch was not
        recorded. A stream without known launches has no row for `host_wait`.
        """
        return self._frame("device_idle")

    @property
    def idle_causes(self) -> pd.DataFrame:
        """Host activity while a device waited for its next launch, most time first; each moment
        counts once.

        `preparing launches` is TensorFlow's executor, `in other host work` what else `p.steps`
        counts as host compute or compiling, and `outside any recorded op or call` the program's own
        code between ops, or time that was not recorded.
        """
        return self._frame("device_idle_causes")

    @property
    def kernels(self) -> pd.DataFrame:
        """Time by class and name of kernels, copies and fills of each device, most first.
        `p.kernels` has ops and launch shapes.
        """
        return self._frame("device_kernels")

    @property
    def queue(self) -> pd.DataFrame:
        """Number of launches queued on each stream: launched but not started. Means and medians are
        over time.
        """
        return self._frame("device_queue")

    @property
    def queue_series(self) -> pd.DataFrame:
        """The length of the queue of each stream whenever it changes: plus one at each launch,
        minus one as the work starts.
        """
        return self._profile.run.device_time.queue_series()

    @property
    def launches(self) -> pd.DataFrame:
        """Launches of each device as a whole (`kernel` empty), then by the name of what they
        launched, most launches first.
        """
        return self._frame("device_launches")

    @property
    def each_launch(self) -> pd.DataFrame:
        """One row per launch, in time order. A graph launch is one row: its first kernel, and the
        time of all of them.
        """
        return self._profile.run.device_time.each_launch()

    @property
    def bandwidth(self) -> pd.DataFrame:
        """Bandwidth of each kind of copy, as stated in the file, else size divided by time."""
        return self._frame("device_bandwidth")

    @property
    def bandwidth_series(self) -> pd.DataFrame:
        """The total rate of concurrent copies of a kind, whenever it changes: each copy adds its
        own rate from its start to its end.
        """
        return self._profile.run.device_time.bandwidth_series()

    @property
    def collectives(self) -> pd.DataFrame:
        """Collectives by kind, group and size: waiting, the time of the collective itself,
        algorithm and bus bandwidth.

        The calls of several ranks are matched by the collective's number in its process group or,
        if that was not recorded, by its position in its step. Ranks leave together, so the shortest
        call is the duration of the collective, and any further time of the others is waiting;
        clocks need not agree. Bandwidth is computed as in NCCL's tests: size divided by that time,
        and for the bus 2(n-1)/n of it for an all-reduce, (n-1)/n for all-gather, reduce-scatter and
        all-to-all of n ranks. It is missing if the profile has only one rank.
        """
        return self._frame("device_collectives")

    @property
    def each_collective(self) -> pd.DataFrame:
        """One row per collective and rank, in time order for each rank; `match` is the same number
        for all ranks of one collective.
        """
        return self._profile.run.device_time.each_collective().drop(columns="turn")

    @property
    def stragglers(self) -> pd.DataFrame:
        """The rank that the others waited for: in the whole recording, then step by step.

        In each collective some rank is the last, and `waited_for` marks the one that cost most.
        Whether a rank is a straggler, which holds the others up by more than chance explains, is
        decided in `p.pods.stragglers`; `straggler` repeats that.
        """
        return self._frame("device_stragglers")

    @property
    def critical_path(self) -> pd.DataFrame:
        """The critical path of the step of median length, by kind of segment; of the whole
        recording if there are no steps.

        It is followed backwards from the end of the step: a work waited for its launch where that
        began after the work before it had ended, else for that work, or for one of another stream
        that ended within 30 µs before; a call that waits for the device, for the work that ended
        last in it; a thread without work, for the thread that worked last. The segments add up to
        the step.

        `kind`: `compute` `communication` `memory` on a device; `launch_delay` from the end of the
        call to the begin of its work; `kernel_wait` between two kernels; on the host `launch`,
        `allocate` (device memory is asked for or given back), `wait` (for the device), `input`,
        `op`, and `host` for the rest; `unknown` where nothing says what was waited for.
        """
        return self._frame("device_critical_path")

    def critical_path_of(self, step: int | None = None, host: str | None = None) -> pd.DataFrame:
        """The critical path of another step, in the columns of `critical_path`.

        Parameters
        ----------
        step : int, optional
            Number of the step; by default the one of median length.
        host : str, optional
            One of `p.hosts`; by default the first that has steps.

        Raises
        ------
        NbprofError
            No such step.
        """
        path = critical_path.summary(self.critical_path_pieces(step, host))
        return path.drop(columns=[c for c in path.columns if c.startswith("_")])

    def critical_path_pieces(
        self, step: int | None = None, host: str | None = None
    ) -> pd.DataFrame:
        """The segments of the critical path of a step in order, from its start to its end.

        Parameters
        ----------
        step : int, optional
            Number of the step; by default the one of median length.
        host : str, optional
            One of `p.hosts`; by default the first that has steps.

        Raises
        ------
        NbprofError
            No such step.
        """
        run = self._profile.run
        chosen = step is not None or host is not None
        if chosen and critical_path.choose(run.steps, run.hosts, step, host) is None:
            numbers = sorted({str(number) for number in run.steps["step"].tolist()}, key=int)
            on = f" on host {host!r}" if host is not None else ""
            raise NbprofError(
                f"there is no step {step}{on}; the hosts are {', '.join(run.hosts[:8])}, and steps"
                f" {', '.join(numbers[:8]) or 'none'} …"
            )
        return run.device_time.critical_path_pieces(step, host)

    def figure(self, what: str = "frame", **options: Any) -> Model:
        """A Bokeh figure.

        Parameters
        ----------
        what : str
            "frame" (the time of each device, one bar per device), "idle", "queue", "bandwidth",
            "stragglers" or "critical_path".
        **options
            Passed to `bokeh.plotting.figure`.

        Raises
        ------
        NbprofError
            There is nothing to draw, or no such figure.
        """
        return self._figure("device_time", what=what, **options)

    def __repr__(self) -> str:
        from nbprof.tools.device_time import payload as device_time

        return device_time.text(self._profile.run)
