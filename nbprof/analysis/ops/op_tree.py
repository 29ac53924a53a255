"""Self time of ops as a tree: modules or name scopes, the ops in them, and the kernels of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.op_profile.op_profile import scopes
from nbprof.core import nesting
from nbprof.schema import frames

Floats = npt.NDArray[np.float64]

MODULE, OP, KERNEL = "module", "op", "kernel"
DEVICE, HOST = "device", "host"
_INSTANCE = re.compile(r"_\d+(?=/|$)")
"""What PyTorch appends to the class of a module to distinguish its instances."""
_IDLE = "IDLE"
_ROUNDING = 1e-9
"""Relative error of sums of the times of kernels."""


class _Leaf(NamedTuple):
    """Self time of an op outside of its kernels, or of a kernel."""

    side: str
    modules: tuple[str, ...]
    op: str
    kernel: str
    us: float


def frame(ops: pd.DataFrame, kernels: pd.DataFrame, by_module: pd.DataFrame) -> pd.DataFrame:
    """A row for each module, op and kernel of each side, before those in it: `p.ops.tree`.

    Parameters
    ----------
    ops, kernels : DataFrame
        As `p.ops.frame` and `p.kernels.frame` have them.
    by_module : DataFrame
        `p.torch_ops.by("module")`, whose modules take the place of name scopes where it has some;
        without rows for other frameworks.
    """
    rows: dict[tuple[int, str, str], int] = {}
    sides: list[str] = []
    self_us: list[float] = []
    for leaf in _leaves(ops, kernels, by_module):
        path = [(MODULE, name) for name in leaf.modules]
        path.append((OP, leaf.op))
        if leaf.kernel:
            path.append((KERNEL, leaf.kernel))
        row = -1
        for kind, name in path:
            # The outermost nodes of the two sides are distinct.
            around = row
            if row < 0 and leaf.side == HOST:
                around = -2
            key = around, kind, name
            if key not in rows:
                rows[key] = len(rows)
                sides.append(leaf.side)
                self_us.append(0.0)
            row = rows[key]
        self_us[row] += leaf.us
    if not rows:
        return frames.empty("ops.tree")
    parents, kinds, names = zip(*rows, strict=True)
    parent = np.maximum(np.array(parents, np.int32), -1)
    itself = np.array(self_us)
    total = nesting.totals(parent, itself)
    table = pd.DataFrame(
        {
            "where": sides,
            "parent": parent,
            "depth": nesting.depths(parent),
            "kind": kinds,
            "name": names,
            "self_us": itself,
            "total_us": total,
        }
    )
    # Devices first: siblings are of one side, but for the outermost ones.
    first = np.where(table["where"] == DEVICE, total.sum(), 0.0)
    return frames.shaped("ops.tree", in_order(table, total + first))


def in_order(tree: pd.DataFrame, time: Floats) -> pd.DataFrame:
    """The rows of a tree, each before those in it, siblings by their time.

    Parameters
    ----------
    tree : DataFrame
        `parent` is the row around each one, which comes earlier; -1 for none.
    time : float64[n]
        What siblings are ordered by, the largest first.
    """
    parent = tree["parent"].to_numpy(np.int64)
    children: dict[int, list[int]] = {}
    for row in np.argsort(time, kind="stable").tolist():
        children.setdefault(int(parent[row]), []).append(row)
    order, pending = [], list(children.get(-1, ()))
    while pending:
        row = pending.pop()
        order.append(row)
        pending += children.get(row, ())
    number = np.full(len(tree) + 1, -1, np.int64)
    number[order] = np.arange(len(order))
    return tree.assign(parent=number[parent]).iloc[order].reset_index(drop=True)


def has_modules(by_module: pd.DataFrame) -> bool:
    """True if `p.torch_ops.by("module")` knows the modules that called ops."""
    return len(by_module) > 0 and bool(by_module["module"].notna().any())


def _leaves(ops: pd.DataFrame, kernels: pd.DataFrame, by_module: pd.DataFrame) -> Iterator[_Leaf]:
    of_modules = has_modules(by_module)
    of_ops = _by_scope(ops)
    if of_modules:
        of_ops = _by_module(by_module)
    in_kernels: dict[tuple[tuple[str, ...], str], float] = {}
    if len(kernels):
        names = kernels["op"].fillna("").astype(str), kernels["kernel"].astype(str)
        modules = kernels["module"].tolist()
        for op, kernel, module, us in zip(*names, modules, kernels["total_us"], strict=True):
            path = tuple(_scope(op))
            if of_modules:
                path = _modules(module)
            op_name = op or kernel
            in_kernels[path, op_name] = in_kernels.get((path, op_name), 0.0) + us
            yield _Leaf(DEVICE, path, op_name, kernel, float(us))
    for side, path, op, us in of_ops:
        rest = us
        if side == DEVICE:
            # Copies and fills, and ops of devices without kernels.
            rest -= in_kernels.get((path, op), 0.0)
        if rest > _ROUNDING * us:
            yield _Leaf(side, path, op, "", rest)


_OfOps = list[tuple[str, tuple[str, ...], str, float]]


def _by_scope(ops: pd.DataFrame) -> _OfOps:
    """Side, scopes, name and self time of each op."""
    rows = []
    named = ops[ops["type"] != _IDLE]
    for side, op, us in zip(named["where"], named["op"], named["self_us"], strict=True):
        rows.append((str(side), tuple(_scope(str(op))), str(op), float(us)))
    return rows


def _by_module(by_module: pd.DataFrame) -> _OfOps:
    """Side, modules, name and self time of each op of PyTorch; instances of a class together."""
    sums: dict[tuple[str, tuple[str, ...], str], float] = {}
    ops = by_module[by_module["kind"] == "op"]
    for side in (DEVICE, HOST):
        times = ops[f"{side}_self_us"].fillna(0.0)
        for module, op, us in zip(ops["module"], ops["op"], times, strict=True):
            key = side, _modules(module), str(op)
            sums[key] = sums.get(key, 0.0) + float(us)
    return [(*key, us) for key, us in sums.items()]


def _modules(module: object) -> tuple[str, ...]:
    """The classes of the modules of a path, outermost first; several paths are one name."""
    if not isinstance(module, str) or not module:
        return ()
    if ", " in module:
        return (module,)
    return tuple(_INSTANCE.sub("", module).split("/"))


def _scope(op: str) -> list[str]:
    """The name scopes of an op, outermost first; none of a name without slashes."""
    if "/" not in op or " " in op.partition("/")[0]:
        return []
    return scopes(op)[:-1]
