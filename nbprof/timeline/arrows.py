"""Links between the slices of a saved timeline: launches, arrows and the ops of device work.

These are the links of `Links`, for all selected events at once: each column of args is read once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.factorize import lookup, unique_rows
from nbprof.core.runs import expand, run_starts
from nbprof.core.trace import INT, UINT, ArgColumn, Int32s, Int64s
from nbprof.timeline.links import CORRELATED, FLOW_BITS, LAUNCHES, MOST, OF_FILE, FlowPoints, Links

KINDS = ("launch", "producer", "forward", "flow")
"""Kinds of arrows by code."""
MOST_ARROWS = 20_000
"""Arrows beyond these are only counted."""
_STACKS = frozenset({"Call stack", "source_stack", "source"})
_FRAME = re.compile(r"\$|.*\.py\(\d+\): ")
"""Names of Python frames as TensorFlow and PyTorch record them."""
_LINKED = frozenset({*CORRELATED, "_p", "_c", "flow", "Sequence number"})
_BLOCK = 1 << 19
_TABLE = (1 << 20) - 1


@dataclass
class Arrows:
    """Flow arrows between the selected events.

    Attributes
    ----------
    kind : uint8[n]
        Of each arrow, a code into `KINDS`.
    start, finish : int64[n]
        The selected events that it joins.
    left_out : int
        Arrows beyond `MOST_ARROWS`.
    work, call : int64[k]
        Device events whose launch is not selected, ascending, and that launch.
    op : list of str
        Framework ops of device events.
    op_of : int32[events selected]
        The op of each device event, -1 where none is known and for those of hosts.
    """

    kind: npt.NDArray[np.uint8]
    start: Int64s
    finish: Int64s
    left_out: int
    work: Int64s
    call: Int64s
    op: list[str]
    op_of: npt.NDArray[np.int32]


def arrows(links: Links, selected: Int64s, derived: Int64s) -> Arrows:
    """Arrows between the selected events.

    Parameters
    ----------
    links : Links
    selected : int64[k]
        Ids of events of the trace, ascending.
    derived : int64[d]
        Rows of derived events.
    """
    return _Selection(links, selected).build(derived)


def from_args(links: Links, selected: Int64s) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
    """Kind (a code into `KINDS`), begin and end of all arrows in args, launches excepted.

    Parameters
    ----------
    links : Links
    selected : int64[k]
        Ids, ascending.
    """
    return _Selection(links, selected).from_args()


def lacks(links: Links, *, complete: bool) -> list[str]:
    """Details of slices that a report does not save: "arguments", "stacks", and arrows to slices
    that are left out.

    Parameters
    ----------
    links : Links
    complete : bool
        Whether no slice is left out.
    """
    trace = links.trace
    arg_names = {*trace.args, *trace.name_args}
    missing = []
    if arg_names or links.tracks.args:
        missing.append("arguments")
    if not arg_names.isdisjoint(_STACKS) or any(map(_FRAME.match, map(str, trace.names))):
        missing.append("stacks")
    has_arrows = links.flows is not None or not arg_names.isdisjoint(_LINKED)
    has_arrows |= len(links.tracks.feeds[0]) > 0
    if has_arrows and not complete:
        missing.append("arrows to slices that it leaves out")
    return missing


class _Selection:
    """Selected events, and the columns of args cut down to them."""

    def __init__(self, links: Links, selected: Int64s) -> None:
        self._links, self._selected = links, selected
        self._events, self._args = links.events, links.trace.args
        self._hosts = max(len(links.run.hosts), 1) + 1
        self._device = links.on_device[self._events.lane[selected]]

    def build(self, derived: Int64s) -> Arrows:
        launch = self._launches()
        groups = [self._producers(), self._backward(), *self._of_file(launch), self._async()]
        groups.append(self._fed(derived))
        has = launch >= 0
        work, call = self._selected[has], launch[has]
        is_selected = self._has(call)
        groups.append((0, call[is_selected], work[is_selected]))
        kind, start, finish = _once(groups)
        op, op_of = self._ops(launch)
        return Arrows(
            kind=kind[:MOST_ARROWS],
            start=start[:MOST_ARROWS],
            finish=finish[:MOST_ARROWS],
            left_out=max(len(kind) - MOST_ARROWS, 0),
            work=work[~is_selected],
            call=call[~is_selected],
            op=op,
            op_of=op_of,
        )

    def from_args(self) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
        """Kind, begin and end of the arrows in args, without launches."""
        return _once([self._producers(), self._backward(), self._async()])

    # Columns of args.

    def _numbers(self, key: str, events: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """The number that each event has as an arg, and whether it has one."""
        column = self._args.get(key)
        if column is None or not len(column) or not len(events):
            return np.zeros(len(events), np.int64), np.zeros(len(events), np.bool_)
        index = np.minimum(
            np.searchsorted(column.event, events.astype(column.event.dtype)), len(column) - 1
        )
        has = (column.event[index] == events) & _is_number(column, index)
        return np.where(has, column.value[index].astype(np.int64), 0), has

    def _having(self, key: str, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Events that have one of some numbers as an arg, ascending, and the number of each."""
        column = self._args.get(key)
        if column is None or not len(numbers):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        rows = _rows(column, numbers, lambda values: values)
        return column.event[rows].astype(np.int64), column.value[rows].astype(np.int64)

    def _hosts_of(self, events: Int64s) -> Int64s:
        """The host of each event."""
        return self._links.host_of_lane[self._events.lane[events]] + 1

    def _group(self, number: Int64s, events: Int64s, valid: Int64s) -> Int64s:
        """One code for each number (out of `valid`, ascending) on each host."""
        return np.searchsorted(valid, number) * self._hosts + self._hosts_of(events)

    # Launches.

    def _launches(self) -> Int64s:
        """The call that launched each selected device event, -1 where none is known."""
        selected, events = self._selected, self._events
        call = np.full(len(selected), -1, np.int64)
        self._has_launch = np.zeros(len(selected), np.bool_)
        asked = np.zeros(len(selected), np.bool_)
        for key in CORRELATED:
            number, has = self._numbers(key, selected)
            rows = np.flatnonzero(has & (number > 0) & ~asked)
            asked[rows] = True
            numbers = np.unique(number[rows])
            events_having, value = self._having(key, numbers)
            if not len(events_having):
                continue
            group = self._group(value, events_having, numbers)
            row_groups = self._group(number[rows], selected[rows], numbers)
            sizes = np.bincount(group, minlength=int(row_groups.max()) + 1)
            self._has_launch[rows] = sizes[row_groups] > 1
            calls = ~self._links.on_device[events.lane[events_having]]
            group, events_having = group[calls], events_having[calls]
            # Of several with one id (the runtime and below it the driver) the last.
            order = np.lexsort((events_having, events.start[events_having], group))
            group, events_having = group[order], events_having[order]
            index = np.searchsorted(group, row_groups, side="right") - 1
            good = (index >= 0) & self._device[rows]
            good[good] = group[index[good]] == row_groups[good]
            call[rows[good]] = events_having[index[good]]
        return call

    # Other arrows: kind, begins and ends.

    def _producers(self) -> tuple[int, Int64s, Int64s]:
        selected, pid = self._selected, self._numbers("_pid", self._selected)
        sides = []
        for kind, ident in (("_pt", "_p"), ("_ct", "_c")):
            kind_codes, has_kind = self._numbers(kind, selected)
            number, has_number = self._numbers(ident, selected)
            rows = np.flatnonzero(has_kind & has_number)
            key = np.stack([self._hosts_of(selected[rows]), kind_codes[rows], number[rows]])
            sides.append((rows, key))
        (producer, producer_key), (consumer, consumer_key) = sides
        if not len(producer) or not len(consumer):
            return _none(1)
        keys = np.concatenate([producer_key, consumer_key], axis=1)
        codes = unique_rows(*(pd.factorize(key)[0].astype(np.int64) for key in keys))[1]
        left, right = codes[: len(producer)], codes[len(producer) :]
        # At most `MOST` consumers of a producer, and as many producers of a consumer.
        (a, b), (d, c) = _join(left, right), _join(right, left)
        a, b = producer[np.concatenate([a, c])], consumer[np.concatenate([b, d])]
        same = (a != b) & (~pid[1][a] | ~pid[1][b] | (pid[0][a] == pid[0][b]))
        return 1, selected[a[same]], selected[b[same]]

    def _backward(self) -> tuple[int, Int64s, Int64s]:
        """Forward and backward by sequence number, where the file has no arrows for them."""
        links, events = self._links, self._events
        if links.flows is not None and links.flows.has("fwdbwd"):
            return _none(2)
        number, has = self._numbers("Sequence number", self._selected)
        numbers = _repeated(number[has & (number >= 0)])
        events_having, value = self._having("Sequence number", numbers)
        group = self._group(value, events_having, numbers)
        order = np.lexsort((events_having, events.start[events_having], group))
        group, events_having = group[order], events_having[order]
        thread, _ = self._numbers("Fwd thread id", events_having)
        forward = thread == 0
        backward = ~forward & ~links.engine[events.name[events_having]]
        # The last of the forward ones, the first of the backward ones: see `Links`.
        groups, first = np.unique(group[backward], return_index=True)
        last = np.searchsorted(group[forward], groups, side="right") - 1
        good = last >= 0
        good[good] = group[forward][last[good]] == groups[good]
        start, finish = events_having[forward][last[good]], events_having[backward][first[good]]
        return self._both(2, start, finish)

    def _of_file(self, launch: Int64s) -> list[tuple[int, Int64s, Int64s]]:
        """Arrows of the file; fills `launch` where args have no launch."""
        points = self._links.flows
        if points is None:
            return []
        flows, names = points.flows, self._links.trace.strings
        codes = np.unique(flows.category)
        kinds = {code: names[code] if code >= 0 else "" for code in codes.tolist()}
        device = self._device
        # Arrows of launches add nothing if every selected device event has its launch in its args.
        selected = [
            code
            for code, name in kinds.items()
            if name not in LAUNCHES or not device.any() or not self._has_launch[device].all()
        ]
        start, finish, category = self._joined_points(points, codes, selected)
        kind_codes = [KINDS.index(OF_FILE.get(name, "flow")) for name in kinds.values()]
        kind = np.array(kind_codes, np.int64)[np.searchsorted(codes, category)]
        is_launch = np.isin(category, [code for code, text in kinds.items() if text in LAUNCHES])
        call_position, work_position = self._positions(start), self._positions(finish)
        has_both = self._has_launch[call_position] & self._has_launch[work_position]
        new = is_launch & ~has_both
        launched = np.flatnonzero(
            new
            & device[work_position]
            & ~self._has_launch[work_position]
            & ~self._links.on_device[self._events.lane[start]]
        )
        # The call that starts last is assigned last.
        launched = launched[np.lexsort((start[launched], self._events.start[start[launched]]))]
        launch[work_position[launched]] = start[launched]
        rest = new.copy()
        rest[launched[launch[work_position[launched]] == start[launched]]] = False
        result = [(0, start[rest], finish[rest])]
        for code in (1, 2, 3):
            of_kind = ~is_launch & (kind == code)
            if of_kind.any():
                result.append((code, start[of_kind], finish[of_kind]))
        return result

    def _joined_points(
        self, points: FlowPoints, codes: Int32s, selected: list[int]
    ) -> tuple[Int64s, Int64s, Int32s]:
        """Begin, end and category of arrows of the selected categories between selected slices."""
        flows = points.flows
        rows = np.arange(len(flows.phase))
        if len(selected) < len(codes):
            rows = np.flatnonzero(np.isin(flows.category, selected))
        slices = points.slices(rows)
        category_index = np.searchsorted(codes, flows.category[rows])
        key = _small(points.number[rows]) * len(codes) + category_index
        # Only arrows with both ends here need to be put in order.
        near = np.isin(key, _repeated(key[self._has(slices)]))
        rows, slices, key = rows[near], slices[near], key[near]
        order = np.lexsort((flows.phase[rows], flows.time[rows], key))
        rows, slices, key = rows[order], slices[order], key[order]
        part = np.cumsum((flows.phase[rows] == 0) | (np.diff(key, prepend=key[:1] - 1) != 0))
        first = np.flatnonzero(
            (np.diff(part) == 0)
            & (flows.phase[rows[:-1]] != 2)
            & self._has(slices[:-1])
            & self._has(slices[1:])
        )
        return slices[first], slices[first + 1], flows.category[rows[first]]

    def _async(self) -> tuple[int, Int64s, Int64s]:
        """Flows that XSpace events state: the number of the flow in 56 bits, and whether it comes
        in (1), goes out (2) or both.
        """
        column = self._args.get("flow")
        value, has = self._numbers("flow", self._selected)
        flow_ids = _repeated((value[has] >> 2) & FLOW_BITS)
        if column is None or not len(flow_ids):
            return _none(3)
        rows = _rows(column, flow_ids, lambda values: (values.astype(np.int64) >> 2) & FLOW_BITS)
        events_having = column.event[rows].astype(np.int64)
        values = column.value[rows].astype(np.int64)
        ident = (values >> 2) & FLOW_BITS
        order = np.lexsort((events_having, self._events.start[events_having], ident))
        events_having, values, ident = events_having[order], values[order], ident[order]
        joined = (np.diff(ident) == 0) & (((values[:-1] & 2) > 0) | ((values[1:] & 1) > 0))
        return self._both(3, events_having[:-1][joined], events_having[1:][joined])

    def _fed(self, derived: Int64s) -> tuple[int, Int64s, Int64s]:
        """From derived events to those that used their results."""
        rows, fed = self._links.tracks.feeds
        here = np.isin(rows, derived) & self._has(fed)
        return 1, rows[here] + len(self._events), fed[here]

    def _positions(self, events: Int64s) -> Int64s:
        """Index of events among the selected ones."""
        return np.minimum(np.searchsorted(self._selected, events), max(len(self._selected) - 1, 0))

    def _has(self, events: Int64s) -> npt.NDArray[np.bool_]:
        if not len(self._selected):
            return np.zeros(len(events), np.bool_)
        return np.asarray(self._selected[self._positions(events)] == events)

    def _both(self, kind: int, start: Int64s, finish: Int64s) -> tuple[int, Int64s, Int64s]:
        """Arrows whose two ends are selected."""
        here = self._has(start) & self._has(finish)
        return kind, start[here], finish[here]

    # Ops.

    def _ops(self, launch: Int64s) -> tuple[list[str], npt.NDArray[np.int32]]:
        """The ops of device events, and that of each: its own, or the innermost around its
        launch.
        """
        activity = self._links.run.activity
        op = np.full(len(self._selected), -1, np.int64)
        device = np.flatnonzero(self._device)
        op[device] = _op_of(activity.device_ops.frame(), self._selected[device])
        # An empty text names no op.
        texts = np.append(activity.ops.values, "")
        empty = texts[op] == ""
        open_ = np.flatnonzero(self._device & empty & (launch >= 0))
        index = launch[open_]
        while len(open_):
            ops = _op_of(activity.host_ops.frame(), index)
            op[open_] = ops
            index = self._events.parent[index].astype(np.int64)
            left = (texts[ops] == "") & (index >= 0)
            open_, index = open_[left], index[left]
        used, inverse = np.unique(np.where(texts[op] == "", -1, op), return_inverse=True)
        none = int(len(used) > 0 and used[0] < 0)
        names = [str(texts[code]) for code in used[none:].tolist()]
        return names, (inverse.ravel() - none).astype(np.int32)


def _once(groups: list[tuple[int, Int64s, Int64s]]) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
    """Each arrow once, by kind and by where it ends."""
    codes, starts, finishes = zip(*groups, strict=True)
    start, finish = np.concatenate(starts), np.concatenate(finishes)
    kind = np.repeat(np.array(codes, np.uint8), list(map(len, starts)))
    order = np.lexsort((start, finish, kind))
    order = order[run_starts(kind[order], start[order], finish[order])]
    return kind[order], start[order], finish[order]


def _is_number(column: ArgColumn, index: Int64s | npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    if isinstance(column.kind, int):
        return np.full(len(index), column.kind in (INT, UINT))
    return np.isin(column.kind[index], (INT, UINT))


def _rows(column: ArgColumn, selected: Int64s, numbers: Any) -> Int64s:
    """Rows of a column with selected numbers; the lowest bits alone exclude most rows."""
    table = np.zeros(_TABLE + 1, np.bool_)
    table[selected & _TABLE] = True
    parts = []
    for offset in range(0, len(column), _BLOCK):
        values = numbers(column.value[offset : offset + _BLOCK])
        if values.dtype.itemsize > 2:
            rows = np.flatnonzero(table[values & values.dtype.type(_TABLE)])
        else:
            rows = np.flatnonzero(np.isin(values, selected))
        parts.append(offset + rows[np.isin(values[rows].astype(np.int64), selected)])
    rows = np.concatenate([np.zeros(0, np.int64), *parts])
    return np.asarray(rows[_is_number(column, rows)], np.int64)


def _repeated(values: Int64s) -> Int64s:
    """Values that occur more than once, ascending: an arrow has two ends."""
    each, count = np.unique(values, return_counts=True)
    return each[count > 1]


def _small(idents: Int64s) -> Int64s:
    """Numbers of which equal ones stay equal, small enough to be multiplied."""
    if not len(idents) or (idents.max() < 1 << 40 and idents.min() > -(1 << 40)):
        return idents
    return np.asarray(np.unique(idents, return_inverse=True)[1].ravel(), np.int64)


def _join(left: Int64s, right: Int64s) -> tuple[Int64s, Int64s]:
    """Positions of equal codes on both sides; of one on the left at most `MOST` of the right."""
    order = np.argsort(right, kind="stable")
    low = np.searchsorted(right[order], left)
    high = np.searchsorted(right[order], left, side="right")
    row, position = expand(low, np.minimum(high - low, MOST))
    return row, np.asarray(order[position], np.int64)


def _op_of(table: pd.DataFrame, events: Int64s) -> Int64s:
    """Op codes of events in a table by event; -1 for events without one."""
    return lookup(table["event"].to_numpy(np.int64), table["op"].to_numpy(np.int64), events)


def _none(kind: int) -> tuple[int, Int64s, Int64s]:
    return kind, np.zeros(0, np.int64), np.zeros(0, np.int64)
