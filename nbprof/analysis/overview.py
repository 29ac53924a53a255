"""The answer first: what bounds the step, how sure that is, and the figures that prove it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.activity import (
    CATEGORIES,
    ITERATIONS,
    LOST_KERNELS,
    NEXT_ITEM,
    PLAIN,
    SERVING,
    UNKNOWN_PRECISION,
    Activity,
    device_names,
)
from nbprof.analysis.advice import checks
from nbprof.analysis.memory.memory import leading
from nbprof.analysis.steps import step_count
from nbprof.analysis.steps.steps import counted, waiting_percent
from nbprof.analysis.sweep import covered_before, flatten
from nbprof.display import wording

# Of time without a recorded cause, when the host waits in at least half of it.
_STALLED = "in {p}% of step time the host waits for the device, which runs nothing"
# Of a recording without ops.
_UNRECORDED = "in {p}% of step time nothing ran on a device, and what the host did is not recorded"
# Below this share of the step no class is called the bottleneck.
SINGLE_BOTTLENECK_PERCENT = 35.0
# Steps that cover less than this part of the time from the first to the last leave something of the loop out.
COVERED = 0.8
# A part is of a few steps where so many of them, or fewer, have all but this much of it.
FEW = 0.1

_WORDS = {
    "input": "Input-bound",
    "kernel_launch": "Kernel-launch-bound",
    "device_compute": "Device-bound",
    "host_compute": "Host-bound",
    "compile": "Compile-bound",
    "device_collectives": "Communication-bound",
    "device_to_device": "Communication-bound",
    "output": "Output-bound",
    "other": "Host-bound",
}
_TEXTS = {
    "input": "{p}% of step time is spent waiting for data",
    "kernel_launch": "{p}% of step time is spent launching kernels",
    "device_compute": "the device computes for {p}% of step time",
    "host_compute": "{p}% of step time is spent computing on the host",
    "compile": "{p}% of step time is spent compiling",
    "device_collectives": "{p}% of step time is spent communicating between devices",
    "device_to_device": "{p}% of step time is spent copying between devices",
    "output": "{p}% of step time is spent copying results to the host",
    "other": "{p}% of step time is outside any recorded op, often Python",
}
_DETAILS = {
    "input": "the step waits for the next batch",
    "kernel_launch": "the host prepares and launches kernels one by one",
    "device_compute": "the device is the bottleneck, as it should be",
    "host_compute": "ops run on the CPU",
    "compile": "programs are compiled within the step",
    "device_collectives": "devices exchange data",
    "device_to_device": "devices exchange data",
    "output": "the step waits for copies to the host",
    "other": "no op, launch or copy was recorded in that time",
}


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
) -> dict[str, Any]:
    """What of the mapping `p.overview` follows from the steps: the verdict with its evidence, and what the program ran on.

    `summary` is that of the steps, `busy` comes from the function of that name, `captures` says whether launches were captured into a
    graph, `works_ahead` whether a pipeline makes batches while the steps do something else, and `input_traced` whether the profile can
    tell how long steps wait for input.
    """
    mean = summary.set_index("category")["mean_ms"]
    percent = summary.set_index("category")["percent"]
    return {
        **_verdict(activity, steps, mean, percent, dropped, busy, captures=captures, works_ahead=works_ahead),
        **_without_kernels(activity),
        "step_time_ms": _known(mean["step_time"]),
        "step_time_sd_ms": _known(summary.set_index("category")["sd_ms"]["step_time"]),
        "input_percent": _known(percent["input"]) if input_traced else None,
        "device_busy_percent": busy,
        "device_idle_percent": None if busy is None else max(0.0, 100.0 - busy),
        "hosts": len(activity.hosts),
        "devices": len(activity.devices),
        # What a device is called that is there is not known where nothing of it but its memory was recorded.
        "device_kind": device_names(activity.devices) or (None if activity.has_device or activity.traits & _UNKNOWN_DEVICE else "CPU"),
        "framework": activity.framework,
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
    input_traced: bool,
    waiting: float,
    waits_traced: bool,
) -> dict[str, Any]:
    """The mapping `p.overview`: FRAMES.md's keys, the verdict with its evidence, the checks, and the facts of the run.

    `first` is what `of_steps` gave, `half` the percent of device compute in 16 bit, `functions` are those of
    `checks.functions`, `tf_data` says whether tf.data worked, `waits_traced` whether more is known of input than copies,
    `waiting` is what `waiting_percent` gave,
    `in_steps` are the ops without what was launched before the recording began, `host_in_steps` the self time of host ops in steps,
    `eager_us` the self time of eager runs, and of all, by side.

    Percentages are 0…100; None where the profile does not hold them. `host_op_percent` and `device_op_percent` count runs of ops, as
    TensorFlow Profiler does; the eager shares are of op self time.
    """
    steps = first["steps"]
    percent = summary.set_index("category")["percent"]
    on_host = ops.loc[ops["where"] == "host", "op"]
    # Where the wait that nbprof.steps times is all that was recorded of the host, nothing is known of the framework's ops there.
    only_waits = len(on_host) > 0 and bool((on_host == NEXT_ITEM).all())
    if only_waits:
        eager_us = {**eager_us, "host": (0.0, 0.0)}
    out = {**first, **_ops(ops, activity, eager_us)}
    silent_precision = UNKNOWN_PRECISION in activity.traits or (half is not None and np.isnan(half))
    half = None if silent_precision else half
    out["compute_16bit_percent"] = half
    out["compute_32bit_percent"] = None if half is None else 100.0 - half
    out["outside_compilation_percent"] = _outside(ops, activity)
    largest = leading(memory, activity.hosts, on_device=len(activity.device_extents) > 0)
    for key, column in (("peak_memory_bytes", "peak_bytes"), ("memory_capacity_bytes", "capacity_bytes")):
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
        tf_data=tf_data,
        input_traced=input_traced,
        waits_traced=waits_traced,
        host_traced=activity.has_host_ops,
        device_ops=bool((ops["where"] == "device").any()),
        silent_precision=silent_precision,
        framework=activity.framework,
        serving=SERVING in activity.traits,
    )
    out["top_ops_where"] = "device" if (ops["where"] == "device").any() else "host"
    shown = ops[ops["where"] == out["top_ops_where"]]
    recorded = host_in_steps if out["top_ops_where"] == "host" else in_steps[in_steps["where"] == "device"]
    if only_waits and out["top_ops_where"] == "host":
        shown = shown.head(0)
    out["top_ops"] = _top_ops(shown, recorded, kernels, steps)
    return out


def _top_ops(ops: pd.DataFrame, in_steps: pd.DataFrame, kernels: pd.DataFrame, steps: int) -> pd.DataFrame:
    """The ten ops with the most self time; with FLOP rate and use of TensorCores where these are known.

    `in_steps` has their self time in steps, by op: of the device all but what was launched before the recording began.
    Without steps there is no time a step, and `self_ms` is all that is known.
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
        by_op = kernels[["op", "op_tensor_core_eligible", "uses_tensor_core"]].astype({"op": str}).groupby("op").max()
        for column in by_op.columns if out["op"].isin(by_op.index).any() else ():
            out[column] = pd.array(by_op[column].reindex(out["op"]).to_numpy(), dtype="boolean")
    return out


def _outside(ops: pd.DataFrame, activity: Activity) -> float | None:
    """Percent of op time on TPUs in which a compiled program waits for what runs outside of it; None without TPU ops."""
    if not (activity.devices["kind"] == "TPU").any():
        return None
    mine = ops[ops["where"] == "device"]
    whole = float(mine["self_us"].sum())
    outside = mine["type"].astype(str).isin(("XlaSendToHost", "XlaRecvFromHost"))
    return 100 * float(mine.loc[outside, "self_us"].sum()) / whole if whole else None


def environment(activity: Activity) -> dict[str, Any]:
    """The mapping `p.overview["environment"]`: on what the program ran, as far as the file says.

    `hosts` (their names), `device_count`, `devices` (one entry a kind of device: `name` `kind` `count` `compute_capability`
    `memory_bytes` `cores` `megacore` `sparse_cores` (beside each) `architecture`), `framework`, `versions`, `start_time` (ISO, UTC),
    `duration_s`; None, or an empty mapping, for
    what the file does not say.
    """
    known = activity.environment
    kinds: dict[tuple[object, ...], dict[str, Any]] = {}
    columns = ["name", "kind", "compute_capability", "memory_bytes", "cores", "megacore", "sparse_cores"]
    for row in activity.devices[columns].to_dict("records"):
        facts: dict[str, Any] = {str(key): None if pd.isna(value) else value for key, value in row.items()}
        facts["architecture"] = _architecture(str(facts["name"]), str(facts["kind"]), facts["compute_capability"])
        kinds.setdefault(tuple(facts.values()), {**facts, "count": 0})["count"] += 1
    out = {
        "hosts": list(activity.hosts),
        "device_count": len(activity.devices),
        "devices": list(kinds.values()),
        "framework": activity.framework or None,
        "versions": versions if isinstance(versions := known.get("versions"), dict) else {},
        "start_time": known.get("start_time"),
        "duration_s": known.get("duration_s"),
    }
    if "processes" in known:
        out["processes"] = known["processes"]
    return out


_ARCHITECTURES = {2: "Fermi", 3: "Kepler", 5: "Maxwell", 6: "Pascal", 8: "Ampere", 9: "Hopper", 10: "Blackwell", 12: "Blackwell"}


def _architecture(name: str, kind: str, capability: Any) -> str | None:
    """The architecture of a GPU of NVIDIA by its compute capability; None of other devices."""
    if kind != "GPU" or not isinstance(capability, str) or re.search("AMD|Radeon|Instinct", name):
        return None
    major, _, minor = capability.partition(".")
    if capability in ("7.5", "8.9"):
        return "Turing" if major == "7" else "Ada Lovelace"
    return "Volta" if major == "7" and minor else _ARCHITECTURES.get(int(major)) if major.isdigit() else None


def busy(shares: list[float] | None) -> float | None:
    """Percent of the time in counted steps in which a device ran something; None without a device or without steps.

    Of several devices it is the mean of those that ran anything in these steps. `shares` are what `busy_shares` gives.
    """
    ran = [share for share in shares or () if share > 0]
    return float(np.mean(ran)) if ran else 0.0 if shares else None


def busy_shares(activity: Activity, steps: pd.DataFrame) -> list[float]:
    """By device: percent of the time in counted steps in which it ran something; none without a device or without steps.

    A kernel, a copy or a fill on any stream counts, an instant once, whatever step launched it: so a device can be busy while the step
    breakdown shows the host at work.
    """
    used = counted(steps)
    work = activity.work
    on_device = work["device"].to_numpy() >= 0
    # A device that nothing was recorded on may have run nothing, or may not have been traced.
    if not on_device.any() or not len(used):
        return []
    host, device, start, end = (work[name].to_numpy(np.int64)[on_device] for name in ("host", "device", "start", "end"))
    shares = []
    for at in np.unique(host).tolist():
        mine = used[used["host"] == activity.hosts[at]]
        begin = np.round(mine["start_ms"].to_numpy(np.float64) * 1e9).astype(np.int64)
        stop = begin + np.round(mine["step_time_ms"].to_numpy(np.float64) * 1e9).astype(np.int64)
        begin, stop, _ = flatten(begin, stop, np.ones(len(begin), np.int16))
        whole = int((stop - begin).sum())
        for number in np.unique(device[host == at]).tolist() if whole else ():
            rows = (host == at) & (device == number)
            low, high, _ = flatten(start[rows], end[rows], np.ones(int(rows.sum()), np.int16))
            shares.append(100 * (covered_before(low, high, stop) - covered_before(low, high, begin)).sum() / whole)
    return [float(share) for share in shares]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _ops(ops: pd.DataFrame, activity: Activity, eager_us: dict[str, tuple[float, float]]) -> dict[str, float | None]:
    out: dict[str, float | None] = {}
    count = ops.groupby("where")["occurrences"].sum()
    total = float(count.sum())
    # What no op was recorded of on the host is no 100 % on the device; nor is it, of one host of several, a share of all of them.
    of_hosts = activity.has_host_ops and not (activity.hosts_without_ops and activity.has_device)
    for where, recorded in (("host", of_hosts), ("device", activity.has_device and of_hosts)):
        out[f"{where}_op_percent"] = 100 * float(count.get(where, 0)) / total if total and recorded else None
        eager, self_time = eager_us[where]
        calls, time = activity.eager_calls
        if where == "host" and calls > count.get(where, 0):
            # Most of the program is eager ops of which only the calls were recorded.
            eager, self_time = eager + time / 1e6, self_time + time / 1e6
        out[f"eager_{where}_percent"] = _known(100 * eager / self_time) if self_time else None
    return out


def _verdict(
    activity: Activity,
    steps: pd.DataFrame,
    mean: pd.Series,
    percent: pd.Series,
    dropped: int,
    busy: float | None,
    *,
    captures: bool,
    works_ahead: bool,
) -> dict[str, Any]:
    if PLAIN in activity.traits:
        open_ = "steps, ops, kernels or allocations" if "kernels" in activity.missing else "steps, ops or allocations"
        return {
            "bound": None,
            "verdict": "Plain trace",
            "verdict_text": "no framework that nbprof knows wrote it",
            "verdict_detail": f"Which of its events are {open_} is not known; the trace view shows them all.",
            "confidence": "none",
            "confidence_evidence": [],
        }
    shares = {c: _known(percent[c]) or 0.0 for c in CATEGORIES}
    if not len(steps):
        return {
            "bound": None,
            "verdict": "Unknown",
            "verdict_text": "no steps were found, so step time is unknown",
            "verdict_detail": activity.missing.get("steps", "nbprof.steps() or the framework's own step markers mark steps."),
            "confidence": "none",
            "confidence_evidence": [],
        }
    bound = max(shares, key=lambda c: shares[c])
    top = shares[bound]
    step = float(mean["step_time"])
    used = counted(steps)
    recorded = activity.has_host_ops or activity.has_device or len(activity.device_extents)
    # What iterations consist of may be stated in a table of their own.
    if bound == "other" and not recorded and ITERATIONS not in activity.traits:
        return {
            "bound": None,
            "verdict": "Unknown",
            "verdict_text": "neither ops of the host nor work of a device were recorded, so what fills the steps is unknown",
            "verdict_detail": activity.missing.get("kernels", activity.missing.get("ops", "")),
            "confidence": "none",
            "confidence_evidence": [],
        }
    evidence = _evidence(used, bound, dropped, step_count.most(steps)) + _slowed(activity, shares, bound, busy)
    failed = sum(not ok for ok, _ in evidence)
    level = "high" if failed == 0 else "medium" if failed == 1 else "low"
    covered = covered_by_steps(steps)
    if covered is not None and covered < COVERED:
        between = f"{100 * (1 - covered):.0f}% of the time from the first to the last {used['kind'].iloc[0]} step is outside steps"
        evidence.append((False, f"{between}: validation, input or logging, for example; nbprof.steps(dataset) marks the whole loop"))
        level = "low"
    warmup = steps[steps["warmup"].astype(bool) & (steps["kind"] == used["kind"].iloc[0])]
    if len(warmup):
        # The n-th of each host: they ran side by side.
        times = warmup.groupby(warmup.groupby("host").cumcount())["step_time_ms"].mean()
        first = ", ".join(wording.millis(t, 0 if t >= 10 else 2) for t in times)
        evidence.append((True, f"First {'step' if len(times) == 1 else f'{len(times)} steps'} ({first}) left out: compilation, warm-up"))
    others = steps.loc[steps["kind"] != used["kind"].iloc[0], "kind"].value_counts()
    if len(others):
        text = ", ".join(f"{n:,} {kind} steps" for kind, n in others.items())
        evidence.append((True, f"Only {used['kind'].iloc[0]} steps are averaged; {text} excluded"))
    common = {"confidence": level, "confidence_evidence": evidence}
    if top < SINGLE_BOTTLENECK_PERCENT:
        second = sorted(shares, key=lambda c: -shares[c])[1]
        return {
            "bound": None,
            "verdict": "No single bottleneck",
            "verdict_text": f"the largest part, {_label(bound)}, is {top:.0f}% of step time",
            "verdict_detail": f"Next is {_label(second)} with {shares[second]:.0f}%. A step takes {wording.millis(step)}.",
            **common,
        }
    word, text, shown, why = _WORDS[bound], _TEXTS[bound], top, _DETAILS[bound]
    waiting = waiting_percent(steps) if bound == "other" else 0.0
    if waiting >= top / 2:
        word, text, shown = "Stalled", _STALLED, waiting
        why = "a call waits while no kernel and no copy runs; p.device_time.idle says for how long work was queued meanwhile"
    else:
        shown -= waiting
        if bound == "other" and not activity.has_host_ops:
            text, why = _UNRECORDED, "no call of the device's runtime that launches, copies or waits was recorded in that time"
    # Of all steps, as its share is: the mean is of the steps of the hosts that recorded it.
    time = step * shown / 100
    left = step - time
    if bound == "host_compute" and len(activity.device_extents):
        # JAX's host runs no ops, but Python, argument handling, buffer management and dispatch.
        at = "prepares and dispatches programs" if activity.framework == "JAX" else "runs ops"
        why = f"the host {at} while the device is idle"
    if bound == "input" and used["host_to_device_ms"].sum() > used["input_ms"].sum() / 2:
        why = "the step waits until its data is copied from host memory to the device"
    second = max((c for c in CATEGORIES if c != bound), key=lambda c: shares[c])
    captures = captures and bound == "compile"
    if captures:
        why = "launches are captured into a graph within the step, which happens once"
    if bound == "device_compute" and shares[second] >= checks.INPUT_HIGH:
        # It is hardly the bottleneck if so much of the step passes without it.
        why = f"kernels run on the device. Next is {_label(second)} with {shares[second]:.0f}%, in which the device does not compute"
    few = _few(used, bound) if used["host"].nunique() == 1 else None
    detail = f"{'That' if few is None else 'On average that'} is {wording.millis(time)} of the {wording.millis(step)} per step: {why}."
    if few is not None:
        rest = len(used) - few.steps
        detail += f" {100 * few.share:.0f}% of it is in {few.steps:,} of {len(used):,} steps; the other {rest:,} take "
        detail += f"{wording.millis(few.others_ms)} on average."
    elif bound == "other" and shares["input"] >= checks.INPUT_MODERATE and works_ahead:
        detail += " The steps wait for input, too, which tf.data makes meanwhile: without this time, they would wait longer."
    elif bound not in ("device_compute", "host_compute") and top <= (checks.MOST_UNKNOWN if bound == "other" else checks.MOST_GAIN):
        verb = "wait" if bound == "input" else "time"
        detail += f" Without this {verb}, a step would take {wording.millis(left)}, {step / left:.1f}× faster than now."
    if bound in ("input", "output") and busy is not None and busy + top > 100 and (activity.devices["kind"] == "TPU").any():
        detail += f" TPU cores run copies and infeed as ops, so that time counts as busy ({busy:.0f}% of step time)."
    return {
        "bound": bound,
        "verdict": "Capture-bound" if captures else word,
        "verdict_text": f"{top:.0f}% of step time is spent capturing a graph" if captures else text.format(p=f"{shown:.0f}"),
        "verdict_detail": detail,
        **common,
    }


_UNKNOWN_DEVICE = {PLAIN, LOST_KERNELS}
"""Traits of recordings without a device that need not be of the CPU alone."""


def _without_kernels(activity: Activity) -> dict[str, Any]:
    """The verdict where a device was used, but no host recorded a kernel: what the host did not do, the device may have done."""
    if LOST_KERNELS not in activity.traits or "kernels" not in activity.missing:
        return {}
    return {
        "bound": None,
        "verdict": "Unknown",
        "verdict_text": "no kernel was recorded, so what the device did is unknown",
        "verdict_detail": activity.missing["kernels"],
        "confidence": "none",
        "confidence_evidence": [],
    }


def covered_by_steps(steps: pd.DataFrame) -> float | None:
    """The part of the time of the averaged loop, on all hosts, that lies in steps; None for fewer than two on each.

    Gaps to steps of another kind are no part of a loop: there one ends and the next is made.
    """
    if step_count.most(steps) < 2:
        return None
    kind = counted(steps)["kind"].iloc[0]
    inside = between = 0.0
    starts, times = (steps[key].to_numpy(np.float64) for key in ("start_ms", "step_time_ms"))
    looped, host = (steps["kind"] == kind).to_numpy(), pd.factorize(steps["host"])[0]
    for rows in np.split(np.argsort(host, kind="stable"), np.cumsum(np.bincount(host))[:-1]):
        start, time, mine = starts[rows], times[rows], looped[rows]
        gaps = np.maximum(start[1:] - np.maximum.accumulate(start + time)[:-1], 0.0)[mine[1:] & mine[:-1]]
        inside, between = inside + float(time[mine].sum()), between + float(gaps.sum())
    return inside / (inside + between) if inside + between > 0 else None


def _label(category: str) -> str:
    return category.replace("_", " ")


class _Few(NamedTuple):
    """A few steps that have nearly all of a part: how many of all, their share of it (0 to 1), and the mean time of the others, ms."""

    steps: int
    share: float
    others_ms: float


def _few(steps: pd.DataFrame, bound: str) -> _Few | None:
    """The steps whose largest part is `bound`, if they are a tenth of all or fewer and have nine tenths of it: one that compiled, say."""
    parts = steps[[f"{c}_ms" for c in CATEGORIES]].fillna(0.0).to_numpy()
    column = CATEGORIES.index(bound)
    mine = parts.argmax(axis=1) == column
    count, whole = int(mine.sum()), float(parts[:, column].sum())
    share = float(parts[mine, column].sum()) / whole if whole > 0 else 0.0
    if not 0 < count <= FEW * len(steps) or share < 1 - FEW:
        return None
    return _Few(count, share, float(steps["step_time_ms"].to_numpy(np.float64)[~mine].mean()))


def _slowed(activity: Activity, shares: dict[str, float], bound: str, busy: float | None) -> list[tuple[bool, str]]:
    """That a GPU which waits for its host may not do so without the recording, which slows the host; nothing where it would for certain."""
    if busy is None or not activity.has_host_ops or not (activity.devices["kind"] == "GPU").any():
        return []
    if shares["host_compute"] + shares["kernel_launch"] < checks.PART_HIGH or not checks.may_keep_up(busy, activity.framework):
        return []
    text = (
        f"Recording slows the host by up to {checks.host_slowed(activity.framework):g} times: without it, the device, which is busy for "
        f"{busy:.0f}% of step time here, may hardly wait for the host"
    )
    return [(bound not in ("host_compute", "kernel_launch"), text)]


def _evidence(steps: pd.DataFrame, bound: str, dropped: int, recorded: int) -> list[tuple[bool, str]]:
    parts = steps[[f"{c}_ms" for c in CATEGORIES]].fillna(0.0).to_numpy()
    count = len(steps)
    leading = int((parts.argmax(axis=1) == CATEGORIES.index(bound)).sum())
    name = _label(bound).capitalize()
    time = steps["step_time_ms"].to_numpy()
    mean = float(time.mean())
    sd = float(time.std(ddof=1)) if count > 1 else 0.0
    # Some hosts may not have recorded it.
    share = 100 * steps[f"{bound}_ms"].fillna(0.0).to_numpy(np.float64) / time
    spread = f" ({share.min():.0f}–{share.max():.0f}%)" if count > 1 else f" ({share[0]:.0f}%)"
    every = "the only step" if count == 1 else f"all {count:,} steps" if leading == count else f"{leading:,} of {count:,} steps"
    told = step_count.format_count(steps)
    if steps["host"].nunique() > 1:
        every += f", counted per {step_count.noun(steps)}"
    if (few := _few(steps, bound)) is not None:
        spread = f", which {'has' if few.steps == 1 else 'have'} {100 * few.share:.0f}% of it"
    largest = leading >= 0.9 * count
    # Steps of ranks that run side by side resemble each other: they say no more of the spread than those of one.
    longest = step_count.most(steps)
    if longest < recorded:
        told += f" counted of {recorded:,}"
    enough, steady = longest >= 10, longest > 1 and sd <= 0.25 * mean
    spread_text = f"Step time {'is steady' if steady else 'varies'}: sd {wording.millis(sd)}, {100 * sd / mean:.0f}% of the mean"
    return [
        (
            largest,
            f"{name} is the largest part in {every if few is None else f'only {every}'}{spread}",
        ),
        (enough, told if enough else f"Only {told}: capture 10 or more"),
        (steady, spread_text if longest > 1 else "One step says nothing about the spread of step time"),
        (dropped == 0, "Complete trace: no event was dropped" if dropped == 0 else f"{dropped:,} events were dropped"),
    ]
