"""Reads spans in CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

import numpy as np

from nbprof.core.errors import ReadError
from nbprof.core.files import SourceFile
from nbprof.core.receipt import Receipt
from nbprof.core.trace import Trace
from nbprof.formats.build import Builder


def read(
    files: Sequence[SourceFile],
    progress: Callable[[str], None] | None = None,
    limit_bytes: int = 0,
) -> Trace:
    """The trace of one run.

    Raises
    ------
    ReadError
        A time is not a number.
    """
    del progress, limit_bytes
    builder = Builder(Receipt())
    for file in files:
        with file.open() as stream:
            rows = list(csv.DictReader(io.TextIOWrapper(stream, "utf-8")))
        for line, row in enumerate(rows, start=2):
            try:
                times = [round(float(row[key]) * 1000) for key in ("start_us", "duration_us")]
            except ValueError as error:
                raise ReadError(f"line {line}: {error}", path=file.label) from None
            lane = builder.lane(file.name, "spans", row["thread"], tid=row["thread"])
            start, duration = (np.array([time], np.int64) for time in times)
            builder.add(lane, builder.texts[row["name"]], start, duration)
    return builder.trace()
