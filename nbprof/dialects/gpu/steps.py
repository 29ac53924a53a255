"""The steps of a recording: begin and end on the host, and with their device work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nbprof.activity import activity as act
from nbprof.activity.tables import Markers, Work
from nbprof.core.intervals import Intervals
from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s
from nbprof.dialects.gpu.engines import Iteration
from nbprof.dialects.iterations import Placed


@dataclass
class Steps:
    """Steps of all hosts; `group` numbers them within a host, in time order.

    `host`, `group`, `event` (the marker), `start` and `end` (int64 ps) are arrays; `names` has a
    name per step. `begun` and `done` are begin and end on the host, which runs ahead of the device.
    Steps in `truncated` are incomplete (or startup), and the recorder lost device work of those in
    `lost`. `iterations` are those of an inference engine, by host and group.
    """

    host: Int64s
    group: Int64s
    event: Int64s
    start: Int64s
    end: Int64s
    begun: Int64s
    done: Int64s
    names: list[str]
    truncated: set[tuple[int, int]] = field(default_factory=set)
    lost: set[tuple[int, int]] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    iterations: dict[tuple[int, int], Iteration] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Sequence[Steps]) -> Steps:
        """The steps of several hosts."""
        none = np.zeros(0, np.int64)
        keys = ("host", "group", "event", "start", "end", "begun", "done")
        columns: dict[str, Any] = {}
        for key in keys:
            columns[key] = np.concatenate([none, *(getattr(part, key) for part in parts)])
        steps = cls(**columns, names=[])
        for part in parts:
            steps.names += part.names
            steps.truncated |= part.truncated
            steps.lost |= part.lost
            steps.notes += part.notes
            steps.iterations |= part.iterations
        return steps

    @property
    def keys(self) -> list[tuple[int, int]]:
        """Host and group of each step."""
        return list(zip(self.host.tolist(), self.group.tolist(), strict=True))

    def group_at(self, host: npt.NDArray[np.integer], time: Int64s) -> Int64s:
        """The step in which a host was at each moment, -1 for none."""
        group = np.full(len(time), -1, np.int64)
        for host_index in np.unique(self.host).tolist():
            host_steps = np.flatnonzero(self.host == host_index)
            step = np.searchsorted(self.begun[host_steps], time, side="right") - 1
            within = (host == host_index) & (step >= 0) & (time < self.done[host_steps][step])
            group[within] = self.group[host_steps][step[within]]
        return group


def markers(
    steps: Steps,
) -> tuple[Markers, dict[tuple[int, int], str], set[tuple[int, int]], set[tuple[int, int]]]:
    """`markers`, `group_names`, `cut` and `lost` of the activity."""
    frame = Markers(
        event=steps.event,
        host=steps.host,
        group=steps.group,
        device=np.full(len(steps.host), -1),
        start=steps.start,
        end=steps.end,
    )
    names = dict(zip(steps.keys, steps.names, strict=True))
    return frame, names, steps.truncated, steps.lost


class StepPieces(NamedTuple):
    """Pieces of spans: the span of each, its step in its host, start and end (ps)."""

    span: Int64s
    group: Int64s
    start: Int64s
    end: Int64s


def spread(steps: Steps, host: npt.NDArray[np.integer], start: Int64s, end: Int64s) -> StepPieces:
    """Spans split at the borders of steps, without those outside."""
    nothing = np.zeros(0, np.int64)
    parts = [StepPieces(nothing, nothing, nothing, nothing)]
    for host_index in np.unique(steps.host).tolist():
        host_steps = np.flatnonzero(steps.host == host_index)
        of_host = Intervals(steps.start[host_steps], steps.end[host_steps])
        rows = np.flatnonzero(host == host_index)
        span, step = of_host.overlapping(start[rows], end[rows])
        span = rows[span]
        parts.append(
            StepPieces(
                span,
                steps.group[host_steps][step],
                np.maximum(start[span], of_host.start[step]),
                np.minimum(end[span], of_host.end[step]),
            )
        )
    return StepPieces(*map(np.concatenate, zip(*parts, strict=True)))


def spread_all(
    steps: Steps, host: npt.NDArray[np.integer], start: Int64s, end: Int64s
) -> StepPieces:
    """Spans split at the borders of steps; those outside are complete, in group -1."""
    within = spread(steps, host, start, end)
    outside = np.ones(len(start), np.bool_)
    outside[within.span] = False
    rows = np.flatnonzero(outside)
    rest = StepPieces(rows, np.full(len(rows), -1), start[rows], end[rows])
    return StepPieces(*map(np.concatenate, zip(within, rest, strict=True)))


def waits(steps: Steps, iterations: Placed) -> Work:
    """Rows of the `work` table: the time that iterations wait for their items."""
    return Work(
        event=steps.event,
        host=steps.host,
        group=steps.group,
        device=np.full(len(steps.host), -1),
        start=iterations.start,
        end=iterations.item,
        cls=np.full(len(steps.host), act.HOST_WAIT_INPUT),
    )
