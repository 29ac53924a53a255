"""The step time if one thing were otherwise: a host as fast as the others, a link as fast as its
like, the network free.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.analysis.pods.own_time import COLLECTIVES, OwnTime
from nbprof.analysis.pods.stragglers import gains
from nbprof.schema import frames

MEASURED, SLOWEST, GROUP, NETWORK = "measured", "slowest_host", "slow_group", "network_free"
_UNMATCHED = (
    "The collectives of the ranks could not be matched, so waiting and transfer cannot be"
    " separated."
)
_SILENT = "No communication was recorded, so its share of the step is unknown."


def what_if(own_times: OwnTime | None, groups: pd.DataFrame) -> pd.DataFrame:
    """One row per question: the columns of `p.pods.what_if`.

    Parameters
    ----------
    own_times : OwnTime, optional
    groups : DataFrame
        As `p.pods.collectives`.
    """
    if own_times is None:
        return frames.empty("pods.what_if")
    measured = own_times.measured
    rows: list[tuple[str, str, float, str, str]] = [(MEASURED, "", 0.0, "", "")]
    if len(own_times.ranks):
        gained = np.nan_to_num(gains(own_times))
        first = own_times.ranks.iloc[int(gained.argmax())]
        several = (own_times.ranks["host"] == first["host"]).sum() > 1
        device = f"{first['host']}:{first['device']}" if several else str(first["host"])
        # Of hosts that do not communicate, nothing says that they wait for each other.
        rows.append(
            (
                SLOWEST,
                device,
                float(gained.max()),
                "about" if own_times.by == COLLECTIVES else "at most",
                "",
            )
        )
    slow = groups[groups["slow"]] if len(groups) else groups
    if len(slow):
        saved = (
            (slow["real_us"] - slow["usual_us"])
            / 1e3
            * slow["collectives"].astype("float64")
            / max(len(own_times.step), 1)
        )
        worst = slow.iloc[int(saved.to_numpy(np.float64).argmax())]
        rows.append((GROUP, str(worst["members"]), float(saved.max()), "at most", ""))
    rows.append((NETWORK, "", *network(own_times)))
    table = pd.DataFrame(rows, columns=["what", "which", "saved_ms", "how", "reason"])
    table["saved_percent"] = 100 * table["saved_ms"] / measured
    table["step_time_ms"] = measured - table["saved_ms"]
    return frames.shaped("pods.what_if", table)


def network(own_times: OwnTime) -> tuple[float, str, str]:
    """The ms that a step would save if communication took no time; how exact that is; why it is
    unknown.

    In each step it is the exposed communication of the rank that waited least, without its waiting:
    the others wait for that one. Steps stay as long as the own time of the slowest rank.
    """
    if own_times.by != COLLECTIVES:
        return float("nan"), "", _SILENT
    moved = own_times.exposed - own_times.waited
    if np.isnan(moved).all(axis=1).any() or not moved.size:
        return float("nan"), "", _UNMATCHED
    first = np.where(np.isnan(moved), np.inf, own_times.waited).argmin(axis=1)
    saved = np.minimum(
        moved[np.arange(len(moved)), first],
        np.nanmedian(own_times.step_time, axis=1) - np.nanmax(own_times.own_ms, axis=1),
    )
    return float(np.clip(saved, 0, None).mean()), "about", ""
