"""The answer first: what bounds the step, how sure that is, and the figures that prove it."""

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
    """What the verdict is made of; parameters as of `of_steps`."""
    by_category = summary.set_index("category")
    shares = {category: _known(by_category["percent"][category]) or 0.0 for category in CATEGORIES}
    mean = float(by_category["mean_ms"]["step_time"])
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
    """What of the mapping `p.overview` follows from the steps: the verdict with its evidence, and
    what the program ran on.

    `summary` is that of the steps, `busy` comes from the function of that name, `captures` says
    whether launches were captured into a graph, `works_ahead` whether a pipeline makes batches
    while the steps do something else, and `input_traced` whether the profile can tell how long
    steps wait for input, and `cpu` what host compute consists of, in a program without a device.
    """
    mean = summary.set_index("category")["mean_ms"]
    percent = summary.set_index("category")["percent"]
    found = breakdown(
        activity, steps, summary, busy, dropped, captures=captures, works_ahead=works_ahead, cpu=cpu
    )
    return {
        **verdict(found).to_dict(),
        "step_time_ms": _known(mean["step_time"]),
        "step_time_sd_ms": _known(summary.set_index("category")["sd_ms"]["step_time"]),
        "step_time_median_ms": _known(summary.set_index("category")["median_ms"]["step_time"]),
        "step_time_p95_ms": _known(summary.set_index("category")["p95_ms"]["step_time"]),
        "input_percent": _known(percent["input"]) if input_traced else None,
        "device_busy_percent": busy,
        "device_idle_percent": None if busy is None else max(0.0, 100.0 - busy),
        "hosts": len(activity.hosts),
        "devices": len(activity.devices),
        # What a device is called that is there is not known where nothing of it but its memory was
        # recorded.
        "device_kind": device_names(activity.devices)
        or (None if activity.has_device or activity.traits & _UNKNOWN_DEVICE else "CPU"),
        "framework": activity.framework.title,
        "warmup_steps": int(steps["warmup"].astype(bool).sum()) if len(steps) else 0,
        "steps": len(steps),
        "unit": activity.unit.to_dict(),
        "environment": environment(activity),
    }


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
    """The mapping `p.overview`: FRAMES.md's keys, the verdict with its evidence, the checks, and
    the facts of the run.

    `first` is what `of_steps` gave, `half` the percent of device compute in 16 bit, `functions` are
    those of `checks.functions`, `tf_data` says whether tf.data worked, `private_threads` whether
    threads of TensorFlow do nothing but launch kernels, `waits_traced` whether more is known of
    input than copies, `waiting` is what `waiting_percent` gave, `in_steps` are the ops without what
    was launched before the recording began, `host_in_steps` the self time of host ops in steps,
    `eager_us` the self time of eager runs, and of all, by side.

    Percentages are 0…100; None where the profile does not hold them. `host_op_percent` and
    `device_op_percent` count runs of ops, as TensorFlow Profiler does; the eager shares are of op
    self time.
    """
    steps = first["steps"]
    percent = summary.set_index("category")["percent"]
    on_host = ops.loc[ops["where"] == "host", "op"]
    # Where a wait that nbprof times is all that was recorded of the host, nothing is known of the
    # framework's ops there.
    only_waits = len(on_host) > 0 and bool(on_host.isin(WAITS_FOR_ITEMS).all())
    if only_waits:
        eager_us = {**eager_us, "host": (0.0, 0.0)}
    out = {**first, **_ops(ops, activity, eager_us)}
    silent_precision = UNKNOWN_PRECISION in activity.traits or (half is not None and np.isnan(half))
    half = None if silent_precision else half
    out["compute_16bit_percent"] = half
    out["compute_32bit_percent"] = None if half is None else 100.0 - half
    out["outside_compilation_percent"] = _outside(ops, activity)
    largest = leading(memory, activity.hosts, on_device=len(activity.device_extents) > 0)
    for key, column in (
        ("peak_memory_bytes", "peak_bytes"),
        ("memory_capacity_bytes", "capacity_bytes"),
    ):
        out[key] = int(largest[column].iloc[0]) if largest[column].notna().any() else None
    shares = {str(key): _known(value) for key, value in percent.items()} if steps else {}
    if (other := shares.get("other")) is not None:
        # That the host waits for the device is recorded: it is neither Python nor input.
        shares["other"] = other - waiting
    out["tf_functions"] = functions
    out["checks"] = checks.checks(
        shares,
        out,
        functions,
        tf_data=tf_data and not private_threads,
        input_traced=input_traced,
        waits_traced=waits_traced,
        host_traced=activity.has_host_ops,
        device_ops=bool((ops["where"] == "device").any()),
        silent_precision=silent_precision,
        fixed_percent=fixed_type_percent(kernels),
        framework=activity.framework,
        serving=SERVING in activity.traits,
    )
    out["top_ops_where"] = "device" if (ops["where"] == "device").any() else "host"
    shown = ops[ops["where"] == out["top_ops_where"]]
    recorded = (
        host_in_steps if out["top_ops_where"] == "host" else in_steps[in_steps["where"] == "device"]
    )
    if only_waits and out["top_ops_where"] == "host":
        shown = shown.head(0)
    out["top_ops"] = _top_ops(shown, recorded, kernels, steps)
    return out


def _top_ops(
    ops: pd.DataFrame, in_steps: pd.DataFrame, kernels: pd.DataFrame, steps: int
) -> pd.DataFrame:
    """The ten ops with the most self time; with FLOP rate and use of Tensor Cores where these are
    known.

    `in_steps` has their self time in steps, by op: of the device all but what was launched before
    the recording began. Without steps there is no time a step, and `self_ms` is all that is known.
    """
    top = ops.head(10).reset_index(drop=True)
    of_steps = in_steps.set_index("op")["self_us"].reindex(top["op"]).fillna(0.0).to_numpy()
    out = pd.DataFrame(
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
        out["flops_per_second"] = top["flops_per_second"]
    if len(kernels):
        code, names = pd.factorize(kernels["op"].to_numpy(object))
        rows = pd.Index(names).get_indexer(out["op"])
        for column in ("op_tensor_core_eligible", "uses_tensor_core") if (rows >= 0).any() else ():
            # The last place is for ops without kernels.
            most = np.full(len(names) + 1, np.nan)
            np.fmax.at(most, code, kernels[column].to_numpy(np.float64, na_value=np.nan))
            out[column] = pd.array(most[rows] == 1, dtype="boolean")
            out[column] = out[column].mask(np.isnan(most[rows]))
    return out


def _outside(ops: pd.DataFrame, activity: Activity) -> float | None:
    """Percent of op time on TPUs in which a compiled program waits for what runs outside of it;
    None without TPU ops.
    """
    if not (activity.devices["kind"] == "TPU").any():
        return None
    mine = ops[ops["where"] == "device"]
    whole = float(mine["self_us"].sum())
    outside = mine["type"].astype(str).isin(("XlaSendToHost", "XlaRecvFromHost"))
    return 100 * float(mine.loc[outside, "self_us"].sum()) / whole if whole else None


def environment(activity: Activity) -> dict[str, Any]:
    """The mapping `p.overview["environment"]`: on what the program ran, as far as the file says.

    `hosts` (their names), `device_count`, `devices` (one entry a kind of device: `name` `kind`
    `count` `compute_capability` `memory_bytes` `cores` `megacore` `sparse_cores` (beside each)
    `architecture`), `framework`, `versions`, `start_time` (ISO, UTC), `duration_s`; None, or an
    empty mapping, for what the file does not say.
    """
    known = activity.environment
    kinds: dict[tuple[object, ...], dict[str, Any]] = {}
    columns = [
        "name",
        "kind",
        "compute_capability",
        "memory_bytes",
        "cores",
        "megacore",
        "sparse_cores",
    ]
    for row in activity.devices[columns].to_dict("records"):
        facts: dict[str, Any] = {
            str(key): None if pd.isna(value) else value for key, value in row.items()
        }
        facts["architecture"] = _architecture(
            str(facts["name"]), str(facts["kind"]), facts["compute_capability"]
        )
        kinds.setdefault(tuple(facts.values()), {**facts, "count": 0})["count"] += 1
    out = {
        "hosts": list(activity.hosts),
        "device_count": len(activity.devices),
        "devices": list(kinds.values()),
        "framework": activity.framework.title or None,
        "versions": versions if isinstance(versions := known.get("versions"), dict) else {},
        "start_time": known.get("start_time"),
        "duration_s": known.get("duration_s"),
    }
    if "processes" in known:
        out["processes"] = known["processes"]
    return out


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


def _architecture(name: str, kind: str, capability: Any) -> str | None:
    """The architecture of a GPU of NVIDIA by its compute capability; None of other devices."""
    if kind != "GPU" or not isinstance(capability, str) or re.search("AMD|Radeon|Instinct", name):
        return None
    major, _, minor = capability.partition(".")
    if capability in ("7.5", "8.9"):
        return "Turing" if major == "7" else "Ada Lovelace"
    return (
        "Volta"
        if major == "7" and minor
        else _ARCHITECTURES.get(int(major))
        if major.isdigit()
        else None
    )


def busy(shares: list[float] | None) -> float | None:
    """Percent of the time in counted steps in which a device ran something; None without a device
    or without steps.

    Of several devices it is the mean of those that ran anything in these steps. `shares` are what
    `busy_shares` gives.
    """
    ran = [share for share in shares or () if share > 0]
    return float(np.mean(ran)) if ran else 0.0 if shares else None


def busy_shares(activity: Activity, steps: pd.DataFrame) -> list[float]:
    """By device: percent of the time in counted steps in which it ran something; none without a
    device or without steps.

    A kernel, a copy or a fill on any stream counts, an instant once, whatever step launched it: so
    a device can be busy while the step breakdown shows the host at work.
    """
    used = counted(steps)
    work = activity.work.frame()
    on_device = (work["device"].to_numpy() >= 0) & (work["cls"].to_numpy() != DEVICE_BETWEEN_NODES)
    # A device that nothing was recorded on may have run nothing, or may not have been traced.
    if not on_device.any() or not len(used):
        return []
    host, device, start, end = (
        work[name].to_numpy(np.int64)[on_device] for name in ("host", "device", "start", "end")
    )
    shares = []
    for at in np.unique(host).tolist():
        mine = used[used["host"] == activity.hosts[at]]
        in_steps = Intervals.union(*step_bounds(mine))
        total = in_steps.total()
        for number in np.unique(device[host == at]).tolist() if total else ():
            rows = (host == at) & (device == number)
            shares.append(100 * Intervals.union(start[rows], end[rows]).overlap(in_steps) / total)
    return [float(share) for share in shares]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _ops(
    ops: pd.DataFrame, activity: Activity, eager_us: dict[str, tuple[float, float]]
) -> dict[str, float | None]:
    out: dict[str, float | None] = {}
    count = ops.groupby("where")["occurrences"].sum()
    total = float(count.sum())
    # What no op was recorded of on the host is no 100 % on the device; nor is it, of one host of
    # several, a share of all of them.
    of_hosts = activity.has_host_ops and not (activity.hosts_without_ops and activity.has_device)
    for where, recorded in (("host", of_hosts), ("device", activity.has_device and of_hosts)):
        out[f"{where}_op_percent"] = (
            100 * float(count.get(where, 0)) / total if total and recorded else None
        )
        eager, self_time = eager_us[where]
        calls, time = activity.eager_calls
        if where == "host" and calls > count.get(where, 0):
            # Most of the program is eager ops of which only the calls were recorded.
            eager, self_time = eager + time / 1e6, self_time + time / 1e6
        out[f"eager_{where}_percent"] = _known(100 * eager / self_time) if self_time else None
    return out


_UNKNOWN_DEVICE = {PLAIN, LOST_KERNELS}
"""Traits of recordings without a device that need not be of the CPU alone."""
