"""Runs of framework ops on the host threads of an XSpace file.

An event is an op whose name is that of one (`scope/name:Type`, `Iterator::…`). Events that are
called otherwise, but state in `tf_op` which op they served, are no ops: the allocator's, and the
driver's calls on AMD. XProf counts them too, most of them as ops of 0 µs.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from nbprof.activity import activity as act
from nbprof.activity.tables import HostOps, located
from nbprof.core.factorize import used_codes
from nbprof.core.receipt import Note
from nbprof.core.trace import Int32s, Int64s
from nbprof.dialects.lookups import codes_by_name, names_that
from nbprof.dialects.xplane import notes, opnames
from nbprof.dialects.xplane.grouping import CALLED_BY_DATASET, inherit, of_calls
from nbprof.dialects.xplane.placed import Flags, Placed
from nbprof.dialects.xplane.programs import EAGER_CALL
from nbprof.hlo.category import CALLS_PYTHON
from nbprof.hlo.programs import Programs


def host_ops(placed: Placed, activity: act.Activity) -> HostOps:
    """The table `host_ops` without the stages of input pipelines."""
    trace = placed.trace
    events = trace.events
    used = np.zeros(len(trace.names), np.bool_)
    used[events.name[placed.on_host]] = True
    op_of, type_of = np.full((2, len(trace.names)), -1, np.int32)
    dataset_name = np.zeros(len(trace.names), np.bool_)
    for code in np.flatnonzero(used).tolist():
        parsed = opnames.parse(trace.names[code])
        if parsed.category:
            op_of[code] = activity.ops.code(parsed.name)
            type_of[code] = activity.types.code(parsed.type)
            dataset_name[code] = parsed.category == "dataset"
    rows = np.flatnonzero((op_of >= 0)[events.name] & placed.on_host)
    name = events.name[rows]
    dataset = dataset_name[name]
    return _table(
        placed, rows, op_of[name], type_of[name], dataset, _eager(placed)[rows] & ~dataset
    )


def tagged_calls(placed: Placed, activity: act.Activity) -> HostOps:
    """The table `tagged_calls`."""
    trace = placed.trace
    text = trace.text_arg("tf_op")
    rows = np.flatnonzero((text >= 0) & placed.on_host)
    used, code = used_codes(text[rows], len(trace.strings))
    texts = trace.texts(used)
    parsed = list(map(opnames.parse, texts))
    op = activity.ops.encode(name.name for name in parsed)
    kind = activity.types.encode(name.type for name in parsed)
    has_text = names_that(bool, texts)[code]
    rows, code = rows[has_text], code[has_text]
    no = np.zeros(len(rows), np.bool_)
    return _table(placed, rows, op[code], kind[code], no, no)


def python_calls(placed: Placed, activity: act.Activity, programs: Programs) -> HostOps:
    """The table `python_calls`: host events of custom calls into Python of programs in the file."""
    trace = placed.trace
    called: set[str] = set()
    for module in trace.modules:
        # Most programs call none, which need not be read to know.
        if b"python" not in module.data:
            continue
        program = programs.program(module.host, module.ident)
        if program is None:
            continue
        for name, opcode in zip(program.names, program.opcodes, strict=True):
            if opcode != "custom-call":
                continue
            instruction = programs.find(module.host, module.ident, name)
            if instruction is not None and CALLS_PYTHON.search(instruction.target):
                called.add(instruction.name)
    calls_python = names_that(called.__contains__, trace.names)[trace.events.name]
    rows = np.flatnonzero(calls_python & placed.on_host)
    code = trace.events.name[rows]
    op = codes_by_name(trace, code, activity.ops.code)[code]
    kind = np.full(len(rows), activity.types.code("custom-call"), np.int32)
    no = np.zeros(len(rows), np.bool_)
    return _table(placed, rows, op, kind, no, no)


def _table(
    placed: Placed,
    rows: Int64s,
    op: Int32s,
    kind: Int32s,
    dataset: npt.NDArray[np.bool_],
    eager: npt.NDArray[np.bool_],
) -> HostOps:
    events = placed.trace.events
    return HostOps(
        **located(events, rows, placed.host[rows], lane=events.lane[rows]),
        op=op,
        type=kind,
        dataset=dataset,
        in_dataset=_called_by_dataset(placed)[rows],
        eager=eager,
    )


def _called_by_dataset(placed: Placed) -> Flags:
    """bool[events]: events in functions that tf.data calls.

    tf.data waits on its own thread while threads of a pool run the ops: by the executor, whose
    events state the step id of the call.
    """
    trace = placed.trace
    events = trace.events
    calls = np.flatnonzero(placed.named(CALLED_BY_DATASET)[events.name])
    if not len(calls):
        return np.zeros(len(events), np.bool_)
    runs = np.flatnonzero(placed.named(_EXECUTOR)[events.name])
    runs = runs[of_calls(trace, placed.host.astype(np.int64), calls, runs)]
    inside = np.full(len(events), -1, np.int64)
    inside[np.concatenate([calls, runs])] = 1
    return np.asarray(inherit(events.parent, events.depth, inside) == 1, np.bool_)


_EXECUTOR = "ExecutorState::Process"
# Functions, and what builds a pipeline or hands on its elements.
_NO_OP = re.compile(r"__|MakeIterator|Iterator|\w*Dataset(V\d+)?\Z")


def eager_calls(placed: Placed, activity: act.Activity) -> tuple[int, int]:
    """Calls of single ops of eager code that left no op: how many, and their time in ps.

    TensorFlow today records the call alone (`EagerLocalExecute: MatMul`), and the op of those in
    functions. Where most of a program is eager, the table of ops holds next to nothing of it.
    """
    bare = _bare_calls(placed, activity)
    return len(bare), int(placed.trace.events.duration[bare].sum())


def eager_runs(placed: Placed, activity: act.Activity) -> HostOps:
    """These calls, each as a run of its op."""
    events = placed.trace.events
    rows = _bare_calls(placed, activity)
    called = events.name[rows]
    op = codes_by_name(placed.trace, called, lambda name: activity.ops.code(_eager_op(name)))
    kind = codes_by_name(placed.trace, called, lambda name: activity.types.code(_eager_op(name)))
    spans = located(events, rows, placed.host[rows].astype(np.int32), lane=events.lane[rows])
    return HostOps(
        **spans,
        op=op[called],
        type=kind[called],
        dataset=False,
        in_dataset=False,
        eager=True,
    )


def _eager_op(name: str) -> str:
    """The op that a call runs: `MatMul` of "EagerLocalExecute: MatMul"."""
    return name.removeprefix(EAGER_CALL)


def _runs_op(name: str) -> bool:
    return name.startswith(EAGER_CALL) and not _NO_OP.match(_eager_op(name))


def _bare_calls(placed: Placed, activity: act.Activity) -> Int64s:
    """Events of calls of single ops in which no op was recorded."""
    events = placed.trace.events
    single = names_that(_runs_op, placed.trace.names)
    rows = np.flatnonzero(single[events.name] & placed.on_host)
    if not len(rows):
        return rows
    around = np.zeros(len(events), np.bool_)
    above = events.parent[activity.host_ops.event]
    while len(above := above[above >= 0]):
        above = above[~around[above]]
        around[above] = True
        above = events.parent[above]
    return np.asarray(rows[~around[rows]], np.int64)


def eager_notes(activity: act.Activity) -> list[Note]:
    """Notes on eager calls, if there are more than ops."""
    count, _ = activity.eager_calls
    if count <= len(activity.host_ops):
        return []
    return [notes.eager_calls(count)]


def _eager(placed: Placed) -> npt.NDArray[np.bool_]:
    """Eager ops by `is_eager`, else those whose nearest EagerKernelExecute runs no function."""
    trace = placed.trace
    if "is_eager" in trace.args:
        return trace.above("is_eager", 0)
    events = trace.events
    execute = np.asarray(trace.names == "EagerKernelExecute", np.bool_)
    if not execute.any():
        return np.zeros(len(events), np.bool_)
    is_function = np.where(execute[events.name], trace.arg("is_func", 0), -1)
    return np.asarray(
        inherit(events.parent, events.depth, is_function.astype(np.int64)) == 0, np.bool_
    )
