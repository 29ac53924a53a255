"""TensorFlow Profiler's breakdown of the step of each TPU core.

Each op counts for its kind where no op inside it runs, and what no op covers is idle. All-reduce
(any collective) is parted: the shortest run of an op among the cores of a host is what it takes to
compute, and what it takes longer on a core is waiting for the others.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from nbprof.activity.activity import CORE_KINDS, Activity, text_column
from nbprof.analysis.steps import steps
from nbprof.analysis.table import stacked
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int64s
from nbprof.schema import frames

_ALL_REDUCE = CORE_KINDS.index("all_reduce")
COLUMNS = frames.names("pods.cores")
_TYPES = frames.dtypes("pods.cores")
_WHO = ["host", "device", "core"]


def frame(activity: Activity, counted: pd.DataFrame) -> pd.DataFrame:
    """One row per step and core: `p.pods.cores`, with `host`, `group` and `counted`.

    Parameters
    ----------
    activity : Activity
    counted : DataFrame
        Of `steps.frame`: the steps that are shown, and which averages use.
    """
    times = [_times(activity, host) for host in range(len(activity.hosts))]
    table = stacked([*times, pd.DataFrame()])
    if not len(table):
        return empty()
    table = _with_sparse(activity, table)
    spans = activity.core_spans.frame()
    spans = spans.assign(row=_row_of(table, spans))
    spans = spans[spans["row"] >= 0].reset_index(drop=True)
    spans["length"] = spans["end"] - spans["start"]
    total = np.zeros((len(table), len(CORE_KINDS)))
    np.add.at(
        total,
        (spans["row"].to_numpy(np.int64), spans["kind"].to_numpy(np.int64)),
        spans["length"].to_numpy(np.float64),
    )
    wait = _waited(table, spans[spans["kind"] == _ALL_REDUCE])
    total_ps = (table["end"] - table["start"]).to_numpy(np.float64)
    result = table[["group", "device", "core"]].copy()
    first, step_code = unique_rows(*(table[name].to_numpy(np.int64) for name in _WHO))
    hosts = [activity.hosts[host] for host in table["host"].to_numpy()[first].tolist()]
    devices, cores = (table[name].to_numpy()[first].tolist() for name in ("device", "core"))
    workers = []
    for host, device, core in zip(hosts, devices, cores, strict=True):
        sparse_core = f" SparseCore {core}" if core >= 0 else ""
        workers.append(f"{host}:{device}{sparse_core}")
    result["host"] = text_column(np.array(hosts, object), step_code)
    result["worker"] = text_column(np.array(workers, object), step_code)
    chips = activity.devices.set_index(["host", "device"])["chip"]
    result["chip"] = pd.array(
        chips.reindex(pd.MultiIndex.from_frame(result[["host", "device"]])).to_numpy(),
        dtype="Int64",
    )
    result["start_ms"], result["step_time_ms"] = table["start"] / 1e9, total_ps / 1e9
    for index, kind in enumerate(CORE_KINDS):
        result[f"{kind}_ms"] = total[:, index] / 1e9
    result["all_reduce_compute_ms"], result["all_reduce_sync_ms"] = (
        (total[:, _ALL_REDUCE] - wait) / 1e9,
        wait / 1e9,
    )
    result["idle_ms"] = np.maximum(total_ps - total.sum(axis=1), 0.0) / 1e9
    result = result.merge(
        counted[["host", "group", "step", "name", "counted"]], on=["host", "group"]
    )
    result = result.sort_values(
        ["start_ms", "host", "device", "core"], kind="stable", ignore_index=True
    )
    return pd.DataFrame(result[[*COLUMNS, "host", "group", "counted"]].astype(_TYPES))


def empty() -> pd.DataFrame:
    """The frame without cores."""
    return _empty().copy()


@cache
def _empty() -> pd.DataFrame:
    return pd.DataFrame(columns=[*COLUMNS, "host", "group", "counted"]).astype(_TYPES)


_NULLABLE = {
    **dict.fromkeys(("chip", "chip_core", "sparse_cores", "memory_bytes", "cores"), "Int64"),
    "megacore": "boolean",
}
"""Columns that not every device states; their type is numeric nevertheless."""


def with_sparse_cores(devices: pd.DataFrame, sparse: pd.DataFrame) -> pd.DataFrame:
    """`p.devices`: one row per device, and after each TPU one for every SparseCore of it that
    recorded.

    Parameters
    ----------
    devices : DataFrame
        Of `Activity.devices`.
    sparse : DataFrame
        ``host device core``.
    """
    table = devices.assign(core=pd.array([pd.NA] * len(devices), dtype="Int64"))
    if not len(sparse):
        return table.astype({name: kind for name, kind in _NULLABLE.items() if name in table})
    rows = sparse.merge(
        devices[["host", "device", "name", "chip"]], on=["host", "device"], how="left"
    )
    rows["name"] = [f"{'TPU' if pd.isna(name) else name} SparseCore" for name in rows["name"]]
    rows = rows.assign(kind="SparseCore", core=rows["core"].astype("Int64")).reindex(
        columns=table.columns
    )
    both = pd.concat([table.astype(object), rows.astype(object)], ignore_index=True)
    both = both.sort_values(["host", "device"], kind="stable", ignore_index=True)
    both = both.astype(object).where(both.notna(), None)
    # Numbers stay numbers, missing where they are of the whole device.
    numbers = [
        name for name in table.columns if table[name].dtype.kind == "f" and name not in _NULLABLE
    ]
    nullable = {name: kind for name, kind in _NULLABLE.items() if name in both}
    return both.astype(
        {"device": "int64", "core": "Int64", **dict.fromkeys(numbers, "float64"), **nullable}
    )


def shares(cores: pd.DataFrame) -> dict[str, float | None]:
    """`infeed_percent`, `outfeed_percent` and `host_transfer_percent`: of the time of the steps in
    the averages, on Tensor Cores.
    """
    result: dict[str, float | None] = dict.fromkeys(f"{kind}_percent" for kind in _TRANSFERS)
    if not len(cores):
        return result
    is_tensor_core = ~cores["worker"].str.contains(" SparseCore ", regex=False)
    used = cores[cores["counted"].astype(bool) & is_tensor_core]
    total_ms = float(used["step_time_ms"].sum())
    if total_ms:
        for kind in _TRANSFERS:
            result[f"{kind}_percent"] = 100 * float(used[f"{kind}_ms"].sum()) / total_ms
    return result


_TRANSFERS = ("infeed", "outfeed", "host_transfer")


def _times(activity: Activity, host: int) -> pd.DataFrame:
    """Steps of the Tensor Cores of a host: ``host device core group start end``, those that all
    cores have.
    """
    cores = steps.tensor_cores(activity, host)
    if not cores:
        return pd.DataFrame()
    core_markers = activity.core_markers.take(activity.core_markers.host == host).frame()
    marked = set(activity.markers.device[activity.markers.host == host].tolist())
    parts = []
    for core in cores:
        if len(core_markers):
            core_steps = core_markers[core_markers["device"] == core][["group", "start", "end"]]
        elif core in marked:
            core_steps = steps.step_times(activity, host, core)
        else:
            continue
        parts.append(core_steps.assign(host=host, device=core, core=-1))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    on_all: pd.DataFrame = table[table.groupby("group")["group"].transform("count") == len(parts)]
    return on_all


def _with_sparse(activity: Activity, table: pd.DataFrame) -> pd.DataFrame:
    """The steps of Tensor Cores, and those of SparseCores that begin in one of the TensorCore of
    their device.
    """
    sparse = activity.sparse_steps.frame()
    spans = activity.core_spans.frame()
    ran = spans[spans["core"] >= 0][_WHO].drop_duplicates()
    if not len(sparse) and not len(ran):
        return table.reset_index(drop=True)
    # A SparseCore without steps has those of its TensorCore.
    without = ran.merge(sparse[_WHO].drop_duplicates(), on=_WHO, how="left", indicator=True)
    lent = without[without["_merge"] == "left_only"][_WHO].merge(
        table.drop(columns="core"), on=["host", "device"]
    )
    row = _row_of(table, sparse.assign(core=-1))
    host_steps = (
        sparse[row >= 0]
        .drop(columns="event")
        .assign(group=table["group"].to_numpy()[row[row >= 0]])
    )
    host_steps = host_steps.groupby([*_WHO, "group"], as_index=False).agg(
        start=("start", "min"), end=("end", "max")
    )
    parts = [part for part in (table, host_steps, lent) if len(part)]
    return pd.concat(parts, ignore_index=True)


def _row_of(table: pd.DataFrame, spans: pd.DataFrame) -> Int64s:
    """int64[spans]: the row of `table` (the step of a core) in which each span begins; -1 for
    none.
    """
    result = np.full(len(spans), -1, np.int64)
    rows_by_core = dict(table.groupby(_WHO).indices)
    for key, span_rows in spans.groupby(_WHO).indices.items():
        if key not in rows_by_core:
            continue
        rows = np.asarray(rows_by_core[key], np.int64)
        rows = rows[np.argsort(table["start"].to_numpy()[rows], kind="stable")]
        begin, end = table["start"].to_numpy()[rows], table["end"].to_numpy()[rows]
        start = spans["start"].to_numpy()[span_rows]
        step = np.searchsorted(begin, start, side="right") - 1
        result[span_rows] = np.where(
            (step >= 0) & (start < end[np.maximum(step, 0)]), rows[np.maximum(step, 0)], -1
        )
    return result


def _waited(table: pd.DataFrame, spans: pd.DataFrame) -> Int64s:
    """int64[rows]: how much longer the collectives of a core took than the same ones on the core
    where they took least, ps.
    """
    result = np.zeros(len(table), np.int64)
    if not len(spans):
        return result
    runs = spans.groupby(["row", "event", "op"], sort=False)["length"].sum().reset_index()
    runs["turn"] = runs.groupby(["row", "op"], sort=False).cumcount()
    for name in ("host", "group"):
        runs[name] = table[name].to_numpy()[runs["row"].to_numpy(np.int64)]
    sparse = table["core"].to_numpy()[runs["row"].to_numpy(np.int64)] >= 0
    same = runs.groupby(["host", "group", "op", "turn", sparse])["length"]
    np.add.at(
        result,
        runs["row"].to_numpy(np.int64),
        (runs["length"] - same.transform("min")).to_numpy(np.int64),
    )
    return result
