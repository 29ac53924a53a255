"""Times at which the running line of a notebook's cells changed, stored next to the trace."""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbprof.core.trace import Int32s, Int64s

MOST = 200_000
"""Changes of the line that a recording stores at most: some hundred kB."""
_ROW = 12


@dataclass
class LineTimes:
    """The line of a cell that the thread of the recorded cell was in, from one change to the next.

    Attributes
    ----------
    source : dict
        The text of each cell, by the stem of its file.
    lines : list of (str, int)
        The cell, by its stem, and the number of the line in it.
    times : int64[n]
        Times of the changes, in ns since 1970; the last is the end of the recording.
    line : int32[n]
        The number of the line among `lines`, from 1: reached anew if positive, returned to from a
        function of a cell if negative. From 0 on no line of a cell runs.
    truncated : bool
        True if there were more changes than are stored.
    """

    source: dict[str, str]
    lines: list[tuple[str, int]]
    times: Int64s
    line: Int32s
    truncated: bool = False

    def running(self, time_ns: Int64s) -> Int64s:
        """Position in `lines` of the line that ran at some moments, in ns since 1970; -1 where none
        of a cell did.
        """
        change = np.searchsorted(self.times, time_ns, side="right") - 1
        # The last change is the end of the recording.
        during = (change >= 0) & (change < len(self.times) - 1)
        return np.where(during, np.abs(self.line.astype(np.int64))[change] - 1, -1)

    def packed(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        rows = (
            np.diff(self.times, prepend=0).astype("<i8").tobytes()
            + self.line.astype("<i4").tobytes()
        )
        return {
            "source": self.source,
            "lines": [list(line) for line in self.lines],
            "changes": base64.b64encode(zlib.compress(rows)).decode("ascii"),
            "cut": self.truncated,
        }

    @classmethod
    def unpacked(cls, values: object) -> LineTimes | None:
        """The object that `packed` described; None for anything else."""
        if not isinstance(values, dict):
            return None
        source, lines, changes = (values.get(key) for key in ("source", "lines", "changes"))
        if not (isinstance(source, dict) and isinstance(lines, list) and isinstance(changes, str)):
            return None
        if not all(isinstance(text, str) for text in source.values()) or not all(
            map(_is_line, lines)
        ):
            return None
        try:
            unzip = zlib.decompressobj()
            rows = unzip.decompress(base64.b64decode(changes, validate=True), (MOST + 1) * _ROW)
        except (zlib.error, binascii.Error, ValueError):
            return None
        count = len(rows) // _ROW
        if len(rows) != count * _ROW or not unzip.eof:
            return None
        time = np.cumsum(np.frombuffer(rows, "<i8", count)).astype(np.int64)
        line = np.frombuffer(rows, "<i4", count, 8 * count).astype(np.int32)
        if len({tuple(cell_line) for cell_line in lines}) < len(lines):
            return None
        if (
            not count
            or (np.diff(time) < 0).any()
            or np.abs(line.astype(np.int64)).max() > len(lines)
        ):
            return None
        return cls(
            source,
            [(str(cell), number) for cell, number in lines],
            time,
            line,
            values.get("cut") is True,
        )


def _is_line(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], int)
    )
