"""`p.steps`: step time and where it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.tools.accessor import Framed

if TYPE_CHECKING:
    from bokeh.model import Model


class Steps(Framed):
    """Step time and where it goes: the step breakdown of the TensorFlow Profiler guide."""

    @property
    def frame(self) -> pd.DataFrame:
        """One row per step of each host, in time order; the columns are those of
        `nbprof.frames.SCHEMA`.

        **Which events belong to a step.** Files state it (`group_id`); if one does not, events are
        joined as TensorFlow Profiler does: by nesting on a thread, by ids of producers and
        consumers, by the correlation of a launch with its kernel, by elements of tf.data; every
        root (`_r`, TraceContext; if nothing is marked, an iteration of a loop in a graph) gives its
        group to everything below it. On the CPU an eager op outside any mark is not a step. If a
        JAX program marks none, its steps are the runs of the compiled program that takes most of
        the time (never calls of `jax.numpy`; if several such runs precede one of an update, the
        runs of the update), each from the end of the previous run, on its last device, to its own
        end, so that the host's time between two runs belongs to the later step; the receipt says
        so. The first step begins at its call, since what the loop did before is not recorded, and
        is excluded from averages. Another program that runs in a loop of its own, such as an
        evaluation, has its own steps; one that runs with at least half of the runs is part of each
        step. On TPUs the same follows from the `XLA Modules` line of the cores if no core has a
        `Steps` line. XProf has no steps there. Copies between a TPU's memory and the host's are
        input and output.

        PyTorch marks steps itself (`ProfilerStep`; without them the steps of the optimizer, or the
        batches of a DataLoader). Device work belongs to the step that launched it, by its
        correlation id; if no launch is recorded, to the step in which it started. A step starts at
        its mark, or when the last work of the previous step has ended, whichever is later, and ends
        at the end of its mark or of the last work that it launched. What was launched before the
        recording started belongs to no step (`p.steps.backlog`); the first step starts when it has
        ended.

        Recorded by nbprof, a PyTorch step ends with the optimizer's. A pass over a DataLoader in
        which no optimizer steps, and after which training goes on with a batch of another pass, is
        an evaluation: it is in no step, whether the model was put into evaluation mode or not; the
        receipt states how many there were. In other recordings such a step shows by `batches`: one
        with at least 3 requests to DataLoaders, and more than twice the (lower) median of its kind
        plus one, is not `counted`, and the receipt names it.

        For vLLM and SGLang, steps are the iterations of the engine, by its annotations, and none is
        warm-up: see `p.serving`.

        In recordings of Nsight Systems and rocprofv3 steps are ranges (NVTX, ROCTx) whose name says
        that they are steps, and nothing else: `step 12`, `iteration 3`, `Epoch 1 batch 40/100`,
        `train_step` (and `ProfilerStep#12`). They follow one another on one thread, their numbers
        rise, and at least half of them launched work, on whichever thread; of several such families
        the one that lasts longest is taken, and the receipt names it and the others. `layer 3`,
        `optimizer_step 7` or a range that is repeated without counting are parts of a step as often
        as not: without a range that says more there are no steps, and the tab says how to mark
        them. Device work belongs to steps as with PyTorch.

        **Step time** is the longest marker on a device (the `Steps` line; without one, stretches of
        device events of one group), or the longest marker on the host where that includes it;
        without a device the marker on the host. The step of a host with several TPU cores is that
        of the slowest of them, and only steps that all cores have count. JAX on the CPU returns
        before the work is done: if most marks end before the programs that they dispatched, a step
        lasts from the end of the previous one, or its mark, until its programs have run (the n-th
        call of a function is the n-th run of its program), and the receipt says so.

        **Where it goes.** Each piece of work has a class. Where pieces overlap, the first of these
        counts: waits of a device for the host or another device, device compute, output (copies to
        the host), device to device, input (waiting for the next batch), collectives, kernel launch,
        copies to the device (input as well), compilation, the rest of the host's work. What nothing
        covers is `other_ms`, and so is a wait of the host for a device that runs nothing
        (`waiting_ms`): the categories add up to the step time exactly. What was not recorded is NA,
        never 0. A gap of up to 10 µs between two nodes of one replayed CUDA or HIP graph, which
        recording each node makes, is device compute where nothing else runs; the device is not busy
        then. `host_to_device_bytes` and similar columns need the sizes of copies in the file; XProf
        looks for them under another name, and has 0.

        **Differences from XProf 2.24** (`as_xprof()` gives its table): there host work is not part
        of the steps of a profile with a device, so kernel launch, host compute and waiting for
        input are 0 and all of it is other; here it is, as in the guide. Copies under their names of
        TensorFlow 2.3/2.4 (`MemcpyH2D`) and of ROCm, and fills, are copies here, compute there;
        bfloat16 is 16 bit, RCCL is a collective. What XLA compiles on the host (`backend_compile`,
        `...Client::Compile`) is compilation here, host compute there; of steps that are runs of a
        program, only what is compiled while no program runs, of the programs that at least half of
        these steps run. Copies for XLA's runtime on the CPU (`H2D Dispatch`) are copies to the
        device while no op runs, and how its programs end is host compute; XProf counts both in no
        step. A step on the CPU whose function is called while tf.data makes its batch, and that
        runs no op yet, waits for input, even if no thread requests the batch yet; so does a call
        that cannot return because a Python function of tf.data holds the interpreter. XProf counts
        both as host compute. Steps have the names of their markers (`train 500`), there those of
        their groups. No step is dropped for being the first or the last: only steps without any
        compute at either end are, since the recording cut them off, and the receipt says how many.
        Where a GPU is named but recorded nothing, XProf has no steps; here are those of the host.
        """
        return super().frame

    @property
    def summary(self) -> pd.DataFrame:
        """One row per category, and `step_time` first: mean, sample standard deviation (n - 1),
        median, p95, least, most, share.

        `percent` is the share of all step time. `p95_ms` is the smallest value that 95 % of the
        steps do not exceed, not interpolated.

        Covers the steps that are `counted`: not those that warm up (a leading step over 4 times the
        median of those after it; of two to four steps the first, over 4 times each other, or over
        twice each if the others are alike; or the first step of a second or third training, in
        which TensorFlow traces functions of its own), that the recording cut off, that hold several
        times the batches of the others (a validation), or that are of another kind (`test` between
        `train`): averaged is training, unless steps of another kind take over 4 times as long, and
        without training the kind with the most time. XProf averages all that it has not dropped.
        One step has no deviation: NA here, 0 (or `-nan`) there.

        `percent` is the sum of a category by the time of all these steps, so that the categories
        add up to 100; NA where no host recorded the category. Where only some hosts did (one has a
        GPU, another none), the other columns are of the steps of those hosts.
        """
        summary: pd.DataFrame = self._profile.run.steps_summary
        return summary.copy()

    @property
    def backlog(self) -> pd.DataFrame:
        """Device work that was launched before the recording started, one row per host that has
        some (PyTorch).

        The host runs ahead of the device, so when a recording starts the device still works on what
        earlier steps launched. That is work whose launch is not in the file and whose correlation
        id is below those of all launches there. It is in no step, no mean and no advice; `p.ops`
        and `p.kernels`, which cover the whole recording, include it. The categories add up to
        `time_ms`.
        """
        backlog: pd.DataFrame = self._profile.run.backlog
        return backlog.copy()

    @property
    def clock(self) -> pd.DataFrame:
        """One row per step of the cell that nbprof recorded, whether the profiler ran or not, by
        the wall clock; empty for other recordings and where no step was marked.

        `start_s` counts from the start of the recording. `recorded` marks the steps during which a
        profiler ran, started or stopped. A recording stores the first 20,000 steps of its cell.
        `bare_step_time_ms` of `p.overview` is the median of the other steps, of the kind that was
        recorded most, from where on their time is steady.
        """
        clock: pd.DataFrame = self._profile.run.step_clock
        return clock.copy()

    @property
    def bare(self) -> pd.DataFrame:
        """The parts of a step without a profiler: one row per category, and `step_time` first;
        empty where `recording_slowdown` of `p.overview` is None, for the reason in
        `bare_parts_reason`.

        `bare_ms` of `step_time` is `bare_step_time_ms` of `p.overview`, which the categories add up
        to; where a few steps take much longer, recorded or not, it is the mean of the steps that
        ran without the profiler, as `recorded_ms` is of the recorded ones. Work of the device takes
        as long as recorded. What recording cost, the difference to `recorded_ms`, is taken from the
        time of the host (`estimated`): in proportion to the ops, runtime calls and ranges that were
        recorded in each category, each of which costs about the same, and from all short events by
        the same share, so a wait or a long op keeps its time. What is more than these can cost, by
        the time that typically passes between the begins of two, is taken from all of them.
        """
        bare: pd.DataFrame = self._profile.run.bare_parts_frame
        return bare.copy()

    def as_xprof(self) -> pd.DataFrame:
        """The step table of XProf 2.24, by its exact rules, for comparing the two tools.

        One row per step of each host, by group: `host`, `step` (the group), `name`, `start_ms`,
        `step_time_ms` and the categories, as in `frame`. Of a profile with a device only the
        device's work counts, and a step is called by its group; a step needs compute; of more than
        five steps the first and the last are dropped, but not on TPUs. Categories that were not
        recorded are 0, as there. Empty for files that XProf cannot read. Not equal is one case:
        where a program on a GPU has marks and loops in its graphs, XProf makes a step of each
        iteration of a loop, and here the steps are those of the marks.
        """
        steps: pd.DataFrame = self._profile.run.xprof_steps
        return steps.copy()

    def _table(self) -> pd.DataFrame | None:
        return self.summary

    def figure(self, **options: Any) -> Model:
        """A Bokeh figure: one stacked bar per step."""
        return self._figure("steps", **options)
