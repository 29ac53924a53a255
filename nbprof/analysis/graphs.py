"""Replays of CUDA and HIP graphs, and each node of a graph over all of them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.schema import frames

_ORIGINS = ["module", "source", "aten_ops"]
_GRAPH = ["host", "device", "graph"]


def graphs(activity: Activity) -> pd.DataFrame:
    """One row per graph and device, most device time first: the columns of `p.kernels.graphs`."""
    work = activity.graph_work.frame()
    if not len(work):
        return frames.empty("kernels.graphs")
    replays = work.groupby([*_GRAPH, "replay"], sort=True).agg(
        start=("start", "min"), end=("end", "max")
    )
    table = (
        _times(replays.reset_index(), _GRAPH)
        .rename(columns={"count": "replays"})
        .drop(columns="total")
    )
    sums = (
        work.assign(total=work["end"] - work["start"])
        .groupby(_GRAPH, sort=True)
        .agg(nodes=("node", "nunique"), total=("total", "sum"))
    )
    return _public(table.join(sums, on=_GRAPH), "kernels.graphs", activity)


def nodes(activity: Activity) -> pd.DataFrame:
    """One row per node of a graph and device, in the order of the nodes: the columns of
    `p.kernels.graph_nodes`.
    """
    work = activity.graph_work.frame()
    if not len(work):
        return frames.empty("kernels.graph_nodes")
    key = [*_GRAPH, "node"]
    table = _times(work, key).rename(columns={"count": "replays"})
    # A graph may be updated between replays: a node is shown as it was first.
    first = (
        work.sort_values("start", kind="stable")
        .drop_duplicates(key)
        .set_index(key)[["name", "op", *_ORIGINS]]
    )
    table = table.join(first, on=key)
    texts = np.array([*activity.texts.codes, None], object)
    table = table.assign(
        kernel=activity.kernel_names.values[table["name"]],
        op=activity.ops.values[table["op"]],
        **{column: texts[table[column]] for column in _ORIGINS},
    )
    return _public(table, "kernels.graph_nodes", activity)


def _times(spans: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Number of spans by key, and their total, mean, shortest and longest time, ps."""
    length = (spans["end"] - spans["start"]).rename("length")
    grouped = length.groupby([spans[column] for column in key], sort=True)
    return (
        grouped.agg(["count", "sum", "mean", "min", "max"])
        .rename(columns={"sum": "total", "mean": "avg"})
        .reset_index()
    )


def _public(table: pd.DataFrame, name: str, activity: Activity) -> pd.DataFrame:
    table = table.assign(
        host=np.array(activity.hosts, object)[table["host"]],
        **{f"{part}_us": table[part] / 1e6 for part in ("total", "avg", "min", "max")},
    )
    if name == "kernels.graphs":
        table = table.sort_values("total_us", ascending=False, kind="stable")
    return table.reset_index(drop=True)[frames.names(name)].astype(frames.dtypes(name))
