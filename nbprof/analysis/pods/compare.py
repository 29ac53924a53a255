"""The comparison of hosts as a whole: frames of each host in, frames of all out."""

from __future__ import annotations

import pandas as pd

from nbprof.analysis.pods import clocks, collectives, outliers, own_time, stragglers, sums, what_if
from nbprof.schema import frames

NAMES = ("stragglers", "what_if", "outliers", "collectives", "clocks")


def nothing() -> dict[str, pd.DataFrame]:
    """The frames of a single host, which has none to be compared with."""
    return {name: frames.empty(f"pods.{name}") for name in NAMES}


def compare(
    hosts: list[str],
    steps: pd.DataFrame,
    pods: pd.DataFrame,
    overlap: pd.DataFrame,
    each: pd.DataFrame,
    by_host: pd.DataFrame,
    devices: pd.DataFrame,
    memory_calls: pd.DataFrame,
) -> dict[str, pd.DataFrame]:
    """The comparison of hosts: `stragglers`, `what_if`, `outliers`, `collectives`, `clocks`.

    Parameters
    ----------
    hosts : list of str
    steps, pods, overlap, each, devices : DataFrame
        As `run.steps`, `run.pods`, `p.device_time.overlap`, `p.device_time.each_collective` and
        `run.devices`, the rows of all hosts.
    by_host : DataFrame
        The tables of `sums.by_host`, one below the other.
    memory_calls : DataFrame
        Those of `memory.calls`.
    """
    own_times = own_time.own_time(steps, pods, overlap, each)
    measured = own_times.measured if own_times is not None else float("nan")
    table = sums.a_step(by_host, steps)
    offsets = clocks.clocks(hosts, each, pods, steps)
    late = stragglers.stragglers(own_times, each, steps, table, offsets, devices, memory_calls)
    groups = collectives.by_group(
        each, len(own_times.step) if own_times is not None else 0, measured
    )
    if len(each):
        ranks = each[["host", "rank"]]
    else:
        ranks = pd.DataFrame({"host": [], "rank": pd.array([], "Int64")})
    return {
        "stragglers": late,
        "what_if": what_if.what_if(own_times, groups),
        "outliers": outliers.outliers(table, measured, ranks),
        "collectives": groups,
        "clocks": frames.shaped("pods.clocks", offsets),
    }
