"""The derived lanes of devices in a Kineto trace: steps, modules and ops of the work launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nbprof.core.factorize import lookup
from nbprof.core.intervals import extents, one_at_a_time
from nbprof.core.trace import Events, Int64s, Trace
from nbprof.timeline.derived import SCOPES as SCOPES
from nbprof.timeline.derived import (
    STEPS,
    TORCH_MODULES,
    TORCH_OPS,
    DerivedLines,
    Line,
    runs,
    stream_title,
)
from nbprof.timeline.lanes import heading, step_names

if TYPE_CHECKING:
    from nbprof.timeline.drawable import Drawable

_MODULE = "nn.Module: "
_MOST_LEVELS = 64


def add(run: Drawable, derived: DerivedLines, hosts: int) -> None:
    """Adds the lanes of all devices with work."""
    table = run.activity.device_ops.frame()
    if not len(table):
        return
    lanes = run.trace.lanes
    # Lanes of a device: those of one host that have its number.
    keys = {}
    for lane in lanes[lanes["kind"] == "device"].to_dict("records"):
        title = heading(str(lane["host"]), str(lane["process"]), hosts)
        keys[lane["host"], lane["device"]] = title
    event = table["event"].to_numpy(np.int64)
    launch, op = _launched(run, event)
    lines: set[str] = set()
    work = _Work(run, event, launch, op)
    of_host, of_device = table["host"].to_numpy(), table["device"].to_numpy()
    for (name, number), title in keys.items():
        rows = np.flatnonzero((of_host == run.hosts.index(name)) & (of_device == number))
        if len(rows):
            before = len(derived.lines)
            device_rows = _Device(title, name, str(number), rows)
            derived.add(_steps(run, derived, work, device_rows))
            for line in work.streams(derived, device_rows):
                derived.add(line)
            lines |= {line.title.partition(" · ")[0] for line in derived.lines[before:]}
    if lines:
        order = [line for line in (STEPS, TORCH_MODULES, TORCH_OPS) if line in lines]
        missing = ", ".join(order).lower()
        derived.notes.append(
            "Derived from what the program launched on each device, at the time it ran there:"
            f" {missing}."
        )


def _launched(run: Drawable, event: Int64s) -> tuple[Int64s, Int64s]:
    """The call that launched each piece of device work, and the op that it comes of; -1 where they
    are not known.
    """
    table = run.activity.launches.frame()
    target = table["target"].to_numpy(np.int64)
    rows_with_target = np.flatnonzero(target >= 0)
    order = rows_with_target[np.argsort(target[rows_with_target], kind="stable")]
    columns = ("event", "came_of" if "came_of" in table else "op")
    launch, op = (
        lookup(target[order], table[column].to_numpy(np.int64)[order], event) for column in columns
    )
    return launch, op


def _steps(run: Drawable, derived: DerivedLines, work: _Work, device: _Device) -> Line:
    """The steps of a device: from the first to the last work launched in each, without overlaps."""
    rows = device.rows
    markers, names = run.activity.markers.frame(), step_names(run)
    number, events = run.hosts.index(device.host), run.trace.events
    host_markers = markers[(markers["host"] == number) & (markers["device"] < 0)].sort_values(
        "start", kind="stable"
    )
    mark = host_markers["event"].to_numpy(np.int64)
    begins, high = _step_windows(
        run, mark, host_markers["start"].to_numpy(np.int64), host_markers["end"].to_numpy(np.int64)
    )
    launched = np.where(
        work.launch[rows] >= 0, events.start[work.launch[rows]], events.start[work.event[rows]]
    )
    index = np.searchsorted(begins, launched, side="right") - 1
    is_within = (index >= 0) & (launched < np.append(high, 0)[index])
    rows, index = rows[is_within], index[is_within]
    first, last = extents(index, len(begins), work.start[rows], work.end[rows])
    seen = np.flatnonzero(last > first)
    first, last = one_at_a_time(first[seen], last[seen])
    nonempty = last > first
    groups = host_markers["group"].to_numpy()[seen][nonempty]
    labels = [names.get((number, group), str(group)) for group in groups.tolist()]
    codes = np.array(list(map(derived.code, labels)), np.int64)
    return Line(
        device.process,
        STEPS,
        "",
        "steps",
        device.host,
        device.number,
        codes,
        first[nonempty],
        last[nonempty],
    )


def _step_windows(run: Drawable, mark: Int64s, low: Int64s, high: Int64s) -> tuple[Int64s, Int64s]:
    """Begin and end of each step in the program by its marks.

    `low` and `high` are those of the table, in which a step lasts until its device work ends.
    """
    events, names = run.trace.events, run.trace.names
    begins, ends = events.start[mark].copy(), events.end[mark].copy()
    if not len(mark):
        return begins, ends
    name = str(names[events.name[mark[0]]])
    if name.startswith("Optimizer.step#"):
        # An optimizer's step ends the step of the program.
        begins[1:] = ends[:-1]
        begins[0] = low[0]
    elif name.startswith("enumerate("):
        ends[:-1] = begins[1:]
        ends[-1] = high[-1]
    return begins, ends


@dataclass(frozen=True)
class _Device:
    """Heading, host and number of a device, and the rows of its work in `_Work`."""

    process: str
    host: str
    number: str
    rows: Int64s


class _Work:
    """Device events, their launches and the ops of these, int64[w] in the order of events."""

    def __init__(self, run: Drawable, event: Int64s, launch: Int64s, op: Int64s) -> None:
        self.trace = trace = run.trace
        self.event, self.launch, self.op = event, launch, op
        self.start: Int64s = trace.events.start[event]
        self.end: Int64s = self.start + trace.events.duration[event]
        is_module = (name.startswith(_MODULE) for name in map(str, trace.names))
        named = np.fromiter(is_module, np.bool_, len(trace.names))
        # Some versions write the mark of a step as an op, which the lane of steps has. The mark of
        # an optimizer is work, too.
        ops = _kind_of_ops(trace)
        mark = run.activity.markers.event
        mark_names = trace.names[trace.events.name[mark]].tolist()
        of_optimizer = [name.startswith("Optimizer.step#") for name in map(str, mark_names)]
        ops[mark[~np.array(of_optimizer, np.bool_)]] = False
        self.ops, self.op_at = _around(trace.events, op, ops, op >= 0)
        # Without an op, the call itself may be in a module.
        caller = np.where(op >= 0, op, launch)
        self.modules: list[Int64s] = []
        self.module_at = np.full(len(op), -1, np.int64)
        if named.any():
            self.modules, self.module_at = _around(
                trace.events, caller, named[trace.events.name], caller >= 0
            )

    def streams(self, derived: DerivedLines, device: _Device) -> list[Line]:
        """Modules and ops of each stream of a device, the busiest first."""
        rows = device.rows
        lane = self.trace.events.lane[self.event[rows]]
        lanes, counts = np.unique(lane, return_counts=True)
        threads = self.trace.lanes["thread"].tolist()
        result = []
        for rank, lane_code in enumerate(lanes[np.argsort(-counts, kind="stable")].tolist()):
            lane_rows = rows[lane == lane_code]
            for title, levels, index in (
                (TORCH_MODULES, self.modules, self.module_at),
                (TORCH_OPS, self.ops, self.op_at),
            ):
                located = lane_rows[index[lane_rows] >= 0]
                codes, first, last, _ = runs(
                    [level[index[located]] for level in levels],
                    self.start[located],
                    self.end[located],
                    np.zeros(len(located), np.int64),
                )
                names = self._names(derived, codes)
                name, note = stream_title(title, str(threads[lane_code]), rank, len(lanes))
                line = Line(
                    device.process,
                    name,
                    note,
                    "device",
                    device.host,
                    device.number,
                    names,
                    first,
                    last,
                    folded=rank > 0,
                )
                result.append(line)
        return result

    def _names(self, derived: DerivedLines, events: Int64s) -> Int64s:
        """Name codes of events of the host, as the device's lanes call them."""
        codes = self.trace.events.name[events]
        table = np.zeros(len(self.trace.names), np.int64)
        for code in np.unique(codes).tolist():
            full = str(self.trace.names[code])
            table[code] = derived.code(full.removeprefix(_MODULE), full)
        return table[codes]


def _kind_of_ops(trace: Trace) -> npt.NDArray[np.bool_]:
    """bool[events]: framework ops, by the category in the file."""
    is_op = np.zeros(len(trace.events), np.bool_)
    column = trace.args.get("cat")
    if column is None:
        # Events that were made of tables have no category.
        return is_op
    op_codes = []
    for code in np.unique(column.values).tolist():
        if trace.strings[code].lower() in ("cpu_op", "operator"):
            op_codes.append(code)
    is_op[column.event[np.isin(column.values, op_codes)]] = True
    return is_op


def _around(
    events: Events, inner: Int64s, kind: npt.NDArray[np.bool_], is_known: npt.NDArray[np.bool_]
) -> tuple[list[Int64s], Int64s]:
    """The events of a kind around some events, these included, as levels for `runs`.

    Returns
    -------
    levels : list of int64[u]
        By level, outermost first, an event for each different innermost one; -1 below it.
    position : int64[n]
        Index of each event into the levels; -1 for events outside of the kind.
    """
    nearest = np.full(len(inner), -1, np.int64)
    distinct, inverse = np.unique(inner[is_known], return_inverse=True)
    innermost_each = _nearest(events, distinct, kind)
    innermost, position = np.unique(innermost_each, return_inverse=True)
    if len(innermost) and innermost[0] < 0:
        innermost, position = innermost[1:], position - 1
    nearest[is_known] = position.reshape(-1)[inverse.reshape(-1)] if len(distinct) else -1
    chain: list[Int64s] = []
    now = innermost
    while (now >= 0).any() and len(chain) < _MOST_LEVELS:
        chain.append(now)
        above = np.where(now >= 0, events.parent[now], -1)
        now = _nearest(events, above, kind)
    if not chain:
        return [], nearest
    stack = np.stack(chain)
    depth = (stack >= 0).sum(axis=0)
    levels = []
    for level in range(len(chain)):
        # Innermost last: the event on a level is that many below the outermost one.
        row = depth - 1 - level
        levels.append(np.where(row >= 0, stack[np.maximum(row, 0), np.arange(len(depth))], -1))
    return levels, nearest


def _nearest(events: Events, start: Int64s, kind: npt.NDArray[np.bool_]) -> Int64s:
    """The first event of a kind from each one (itself included) outwards, -1."""
    result = start.astype(np.int64)
    open_ = np.flatnonzero(result >= 0)
    open_ = open_[~kind[result[open_]]]
    while len(open_):
        result[open_] = events.parent[result[open_]]
        open_ = open_[result[open_] >= 0]
        open_ = open_[~kind[result[open_]]]
    return result
