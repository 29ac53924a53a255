"""PyTorch's ops by name, input shapes, call stack and nn.Module."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.analysis.figures import ratio
from nbprof.analysis.table import positions, stacked
from nbprof.core import nesting
from nbprof.core.callstacks import Stacks
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int32s, Int64s
from nbprof.schema import frames
from nbprof.schema import torch_ops as schema

KEYS = {
    "op": [],
    "shapes": ["input_shapes"],
    "stack": ["call_stack"],
    "module": ["module"],
    "source": ["source", "aten_ops"],
}
"""Ways to group ops, and the columns that each adds to the op's name."""
_KINDS = np.array(["op", "annotation", "runtime"], object)


def frame(activity: act.Activity, by: str = "op") -> pd.DataFrame:
    """Ops, annotations and runtime calls summed by name, most time first: device's self time, then
    the host's.

    The rules are those of `torch.profiler`'s `key_averages()`: `host_self_us` is the time of a run
    without the runs directly in it, `host_total_us` all of it; `device_self_us` the kernels, copies
    and fills that an op launched itself, `device_total_us` those of the ops in it as well. Runs of
    an op within another run of it count in both totals. An op whose one inner run has its own name
    is one run with it.

    Parameters
    ----------
    activity : Activity
    by : {'op', 'shapes', 'stack', 'module', 'source'}
        The key of a row besides the name.
    """
    table = activity.torch_ops.frame()
    columns = frames.names("torch_ops.frame") + KEYS[by]
    if not len(table):
        # Every profile of another framework: grouping nothing takes a tenth of the time in which a
        # small one opens.
        empty = frames.empty("torch_ops.frame")
        return empty.assign(**dict.fromkeys(KEYS[by], pd.Series(dtype=object)))
    # Work is counted for the op that launched it: without ops it counts for none.
    on_device = activity.has_device and activity.has_host_ops
    retained, facts = _runs(table, on_device)
    rows, keys = _keyed(activity, table, retained, by)
    first, of_row = unique_rows(*(rows[key].to_numpy(np.int64) for key in keys))
    sums = rows[keys].iloc[first].reset_index(drop=True)
    sums["calls"] = np.bincount(of_row, minlength=len(first))
    for part in ("host_self", "host_total", "device_self", "device_total"):
        total = np.zeros(len(first), np.int64)
        np.add.at(total, of_row, facts[part])
        sums[f"{part}_us"] = total / 1e6
    sums = _shares(sums)
    if not on_device:
        for part in ("self_us", "total_us", "avg_us", "self_fraction"):
            sums[f"device_{part}"] = np.nan
    sums["op"] = activity.ops.values[sums["op"]]
    sums["kind"] = _KINDS[sums["kind"]]
    sums = _with_texts(activity, sums, by)
    if by == "module":
        sums = _same_path(sums, columns)
    return _in_order(sums, columns, has_device=on_device)


def _keyed(
    activity: act.Activity, table: pd.DataFrame, retained: Int64s, by: str
) -> tuple[pd.DataFrame, list[str]]:
    """The runs with the codes that they are grouped by, and the names of these columns."""
    if by == "source":
        keys = ["kind", "op", *KEYS[by]]
        return table.loc[retained, keys].reset_index(drop=True), keys
    rows = table.loc[retained, ["kind", "op", "shape", "stack"]].reset_index(drop=True)
    keys = ["kind", "op"]
    if by == "shapes":
        keys.append("shape")
    elif by in ("stack", "module"):
        rows[by] = _of_forward(table, activity.torch_stacks, by)[retained]
        keys.append(by)
    return rows, keys


def _with_texts(activity: act.Activity, sums: pd.DataFrame, by: str) -> pd.DataFrame:
    """The sums with texts in place of the codes that they were grouped by."""
    texts = np.array([*activity.texts.codes, None], object)
    if by == "shapes":
        sums["input_shapes"] = texts[sums["shape"]]
    elif by == "source":
        for key in KEYS[by]:
            sums[key] = texts[sums[key]]
    elif by == "stack":
        stacks = activity.torch_stacks
        sums["call_stack"] = [
            stacks.text(code) if stacks is not None and code >= 0 else None
            for code in sums["stack"].tolist()
        ]
    elif by == "module":
        paths = _module_paths(activity)
        sums["module"] = [paths[code] or None for code in sums["module"].tolist()]
    return sums


_SUMS = ["calls", "host_self_us", "host_total_us", "device_self_us", "device_total_us"]


def _shares(table: pd.DataFrame) -> pd.DataFrame:
    """The sums with shares and averages."""
    for side in ("host", "device"):
        total = table[f"{side}_self_us"].sum()
        table[f"{side}_self_fraction"] = ratio(table[f"{side}_self_us"], total)
        table[f"{side}_avg_us"] = table[f"{side}_total_us"] / table["calls"]
    return table


def _in_order(table: pd.DataFrame, columns: list[str], *, has_device: bool) -> pd.DataFrame:
    keys, ascending = ["host_self_us", "op"], [False, True]
    if has_device:
        keys, ascending = ["device_self_us", *keys], [False, *ascending]
    return _typed(table.sort_values(keys, ascending=ascending, kind="stable"), columns)


def added(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The ops of several hosts together; of each host the result of `frame`."""
    rows = stacked(tables)
    all_keys = {"kind", "op"}.union(*KEYS.values())
    keys = [column for column in rows.columns if column in all_keys]
    sums = rows.groupby(keys, sort=False, dropna=False)[_SUMS].sum(min_count=1).reset_index()
    has_device = bool(rows["device_self_us"].notna().any())
    return _in_order(_shares(sums), list(tables[0].columns), has_device=has_device)


def added_modules(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The modules of several hosts together, as a tree in the order of the first host; of each host
    the result of `modules`.
    """
    rows = stacked(tables)
    if not len(rows):
        return rows
    sums = [column for column in rows.columns if column == "calls" or column.endswith("_us")]
    by_path = rows.groupby("module", sort=False)
    modules = by_path[["name", "depth"]].first().join(by_path[sums].sum(min_count=1))
    row_of = positions(modules.index.tolist())
    parent = np.array([row_of.get(path.rpartition("/")[0], -1) for path in row_of], np.int32)
    order = _preorder(parent, np.arange(len(modules)))
    columns = list(tables[0].columns)
    return _typed(modules.reset_index().iloc[order], columns, "torch_ops.modules")


def modules(activity: act.Activity) -> pd.DataFrame:
    """The tree of modules, each below the one that called it, in the order of their first calls.

    Forward time is that of the calls of a module on the host, and of the device work launched in
    them. Backward time is that of the ops of the backward pass which belong to ops that ran in the
    module (autograd numbers them alike). `_self_` leaves out the modules inside.
    """
    columns = frames.names("torch_ops.modules")
    table, stacks = activity.torch_ops.frame(), activity.torch_stacks
    if (
        stacks is None
        or not len(stacks.frame)
        or not stacks.is_module.any()
        or not len(activity.torch_modules)
    ):
        return frames.empty("torch_ops.modules")
    calls = activity.torch_modules.frame()
    # Paths as codes, the empty one among them.
    path, paths = pd.factorize(np.append(stacks.path, ""))
    nowhere = path[-1]
    path_of = path[calls["stack"]]
    self_times = pd.DataFrame(
        {
            "path": path_of,
            "calls": 1,
            "host_total": calls["end"] - calls["start"],
            "host_self": calls["own"],
        }
    )
    host = self_times.groupby("path", sort=False).sum()
    first = pd.Series(calls["start"].to_numpy()).groupby(path_of).min()
    # Work of each op, by the module that the op, or its op of the forward pass, ran in.
    path_of_forward = path[_of_forward(table, stacks, "stack")]
    backward = table["forward"].to_numpy() >= 0
    work = pd.DataFrame(
        {
            "path": path_of_forward,
            "forward_device": np.where(backward, 0, table["device_own"]),
            "backward_device": np.where(backward, table["device_own"], 0),
            "backward_host": np.where(backward & (table["kind"] == act.TORCH_OP), table["own"], 0),
        }
    )
    device = (
        work[path_of_forward != nowhere]
        .groupby("path", sort=False)
        .sum()
        .reindex(host.index, fill_value=0)
    )
    sums = host.join(device)
    sums["first"] = first.reindex(sums.index)
    sums.index = paths[sums.index]
    tree = _tree(sums, activity.has_device and activity.has_host_ops)
    return _typed(tree, columns, "torch_ops.modules")


def _tree(table: pd.DataFrame, has_device: bool) -> pd.DataFrame:
    """Rows in the order of a tree, times of the modules inside added to those around them."""
    paths = table.index.tolist()
    row_of = positions(paths)
    parent = np.array([row_of.get(path.rpartition("/")[0], -1) for path in paths], np.int32)
    device, backward, back_host = (
        table[name].to_numpy(np.float64)
        for name in ("forward_device", "backward_device", "backward_host")
    )
    totals = [nesting.totals(parent, values) for values in (device, backward, back_host)]
    order = _preorder(parent, table["first"].to_numpy())
    unknown = 1.0 if has_device else np.nan
    result = pd.DataFrame(
        {
            "module": paths,
            "name": [path.rpartition("/")[2] for path in paths],
            "depth": nesting.depths(parent).astype(np.int64),
            "calls": table["calls"].to_numpy(),
            "host_total_us": table["host_total"].to_numpy() / 1e6,
            "host_self_us": table["host_self"].to_numpy() / 1e6,
            "device_total_us": totals[0] / 1e6 * unknown,
            "device_self_us": device / 1e6 * unknown,
            "backward_host_us": totals[2] / 1e6,
            "backward_device_us": totals[1] / 1e6 * unknown,
        }
    )
    return result.iloc[order].reset_index(drop=True)


def _preorder(parent: Int32s, first: npt.NDArray[np.int64]) -> list[int]:
    """Rows so that each stands below its parent, siblings by their first call."""
    children: dict[int, list[int]] = {}
    for i in np.argsort(first, kind="stable").tolist():
        children.setdefault(int(parent[i]), []).append(i)
    order: list[int] = []
    open_ = list(reversed(children.get(-1, [])))
    while open_:
        row = open_.pop()
        order.append(row)
        open_.extend(reversed(children.get(row, [])))
    return order


def _runs(table: pd.DataFrame, has_device: bool) -> tuple[Int64s, dict[str, Int64s]]:
    """The rows that count as runs, and their times in ps."""
    parent = table["parent"].to_numpy()
    nested = np.flatnonzero(parent >= 0)
    inner = np.bincount(parent[nested], minlength=len(table))
    same = np.zeros(len(table), np.bool_)
    above = parent[nested]
    name, kind = table["op"].to_numpy(), table["kind"].to_numpy()
    same[nested] = (
        (name[nested] == name[above]) & (kind[nested] == kind[above]) & (inner[above] == 1)
    )
    self_ps, device = table["own"].to_numpy().copy(), table["device_own"].to_numpy().copy()
    total = nesting.totals(parent, device) if has_device else device.copy()
    for level in reversed(nesting.levels(parent.astype(np.int32))[1:]):
        twin = level[same[level]]
        self_ps[parent[twin]] += self_ps[twin]
        device[parent[twin]] += device[twin]
    retained = np.flatnonzero(~same)
    length = (table["end"] - table["start"]).to_numpy()
    times = {
        "host_self": self_ps,
        "host_total": length,
        "device_self": device,
        "device_total": total,
    }
    return retained, {column: values[retained] for column, values in times.items()}


def _of_forward(table: pd.DataFrame, stacks: Stacks | None, by: str) -> Int32s:
    """The stack of each run, in the backward pass that of the op it belongs to; for modules, the
    chain of modules on it.
    """
    stack = table["stack"].to_numpy()
    forward = table["forward"].to_numpy()
    stack_of = np.where(forward >= 0, stack[forward], stack)
    if by == "stack" or stacks is None:
        return stack_of
    return np.append(stacks.module, np.int32(-1))[stack_of]


def _module_paths(activity: act.Activity) -> npt.NDArray[np.object_]:
    stacks = activity.torch_stacks
    if stacks is not None:
        return np.append(stacks.path, "")
    return np.array([""], object)


def _same_path(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """One row for each op and path: the same module may have been called from several lines."""
    endings = ("_self_us", "_total_us", "_fraction", "calls")
    sums = [column for column in columns if column.endswith(endings)]
    table = (
        table.groupby(["kind", "op", "module"], sort=False, dropna=False)[sums]
        .sum(min_count=1)
        .reset_index()
    )
    for side in ("host", "device"):
        table[f"{side}_avg_us"] = table[f"{side}_total_us"] / table["calls"]
    return table


def _typed(table: pd.DataFrame, columns: list[str], name: str = "torch_ops.frame") -> pd.DataFrame:
    kinds = {column.name: column.dtype for column in [*frames.SCHEMA[name], *schema.KEYS]}
    arrays: dict[str, Any] = {}
    for column in columns:
        values = table[column]
        if kinds[column] == "object":
            texts = values.to_numpy(object, copy=True)
            texts[values.isna()] = None
            arrays[column] = pd.Index(texts, dtype=object)
        else:
            arrays[column] = values.to_numpy(kinds[column])
    return pd.DataFrame(arrays, copy=False)
