"""Memory by role: parameters, gradients, optimizer state, activations.

What a block is used for is proven by the program's own tensors, where the recording has their
addresses, or else by when it was allocated and freed: `graph_roles` for the ops of TensorFlow, this
module for those of PyTorch. What is not proven is `UNKNOWN`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.analysis.memory import alive, graph_roles
from nbprof.analysis.memory.allocated_at import NO_CODE, Allocations, Code, lines
from nbprof.analysis.memory.sample import sample
from nbprof.core import nesting
from nbprof.core.memory_roles import (
    ACTIVATIONS,
    COMMUNICATION,
    GRADIENTS,
    IN_USE,
    INPUTS,
    OPTIMIZER_STATE,
    RESERVED,
    TEMPORARIES,
    UNKNOWN,
)
from nbprof.core.trace import Events, Int32s, Int64s
from nbprof.dialects.gpu.known_tensors import AT_END, before_recording
from nbprof.dialects.torchnames import is_input
from nbprof.frameworks.register import TENSORFLOW
from nbprof.schema import frames

_NUMBER = {role: number for number, role in enumerate(IN_USE)}
_UNKNOWN = _NUMBER[UNKNOWN]
_LARGEST = int(np.iinfo(np.int64).max)
_FORWARD, _LOADER, _OPTIMIZER, _ZERO_GRAD, _BACKWARD, _COLLECTIVE = range(6)
"""What an op is part of; the highest of those around it counts."""
_COLLECTIVES = re.compile(
    r"(?:c10d|_c10d_functional|c10d_functional)::|(?:nccl|gloo|mpi|ucc):|record_param_comms\Z"
)
_Codes = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]


class Roles(NamedTuple):
    """Memory of a run by role.

    Attributes
    ----------
    peak : DataFrame
        The columns of `p.memory.roles`.
    over_time : DataFrame
        The columns of `p.memory.roles_over_time`.
    unfreed : DataFrame
        The columns of `p.memory.unfreed`, with lines by the calls in the trace alone.
    located : DataFrame
        The same with the lines of `Code`.
    """

    peak: pd.DataFrame
    over_time: pd.DataFrame
    unfreed: pd.DataFrame
    located: pd.DataFrame


def roles(
    activity: act.Activity,
    timeline: pd.DataFrame,
    events: Events,
    code: Code | None = None,
) -> Roles:
    """Bytes by role at the peak of each allocator, and over time; empty where no role is known.

    Parameters
    ----------
    activity : Activity
    timeline : DataFrame
        Of `nbprof.analysis.memory.memory.timeline`.
    events : Events
        Those of the trace.
    code : Code, optional
        What was recorded of the lines of the program.

    The roles of memory in use add up to the bytes in use exactly: what of them is in no block whose
    role is proven is `UNKNOWN`.
    """
    peaks: list[pd.DataFrame] = []
    moments: list[pd.DataFrame] = []
    unfreed = located = frames.empty("memory.unfreed")
    if len(timeline) and _has_evidence(activity):
        blocks = _Blocks(activity, timeline, events)
        unfreed = located = _unfreed(blocks, activity, timeline, events, NO_CODE)
        if code is not None:
            located = _unfreed(blocks, activity, timeline, events, code)
        for number, memory_id in enumerate(blocks.memories):
            of_memory = _Allocator(blocks, number, timeline)
            if of_memory.tells:
                peaks.append(of_memory.peak().assign(memory_id=memory_id))
                moments.append(of_memory.over_time().assign(memory_id=memory_id))
    return Roles(
        _joined("memory.roles", peaks),
        _joined("memory.roles_over_time", moments),
        unfreed,
        located,
    )


def _has_evidence(activity: act.Activity) -> bool:
    """True if something says what blocks are used for."""
    if len(activity.torch_ops) or len(activity.known_tensors):
        return True
    return activity.framework is TENSORFLOW


def _unfreed(
    blocks: _Blocks,
    activity: act.Activity,
    timeline: pd.DataFrame,
    events: Events,
    code: Code,
) -> pd.DataFrame:
    """Blocks that steps but the last leave behind: the columns of `p.memory.unfreed`."""
    step = timeline["step"].to_numpy(np.float64, na_value=np.nan)[blocks.begin]
    host = blocks.host[blocks.begin]
    last = pd.Series(step).groupby(host).transform("max").to_numpy(np.float64)
    rows = np.flatnonzero((step < last) & (blocks.end == len(blocks.address)))
    if not len(rows):
        return frames.empty("memory.unfreed")
    begun = blocks.begin[rows]
    modules = np.full(len(rows), "", object)
    if activity.torch_stacks is not None:
        stack = np.append(activity.torch_ops.stack, -1)[blocks.around[begun]]
        modules = np.append(activity.torch_stacks.path, "")[stack]
    table = pd.DataFrame(
        {
            "memory_id": np.asarray(blocks.memories, object)[blocks.memory[begun]],
            "role": np.array(IN_USE, object)[blocks.role[rows]],
            "op": timeline["op"].to_numpy(object)[begun],
            "module": modules,
            "step": step[rows],
            "bytes": blocks.size[rows],
        }
    )
    kind = table.groupby(["memory_id", "role", "op", "module"], sort=False).ngroup()
    allocations = Allocations(
        timeline["order"].to_numpy(np.int64)[begun],
        blocks.around[begun],
        kind.to_numpy().astype(np.int64),
    )
    places = lines(code, activity, events, allocations)
    table = table.assign(line=places.line, line_source=places.source)
    by_place = table.groupby(
        ["memory_id", "role", "op", "module", "line", "line_source"], sort=False
    )
    unfreed = by_place.agg(
        steps=("step", "nunique"), blocks=("bytes", "size"), bytes=("bytes", "sum")
    ).reset_index()
    unfreed["bytes_per_step"] = unfreed["bytes"] / unfreed["steps"]
    return in_order(frames.typed("memory.unfreed", unfreed[frames.names("memory.unfreed")]))


def in_order(unfreed: pd.DataFrame) -> pd.DataFrame:
    """The rows of `p.memory.unfreed`: what most steps leave behind first, then most bytes."""
    return unfreed.sort_values(
        ["steps", "bytes"], ascending=[False, False], kind="stable", ignore_index=True
    )


def _joined(name: str, parts: list[pd.DataFrame]) -> pd.DataFrame:
    if not parts:
        return frames.empty(name)
    return frames.typed(name, pd.concat(parts, ignore_index=True)[frames.names(name)])


def column(role: str) -> str:
    """The column of a role in `p.memory.roles_over_time`."""
    return re.sub(r"\W+", "_", role).lower() + "_bytes"


class _Ops:
    """Parts of a step to which the ops of PyTorch belong.

    Attributes
    ----------
    part : int8[n]
        By op: one of the numbers above, -1 for none.
    outermost : int64[n]
        Row of the outermost op or call around each, itself included; -1 for none.
    has_gradient : bool[n]
        The backward pass has an op for this one, or for one around it.
    """

    def __init__(self, activity: act.Activity) -> None:
        ops = self.rows = activity.torch_ops
        self._parents: Int32s = ops.parent.astype(np.int32)
        self.part = self._parts(activity)
        levels = nesting.levels(self._parents)
        self.outermost = np.full(len(ops), -1, np.int64)
        for depth, level in enumerate(levels):
            around = np.full(len(level), -1, np.int64)
            if depth:
                around = self.outermost[ops.parent[level]]
                self.part[level] = np.maximum(self.part[level], self.part[ops.parent[level]])
            self.outermost[level] = np.where((around < 0) & (self.part[level] >= 0), level, around)
        has_gradient = np.full(len(ops), -1, np.int8)
        has_gradient[ops.forward[ops.forward >= 0]] = 1
        nesting.inherit(self._parents, has_gradient)
        self.has_gradient: Bools = has_gradient > 0

    def _parts(self, activity: act.Activity) -> _Codes:
        """By op itself; calls of optimizers that run the backward pass themselves are none."""
        ops = self.rows
        by_name = np.full(max(len(activity.ops.codes), 1), -1, np.int8)
        for code in np.unique(ops.op).tolist():
            by_name[code] = _part(str(activity.ops.values[code]))
        part = by_name[ops.op]
        part[(part == _FORWARD) & (ops.kind != act.TORCH_OP)] = -1
        optimizers = np.flatnonzero(part == _OPTIMIZER)
        for host in np.unique(ops.host[optimizers]).tolist():
            back = np.sort(ops.start[(part == _BACKWARD) & (ops.host == host)])
            calls = optimizers[ops.host[optimizers] == host]
            first = np.searchsorted(back, ops.start[calls])
            part[calls[first < np.searchsorted(back, ops.end[calls])]] = -1
        return part

    def around(self, event: Int64s, lane: Int32s, time: Int64s, lanes: Int32s) -> Int64s:
        """Row of the innermost op around each event of the trace, -1; `lanes` are those of all
        events.
        """
        ops = self.rows
        if not len(ops):
            return np.full(len(event), -1, np.int64)
        row = np.searchsorted(ops.event, event, side="right") - 1
        row[(row >= 0) & (lanes[ops.event[row]] != lane)] = -1
        outside = np.flatnonzero(row >= 0)
        while len(outside):
            outside = outside[ops.end[row[outside]] < time[outside]]
            row[outside] = ops.parent[row[outside]]
            outside = outside[row[outside] >= 0]
        return row

    def phases(self, host: int, time: Int64s) -> Int64s:
        """The number of the forward pass, backward pass or optimizer step of a host at times: that
        of the last outermost op that has begun; -1 before the first.
        """
        ops = self.rows
        outer = np.flatnonzero((self.outermost == np.arange(len(ops))) & (ops.host == host))
        outer = outer[~np.isin(self.part[outer], (_COLLECTIVE, _LOADER))]
        outer = outer[np.argsort(ops.start[outer], kind="stable")]
        number = np.cumsum(np.diff(self.part[outer], prepend=-1) != 0)
        return np.append(number, -1)[np.searchsorted(ops.start[outer], time, side="right") - 1]


def _part(name: str) -> int:
    if name.startswith("autograd::engine::evaluate_function"):
        return _BACKWARD
    if name.startswith("Optimizer.step#"):
        return _OPTIMIZER
    if name.startswith("Optimizer.zero_grad#"):
        return _ZERO_GRAD
    if is_input(name):
        return _LOADER
    if _COLLECTIVES.match(name):
        return _COLLECTIVE
    return _FORWARD


class _Blocks:
    """The blocks of all allocators and what each is used for.

    Attributes
    ----------
    memories : list of str
    memory : int64[n]
        By event: position of its allocator.
    begin : int64[k]
        By block: its event.
    end : int64[k]
        The next event at its address; the number of events where there is none.
    size : int64[k]
    role : int64[k]
        Index into `IN_USE`.
    around : int64[n]
        By event: row of the innermost op around it, -1 for none.
    """

    def __init__(self, activity: act.Activity, timeline: pd.DataFrame, events: Events) -> None:
        self.tensors = activity.known_tensors
        self.texts = activity.texts.values
        memory, self.memories = pd.factorize(timeline["memory_id"].to_numpy(object))
        self.memory: Int64s = memory.astype(np.int64)
        event = timeline["order"].to_numpy(np.int64)
        self.time: Int64s = events.start[event]
        self.host = timeline["host"].to_numpy(np.int64)
        self.address = timeline["address"].to_numpy(np.int64, na_value=-1)
        is_allocation = alive.allocating(timeline)
        self.begin = np.flatnonzero(is_allocation & (self.address >= 0))
        self.end = self._following()[self.begin]
        self.size = timeline["allocated_bytes"].to_numpy(np.int64, na_value=0)[self.begin]
        self.role = np.full(len(self.begin), _UNKNOWN)
        ops = _Ops(activity)
        self.around = ops.around(event, events.lane[event], self.time, events.lane)
        # An allocation at the address of a block says that it was freed, but not where.
        is_freed = np.append(~is_allocation, False)[self.end]
        freed = np.where(is_freed, self.end, len(event))
        if activity.framework is TENSORFLOW:
            lifetimes = graph_roles.Lifetimes(self.memory[self.begin], self.begin, freed)
            self.role = graph_roles.roles(lifetimes, activity, timeline, events)
            self._by_tensors()
            self.role = graph_roles.as_variables(self.role, lifetimes, timeline)
        else:
            self._by_times(ops, freed, timeline)
            self._by_tensors()

    def _following(self) -> Int64s:
        """By event: the next one of the same address; the number of events where there is none."""
        count = len(self.address)
        order = np.lexsort((self.address, self.memory))
        same = (np.diff(self.memory[order]) == 0) & (np.diff(self.address[order]) == 0)
        following = np.full(count, count)
        following[order[:-1][same]] = order[1:][same]
        return following

    def _by_times(self, ops: _Ops, end: Int64s, timeline: pd.DataFrame) -> None:
        """Roles by the ops in which blocks were allocated and freed; `end` is the event that freed
        a block, the number of events where there is none.
        """
        begin, around, count = self.begin, self.around, len(self.address)
        is_freed = end < count
        part, outermost = np.append(ops.part, -1), np.append(ops.outermost, -1)
        allocated_in, freed_in = around[begin], np.append(around, -1)[end]
        allocating_part, freed = part[allocated_in], part[freed_in]
        phase = np.full(count + 1, -2)
        several = np.zeros(count, np.bool_)
        group = np.append(timeline["group"].to_numpy(np.int64, na_value=-1), -2)
        for host in np.unique(self.host).tolist():
            rows = np.flatnonzero(self.host == host)
            phase[rows] = ops.phases(host, self.time[rows])
            # Without a border between phases, nothing says what was unfreed for longer.
            several[rows] = (phase[rows] != phase[rows[0]]).any() or (
                group[rows] != group[rows[0]]
            ).any()
        same_phase = is_freed & several[begin] & (phase[begin] == phase[end])
        same_phase &= group[begin] == group[end]
        one_op = (
            is_freed
            & (outermost[allocated_in] >= 0)
            & (outermost[allocated_in] == outermost[freed_in])
        )
        forward = allocating_part <= _FORWARD
        self._set(TEMPORARIES, one_op | same_phase)
        self._set(INPUTS, (allocating_part == _LOADER) & ~one_op)
        self._set(COMMUNICATION, (allocating_part == _COLLECTIVE) & ~one_op)
        self._set(OPTIMIZER_STATE, self._left_by_optimizer(ops, allocated_in, allocating_part))
        has_gradient = np.append(ops.has_gradient, False)[allocated_in] & ~one_op
        saved = forward & ((freed == _BACKWARD) | (has_gradient & is_freed))
        kind = _kinds(self.memory[begin], timeline["op"].to_numpy(object)[begin], self.size)
        left = forward & has_gradient & ~is_freed
        self._set(ACTIVATIONS, saved | (left & _again(kind, left, phase[begin])))
        self._set(ACTIVATIONS, left & np.isin(kind, kind[saved]))
        survives = (allocating_part == _BACKWARD) & ~same_phase & ~one_op
        applied = survives & is_freed & ((freed == _ZERO_GRAD) | self._updates(ops, end))
        self._set(GRADIENTS, applied | (survives & ~is_freed & np.isin(kind, kind[applied])))

    def _set(self, role: str, blocks: Bools) -> None:
        self.role[blocks] = _NUMBER[role]

    def _left_by_optimizer(self, ops: _Ops, allocated_in: Int64s, allocating_part: _Codes) -> Bools:
        """Blocks that were allocated in a step of an optimizer and outlive it to the end of the
        recording, which goes on after the step.
        """
        unfreed: Bools = (allocating_part == _OPTIMIZER) & (self.end == len(self.address))
        rows = np.flatnonzero(unfreed)
        outermost = ops.outermost[allocated_in[rows]]
        unfreed[rows] = ops.rows.end[outermost] < max(
            int(self.time.max()), int(ops.rows.start.max(initial=0))
        )
        return unfreed

    def _updates(self, ops: _Ops, end: Int64s) -> Bools:
        """Blocks that were there during a whole step of an optimizer."""
        there = np.zeros(len(self.begin), np.bool_)
        begun, ended = self.time[self.begin], np.append(self.time, AT_END)[end]
        calls = np.flatnonzero(
            (ops.part == _OPTIMIZER) & (ops.outermost == np.arange(len(ops.part)))
        )
        for host in np.unique(ops.rows.host[calls]).tolist():
            calls_of_host = calls[ops.rows.host[calls] == host]
            calls_of_host = calls_of_host[np.argsort(ops.rows.start[calls_of_host], kind="stable")]
            last = np.append(ops.rows.end[calls_of_host], AT_END)
            following = np.searchsorted(ops.rows.start[calls_of_host], begun)
            of_host = self.host[self.begin] == host
            there |= of_host & (last[following] <= ended) & (following < len(calls_of_host))
        return there

    def _by_tensors(self) -> None:
        """Roles by the program's own tensors, which are sure."""
        tensors = self.tensors
        if not len(tensors):
            return
        memory = pd.Index(self.memories).get_indexer(pd.Index(self.texts[tensors.memory]))
        rows = np.flatnonzero(memory >= 0)
        block = _last_at(
            (self.memory[self.begin], self.address[self.begin], self.time[self.begin]),
            (memory[rows].astype(np.int64), tensors.address[rows], tensors.time[rows]),
        )
        ended = np.append(self.time, AT_END)[self.end]
        at_end = tensors.time[rows] == AT_END
        there = (block >= 0) & np.where(
            at_end, self.end[block] == len(self.time), tensors.time[rows] < ended[block]
        )
        role = np.array([_NUMBER.get(text, _UNKNOWN) for text in self.texts], np.int64)
        # Those at the end last: a gradient may become a parameter's memory, not the other way.
        order = np.argsort(at_end[there], kind="stable")
        self.role[block[there][order]] = role[tensors.role[rows[there][order]]]

    def before(self, memory: int) -> Int64s:
        """Bytes of the tensors, by role, that were in a memory when the recording began."""
        tensors = self.tensors
        result = np.zeros(len(IN_USE), np.int64)
        named = np.flatnonzero(self.texts == self.memories[memory])
        if not len(named):
            return result
        addresses = self.address[self.memory == memory]
        for row in before_recording(tensors, int(named[0]), addresses).tolist():
            role = self.texts[tensors.role[row]]
            result[_NUMBER.get(role, _UNKNOWN)] += tensors.size[row]
        return result


def _kinds(*columns: npt.NDArray[np.generic]) -> Int64s:
    """Equal numbers for rows that are equal in all columns."""
    kind = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        code, distinct = pd.factorize(values)
        kind = pd.factorize(kind * (len(distinct) + 1) + code)[0].astype(np.int64)
    return kind


def _again(kind: Int64s, asked: Bools, phase: Int64s) -> Bools:
    """Rows of `asked` of whose kind there are some in several phases."""
    rows = np.flatnonzero(asked)
    several = pd.Series(phase[rows]).groupby(kind[rows]).transform("nunique").to_numpy() > 1
    result = np.zeros(len(kind), np.bool_)
    result[rows] = several
    return result


_Placed = tuple[Int64s, Int64s, Int64s]


def _last_at(have: _Placed, ask: _Placed) -> Int64s:
    """Position of the last row of the same memory and address that is not later, -1; columns are
    memory, address and time.
    """
    memory, address, time = (np.concatenate(pair) for pair in zip(have, ask, strict=True))
    is_query = np.arange(len(memory)) >= len(have[0])
    order = np.lexsort((is_query, time, address, memory))
    position = np.where(is_query[order], -1, np.arange(len(order)))
    last = np.maximum.accumulate(position) if len(position) else position
    candidate = order[np.maximum(last, 0)]
    same = (
        (last >= 0) & (memory[candidate] == memory[order]) & (address[candidate] == address[order])
    )
    result = np.full(len(memory), -1, np.int64)
    result[order] = np.where(same, candidate, -1)
    return result[is_query]


class _Allocator:
    """The bytes in use of one allocator by role.

    Attributes
    ----------
    tells : bool
        Whether some role but the unknown one is known.
    """

    def __init__(self, blocks: _Blocks, memory: int, timeline: pd.DataFrame) -> None:
        self._blocks = blocks
        rows = np.flatnonzero(blocks.memory == memory)
        has_total = timeline["in_use_bytes"].iloc[rows].notna().to_numpy(np.bool_)
        self._events = rows[has_total]
        self._rows = timeline.iloc[self._events]
        self._in_use = self._rows["in_use_bytes"].to_numpy(np.int64)
        # Of an allocator that states its highest use, what is free is the rest of its limit.
        free = self._rows["free_bytes"].astype("Int64")
        self._reserved = free.mask(self._rows["lifetime_peak_bytes"].notna())
        self._blocks_here = np.flatnonzero(blocks.memory[blocks.begin] == memory)
        self._role = blocks.role[self._blocks_here]
        self._before = blocks.before(memory)
        # Memory in use and in none of the blocks was there when the recording began.
        earlier = int((self._in_use - self._bytes_of(self._role >= 0)).min(initial=_LARGEST))
        if earlier < 0:
            # The totals contradict the blocks.
            self._role = np.full(len(self._blocks_here), _UNKNOWN)
        if earlier < self._before.sum():
            # Tensors of a memory that this allocator does not count.
            self._before = np.zeros_like(self._before)
        is_known = self._role != _UNKNOWN
        self.tells = bool(len(self._events)) and bool(is_known.any() or self._before.any())

    def _bytes_of(self, blocks: Bools) -> Int64s:
        """By event: bytes of those of the allocator's blocks that are there after it."""
        change = np.zeros(len(self._blocks.address) + 1, np.int64)
        counted = self._blocks_here[blocks]
        np.add.at(change, self._blocks.begin[counted], self._blocks.size[counted])
        np.add.at(change, self._blocks.end[counted], -self._blocks.size[counted])
        return np.asarray(np.cumsum(change)[self._events])

    def _rest(self) -> Int64s:
        """By event: bytes in use of which the role is unknown."""
        with_role = self._bytes_of(self._role != _UNKNOWN) + int(self._before.sum())
        return np.asarray(self._in_use - with_role)

    def _of_roles(self, moments: Int64s) -> Int64s:
        """int64[roles, moments]: bytes of each role after some events."""
        result = np.zeros((len(IN_USE), len(moments)), np.int64)
        for number in range(len(IN_USE)):
            result[number] = self._bytes_of(self._role == number)[moments] + self._before[number]
        result[_UNKNOWN] = self._rest()[moments]
        return result

    def peak(self) -> pd.DataFrame:
        """The rows of `p.memory.roles` of this allocator."""
        order = self._rows["order"].to_numpy(np.int64)
        equal = np.flatnonzero(self._in_use == self._in_use.max())
        # The peak of `memory.summary`.
        last = int(equal[np.argmax(order[equal])])
        sizes = self._of_roles(np.array([last]))[:, 0]
        event, blocks = self._events[last], self._blocks
        there = (blocks.begin[self._blocks_here] <= event) & (blocks.end[self._blocks_here] > event)
        count = np.bincount(self._role[there], minlength=len(IN_USE))
        table = pd.DataFrame(
            {
                "role": IN_USE,
                "bytes": sizes,
                "percent": 100 * sizes / max(int(self._in_use[last]), 1),
                "blocks": pd.array(count, "Int64"),
            }
        )
        unlisted = self._before > 0
        unlisted[_UNKNOWN] = sizes[_UNKNOWN] != int(
            blocks.size[self._blocks_here][there & (self._role == _UNKNOWN)].sum()
        )
        table.loc[unlisted, "blocks"] = pd.NA
        table = table[table["bytes"] > 0]
        is_unknown = table["role"] == UNKNOWN
        table = pd.concat(
            [
                table[~is_unknown].sort_values("bytes", ascending=False, kind="stable"),
                table[is_unknown],
            ]
        )
        free = self._reserved.iloc[last]
        if not pd.isna(free):
            reserved = pd.DataFrame(
                {"role": [RESERVED], "bytes": [int(free)], "percent": [np.nan]}
            ).assign(blocks=pd.array([pd.NA], "Int64"))
            table = pd.concat([table, reserved])
        return table

    def over_time(self) -> pd.DataFrame:
        """The rows of `p.memory.roles_over_time` of this allocator."""
        drawn = sample(self._in_use.astype(np.float64))
        sizes = self._of_roles(drawn)
        rows = self._rows.iloc[drawn]
        columns = {column(role): sizes[number] for number, role in enumerate(IN_USE)}
        columns[column(RESERVED)] = self._reserved.iloc[drawn].array
        return pd.DataFrame(
            {"time_ms": rows["time_ms"].to_numpy(), "step": rows["step"].array, **columns}
        )
