"""`p.trace`: every event on its lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.errors import NbprofError
from nbprof.faces.view import View
from nbprof.trace import BYTES, DOUBLE, TEXT, UINT, Trace

if TYPE_CHECKING:
    pass


class TraceView(View):
    """Every event on its lane."""

    @property
    def lanes(self) -> pd.DataFrame:
        """One row a lane."""
        lanes = self._profile.run.trace.lanes
        return lanes[["lane", "host", "process", "thread", "kind", "device", "events"]].copy()

    def events(
        self,
        lane: int | str | None = None,
        name: str | None = None,
        between: tuple[float, float] | None = None,
        args: tuple[str, ...] = (),
    ) -> pd.DataFrame:
        """Events as a frame, in time order on each lane.

        Parameters
        ----------
        lane : int or str, optional
            Number of a lane, or a text that its thread's name holds.
        name : str, optional
            A text that the event's name holds.
        between : (float, float), optional
            Only events that touch this range, in ms.
        args : tuple of str
            Args to add as columns; NA where an event has no such arg.
        """
        trace = self._profile.run.trace
        events = trace.events
        keep = np.ones(len(events), np.bool_)
        if isinstance(lane, str):
            keep &= trace.lanes["thread"].str.contains(lane, regex=False).to_numpy()[events.lane]
        elif lane is not None:
            keep &= events.lane == lane
        if name is not None:
            keep &= np.array([name in n for n in trace.names], np.bool_)[events.name]
        if between is not None:
            keep &= (events.end >= between[0] * 1e9) & (events.start <= between[1] * 1e9)
        rows = np.flatnonzero(keep)
        where = trace.lanes.iloc[events.lane[rows]]
        out = pd.DataFrame(
            {
                "host": where["host"].to_numpy(),
                "process": where["process"].to_numpy(),
                "lane": where["thread"].to_numpy(),
                "name": trace.names[events.name[rows]],
                "start_us": events.start[rows] / 1e6,
                "duration_us": events.duration[rows] / 1e6,
                "depth": events.depth[rows],
                "self_us": events.self_time[rows] / 1e6,
            }
        )
        for arg in args:
            out[arg] = pd.Series(_arg(trace, arg, rows), dtype=object)
        return out


def _arg(trace: Trace, name: str, rows: Any) -> list[object]:
    column = trace.args.get(name)
    if column is None:
        raise NbprofError(f"no event of this profile has an arg {name!r}; there are {', '.join(sorted(trace.args)[:20])}")
    found = np.searchsorted(column.event, rows)
    found[found == len(column)] = 0
    has = column.event[found] == rows if len(column) else np.zeros(len(rows), np.bool_)
    kinds, values, floats = column.kinds, column.values, column.floats()
    out: list[object] = []
    for i, known in zip(found.tolist(), has.tolist(), strict=True):
        if not known:
            out.append(None)
        elif kinds[i] == TEXT:
            out.append(trace.strings[values[i]])
        elif kinds[i] == BYTES:
            out.append(trace.blobs[values[i]] if len(trace.blobs) else None)
        else:
            out.append(float(floats[i]) if kinds[i] == DOUBLE else int(values[i].view(np.uint64)) if kinds[i] == UINT else int(values[i]))
    return out
