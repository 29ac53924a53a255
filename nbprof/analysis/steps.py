"""Step time and where it goes: the step breakdown of TensorFlow Profiler.

Every span of work has a class with a priority. Where spans of one step overlap the larger priority wins, so that each instant
counts once; what no span covers is `other`. Host work is merged into the steps of GPU profiles, as the TensorFlow guide describes.
(XProf today leaves it out when there is a device, and drops the first and the last step.)
"""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import CATEGORIES, CATEGORY_OF_CLASS, DEVICE_COMPUTE_16, DEVICE_COMPUTE_32, HOST_COMPUTE, Activity
from nbprof.trace import Int64s

# A leading step that takes this many times the median of the others compiles or warms up.
WARMUP_FACTOR = 4.0


def flatten(start: Int64s, end: Int64s, cls: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Segments that do not overlap, each with the largest class active in it.

    Parameters
    ----------
    start, end, cls : int64[n]
        Spans with their class; in any order.

    Returns
    -------
    start, end, cls : int64[m]
        In time order; a stretch without any span is no segment.
    """
    keep = end > start
    start, end, cls = start[keep], end[keep], cls[keep]
    if not len(start):
        return start, end, cls
    edges = np.unique(np.concatenate([start, end]))
    best = np.zeros(len(edges) - 1, np.int64)
    # Per class, the stretches that at least one span covers; a larger class overwrites a smaller one.
    for value in np.unique(cls):
        rows = cls == value
        change = np.zeros(len(edges), np.int64)
        np.add.at(change, np.searchsorted(edges, start[rows]), 1)
        np.add.at(change, np.searchsorted(edges, end[rows]), -1)
        best[np.cumsum(change)[:-1] > 0] = value
    on = best > 0
    return edges[:-1][on], edges[1:][on], best[on]


def frame(activity: Activity) -> pd.DataFrame:
    """One row a step of each host, in time order, in ms; the columns of `p.steps.frame`."""
    rows = [row for host in range(len(activity.hosts)) for row in _host_steps(activity, host)]
    columns = ["host", "step", "name", "start_ms", "step_time_ms", *(f"{c}_ms" for c in CATEGORIES), "warmup", "group"]
    if not rows:
        return pd.DataFrame(columns=columns)
    out = pd.DataFrame(rows, columns=columns)
    if not activity.has_device:
        # Without a device these were not measured, which is not the same as 0.
        for column in (
            "device_compute_ms",
            "device_to_device_ms",
            "device_collectives_ms",
            "kernel_launch_ms",
            "output_ms",
        ):
            out[column] = np.nan
    if not (activity.work["cls"] == 60).any():
        out["compile_ms"] = np.nan
    out = out.sort_values(["start_ms", "host"], kind="stable", ignore_index=True)
    out["step"] = out.groupby("host", sort=False)["step"].transform(_number_between)
    out["warmup"] = (
        np.concatenate([_warmup(g["step_time_ms"].to_numpy()) for _, g in out.groupby("host", sort=False)])
        if len(activity.hosts) == 1
        else False
    )
    return out


def _number_between(numbers: pd.Series) -> pd.Series:
    """Step numbers where some steps state none (NaN): counted on from the step before, or back from the one after.

    Where no step states a number, steps are counted from 0.
    """
    stated = numbers.to_numpy(np.float64)
    if np.isnan(stated).all():
        return pd.Series(np.arange(len(stated)), numbers.index)
    out = stated.copy()
    first = int(np.argmax(~np.isnan(stated)))
    for i in range(first - 1, -1, -1):
        out[i] = out[i + 1] - 1
    for i in range(first + 1, len(out)):
        if np.isnan(out[i]):
            out[i] = out[i - 1] + 1
    return pd.Series(out.astype(np.int64), numbers.index)


def _warmup(times: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """The leading steps that take far longer than the rest."""
    out = np.zeros(len(times), np.bool_)
    for i in range(min(3, len(times) - 4)):
        if times[i] > WARMUP_FACTOR * float(np.median(times[i + 1 :])):
            out[i] = True
        else:
            break
    return out


def _host_steps(activity: Activity, host: int) -> list[list[object]]:
    markers = activity.markers[activity.markers["host"] == host]
    work = activity.work[activity.work["host"] == host]
    order = np.argsort(work["group"].to_numpy(), kind="stable")
    group = work["group"].to_numpy()[order]
    start, end, cls = (work[c].to_numpy(np.int64)[order] for c in ("start", "end", "cls"))
    has_device = bool((markers["device"] >= 0).any())
    out: list[list[object]] = []
    for key, of_step in markers.groupby("group", sort=True):
        ident = int(cast("int", key))
        span = _step_time(of_step, has_device)
        if span is None:
            continue
        begin, stop = span
        lo, hi = np.searchsorted(group, [ident, ident + 1]).tolist()
        classes = cls[lo:hi]
        wanted = (classes >= DEVICE_COMPUTE_32) if has_device else (classes == HOST_COMPUTE)
        if not wanted.any():
            continue
        a, b, c = flatten(start[lo:hi], end[lo:hi], classes)
        part = np.maximum(0, np.minimum(b, stop) - np.maximum(a, begin))
        total = dict.fromkeys(CATEGORIES, 0)
        for value in np.unique(c).tolist():
            total[CATEGORY_OF_CLASS[value]] += int(part[c == value].sum())
        total["other"] += stop - begin - int(part.sum())
        name = activity.group_names.get((host, ident), str(ident))
        number = name.rpartition(" ")[2]
        out.append(
            [
                activity.hosts[host],
                float(number) if number.isdigit() and name != number else np.nan,
                name,
                begin / 1e9,
                (stop - begin) / 1e9,
                *(total[k] / 1e9 for k in CATEGORIES),
                False,
                ident,
            ]
        )
    return out


def _step_time(markers: pd.DataFrame, has_device: bool) -> tuple[int, int] | None:
    """Begin and end of a step: the longest device marker, or the host marker that includes it."""
    span: tuple[int, int] | None = None
    for side in (markers[markers["device"] >= 0], markers[markers["device"] < 0]):
        if not len(side):
            continue
        length = (side["end"] - side["start"]).to_numpy()
        at = int(np.argmax(length))
        candidate = int(side["start"].iloc[at]), int(side["end"].iloc[at])
        if span is None or (candidate[0] <= span[0] and candidate[1] >= span[1]):
            span = candidate
        if has_device and side["device"].iloc[0] < 0 and not (markers["device"] >= 0).any():
            return None
    if span is None or span[1] <= span[0]:
        return None
    return span


def summary(steps: pd.DataFrame) -> pd.DataFrame:
    """Mean, sample sd (n - 1), range and share of each category; warm-up steps are left out."""
    used = steps[~steps["warmup"].astype(bool)] if len(steps) else steps
    rows = []
    total = float(used["step_time_ms"].sum()) if len(used) else 0.0
    for category in ("step_time", *CATEGORIES):
        values = used[f"{category}_ms"].to_numpy(np.float64) if len(used) else np.zeros(0)
        known = len(values) > 0 and not np.isnan(values).all()
        rows.append(
            {
                "category": category,
                "mean_ms": values.mean() if known else np.nan,
                "sd_ms": (values.std(ddof=1) if len(values) > 1 else 0.0) if known else np.nan,
                "min_ms": values.min() if known else np.nan,
                "max_ms": values.max() if known else np.nan,
                "percent": 100 * values.sum() / total if known and total else np.nan,
            }
        )
    return pd.DataFrame(rows)


def share_of_16_bit(activity: Activity) -> float | None:
    """Percent of device compute that is 16 bit (bfloat16 counted as 16 bit), over all steps; None without device compute."""
    work = activity.work[activity.work["device"] >= 0]
    time = {DEVICE_COMPUTE_16: 0, DEVICE_COMPUTE_32: 0}
    for _, rows in work.groupby(["host", "group"], sort=False):
        a, b, c = flatten(*(rows[k].to_numpy(np.int64) for k in ("start", "end", "cls")))
        for value in time:
            time[value] += int((b - a)[c == value].sum())
    both = sum(time.values())
    return 100 * time[DEVICE_COMPUTE_16] / both if both else None
