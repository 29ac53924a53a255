"""`p.lines`: time by line of the notebook's cells, and the part of the Overview that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from nbprof.analysis.lines import PARTS
from nbprof.display import wording
from nbprof.frameworks.register import RECORDED
from nbprof.schema import frames
from nbprof.tools.accessor import Framed, Shown
from nbprof.tools.overview.parts import Code, CodeCell
from nbprof.tools.parts import Table
from nbprof.tools.tables import floats, table_of

if TYPE_CHECKING:
    from nbprof.analysis.lines import Lines
    from nbprof.run.run import Run

MOST_LINES = 400
"""Lines of one cell that a dashboard shows."""
MOST_CELLS = 6
_AROUND = 2
_WHOLE = {
    "host_us": "host time of the recording",
    "device_us": "device time",
    "program_us": "time of compiled programs",
}
_SAMPLED = (
    "Host time is estimated from samples of the Python stack; %%nbprof --stacks measures it, counts"
    " how often each line ran and adds device time."
)
_REMEDY = (
    "%%nbprof --stacks records which line of a cell runs when, for TensorFlow, JAX and PyTorch"
    " alike."
)


class LineView(Framed):
    """Time by line of the notebook's cells, for TensorFlow, JAX and PyTorch alike; exact with
    ``--stacks`` or ``--python``.

    Without these `host_us` is an estimate from sampled Python stacks (`p.python`), and calls and
    device time are not known.

    `frame` has one row per line that ran or that a program was compiled from, the recorded cell
    first:

    - `host_us`: time while the line ran on the thread of the cell, including everything it called.
      A call of a function of a cell counts for the lines of that function, so each moment counts
      once.
    - `device_us`: time of the kernels, copies and fills that were launched while the line ran, by
      this thread or another, such as that of autograd. A framework that launches asynchronously
      launches in a later line.
    - `program_us`: self time of the ops of compiled XLA programs by the line that they were traced
      from: a line of a jitted function, not that of its call. It needs no stacks.

    In other recordings of PyTorch with stacks the row is that of a function, and its line the one
    in the stack: since PyTorch 1.11 the first one of the function. Then `host_us` is the time in
    the function and in library code that it called, `device_us` what their ops launched, also by
    the backward pass. Rows are of your own code: cells, and files outside of packages.

    Time that belongs to no line is `unattributed`, and in no row.
    """

    def __init__(self, profile: Shown) -> None:
        super().__init__(profile, "overview", "lines.frame")
        self._name = "lines"

    @property
    def unattributed(self) -> dict[str, float]:
        """Time of the whole in µs that belongs to no line, by column of the frame; NaN where the
        whole is not known.
        """
        return dict(self._profile.run.lines.unattributed)

    def _nothing(self) -> str:
        return f"This profile does not have lines of cells. {_REMEDY}"


def payload(run: Run) -> Code | None:
    """The cells with the time of each line, the recorded one first; None where no cell has any."""
    if run.capture is None or not (run.capture.lines or run.capture.python):
        # Nothing has the text of a cell.
        hint = offer(run)
        return Code(cells=[], notes=[hint]) if hint else None
    lines = run.lines
    recorded = [key for key in ("calls", *PARTS) if lines.frame[key].notna().any()]
    cells = []
    for index, (title, text) in enumerate(lines.source.items()):
        rows = lines.frame[lines.frame["file"] == title]
        if len(rows):
            code = text.splitlines()
            # The recorded cell is first.
            span = (1, len(code)) if index == 0 else _timed_span(rows, len(code))
            table = _table(rows, code, span, ["line", "code", *recorded], sampled=lines.sampled)
            cells.append(CodeCell(title=title, table=table))
    return Code(cells=cells[:MOST_CELLS], notes=_notes(lines)) if cells else None


def offer(run: Run) -> str:
    """A hint at --stacks if Python code bounds the step and no lines were recorded; else ""."""
    capture = run.capture
    # Only recordings by nbprof in this process have lines, and samples of the Python stack name
    # them already.
    if capture is None or not _has_lines(capture.backend):
        return ""
    if capture.options.get("stacks") is not False or capture.options.get("python"):
        return ""
    if capture.lines or capture.python:
        return ""
    purpose = _BOUND_BY.get(str(run.first_answer.get("bound")))
    if purpose is None:
        return ""
    recorded = [row["rank"] for row in capture.ranks if row["recorded"]]
    if recorded and capture.options.get("sampling"):
        first = min(recorded)
        return (
            f"Python was sampled in each process: p.rank({first}) shows the lines of rank {first}."
        )
    remedy = "record with nbprof.profile(stacks=True)"
    if capture.notebook:
        remedy = "profile the cell with %%nbprof --stacks"
    return f"Which lines of Python {purpose} was not recorded. To see them, {remedy}."


_BOUND_BY = {"input": "prepare the input", "other": "take the time outside ops"}
"""What lines of Python do in the time of a category."""


def _timed_span(rows: pd.DataFrame, count: int) -> tuple[int, int]:
    """From the first to the last line with a time, and a few around them."""
    numbers = rows["line"].to_numpy(np.int64)
    return max(int(numbers.min()) - _AROUND, 1), min(int(numbers.max()) + _AROUND, count)


def _has_lines(backend: str) -> bool:
    """True if nbprof records lines together with this backend."""
    framework = RECORDED.get(backend)
    return framework is not None and framework.profiled


def _table(
    rows: pd.DataFrame, code: list[str], span: tuple[int, int], keys: list[str], *, sampled: bool
) -> Table:
    """The lines of a span of a cell; times in ms."""
    first, last = span[0], min(span[1], span[0] + MOST_LINES - 1)
    frame = rows.set_index("line").reindex(np.arange(first, last + 1))
    frame = frame.assign(line=frame.index, code=[code[number - 1] for number in frame.index])
    columns = []
    for key in keys:
        column = frames.column("lines.frame", key)
        if key in PARTS:
            label = column.label.replace("µs", "ms")
            if sampled and key == "host_us":
                label = f"{label}, sampled"
            name = key.replace("_us", "_ms")
            column = column._replace(name=name, unit="ms", label=label, digits=2)
            frame[name] = floats(frame[key]) / 1e3
        columns.append(column)
    return table_of(frame, columns)


def _notes(lines: Lines) -> list[str]:
    """Sentences on time that is not attributed to any line."""
    notes = []
    for key, value in lines.unattributed.items():
        total = value + float(np.nansum(floats(lines.frame[key])))
        if value > 0:
            share = wording.percent(100 * value / total)
            notes.append(
                f"{wording.millis(value / 1e3)} ({share}) of the {_WHOLE[key]} is not attributed to"
                " any line."
            )
    if lines.sampled:
        notes.append(_SAMPLED)
    if lines.truncated:
        notes.append(
            "Lines were timed for part of the recording only (200,000 line changes, or until a"
            " debugger started): the rest belongs to no line."
        )
    return notes
