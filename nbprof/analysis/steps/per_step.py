"""Counts of an average step: kernels, launches, waits for the device, copies from pageable memory,
bytes in collectives, compilations.

Counts do not drift as times do, so a gate holds them. What a recording cannot tell is unknown, with
the reason, and never 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.activity import HOST_COMPILE, TRACED, Activity
from nbprof.analysis.steps.step_rows import turns
from nbprof.analysis.steps.steps import counted
from nbprof.analysis.table import positions
from nbprof.core.intervals import ends_before
from nbprof.core.trace import Int64s

_NO_DEVICE = (
    "no device was recorded: the run used only the CPU, or its profiler left the device out"
)
_NO_STEPS = "no steps were found: mark them with nbprof.steps() or nbprof.step()"


class Count(NamedTuple):
    """A figure, or the reason why it is unknown.

    Attributes
    ----------
    value : float or None
    unknown : str
        The reason, where there is no value.
    """

    value: float | None
    unknown: str = ""


def counts(activity: Activity, steps: pd.DataFrame, collectives: pd.DataFrame) -> dict[str, Count]:
    """The counts by name: `kernels launches syncs pageable_copies collective_bytes recompiles`.

    They are means of the steps that averages use, per host; `recompiles` are all from the first of
    these steps on.

    Parameters
    ----------
    activity : Activity
    steps : DataFrame
        `Run.steps`.
    collectives : DataFrame
        One row per collective and rank, as `p.device_time.each_collective` has them.
    """
    used = counted(steps.assign(turn=turns(steps)) if len(steps) else steps)
    if not len(used):
        names = (
            "kernels",
            "launches",
            "syncs",
            "pageable_copies",
            "collective_bytes",
            "recompiles",
        )
        return dict.fromkeys(names, Count(None, _NO_STEPS))
    figures = {"recompiles": _compilations(activity, used)}
    if not activity.has_device:
        return figures | dict.fromkeys(
            ("kernels", "launches", "syncs", "pageable_copies", "collective_bytes"),
            Count(None, _NO_DEVICE),
        )
    host = positions(activity.hosts)
    pairs = pd.MultiIndex.from_arrays([used["host"].map(host).to_numpy(), used["group"].to_numpy()])
    work = activity.work.frame()[["event", "host", "group"]]
    # Work over the end of a step has a piece in each step; it counts for the first.
    work = work.drop_duplicates("event")
    events = work["event"][pd.MultiIndex.from_frame(work[["host", "group"]]).isin(pairs)].to_numpy(
        np.int64
    )
    kernels = activity.kernels.event
    ran = kernels[np.isin(kernels, events)]
    return figures | {
        "kernels": (
            Count(len(ran) / len(used))
            if len(kernels)
            else Count(None, activity.missing.get("kernels", _NO_DEVICE))
        ),
        "launches": _launches(activity, ran, len(used)),
        "syncs": _syncs(activity, pairs),
        "pageable_copies": _pageable(activity, events, len(used)),
        "collective_bytes": _collective_bytes(collectives, used),
    }


def _launches(activity: Activity, ran: Int64s, steps: int) -> Count:
    """Calls that launched the kernels; a graph is one call of many kernels."""
    launches = activity.launches.frame()
    is_kernel = launches["target"].isin(activity.kernels.event)
    if not is_kernel.any():
        return Count(None, "the recording does not show which host calls launched the kernels")
    return Count(launches.loc[launches["target"].isin(ran), "event"].nunique() / steps)


def _syncs(activity: Activity, pairs: pd.MultiIndex) -> Count:
    calls = activity.calls.frame()
    if not len(calls):
        return Count(
            None,
            "the recording has no device runtime calls, so waits for the device are unknown;"
            " PyTorch recordings have them",
        )
    waits = calls[calls["kind"] == activity.texts.codes.get("sync", -1)]
    return Count(
        waits.loc[pd.MultiIndex.from_frame(waits[["host", "group"]]).isin(pairs), "event"].nunique()
        / len(pairs)
    )


def _pageable(
    activity: Activity, events: np.ndarray[tuple[int], np.dtype[np.int64]], steps: int
) -> Count:
    transfers = activity.transfers.frame()
    if "pageable" not in transfers.columns:
        return Count(
            None,
            "the recording does not show whether copied memory was pinned; PyTorch recordings do",
        )
    return Count(
        float((transfers["pageable"].astype(bool) & transfers["event"].isin(events)).sum()) / steps
    )


def _collective_bytes(collectives: pd.DataFrame, used: pd.DataFrame) -> Count:
    if not len(collectives):
        return Count(0.0)
    # The number of a step that does not count may come back in one that does.
    keys = ["host", "step", "turn"]
    in_steps = collectives[collectives["step"].notna()].astype({"host": object, "step": "int64"})
    host_rows = in_steps[
        pd.MultiIndex.from_frame(in_steps[keys]).isin(
            pd.MultiIndex.from_frame(used[keys].astype({"host": object}))
        )
    ]
    without = int(host_rows["bytes"].isna().sum())
    if without:
        return Count(
            None, f"the size of {without:,} of {len(host_rows):,} collectives was not recorded"
        )
    return Count(float(host_rows["bytes"].sum()) / len(used))


def _compilations(activity: Activity, used: pd.DataFrame) -> Count:
    """Programs that were compiled, and functions that were traced again, once the steps that
    averages use had begun.
    """
    count = 0
    work = activity.work.frame()
    compiling = work[work["cls"] == HOST_COMPILE]
    functions = activity.functions.frame()
    if len(functions):
        mode = activity.texts.values[functions["mode"].to_numpy(np.int64)].astype(str)
    else:
        mode = np.zeros(0, "U1")
    traced = functions[np.char.startswith(mode, TRACED)] if len(functions) else functions
    # Tracing a function again and compiling it at once count as one.
    spans = pd.concat([rows[["event", "host", "start", "end"]] for rows in (compiling, traced)])
    began = spans.groupby("event")["start"].transform("min")
    for host, begin in used.groupby("host", sort=False)["start_ms"].min().items():
        number = activity.hosts.index(str(host))
        # One that began before ran into these steps: it is of warm-up.
        count += _disjoint(spans[(spans["host"] == number) & (began >= round(float(begin) * 1e9))])
    if not count and not (activity.framework.records_compilation and activity.has_host_ops):
        return Count(
            None, "the recording has no host ops, or its framework does not record compilation"
        )
    return Count(float(count))


def _disjoint(spans: pd.DataFrame) -> int:
    """The number of spans, without those inside others and with the pieces of one event once."""
    total = (
        spans.groupby("event")
        .agg(start=("start", "min"), end=("end", "max"))
        .sort_values("start", kind="stable")
    )
    start, end = total["start"].to_numpy(np.int64), total["end"].to_numpy(np.int64)
    return int((start >= ends_before(end)).sum())
