"""Links between the slices of a saved timeline: launches, arrows and the ops of device work.

The same as `Links` says of one event, here for all kept ones at once: each column of args is looked
through once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.factorize import lookup
from nbprof.core.runs import expand
from nbprof.core.trace import INT, UINT, ArgColumn, Int64s
from nbprof.timeline.links import CORRELATED, FLOW_BITS, LAUNCHES, MOST, OF_FILE, Links

KINDS = ("launch", "producer", "forward", "flow")
"""Of arrows, by code."""
MOST_ARROWS = 20_000
"""More are only counted."""
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
        The kept events that it joins.
    left_out : int
        Arrows beyond `MOST_ARROWS`.
    work, call : int64[k]
        Device events whose launch is not kept, ascending, and that launch.
    op : list of str
        Framework ops of device events.
    op_of : int32[events kept]
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


def arrows(links: Links, selected: Int64s) -> Arrows:
    """Arrows between the selected events of the trace.

    Parameters
    ----------
    links : Links
    selected : int64[k]
        Ids, ascending.
    """
    return _Kept(links, selected).made()


def stated(links: Links, selected: Int64s) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
    """Kind (a code into `KINDS`), begin and end of the arrows that some events state in their args,
    launches left out; all of them.

    Parameters
    ----------
    links : Links
    selected : int64[k]
        Ids, ascending.
    """
    return _Kept(links, selected).stated()


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
    stacks = not arg_names.isdisjoint(_STACKS) or any(
        _FRAME.match(str(name)) for name in trace.names.tolist()
    )
    arrows = not complete and (links.flows is not None or not arg_names.isdisjoint(_LINKED))
    parts = {
        "arguments": bool(arg_names),
        "stacks": stacks,
        "arrows to slices that it leaves out": arrows,
    }
    return [part for part, missing in parts.items() if missing]


class _Kept:
    """Kept events, and the columns of args cut down to them."""

    def __init__(self, links: Links, selected: Int64s) -> None:
        self._links, self._kept = links, selected
        self._events, self._args = links.events, links.trace.args
        self._hosts = max(len(links.run.hosts), 1) + 1
        self._device = links.on_device[self._events.lane[selected]]

    def made(self) -> Arrows:
        launch = self._launches()
        groups = [self._producers(), self._turned(), *self._of_file(launch), self._async()]
        has = launch >= 0
        work, call = self._kept[has], launch[has]
        here = self._has(call)
        groups.append((0, call[here], work[here]))
        kind, start, finish = _once(groups)
        left_out = max(len(kind) - MOST_ARROWS, 0)
        some = slice(MOST_ARROWS)
        return Arrows(
            kind[some],
            start[some],
            finish[some],
            left_out,
            work[~here],
            call[~here],
            *self._ops(launch),
        )

    def stated(self) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
        """Kind, begin and end of the arrows that events state, without launches and those of the
        file.
        """
        return _once([self._producers(), self._turned(), self._async()])

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

    def _having(self, key: str, selected: Int64s) -> tuple[Int64s, Int64s]:
        """Events that have one of some numbers as an arg, ascending, and the number of each."""
        column = self._args.get(key)
        if column is None or not len(selected):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        rows = _rows(column, selected, lambda values: values)
        return column.event[rows].astype(np.int64), column.value[rows].astype(np.int64)

    def _here(self, events: Int64s) -> Int64s:
        """The host of each event."""
        return self._links.host_of_lane[self._events.lane[events]] + 1

    def _group(self, number: Int64s, events: Int64s, valid: Int64s) -> Int64s:
        """One code for each number (out of `valid`, ascending) on each host."""
        return np.searchsorted(valid, number) * self._hosts + self._here(events)

    # Launches.

    def _launches(self) -> Int64s:
        """The call that launched each kept device event, -1 where none is known."""
        selected, events = self._kept, self._events
        call = np.full(len(selected), -1, np.int64)
        self._stated = np.zeros(len(selected), np.bool_)
        asked = np.zeros(len(selected), np.bool_)
        for key in CORRELATED:
            number, has = self._numbers(key, selected)
            own_rows = np.flatnonzero(has & (number > 0) & ~asked)
            asked[own_rows] = True
            numbers = np.unique(number[own_rows])
            events_having, value = self._having(key, numbers)
            if not len(events_having):
                continue
            group = self._group(value, events_having, numbers)
            own_groups = self._group(number[own_rows], selected[own_rows], numbers)
            sizes = np.bincount(group, minlength=int(own_groups.max()) + 1)
            self._stated[own_rows] = sizes[own_groups] > 1
            calls = ~self._links.on_device[events.lane[events_having]]
            group, events_having = group[calls], events_having[calls]
            # Of several with one id (the runtime and below it the driver) the last.
            order = np.lexsort((events_having, events.start[events_having], group))
            group, events_having = group[order], events_having[order]
            index = np.searchsorted(group, own_groups, side="right") - 1
            good = (index >= 0) & self._device[own_rows]
            good[good] = group[index[good]] == own_groups[good]
            call[own_rows[good]] = events_having[index[good]]
        return call

    # Other arrows: kind, begins and ends.

    def _producers(self) -> tuple[int, Int64s, Int64s]:
        selected, pid = self._kept, self._numbers("_pid", self._kept)
        sides = []
        for kind, ident in (("_pt", "_p"), ("_ct", "_c")):
            (kind_codes, typed), (number, has_number) = (
                self._numbers(kind, selected),
                self._numbers(ident, selected),
            )
            rows = np.flatnonzero(typed & has_number)
            sides.append(
                (rows, np.stack([self._here(selected[rows]), kind_codes[rows], number[rows]]))
            )
        (producer, made_key), (taken, taken_key) = sides
        if not len(producer) or not len(taken):
            return _none(1)
        _, codes = np.unique(
            np.concatenate([made_key, taken_key], axis=1), axis=1, return_inverse=True
        )
        codes = codes.ravel()
        left, right = codes[: len(producer)], codes[len(producer) :]
        # At most so many of each: both of who has many consumers and of who takes from many
        # producers.
        (a, b), (d, c) = _join(left, right), _join(right, left)
        a, b = np.concatenate([a, c]), np.concatenate([b, d])
        a, b = producer[a], taken[b]
        same = (a != b) & (~pid[1][a] | ~pid[1][b] | (pid[0][a] == pid[0][b]))
        return 1, selected[a[same]], selected[b[same]]

    def _turned(self) -> tuple[int, Int64s, Int64s]:
        """Forward and backward by sequence number, where the file has no arrows for them."""
        links, events = self._links, self._events
        if links.flows is not None and links.flows.has("fwdbwd"):
            return _none(2)
        number, has = self._numbers("Sequence number", self._kept)
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
        return self._both(
            2, events_having[forward][last[good]], events_having[backward][first[good]]
        )

    def _of_file(self, launch: Int64s) -> list[tuple[int, Int64s, Int64s]]:
        """Arrows of the file; fills `launch` where events state no launch themselves."""
        points = self._links.flows
        if points is None:
            return []
        flows, names = points.flows, self._links.trace.strings
        codes = np.unique(flows.category)
        kinds = {code: names[code] if code >= 0 else "" for code in codes.tolist()}
        device = self._device
        # Arrows of launches add nothing if every selected device event states its launch.
        selected = [
            code
            for code, name in kinds.items()
            if name not in LAUNCHES or not device.any() or not self._stated[device].all()
        ]
        rows = (
            np.flatnonzero(np.isin(flows.category, selected))
            if len(selected) < len(codes)
            else np.arange(len(flows.phase))
        )
        slices = points.slices(rows)
        # Only arrows with both ends here need to be put in order.
        here = self._has(slices)
        key = _small(points.number[rows]) * len(codes) + np.searchsorted(
            codes, flows.category[rows]
        )
        near = np.isin(key, _repeated(key[here]))
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
        start, finish, category = slices[first], slices[first + 1], flows.category[rows[first]]
        meant = np.array(
            [KINDS.index(OF_FILE.get(name, "flow")) for name in kinds.values()], np.int64
        )
        meant = meant[np.searchsorted(codes, category)]
        launches = np.isin(category, [code for code, text in kinds.items() if text in LAUNCHES])
        sides_found = [self._place(side) for side in (start, finish)]
        news = launches & (~self._stated[sides_found[0]] | ~self._stated[sides_found[1]])
        own_rows = np.flatnonzero(
            news
            & device[sides_found[1]]
            & ~self._stated[sides_found[1]]
            & ~self._links.on_device[self._events.lane[start]]
        )
        own_rows = own_rows[np.lexsort((start[own_rows], self._events.start[start[own_rows]]))]
        launch[sides_found[1][own_rows]] = start[own_rows]
        rest = news.copy()
        rest[own_rows[launch[sides_found[1][own_rows]] == start[own_rows]]] = False
        return [(0, start[rest], finish[rest])] + [
            (code, start[some], finish[some])
            for code in (1, 2, 3)
            if (some := ~launches & (meant == code)).any()
        ]

    def _async(self) -> tuple[int, Int64s, Int64s]:
        """Flows that XSpace events state: the number of the flow in 56 bits, and whether it comes
        in (1), goes out (2) or both.
        """
        column = self._args.get("flow")
        value, has = self._numbers("flow", self._kept)
        flow_ids = _repeated((value[has] >> 2) & FLOW_BITS)
        if column is None or not len(flow_ids):
            return _none(3)
        rows = _rows(column, flow_ids, lambda values: (values.astype(np.int64) >> 2) & FLOW_BITS)
        events_having, values = (
            column.event[rows].astype(np.int64),
            column.value[rows].astype(np.int64),
        )
        ident = (values >> 2) & FLOW_BITS
        order = np.lexsort((events_having, self._events.start[events_having], ident))
        events_having, values, ident = events_having[order], values[order], ident[order]
        joined = (np.diff(ident) == 0) & (((values[:-1] & 2) > 0) | ((values[1:] & 1) > 0))
        return self._both(3, events_having[:-1][joined], events_having[1:][joined])

    def _place(self, events: Int64s) -> Int64s:
        """Index of events among the selected ones."""
        return np.minimum(np.searchsorted(self._kept, events), max(len(self._kept) - 1, 0))

    def _has(self, events: Int64s) -> npt.NDArray[np.bool_]:
        return (
            self._kept[self._place(events)] == events
            if len(self._kept)
            else np.zeros(len(events), np.bool_)
        )

    def _both(self, kind: int, start: Int64s, finish: Int64s) -> tuple[int, Int64s, Int64s]:
        """Arrows whose two ends are kept."""
        here = self._has(start) & self._has(finish)
        return kind, start[here], finish[here]

    # Ops.

    def _ops(self, launch: Int64s) -> tuple[list[str], npt.NDArray[np.int32]]:
        """The ops of device events, and that of each: its own, or the innermost around its
        launch.
        """
        activity = self._links.run.activity
        op = np.full(len(self._kept), -1, np.int64)
        device = np.flatnonzero(self._device)
        op[device] = _op_of(activity.device_ops.frame(), self._kept[device])
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
        return [str(texts[code]) for code in used[none:].tolist()], (inverse.ravel() - none).astype(
            np.int32
        )


def _once(groups: list[tuple[int, Int64s, Int64s]]) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
    """Each arrow once, by kind and by where it ends."""
    kind = np.concatenate([np.full(len(a), code, np.uint8) for code, a, _ in groups])
    start, finish = (np.concatenate([pair[i] for pair in groups]) for i in (1, 2))
    order = np.lexsort((start, finish, kind))
    same = np.zeros(len(order), np.bool_)
    same[1:] = (
        (np.diff(kind[order]) == 0) & (np.diff(start[order]) == 0) & (np.diff(finish[order]) == 0)
    )
    order = order[~same]
    return kind[order], start[order], finish[order]


def _is_number(column: ArgColumn, index: Int64s | npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    if isinstance(column.kind, int):
        return np.full(len(index), column.kind in (INT, UINT))
    return np.isin(column.kind[index], (INT, UINT))


def _rows(column: ArgColumn, selected: Int64s, names: Any) -> Int64s:
    """Rows of a column whose number is among some: most rows are told apart by their lowest bits
    alone.
    """
    table = np.zeros(_TABLE + 1, np.bool_)
    table[selected & _TABLE] = True
    parts = []
    for offset in range(0, len(column), _BLOCK):
        values = names(column.value[offset : offset + _BLOCK])
        rows = np.flatnonzero(
            table[values & values.dtype.type(_TABLE)]
            if values.dtype.itemsize > 2
            else np.isin(values, selected)
        )
        parts.append(offset + rows[np.isin(values[rows].astype(np.int64), selected)])
    rows = np.concatenate(parts) if parts else np.zeros(0, np.int64)
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
    low, high = (np.searchsorted(right[order], left, side=side) for side in ("left", "right"))
    row, position = expand(low, np.minimum(high - low, MOST))
    return row, np.asarray(order[position], np.int64)


def _op_of(table: pd.DataFrame, events: Int64s) -> Int64s:
    """Codes of ops of events out of a table by event; -1 where they are not in it."""
    return lookup(table["event"].to_numpy(np.int64), table["op"].to_numpy(np.int64), events)


def _none(kind: int) -> tuple[int, Int64s, Int64s]:
    return kind, np.zeros(0, np.int64), np.zeros(0, np.int64)
