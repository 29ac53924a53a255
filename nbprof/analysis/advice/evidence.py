"""Evidence for advice beyond overview, kernels and input: compiled programs, memory, and the
runtime's messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import LOST_KERNELS, PYTHON_CALLS, SERVING, TRACED, Activity
from nbprof.analysis import hlo
from nbprof.analysis.advice import devices_used, in_use, python_calls, step_code, unrolled
from nbprof.analysis.advice import programs as advice_programs
from nbprof.analysis.advice.devices_used import Idle, InTurn
from nbprof.analysis.advice.in_use import InUse
from nbprof.analysis.advice.programs import Work
from nbprof.analysis.advice.step_code import StepCode
from nbprof.analysis.advice.unrolled import Unrolled
from nbprof.analysis.cpu import NO_PRODUCTS, Products
from nbprof.analysis.memory import viewer as memory_viewer
from nbprof.analysis.memory.growth import Growth
from nbprof.analysis.memory.memory import leading
from nbprof.analysis.memory.modules import Named
from nbprof.analysis.pods.own_time import COLLECTIVES
from nbprof.analysis.steps.inside import begin_in_steps
from nbprof.analysis.steps.periodic import Periodic
from nbprof.analysis.steps.steps import COPIED, counted, mostly_lost, waiting_percent
from nbprof.core.errors import ReadError
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s, Trace
from nbprof.frameworks.register import JAX, PYTORCH
from nbprof.hlo.hlo import Program

if TYPE_CHECKING:
    from nbprof.analysis.cpu import CpuSplit
    from nbprof.analysis.python import PythonUse

MUCH_PADDING = 64 * 2**20
"""Programs with fewer bytes of padding are ignored."""


MOST_INSTRUCTIONS = 10_000
"""For larger programs no buffer is named: simulating their heap takes a second, and their tab does
that anyway.
"""


@dataclass(frozen=True)
class Padding:
    """The program with the most padding in its memory.

    Attributes
    ----------
    program : str
    peak_bytes, unpadded_bytes : int
        At its peak, with and without padding.
    buffer, shape : str
        The buffer with the most padding, and its shape with its tiles.
    buffer_bytes, buffer_unpadded_bytes : int
    """

    program: str
    peak_bytes: int
    unpadded_bytes: int
    buffer: str = ""
    shape: str = ""
    buffer_bytes: int = 0
    buffer_unpadded_bytes: int = 0

    @property
    def expansion(self) -> float:
        """Padded bytes divided by unpadded bytes."""
        return self.peak_bytes / self.unpadded_bytes if self.unpadded_bytes else 1.0


MOSTLY_LONG = 2.0
"""With a mean over so many times the median, a few long gaps are most of the time between steps."""


@dataclass(frozen=True)
class LongGaps:
    """Gaps between steps that are most of the time between them: how many, and their median in ms.

    `left_out_ms` is the longest gap of all where it counts for nothing: it may lie between two
    loops. Else None.
    """

    count: int
    typical_ms: float
    left_out_ms: float | None = None


@dataclass(frozen=True)
class Placed:
    """Matrix products that ran on the host: percent of host op time, ms per step, the longest op,
    and its time per call.
    """

    percent: float
    ms: float
    op: str
    call_us: float


@dataclass(frozen=True)
class Spread:
    """How workers differ: the slowest worker, its mean time per step in a category in ms, and the
    mean of all workers.
    """

    worker: str
    ms: float
    mean_ms: float
    workers: int


@dataclass(frozen=True)
class Straggler:
    """A rank that is slower than the others: which, what it costs a step in ms, in how many of how
    many steps it is the slowest, and why.

    `waited_for`: whether the others were seen to wait for it, as ranks do that communicate; if not,
    `saved_ms` is how far it is behind.
    """

    host: str
    saved_ms: float
    slowest_in: int
    steps: int
    why: str
    waited_for: bool = True


@dataclass(frozen=True)
class HostUse:
    """What the host did, as a recording of nbprof states it beside the files.

    Attributes
    ----------
    parts : dict
        Percent of a unit by part, see `nbprof.analysis.verdict.Breakdown.host_parts`.
    python : PythonUse, optional
        Of the time in which nothing was recorded.
    cpu : CpuSplit, optional
        Of host compute, without a device.
    contention : mapping
        Of the cores.
    products : Products
        Matrix products and convolutions of 32-bit numbers.
    bf16 : str
        Instructions of the CPU for bfloat16; "" where it has none, or where that is not known.
    """

    parts: dict[str, float]
    python: PythonUse | None
    cpu: CpuSplit | None
    contention: Mapping[str, float]
    products: Products = NO_PRODUCTS
    bf16: str = ""


@dataclass(frozen=True)
class Evidence:
    """The evidence found; None or empty for what the profile does not have.

    Attributes
    ----------
    work : Work, optional
        Of compiled programs.
    padding : Padding, optional
    fragmentation : float, optional
        At the peak of the device's allocator: the share of its free memory outside the largest free
        block.
    reserved_bytes : int, optional
        Memory that PyTorch's allocator has reserved at the peak; `fragmentation` is then the share
        of it not in use.
    device_bytes : int, optional
        Memory of a device.
    between_ms : float, optional
        Time between one step and the next, of steps of one kind on one host: the median, or the
        mean where that is mostly a few long gaps.
    long_gaps : LongGaps, optional
        Those that are most of `between_ms`, where it is the mean.
    between_input_ms : float, optional
        Median part of that in which the thread of the steps waits for an iterator of tf.data.
    compiling : int, optional
        How many of the steps that averages use compiled anything.
    tracing : int, optional
        In how many of them a tf.function was traced.
    programs_per_step : float, optional
        Runs of compiled programs per step of a host, for JAX.
    python_calls : bool
        Whether calls of Python are events of the trace.
    idle_devices : Idle, optional
        Devices that ran nothing beside others that did.
    copies_in_turn : InTurn, optional
        Copies from the host to several devices.
    host_recorded : bool
        Whether anything that the host did is in the profile: ops, calls of the device's runtime, or
        calls of Python.
    lost_kernels : bool
        Whether a device was used, but none of its kernels was recorded, or most steps lost some.
    code : StepCode
        Of how the step is written.
    unrolled : Unrolled, optional
        Layers of the main program that a Python loop wrote out.
    placed : Placed, optional
    spread : Spread, optional
        Of device compute.
    straggler : Straggler, optional
        The one that costs most.
    serving : bool
        Whether steps are iterations of an inference engine.
    npu_rules : DataFrame, optional
        `p.ascend.rules.frame`.
    texts : tuple of str
        Event names and error messages about the runtime's memory.
    tpu_start_s : float, optional
        Start time of the TPU system, if recorded.
    periodic : Periodic, optional
    growth : Growth, optional
    later_input_percent : float, optional
        Input in percent of step time without the first step of each host, in which a pipeline may
        only start.
    first_calls : mapping
        By host and pipeline of tf.data: how long its first call took, ms.
    waiting_percent : float
        Share of step time in which the host waits for a device that runs nothing; 0 where that is
        not known.
    not_launched_ms : callable
        Returns the time per step in which devices are idle and their next work is not launched, ms;
        infinite where no launch is known.
    copied_ms, copied_bytes : float, optional
        Copies to devices that steps wait for, per step; bytes of all copies to devices.
    iterators : mapping
        What iterators of tf.data state about themselves, by id.
    iterator_functions : mapping
        Types of the ops that the functions of their pipelines ran, with their time in ms.
    versions : mapping
        Of the libraries, by their names, as the recording states them; the files alone do not.
    host : HostUse, optional
        What the host did, where nbprof recorded it beside the files.
    in_use : InUse
        What the program uses already of that which advice recommends.
    functions : tuple of str
        The person's functions with the most time outside of ops, where calls of Python were
        recorded, longest first.
    """

    work: Work | None = None
    padding: Padding | None = None
    fragmentation: float | None = None
    reserved_bytes: int | None = None
    device_bytes: int | None = None
    between_ms: float | None = None
    long_gaps: LongGaps | None = None
    between_input_ms: float | None = None
    compiling: int | None = None
    tracing: int | None = None
    programs_per_step: float | None = None
    python_calls: bool = False
    host_recorded: bool = True
    idle_devices: Idle | None = None
    copies_in_turn: InTurn | None = None
    lost_kernels: bool = False
    code: StepCode = field(default_factory=StepCode)
    unrolled: Unrolled | None = None
    placed: Placed | None = None
    spread: Spread | None = None
    straggler: Straggler | None = None
    serving: bool = False
    npu_rules: pd.DataFrame | None = None
    texts: tuple[str, ...] = ()
    tpu_start_s: float | None = None
    periodic: Periodic | None = None
    growth: Growth | None = None
    later_input_percent: float | None = None
    first_calls: Mapping[tuple[str, str], float] = field(default_factory=dict)
    copied_ms: float | None = None
    waiting_percent: float = 0.0
    not_launched_ms: Callable[[], float] = lambda: float("inf")
    copied_bytes: float | None = None
    iterators: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    iterator_functions: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    host: HostUse | None = None
    in_use: InUse = field(default_factory=InUse)
    functions: tuple[str, ...] = ()


def gather(
    activity: Activity,
    trace: Trace,
    *,
    steps: pd.DataFrame,
    ops: pd.DataFrame,
    kernels: pd.DataFrame,
    memory: pd.DataFrame,
    modules: Callable[[], pd.DataFrame],
    compiled: Mapping[str, Named],
    pods: pd.DataFrame,
    stragglers: pd.DataFrame,
    texts: Iterable[str] = (),
    started: float | None = None,
    npu_rules: pd.DataFrame | None = None,
    rhythm: Periodic | None = None,
    growth: Growth | None = None,
    calls: pd.DataFrame,
    marked: Int64s,
    not_launched_ms: Callable[[], float],
) -> Evidence:
    """The evidence of a profile.

    Parameters
    ----------
    activity : Activity
    trace : Trace
        Its events.
    steps, ops, kernels, memory, pods, stragglers : DataFrame
        `p.steps.frame` with its columns `kind` and `counted`,
        `p.ops.frame`, `p.kernels.frame`, `p.memory.summary`, `p.pods.frame`, `p.pods.stragglers`.
    modules : callable
        Returns `p.memory_viewer.modules`; called only for TPUs, which store arrays in tiles.
    compiled : mapping
        Programs by name.
    texts : iterable of str
        Event names and messages about the runtime's memory.
    started : float, optional
        Start time of the TPU system, in s.
    npu_rules : DataFrame, optional
        `p.ascend.rules.frame`, where the devices are NPUs.
    rhythm : Periodic, optional
        Of the steps.
    growth : Growth, optional
        Of memory.
    calls : DataFrame
        `p.tf_data.calls`.
    marked : array of int64
        The lanes of `activity.markers`.
    not_launched_ms : callable
        As in the result; called only for findings that would blame the host.
    """
    reserved = None
    leads = leading(memory, activity.hosts, on_device=len(activity.device_extents) > 0)
    fragmentation = (
        leads["peak_fragmentation"].iloc[0]
        if len(leads) and "peak_fragmentation" in leads
        else None
    )
    if (
        (fragmentation is None or pd.isna(fragmentation))
        and activity.framework is PYTORCH
        and len(leads)
    ):
        free, used = leads["peak_free_bytes"].iloc[0], leads["peak_bytes"].iloc[0]
        if pd.notna(free) and pd.notna(used) and free + used > 0:
            reserved, fragmentation = int(free + used), float(free / (free + used))
    sizes = activity.devices["memory_bytes"].dropna()
    gaps = _gaps(steps)
    lengths = (gaps["end"] - gaps["start"]).to_numpy(np.float64) / 1e9
    between, long_gaps = _between(lengths)
    if long_gaps is not None and long_gaps.left_out_ms is not None:
        gaps = gaps[np.arange(len(gaps)) != lengths.argmax()]
    return Evidence(
        work=advice_programs.gather(activity),
        padding=_padding(modules(), compiled)
        if (activity.devices["kind"] == "TPU").any()
        else None,
        fragmentation=None
        if fragmentation is None or pd.isna(fragmentation)
        else float(fragmentation),
        reserved_bytes=reserved,
        device_bytes=int(sizes.min()) if len(sizes) else None,
        between_ms=between,
        long_gaps=long_gaps,
        between_input_ms=_between_input(
            activity, gaps, marked, np.median if long_gaps is None else np.mean
        ),
        compiling=int(counted(steps)["compile_ms"].gt(0).sum()) if len(steps) else None,
        tracing=_tracing(activity, counted(steps)),
        programs_per_step=programs_per_step(activity, steps),
        python_calls=PYTHON_CALLS in activity.traits,
        idle_devices=devices_used.idle(activity),
        copies_in_turn=devices_used.in_turn(activity, steps),
        host_recorded=activity.has_host_ops
        or PYTHON_CALLS in activity.traits
        or len(activity.calls) > 0,
        lost_kernels=(LOST_KERNELS in activity.traits and "kernels" in activity.missing)
        or mostly_lost(steps) is not None,
        code=step_code.gather(activity, steps),
        unrolled=unrolled.find(activity),
        placed=_placed(activity, ops, kernels, len(steps)),
        spread=spread(pods),
        straggler=straggler(stragglers),
        serving=SERVING in activity.traits,
        npu_rules=npu_rules,
        texts=tuple(texts),
        tpu_start_s=started,
        periodic=rhythm,
        growth=growth,
        later_input_percent=_later_input(steps),
        first_calls=first_calls(calls),
        copied_ms=_mean(steps, "host_to_device_ms"),
        waiting_percent=waiting_percent(steps),
        not_launched_ms=not_launched_ms,
        copied_bytes=_mean(steps, COPIED["H2D"]),
        iterators=activity.iterator_params,
        iterator_functions=activity.iterator_functions,
        in_use=in_use.find(activity, trace),
        functions=python_calls.outside_ops(activity, trace, steps),
    )


def _later_input(steps: pd.DataFrame) -> float | None:
    used = counted(steps) if len(steps) else steps
    later = used[used["host"].duplicated()]
    if not len(later) or later["input_ms"].isna().all():
        return None
    return 100 * float(later["input_ms"].sum()) / float(later["step_time_ms"].sum())


def first_calls(calls: pd.DataFrame) -> dict[tuple[str, str], float]:
    """How long the first call of each tf.data pipeline took, in ms, by host and pipeline."""
    first = calls.sort_values("start_ms", kind="stable").drop_duplicates(["host", "pipeline"])
    return {
        (host, pipeline): time / 1000
        for host, pipeline, time in zip(
            first["host"], first["pipeline"], first["duration_us"], strict=True
        )
    }


def _mean(steps: pd.DataFrame, column: str) -> float | None:
    """The mean over the steps that averages use; None where it was not measured."""
    if column not in steps or not len(steps) or counted(steps)[column].isna().any():
        return None
    return float(counted(steps)[column].mean())


def _tracing(activity: Activity, used: pd.DataFrame) -> int | None:
    rows = activity.functions.frame()
    if not len(rows) or not len(used):
        return None
    traced = [
        code
        for code in rows["mode"].unique().tolist()
        if str(activity.texts.values[code]).startswith(TRACED)
    ]
    rows = rows[rows["mode"].isin(traced)]
    rows = rows[begin_in_steps(rows, used, activity.hosts)]
    begins = {
        host: np.sort(host_steps["start_ms"].to_numpy(np.float64))
        for host, host_steps in used.groupby("host", sort=False)
    }
    tracing_starts = (rows["start"] / 1e9).groupby(rows["host"])
    return sum(
        len(
            np.unique(np.searchsorted(begins[activity.hosts[int(str(host))]], starts, side="right"))
        )
        for host, starts in tracing_starts
    )


def programs_per_step(activity: Activity, steps: pd.DataFrame) -> float | None:
    """How many programs a host runs per step on each device: a program ran as often as its rarest
    op, as loops repeat others.

    None without programs.
    """
    parts = hlo.ran(activity)[0]
    if activity.framework is not JAX or not len(parts) or not len(steps):
        return None
    runs = parts.groupby(["host", "program", "module"])["runs"].min().groupby("host").sum()
    return float(runs.sum()) / len(steps) / max(len(activity.devices) / len(activity.hosts), 1.0)


def _gaps(steps: pd.DataFrame) -> pd.DataFrame:
    """From the end of each step to the begin of the next on its `host`, in ps; none of steps of
    several kinds.
    """
    rows = []
    for host, of_host in steps.groupby("host", sort=False) if steps["kind"].nunique() <= 1 else ():
        used = counted(of_host.reset_index(drop=True))
        start, time = (
            np.round(used[column].to_numpy(float) * 1e9).astype(np.int64)
            for column in ("start_ms", "step_time_ms")
        )
        # The gap over a step that is not counted would be that step.
        next_to = np.diff(used.index.to_numpy()) == 1
        low, high = (start + time)[:-1][next_to], start[1:][next_to]
        rows.append(pd.DataFrame({"host": host, "start": low, "end": np.maximum(low, high)}))
    return (
        pd.concat(rows, ignore_index=True)
        if rows
        else pd.DataFrame({"host": [], "start": [], "end": []})
    )


def _between(gaps: npt.NDArray[np.float64]) -> tuple[float | None, LongGaps | None]:
    """`Evidence.between_ms` and `Evidence.long_gaps` of gaps in ms.

    The one longest gap says nothing of the loop where it takes more than all others together: it
    may lie between two loops.
    """
    if not len(gaps):
        return None, None
    usual, longest = float(np.median(gaps)), float(gaps.max())
    rest = float(gaps.sum()) - longest
    if rest <= MOSTLY_LONG * usual * len(gaps):
        return usual, None
    longest_dominates = longest > rest
    used = np.delete(gaps, gaps.argmax()) if longest_dominates else gaps
    long = used[used > used.mean()]
    return float(used.mean()), LongGaps(
        count=len(long),
        typical_ms=float(np.median(long)),
        left_out_ms=longest if longest_dominates else None,
    )


def _between_input(
    activity: Activity, gaps: pd.DataFrame, marked: Int64s, middle: Callable[[Int64s], Any]
) -> float | None:
    """Median or mean part of the gaps in which the thread of the steps calls an iterator, in ms;
    None without such calls.
    """
    iterator_calls = activity.iterators.take(np.isin(activity.iterators.lane, marked)).frame()
    if not len(gaps) or not len(iterator_calls):
        return None
    spent = np.zeros(len(gaps), np.int64)
    for number, host in enumerate(activity.hosts):
        calls, rows = (
            iterator_calls[iterator_calls["host"] == number],
            np.flatnonzero((gaps["host"] == host).to_numpy()),
        )
        of_host = gaps.iloc[rows]
        begin, end = (of_host[side].to_numpy(np.int64) for side in ("start", "end"))
        spent[rows] = Intervals.of_rows(calls).covered_within(begin, end)
    return float(middle(spent)) / 1e9


def _padding(modules: pd.DataFrame, compiled: Mapping[str, Named]) -> Padding | None:
    sized = modules[modules["peak_bytes"].notna() & modules["peak_unpadded_bytes"].notna()]
    if not len(sized):
        return None
    more = (sized["peak_bytes"] - sized["peak_unpadded_bytes"]).astype("i8")
    if int(more.max()) < MUCH_PADDING:
        return None
    row = sized.iloc[int(more.to_numpy().argmax())]
    name, peak, bare = str(row["module"]), int(row["peak_bytes"]), int(row["peak_unpadded_bytes"])
    if int(row["instructions"]) > MOST_INSTRUCTIONS:
        return Padding(program=name, peak_bytes=peak, unpadded_bytes=bare)
    try:
        at_peak = memory_viewer.view(Program(compiled[name].module.data)).at_peak
    except (KeyError, ReadError):
        return Padding(program=name, peak_bytes=peak, unpadded_bytes=bare)
    if not len(at_peak):
        return Padding(program=name, peak_bytes=peak, unpadded_bytes=bare)
    buffer = at_peak.iloc[
        int((at_peak["size_bytes"] - at_peak["unpadded_bytes"]).to_numpy().argmax())
    ]
    return Padding(
        program=name,
        peak_bytes=peak,
        unpadded_bytes=bare,
        buffer=str(buffer["buffer"]),
        shape=str(buffer["shape"]),
        buffer_bytes=int(buffer["size_bytes"]),
        buffer_unpadded_bytes=int(buffer["unpadded_bytes"]),
    )


_PRODUCTS = (
    r"(?:_Fused|_MklFused|_MklNative)?(?:MatMul|BatchMatMul(?:V\d)?|Einsum|Conv[23]D(?:Backprop\w+)?|DepthwiseConv2dNative\w*|"
    r"CudnnRNN\w*|LSTMBlockCell)\Z"
)


def _placed(
    activity: Activity, ops: pd.DataFrame, kernels: pd.DataFrame, steps: int
) -> Placed | None:
    """TensorFlow matrix products that ran on the host despite a GPU. One that also ran on the GPU
    only launched kernels on the host.
    """
    if (
        activity.framework in (JAX, PYTORCH)
        or not len(activity.devices)
        or not steps
        or not len(ops)
    ):
        return None
    host = ops[ops["where"] == "host"]
    host_us = float(host["self_us"].sum())
    kinds = [kind for kind in host["type"].unique() if re.match(_PRODUCTS, str(kind))]
    products = host[host["type"].isin(kinds)]
    if len(products):
        on_device = set(ops.loc[ops["where"] == "device", "op"].astype(str)) | set(
            kernels["op"].astype(str) if len(kernels) else ()
        )
        products = products[~products["op"].astype(str).isin(on_device)]
    if not len(products) or not host_us:
        return None
    worst = products.iloc[int(products["self_us"].to_numpy().argmax())]
    product_us = float(products["self_us"].sum())
    return Placed(
        percent=100 * product_us / host_us,
        ms=product_us / 1000 / steps,
        op=str(worst["op"]),
        call_us=float(worst["avg_self_us"]),
    )


def straggler(ranks: pd.DataFrame) -> Straggler | None:
    """Among stragglers the one without which steps would be shortest; without communication the one
    that is furthest behind.
    """
    cost = ranks["saved_ms"].where(ranks["by"] == COLLECTIVES, ranks["excess_ms"])
    stragglers = ranks.assign(cost=cost)[
        ranks["straggler"].fillna(False).astype(bool) & cost.notna()
    ]
    if not len(stragglers):
        return None
    row = stragglers.iloc[int(stragglers["cost"].to_numpy(np.float64).argmax())]
    waited_for = str(row["by"]) == COLLECTIVES
    return Straggler(
        host=str(row["host"]),
        saved_ms=float(row["cost"]),
        slowest_in=int(row["slowest_in"]),
        steps=int(row["steps"]),
        why=str(row["why"] or ""),
        waited_for=waited_for,
    )


def spread(pods: pd.DataFrame) -> Spread | None:
    """Among workers that step together: the one that computes longest."""
    if not len(pods) or "device_compute_ms" not in pods or pods["worker"].nunique() < 2:
        return None
    mean: Any = pods.groupby("worker", sort=False)["device_compute_ms"].mean().dropna()
    if len(mean) < 2 or not mean.max():
        return None
    return Spread(
        worker=str(mean.idxmax()),
        ms=float(mean.max()),
        mean_ms=float(mean.mean()),
        workers=len(mean),
    )
