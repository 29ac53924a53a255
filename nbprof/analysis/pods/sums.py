"""Time by op and kernel of each host: all that is compared of them, and little enough to be stored
for a thousand hosts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import CORE_KINDS, Activity
from nbprof.analysis.steps.step_rows import step_rows_ps
from nbprof.core.trace import Int64s

COLUMNS = ["host", "where", "kind", "name", "occurrences", "total_ps", "self_ps"]
OTHERS = "(others)"
MOST = 300
"""Names retained per host and kind."""


def by_host(
    activity: Activity, start: Int64s, host_ops: pd.DataFrame, steps: pd.DataFrame
) -> pd.DataFrame:
    """One row per host, side, kind and name, most self time first; communication is left out, since
    its time is mostly that of other hosts.

    Events that began in a counted step count; without steps, all events. The rows of a host do not
    depend on other hosts, so that tables can be concatenated. Names beyond `MOST` are one row,
    `OTHERS`.

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
        kernel. Times are integer ps.
    """
    cores = activity.core_spans
    talking = cores.event[cores.kind != CORE_KINDS.index("compute")]
    communication = np.concatenate([activity.collectives.event, talking])
    kernels, device_ops = activity.kernels, activity.device_ops
    kernels = kernels.take(~np.isin(kernels.event, communication))
    device_ops = device_ops.take(~np.isin(device_ops.event, communication))
    host_event = host_ops["event"].to_numpy(np.int64)
    op_names, kernel_names = activity.ops.values, activity.kernel_names.values
    parts = [
        _grouped(
            _Runs(
                kernels.host.astype(np.int64),
                kernels.kernel.astype(np.int64),
                kernels.duration,
                kernels.duration,
                start[kernels.event],
            ),
            kernel_names,
            activity.hosts,
            steps,
        ).assign(where="device", kind="kernel"),
        _grouped(
            _Runs(
                device_ops.host.astype(np.int64),
                device_ops.op.astype(np.int64),
                device_ops.end - device_ops.start,
                device_ops.own,
                start[device_ops.event],
            ),
            op_names,
            activity.hosts,
            steps,
        ).assign(where="device", kind="op"),
        _grouped(
            _Runs(
                host_ops["host"].to_numpy(np.int64),
                host_ops["op"].to_numpy(np.int64),
                (host_ops["end"] - host_ops["start"]).to_numpy(np.int64),
                host_ops["own"].to_numpy(np.int64),
                start[host_event],
            ),
            op_names,
            activity.hosts,
            steps,
        ).assign(where="host", kind="op"),
    ]
    table = pd.concat(parts, ignore_index=True)
    host_number = pd.Categorical(table["host"], categories=list(activity.hosts)).codes
    order = np.argsort(host_number, kind="stable")
    return table.iloc[order].reset_index(drop=True)[COLUMNS]


class _Runs(NamedTuple):
    """Runs of ops or kernels: host, code of the name, duration, self time and start, ps."""

    host: Int64s
    code: Int64s
    duration: Int64s
    self_ps: Int64s
    start: Int64s


def _grouped(
    runs: _Runs, names: npt.NDArray[np.object_], hosts: list[str], steps: pd.DataFrame
) -> pd.DataFrame:
    """`host name occurrences total_ps self_ps` of the runs that count, by host and name."""
    used = counted(hosts, steps, runs.host, runs.start)
    table = pd.DataFrame(
        {
            "host": runs.host,
            "code": runs.code,
            "occurrences": 1,
            "total_ps": runs.duration,
            "self_ps": runs.self_ps,
        }
    )[used]
    sums = table.groupby(["host", "code"], sort=True).sum().reset_index()
    sums["name"] = names[sums["code"].to_numpy(np.int64)] if len(sums) else pd.Series(dtype=object)
    sums = sums.sort_values(
        ["host", "self_ps", "name"], ascending=[True, False, True], kind="stable", ignore_index=True
    )
    rest = sums.groupby("host").cumcount() >= MOST
    if rest.any():
        by_host = sums[rest].groupby("host", as_index=False)
        folded = by_host[["occurrences", "total_ps", "self_ps"]].sum().assign(name=OTHERS)
        sums = pd.concat([sums[~rest], folded], ignore_index=True)
        sums = sums.sort_values("host", kind="stable", ignore_index=True)
    host_names = np.zeros(0, object)
    if len(sums):
        host_names = np.array(hosts, object)[sums["host"].to_numpy(np.int64)]
    return sums.assign(host=host_names)


def counted(
    hosts: list[str], steps: pd.DataFrame, host: Int64s, start: Int64s
) -> npt.NDArray[np.bool_]:
    """Flags of the events that began in a counted step; all of those of a host without steps."""
    if not len(steps):
        return np.ones(len(host), np.bool_)
    of_steps = pd.Index(hosts).get_indexer(pd.Index(steps["host"]))
    used = steps[steps["counted"].astype(bool)]
    return ~np.isin(host, of_steps) | (step_rows_ps(used, hosts, start, host) >= 0)


def a_step(sums: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Self time in ms per counted step: a row per side, kind and name, a column per host.

    A name that a host does not have took no time there; if names of the host were folded into one
    row, its time is at most the least of the others, and that is used.
    """
    if not len(sums) or not len(steps):
        return pd.DataFrame()
    often = steps[steps["counted"].astype(bool)].groupby("host", sort=False).size()
    rows = sums[sums["host"].isin(often.index)]
    rows = rows.assign(ms=rows["self_ps"] / 1e9 / rows["host"].map(often))
    listed, folded = rows[rows["name"] != OTHERS], rows[rows["name"] == OTHERS]
    table = listed.groupby(["where", "kind", "name", "host"], sort=False)["ms"].sum().unstack()
    least = listed.groupby(["where", "kind", "host"], sort=False)["ms"].min().to_dict()
    side_of, kind_of = (table.index.get_level_values(level) for level in ("where", "kind"))
    for (side, kind), hosts in folded.groupby(["where", "kind"], sort=False)["host"]:
        same = (side_of == side) & (kind_of == kind)
        at_most = {host: least[side, kind, host] for host in hosts}
        table.loc[same] = table.loc[same].fillna(at_most)
    return table.reindex(columns=list(dict.fromkeys(rows["host"]))).fillna(0.0)
