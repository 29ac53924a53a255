"""The overview: the verdict with its evidence, checks, and the figures that prove it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.activity import (
    CATEGORIES,
    DEVICE_BETWEEN_NODES,
    LOST_KERNELS,
    PLAIN,
    READ_IN_PART,
    SERVING,
    UNKNOWN_PRECISION,
    WAITS_FOR_ITEMS,
    Activity,
    device_names,
)
from nbprof.analysis.advice import checks
from nbprof.analysis.cpu import CpuSplit
from nbprof.analysis.kernels import fixed_type_percent
from nbprof.analysis.memory.memory import leading
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.steps.steps import counted
from nbprof.analysis.verdict import Breakdown, verdict
from nbprof.core.intervals import Intervals


def breakdown(
    activity: Activity,
    steps: pd.DataFrame,
    summary: pd.DataFrame,
    busy: float | None,
    dropped: int,
    *,
    captures: bool,
    works_ahead: bool,
    cpu: CpuSplit | None,
) -> Breakdown:
    """The evidence for the verdict; parameters as of `of_steps`."""
    categories = summary["category"].tolist()
    percent = dict(zip(categories, summary["percent"].tolist(), strict=True))
    shares = {category: _without_nan(percent[category]) or 0.0 for category in CATEGORIES}
    mean = float(summary["mean_ms"].iloc[categories.index("step_time")])
    return Breakdown(activity, steps, mean, shares, dropped, busy, captures, works_ahead, cpu)


def of_steps(
    activity: Activity,
    steps: pd.DataFrame,
    summary: pd.DataFrame,
    busy: float | None,
    dropped: int,
    *,
    captures: bool,
    works_ahead: bool,
    input_traced: bool,
    cpu: CpuSplit | None = None,
) -> dict[str, Any]:
    """The keys of the mapping `p.overview` that follow from the steps: the verdict with its
    evidence, and the system that the program ran on.

    Parameters
    ----------
    activity : Activity
    steps : DataFrame
        Rows of `p.steps.frame`.
    summary : DataFrame
        The summary of the steps.
    busy : float or None
        The result of `busy`.
    dropped : int
        Number of events that were left out.
    captures : bool
        Whether launches were captured into a graph.
    works_ahead : bool
        Whether a pipeline prepares batches while the steps do something else.
    input_traced : bool
        Whether the profile can tell how long steps wait for input.
    cpu : CpuSplit, optional
        The parts of host compute, in a program without a device.
    """
    by_category = summary.set_index("category")
    evidence = breakdown(
        activity, steps, summary, busy, dropped, captures=captures, works_ahead=works_ahead, cpu=cpu
    )
    input_percent = _without_nan(by_category["percent"]["input"]) if input_traced else None
    return {
        **verdict(evidence).to_dict(),
        "step_time_ms": _without_nan(by_category["mean_ms"]["step_time"]),
        "step_time_sd_ms": _without_nan(by_category["sd_ms"]["step_time"]),
        "step_time_median_ms": _without_nan(by_category["median_ms"]["step_time"]),
        "step_time_p95_ms": _without_nan(by_category["p95_ms"]["step_time"]),
        "input_percent": input_percent,
        "device_busy_percent": busy,
        "device_idle_percent": None if busy is None else max(0.0, 100.0 - busy),
        "hosts": len(activity.hosts),
        "devices": len(activity.devices),
        "device_kind": _device_kind(activity),
        "framework": activity.framework.title,
        "warmup_steps": int(steps["warmup"].astype(bool).sum()) if len(steps) else 0,
        "steps": len(steps),
        "unit": activity.unit.to_dict(),
        "environment": environment(activity),
    }


def _device_kind(activity: Activity) -> str | None:
    """The names of the devices; "CPU" without any, None if unknown.

    A device has no name if only its memory was recorded.
    """
    names = device_names(activity.devices)
    if names:
        return names
    if activity.has_device or activity.traits & _UNKNOWN_DEVICE:
        return None
    return "CPU"


def overview(
    first: dict[str, Any],
    activity: Activity,
    summary: pd.DataFrame,
    half: float | None,
    ops: pd.DataFrame,
    in_steps: pd.DataFrame,
    host_in_steps: pd.DataFrame,
    eager_us: dict[str, tuple[float, float]],
    kernels: pd.DataFrame,
    memory: pd.DataFrame,
    *,
    functions: pd.DataFrame,
    tf_data: bool,
    private_threads: bool,
    input_traced: bool,
    waiting: float,
    waits_traced: bool,
) -> dict[str, Any]:
    """The mapping `p.overview`: the verdict with its evidence, the checks, and the facts of the
    run.

    Percentages are 0…100; None where the profile does not hold them. `host_op_percent` and
    `device_op_percent` count runs of ops, as TensorFlow Profiler does; the eager shares are of op
    self time.

    Parameters
    ----------
    first : dict
        The result of `of_steps`.
    activity : Activity
    summary : DataFrame
        The summary of the steps.
    half : float or None
        Percent of device compute in 16 bit.
    ops, in_steps : DataFrame
        Rows of `p.ops.frame`; the same without work launched before the recording began.
    host_in_steps : DataFrame
        Self time of host ops in steps.
    eager_us : dict
        Self time of eager runs and of all runs, by side.
    kernels, memory : DataFrame
        `p.kernels.frame` and `p.memory.summary`.
    functions : DataFrame
        The result of `checks.functions`.
    tf_data : bool
        Whether tf.data worked.
    private_threads : bool
        Whether threads of TensorFlow do nothing but launch kernels.
    input_traced : bool
        Whether the profile can tell how long steps wait for input.
    waiting : float
        Percent of the steps that are no work of the host, though no work was recorded: waits for
        the device (`waiting_percent`), and the profiler's own work.
    waits_traced : bool
        Whether more is known of input than copies.
    """
    steps = first["steps"]
    on_host = ops.loc[ops["where"] == "host", "op"]
    has_device_ops = bool((ops["where"] == "device").any())
    # If a wait that nbprof times is all that was recorded of the host, the framework's ops there
    # are unknown.
    only_waits = len(on_host) > 0 and bool(on_host.isin(WAITS_FOR_ITEMS).all())
    if only_waits:
        eager_us = {**eager_us, "host": (0.0, 0.0)}
    facts = {**first, **_op_percents(ops, activity, eager_us)}
    silent_precision = UNKNOWN_PRECISION in activity.traits or (half is not None and np.isnan(half))
    half = None if silent_precision else half
    facts["compute_16bit_percent"] = half
    facts["compute_32bit_percent"] = None if half is None else 100.0 - half
    facts["outside_compilation_percent"] = _outside_compilation(ops, activity)
    largest = leading(memory, activity.hosts, on_device=len(activity.device_extents) > 0)
    facts["peak_memory_bytes"] = _first_bytes(largest["peak_bytes"])
    facts["memory_capacity_bytes"] = _first_bytes(largest["capacity_bytes"])
    facts["tf_functions"] = functions
    facts["checks"] = checks.checks(
        _shares_without_waiting(summary, waiting) if steps else {},
        facts,
        functions,
        tf_data=tf_data and not private_threads,
        input_traced=input_traced,
        waits_traced=waits_traced,
        host_traced=activity.has_host_ops,
        device_ops=has_device_ops,
        silent_precision=silent_precision,
        fixed_percent=fixed_type_percent(kernels),
        framework=activity.framework,
        serving=SERVING in activity.traits,
    )
    side = "device" if has_device_ops else "host"
    top = ops[ops["where"] == side]
    self_times = in_steps[in_steps["where"] == "device"] if has_device_ops else host_in_steps
    if only_waits and not has_device_ops:
        top = top.head(0)
    facts["top_ops_where"] = side
    facts["top_ops"] = _top_ops(top, self_times, kernels, steps)
    return facts


def _shares_without_waiting(summary: pd.DataFrame, waiting: float) -> dict[str, float | None]:
    """Percent of the steps by category, `other` without waits for the device: these are recorded,
    and neither Python nor input.
    """
    percents = zip(summary["category"].tolist(), summary["percent"].tolist(), strict=True)
    shares = {str(category): _without_nan(percent) for category, percent in percents}
    other = shares.get("other")
    if other is not None:
        shares["other"] = other - waiting
    return shares


def _first_bytes(column: pd.Series) -> int | None:
    return int(column.iloc[0]) if column.notna().any() else None


def _top_ops(
    ops: pd.DataFrame, in_steps: pd.DataFrame, kernels: pd.DataFrame, steps: int
) -> pd.DataFrame:
    """The ten ops with the most self time; with FLOP rate and use of Tensor Cores if known.

    `in_steps` has their self time in steps, by op: of the device all but what was launched before
    the recording began. Without steps only `self_ms` is known.
    """
    top = ops.head(10).reset_index(drop=True)
    us_of_op = dict(zip(in_steps["op"].tolist(), in_steps["self_us"].tolist(), strict=True))
    of_steps = np.array([us_of_op.get(op, 0.0) for op in top["op"].tolist()])
    table = pd.DataFrame(
        {
            "rank": np.arange(1, len(top) + 1),
            "op": top["op"],
            "type": top["type"],
            "self_ms": top["self_us"] / 1000,
            "ms_per_step": of_steps / 1000 / (steps or np.nan),
            "percent": 100 * top["self_fraction"],
            "cumulative_percent": 100 * top["cumulative_fraction"],
        }
    )
    if "flops_per_second" in top.columns and top["flops_per_second"].notna().any():
        table["flops_per_second"] = top["flops_per_second"]
    if not len(kernels):
        return table
    code, names = pd.factorize(kernels["op"].to_numpy(object))
    rows = pd.Index(names).get_indexer(table["op"])
    if not (rows >= 0).any():
        return table
    for column in ("op_tensor_core_eligible", "uses_tensor_core"):
        # The last one is for ops without kernels.
        largest = np.full(len(names) + 1, np.nan)
        np.fmax.at(largest, code, kernels[column].to_numpy(np.float64, na_value=np.nan))
        table[column] = pd.array(largest[rows] == 1, dtype="boolean")
        table[column] = table[column].mask(np.isnan(largest[rows]))
    return table


def _outside_compilation(ops: pd.DataFrame, activity: Activity) -> float | None:
    """Percent of op time on TPUs in which a compiled program waits for work outside of it; None
    without TPU ops.
    """
    if not (activity.devices["kind"] == "TPU").any():
        return None
    rows = np.flatnonzero(ops["where"].to_numpy(object) == "device")
    self_us = ops["self_us"].to_numpy(np.float64)[rows]
    total = float(self_us.sum())
    if not total:
        return None
    outside = np.isin(ops["type"].to_numpy(object)[rows], ("XlaSendToHost", "XlaRecvFromHost"))
    return 100 * float(self_us[outside].sum()) / total


def environment(activity: Activity) -> dict[str, Any]:
    """The mapping `p.overview["environment"]`: the system that the program ran on, as stated in the
    file.

    `hosts` (their names), `device_count`, `devices` (one entry per kind of device: `name` `kind`
    `count` `compute_capability` `memory_bytes` `cores` `megacore` `sparse_cores` (beside each)
    `architecture`), `framework`, `versions`, `start_time` (ISO, UTC), `duration_s`; None, or an
    empty mapping, for facts that the file does not state.
    """
    recorded = activity.environment
    versions = recorded.get("versions")
    facts = {
        "hosts": list(activity.hosts),
        "device_count": len(activity.devices),
        "devices": _device_kinds(activity.devices),
        "framework": activity.framework.title or None,
        "versions": versions if isinstance(versions, dict) else {},
        "start_time": recorded.get("start_time"),
        "duration_s": recorded.get("duration_s"),
    }
    if "processes" in recorded:
        facts["processes"] = recorded["processes"]
    return facts


_DEVICE_FACTS = [
    "name",
    "kind",
    "compute_capability",
    "memory_bytes",
    "cores",
    "megacore",
    "sparse_cores",
]


def _device_kinds(devices: pd.DataFrame) -> list[dict[str, Any]]:
    """The facts of each kind of device, with the number of devices."""
    kinds: dict[tuple[object, ...], dict[str, Any]] = {}
    for values in zip(*(devices[name].tolist() for name in _DEVICE_FACTS), strict=True):
        facts: dict[str, Any] = {}
        for name, value in zip(_DEVICE_FACTS, values, strict=True):
            facts[name] = None if pd.isna(value) else value
        facts["architecture"] = _architecture(
            str(facts["name"]), str(facts["kind"]), facts["compute_capability"]
        )
        kinds.setdefault(tuple(facts.values()), {**facts, "count": 0})["count"] += 1
    return list(kinds.values())


_ARCHITECTURES = {
    2: "Fermi",
    3: "Kepler",
    5: "Maxwell",
    6: "Pascal",
    8: "Ampere",
    9: "Hopper",
    10: "Blackwell",
    12: "Blackwell",
}


_ARCHITECTURES_BY_MINOR = {"7.5": "Turing", "8.9": "Ada Lovelace"}


def _architecture(name: str, kind: str, capability: Any) -> str | None:
    """The architecture of a GPU of NVIDIA by its compute capability; None for other devices."""
    if kind != "GPU" or not isinstance(capability, str) or re.search("AMD|Radeon|Instinct", name):
        return None
    if capability in _ARCHITECTURES_BY_MINOR:
        return _ARCHITECTURES_BY_MINOR[capability]
    major, _, minor = capability.partition(".")
    if major == "7" and minor:
        return "Volta"
    return _ARCHITECTURES.get(int(major)) if major.isdigit() else None


def busy(shares: list[float] | None) -> float | None:
    """Percent of the time in counted steps in which a device ran something; None without a device
    or without steps.

    For several devices it is the mean of those that ran anything in these steps. `shares` is the
    result of `busy_shares`.
    """
    if not shares:
        return None
    ran = [share for share in shares if share > 0]
    return float(np.mean(ran)) if ran else 0.0


def busy_shares(activity: Activity, steps: pd.DataFrame) -> list[float]:
    """By device: percent of the time in counted steps in which it ran something; none without a
    device or without steps.

    A kernel, a copy or a fill on any stream counts, an instant once, whatever step launched it: so
    a device can be busy while the step breakdown shows the host at work.
    """
    used = counted(steps)
    used = used[~used["lost"]]
    # Copies that were recorded do not tell how busy kernels kept the device.
    if activity.lost_kernels:
        return []
    work = activity.work
    work = work.take((work.device >= 0) & (work.cls != DEVICE_BETWEEN_NODES))
    # A device without recorded work may have run nothing, or may not have been traced.
    if not len(work) or not len(used):
        return []
    shares = []
    for host in np.unique(work.host).tolist():
        host_steps = used[used["host"] == activity.hosts[host]]
        in_steps = Intervals.union(*step_bounds(host_steps))
        total = in_steps.total()
        if not total:
            continue
        of_host = work.take(work.host == host)
        for device in np.unique(of_host.device).tolist():
            rows = of_host.device == device
            ran = Intervals.union(of_host.start[rows], of_host.end[rows])
            shares.append(float(100 * ran.overlap(in_steps) / total))
    return shares


def _without_nan(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _op_percents(
    ops: pd.DataFrame, activity: Activity, eager_us: dict[str, tuple[float, float]]
) -> dict[str, float | None]:
    percents: dict[str, float | None] = {}
    count = ops.groupby("where")["occurrences"].sum()
    total = float(count.sum())
    # No recorded op on the host does not make 100 % on the device; nor does the share of one host
    # of several stand for all of them.
    host_recorded = activity.has_host_ops and not (
        activity.hosts_without_ops and activity.has_device
    )
    read_in_part = READ_IN_PART in activity.traits and bool(activity.lost)
    device_recorded = activity.has_device and not activity.lost_kernels and not read_in_part
    recorded = {"host": host_recorded, "device": device_recorded and host_recorded}
    eager_calls, eager_time = activity.eager_calls
    for side, is_recorded in recorded.items():
        percent = None
        if total and is_recorded:
            percent = 100 * float(count.get(side, 0)) / total
        eager, self_time = eager_us[side]
        if side == "host" and eager_calls > count.get(side, 0):
            # Most of the program is eager ops of which only the calls were recorded.
            eager, self_time = eager + eager_time / 1e6, self_time + eager_time / 1e6
        percents[f"{side}_op_percent"] = percent
        percents[f"eager_{side}_percent"] = (
            _without_nan(100 * eager / self_time) if self_time else None
        )
    return percents


_UNKNOWN_DEVICE = {PLAIN, LOST_KERNELS}
"""Traits of recordings without a device that need not be of the CPU alone."""
