"""Evidence for advice beyond overview, kernels and input, computed when a rule asks for it.

`Evidence` declares each piece once, with the function that computes it from `Sources`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import PYTHON_CALLS, READ_IN_PART, SERVING, TRACED, Activity
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
from nbprof.analysis.steps.bare_parts import BareParts
from nbprof.analysis.steps.inside import begin_in_steps
from nbprof.analysis.steps.periodic import Periodic
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.steps.steps import COPIED, counted, mostly_lost, waiting_percent
from nbprof.core.errors import ReadError
from nbprof.core.intervals import Intervals
from nbprof.core.runs import rows_by_code
from nbprof.core.trace import Int64s, Trace
from nbprof.frameworks.register import JAX, PYTORCH
from nbprof.hlo.hlo import Program

if TYPE_CHECKING:
    from nbprof.analysis.advice.workers import PythonOfInput
    from nbprof.analysis.compiles.again import Again
    from nbprof.analysis.compiles.breaks import Breaks
    from nbprof.analysis.cpu import CpuSplit
    from nbprof.analysis.input.loops import LoopWaits
    from nbprof.analysis.memory.host import HostGrowth
    from nbprof.analysis.pools import PoolWait
    from nbprof.analysis.python import PythonUse
    from nbprof.analysis.result_waits import ResultWaits
    from nbprof.analysis.steps.over_run import Slow, Slowing

T = TypeVar("T")

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
        if not self.unpadded_bytes:
            return 1.0
        return self.peak_bytes / self.unpadded_bytes


MOSTLY_LONG = 2.0
"""If the mean is more than this times the median, a few long gaps dominate."""


@dataclass(frozen=True)
class LongGaps:
    """Gaps that are most of the time between steps: their number, and their median in ms.

    `left_out_ms` is the longest gap if it is not counted because it may be between two loops.
    """

    count: int
    typical_ms: float
    left_out_ms: float | None = None


@dataclass(frozen=True)
class HostProducts:
    """Matrix products that ran on the host: percent of host op time, ms per step, the longest op,
    and its time per call.
    """

    percent: float
    ms: float
    op: str
    call_us: float


@dataclass(frozen=True)
class Spread:
    """The slowest worker, its mean time per step in ms, and the mean of all workers."""

    worker: str
    ms: float
    mean_ms: float
    workers: int


@dataclass(frozen=True)
class Straggler:
    """A rank that is slower than the others: its cost in ms per step, the number of steps in which
    it is the slowest, and the reason.

    `waited_for` tells whether the others waited for it, as ranks do that communicate; if not,
    `saved_ms` is how far it is behind.
    """

    host: str
    saved_ms: float
    slowest_in: int
    steps: int
    why: str
    waited_for: bool = True


@dataclass(frozen=True)
class DeviceLoop:
    """A loop in a compiled program: its iterations and kernels per step of a device, and the share
    of all kernels, 0 to 1.
    """

    iterations: float
    kernels: float
    share: float


@dataclass(frozen=True)
class HostUse:
    """Use of the host, from a recording of nbprof.

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
        Instructions of the CPU for bfloat16; "" if it has none, or if unknown.
    library : float
        Percent of a unit outside ops in code that is known to be of a library, such as NumPy.
    waits : ResultWaits, optional
        Time in which a JAX program waits for its results.
    pool : PoolWait, optional
        Time in which the program waits for a process pool.
    """

    parts: dict[str, float]
    python: PythonUse | None
    cpu: CpuSplit | None
    contention: Mapping[str, float]
    products: Products = NO_PRODUCTS
    bf16: str = ""
    library: float = 0.0
    waits: ResultWaits | None = None
    pool: PoolWait | None = None


@dataclass
class Sources:
    """Tables of a profile that evidence is computed from.

    Attributes
    ----------
    activity : Activity
    trace : Trace
        Its events.
    steps, ops, kernels : DataFrame
        `p.steps.frame` with its columns `kind` and `counted`, `p.ops.frame`, `p.kernels.frame`.
    memory, pods, stragglers : DataFrame
        `p.memory.summary`, `p.pods.frame`, `p.pods.stragglers`.
    modules : callable
        Returns `p.memory_viewer.modules`; called only for TPUs, which store arrays in tiles.
    compiled : mapping
        Programs by name.
    calls : DataFrame
        `p.tf_data.calls`.
    marked : array of int64
        The lanes of `activity.markers`.
    """

    activity: Activity
    trace: Trace
    steps: pd.DataFrame
    ops: pd.DataFrame
    kernels: pd.DataFrame
    memory: pd.DataFrame
    modules: Callable[[], pd.DataFrame]
    compiled: Mapping[str, Named]
    pods: pd.DataFrame
    stragglers: pd.DataFrame
    calls: pd.DataFrame
    marked: Int64s

    @cached_property
    def between(self) -> Between:
        """Time between steps."""
        return between_steps(self)

    @cached_property
    def allocator(self) -> Allocator:
        """State of the device's allocator at its peak."""
        return allocator(self)


class Piece(Generic[T]):
    """One attribute of `Evidence`, computed when a rule first reads it.

    Parameters
    ----------
    compute : callable or None
        Computes it from the tables of a profile; None if only the caller can know it.
    missing : object
        Its value without tables.
    """

    def __init__(self, compute: Callable[[Sources], T] | None, missing: T) -> None:
        self._compute = compute
        self._missing = missing
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, evidence: Evidence | None, owner: type) -> T:
        if evidence is None or evidence.sources is None or self._compute is None:
            return self._missing
        result = self._compute(evidence.sources)
        # The instance's dictionary comes before a descriptor without __set__.
        evidence.__dict__[self._name] = result
        return result


class Evidence:
    """Evidence for the rules, by name; None or empty where the profile does not have it.

    Parameters
    ----------
    sources : Sources, optional
        Tables of the profile; without them only `values` are known.
    **values : object
        Attributes that are known already.
    """

    def __init__(self, sources: Sources | None = None, **values: Any) -> None:
        unknown = [name for name in values if not isinstance(vars(Evidence).get(name), Piece)]
        if unknown:
            raise TypeError(f"Evidence has no attribute {', '.join(unknown)}.")
        self.sources = sources
        self.__dict__.update(values)

    def with_values(self, **values: Any) -> Evidence:
        """A copy with other values of some attributes."""
        cached = {name: value for name, value in vars(self).items() if name != "sources"}
        return Evidence(self.sources, **{**cached, **values})

    # Compiled programs

    work: Piece[Work | None] = Piece(lambda s: advice_programs.gather(s.activity), None)
    """Ops of compiled programs on devices."""
    programs_per_step: Piece[float | None] = Piece(
        lambda s: programs_per_step(s.activity, s.steps), None
    )
    """Runs of compiled programs per step of a host, for JAX."""
    device_loop: Piece[DeviceLoop | None] = Piece(
        lambda s: _device_loop(s.activity, s.ops, len(s.steps)), None
    )
    """A loop in the compiled programs of a JAX step."""
    unrolled: Piece[Unrolled | None] = Piece(lambda s: unrolled.find(s.activity), None)
    """Layers of the main program that a Python loop wrote out."""
    padding: Piece[Padding | None] = Piece(lambda s: _padding(s), None)
    """The program with the most padding in its memory, on TPUs."""

    # Memory

    fragmentation: Piece[float | None] = Piece(lambda s: s.allocator.fragmentation, None)
    """At the peak of the device's allocator, the share of its free memory outside the largest free
    block; with `reserved_bytes`, the share of reserved memory that is not in use.
    """
    reserved_bytes: Piece[int | None] = Piece(lambda s: s.allocator.reserved_bytes, None)
    """Memory that PyTorch's allocator has reserved at the peak."""
    device_bytes: Piece[int | None] = Piece(lambda s: _device_bytes(s.activity), None)
    """Memory of a device, the smallest if they differ."""
    growth: Piece[Growth | None] = Piece(None, None)
    """Memory that grows from step to step."""
    host_growth: Piece[HostGrowth | None] = Piece(None, None)
    """Host memory that the recorded process keeps of each step without a profiler."""
    host_peak_bytes: Piece[int | None] = Piece(None, None)
    """The most resident memory of the recorded process."""

    # Steps

    slowdown: Piece[float | None] = Piece(None, None)
    """How many times as long recording makes a step at most, if the steps of the cell that ran
    without a profiler tell it.
    """
    bare: Piece[BareParts] = Piece(None, BareParts())
    """The parts of a step without a profiler, where they are known."""
    between_ms: Piece[float | None] = Piece(lambda s: s.between.ms, None)
    """Time between one step and the next, of steps of one kind on one host: the median, or the mean
    if that is mostly a few long gaps.
    """
    long_gaps: Piece[LongGaps | None] = Piece(lambda s: s.between.long_gaps, None)
    """The gaps that are most of `between_ms`, if it is the mean."""
    between_input_ms: Piece[float | None] = Piece(lambda s: s.between.input_ms, None)
    """Part of `between_ms` in which the thread of the steps waits for an iterator of tf.data."""
    compiling: Piece[int | None] = Piece(lambda s: _compiling_steps(s.steps), None)
    """Number of steps that averages use in which anything was compiled."""
    compiled_again: Piece[Again | None] = Piece(None, None)
    """What was compiled again in these steps, and why, if nbprof recorded it."""
    graph_breaks: Piece[Breaks | None] = Piece(None, None)
    """Where functions of `torch.compile` break in these steps, if their cost is known."""
    compiled_first: Piece[bool] = Piece(None, False)
    """True if nbprof recorded what is compiled in these steps, and all of it is the first
    compilation of its function.
    """
    tracing: Piece[int | None] = Piece(lambda s: _tracing_steps(s.activity, counted(s.steps)), None)
    """Number of these steps in which a tf.function was traced."""
    later_input_percent: Piece[float | None] = Piece(lambda s: _later_input(s.steps), None)
    """Input in percent of step time without the first step of each host, in which a pipeline may
    only start.
    """
    waiting_percent: Piece[float] = Piece(lambda s: waiting_percent(s.steps), 0.0)
    """Share of step time in which the host waits for a device that runs nothing; 0 if unknown."""
    overhead_percent: Piece[float] = Piece(None, 0.0)
    """Share of step time in which nothing but the profiler's own work was recorded."""
    copied_ms: Piece[float | None] = Piece(lambda s: _mean(s.steps, "host_to_device_ms"), None)
    """Copies to devices that steps wait for, in ms per step."""
    copied_bytes: Piece[float | None] = Piece(lambda s: _mean(s.steps, COPIED["H2D"]), None)
    """Bytes of all copies to devices per step."""
    code: Piece[StepCode] = Piece(lambda s: step_code.gather(s.activity, s.steps), StepCode())
    """How the step is written."""
    periodic: Piece[Periodic | None] = Piece(None, None)
    """Steps at equal distances that are slower than the others."""
    slow_unrecorded: Piece[Slow | None] = Piece(None, None)
    """The same by the clock of the cell, where none of these steps was recorded."""
    slowing: Piece[Slowing | None] = Piece(None, None)
    """Steps of the cell that take longer and longer."""
    not_launched_ms: Piece[Callable[[], float]] = Piece(None, lambda: float("inf"))
    """Returns the time per step in which devices are idle and their next work is not launched, in
    ms; infinite if no launch is known. Called only for findings that would blame the host.
    """
    serving: Piece[bool] = Piece(lambda s: SERVING in s.activity.traits, False)
    """True if steps are iterations of an inference engine."""

    # Host and devices

    python_calls: Piece[bool] = Piece(lambda s: PYTHON_CALLS in s.activity.traits, False)
    """True if calls of Python are events of the trace."""
    functions: Piece[tuple[str, ...]] = Piece(
        lambda s: python_calls.outside_ops(s.activity, s.trace, s.steps), ()
    )
    """The user's functions with the most time outside of ops, longest first, if calls of Python
    were recorded.
    """
    host_recorded: Piece[bool] = Piece(lambda s: _host_recorded(s.activity), True)
    """True if the profile has anything that the host did: ops, calls of the device's runtime, or
    calls of Python.
    """
    read_in_part: Piece[bool] = Piece(lambda s: READ_IN_PART in s.activity.traits, False)
    """True if a file is truncated or damaged: what it lacks may have been recorded."""
    host: Piece[HostUse | None] = Piece(None, None)
    """Use of the host, if nbprof recorded it."""
    host_products: Piece[HostProducts | None] = Piece(
        lambda s: _host_products(s.activity, s.ops, s.kernels, len(s.steps)), None
    )
    """Matrix products that ran on the host despite a GPU."""
    idle_devices: Piece[Idle | None] = Piece(lambda s: devices_used.idle(s.activity), None)
    """Devices that ran nothing while others did."""
    copies_in_turn: Piece[InTurn | None] = Piece(
        lambda s: devices_used.in_turn(s.activity, s.steps), None
    )
    """Copies from the host to several devices, one after the other."""
    lost_kernels: Piece[bool] = Piece(lambda s: _lost_kernels(s), False)
    """True if a device was used but none of its kernels was recorded, or most steps lost some."""
    spread: Piece[Spread | None] = Piece(lambda s: spread(s.pods), None)
    """Device compute of the slowest worker."""
    straggler: Piece[Straggler | None] = Piece(lambda s: straggler(s.stragglers), None)
    """The slow rank that costs most."""
    npu_rules: Piece[pd.DataFrame | None] = Piece(None, None)
    """`p.ascend.rules.frame`, if the devices are NPUs."""
    texts: Piece[tuple[str, ...]] = Piece(None, ())
    """Event names and messages about the memory of the TPU's runtime."""
    tpu_start_s: Piece[float | None] = Piece(None, None)
    """Start time of the TPU system."""

    # Program

    loop: Piece[LoopWaits | None] = Piece(None, None)
    """What the loop over a DataLoader with workers waits for, other than more of them."""
    python_of_input: Piece[Mapping[str, PythonOfInput]] = Piece(None, {})
    """What tf.data calls in Python, by kind."""
    first_calls: Piece[Mapping[tuple[str, str], float]] = Piece(lambda s: first_calls(s.calls), {})
    """Duration of the first call of each tf.data pipeline in ms, by host and pipeline."""
    iterators: Piece[Mapping[int, Mapping[str, object]]] = Piece(
        lambda s: s.activity.iterator_params, {}
    )
    """Recorded parameters of tf.data iterators, by id."""
    iterator_functions: Piece[Mapping[str, float]] = Piece(
        lambda s: s.activity.iterator_functions, {}
    )
    """Types of the ops that the functions of their pipelines ran, with their time in ms."""
    versions: Piece[Mapping[str, str]] = Piece(None, {})
    """Versions of libraries by name, if the recording has them."""
    in_use: Piece[InUse] = Piece(lambda s: in_use.find(s.activity, s.trace), InUse())
    """Recommended features that the program uses already."""


class Allocator(NamedTuple):
    """State of a device's allocator at its peak; see the attributes of `Evidence`."""

    fragmentation: float | None = None
    reserved_bytes: int | None = None


def allocator(sources: Sources) -> Allocator:
    """Fragmentation at the peak; for PyTorch without it, reserved memory that is not in use."""
    activity = sources.activity
    peaks = leading(sources.memory, activity.hosts, on_device=len(activity.device_extents) > 0)
    if not len(peaks):
        return Allocator()
    if "peak_fragmentation" in peaks and pd.notna(peaks["peak_fragmentation"].iloc[0]):
        return Allocator(float(peaks["peak_fragmentation"].iloc[0]))
    if activity.framework is not PYTORCH:
        return Allocator()
    free, used = peaks["peak_free_bytes"].iloc[0], peaks["peak_bytes"].iloc[0]
    if pd.isna(free) or pd.isna(used) or free + used <= 0:
        return Allocator()
    return Allocator(float(free / (free + used)), int(free + used))


def _device_bytes(activity: Activity) -> int | None:
    sizes = activity.devices["memory_bytes"].dropna()
    return int(sizes.min()) if len(sizes) else None


def _compiling_steps(steps: pd.DataFrame) -> int | None:
    if not len(steps):
        return None
    return int(counted(steps)["compile_ms"].gt(0).sum())


def _host_recorded(activity: Activity) -> bool:
    return activity.has_host_ops or PYTHON_CALLS in activity.traits or len(activity.calls) > 0


def _lost_kernels(sources: Sources) -> bool:
    activity = sources.activity
    return activity.lost_kernels or mostly_lost(sources.steps) is not None


def _later_input(steps: pd.DataFrame) -> float | None:
    used = counted(steps) if len(steps) else steps
    later = used[used["host"].duplicated()]
    if not len(later) or later["input_ms"].isna().all():
        return None
    return 100 * float(later["input_ms"].sum()) / float(later["step_time_ms"].sum())


def first_calls(calls: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Duration of the first call of each tf.data pipeline in ms, by host and pipeline."""
    durations: dict[tuple[str, str], float] = {}
    hosts, pipelines = calls["host"].tolist(), calls["pipeline"].tolist()
    duration_us = calls["duration_us"].tolist()
    for row in np.argsort(calls["start_ms"].to_numpy(np.float64), kind="stable").tolist():
        durations.setdefault((hosts[row], pipelines[row]), duration_us[row] / 1000)
    return durations


def _mean(steps: pd.DataFrame, column: str) -> float | None:
    """The mean over the steps that averages use; None if it was not measured."""
    if column not in steps or not len(steps) or counted(steps)[column].isna().any():
        return None
    return float(counted(steps)[column].mean())


def _tracing_steps(activity: Activity, used: pd.DataFrame) -> int | None:
    """Number of steps in which a tf.function was traced; None without functions or steps."""
    calls = activity.functions.frame()
    if not len(calls) or not len(used):
        return None
    modes = [
        code
        for code in calls["mode"].unique().tolist()
        if str(activity.texts.values[code]).startswith(TRACED)
    ]
    calls = calls[calls["mode"].isin(modes)]
    calls = calls[begin_in_steps(calls, used, activity.hosts)]
    count = 0
    for number, starts in (calls["start"] / 1e9).groupby(calls["host"]):
        host = activity.hosts[int(str(number))]
        begins = np.sort(used.loc[used["host"] == host, "start_ms"].to_numpy(np.float64))
        count += len(np.unique(np.searchsorted(begins, starts, side="right")))
    return count


def programs_per_step(activity: Activity, steps: pd.DataFrame) -> float | None:
    """Programs that a JAX host runs per step on each device; None without programs.

    A program ran as often as its rarest op, because loops repeat the others.
    """
    parts = hlo.ran(activity)[0]
    if activity.framework is not JAX or not len(parts) or not len(steps):
        return None
    of_part = [parts[key].tolist() for key in ("host", "program", "module")]
    runs_of_program: dict[tuple[object, ...], float] = {}
    for *program, runs in zip(*of_part, parts["runs"].tolist(), strict=True):
        key = tuple(program)
        runs_of_program[key] = min(runs, runs_of_program.get(key, runs))
    return (
        float(sum(runs_of_program.values()))
        / len(steps)
        / max(len(activity.devices) / len(activity.hosts), 1.0)
    )


class Between(NamedTuple):
    """Time between steps; see the attributes of `Evidence`."""

    ms: float | None
    long_gaps: LongGaps | None
    input_ms: float | None


def between_steps(sources: Sources) -> Between:
    """Time between steps, its long gaps, and its part that is input."""
    gaps = _gaps(sources.steps)
    lengths = (gaps["end"] - gaps["start"]).to_numpy(np.float64) / 1e9
    ms, long_gaps = _typical_gap(lengths)
    middle: Callable[[Int64s], Any] = np.median if long_gaps is None else np.mean
    if long_gaps is not None and long_gaps.left_out_ms is not None:
        gaps = gaps[np.arange(len(gaps)) != lengths.argmax()]
    spent = _input_in_gaps(sources, gaps)
    return Between(ms, long_gaps, None if spent is None else float(middle(spent)) / 1e9)


def _gaps(steps: pd.DataFrame) -> pd.DataFrame:
    """`host`, `start` and `end` of the gaps between steps, in ps; empty for several kinds of
    steps.
    """
    if steps["kind"].nunique() > 1 or not len(steps):
        return pd.DataFrame({"host": [], "start": [], "end": []})
    code, names = pd.factorize(steps["host"].to_numpy(object))
    is_counted = steps["counted"].to_numpy(np.bool_)
    step_start, step_end = step_bounds(steps)
    hosts: list[npt.NDArray[np.object_]] = []
    starts: list[Int64s] = []
    ends: list[Int64s] = []
    for number, rows in enumerate(rows_by_code(code)):
        index = np.flatnonzero(is_counted[rows])
        # The gap over a step that is not counted would be that step.
        adjacent = np.flatnonzero(np.diff(index) == 1)
        before, after = rows[index[adjacent]], rows[index[adjacent + 1]]
        hosts.append(np.repeat(names[[number]], len(adjacent)))
        starts.append(step_end[before])
        ends.append(np.maximum(step_end[before], step_start[after]))
    return pd.DataFrame(
        {
            "host": np.concatenate(hosts),
            "start": np.concatenate(starts),
            "end": np.concatenate(ends),
        }
    )


def _typical_gap(gaps: npt.NDArray[np.float64]) -> tuple[float | None, LongGaps | None]:
    """`Evidence.between_ms` and `Evidence.long_gaps` of gaps in ms.

    The longest gap is left out if it takes more than all others together: it may be between two
    loops.
    """
    if not len(gaps):
        return None, None
    median, longest = float(np.median(gaps)), float(gaps.max())
    rest = float(gaps.sum()) - longest
    if rest <= MOSTLY_LONG * median * len(gaps):
        return median, None
    left_out_ms = None
    if longest > rest:
        left_out_ms = longest
        gaps = np.delete(gaps, gaps.argmax())
    long = gaps[gaps > gaps.mean()]
    return float(gaps.mean()), LongGaps(
        count=len(long), typical_ms=float(np.median(long)), left_out_ms=left_out_ms
    )


def _input_in_gaps(sources: Sources, gaps: pd.DataFrame) -> Int64s | None:
    """Time in ps of each gap in which the thread of the steps calls an iterator; None without such
    calls.
    """
    iterators = sources.activity.iterators
    calls = iterators.take(np.isin(iterators.lane, sources.marked)).frame()
    if not len(gaps) or not len(calls):
        return None
    spent = np.zeros(len(gaps), np.int64)
    for number, host in enumerate(sources.activity.hosts):
        rows = np.flatnonzero((gaps["host"] == host).to_numpy())
        begin = gaps["start"].iloc[rows].to_numpy(np.int64)
        end = gaps["end"].iloc[rows].to_numpy(np.int64)
        of_host = calls[calls["host"] == number]
        spent[rows] = Intervals.of_rows(of_host).covered_within(begin, end)
    return spent


_IN_LOOP = "/while/body/"


def _device_loop(activity: Activity, ops: pd.DataFrame, steps: int) -> DeviceLoop | None:
    """The ops in the body of `lax.scan`, `fori_loop` or `while_loop`; None without any."""
    if activity.framework is not JAX or not len(ops) or not steps:
        return None
    on_device = ops[ops["where"] == "device"]
    in_loop = on_device[on_device["op"].astype(str).str.contains(_IN_LOOP, regex=False)]
    if not len(in_loop):
        return None
    # Per step of each device.
    runs = in_loop["occurrences"].to_numpy(np.float64) / steps / max(len(activity.devices), 1)
    kernels = float(runs.sum())
    return DeviceLoop(
        iterations=float(np.median(runs)),
        kernels=kernels,
        share=kernels
        * steps
        * max(len(activity.devices), 1)
        / float(on_device["occurrences"].sum()),
    )


def _padding(sources: Sources) -> Padding | None:
    """The program with the most padding; None on devices other than TPUs, and for little of it."""
    if not (sources.activity.devices["kind"] == "TPU").any():
        return None
    modules = sources.modules()
    sized = modules[modules["peak_bytes"].notna() & modules["peak_unpadded_bytes"].notna()]
    if not len(sized):
        return None
    padding = (sized["peak_bytes"] - sized["peak_unpadded_bytes"]).astype("i8")
    if int(padding.max()) < MUCH_PADDING:
        return None
    row = sized.iloc[int(padding.to_numpy().argmax())]
    program = Padding(
        program=str(row["module"]),
        peak_bytes=int(row["peak_bytes"]),
        unpadded_bytes=int(row["peak_unpadded_bytes"]),
    )
    if int(row["instructions"]) > MOST_INSTRUCTIONS:
        return program
    try:
        module = sources.compiled[program.program].module
        buffers = memory_viewer.view(Program(module.data)).at_peak
    except (KeyError, ReadError):
        return program
    if not len(buffers):
        return program
    worst = (buffers["size_bytes"] - buffers["unpadded_bytes"]).to_numpy().argmax()
    buffer = buffers.iloc[int(worst)]
    return replace(
        program,
        buffer=str(buffer["buffer"]),
        shape=str(buffer["shape"]),
        buffer_bytes=int(buffer["size_bytes"]),
        buffer_unpadded_bytes=int(buffer["unpadded_bytes"]),
    )


_PRODUCTS = (
    r"(?:_Fused|_MklFused|_MklNative)?(?:MatMul|BatchMatMul(?:V\d)?|Einsum|"
    r"Conv[23]D(?:Backprop\w+)?|DepthwiseConv2dNative\w*|CudnnRNN\w*|LSTMBlockCell)\Z"
)


def _host_products(
    activity: Activity, ops: pd.DataFrame, kernels: pd.DataFrame, steps: int
) -> HostProducts | None:
    """TensorFlow matrix products that ran on the host despite a GPU.

    One that also ran on the GPU only launched kernels on the host.
    """
    if activity.framework in (JAX, PYTORCH) or not len(activity.devices):
        return None
    if not steps or not len(ops):
        return None
    host = ops[ops["where"] == "host"]
    host_us = float(host["self_us"].sum())
    kinds = [kind for kind in host["type"].unique() if re.match(_PRODUCTS, str(kind))]
    products = host[host["type"].isin(kinds)]
    if len(products):
        on_device = set(ops.loc[ops["where"] == "device", "op"].astype(str))
        if len(kernels):
            on_device |= set(kernels["op"].astype(str))
        products = products[~products["op"].astype(str).isin(on_device)]
    if not len(products) or not host_us:
        return None
    worst = products.iloc[int(products["self_us"].to_numpy().argmax())]
    product_us = float(products["self_us"].sum())
    return HostProducts(
        percent=100 * product_us / host_us,
        ms=product_us / 1000 / steps,
        op=str(worst["op"]),
        call_us=float(worst["avg_self_us"]),
    )


def straggler(ranks: pd.DataFrame) -> Straggler | None:
    """The straggler without which steps would be shortest; without communication, the one that is
    furthest behind.
    """
    cost = ranks["saved_ms"].where(ranks["by"] == COLLECTIVES, ranks["excess_ms"])
    is_straggler = ranks["straggler"].fillna(False).astype(bool) & cost.notna()
    stragglers = ranks.assign(cost=cost)[is_straggler]
    if not len(stragglers):
        return None
    row = stragglers.iloc[int(stragglers["cost"].to_numpy(np.float64).argmax())]
    return Straggler(
        host=str(row["host"]),
        saved_ms=float(row["cost"]),
        slowest_in=int(row["slowest_in"]),
        steps=int(row["steps"]),
        why=str(row["why"] or ""),
        waited_for=str(row["by"]) == COLLECTIVES,
    )


def spread(pods: pd.DataFrame) -> Spread | None:
    """Among workers that step together, the one that computes longest."""
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
