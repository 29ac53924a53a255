"""Each step on each worker: who is slow, and by how much. TensorFlow Profiler's pod viewer."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis.steps.align import HostSteps, align
from nbprof.core.trace import Note

_TIMES = ["step_time_ms", *(f"{c}_ms" for c in CATEGORIES)]
COLUMNS = ["step", "worker", *_TIMES, "bottleneck", "name", "start_ms", "host", "group"]
SUMMARY = ["step", "workers", "slowest", "slowest_ms", "fastest_ms", "spread_percent"]


def frame(steps: pd.DataFrame, cores: pd.DataFrame) -> tuple[pd.DataFrame, list[Note]]:
    """One row a step and worker, and what the receipt says of the comparison.

    Parameters
    ----------
    steps : DataFrame
        Of `steps.frame`: the steps of all hosts.
    cores : DataFrame
        The steps of each device where the devices of a host have steps of their own: as `steps`, with `device`; empty where none has.
    """
    notes: list[Note] = []
    by_host = {str(host): rows.reset_index(drop=True) for host, rows in steps.groupby("host", sort=False)} if len(steps) else {}
    on_device = {host: bool(rows["device_compute_ms"].notna().any()) for host, rows in by_host.items()}
    if any(on_device.values()) and not all(on_device.values()):
        idle = [host for host, found in on_device.items() if not found]
        by_host = {host: rows for host, rows in by_host.items() if on_device[host]}
        what = (
            "It only coordinates, or its recording is not whole; it is"
            if len(idle) == 1
            else "They only coordinate, or their recordings are not whole; they are"
        )
        notes.append(Note("info", f"{', '.join(idle)}: no device work while other hosts have some. {what} not compared."))
    if not by_host:
        return pd.DataFrame(columns=COLUMNS), notes
    found = align([_steps_of(host, rows) for host, rows in by_host.items()])
    notes += found.notes
    # The chief's numbers, where they tell the steps apart; programs that train and test in turn count each from 0.
    chief, first = list(by_host.values())[found.chief], found.first[found.chief]
    stated = chief["step"].to_numpy(np.int64)
    numbers = stated[first : first + found.steps] if first is not None and not chief["step"].duplicated().any() else np.arange(found.steps)
    parts = []
    for place, (host, rows) in enumerate(by_host.items()):
        at = found.first[place]
        if at is None:
            continue
        used = rows.iloc[at : at + found.steps].assign(position=np.arange(found.steps), worker=host)
        mine = cores[cores["host"] == host] if len(cores) else cores
        if len(mine):
            used = mine.merge(used[["group", "position", "name"]], on="group", suffixes=("_", ""))
            used["worker"] = [f"{host}:{device}" for device in used["device"]]
        parts.append(used)
    if not parts:
        return pd.DataFrame(columns=COLUMNS), notes
    out = pd.concat(parts, ignore_index=True).sort_values("position", kind="stable", ignore_index=True)
    out["step"] = numbers[out["position"].to_numpy(np.int64)]
    out["bottleneck"] = bottleneck(out)
    return out[COLUMNS], notes


def _steps_of(host: str, rows: pd.DataFrame) -> HostSteps:
    begin = rows["start_ms"].to_numpy(np.float64)
    return HostSteps(host, begin, begin + rows["step_time_ms"].to_numpy(np.float64), rows["step"].to_numpy(np.int64))


def bottleneck(rows: pd.DataFrame) -> list[str]:
    """The category with the most time of each row, of equal ones the first of the stack; what was not measured is none."""
    times = rows[[f"{c}_ms" for c in CATEGORIES]].to_numpy(np.float64)
    return [CATEGORIES[i] for i in np.nan_to_num(times, nan=-1.0).argmax(axis=1).tolist()]


def summary(pods: pd.DataFrame) -> pd.DataFrame:
    """One row a step: its workers, the slowest of them, and by how much the fastest is below it in percent."""
    if not len(pods):
        return pd.DataFrame(columns=SUMMARY)
    by_step = pods.groupby("step", sort=False)["step_time_ms"]
    slowest = pods.loc[by_step.idxmax()]
    most, least, count = (by_step.agg(how).to_numpy() for how in ("max", "min", "count"))
    return pd.DataFrame(
        {
            "step": slowest["step"].to_numpy(),
            "workers": count,
            "slowest": slowest["worker"].to_numpy(),
            "slowest_ms": most,
            "fastest_ms": least,
            # One worker has nothing to differ from.
            "spread_percent": np.where(count > 1, 100 * (most - least) / most, np.nan),
        }
    )
