"""Every framework op, on the device and on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from nbprof.activity.activity import WAITS_FOR_ITEMS
from nbprof.analysis.ops import ops as analysis
from nbprof.tools import rings
from nbprof.tools.common import by_torch, unknown
from nbprof.tools.ops.parts import OpRing, Ops, OpTotals
from nbprof.tools.parts import Empty, Ring, RingPart, Table, no_table
from nbprof.tools.tables import floats, hidden, longest, table
from nbprof.tools.torch_ops import ops_torch

if TYPE_CHECKING:
    from nbprof.run.run import Run

COLUMNS = (
    "rank",
    "where",
    "type",
    "op",
    "occurrences",
    "total_us",
    "avg_us",
    "self_us",
    "avg_self_us",
    "eager",
)
RATES = (
    "tensor_core_percent",
    "gflops_per_second",
    "gbytes_per_second",
    "operational_intensity",
    "bound_by",
)
"""Columns that are there only where an op has a value."""
SHARES = ("self_percent", "cumulative_percent")
MOST_ROWS = 3000
MOST_PARTS = 5
"""Ops, or op types, that a ring names."""


def payload(run: Run) -> Ops:
    """3,000 rows of each side (the ones with most self time), the totals over all, PyTorch's
    modules and shapes.
    """
    frame = without_idle(run.ops)
    sums = totals(frame, run.ops_with_idle)
    return Ops(
        empty=_empty(run) if frame.empty else None,
        table=_table(_largest(frame), run.longest_calls),
        totals=sums,
        rings=[
            _ring(frame, sums.device_idle_us, "device", "op"),
            _ring(frame, sums.device_idle_us, "device", "type"),
            _ring(frame, sums.host_idle_us, "host", "op"),
            _ring(frame, sums.host_idle_us, "host", "type"),
        ],
        modules=ops_torch.modules(run),
        shapes=ops_torch.shapes(run),
    )


def has(run: Run) -> bool:
    """Not where compiled programs on the CPU are all that ran: Op profile and HLO & roofline have
    their ops.
    """
    return not _in_programs(run) or not of_framework(run.ops).empty


def nothing() -> Ops:
    """The part without ops."""
    totals = OpTotals(device_us=None, device_idle_us=None, host_us=None, host_idle_us=None)
    return Ops(empty=None, table=no_table(), totals=totals, rings=[], modules=None, shapes=None)


def _table(ops: pd.DataFrame, calls: pd.DataFrame) -> Table:
    """The rows with their rates as they are read: in 10⁹ a second, and percent."""
    rows = ops.copy()
    for key, source, scale in (
        ("gflops_per_second", "flops_per_second", 1e-9),
        ("gbytes_per_second", "bytes_per_second", 1e-9),
        ("tensor_core_percent", "tensor_core_fraction", 100.0),
        ("self_percent", "self_fraction", 100.0),
        ("cumulative_percent", "cumulative_fraction", 100.0),
    ):
        if source in ops.columns:
            rows[key] = floats(ops[source]) * scale
    rates = [key for key in RATES if key in rows.columns and _has_values(rows[key])]
    listed = table(rows, "ops.frame", (*COLUMNS, *SHARES, *rates))
    # Half of the bytes, and more digits than a share is read with.
    listed.data.update({key: np.asarray(listed.data[key], np.float32) for key in SHARES})
    return hidden(listed, *longest(ops, calls, ("device", "host")))


def _ring(
    ops: pd.DataFrame,
    idle: float | None,
    side: Literal["device", "host"],
    by: Literal["op", "type"],
) -> OpRing:
    """Self time of a side by op or by type, as `p.ops.distribution` has it: without idle time, and
    with it.
    """
    sums = analysis.distribution(ops, side, by)
    times = pd.Series(floats(sums["self_us"]), sums[by].to_numpy(object))
    work = float(times.sum())
    idle = idle or 0.0
    total = work + idle
    last = [RingPart(label="Idle", percent=100 * idle / total, kind="idle")] if idle > 0 else []
    return OpRing(
        where=side,
        by=by,
        ms=work / 1000,
        parts=rings.parts(times, MOST_PARTS),
        with_idle=Ring(ms=total / 1000, parts=[*rings.parts(times, MOST_PARTS, total), *last]),
    )


def _has_values(values: pd.Series[Any]) -> bool:
    """True if any row has a value."""
    if values.dtype.kind == "f":
        return bool(values.notna().any())
    return bool(((values.notna()) & (values.astype(object) != "")).any())


def without_idle(ops: pd.DataFrame) -> pd.DataFrame:
    """The ops that are work; the frame itself if all are."""
    idle = (ops["type"] == "IDLE").to_numpy(np.bool_)
    return ops[~idle] if idle.any() else ops


def of_framework(ops: pd.DataFrame) -> pd.DataFrame:
    """Those of them that are not a wait that nbprof times."""
    ops = without_idle(ops)
    waits = ops["op"].isin(WAITS_FOR_ITEMS).to_numpy(np.bool_)
    return ops[~waits] if waits.any() else ops


def left_out(run: Run) -> int:
    """Ops that the table of the payload leaves out."""
    ops = without_idle(run.ops)
    return len(ops) - len(_largest(ops))


def totals(ops: pd.DataFrame, with_idle: pd.DataFrame) -> OpTotals:
    """Self time of each side without idle, and its idle time; None where the side was not
    recorded.
    """
    idle = with_idle[with_idle["type"] == "IDLE"]
    return OpTotals(
        device_us=_sum(ops, "device"),
        device_idle_us=_sum(idle, "device"),
        host_us=_sum(ops, "host"),
        host_idle_us=_sum(idle, "host"),
    )


def _largest(ops: pd.DataFrame) -> pd.DataFrame:
    if len(ops) > MOST_ROWS:
        return ops.groupby("where", sort=False).head(MOST_ROWS)
    return ops


def _sum(ops: pd.DataFrame, side_name: str) -> float | None:
    side = ops.loc[ops["where"] == side_name, "self_us"]
    return float(np.nansum(floats(side))) if len(side) else None


def _in_programs(run: Run) -> bool:
    return not run.activity.has_device and not run.programs.hlo_missing


def _empty(run: Run) -> Empty:
    if plain := unknown(run, "ops", "No ops in this run"):
        return plain
    if by_torch(run):
        return Empty(
            title="No ops in this run",
            text=run.missing.get("ops", "No PyTorch op ran during the recording."),
        )
    if _in_programs(run):
        return Empty(
            title="The ops of this run are in compiled programs",
            # The view has the link to Op profile below.
            text=(
                "It ran only programs compiled by XLA for the CPU, and no separate JAX or"
                " TensorFlow ops. HLO & roofline lists their ops, each with the framework op it"
                " comes from."
            ),
        )
    return Empty(
        title="No ops in this run",
        text=(
            "The profile has no framework ops. If the cell ran any, the host tracer was off; host"
            " level 2 records them."
        ),
        code="%%nbprof --host-level 2",
    )
