"""A `Profile`: a run with an accessor for each of its views."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.analysis.device_time.device_time import rank_of
from nbprof.core.atomic_write import atomic_write
from nbprof.core.errors import NbprofError
from nbprof.core.receipt import Receipt
from nbprof.core.units import join_some
from nbprof.run.run import Run
from nbprof.schema.frames import names
from nbprof.sources.recording import windows_of
from nbprof.tools.accessor import View, accessor
from nbprof.tools.allocator.accessor import Allocator
from nbprof.tools.ascend.accessor import Ascend
from nbprof.tools.device_time.accessor import DeviceTime
from nbprof.tools.hlo.accessor import Hlo
from nbprof.tools.hlo.roofline import Roofline
from nbprof.tools.input.accessor import InputPipeline, TfData
from nbprof.tools.kernels.accessor import Kernels
from nbprof.tools.memory.accessor import Memory
from nbprof.tools.memory_viewer.accessor import MemoryViewer
from nbprof.tools.op_profile.accessor import OpProfile
from nbprof.tools.ops.accessor import Ops
from nbprof.tools.overview.lines import LineView
from nbprof.tools.overview.python import PythonView
from nbprof.tools.overview.ranges import RangeView
from nbprof.tools.pods.accessor import Pods
from nbprof.tools.steps.accessor import Steps
from nbprof.tools.steps.serving import Serving
from nbprof.tools.torch_ops.accessor import TorchOps
from nbprof.tools.trace.accessor import TraceView

if TYPE_CHECKING:
    from nbprof.profiles.redaction import Redact
    from nbprof.profiles.widget import DashboardWidget
    from nbprof.tools.overview.ranges import RangeView
    from nbprof.tools.payloads import Payload


class Profile:
    """One profile: frames to work with, views to look at, a report to share.

    In a notebook a Profile displays as the dashboard. Get one from `%%nbprof`, `nbprof.profile()`
    or `nbprof.load()`.

    Examples
    --------
    >>> p = nbprof.load("logs/")                       # doctest: +SKIP
    >>> p.steps.summary                                # doctest: +SKIP
    >>> p.save("report.html")                          # doctest: +SKIP
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        # With the number of events and the results of experiments that it is of.
        self._payload: tuple[int, pd.DataFrame, Payload] | None = None

    def __dir__(self) -> list[str]:
        """Names for completion, without views that are empty for this profile."""
        views = [name for name, member in vars(type(self)).items() if isinstance(member, accessor)]
        empty = {name for name in views if not _has_content(getattr(self, name))}
        return sorted({*super().__dir__()} - empty)

    @accessor
    def steps(self) -> Steps:
        """Step time and where it goes."""
        return Steps(self, "input", "steps")

    @accessor
    def pods(self) -> Pods:
        """Each step on each worker: which is slow, and by how much."""
        return Pods(self, "pods", "pods")

    @property
    def overview(self) -> dict[str, Any]:
        """What bounds the step, with the supporting figures. Percentages are 0…100; None means not
        recorded.

        `bound` `verdict` `verdict_text` `verdict_detail` `confidence` `confidence_evidence`: the
        part of the step that limits it, if one takes 35 % or more of it, and how sure that is: high
        if it is the largest part in 90 % of the steps, there are 10 or more steps, their sd is at
        most 25 % of the mean and nothing was dropped; medium if one of these fails, low if more do.
        `contention`, if present, says that other processes took cores while nbprof recorded (20 %
        or more of them, while its own threads waited for a core for 10 % or more of the time in
        which they were ready to run); that counts as one more failure. `probe`, if present
        (`%%nbprof --probe input`), has `measured_ms` and `predicted_ms` of a step without its
        input, and `text` and `detail`, which say how that was measured. `tried`, if present
        (`%%nbprof --try`), says why remedies were not tried.

        `unit`: what a row of `p.steps.frame` is, and so what "step" means in the names of figures:
        `kind` (step, iteration, call or recording), `how` (how it was found and how to choose
        another; empty where steps are marked) and `agreement` (of an estimate, the share of events
        that fit it, 0 to 1; None where the unit was recorded).

        `step_time_ms` `step_time_sd_ms` (n - 1; None with one step) `step_time_median_ms`
        `step_time_p95_ms` and `input_percent` (sum of input divided by sum of step times) cover the
        steps that averages use: no warm-up, not cut off, without several times the batches of the
        others, of one kind (training, unless steps of another kind take over 4 times as long).

        `bare_step_time_ms` with its 95 % interval `bare_step_time_low_ms` `bare_step_time_high_ms`
        is the median by the wall clock of the `bare_steps` steps of the cell that ran without a
        profiler (`p.steps.clock`), and `recording_slowdown` how many times as long the recorded
        steps took by the same clock. Counted are steps of the recorded epochs, from where on their
        time is steady. Where they took another time before the recording than after it, the
        interval holds both; if it is more than chance, the time is the mean of both medians, which
        `bare_step_time_note` states. The slowdown is known where steps before the recording or the
        epochs are, and these did not change by over 1.5 times. Fewer than 8 such
        steps, a host that runs ahead of its device, or PyTorch on a GPU once a profiler has run in
        the process (launches stay slower) leave them None, for the reason in
        `bare_step_time_reason`. `p.steps.bare` has its categories; `bare_parts_reason` says why
        these are unknown.

        `recording_overhead_ms`: what recording cost per step, by `recording_overhead_source`:
        measured by these steps, or else what PyTorch's overhead events take in the counted steps,
        which is a lower bound, as they are of requests for buffers and the like; None for the
        reason given there.

        `device_busy_percent` `device_idle_percent`: the share of the time in these steps in which a
        device ran a kernel, copy or fill on any stream, each instant counted once, and the rest;
        mean over the devices that ran anything. XProf has no such figure; a share of the step
        breakdown would leave out copies while the host launches.

        `host_op_percent` `device_op_percent` divide the runs of ops between host and device (None
        if those of the host were not recorded); `eager_host_percent` `eager_device_percent` are
        shares of op self time on one side (None if it was not recorded which ops were eager).
        `compute_16bit_percent` `compute_32bit_percent` are shares of device compute in all steps,
        with bfloat16 as 16 bit and without copies (XProf 2.24: bfloat16 as 32 bit; copies of
        TensorFlow 2.3/2.4 as compute), by the types that kernels compute on, else by kernel names;
        None if these do not tell for over 5 % of the time. For JAX on GPUs they are shares of the
        time of the ops of its programs, since the names of its kernels do not tell (XProf goes by
        these). `outside_compilation_percent` is a share of op time on TPUs.

        `flops_utilization_percent` `memory_bandwidth_utilization_percent`: what the ops of compiled
        programs computed (scaled to 16 bit) and moved in the devices' main memory, divided by the
        devices' peaks, over the whole recording, idle time included; `roofline_percent`: the FLOP
        rate divided by min(peak FLOP rate, FLOPs per byte x peak bandwidth). They are those of the
        row `Program` of XProf's roofline; its overview has 0 where a program marks no steps. They
        exclude ops for which neither FLOPs nor bytes are known (most custom calls), which take
        `unknown_cost_percent` of op time. `flops_per_second` `memory_bytes_per_second` are the
        rates of one device. `device_duty_cycle_percent`: the share of ops in the time of the
        devices, from the first op of each to its last (100 less XProf's device idle);
        `host_idle_percent`: the share of the time of host threads without an op.
        `mxu_utilization_percent` `hbm_utilization_percent`: counters of TPUs, as recorded.
        `infeed_percent` `outfeed_percent` `host_transfer_percent`: shares of the time of the steps
        that averages use, summed over TPU cores (`p.pods.cores`).

        `checks`: a frame of the recommendations of TensorFlow Profiler's overview page, with their
        conditions: input is high from 20 %, moderate from 5 %; below that, unrecorded time of 3 %
        or more may be input; launches, collectives and unrecorded time are high from 15 %, moderate
        from 3 %; 16-bit compute below 10 %, eager op time over 10 %, a tf.function with 20 % or
        more of its time in calls that trace it (`tf_functions`), time outside compiled programs
        over 5 %.

        `host_parts`: a frame that splits host compute and the time outside ops by what the host
        did. In a program without a device, an instant of host compute is *compute* if an op that
        takes 20 µs or more runs, and *overhead* otherwise; the time outside ops is split by the
        Python stacks that were sampled in it. Empty where neither is known.

        In a notebook it displays as the tab *Overview*.

        `environment`: `hosts` `device_count` `devices` `framework` `versions` `start_time`
        `duration_s`, as far as the file states them; with several hosts, the earliest start and the
        longest recording. `top_ops`: the ten ops with the most self time on the device, or on the
        host if none ran on a device (`top_ops_where`). Their time is summed over devices and
        threads, so `ms_per_step` may exceed the step; without steps it is NA, but `self_ms` is
        known.
        """
        from nbprof.tools.overview.accessor import Overview

        # A copy, as changes must not affect the profile or its cache.
        return Overview(deepcopy(self.run.overview), self)

    @accessor
    def serving(self) -> Serving:
        """Iterations of an inference engine: vLLM's or SGLang's."""
        return Serving(self)

    @accessor
    def input_pipeline(self) -> InputPipeline:
        """Host time that is spent on input."""
        return InputPipeline(self, "input", "input_ops")

    @accessor
    def tf_data(self) -> TfData:
        """tf.data bottleneck analysis."""
        return TfData(self, "input")

    @accessor
    def ops(self) -> Ops:
        """Time by framework op."""
        return Ops(self, "ops", "ops")

    @accessor
    def kernels(self) -> Kernels:
        """GPU kernels."""
        return Kernels(self, "kernels", "kernels")

    @accessor
    def memory(self) -> Memory:
        """Memory by allocator."""
        return Memory(self, "memory")

    @accessor
    def hlo(self) -> Hlo:
        """Time by op of compiled XLA programs."""
        return Hlo(self, "hlo", "programs.hlo")

    @accessor
    def op_profile(self) -> OpProfile:
        """The time of compiled XLA programs as a tree, and how well each part uses the device."""
        return OpProfile(self, "op_profile", "programs.op_profile")

    @accessor
    def roofline(self) -> Roofline:
        """Ops of compiled XLA programs compared with the limits of the device."""
        return Roofline(self)

    @accessor
    def memory_viewer(self) -> MemoryViewer:
        """Memory of compiled XLA programs, by the name of the program."""
        return MemoryViewer(self)

    @accessor
    def allocator(self) -> Allocator:
        """PyTorch's caching allocator: segments, blocks, what is stranded, and why memory ran
        out.
        """
        return Allocator(self)

    @accessor
    def torch_ops(self) -> TorchOps:
        """PyTorch's ops by name, input shapes, call stack and nn.Module."""
        return TorchOps(self, "ops", "torch_ops")

    @accessor
    def lines(self) -> LineView:
        """Time by line of the notebook's cells."""
        return LineView(self)

    @accessor
    def ranges(self) -> RangeView:
        """Time by range that the program names, as record_function and NVTX do."""
        return RangeView(self)

    @accessor
    def python(self) -> PythonView:
        """Python time by function, line, module and thread, from sampled stacks."""
        return PythonView(self)

    @accessor
    def device_time(self) -> DeviceTime:
        """The time of devices, and the causes of their idle time."""
        return DeviceTime(self)

    @accessor
    def ascend(self) -> Ascend:
        """Measurements of Ascend's profiler on an NPU: iterations, ops, counters, waits."""
        return Ascend(self)

    @accessor
    def trace(self) -> TraceView:
        """Every event on its lane."""
        return TraceView(self, "trace")

    @property
    def advice(self) -> pd.DataFrame:
        """What to change: at most five findings, largest gain first; without steps, only what a
        TPU's runtime wrote about its memory.

        Each has its evidence in numbers, the code that changes it, and the view that shows it. They
        follow from the conditions of `overview["checks"]`, the tf.data analysis, kernels, compiled
        programs and memory; PyTorch's also from its DataLoader, optimizer, runtime calls and
        allocator, those of NPUs from `p.ascend.rules`. docs/advice.md lists every rule with its
        threshold and source. A gain is time that the change could save, of a step without a
        profiler that takes `gain_of_ms`, or recorded time where that is NA; `gain_is` says whether
        it can be more. In a notebook the frame displays as the findings of the dashboard,
        with the code to copy.
        """
        from nbprof.tools.overview.accessor import Advice

        return Advice.of(self.run.advice, self)

    @property
    def tried(self) -> pd.DataFrame:
        """Results of the experiments of `--try`, one row per change.

        The program ran in turns with the change and without, from the same state and without a
        profiler; `pairs` is the number of turns of each. `gain_ms` is the median of the differences
        of a step (Hodges and Lehmann), `gain_low_ms` and `gain_high_ms` its 95 % interval
        (Wilcoxon's signed ranks), which holds for both looks together where a change got more
        turns in the time that others left. `equal` compares the losses and outputs of the first
        steps by their largest relative `difference`; equal is what reordered sums explain (1.2e-5
        in float32) plus three times the `spread` of two unchanged runs. `recommended` are changes
        with equal results that surely save 1 % of a step or more; `why` gives the reason.
        `first_ms` is the added time of the first steps, and `pays_after` the steps that make up for
        it. `took_s` is the time of the experiment. Figures that were not measured are missing.
        """
        return self.run.tried.copy()

    @property
    def compiles(self) -> pd.DataFrame:
        """Compilations while the cell ran, recorded or not: one row for each of JAX's
        `jit`, `torch.compile` and `tf.function`, in the order of their starts.

        `cause` is the kind of cause and `why` a sentence with the values before and after, by what
        the framework itself says: JAX explains misses of its tracing cache, Dynamo names the guard
        that failed, and the types of a `tf.function`'s arguments are compared with those of its
        earlier traces. The first compilation of a function is a `first_call`; what is not known is
        `unknown`. `step` is the step that waited. The phases exclude each other; those that the
        framework does not time are NA. Of TensorFlow, it is the trace alone. Empty for profiles
        that nbprof did not record. The first 1,000 compilations of a cell are stored.
        """
        return self.run.compiles.copy()

    @property
    def graph_breaks(self) -> pd.DataFrame:
        """Lines at which functions of `torch.compile` break into several graphs, and their cost per
        step, the costliest first.

        The cost is by the regions that Dynamo opens in the trace: from the end of the compiled code
        of one graph to the begin of that of the next one of the same call, without graphs and
        breaks of functions that are called there. What a break costs inside the graphs, which could
        be one, such as kernels that are not fused, is not known. Ops, kernels and time are NA where
        the trace does not show the compiled code on both sides, as with backends that run the ops
        of a graph one by one (`eager`; `aot_eager` without gradients). All of it is NA where the
        break happened in no counted step, or where something was compiled each time; `cost_reason`
        says which. Functions that were compiled before the recording are included if they ran in
        it: the latest 500 parts of functions behind breaks, with the reason if it is among Dynamo's
        latest 1,000.
        """
        return self.run.graph_breaks.copy()

    def try_(self, rule: str = "all", budget: float = 60.0) -> pd.DataFrame:
        """Run the recorded program again with the remedies of its findings, and measure what they
        save, as ``%%nbprof --try`` does.

        The program is the cell that was recorded, on the variables as they are now, or the call of
        a function that `nbprof.profile` decorates, on its arguments, which the profile holds. All
        that it changes is restored. The results are added to `p.tried`, stored with the run, and
        shown by its dashboard.

        Parameters
        ----------
        rule : str
            A rule of `p.advice`, or an experiment; ``"all"``: those of all findings.
        budget : float
            Seconds that all experiments may take.

        Returns
        -------
        DataFrame
            `p.tried`.

        Raises
        ------
        NbprofError
            The program cannot run again: the profile was loaded, or recorded by another kernel or
            as a block. Or nothing could be tried, for the reason that is given.
        CaptureError
            There is no experiment for the rule, or the budget is invalid.

        Examples
        --------
        >>> p.try_("optimizer_loop", budget=30)            # doctest: +SKIP
        """
        from nbprof.display.slot import saying
        from nbprof.profiles import trials

        with saying() as say:
            trials.attempt(self.run, rule, budget, say)
        return self.tried

    @property
    def hosts(self) -> list[str]:
        """The machines that were recorded."""
        return list(self.run.hosts)

    def rank(self, which: int | str) -> Profile:
        """One of several hosts or ranks, as if only its file had been loaded.

        Parameters
        ----------
        which : int or str
            The rank that the host has by its name ("rank 37"), else its place in `p.hosts`; or its
            name.

        Raises
        ------
        NbprofError
            There is no such host, or it has no separate file.
        ReadError
            Its file no longer exists.
        """
        hosts = self.hosts
        ranks = [rank_of(host) for host in hosts]
        index = -1
        if isinstance(which, str):
            if which in hosts:
                index = hosts.index(which)
        elif which in ranks:
            index = ranks.index(which)
        elif all(rank is None for rank in ranks):
            index = which
        if not 0 <= index < len(hosts):
            raise NbprofError(
                f"there is no host {which!r} in this run; it has {join_some(hosts, 4)}."
            )
        return self if len(hosts) == 1 else Profile(self.run.host(index))

    @property
    def devices(self) -> pd.DataFrame:
        """One row per device, and one for each recorded SparseCore of a TPU (`core`)."""
        return self.run.devices_and_cores.copy()

    @property
    def receipt(self) -> Receipt:
        """Notes on what was read, what was skipped and what looks wrong: `print(p.receipt)`.

        `p.receipt.notes` is a frame, to filter by `key`: the wording of a note may change, its key
        does not.
        """
        return self.run.receipt

    @property
    def path(self) -> str:
        """The folder of the recorded files."""
        return self.run.source.path

    @property
    def runs(self) -> pd.DataFrame:
        """The windows recorded from the same cell (`--every`), including this one; one row without
        `--every`.

        One row per window in time order: `run`, the name of its folder; `first_step` and
        `last_step`, counted from 1, missing where no step was marked; `shown`, whether it is this
        profile; `path`, which `nbprof.load` takes.
        """
        folder = Path(self.path)
        no_window: list[int | None] = [None, None]
        rows = []
        if self.run.capture is not None:
            for path, info in windows_of(folder, self.run.capture):
                window = info.window or no_window
                rows.append((path.name, *window, path == folder, str(path)))
        if not rows:
            rows.append((folder.name, *no_window, True, str(folder)))
        return pd.DataFrame(rows, columns=names("runs")).astype(
            {"first_step": "Int64", "last_step": "Int64"}
        )

    def payload(
        self, events: int | None = None, progress: Callable[[str], None] | None = None
    ) -> Payload:
        """The data of the dashboard, with up to `events` trace events (20,000).

        Its parts are read by attribute or by key: `p.payload().overview.figures`,
        `p.payload()["overview"]["figures"]`.
        """
        from nbprof.tools import dashboard as payload

        max_events = payload.budget(events)
        held = self._held_payload()
        if held is None or held[0] != max_events:
            held = self._payload = (
                max_events,
                self.run.tried,
                payload.dashboard(self.run, events=max_events, progress=progress),
            )
        return held[2]

    def _held_payload(self) -> tuple[int, pd.DataFrame, Payload] | None:
        held = self._payload
        return held if held is not None and held[1] is self.run.tried else None

    def widget(self, **options: Any) -> DashboardWidget:
        """A live anywidget of the dashboard; `widget.selected` holds the selected steps, to read or
        to set.

        Parameters
        ----------
        views : list of str, optional
            Tabs to show; all by default.
        height : int, optional
            Height in px; the natural height by default.
        selected : (int, int), optional
            First and last step number of the selection.
        events : int, optional
            How many events of the trace it holds by itself, as `save` takes it; it has the others
            while the kernel runs.

        Raises
        ------
        NbprofError
            An unknown option or view, or an invalid value.
        """
        from nbprof.profiles.widget import DashboardWidget

        return DashboardWidget(self.run, **options)

    def mimebundle(
        self,
        views: list[str] | None = None,
        height: int | None = None,
        live: bool = True,
        events: int | None = None,
        *,
        payload: Payload | None = None,
        drawn: bool = True,
        redact: Redact = False,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The four mime types of the notebook output, and their metadata, for `display(...,
        raw=True)`.

        Parameters
        ----------
        views : list of str, optional
            Tabs to show; all by default.
        height : int, optional
            Height of the live view in px.
        live : bool
            False: picture, text and HTML without scripts.
        events : int, optional
            How many events of the trace the output holds, as `save` takes it.
        payload : Payload, optional
            Drawn instead of `payload(events)`.
        drawn : bool
            False: no picture of the steps where no script runs.
        redact : bool or path
            Pseudonyms instead of names, as `save` has them. Such an output asks no kernel for more
            events.

        Raises
        ------
        NbprofError
            An unknown view, or `events` is not a number of events.
        """
        from nbprof.profiles.report import mimebundle

        payload = self._redacted(self.payload(events) if payload is None else payload, redact)
        return mimebundle.mimebundle(
            None if redact else self.run,
            payload,
            views=views,
            height=height,
            live=live,
            drawn=drawn,
        )

    def _redacted(self, payload: Payload, redact: Redact) -> Payload:
        if not redact:
            return payload
        # Imported late, as few reports are redacted.
        from nbprof.profiles.redaction import redacted

        return redacted(payload, [self.run], redact)

    def _early(self, height: int | None = None) -> dict[str, Any] | None:
        """The overview of the steps, for a cell to show until the output of `mimebundle` is ready.

        None if that would not be sooner.
        """
        from nbprof.profiles.report import mimebundle
        from nbprof.tools import dashboard

        if self._payload is not None or not dashboard.large(self.run):
            return None
        payload = dashboard.early(self.run)
        return None if payload is None else mimebundle.early(payload, height)

    def text(self) -> str:
        """Ten lines of plain text."""
        from nbprof.tools import dashboard, text

        held = self._held_payload()
        if held is not None:
            return text.summary(held[2])
        return text.summary(dashboard.spoken(self.run))

    def brief(self, tokens: int = 1500, *, redact: Redact = False) -> str:
        """A summary for language models: Markdown, most important first, each figure with its call.

        Parameters
        ----------
        tokens : int
            Maximum length in tokens (3.5 bytes each).
        redact : bool or path
            Pseudonyms instead of names, as `save` has them.

        Raises
        ------
        NbprofError
            Fewer than 200 tokens.
        """
        from nbprof.profiles.claims import brief_of_profile

        return brief_of_profile(self, tokens, redact)

    def save(self, path: str | Path, *, events: int | None = None, redact: Redact = False) -> Path:
        """Write the report to one HTML file that needs no network and no kernel. An existing file
        is replaced.

        Parameters
        ----------
        path : str or path
        events : int, optional
            How many events of the trace it holds: the longest of each lane, with all that they lie
            in. 20,000 when left out; 100,000 make the file about 700 kB larger than none. 0 leaves
            the lanes and how busy they are.
        redact : bool or path
            True: names of ops, kernels, files, hosts, programs and code become pseudonyms, unless
            they are made of words that frameworks, their libraries or nbprof use; numbers stay. One
            name has the same pseudonym in everything that this user makes on this machine. A path
            also writes the list of what was replaced there, as JSON: not to be shared.

        Raises
        ------
        NbprofError
            The file could not be written, or `events` is not a number of events.
        """
        from nbprof.profiles.report import html

        target = Path(path).expanduser()
        page = html.page(self.run, self._redacted(self.payload(events), redact)).encode()
        with atomic_write(target, "report", len(page)) as file:
            file.write(page)
        return target

    def log_to(self, tracker: Any, step: int | None = None, *, redact: Redact = False) -> None:
        """Log key figures, verdict and findings, and the HTML report to the active run of an
        experiment tracker.

        Key figures that are known become metrics, such as `nbprof/step_time_ms`, those of
        `nbprof.compare(a, b).figures`. MLflow gets the report and `nbprof.brief` as artifacts,
        Weights & Biases the report as a panel and both as an artifact; Aim shows the brief as text
        and gets the report as an artifact; TensorBoard shows the brief as text, and the report is
        saved in the folder `nbprof` next to its events.

        Parameters
        ----------
        tracker : module, run or SummaryWriter
            The module `mlflow`, the module `wandb` or a run of it, a `Run` of Aim with an
            `artifacts_uri`, or a `SummaryWriter` of `torch.utils.tensorboard` or `tensorboardX`.
        step : int, optional
            The step of the training that the metrics are logged at.
        redact : bool or path
            Pseudonyms instead of names, as `save` has them.

        Raises
        ------
        NbprofError
            The tracker is unknown, or has no active run.

        Examples
        --------
        >>> with mlflow.start_run():        # doctest: +SKIP
        ...     p.log_to(mlflow)
        """
        from nbprof.profiles import trackers

        trackers.log(
            tracker,
            self.run,
            lambda path: self.save(path, redact=redact),
            lambda: self.brief(redact=redact),
            step,
        )

    def _display_(self) -> Any:
        # marimo asks this, and draws widgets.
        return self.widget()

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.mimebundle()

    def __repr__(self) -> str:
        return self.text()


def _has_content(view: View) -> bool:
    try:
        return view._there()
    except NbprofError:
        # Accessing it explains why it cannot be read.
        return True
