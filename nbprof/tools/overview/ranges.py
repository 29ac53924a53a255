"""`p.ranges`: time by range that the program names, and the part of the Overview that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.ranges.totals import MAIN, OTHER, PROGRAM
from nbprof.display import wording
from nbprof.schema import frames
from nbprof.tools.accessor import Framed, Shown
from nbprof.tools.common import unit_of
from nbprof.tools.overview.parts import RangeGroup, Ranges
from nbprof.tools.parts import Table
from nbprof.tools.tables import floats, table_of

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_ROWS = 12
"""Rows of one group that the Overview shows."""
_DEEPEST = 3
_LEAST_PERCENT = 0.1
SCOPES_TITLE = "Scopes of ops"
_TITLES = {MAIN: "Main thread", OTHER: "Other threads", PROGRAM: SCOPES_TITLE}


class RangeView(Framed):
    """Time by range that the program names: `record_function`, NVTX and ROCTx, `TraceAnnotation`,
    mstx; `named_scope`, `tf.name_scope`.

    `frame` has a row for each range and the ranges around it, as a tree: first those of the thread
    that marks the steps, then those of other threads, then scopes, which are in the names of ops.
    All figures are per step, of the steps in the averages.

    - Device time is that of what was launched in the range, whenever it ran. What a thread of
      autograd launches counts for the range that the thread which called `backward()` is in.
    - `backward_host_ms_per_step` and `backward_device_ms_per_step` are the time of the backward
      pass of what ran in the range: PyTorch numbers ops of both passes alike, JAX and TensorFlow
      name them after the scope. That time is also in the range around `backward()`.
    - `wait_ms_per_step` is the time of calls that wait for a device, such as
      `cudaStreamSynchronize`.

    Ranges that frameworks set (steps, DataLoader, compiled regions, collectives) are not listed,
    but `Optimizer.step#…`, which PyTorch sets, is where there are others. `outside` is the time
    that is in no range.
    """

    def __init__(self, profile: Shown) -> None:
        super().__init__(profile, "overview", "ranges")

    @property
    def outside(self) -> dict[str, float]:
        """Time per step in ms that is in no range: on the thread that marks the steps, and of
        device work; NaN where not known.
        """
        return dict(self._profile.run.outside_ranges)

    def _nothing(self) -> str:
        run = self._profile.run
        if not len(run.steps):
            return "Without steps, nothing is known per step."
        if run.activity.tables or (run.devices["kind"] == "NPU").any():
            return (
                "No range of mstx is recorded; torch_npu records them with mstx=True, msprof with"
                " --msproftx=on. It does not tell record_function from ops."
            )
        if "Operator" in run.trace.strings:
            return "Traces of this version of PyTorch do not tell record_function from ops."
        how = run.activity.framework.words.mark_ranges
        if how:
            return f"The program named no range: {how}"
        return "The program named no range."


def payload(run: Run) -> Ranges | None:
    """The largest rows of each group of ranges, one group behind the other; None without ranges."""
    frame = run.ranges
    if not len(frame):
        return None
    step_ms = wording.real(run.first_answer.get("step_time_ms")) or 0.0
    threads = frame["thread"].to_numpy(object)
    time, depth = _longest_times(frame), frame["depth"].to_numpy(np.int64)
    selected: list[int] = []
    groups: list[RangeGroup] = []
    for thread, title in _TITLES.items():
        of_thread = np.flatnonzero(threads == thread)
        largest = of_thread[_largest(time[of_thread], depth[of_thread], step_ms)]
        if len(largest):
            groups.append(RangeGroup(title=title, row=len(selected)))
            selected += largest.tolist()
    if not selected:
        return None
    rows = frame.take(selected)
    return Ranges(
        step_ms=step_ms,
        groups=groups,
        table=_table(rows),
        notes=_notes(run, len(frame) - len(rows)),
    )


_TIMES = (
    "host_ms_per_step",
    "device_ms_per_step",
    "backward_host_ms_per_step",
    "backward_device_ms_per_step",
)


def _longest_times(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    """The longest time of each range, on any side and in any pass; 0 if none is known."""
    times = [floats(frame[key]) for key in _TIMES]
    longest: npt.NDArray[np.float64] = np.fmax.reduce([*times, np.zeros(len(frame))])
    return longest


def _largest(
    time: npt.NDArray[np.float64], depth: npt.NDArray[np.int64], step_ms: float
) -> list[int]:
    """Positions of the rows with the most time, with those around them."""
    above = _above(depth)
    selected: set[int] = set()
    for row in np.argsort(-time, kind="stable").tolist():
        if depth[row] >= _DEEPEST or time[row] < step_ms * _LEAST_PERCENT / 100:
            continue
        chain = {row}
        while above[row] >= 0:
            row = int(above[row])
            chain.add(row)
        if len(selected | chain) > MOST_ROWS:
            break
        selected |= chain
    return sorted(selected)


def _above(depth: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The row around each row of a tree in preorder, -1."""
    result = np.full(len(depth), -1, np.int64)
    last: dict[int, int] = {}
    for row, level in enumerate(depth.tolist()):
        result[row] = last.get(level - 1, -1)
        last[level] = row
    return result


def _table(rows: pd.DataFrame) -> Table:
    """Name, times per step, host, share, device and backward pass where known, and the op with the
    most time.
    """
    on_device = rows["device_ms_per_step"].notna().any()
    backward = "backward_device_ms_per_step" if on_device else "backward_host_ms_per_step"
    top = _top(rows)
    keys = [
        "name",
        "calls_per_step",
        "host_ms_per_step",
        "percent",
        "wait_ms_per_step",
        "device_ms_per_step",
        backward,
    ]
    # A column of zeros alone says nothing in a small table.
    used = [key for key in keys if key == "name" or (floats(rows[key]) > 0).any()]
    columns = [frames.column("ranges.frame", key) for key in used]
    label = frames.column("ranges.frame", "top_host_op")
    columns.append(
        label._replace(
            name="top",
            label="Mostly",
            help="Op with the most time in it, on the host or on devices.",
        )
    )
    return table_of(rows.assign(top=top), columns).with_columns(
        {"_depth": rows["depth"].to_numpy(np.float32)}
    )


def _top(rows: pd.DataFrame) -> list[str]:
    """`aten::mm 12.3 ms`: the op with the most time in each range, on the host or on devices."""
    host, device = _op_times(rows, "host"), _op_times(rows, "device")
    result = []
    for host_op, device_op in zip(host, device, strict=True):
        op, time = max(host_op, device_op, key=lambda pair: pair[1])
        result.append(f"{op} {wording.millis(time)}" if op and time else "")
    return result


def _op_times(rows: pd.DataFrame, side: str) -> list[tuple[str, float]]:
    """By range, the op of a side with the most time, and that time; 0 if unknown."""
    times = np.nan_to_num(floats(rows[f"top_{side}_op_ms_per_step"])).tolist()
    return list(zip(rows[f"top_{side}_op"].tolist(), times, strict=True))


def _notes(run: Run, hidden: int) -> list[str]:
    unit = unit_of(run)
    notes = []
    outside = run.outside_ranges["device_ms_per_step"]
    if not np.isnan(outside) and outside >= 0.005:
        notes.append(
            f"{wording.millis(outside)} {unit.per} of device time was launched outside of these"
            " ranges."
        )
    if hidden:
        notes.append(
            f"{wording.plural(hidden, 'smaller range')} {'is' if hidden == 1 else 'are'} in"
            " p.ranges.frame."
        )
    return notes
