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
    """What is known of kept events.

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


def arrows(links: Links, kept: Int64s) -> Arrows:
    """What belongs together among some events of the trace.

    Parameters
    ----------
    links : Links
    kept : int64[k]
        Ids, ascending.
    """
    return _Kept(links, kept).made()


def stated(links: Links, kept: Int64s) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
    """Kind (a code into `KINDS`), begin and end of the arrows that some events state in their args,
    launches left out; all of them.

    Parameters
    ----------
    links : Links
    kept : int64[k]
        Ids, ascending.
    """
    return _Kept(links, kept).stated()


def lacks(links: Links, *, whole: bool) -> list[str]:
    """What is known of the slices of a profile and not saved: "arguments", "stacks", and arrows to
    slices that are left out.

    Parameters
    ----------
    links : Links
    whole : bool
        Whether no slice is left out.
    """
    trace = links.trace
    known = {*trace.args, *trace.name_args}
    stacks = not known.isdisjoint(_STACKS) or any(
        _FRAME.match(str(name)) for name in trace.names.tolist()
    )
    arrows = not whole and (links.flows is not None or not known.isdisjoint(_LINKED))
    parts = {
        "arguments": bool(known),
        "stacks": stacks,
        "arrows to slices that it leaves out": arrows,
    }
    return [part for part, missing in parts.items() if missing]


class _Kept:
    """Kept events, and the columns of args cut down to them."""

    def __init__(self, links: Links, kept: Int64s) -> None:
        self._links, self._kept = links, kept
        self._events, self._args = links.events, links.trace.args
        self._hosts = max(len(links.run.hosts), 1) + 1
        self._device = links.on_device[self._events.lane[kept]]

    def made(self) -> Arrows:
        launch = self._launches()
        found = [self._producers(), self._turned(), *self._of_file(launch), self._async()]
        has = launch >= 0
        work, call = self._kept[has], launch[has]
        here = self._has(call)
        found.append((0, call[here], work[here]))
        kind, start, finish = _once(found)
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
        at = np.minimum(
            np.searchsorted(column.event, events.astype(column.event.dtype)), len(column) - 1
        )
        has = (column.event[at] == events) & _is_number(column, at)
        return np.where(has, column.value[at].astype(np.int64), 0), has

    def _having(self, key: str, wanted: Int64s) -> tuple[Int64s, Int64s]:
        """Events that have one of some numbers as an arg, ascending, and the number of each."""
        column = self._args.get(key)
        if column is None or not len(wanted):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        rows = _rows(column, wanted, lambda values: values)
        return column.event[rows].astype(np.int64), column.value[rows].astype(np.int64)

    def _here(self, events: Int64s) -> Int64s:
        """The host of each event."""
        return self._links.host_of_lane[self._events.lane[events]] + 1

    def _group(self, number: Int64s, events: Int64s, known: Int64s) -> Int64s:
        """One code for each number (out of `known`, ascending) on each host."""
        return np.searchsorted(known, number) * self._hosts + self._here(events)

    # Launches.

    def _launches(self) -> Int64s:
        """The call that launched each kept device event, -1 where none is known."""
        kept, events = self._kept, self._events
        call = np.full(len(kept), -1, np.int64)
        self._stated = np.zeros(len(kept), np.bool_)
        asked = np.zeros(len(kept), np.bool_)
        for key in CORRELATED:
            number, has = self._numbers(key, kept)
            mine = np.flatnonzero(has & (number > 0) & ~asked)
            asked[mine] = True
            known = np.unique(number[mine])
            found, value = self._having(key, known)
            if not len(found):
                continue
            group = self._group(value, found, known)
            own = self._group(number[mine], kept[mine], known)
            sizes = np.bincount(group, minlength=int(own.max()) + 1)
            self._stated[mine] = sizes[own] > 1
            calls = ~self._links.on_device[events.lane[found]]
            group, found = group[calls], found[calls]
            # Of several with one id (the runtime and below it the driver) the last.
            order = np.lexsort((found, events.start[found], group))
            group, found = group[order], found[order]
            at = np.searchsorted(group, own, side="right") - 1
            good = (at >= 0) & self._device[mine]
            good[good] = group[at[good]] == own[good]
            call[mine[good]] = found[at[good]]
        return call

    # Other arrows: kind, begins and ends.

    def _producers(self) -> tuple[int, Int64s, Int64s]:
        kept, pid = self._kept, self._numbers("_pid", self._kept)
        sides = []
        for kind, ident in (("_pt", "_p"), ("_ct", "_c")):
            (what, typed), (number, told) = self._numbers(kind, kept), self._numbers(ident, kept)
            rows = np.flatnonzero(typed & told)
            sides.append((rows, np.stack([self._here(kept[rows]), what[rows], number[rows]])))
        (made, made_key), (taken, taken_key) = sides
        if not len(made) or not len(taken):
            return _none(1)
        _, codes = np.unique(
            np.concatenate([made_key, taken_key], axis=1), axis=1, return_inverse=True
        )
        codes = codes.ravel()
        left, right = codes[: len(made)], codes[len(made) :]
        # At most so many of each: both of who has many consumers and of who takes from many
        # producers.
        (a, b), (d, c) = _join(left, right), _join(right, left)
        a, b = np.concatenate([a, c]), np.concatenate([b, d])
        a, b = made[a], taken[b]
        same = (a != b) & (~pid[1][a] | ~pid[1][b] | (pid[0][a] == pid[0][b]))
        return 1, kept[a[same]], kept[b[same]]

    def _turned(self) -> tuple[int, Int64s, Int64s]:
        """Forward and backward by sequence number, where the file has no arrows for them."""
        links, events = self._links, self._events
        if links.flows is not None and links.flows.has("fwdbwd"):
            return _none(2)
        number, has = self._numbers("Sequence number", self._kept)
        known = _repeated(number[has & (number >= 0)])
        found, value = self._having("Sequence number", known)
        group = self._group(value, found, known)
        order = np.lexsort((found, events.start[found], group))
        group, found = group[order], found[order]
        thread, _ = self._numbers("Fwd thread id", found)
        forward = thread == 0
        backward = ~forward & ~links.engine[events.name[found]]
        # The last of the forward ones, the first of the backward ones: see `Links`.
        groups, first = np.unique(group[backward], return_index=True)
        last = np.searchsorted(group[forward], groups, side="right") - 1
        good = last >= 0
        good[good] = group[forward][last[good]] == groups[good]
        return self._both(2, found[forward][last[good]], found[backward][first[good]])

    def _of_file(self, launch: Int64s) -> list[tuple[int, Int64s, Int64s]]:
        """Arrows of the file; fills `launch` where events state no launch themselves."""
        points = self._links.flows
        if points is None:
            return []
        flows, names = points.flows, self._links.trace.strings
        codes = np.unique(flows.category)
        kinds = {code: names[code] if code >= 0 else "" for code in codes.tolist()}
        device = self._device
        # Where every kept device event states its launch, the launches among the arrows say nothing
        # more.
        wanted = [
            code
            for code, name in kinds.items()
            if name not in LAUNCHES or not device.any() or not self._stated[device].all()
        ]
        rows = (
            np.flatnonzero(np.isin(flows.category, wanted))
            if len(wanted) < len(codes)
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
        told = [self._place(side) for side in (start, finish)]
        news = launches & (~self._stated[told[0]] | ~self._stated[told[1]])
        mine = np.flatnonzero(
            news
            & device[told[1]]
            & ~self._stated[told[1]]
            & ~self._links.on_device[self._events.lane[start]]
        )
        mine = mine[np.lexsort((start[mine], self._events.start[start[mine]]))]
        launch[told[1][mine]] = start[mine]
        rest = news.copy()
        rest[mine[launch[told[1][mine]] == start[mine]]] = False
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
        known = _repeated((value[has] >> 2) & FLOW_BITS)
        if column is None or not len(known):
            return _none(3)
        rows = _rows(column, known, lambda values: (values.astype(np.int64) >> 2) & FLOW_BITS)
        found, values = column.event[rows].astype(np.int64), column.value[rows].astype(np.int64)
        ident = (values >> 2) & FLOW_BITS
        order = np.lexsort((found, self._events.start[found], ident))
        found, values, ident = found[order], values[order], ident[order]
        joined = (np.diff(ident) == 0) & (((values[:-1] & 2) > 0) | ((values[1:] & 1) > 0))
        return self._both(3, found[:-1][joined], found[1:][joined])

    def _place(self, events: Int64s) -> Int64s:
        """Where events are among the kept ones."""
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
        # A text of "" is no op.
        texts = np.append(activity.ops.values, "")
        empty = texts[op] == ""
        open_ = np.flatnonzero(self._device & empty & (launch >= 0))
        at = launch[open_]
        while len(open_):
            found = _op_of(activity.host_ops.frame(), at)
            op[open_] = found
            at = self._events.parent[at].astype(np.int64)
            left = (texts[found] == "") & (at >= 0)
            open_, at = open_[left], at[left]
        used, of = np.unique(np.where(texts[op] == "", -1, op), return_inverse=True)
        none = int(len(used) > 0 and used[0] < 0)
        return [str(texts[code]) for code in used[none:].tolist()], (of.ravel() - none).astype(
            np.int32
        )


def _once(found: list[tuple[int, Int64s, Int64s]]) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
    """Each arrow once, by kind and by where it ends."""
    kind = np.concatenate([np.full(len(a), code, np.uint8) for code, a, _ in found])
    start, finish = (np.concatenate([pair[i] for pair in found]) for i in (1, 2))
    order = np.lexsort((start, finish, kind))
    same = np.zeros(len(order), np.bool_)
    same[1:] = (
        (np.diff(kind[order]) == 0) & (np.diff(start[order]) == 0) & (np.diff(finish[order]) == 0)
    )
    order = order[~same]
    return kind[order], start[order], finish[order]


def _is_number(column: ArgColumn, at: Int64s | npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    if isinstance(column.kind, int):
        return np.full(len(at), column.kind in (INT, UINT))
    return np.isin(column.kind[at], (INT, UINT))


def _rows(column: ArgColumn, wanted: Int64s, of: Any) -> Int64s:
    """Rows of a column whose number is among some: most rows are told apart by their lowest bits
    alone.
    """
    table = np.zeros(_TABLE + 1, np.bool_)
    table[wanted & _TABLE] = True
    found = []
    for at in range(0, len(column), _BLOCK):
        values = of(column.value[at : at + _BLOCK])
        rows = np.flatnonzero(
            table[values & values.dtype.type(_TABLE)]
            if values.dtype.itemsize > 2
            else np.isin(values, wanted)
        )
        found.append(at + rows[np.isin(values[rows].astype(np.int64), wanted)])
    rows = np.concatenate(found) if found else np.zeros(0, np.int64)
    return np.asarray(rows[_is_number(column, rows)], np.int64)


def _repeated(values: Int64s) -> Int64s:
    """What is there more than once, ascending: an arrow has two ends."""
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
