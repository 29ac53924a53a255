"""Roles of the blocks that ops of TensorFlow allocated.

The allocator names the op that allocated a block. Which op let go of it is known where ops were
recorded on the threads that run them, as on the CPU; of ops on a GPU, TensorFlow records there only
what they allocate. There the order of the allocations of a step says which blocks were there
when its backward pass began.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import HostOps
from nbprof.core.memory_roles import (
    ACTIVATIONS,
    BUFFERS,
    COMMUNICATION,
    GRADIENTS,
    IN_USE,
    INPUTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    TEMPORARIES,
    UNKNOWN,
)
from nbprof.core.trace import Events, Int64s

Bools = npt.NDArray[np.bool_]


class Part(IntEnum):
    """The part of a step that an op belongs to."""

    NONE = -1
    FORWARD = 0
    INPUT = 1
    BACKWARD = 2
    OPTIMIZER = 3
    COLLECTIVE = 4
    COPY = 5
    """Not the result of an op, but the copy of one on another device."""


class _Result(IntEnum):
    """Kinds of results of ops of the backward pass."""

    OTHER = 0
    OF_PARAMETER = 1
    """The gradient of a filter or bias."""
    OF_ACTIVATION = 2
    """The gradient of what a layer got, or a copy in another layout."""


_BACKWARD = re.compile(r"gradient_tape|gradients(?:_\d+)?")
_NO_SCOPE = re.compile(
    r"(?:Stateful)?PartitionedCall(?:_\d+)?|replica_\d+|ArithmeticOptimizer|ConstantFolding"
)
"""Parts of names that are no scopes of the program."""
_FUNCTION = re.compile(r"__(?:inference|forward|backward)_")
_OPTIMIZER = re.compile(
    r"(?:sgd|gradientdescent|adam|adamw|adamweightdecay|adamax|nadam|adagrad|adadelta"
    r"|adafactor|rmsprop|ftrl|lion|lamb|muon|loss_scale_optimizer)(?:_\d+)*",
    re.IGNORECASE,
)
_UPDATE = re.compile(r"(?:Resource|Sparse)*Apply[A-Z]\w*")
_ASSIGNS = re.compile(rf"Assign\w*|ResourceScatter\w*|{_UPDATE.pattern}")
_COLLECTIVE = re.compile(r"(?:Collective|Nccl|Horovod)[A-Z]\w*")
_ITERATOR = re.compile(r"(?:\A|/)(?:MultiDevice)?IteratorGetNext")
_SUM = re.compile(r"AddN(?:_\d+)?")
"""The sum of gradients of a variable that several ops read; it is in no scope."""
_LAYOUT = re.compile(r"-\d.*LayoutOptimizer\Z")
_RECEIVED = "SameWorkerRecvDone"
"""In place of an op, the allocator names this for copies between devices."""
_GRADIENT_OP = re.compile(r"\w*Grad(?:V\d)?|\w*Backprop\w*|\w*MatMul(?:V\d)?")
"""Ops that need the gradient of the loss: they run when the backward pass has begun."""
_OF_PARAMETER = re.compile(r"\w*BackpropFilter(?:V\d)?|BiasAddGrad(?:V\d)?")
_OF_ACTIVATION = re.compile(
    r"\w*BackpropInput(?:V\d)?|\w*PoolGrad(?:V\d)?"
    r"|(?:Relu|Relu6|LeakyRelu|Elu|Selu|Sigmoid|Tanh|Softplus|Softsign)Grad"
)
_ALWAYS_CHEAP = ("ReadVariableOp", "Identity", "Const", "NoOp", "VarHandleOp")
"""Types of ops that are recorded only where all ops are."""


class Op(NamedTuple):
    """An op, by its name."""

    part: Part = Part.FORWARD
    path: str = ""
    """The name without the parts that are no scopes, in the forward pass and the backward."""
    result: _Result = _Result.OTHER
    needs_loss: bool = False
    assigns: bool = False

    @property
    def scope(self) -> str:
        """The scope of the op."""
        return self.path.rpartition("/")[0]

    @property
    def outer(self) -> str:
        """The scope around that one: of `dense/MatMul/MatMul_1` in the backward pass, the layer."""
        return self.scope.rpartition("/")[0]


@lru_cache(maxsize=1 << 16)
def parse(name: str) -> Op:
    """Read the name of an op; the call of a function is part of nothing."""
    if name == _RECEIVED:
        return Op(Part.COPY, name)
    names = [each for each in name.split("/") if not _NO_SCOPE.fullmatch(each)]
    scopes = [each.removesuffix("_grad") for each in names if not _BACKWARD.fullmatch(each)]
    path = "/".join(scopes)
    if not path or _FUNCTION.match(path):
        return Op(Part.NONE)
    base = re.sub(r"_\d+\Z", "", scopes[-1])
    if len(scopes) < len(names):
        return _backward(path, base)
    if _COLLECTIVE.fullmatch(base):
        return Op(Part.COLLECTIVE, path)
    if _ITERATOR.search(path):
        return Op(Part.INPUT, path)
    if _UPDATE.fullmatch(base) or any(map(_OPTIMIZER.fullmatch, scopes[:-1])):
        return Op(Part.OPTIMIZER, path, assigns=bool(_ASSIGNS.fullmatch(base)))
    if _SUM.fullmatch(path):
        return Op(Part.BACKWARD, path)
    return Op(Part.FORWARD, path, assigns=bool(_ASSIGNS.fullmatch(base)))


def _backward(path: str, base: str) -> Op:
    if _LAYOUT.search(base):
        return Op(Part.BACKWARD, path, _Result.OF_ACTIVATION)
    result = _Result.OTHER
    if _OF_PARAMETER.fullmatch(base):
        result = _Result.OF_PARAMETER
    elif _OF_ACTIVATION.fullmatch(base):
        result = _Result.OF_ACTIVATION
    return Op(Part.BACKWARD, path, result, needs_loss=bool(_GRADIENT_OP.fullmatch(base)))


class Lifetimes(NamedTuple):
    """Blocks of allocators; events are rows of the timeline, in the order of time."""

    memory: Int64s
    """By block, the number of its allocator."""
    begin: Int64s
    """By block, the event that allocated it."""
    end: Int64s
    """By block, the event that freed it; the number of events where there is none."""


def roles(
    blocks: Lifetimes, activity: act.Activity, timeline: pd.DataFrame, events: Events
) -> Int64s:
    """Indices into `IN_USE`, by block.

    Parameters
    ----------
    blocks : Lifetimes
    activity : Activity
    timeline : DataFrame
        Of `nbprof.analysis.memory.memory.timeline`.
    events : Events
        Those of the trace.
    """
    return _Roles(blocks, activity, timeline, events).by_block()


def as_variables(role: Int64s, blocks: Lifetimes, timeline: pd.DataFrame) -> Int64s:
    """`role`, with those of the earlier memory of variables whose memory at the end is known.

    An op that assigns to a variable may give it new memory each time.
    """
    kind = _kinds(blocks, timeline)
    ops = timeline["op"].to_numpy(object)[blocks.begin]
    assigns = np.array([parse(op).assigns for op in ops.tolist()], np.bool_)
    is_known = np.isin(
        role, [IN_USE.index(name) for name in (PARAMETERS, BUFFERS, OPTIMIZER_STATE)]
    )
    by_kind = pd.Series(role).where(is_known & assigns).groupby(kind)
    least, largest = by_kind.transform("min"), by_kind.transform("max")
    earlier = (role == IN_USE.index(UNKNOWN)) & (least == largest).to_numpy(np.bool_)
    result = role.copy()
    result[earlier] = least[earlier].to_numpy(np.int64)
    return result


def _kinds(blocks: Lifetimes, timeline: pd.DataFrame) -> Int64s:
    """Equal numbers for blocks of the same allocator, op, region, type and shape."""
    columns = timeline[["op", "region_type", "data_type", "shape"]].iloc[blocks.begin]
    columns = columns.assign(memory=blocks.memory)
    return columns.groupby(list(columns), sort=False).ngroup().to_numpy().astype(np.int64)


class _Threads:
    """Runs of ops on the threads of the host, without the stages of input pipelines."""

    def __init__(self, activity: act.Activity, events: Events) -> None:
        table = activity.host_ops
        rows = np.flatnonzero(~table.dataset & (table.event >= 0))
        self.rows: HostOps = table.take(rows[np.argsort(table.event[rows], kind="stable")])
        self._events = events
        self._row_of_event = np.full(len(events) + 1, -1, np.int64)
        self._row_of_event[self.rows.event] = np.arange(len(self.rows))
        cheap = [activity.types.code(name) for name in _ALWAYS_CHEAP]
        self.has_all: Bools = np.zeros(len(activity.hosts), np.bool_)
        """By host: cheap ops are recorded as well."""
        is_cheap = np.isin(self.rows.type, cheap) & ~self.rows.in_dataset & ~self.rows.eager
        self.has_all[self.rows.host[is_cheap]] = True

    def around(self, event: Int64s) -> Int64s:
        """Row of the innermost op around each event, -1."""
        parent = self._events.parent[event]
        while True:
            outside = np.flatnonzero((parent >= 0) & (self._row_of_event[parent] < 0))
            if not len(outside):
                return self._row_of_event[parent]
            parent[outside] = self._events.parent[parent[outside]]

    def before(self, event: Int64s) -> Int64s:
        """Row of the op around each event, else of the last one that ended before it on its thread
        in the same call; -1 for none.
        """
        result = self.around(event)
        last = np.searchsorted(self.rows.event, event) - 1
        rows = np.flatnonzero((result < 0) & (last >= 0))
        op_event = self.rows.event[last[rows]]
        same = self._events.lane[op_event] == self._events.lane[event[rows]]
        same &= self._events.parent[op_event] == self._events.parent[event[rows]]
        same &= self._events.end[op_event] <= self._events.start[event[rows]]
        result[rows[same]] = last[rows[same]]
        return result


class _Roles:
    """The blocks with the ops that allocated and freed them."""

    def __init__(
        self, blocks: Lifetimes, activity: act.Activity, timeline: pd.DataFrame, events: Events
    ) -> None:
        self._blocks = blocks
        self._activity = activity
        self._timeline = timeline
        self._threads = threads = _Threads(activity, events)
        self._count = len(timeline)
        event = timeline["order"].to_numpy(np.int64)
        self.is_freed = blocks.end < self._count
        tagged = activity.tagged_calls
        # When all tables are there, so are the names of their ops.
        names = np.append(activity.ops.values.astype(object), "")
        allocated_around = threads.around(event[blocks.begin])
        self._around = np.append(names[threads.rows.op], "")[allocated_around]
        self._in_pipeline = np.append(threads.rows.in_dataset, False)[allocated_around]
        self._op_names = timeline["op"].to_numpy(object)[blocks.begin]
        freed_around = np.full(len(blocks.begin), -1)
        freed_after = freed_around.copy()
        freeing = event[blocks.end[self.is_freed]]
        freed_around[self.is_freed] = threads.around(freeing)
        freed_after[self.is_freed] = threads.before(freeing)
        # Ops of eager code have the names of their types: the program decides what frees.
        freeing_op = np.where(threads.rows.eager, "", names[threads.rows.op])
        freed_by = np.append(freeing_op, "")[freed_after]
        freed_by[~self._is_recorded()[blocks.memory]] = ""
        # Deallocations that name an op happened while it ran.
        row = np.searchsorted(tagged.event, freeing)
        names_op = np.append(tagged.event, -1)[row] == freeing
        named = np.where(names_op, names[np.append(tagged.op, -1)[row]], "")
        freed_by[self.is_freed] = np.where(named != "", named, freed_by[self.is_freed])
        in_same_run = (allocated_around >= 0) & (allocated_around == freed_around)
        in_same_run[self.is_freed] |= (named != "") & (named == self._op_names[self.is_freed])
        self.in_one_op: Bools = in_same_run
        code, unique = pd.factorize(np.concatenate([self._op_names, freed_by]))
        self._ops = [*map(parse, unique.tolist())]
        self._op = code[: len(blocks.begin)]
        self._kind = _kinds(blocks, timeline)
        part = np.array([op.part for op in self._ops], np.int64)
        self.part: Int64s = part[self._op]
        self.freed_by: Int64s = part[code[len(blocks.begin) :]]
        group = np.append(timeline["group"].to_numpy(np.int64, na_value=-1), -2)
        self.same_step: Bools = (group[blocks.begin] == group[blocks.end]) & (
            group[blocks.begin] >= 0
        )
        self._step = pd.factorize(blocks.memory * (int(group.max()) + 2) + group[blocks.begin])[0]

    def _is_recorded(self) -> Bools:
        """By allocator: all ops that allocate there are recorded on the host's threads."""
        region = self._timeline["region_type"].to_numpy(object)[self._blocks.begin]
        host = self._timeline["host"].to_numpy(np.int64)[self._blocks.begin]
        by_op = np.isin(region, ("output", "temp"))
        missing = by_op & (self._around != self._op_names)
        missing |= ~self._threads.has_all[host]
        recorded = np.ones(int(self._blocks.memory.max(initial=-1)) + 1, np.bool_)
        recorded[self._blocks.memory[missing]] = False
        return recorded

    def by_block(self) -> Int64s:
        """Indices into `IN_USE`."""
        role = np.full(len(self._op), IN_USE.index(UNKNOWN), np.int64)
        for name, blocks in (
            (TEMPORARIES, self._temporaries),
            (ACTIVATIONS, self._activations),
            (GRADIENTS, self._gradients),
            (INPUTS, self._inputs & ~self.in_one_op),
            (COMMUNICATION, (self.part == Part.COLLECTIVE) & ~self.in_one_op),
        ):
            role[blocks] = IN_USE.index(name)
        return self._unfreed_as_others(role)

    def _of_ops(self, attribute: str) -> npt.NDArray[np.object_]:
        """An attribute of the op that allocated each block."""
        return np.array([getattr(op, attribute) for op in self._ops], object)[self._op]

    @cached_property
    def _inputs(self) -> Bools:
        """Blocks that an input pipeline allocated, or that got a copy of what it made."""
        from_iterator = np.array([bool(_ITERATOR.search(name)) for name in self._around], np.bool_)
        from_iterator |= self._in_pipeline | (self.part == Part.INPUT)
        # Not all copies are recorded in the op that sends them. Those like ones that are known come
        # from there, too, if all known ones do.
        is_copy = self.part == Part.COPY
        is_known = is_copy & (self._around != "")
        by_kind = pd.Series(np.where(is_known, from_iterator, np.nan)).groupby(self._kind)
        always = (by_kind.transform("min") == 1).to_numpy(np.bool_)
        return np.asarray(from_iterator | (is_copy & always), np.bool_)

    @cached_property
    def _is_forward(self) -> Bools:
        is_forward = (self.part == Part.FORWARD) & ~self._inputs
        return np.asarray(is_forward & ~self._of_ops("assigns").astype(np.bool_), np.bool_)

    @cached_property
    def _borders(self) -> tuple[Int64s, Int64s]:
        """By block, of its step and allocator: an event until which the forward pass runs, -1, and
        one with which the backward pass has begun, `_count`.

        Only layers count whose gradient needs that of the loss: until all have run, there is none,
        where a step has one pass of each.
        """
        begin, step = self._blocks.begin, self._step
        forward = self._is_forward & self._in_scope_of([op for op in self._all if op.needs_loss])
        scope = pd.factorize(self._of_ops("scope"))[0]
        firsts = pd.Series(begin[forward]).groupby([step[forward], scope[forward]]).min()
        last_layer = np.full(int(step.max(initial=-1)) + 1, -1)
        steps = firsts.index.get_level_values(0).to_numpy(np.int64)
        np.maximum.at(last_layer, steps, firsts.to_numpy())
        needs_loss = self._of_ops("needs_loss").astype(np.bool_)
        late = needs_loss & (begin > last_layer[step])
        first, begun = np.full((2, len(last_layer)), self._count)
        np.minimum.at(first, step[needs_loss], begin[needs_loss])
        np.minimum.at(begun, step[late], begin[late])
        return np.minimum(last_layer, first)[step], begun[step]

    @cached_property
    def _all(self) -> list[Op]:
        """All ops of the trace."""
        activity = self._activity
        tables = activity.host_ops, activity.device_ops, activity.cpu_ops
        used = np.unique(np.concatenate([table.op.astype(np.int64) for table in tables]))
        return [*self._ops, *map(parse, map(str, activity.ops.values[used]))]

    def _in_scope_of(self, backward: list[Op]) -> Bools:
        """Blocks of ops in whose scope there are some of these ops of the backward pass."""
        scopes = {scope for op in backward for scope in (op.scope, op.outer)} - {""}
        in_scope = [op.scope in scopes or op.path in scopes for op in self._ops]
        return np.array(in_scope, np.bool_)[self._op]

    @cached_property
    def _is_in_forward(self) -> Bools:
        """Blocks that were freed while the forward pass ran."""
        return np.asarray(self.same_step & (self._blocks.end < self._borders[0]), np.bool_)

    @cached_property
    def _is_saved(self) -> Bools:
        """Blocks that were there before the backward pass began, and after."""
        _, begun = self._borders
        begin, end = self._blocks.begin, self._blocks.end
        return np.asarray(self.same_step & (begin < begun) & (end > begun), np.bool_)

    @property
    def _temporaries(self) -> Bools:
        is_forward, is_backward = self._is_forward, self.part == Part.BACKWARD
        freed_by, is_unknown = self.freed_by, self.freed_by == Part.NONE
        _, begun = self._borders
        of_forward = (is_forward | is_backward) & self._is_in_forward & is_unknown
        of_forward |= is_forward & self.same_step & (freed_by == Part.FORWARD)
        if not {Part.BACKWARD, Part.OPTIMIZER} & {op.part for op in self._all}:
            in_scope = self._of_ops("scope") != ""
            of_forward |= is_forward & in_scope & self.same_step & is_unknown
        of_backward = is_backward & self.same_step & (freed_by == Part.BACKWARD)
        of_activation = self._of_ops("result") == _Result.OF_ACTIVATION
        begun_before = self.same_step & (self._blocks.begin >= begun)
        of_backward |= is_backward & begun_before & is_unknown & of_activation
        of_optimizer = (self.part == Part.OPTIMIZER) & self.same_step
        of_optimizer &= ~self._of_ops("assigns").astype(np.bool_)
        of_optimizer &= is_unknown | (freed_by == Part.OPTIMIZER)
        return np.asarray(self.in_one_op | of_forward | of_backward | of_optimizer, np.bool_)

    @property
    def _activations(self) -> Bools:
        is_forward, is_backward = self._is_forward, self.part == Part.BACKWARD
        is_unknown = self.freed_by == Part.NONE
        freed_by_backward = self.same_step & (self.freed_by == Part.BACKWARD)
        saved = is_forward & freed_by_backward
        has_gradient = self._in_scope_of([op for op in self._all if op.part == Part.BACKWARD])
        saved |= is_forward & is_unknown & self._is_saved & has_gradient
        # Masks and copies that optimizers of graphs take from the backward pass for the forward.
        early = is_backward & self._is_saved & (self._blocks.begin < self._borders[0])
        saved |= early & (is_unknown | freed_by_backward)
        return np.asarray(saved & ~self.in_one_op, np.bool_)

    @property
    def _gradients(self) -> Bools:
        is_backward = self.part == Part.BACKWARD
        applied = is_backward & self.same_step & (self.freed_by == Part.OPTIMIZER)
        of_parameter = self._of_ops("result") == _Result.OF_PARAMETER
        by_op = of_parameter & self.same_step & (self.freed_by == Part.NONE)
        return np.asarray((applied | by_op) & ~self.in_one_op, np.bool_)

    def _unfreed_as_others(self, role: Int64s) -> Int64s:
        """Activations and gradients that nothing freed until the recording ended: blocks of which
        all equal ones before them were.
        """
        by_kind = pd.Series(role).where(self.is_freed).groupby(self._kind)
        least, largest = by_kind.transform("min"), by_kind.transform("max")
        alike = ~self.is_freed & (least == largest).to_numpy(np.bool_)
        alike &= least.isin([IN_USE.index(ACTIVATIONS), IN_USE.index(GRADIENTS)]).to_numpy()
        result = role.copy()
        result[alike] = least[alike].to_numpy(np.int64)
        return result
