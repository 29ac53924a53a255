"""Splits lanes into several: the events of each side of a lane get a separate lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.trace import ArgColumn, Events, Int32s, Int64s, Trace

_SIDES = 8


class Moved(Mapping[str, ArgColumn]):
    """The args of reordered events; a column is reordered when it is first asked for.

    Parameters
    ----------
    args : Mapping of str to ArgColumn
    place : int32[events]
        Where each event went.
    """

    def __init__(self, args: Mapping[str, ArgColumn], position: Int32s) -> None:
        self._args = args
        self._position = position
        self._moved: dict[str, ArgColumn] = {}

    def __getitem__(self, name: str) -> ArgColumn:
        if name not in self._moved:
            column = self._args[name]
            event = self._position[column.event]
            order = np.argsort(event, kind="stable")
            kind = column.kind if isinstance(column.kind, int) else column.kind[order]
            self._moved[name] = ArgColumn(event[order], kind, column.value[order])
        return self._moved[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._args)

    def __len__(self) -> int:
        return len(self._args)

    def __contains__(self, name: object) -> bool:
        return name in self._args


def split(trace: Trace, side: npt.NDArray[np.uint8], make: type[Events] = Events) -> Int64s | None:
    """Splits each lane by side; the first side stays, others follow.

    Returns the new order of events, None if it is unchanged.

    Adds to `trace.lanes`: `row` (the lane that it was a part of, which flows mean) and `side`.

    Parameters
    ----------
    side : uint8[events]
        Below 8.
    make : type of Events
    """
    events = trace.events
    key = events.lane.astype(np.int64) * _SIDES + side
    present = np.sort(pd.unique(key))
    # A row keeps its number for its first side; further sides come behind all rows, so that little
    # has to move.
    first = np.zeros(0, np.bool_)
    if len(present):
        first = np.append(True, present[1:] // _SIDES != present[:-1] // _SIDES)
    rows = len(trace.lanes)
    number = np.where(first, present // _SIDES, rows + np.cumsum(~first) - 1).astype(np.int32)
    lane = number[np.searchsorted(present, key)]
    lane_row = np.concatenate([np.arange(rows), present[~first] // _SIDES])
    lane_side = np.zeros(len(lane_row), np.uint8)
    lane_side[number] = present % _SIDES
    order: Int64s | None = None
    if (~first).any():
        order = np.argsort(lane, kind="stable")
        position = np.empty(len(order), np.int32)
        position[order] = np.arange(len(order), dtype=np.int32)
        trace.args = Moved(trace.args, position)
        trace.events = make(
            lane[order], events.name[order], events.start[order], events.duration[order]
        )
    else:
        trace.events = make(events.lane, events.name, events.start, events.duration)
    lanes = trace.lanes.iloc[lane_row].reset_index(drop=True)
    lanes["lane"] = np.arange(len(lanes))
    lanes["row"], lanes["side"] = lane_row, lane_side
    lanes["events"] = np.bincount(trace.events.lane, minlength=len(lanes))
    trace.lanes = lanes
    return order
