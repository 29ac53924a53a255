"""The views of a Profile as a person meets them: `p.steps`, `p.ops`, `p.memory` … with frame, figure and widget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.analysis import ops
from nbprof.errors import NbprofError
from nbprof.trace import BYTES, DOUBLE, TEXT, UINT, Trace

if TYPE_CHECKING:
    from bokeh.model import Model

    from nbprof.profiles import Profile
    from nbprof.widget import DashboardWidget


class View:
    """One view of a profile: its frame, its Bokeh figure and its widget. In a notebook it displays as the dashboard at that tab."""

    def __init__(self, profile: Profile, tab: str) -> None:
        self._profile = profile
        self._tab = tab

    def widget(self, **options: Any) -> DashboardWidget:
        """A live widget of this view; its selected steps can be read and set from Python."""
        return self._profile.widget(**{"views": [self._tab], **options})

    def _repr_mimebundle_(self, **_: Any) -> Any:
        return self._profile.mimebundle(views=[self._tab])


class Framed(View):
    """A view with one main frame."""

    def __init__(self, profile: Profile, tab: str, name: str) -> None:
        super().__init__(profile, tab)
        self._name = name

    @property
    def frame(self) -> pd.DataFrame:
        """The view's data; the columns are those of `nbprof.frames.SCHEMA`."""
        frame: pd.DataFrame = getattr(self._profile.run, self._name)
        return frame.drop(columns=["group"], errors="ignore").copy()

    def __repr__(self) -> str:
        frame = self.frame
        return f"<nbprof {self._name}: {len(frame)} rows; .frame is the DataFrame>"


class Steps(Framed):
    """Step time and where it goes: the step breakdown of the TensorFlow Profiler guide."""

    @property
    def frame(self) -> pd.DataFrame:
        """One row a step of each host, in time order; the columns are those of `nbprof.frames.SCHEMA`.

        **Which events are a step's.** Files state it (`group_id`); where one does not, events are joined as TensorFlow Profiler does: by
        nesting on a thread, by ids of producers and consumers, by the correlation of a launch with its kernel, by elements of tf.data, and
        every root (`_r`, TraceContext, an iteration of a loop in a graph) gives its group to all below it. PyTorch marks steps itself.

        **Step time** is the longest marker on a device (the `Steps` line; without one, stretches of device events of one group), or the
        longest marker on the host where that includes it; without a device the marker on the host. The step of a host with several TPU
        cores is that of the slowest of them, and only steps that all cores have count.

        **Where it goes.** Each piece of work has a class. Where pieces overlap, the first of these counts: waiting of a device for the host
        or another device, device compute, output (copies to the host), device to device, input (waiting for the next batch), collectives,
        kernel launch, copies to the device (input as well), compilation, the rest of the host's work. What nothing covers is `other_ms`, so
        that the categories add up to the step time exactly. What was not recorded is NA, never 0. `host_to_device_bytes` and its like are
        there where the file states the sizes of copies; XProf looks for them under another name, and has 0.

        **Other than XProf 2.24** (`as_xprof()` gives its table): there host work is no part of the steps of a profile with a device, so
        kernel launch, host compute and waiting for input are 0 and all of it is called other; here it is, as in the guide. Copies under
        their names of TensorFlow 2.3/2.4 (`MemcpyH2D`) are copies here, compute there; bfloat16 is 16 bit, RCCL is a collective. Steps
        have the names of their markers (`train 500`), there those of their groups. No step is dropped for being the first or the last: a
        step without any compute at either end is, as the recording cut it off, and the receipt says how many. Where a GPU is named but
        recorded nothing, XProf has no steps; here are those of the host.
        """
        return super().frame

    @property
    def summary(self) -> pd.DataFrame:
        """One row a category, and `step_time` first: mean, sample standard deviation (n - 1), least, most, and part of all step time.

        Of the steps that are `counted`: not those that warm up (a leading step over 4 times the median of those after it), that the
        recording cut off, or that are of another kind than most time goes to (`test` between `train`). XProf averages all that it has not
        dropped. One step has no deviation: NA here, 0 (or `-nan`) there.
        """
        summary: pd.DataFrame = self._profile.run.steps_summary
        return summary.copy()

    def as_xprof(self) -> pd.DataFrame:
        """The step table of XProf 2.24, by its rules exactly: for comparing figures of the two tools.

        One row a step of each host, by group: `host`, `step` (the group), `name`, `start_ms`, `step_time_ms` and the categories, as in
        `frame`. Of a profile with a device only the device's work counts, and a step is called by its group; a step needs compute; of more
        than five steps the first and the last are dropped, but not on TPUs. Categories that were not recorded are 0, as there. Empty for
        files that XProf cannot read.
        """
        steps: pd.DataFrame = self._profile.run.xprof_steps
        return steps.copy()

    def figure(self, **options: Any) -> Model:
        """A Bokeh figure: one stacked bar a step."""
        from nbprof.views import figures

        return figures.steps(self._profile.run, **options)


class Pods(Framed):
    """Each step on each worker: the hosts of a job, the cores of a TPU host, the ranks of PyTorch."""

    @property
    def frame(self) -> pd.DataFrame:
        """One row a step and worker; the columns are those of `nbprof.frames.SCHEMA`.

        Which steps of two hosts are the same follows from when they ran: the host whose recording spans the shortest time is the chief, and
        every other one is shifted by the number of steps under which its steps overlap longest with the chief's (of equal ones none, 1, 2 …
        and then -1, -2 …). Only steps that all hosts have are shown. A host without device work among hosts that have some coordinates
        and is no worker. `step` is the chief's number. Step time and categories are those of `p.steps.frame`; of a TPU core, its own.
        `bottleneck` is the category with the most time, of equal ones the first in the order of columns.

        These are the rules of TensorFlow Profiler's pod viewer, on nbprof's steps. XProf numbers common steps from 0, and lays hosts that
        never overlap on one another from their first steps on; here their numbers tell, the receipt says so, and a host that shares no
        number with the chief is left out.
        """
        return super().frame.drop(columns=["host"])

    @property
    def summary(self) -> pd.DataFrame:
        """One row a step: how many workers, the slowest of them, and the spread.

        The spread is (slowest - fastest) / slowest in percent, and NA of one worker. XProf shows no such table.
        """
        summary: pd.DataFrame = self._profile.run.pods_summary
        return summary.copy()


class InputPipeline(Framed):
    """Where the time for input goes: in the steps, and on the host.

    TensorFlow Profiler's input pipeline analyzer, and its twin for PyTorch. `frame` has one row an input op of the host: iterators of
    tf.data, stages of other pipelines that state `_ipl_stage_id` and `_ipl_stage_cat`, infeed enqueues and copies to the device; total and
    self time as in `Profile.ops`. Percentages are of the self time of all input ops (0…100; XProf has 0…1), so that those of total time
    add up to more than 100 where iterators lie in each other.

    Unlike XProf: loops over a dataset inside a tf.function (`ReduceIterator::…`) are input ops, and what is enqueued scales the other
    kinds only where an enqueue was recorded on the host (XProf scales by the copies of a step then too, which leaves 0 of all of them).
    """

    @property
    def frame(self) -> pd.DataFrame:
        """One row an input op of the host, self time descending, then by name.

        `total_ms` sums the durations of its runs, `self_ms` leaves out the ops inside them on the thread; `total_percent` and
        `self_percent` are parts of the self time of all rows.
        """
        return super().frame

    @property
    def categories(self) -> pd.DataFrame:
        """The five kinds of input work: self time of their ops as recorded, and what helps.

        Enqueuing is infeed enqueues and copies to the device. A read is of a file (`…::TFRecord`, `TextLine`, `FixedLengthRecord`,
        `SSTable`, `RecordIO`, `ArrayRecord`): in advance where its path holds a prefetch, interleave, parallel map, or memory reader or
        writer, else on demand. All other iterators preprocess.
        """
        categories: pd.DataFrame = self._profile.run.input_categories
        return categories.copy()

    @property
    def summary(self) -> dict[str, Any]:
        """How much of a step is input, of which kinds, and what to do next.

        Of the steps that averages use: `input_percent` (sum of input by sum of step times), and over the steps `mean_percent` `sd_percent`
        (n - 1; None of one step) `min_percent` `max_percent`; `bound` (host, both, device, unknown) and `level` (high from 20 %, moderate
        from 5 %, potential where less is input but 3 % or more is in nothing recorded, no, unknown), the `statement` and the `next_step`.

        Of the host: `enqueue_ratio` r (Σ durations of infeed enqueues by Σ times between their starts; else copies by step time), what it
        came `enqueue_ratio_from`, and the `breakdown` (`category` `us` `us_per_step` `percent`): enqueuing E as recorded, and E (1 - r) / r
        shared out among the other kinds by self time; the self times themselves where r is 0. `copy_percent` is enqueuing's part of that,
        `copy_level` dominant from 90 %, significant from 10 %, else small. None for what was not recorded.
        """
        found = dict(self._profile.run.input_summary)
        return {**found, "breakdown": found["breakdown"].copy()}


class TfData(View):
    """tf.data bottleneck analysis: which iterator of which pipeline limits the input.

    After TensorFlow Profiler's tool of that name, which XProf 2.24 no longer shows. A pipeline is a root iterator (`Iterator::Root`) with
    all that its calls reach: by nesting on a thread, and by the elements that iterators made ahead on other threads. `Device:<n>` only
    hands on to a device what `Host:<n>` makes. Also read is the loop over a dataset inside a tf.function (`ReduceIterator::Root`), which
    TensorFlow Profiler leaves out.

    Self time of a call is its duration less the time in which any call directly below it ran (never below zero; TensorFlow Profiler takes
    off the overlap with each, which counts an instant twice where inputs ran at once). A call blocks when it overlaps the blocking call
    above it. The bottleneck of a call of the root is the blocking iterator with the largest self time in it; calls up to 50 µs are none.
    """

    @property
    def pipelines(self) -> pd.DataFrame:
        """Pipelines of all hosts, that with the longest call first.

        `bottleneck` (with `bottleneck_path`, and its self time `bottleneck_us`) is that of the longest call; `advice` says what helps it
        and `fix` gives the code. `slow_calls` took over 50 µs.
        """
        return self._profile.run.tf_data_pipelines.copy()

    @property
    def nodes(self) -> pd.DataFrame:
        """Iterators of the pipelines, the times of all calls together.

        `bottleneck` marks the blocking iterator with the most self time over all calls, `critical` the path from the root through it to a
        source. One call alone is in `call`.
        """
        return self._profile.run.tf_data_nodes.copy()

    @property
    def calls(self) -> pd.DataFrame:
        """One row a call of a root, by pipeline the longest first (`rank` 0): its begin, duration, and bottleneck with its self time."""
        return self._profile.run.tf_data_calls.copy()

    @property
    def summary(self) -> dict[str, Any]:
        """Whether the slowest host pipeline limits the program.

        `input_bound` (longest call over 50 µs; None without tf.data), `host` `pipeline` `max_us` `bottleneck` `bottleneck_us` of the
        slowest host pipeline, a `statement` and the `next_step`.
        """
        return dict(self._profile.run.tf_data_summary)

    def call(self, pipeline: str, rank: int = 0, host: str | None = None) -> pd.DataFrame:
        """The graph of one call: each iterator with its time, self time and calls in it; the columns of `nodes`.

        Parameters
        ----------
        pipeline : str
            As in `pipelines`: "Host:0".
        rank : int
            0 for the longest call of the pipeline, 1 for the next …
        host : str, optional
            Of which host; when left out, of the one whose pipeline of that name is the slowest.

        Raises
        ------
        NbprofError
            There is no such pipeline, or it has fewer calls.
        """
        known = self._profile.run.tf_data_pipelines
        rows = known[(known["pipeline"] == pipeline) & ((known["host"] == host) | (host is None))]
        if not len(rows):
            there = ", ".join(f"{p} of {h}" for h, p in zip(known["host"], known["pipeline"], strict=True)) or "none"
            raise NbprofError(f"there is no pipeline {pipeline!r}{f' on {host!r}' if host else ''}; there are: {there}")
        count = int(rows["calls"].iloc[0])
        if not 0 <= rank < count:
            raise NbprofError(f"pipeline {pipeline} has {count} calls: rank is 0 to {count - 1}")
        return self._profile.run.tf_data_call(str(rows["host"].iloc[0]), pipeline, rank).copy()


class Ops(Framed):
    """Time by framework op, on the device and on the host: the TensorFlow stats of the TensorFlow guide.

    `frame` has one row an op of each side, device first, most self time first (equal ones by name):

    - `occurrences`: runs. On a device the runs of the op's most frequent kernel (or op of a compiled program), as an op launches several.
    - `total_us`: duration of all runs. `self_us`: less that of the ops inside; on a thread found with a stack over begins and ends in time
      order, on a GPU the same as the total. `avg_us`, `avg_self_us`: divided by `occurrences`.
    - `self_fraction`: of all self time of its side; `cumulative_fraction`: with the rows above it.
    - `eager`: whether any run was outside a function.
    - Where it was recorded, `flops_per_second` and `bytes_per_second`: operations and bytes of all runs over `total_us`;
      `operational_intensity`: the one over the other; `bound_by`: that of Compute and HBM which is nearer to the device's peak. TPUs record
      it; on GPUs it takes an analysis of the compiled program, which nbprof does not make.
    - `tensor_core_fraction`: of the time of the op's kernels, those whose names tell.

    Which op a kernel belongs to: for XLA the framework's op that the compiler noted for the kernel's HLO op, which is looked up in the
    compiled program in the file; else what the event states, else the op around the call that launched it. PyTorch: the innermost op
    around the launch.

    Sources: the TensorFlow guide, what TensorFlow 2.3/2.4 wrote beside real profiles, and XProf 2.24.2. Where XProf differs, which
    `as_xprof()` shows: ops of a program that is not in the file are left out and counted as idle there, here they go by their HLO name;
    allocator and driver events that state an op are ops of the host there, here they are not; files of TensorFlow 2.3/2.4 have no device
    ops there; a side is cut at 500 rows there; an op that only begins a copy (`copy-start` of a TPU) has a bandwidth there, millions of
    times what memory can do, here it has none.
    """

    @property
    def with_idle(self) -> pd.DataFrame:
        """The ops with the IDLE row of each side, which shares count then.

        Idle is, by host thread, the time from the begin of its first op to the end of its last less all self time; by device, from the
        first event to the last less all ops. It is at least 0: ops that run at once on several streams of a device are each taken off.
        (The TensorFlow of the guide had an overflow here where a GPU ran nothing; that is 0.) PyTorch: each instant counts once.
        """
        return self._profile.run.ops_with_idle.copy()

    def by_type(self) -> pd.DataFrame:
        """Ops of a type added up, with how many there are: the table's By type. Idle is left out."""
        return ops.by_type(self._profile.run.ops)

    def by_scope(self, level: int | None = 1) -> pd.DataFrame:
        """Ops of a name scope added up, with how many there are. Idle is left out.

        The scope of `encoder/layer_0/MatMul` is `encoder/layer_0`, of a tf.data iterator `Iterator::Root::Map` it is `Iterator::Root`, of
        an op without one ''.

        Parameters
        ----------
        level : int, optional
            How many components of the scope to tell apart; None for all, which is the table's By layer.

        Raises
        ------
        NbprofError
            `level` is less than 1.
        """
        if level is not None and level < 1:
            raise NbprofError(f"level is {level}; it counts components of a scope, from 1")
        return ops.by_scope(self._profile.run.ops, level)

    def distribution(self, where: str, by: str = "type", idle: bool = False) -> pd.DataFrame:
        """How the self time of a side is distributed, largest part first: `type` or `op`, `self_us` `self_fraction` `cumulative_fraction`.

        Parameters
        ----------
        where : str
            "device" or "host".
        by : str
            "type" or "op".
        idle : bool
            Whether idle is a part.

        Raises
        ------
        NbprofError
            No such side or no such grouping.
        """
        if where not in ("device", "host") or by not in ("type", "op"):
            raise NbprofError(f"where is 'device' or 'host' and by is 'type' or 'op', not {where!r} and {by!r}")
        run = self._profile.run
        return ops.distribution(run.ops_with_idle if idle else run.ops, where, by)

    def as_xprof(self, with_idle: bool = False) -> pd.DataFrame:
        """The rows of XProf 2.24.2, exactly, for comparing: its table without idle, or with.

        Columns are those of `frame`; what XProf does not know is 0, or "Unknown". A side has 500 rows at most, the idle one among them. The
        rates of a GPU, which it computes from the compiled programs, are left out. Empty for files that XProf cannot read.
        """
        return self._profile.run.xprof_ops[int(with_idle)].copy()

    def figure(self, **options: Any) -> Model:
        """Bokeh pies: device and host, by op and by type."""
        from nbprof.views import figures

        return figures.ops(self._profile.run, **options)


class Kernels(Framed):
    """GPU kernels by name, op and launch shape, as in the GPU kernel stats of the TensorFlow guide.

    `frame` has one row for each kernel, op and launch shape (grid, block, registers, shared memory), with the number of launches and their
    total, mean, shortest and longest duration; largest total first, equal ones in the order of name, grid, block, registers, shared memory
    and op. Durations are whole nanoseconds; a launch of less is left out, as in XProf.

    - `op` is the op that launched the kernel: as the event names it (`tf_op`, or `level 0` in files of TensorFlow 2.3/2.4), what the
      compiled program calls the instruction, or the op on the host whose call started it. XProf reads neither `level 0` nor launches.
    - `uses_tensor_core` follows from the kernel's name, up to the names of Hopper and Blackwell; NA where the name cannot tell (products
      compiled by Triton). XProf's list ends with Ampere, takes plain fp32 kernels called `xmma_gemm…ffma` for TensorCore kernels, and is
      not applied where the file names no vendor (TensorFlow 2.3/2.4).
    - `op_tensor_core_eligible`: the op is a matrix product, convolution, recurrent layer or attention by its name or type, or its kernel
      uses TensorCores. XProf goes by the name alone: it misses ops that were fused (`conv2d/Relu` of type `_FusedConv2D`).
    - `occupancy_percent` is the one recorded (`occupancy_source` "recorded"), else computed from the launch shape and the limits of the
      device's compute capability (CUDA C++ programming guide). TensorFlow and JAX state the theoretical occupancy, PyTorch an estimate of
      the achieved one, which a grid with too few blocks lowers; what is computed is of the same kind. XProf shows 0 where none was
      recorded. AMD's is not known.
    - Shared memory of TensorFlow 2.3/2.4 (`shm`) and of AMD (`group_mem`) is one number for both kinds, in `static_shared_bytes`. XProf
      shows 0 for both.
    """

    def by_name(self) -> pd.DataFrame:
        """One row a kernel, total time descending: ops, launches, times, part of all kernel time and of it on TensorCores.

        `tensor_core_percent` is time on TensorCores in percent of the time of kernels whose names tell whether they use them;
        `occupancy_percent` is weighted by time.
        """
        from nbprof.analysis import kernels

        return kernels.by_name(self._profile.run.kernels)

    def by_op(self) -> pd.DataFrame:
        """One row an op, total time descending, with the columns of `by_name`; kernels without an op are the row of the empty name."""
        from nbprof.analysis import kernels

        return kernels.by_op(self._profile.run.kernels)

    def as_xprof(self) -> pd.DataFrame:
        """The rows of XProf 2.24.2, exactly, for comparing: its TensorCore rule, op names, launch shapes, order and first 1,000 rows.

        Columns are those of `frame` but for `occupancy_source`; what a file does not state is 0, as there. Empty for PyTorch's files, which
        XProf cannot read.
        """
        return self._profile.run.xprof_kernels.copy()

    def figure(self, **options: Any) -> Model:
        """A Bokeh bar chart of the kernels with the most time."""
        from nbprof.views import figures

        return figures.kernels(self._profile.run, **options)


class Memory(View):
    """Memory by allocator, as in the memory profile of the TensorFlow guide.

    Sources: the events MemoryAllocation and MemoryDeallocation that the allocators of TensorFlow, JAX and XLA write, and `[memory]` of
    PyTorch. Each states the allocator after it: stack (reserved) and heap bytes in use, bytes free, and fragmentation, which is the part
    of the free bytes outside the largest free block. What an allocator does not state is NA, never 0; XProf shows 0 there. Where no bytes
    in use are stated (PyTorch before 1.11) they are added up from the blocks, from the least start that never goes below 0.

    - In use is stack and heap together. The peak is its maximum; of equal ones the last, as in XProf.
    - A deallocation has the op, region, type and shape of the block at its address. A second allocation at a live address does not change
      whose block it is.
    - `step` of an event outside any step is the one after the last that its allocator saw, as in XProf.
    - The lifetime peak is the largest that was stated or seen. XProf takes the last that was stated, in the order of the file, which can
      be below the peak in the profile.
    - Times count from the start of the profile; XProf's from the begin of the host's lines.
    """

    @property
    def summary(self) -> pd.DataFrame:
        """One row an allocator, largest peak first: counts, capacity (in use and free at the peak), lifetime peak, the peak in parts."""
        summary: pd.DataFrame = self._profile.run.memory_summary
        return summary.copy()

    @property
    def timeline(self) -> pd.DataFrame:
        """Allocations and deallocations in time order, each with the allocator's state after it."""
        timeline: pd.DataFrame = self._profile.run.memory_timeline
        return timeline.drop(columns=["order", "address", "lifetime_peak_bytes", "capacity_bytes"])

    @property
    def peak(self) -> pd.DataFrame:
        """Blocks alive at the peak of each allocator, largest first; equal ones are one row with their number.

        Blocks of the step of the peak are told one by one, as in the guide; the rest of the heap is one row,
        `unused preallocated device memory` (what TensorFlow holds from earlier: weights, and what it set aside). The rows add up to the
        bytes in use. PyTorch's blocks are followed from the begin of the recording; there the rest is `allocated before the recording`.
        A block that an event of another step freed is not alive; XProf looks at the step's own events, so that its rows can add up to less.
        Of equal peaks XProf shows the time of one and the blocks of another's step; here both are of one moment.
        """
        peak: pd.DataFrame = self._profile.run.memory_peak
        return peak.copy()

    def at(self, time_ms: float, memory_id: str | None = None, *, whole: bool = False) -> pd.DataFrame:
        """Blocks alive at any moment, as `peak` has them for the peak.

        Parameters
        ----------
        time_ms : float
            After the start of the profile, as in `timeline`. Before an allocator's first event nothing is known of it: it has no rows.
        memory_id : str, optional
            Only this allocator; all when left out, in the order of their names.
        whole : bool
            Blocks of earlier steps one by one as well, as far as the recording goes back; the guide has them in the row of unused memory.

        Raises
        ------
        NbprofError
            There is no such allocator, or `time_ms` is no number.
        """
        from nbprof.analysis import memory_alive

        rows = self._profile.run.memory_timeline
        if np.isnan(time_ms):
            raise NbprofError("time_ms must be a number of milliseconds after the start of the profile")
        known = sorted(rows["memory_id"].unique())
        if memory_id is not None and memory_id not in known:
            raise NbprofError(f"there is no memory {memory_id!r} in this run; it has {', '.join(known) or 'none'}")
        return memory_alive.at(rows, time_ms, memory_id, whole=whole)

    def figure(self, **options: Any) -> Model:
        """A Bokeh figure: stack, heap and free over time, fragmentation on the right axis."""
        from nbprof.views import figures

        return figures.memory(self._profile.run, **options)


class TraceView(View):
    """Every event on its lane."""

    @property
    def lanes(self) -> pd.DataFrame:
        """One row a lane."""
        lanes = self._profile.run.trace.lanes
        return lanes[["lane", "host", "process", "thread", "kind", "device", "events"]].copy()

    def events(
        self,
        lane: int | str | None = None,
        name: str | None = None,
        between: tuple[float, float] | None = None,
        args: tuple[str, ...] = (),
    ) -> pd.DataFrame:
        """Events as a frame, in time order on each lane.

        Parameters
        ----------
        lane : int or str, optional
            Number of a lane, or a text that its thread's name holds.
        name : str, optional
            A text that the event's name holds.
        between : (float, float), optional
            Only events that touch this range, in ms.
        args : tuple of str
            Args to add as columns; NA where an event has no such arg.
        """
        trace = self._profile.run.trace
        events = trace.events
        keep = np.ones(len(events), np.bool_)
        if isinstance(lane, str):
            keep &= trace.lanes["thread"].str.contains(lane, regex=False).to_numpy()[events.lane]
        elif lane is not None:
            keep &= events.lane == lane
        if name is not None:
            keep &= np.array([name in n for n in trace.names], np.bool_)[events.name]
        if between is not None:
            keep &= (events.end >= between[0] * 1e9) & (events.start <= between[1] * 1e9)
        rows = np.flatnonzero(keep)
        where = trace.lanes.iloc[events.lane[rows]]
        out = pd.DataFrame(
            {
                "host": where["host"].to_numpy(),
                "process": where["process"].to_numpy(),
                "lane": where["thread"].to_numpy(),
                "name": trace.names[events.name[rows]],
                "start_us": events.start[rows] / 1e6,
                "duration_us": events.duration[rows] / 1e6,
                "depth": events.depth[rows],
                "self_us": events.self_time[rows] / 1e6,
            }
        )
        for arg in args:
            out[arg] = pd.Series(_arg(trace, arg, rows), dtype=object)
        return out


def _arg(trace: Trace, name: str, rows: Any) -> list[object]:
    column = trace.args.get(name)
    if column is None:
        raise NbprofError(f"no event of this profile has an arg {name!r}; there are {', '.join(sorted(trace.args)[:20])}")
    found = np.searchsorted(column.event, rows)
    found[found == len(column)] = 0
    has = column.event[found] == rows if len(column) else np.zeros(len(rows), np.bool_)
    kinds, values, floats = column.kinds, column.values, column.floats()
    out: list[object] = []
    for i, known in zip(found.tolist(), has.tolist(), strict=True):
        if not known:
            out.append(None)
        elif kinds[i] == TEXT:
            out.append(trace.strings[values[i]])
        elif kinds[i] == BYTES:
            out.append(trace.blobs[values[i]] if len(trace.blobs) else None)
        else:
            out.append(float(floats[i]) if kinds[i] == DOUBLE else int(values[i].view(np.uint64)) if kinds[i] == UINT else int(values[i]))
    return out
