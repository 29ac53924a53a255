"""Time by op and kernel of each host: all that is compared of them, and little enough to be stored
for a thousand hosts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import CORE_KINDS, Activity
from nbprof.analysis.steps.step_rows import step_rows_ps
from nbprof.core.trace import Int64s

COLUMNS = ["host", "where", "kind", "name", "occurrences", "total_ps", "self_ps"]
OTHERS = "(others)"
MOST = 300
"""Names that are kept of each host and kind."""


def by_host(
    activity: Activity, start: Int64s, host_ops: pd.DataFrame, steps: pd.DataFrame
) -> pd.DataFrame:
    """One row per host, side, kind and name, most self time first; communication is left out, since
    its time is mostly that of other hosts.

    What began in a counted step counts; without steps, everything. Each host has the rows that it
    has alone, so that tables of several hosts are one below the other. Of names beyond `MOST` there
    is one row, `OTHERS`.

    Parameters
    ----------
    activity : Activity
    start : int64[events]
        Of the trace, ps.
    host_ops : DataFrame
        Of `ops.host_self_times`.
    steps : DataFrame
        Of `steps.frame`, as `run.steps`.

    Returns
    -------
    DataFrame
        `host where kind name occurrences total_ps self_ps`: `where` is device or host, `kind` op or
        kernel. Times are whole ps.
    """
    cores = activity.core_spans.frame()
    talking = [activity.collectives.event]
    talking += [
        cores["event"].to_numpy(np.int64)[
            cores["kind"].to_numpy(np.int64) != CORE_KINDS.index("compute")
        ]
    ]
    collective_ps = np.concatenate(talking)
    kernels, device_ops = (
        rows[~rows["event"].isin(collective_ps)]
        for rows in (activity.kernels.frame(), activity.device_ops.frame())
    )
    parts = [
        _grouped(
            activity,
            "device",
            "kernel",
            kernels,
            kernels["kernel"],
            activity.kernel_names.values,
            start,
            steps,
        ),
        _grouped(
            activity,
            "device",
            "op",
            device_ops,
            device_ops["op"],
            activity.ops.values,
            start,
            steps,
        ),
        _grouped(
            activity, "host", "op", host_ops, host_ops["op"], activity.ops.values, start, steps
        ),
    ]
    table = pd.concat(parts, ignore_index=True)
    host_number = pd.Categorical(table["host"], categories=list(activity.hosts)).codes
    order = np.argsort(host_number, kind="stable")
    return table.iloc[order].reset_index(drop=True)[COLUMNS]


def _grouped(
    activity: Activity,
    side: str,
    kind: str,
    rows: pd.DataFrame,
    code: pd.Series,
    names: npt.NDArray[np.object_],
    start: Int64s,
    steps: pd.DataFrame,
) -> pd.DataFrame:
    host, event = rows["host"].to_numpy(np.int64), rows["event"].to_numpy(np.int64)
    used = counted(activity.hosts, steps, host, start[event])
    length = (rows["duration"] if "duration" in rows else rows["end"] - rows["start"]).to_numpy(
        np.int64
    )
    self_ps = (rows["own"] if "own" in rows else pd.Series(length)).to_numpy(np.int64)
    table = pd.DataFrame(
        {
            "host": host,
            "code": code.to_numpy(np.int64),
            "occurrences": 1,
            "total_ps": length,
            "self_ps": self_ps,
        }
    )[used]
    sums = table.groupby(["host", "code"], sort=True).sum().reset_index()
    sums["name"] = names[sums["code"].to_numpy(np.int64)] if len(sums) else pd.Series(dtype=object)
    sums = sums.sort_values(
        ["host", "self_ps", "name"], ascending=[True, False, True], kind="stable", ignore_index=True
    )
    rest = sums.groupby("host").cumcount() >= MOST
    if rest.any():
        folded = (
            sums[rest]
            .groupby("host", as_index=False)[["occurrences", "total_ps", "self_ps"]]
            .sum()
            .assign(name=OTHERS)
        )
        sums = pd.concat([sums[~rest], folded], ignore_index=True).sort_values(
            "host", kind="stable", ignore_index=True
        )
    hosts = (
        np.array(activity.hosts, object)[sums["host"].to_numpy(np.int64)]
        if len(sums)
        else np.zeros(0, object)
    )
    return sums.assign(host=hosts, where=side, kind=kind)[COLUMNS]


def counted(
    hosts: list[str], steps: pd.DataFrame, host: Int64s, start: Int64s
) -> npt.NDArray[np.bool_]:
    """Which events of some hosts began in a counted step; all of a host without steps."""
    if not len(steps):
        return np.ones(len(host), np.bool_)
    of_steps = pd.Index(hosts).get_indexer(pd.Index(steps["host"]))
    used = steps[steps["counted"].astype(bool)]
    return ~np.isin(host, of_steps) | (step_rows_ps(used, hosts, start, host) >= 0)


def a_step(sums: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Self time in ms a counted step: a row per side, kind and name, a column per host.

    A name that a host has not took no time there; where names were folded into one row, at most as
    long as the least that was not, and that is what stands there.
    """
    if not len(sums) or not len(steps):
        return pd.DataFrame()
    often = steps[steps["counted"].astype(bool)].groupby("host", sort=False).size()
    rows = sums[sums["host"].isin(often.index)]
    out = rows.assign(ms=rows["self_ps"] / 1e9 / rows["host"].map(often))
    listed = out[out["name"] != OTHERS]
    table = listed.groupby(["where", "kind", "name", "host"], sort=False)["ms"].sum().unstack()
    least = listed.groupby(["where", "kind", "host"], sort=False)["ms"].min().to_dict()
    for (where, kind), truncated in out[out["name"] == OTHERS].groupby(
        ["where", "kind"], sort=False
    )["host"]:
        side = (table.index.get_level_values("where") == where) & (
            table.index.get_level_values("kind") == kind
        )
        table.loc[side] = table.loc[side].fillna(
            {host: least[where, kind, host] for host in truncated}
        )
    return table.reindex(columns=list(dict.fromkeys(out["host"]))).fillna(0.0)
