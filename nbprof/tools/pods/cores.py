"""The cores of TPUs beside each other: what each did, by core and chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.display import wording
from nbprof.display.codec import coded, smallest
from nbprof.schema import frames
from nbprof.tools.parts import Column, Table
from nbprof.tools.pods.parts import Cores
from nbprof.tools.tables import DERIVED, column, floats, head

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_CORES = 3000
MOST_ROWS = 8000
"""Cores times steps that a report holds one by one."""
KINDS = tuple(
    name
    for name in frames.names("pods.cores")
    if name.endswith("_ms") and name not in ("step_time_ms", "start_ms")
)
_COLUMNS = {col.name: col for col in frames.SCHEMA["pods.cores"]}


def several(run: Run) -> bool:
    """True if there are several cores of TPUs to compare, SparseCores among them."""
    return bool(run.pods_cores["worker"].nunique() > 1)


def payload(run: Run, steps_of_hosts: pd.DataFrame, steps: npt.NDArray[np.int64]) -> Cores | None:
    """The cores of TPUs; None where none has steps.

    Parameters
    ----------
    run : Run
    steps_of_hosts : DataFrame
        `host group at`: which step of the view each step of a host is.
    steps : int64[drawn]
        The steps that are drawn, as its column `at` counts them.
    """
    frame = run.pods_cores
    if frame.empty:
        return None
    counted = frame[frame["counted"].astype(bool)]
    means = (counted if len(counted) else frame).groupby("worker")[["step_time_ms", *KINDS]].mean()
    chips = frame.drop_duplicates("worker").set_index("worker")["chip"]
    order = sorted(means.index, key=wording.natural)[:MOST_CORES]
    means = means.loc[order].reset_index()
    means["chip"] = chips.reindex(order).to_numpy()
    means = means.rename(columns={"step_time_ms": "mean_step_ms"})
    kinds = [kind for kind in KINDS if (frame[kind] > 0).any()]
    part = Cores(
        kinds=kinds,
        heads=[_head(key) for key in ("worker", "chip", "step_time_ms", *kinds)],
        table=_table(means, ("worker", "chip", "mean_step_ms", *kinds)),
        first=np.zeros(0, np.uint32),
        core=np.zeros(0, np.uint8),
        time_ms=np.zeros(0, np.float32),
        parts={},
        note=_note(run, frame, kinds, len(means)),
    )
    rows = frame.merge(steps_of_hosts, on=["host", "group"])
    position = np.full(
        int(steps_of_hosts["at"].to_numpy(np.int64).max(initial=-1)) + 1, -1, np.int64
    )
    position[steps] = np.arange(len(steps))
    rows = rows.assign(
        at=position[rows["at"].to_numpy(np.int64)], core=pd.Index(order).get_indexer(rows["worker"])
    )
    rows = rows[(rows["at"] >= 0) & (rows["core"] >= 0)].sort_values(["at", "core"], kind="stable")
    if len(rows) > MOST_ROWS:
        part.note += (
            f" This report contains means; p.pods.cores has each step of each core ({len(frame):,}"
            " rows)."
        )
        return part
    part.first = np.append(0, np.cumsum(np.bincount(rows["at"], minlength=len(steps)))).astype(
        np.uint32
    )
    part.core = smallest(rows["core"].to_numpy(np.int64))
    part.time_ms = rows["step_time_ms"].to_numpy(np.float32)
    part.parts = {kind: rows[kind].to_numpy(np.float32) for kind in kinds}
    return part


def _note(run: Run, frame: pd.DataFrame, kinds: list[str], drawn: int) -> str:
    """Notes on the table of cores, in sentences."""
    none = [_COLUMNS[kind].label.lower() for kind in KINDS if kind not in kinds]
    parts = [f"No core spent time on {wording.listed(none, 'or')}."] if none else []
    # A column of objects, which may be missing.
    if (run.devices["megacore"] == True).any():  # noqa: E712
        parts.append("Megacore: the two cores of a chip work as one and share a row.")
    if frame["worker"].str.contains(" SparseCore ", regex=False).any():
        parts.append("A SparseCore works alongside the core of its chip, in the same step.")
    count = frame["worker"].nunique()
    if count > drawn:
        parts.append(f"This report has {drawn:,} of {count:,} cores; p.pods.cores has all.")
    return " ".join(parts)


def _table(frame: pd.DataFrame, keys: tuple[str, ...]) -> Table:
    heads = [_head(key) for key in keys]
    data = {each.key: column(frame, each.key, each.kind) for each in heads}
    data["worker"] = coded(wording.one_line(name) for name in frame["worker"])
    data["chip"] = floats(frame["chip"]).astype(np.float32)
    return Table(columns=heads, data=data, rows=len(frame))


def _head(key: str) -> Column:
    core_head = head(DERIVED.get(key) or _COLUMNS[key])
    if key == "worker":
        core_head.label = "Core"
    if key == "mean_step_ms":
        core_head.help = "Mean duration of a step on this core."
    return core_head
