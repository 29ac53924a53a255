"""The parts of a step without a profiler, from its recorded parts and its bare time.

Recording makes no kernel and no copy longer, only the host, by about the same time for every event
that it records. So the device keeps its time, and what recording cost, the difference of a recorded
step and a bare one, is taken from the time of the host: in proportion to the events that were
recorded in each part, and never more than the part. An event begins only when the one before it has
been recorded, so the time between them bounds the cost: of a larger difference the rest is not that
of recording, as on a machine that others use, and every part of the host has the same share of it.
The parts always add up to the bare step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import (
    CATEGORIES,
    CATEGORY_OF_CLASS,
    TORCH_ANNOTATION,
    TORCH_CALL,
    TORCH_OP,
    Activity,
)
from nbprof.analysis import sweep
from nbprof.analysis.steps.bare import BareSteps
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.steps.steps import counted
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s, Trace
from nbprof.frameworks.register import PYTORCH
from nbprof.schema import frames

OF_DEVICE = ("device_compute", "device_to_device", "device_collectives", "output")
"""Categories that are work of a device, where there is one."""
_COST = {TORCH_OP: 1.0, TORCH_CALL: 3.0, TORCH_ANNOTATION: 5.0}
"""What recording an event costs, as a multiple of an op. Calls into CUDA are recorded twice, and a
range is entered and left in Python.
"""
_SPREAD = 3.0
"""No part loses more than this times what its events cost on average, unless all parts do."""
_BEFORE = 0.75
"""Share of the cost of an event that falls before its begin: its inputs are written down first."""
_SLACK = 1.5
"""By which factor an event may cost more than typically passes between the begins of two, as that
share is only roughly known.
"""
_UNEVEN = 0.1
"""By which share the mean of the recorded steps may differ from their median; if it is more, by
which share of a step the extra time of the slow ones may differ from that without recording."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BareParts:
    """The parts of an average step, recorded and bare.

    Attributes
    ----------
    recorded : mapping
        ms per recorded step by category.
    bare : mapping
        The same of a bare step; empty if unknown.
    reason : str
        Why the bare parts are unknown; empty where they are known.
    lost : float
        The part of its time that a part of the host's time loses, up to `limit_ms` for each event.
    limit_ms : float
        ms for an event of cost 1; infinite if all parts lose the same share.
    remaining : float
        The part that remains of the time of the host that is left then.
    device : bool
        True if the program has a device.
    is_mean : bool
        True if the bare step is the mean of those without the profiler, and not their median.
    """

    recorded: Mapping[str, float] = field(default_factory=dict)
    bare: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    lost: float = 0.0
    limit_ms: float = math.inf
    remaining: float = 1.0
    device: bool = False
    is_mean: bool = False

    @property
    def step_ms(self) -> float:
        """The bare step."""
        return sum(self.bare.values())

    @property
    def recorded_ms(self) -> float:
        """The recorded step."""
        return sum(self.recorded.values())

    def is_estimate(self, category: str) -> bool:
        """True if the bare time of a category is not the measured time of its device."""
        return not self.device or category not in OF_DEVICE

    def of_categories(self, ms: float, *categories: str) -> float:
        """The bare part of a recorded time within some categories."""
        recorded = sum(self.recorded[category] for category in categories)
        bare = sum(self.bare[category] for category in categories)
        if not recorded:
            return 0.0
        return min(ms * bare / recorded, bare)

    def of_events(self, ms: float, cost: float) -> float:
        """The bare part of a recorded time of the host, by the cost of the events in it."""
        return self.remaining * (ms - self.lost * _at_most(ms, self.limit_ms, cost))


def _at_most(ms: float, limit_ms: float, cost: float) -> float:
    return ms if math.isinf(limit_ms) else min(ms, limit_ms * cost)


class RecordingCost(NamedTuple):
    """Cost of recording the events of a step.

    Attributes
    ----------
    by_category : mapping
        In units of an op, per step.
    most_ms : float
        ms that a unit takes at most; infinite if unknown.
    """

    by_category: Mapping[str, float] = MappingProxyType({})
    most_ms: float = math.inf


def parts(
    measured: BareSteps, recorded: Mapping[str, float], cost: RecordingCost, *, device: bool
) -> BareParts:
    """The parts of the bare step.

    Parameters
    ----------
    measured : BareSteps
    recorded : mapping
        ms per recorded step by category; NaN where unknown.
    cost : RecordingCost
    device : bool
        True if the program has a device.
    """
    recorded = {c: 0.0 if math.isnan(ms) else ms for c, ms in recorded.items()}
    total = sum(recorded.values())
    reason = measured.reason or _not_comparable(measured, total)
    if reason:
        return BareParts(recorded, reason=reason)
    is_mean = _is_uneven(measured, total)
    step_ms = measured.mean_ms if is_mean else measured.median_ms
    ratio = step_ms / total
    if ratio >= 1:
        # Recording costs nothing that can be measured.
        same = {category: ms * ratio for category, ms in recorded.items()}
        return BareParts(recorded, same, lost=1 - ratio, device=device, is_mean=is_mean)
    device_times = {c: recorded[c] for c in OF_DEVICE} if device else {}
    host = {c: ms for c, ms in recorded.items() if c not in device_times}
    on_device, on_host = sum(device_times.values()), sum(host.values())
    left = step_ms - on_device
    if left <= 0 or not on_host:
        # The device works throughout.
        device_times = {c: ms * step_ms / on_device for c, ms in device_times.items()}
        bare = {c: device_times.get(c, 0.0) for c in recorded}
        return BareParts(recorded, bare, lost=1.0, device=device, is_mean=is_mean)
    loss = _loss(host, cost, on_host - left)
    of_bare = replace(loss, recorded=recorded, device=device, is_mean=is_mean)
    bare = {
        c: of_bare.of_events(ms, cost.by_category.get(c, 0.0)) if c in host else ms
        for c, ms in recorded.items()
    }
    return replace(of_bare, bare=bare)


def _is_uneven(measured: BareSteps, recorded_ms: float) -> bool:
    """True if a few of the recorded steps take much longer."""
    return abs(recorded_ms - measured.recorded_ms) > _UNEVEN * measured.recorded_ms


def _not_comparable(measured: BareSteps, recorded_ms: float) -> str:
    if measured.slowdown is None:
        return "what recording cost is unknown"
    if measured.median_ms > (1 + _UNEVEN) * measured.recorded_ms:
        return "steps took longer without recording than with it"
    if not _is_uneven(measured, recorded_ms):
        return ""
    extra_ms = recorded_ms - measured.recorded_ms
    bare_extra_ms = measured.mean_ms - measured.median_ms
    if not abs(extra_ms - bare_extra_ms) <= _UNEVEN * recorded_ms:
        return "the recorded steps are uneven in another way than those without recording"
    return ""


def _loss(host: Mapping[str, float], cost: RecordingCost, excess_ms: float) -> BareParts:
    """Losses of the parts of the host's time, `excess_ms` together."""
    total_cost = sum(cost.by_category.get(category, 0.0) for category in host)
    on_host, covered = sum(host.values()), 0.0
    if total_cost:
        limit_ms = min(_SPREAD * excess_ms / total_cost, cost.most_ms)
        while limit_ms * total_cost < on_host * len(host) * _SPREAD:
            covered = sum(
                _at_most(ms, limit_ms, cost.by_category.get(c, 0.0)) for c, ms in host.items()
            )
            if covered >= excess_ms:
                return BareParts(lost=excess_ms / covered, limit_ms=limit_ms)
            if limit_ms >= cost.most_ms:
                remaining = (on_host - excess_ms) / (on_host - covered)
                return BareParts(lost=1.0, limit_ms=limit_ms, remaining=remaining)
            limit_ms = min(2 * limit_ms, cost.most_ms)
    return BareParts(lost=excess_ms / on_host)


def cost_of_events(activity: Activity, trace: Trace, steps: pd.DataFrame) -> RecordingCost:
    """The cost of recording per step.

    Most of it falls before the begin of an event. What falls into a time in which the device works
    makes no step longer, so it counts for the device.
    """
    used = counted(steps)
    if len(activity.hosts) != 1 or not len(used):
        return RecordingCost()
    start, cost, lane = _events(activity, trace)
    in_steps = Intervals.union(*step_bounds(used)).index_at(start) >= 0
    start, cost, lane = start[in_steps], cost[in_steps], lane[in_steps]
    work = activity.work
    layers = sweep.layers_of(work.start, work.end, work.cls)
    totals = np.zeros(len(CATEGORIES))
    for time, share in ((start - 1, _BEFORE), (start, 1 - _BEFORE)):
        totals += np.bincount(_category_at(time, layers), cost * share, len(CATEGORIES))
    by_category = dict(zip(CATEGORIES, (totals / len(used)).tolist(), strict=True))
    return RecordingCost(by_category, _most_ms(start, cost, lane))


def _most_ms(start: Int64s, cost: Floats, lane: Int64s) -> float:
    """Most ms that recording an event of cost 1 takes: what typically passes from the begin
    of an event to that of the next one of its thread.
    """
    order = np.lexsort((start, lane))
    start, cost, lane = start[order], cost[order], lane[order]
    follows = np.diff(lane) == 0
    between = np.diff(start)[follows] / 1e9
    recorded = ((1 - _BEFORE) * cost[:-1] + _BEFORE * cost[1:])[follows]
    return _SLACK * float(np.median(between / recorded)) if len(between) else math.inf


def _events(activity: Activity, trace: Trace) -> tuple[Int64s, Floats, Int64s]:
    """Begin of the recorded events of the host, what each costs, and its lane."""
    if activity.framework is PYTORCH:
        ops = activity.torch_ops
        lane = np.where(ops.event >= 0, trace.events.lane[ops.event], -1)
        return ops.start, np.array([_COST[kind] for kind in sorted(_COST)])[ops.kind], lane
    on_host = (trace.lanes["kind"] != "device").to_numpy()[trace.events.lane]
    start = trace.events.start[on_host]
    return start, np.ones(len(start)), trace.events.lane[on_host].astype(np.int64)


def _category_at(time: Int64s, layers: Mapping[int, Intervals]) -> Int64s:
    """Index of the category that counts at each instant."""
    number = np.full(len(time), CATEGORIES.index("other"), np.int64)
    unknown = np.ones(len(time), np.bool_)
    for cls, covered in layers.items():
        hit = unknown & (covered.index_at(time) >= 0)
        unknown &= ~hit
        if cls in CATEGORY_OF_CLASS:
            number[hit] = CATEGORIES.index(CATEGORY_OF_CLASS[cls])
    return number


def cost_within(activity: Activity, spans: Intervals) -> float:
    """The cost of recording the events of PyTorch that begin in some spans, in units of an op."""
    ops = activity.torch_ops
    rows = spans.index_at(ops.start) >= 0
    return float(np.array([_COST[kind] for kind in sorted(_COST)])[ops.kind[rows]].sum())


def frame(parts: BareParts, recorded: Set[str]) -> pd.DataFrame:
    """The public frame, `p.steps.bare`; only `recorded` categories have values."""
    if parts.reason or not parts.bare:
        return frames.empty("steps.bare")
    names = ["step_time", *CATEGORIES]
    ms = {"recorded_ms": parts.recorded, "bare_ms": parts.bare}
    columns: dict[str, object] = {"category": names}
    for name, by_category in ms.items():
        of_categories = [by_category[c] if c in recorded else math.nan for c in CATEGORIES]
        columns[name] = np.array([sum(by_category.values()), *of_categories])
    columns["bare_percent"] = 100 * np.asarray(columns["bare_ms"]) / parts.step_ms
    columns["estimated"] = [name in recorded and parts.is_estimate(name) for name in names]
    return frames.build("steps.bare", columns, list(columns))
