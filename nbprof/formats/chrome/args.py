"""Arg columns of a Chrome trace, which take their place among the events only when they are asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import numpy as np

from nbprof.core.trace import INT, TEXT, ArgColumn, Int32s
from nbprof.formats.chrome.part import Rows


class LazyArgs(Mapping[str, ArgColumn]):
    """Arg columns that are put in the order of the events when they are first asked for."""

    def __init__(self, rows: dict[str, list[tuple[Rows, Int32s]]], events: int) -> None:
        self._rows = rows
        self._events = events
        self._done: dict[str, ArgColumn] = {}
        # A thread that writes to the cache asks for columns too.
        self._lock = threading.Lock()

    def __getitem__(self, key: str) -> ArgColumn:
        """The column of one arg."""
        with self._lock:
            column = self._done.get(key)
            if column is None:
                column = self._done[key] = self._column(self._rows[key])
                del self._rows[key][:]
            return column

    def __iter__(self) -> Iterator[str]:
        """Names of the args."""
        return iter(self._rows)

    def __len__(self) -> int:
        """How many args there are."""
        return len(self._rows)

    def _column(self, groups: list[tuple[Rows, Int32s]]) -> ArgColumn:
        event = np.concatenate([place[rows.event] for rows, place in groups])
        kind = np.concatenate([rows.kind for rows, _ in groups])
        value = np.concatenate([rows.value for rows, _ in groups])
        # The last one that names an event wins: an end's args go over those of its begin, args over fields.
        last = np.full(self._events + 1, -1, np.int64)
        last[event] = np.arange(len(event))
        order = last[:-1][last[:-1] >= 0]
        kind, value = kind[order], value[order]
        same = len(kind) > 0 and bool((kind == kind[0]).all())
        if same and kind[0] in (INT, TEXT) and value.min() >= -(1 << 31) and value.max() < 1 << 31:
            value = value.astype(np.int32)
        return ArgColumn(event[order], int(kind[0]) if same else kind, value)
