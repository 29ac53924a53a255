"""PyTorch's ops by nn.Module and by input shapes for the view Ops; None if not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.core.receipt import Note, info
from nbprof.display import wording
from nbprof.schema import frames, torch_ops
from nbprof.schema.columns import Col
from nbprof.tools.parts import Table
from nbprof.tools.tables import floats, hidden, longest, table_of

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_MODULES = 400
MOST_SHAPES = 500

_KEYS = {col.name: col for col in torch_ops.KEYS}
_OPS = {col.name: col for col in frames.SCHEMA["torch_ops.frame"]}
_MODULES = {col.name: col for col in frames.SCHEMA["torch_ops.modules"]}
_PERCENT = {
    "modules": "{} time of its forward and backward passes, as a share of that of all modules.",
    "shapes": "{} self time, as a share of that of all ops.",
}
_PARTS = ("device_total_us", "backward_device_us", "host_total_us", "backward_host_us")
_SUMS = (*_PARTS, "calls", "device_self_us", "host_self_us")


def modules(run: Run) -> Table | None:
    """The tree of modules in preorder, siblings by their first calls, with the hidden `_depth`.

    Percent is of the time of all modules, forward and backward: on devices where there are any,
    else on the host.
    """
    frame = run.torch_modules
    if not len(frame):
        return None
    device = bool(frame["device_total_us"].notna().any())
    listed = largest_modules(frame)
    time = _time(listed, device=device)
    total = float(time[listed["depth"].to_numpy() == 0].sum())
    listed = listed.assign(percent=_percents(time, total))
    times: tuple[str, ...] = _PARTS
    if not device:
        times = _PARTS[2:]
    columns = [
        _MODULES["name"]._replace(label="Module"),
        _percent("modules", device=device),
        *(_MODULES[key] for key in ("calls", *times, "module")),
    ]
    return table_of(listed, columns).with_columns({"_depth": listed["depth"].to_numpy(np.uint16)})


def _percents(time: np.ndarray[Any, Any], total: float) -> np.ndarray[Any, Any]:
    """Shares of the total; NaN if that is 0."""
    if not total > 0:
        return np.full(len(time), np.nan)
    return 100 * time / total


def _percent(table: str, *, device: bool) -> Col:
    side = "Host"
    if device:
        side = "Device"
    text = _PERCENT[table].format(side)
    return Col("percent", "float64", "percent", f"{side} %", text, "percent", 1)


def largest_modules(frame: pd.DataFrame, limit: int = MOST_MODULES) -> pd.DataFrame:
    """The modules with the most time and those around them; others are summed up below each."""
    if len(frame) <= limit:
        return frame
    time = _time(frame, device=bool(frame["device_total_us"].notna().any()))
    depth = frame["depth"].to_numpy(np.int64)
    parent = _parents(depth)
    keep = np.zeros(len(frame), np.bool_)
    keep[np.argsort(-time, kind="stable")[:limit]] = True
    # A module takes at least the time of those in it, but an equal one may stand behind it.
    for row in np.flatnonzero(keep).tolist():
        outer = int(parent[row])
        while outer >= 0 and not keep[outer]:
            keep[outer] = True
            outer = int(parent[outer])
    first_left = ~keep & ((parent < 0) | keep[np.maximum(parent, 0)])
    rows, around = np.flatnonzero(first_left), parent[first_left]
    rest = frame.iloc[rows].groupby(around)[[key for key in _SUMS if key in frame]].sum(min_count=1)
    count = pd.Series(around).value_counts()
    extra = rest.assign(
        name=[f"({count[row]:,} more with less time)" for row in rest.index],
        module="",
        depth=[0 if row < 0 else int(depth[row]) + 1 for row in rest.index],
    )
    # Behind the last row of the module's subtree.
    ends = [_end(depth, row) for row in rest.index.tolist()]
    extra_order = np.array(ends) - 0.5 - extra["depth"].to_numpy() * 1e-6
    order = np.concatenate([np.flatnonzero(keep).astype(np.float64), extra_order])
    both = pd.concat([frame[keep], extra], ignore_index=True)
    return both.iloc[np.argsort(order, kind="stable")].reset_index(drop=True)


def _parents(depth: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The row around each row of a tree in preorder, -1 for none."""
    parents = np.full(len(depth), -1, np.int64)
    open_: list[int] = []
    for row, level in enumerate(depth.tolist()):
        del open_[level:]
        if open_:
            parents[row] = open_[-1]
        open_.append(row)
    return parents


def _end(depth: np.ndarray[Any, Any], row: int) -> int:
    """The first row behind the subtree of a row; of the whole tree for -1."""
    if row < 0:
        return len(depth)
    behind = np.flatnonzero(depth[row + 1 :] <= depth[row])
    if not len(behind):
        return len(depth)
    return row + 1 + int(behind[0])


def _time(frame: pd.DataFrame, *, device: bool) -> np.ndarray[Any, np.dtype[np.float64]]:
    names = _PARTS[2:]
    if device:
        names = _PARTS[:2]
    forward, backward = names
    time: np.ndarray[Any, np.dtype[np.float64]] = np.nan_to_num(floats(frame[forward]))
    time += np.nan_to_num(floats(frame[backward]))
    return time


def shapes(run: Run) -> Table | None:
    """Ops by the shapes of their inputs, most self time first; the others in a last row."""
    frame = by_shapes(run)
    if not len(frame):
        return None
    device = bool(frame["device_self_us"].notna().any())
    sums, key = ["calls", "host_self_us", "host_total_us"], "host_self_us"
    if device:
        sums[1:1] = ["device_self_us", "device_total_us"]
        key = "device_self_us"
    columns: list[Col] = [
        _OPS["op"],
        _KEYS["input_shapes"],
        _percent("shapes", device=device),
        *(_OPS[name] for name in sums),
    ]
    total = float(np.nansum(floats(frame[key])))
    listed, rest = frame.head(MOST_SHAPES), frame.iloc[MOST_SHAPES:]
    start, length = longest(listed, run.longest_calls, ("host", "device"))
    if len(rest):
        row = rest[sums].sum(min_count=1).to_frame().T
        row = row.assign(op=f"({len(rest):,} more with less time)", input_shapes="")
        listed = pd.concat([listed, row], ignore_index=True)
        start, length = np.append(start, np.nan), np.append(length, np.nan)
    listed = listed.assign(
        percent=_percents(floats(listed[key]), total),
        input_shapes=listed["input_shapes"].fillna(""),
    )
    return hidden(table_of(listed, columns), start, length)


def by_shapes(run: Run) -> pd.DataFrame:
    """The rows of ops, which alone have inputs; empty if shapes were not recorded."""
    frame = run.torch_ops_by("shapes")
    if not len(frame):
        return frame.head(0)
    frame = frame[frame["kind"] == "op"]
    if not frame["input_shapes"].notna().any():
        return frame.head(0)
    return frame.reset_index(drop=True)


def omissions(run: Run) -> list[Note]:
    """Notes on what these tables leave out."""
    notes = []
    frame = run.torch_modules
    count = len(frame) - int((largest_modules(frame)["module"] != "").sum())
    if count:
        modules = wording.plural(count, "module")
        text = (
            f"The module tree sums up the {modules} with the least time;"
            " p.torch_ops.modules has all."
        )
        notes.append(info("omitted_modules", text))
    count = len(by_shapes(run)) - MOST_SHAPES
    if count > 0:
        rows = wording.plural(count, "row")
        text = (
            f"The table of ops by shape sums up the {rows} with the least time;"
            " p.torch_ops.by('shapes') has all."
        )
        notes.append(info("omitted_shapes", text))
    return notes
