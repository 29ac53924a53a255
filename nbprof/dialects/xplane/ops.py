"""Runs of framework ops on the GPUs of an XSpace file: kernels count for the launching op.

For a kernel of a compiled XLA program this is the op that the compiler noted for its HLO op
(`hlo_op`, looked up in the program; in a CUDA graph of many ops, the one that the kernel is named
after). Otherwise it is the stated `tf_op` (`level 0` in files of TensorFlow 2.3/2.4), or the op on
the host around the launching call.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import DeviceOps, OpParts
from nbprof.core.factorize import unique_rows, used_codes
from nbprof.core.trace import Int64s
from nbprof.dialects import tensorcores
from nbprof.dialects.lookups import names_that
from nbprof.dialects.xplane import opnames
from nbprof.dialects.xplane.opnames import OpName
from nbprof.dialects.xplane.placed import Placed
from nbprof.hlo.hlo import Instruction, Program
from nbprof.hlo.programs import Programs

_GRAPH = "command_buffer"
_SIGN = re.compile(r"[.-]")
_COSTS = ("flops", "normalized_flops", "xprof_flops", "bytes", "memory_bytes")
_FILLS = re.compile(r"memcpy|memset", re.IGNORECASE)


@dataclass(frozen=True)
class HloOp:
    """An op of a compiled program that ran; `instruction` is None if it is not in the file."""

    host: int
    program: int
    name: str
    instruction: Instruction | None

    @property
    def text(self) -> str:
        """The framework's op as `scope/name:Type`, else the name in the program."""
        return self.framework_op or self.name

    @property
    def framework_op(self) -> str:
        """The framework's op that the program states; '' if it is not in the file."""
        return self.instruction.framework_op if self.instruction else ""

    @property
    def op(self) -> OpName:
        """The framework's op taken apart."""
        if not self.framework_op:
            return OpName("", self.name, "")
        return opnames.parse(self.framework_op)


class OpTexts:
    """The op of each event of a GPU.

    Attributes
    ----------
    codes : int64[events]
        -1 where no op is known. Up to the number of strings a code is one of those; up to the
        number of names more, a name of an event; then an HLO op.
    """

    def __init__(self, placed: Placed, activity: act.Activity, programs: Programs) -> None:
        trace = placed.trace
        self._trace = trace
        self._first_hlo = len(trace.strings) + len(trace.names)
        self._hlo: list[HloOp] = []
        self.codes = np.full(len(trace.events), -1, np.int64)
        for key in ("tf_op", "level 0"):
            if key in trace.args:
                codes = _not_empty(placed, key)
                np.copyto(self.codes, codes, where=self.codes < 0)
        self.programs = programs
        if "hlo_op" in trace.args:
            self._look_up(placed, programs)
        bare = placed.on_gpu & (self.codes < 0) & trace.above("kernel_details", -1, text=True)
        if bare.any():
            launches = activity.launches.frame()
            with_op = launches[(launches["target"] >= 0) & (launches["op"] >= 0)]
            target = with_op["target"].to_numpy(np.int64)
            fits = bare[target]
            self.codes[target[fits]] = (
                len(trace.strings) + trace.events.name[with_op["op"].to_numpy(np.int64)[fits]]
            )

    def _look_up(self, placed: Placed, programs: Programs) -> None:
        """Finds the op of events of compiled programs; their `tf_op` only names some XLA module."""
        trace = self._trace
        hlo_op = _not_empty(placed, "hlo_op")
        rows = np.flatnonzero((hlo_op >= 0) & placed.on_gpu)
        if not len(rows):
            return
        used, name = used_codes(hlo_op[rows], len(trace.strings))
        # `outer::inner` where a kernel belongs to a nested computation.
        texts = [trace.strings[code].rpartition("::")[2] for code in used.tolist()]
        name = _within_graphs(placed, programs, rows, texts, name)
        idents, ident = np.unique(trace.arg("program_id", 0, rows), return_inverse=True)
        hosts = len(trace.hosts)
        code, seen = pd.factorize(
            (name * len(idents) + ident.reshape(-1)) * hosts + placed.host[rows]
        )
        numbers: dict[tuple[int, int, str, str], int] = {}
        number = np.empty(len(seen), np.int64)
        for i, key in enumerate(seen.tolist()):
            rest, host = divmod(key, hosts)
            text_index, ident_index = divmod(rest, len(idents))
            program, hlo = int(idents[ident_index]), texts[text_index]
            op = HloOp(host, program, hlo, programs.find(host, program, hlo))
            number[i] = numbers.setdefault(
                (programs.home(host, program), program, hlo, op.text), len(numbers)
            )
            if number[i] == len(self._hlo):
                self._hlo.append(op)
        self.codes[rows] = self._first_hlo + number[code]

    def hlo(self, code: int) -> HloOp | None:
        """The HLO op of a code; None where the event is of no compiled program."""
        if code < self._first_hlo:
            return None
        return self._hlo[code - self._first_hlo]

    def text(self, code: int) -> str:
        """The text of a code."""
        if code >= self._first_hlo:
            return self._hlo[code - self._first_hlo].text
        count = len(self._trace.strings)
        if code < count:
            return self._trace.strings[code]
        return str(self._trace.names[code - count])

    def op(self, code: int) -> OpName:
        """The op of a code."""
        if code >= self._first_hlo:
            return self._hlo[code - self._first_hlo].op
        return opnames.parse(self.text(code))


def _within_graphs(
    placed: Placed, programs: Programs, rows: Int64s, texts: list[str], name: Int64s
) -> Int64s:
    """Index in `texts` of the op of each event; ops of CUDA graphs are added to `texts`.

    XLA launches the kernels of many ops as one graph, and all of them state that as their op
    (`command_buffer_1`). Kernels that it compiled are named after their op, `loop_add_fusion_2`, or
    after another one of the same code. Names of a library's kernels are arbitrary: the op is the
    only library call in the program, if there is one, or else the kernel itself, because graphs run
    ops in another order than the program lists them.
    """
    trace = placed.trace
    of_graph = names_that(lambda text: text.startswith(_GRAPH), texts)[name]
    in_graph = np.flatnonzero(of_graph)
    program = trace.arg("program_id", 0, rows)
    kernel = trace.events.name[rows].astype(np.int64)
    host = placed.host[rows].astype(np.int64)
    first, pair = unique_rows(host[in_graph], program[in_graph], kernel[in_graph])
    op_of_pair = name[in_graph[first]]
    index_of_text = {text: index for index, text in enumerate(texts)}
    by_program: dict[tuple[int, int], _GraphOps] = {}
    for i, row in enumerate(in_graph[first].tolist()):
        key = int(host[row]), int(program[row])
        if key not in by_program:
            # Those outside of graphs state their op.
            outside = (host == key[0]) & (program == key[1]) & ~of_graph
            outside_ops = {texts[code] for code in np.unique(name[outside]).tolist()}
            by_program[key] = _graph_ops(programs.program(*key), outside_ops)
        by_kernel, library_call = by_program[key]
        called = str(trace.names[kernel[row]])
        if by_kernel and not _FILLS.match(called):
            op = by_kernel.get(called) or library_call or called
            if op not in index_of_text:
                index_of_text[op] = len(texts)
                texts.append(op)
            op_of_pair[i] = index_of_text[op]
    result = name.copy()
    result[in_graph] = op_of_pair[pair]
    return result


class _GraphOps(NamedTuple):
    """Ops of a program by the names of their kernels, and its only library call; '' for none."""

    by_kernel: dict[str, str]
    library_call: str


def _graph_ops(program: Program | None, outside: Collection[str]) -> _GraphOps:
    """Ops that may run in a CUDA graph; library calls without those `outside` of graphs."""
    if program is None:
        return _GraphOps({}, "")
    by_kernel, calls = {}, []
    for name, opcode in zip(program.names, program.opcodes, strict=True):
        by_kernel[_SIGN.sub("_", name)] = name
        if opcode == "custom-call" and name not in outside:
            calls.append(name)
    if len(calls) != 1:
        return _GraphOps(by_kernel, "")
    return _GraphOps(by_kernel, calls[0])


def _not_empty(placed: Placed, key: str) -> Int64s:
    """The string codes of an arg, int64[events]; -1 also where the text is empty."""
    codes = placed.trace.text_arg(key)
    if placed.empty_text >= 0:
        codes[codes == placed.empty_text] = -1
    return codes


class _Facts(NamedTuple):
    """Facts on a part of an op: a kernel by its name, or an HLO op."""

    program: int
    name: str
    category: str
    source: str = ""
    duplicate: str = ""
    xprof: bool = False
    module: str = ""
    framework_op: str = ""
    hlo: bool = False


def device_ops(placed: Placed, activity: act.Activity, ops: OpTexts) -> tuple[DeviceOps, OpParts]:
    """The tables `device_ops` and `op_parts` of GPUs.

    An op is made of parts: the kernels that it launched, by name, or the HLO ops that it was
    compiled to. How often the op ran is how often its most frequent part did.
    """
    trace = placed.trace
    events = trace.events
    rows = np.flatnonzero((ops.codes >= 0) & placed.on_gpu)
    if not len(rows):
        return DeviceOps.empty(), OpParts.empty()
    codes = ops.codes[rows]
    used_ops = np.unique(codes)
    is_hlo = np.array([ops.hlo(code) is not None for code in used_ops.tolist()], np.bool_)
    of_hlo = is_hlo[np.searchsorted(used_ops, codes)]
    width = len(trace.names) + 1
    part, seen = pd.factorize(codes * width + np.where(of_hlo, 0, events.name[rows] + 1))
    first = np.zeros(len(seen), np.int64)
    first[part[::-1]] = rows[::-1]
    code, name = np.divmod(seen, width)
    parsed = list(map(ops.op, code.tolist()))
    op = activity.ops.encode(named.name for named in parsed)
    kind = activity.types.encode(named.type or "Unknown" for named in parsed)
    hlo_ops = list(map(ops.hlo, code.tolist()))
    # XProf counts kernels that state their op as `tf_op`, or one of a program in the file.
    is_tf_op = trace.text_arg("tf_op", first) == code
    module = trace.text_arg("hlo_module", first)
    hlo_op = trace.texts(trace.text_arg("hlo_op", first))
    facts: list[_Facts] = []
    for i, hlo in enumerate(hlo_ops):
        if hlo is None:
            kernel = str(trace.names[name[i] - 1])
            facts.append(_Facts(0, kernel, parsed[i].type, xprof=bool(is_tf_op[i])))
        else:
            of_module = trace.strings[module[i]] if module[i] >= 0 else None
            facts.append(_facts(ops.programs, hlo, of_module, hlo_op[i]))
    duration = events.duration[rows]
    table = DeviceOps(
        event=rows,
        host=placed.host[rows],
        device=placed.device[rows],
        start=events.start[rows],
        end=events.start[rows] + duration,
        op=op[part],
        type=kind[part],
        eager=trace.above("is_eager", 0)[rows],
        own=duration,
        part=part.astype(np.int32),
        tensor_core=_tensor_cores(placed, rows),
    )
    flops = _sums(placed, "flops", rows, part, len(seen))
    moved = _sums(placed, "bytes_accessed", rows, part, len(seen))
    parts = pd.DataFrame(facts, columns=_Facts._fields).assign(
        expression="",
        flops=flops,
        bytes=moved,
        normalized_flops=flops,
        memory_bytes=moved,
        xprof_runs=1.0,
        xprof_flops=flops,
        host=placed.host[first],
        runs=np.bincount(part, minlength=len(seen)).astype(np.float64),
    )
    _count(placed, parts, ops, hlo_ops, part, rows)
    return table, OpParts.of(parts)


def _facts(programs: Programs, hlo: HloOp, module: str | None, hlo_op: str) -> _Facts:
    """Facts on an HLO op, whose event states a module and an op."""
    instruction = hlo.instruction
    if instruction is None:
        return _Facts(hlo.program, hlo.name, "", module=module or "", hlo=True)
    source = ""
    if instruction.source_file:
        source = f"{instruction.source_file}:{instruction.source_line}"
    return _Facts(
        hlo.program,
        hlo.name,
        programs.category(hlo.host, hlo.program, hlo.name),
        source,
        instruction.duplicate,
        module is not None and not hlo_op.startswith(_GRAPH),
        module or "",
        instruction.framework_op,
        hlo=True,
    )


def _count(
    placed: Placed,
    parts: pd.DataFrame,
    ops: OpTexts,
    hlo_ops: list[HloOp | None],
    part: Int64s,
    rows: Int64s,
) -> None:
    """Fills in what ops of compiled programs compute and move, where the events do not state it.

    An op may be several kernels; on a device it ran as often as the one of them that ran most.
    """
    if not any(hlo_ops):
        return
    on = pd.DataFrame(
        {
            "part": part,
            "host": placed.host[rows],
            "device": placed.device[rows],
            "kernel": placed.trace.events.name[rows],
        }
    )
    most_runs = (
        on.groupby(list(on)).size().groupby(["part", "host", "device"]).max().groupby("part").sum()
    )
    runs = most_runs.reindex(range(len(parts)), fill_value=0).to_numpy(np.int64)
    events = np.bincount(part, minlength=len(parts))
    is_hlo = np.array([hlo is not None for hlo in hlo_ops], np.bool_)
    parts["runs"] = parts["runs"].where(~is_hlo, runs)
    costs = parts[list(_COSTS)].to_numpy(np.float64, copy=True)
    xprof_runs = parts["xprof_runs"].to_numpy(np.float64, copy=True)
    for i, hlo in enumerate(hlo_ops):
        if hlo is None or not np.isnan(costs[i, 0]):
            continue
        cost = ops.programs.cost(hlo.host, hlo.program, hlo.name)
        if cost is not None:
            costs[i] = [getattr(cost, name) * runs[i] for name in _COSTS]
            xprof_runs[i] = events[i] / runs[i] if cost.in_xprof else 0.0
    parts[list(_COSTS)] = costs
    parts["xprof_runs"] = xprof_runs


def _sums(
    placed: Placed, stat: str, rows: Int64s, part: Int64s, count: int
) -> npt.NDArray[np.float64]:
    """Sum of a stated number by part; NaN if one of the runs does not state it."""
    column = placed.trace.args.get(stat)
    if column is None:
        return np.full(count, np.nan)
    values = np.full(len(placed.trace.events), np.nan)
    values[column.event] = column.floats()
    return np.asarray(np.bincount(part, values[rows], count), np.float64)


def _tensor_cores(placed: Placed, rows: Int64s) -> npt.NDArray[np.int8]:
    """1 for kernels that use Tensor Cores, 0 for others, -1 if unknown or not a kernel."""
    trace = placed.trace
    result = np.full(len(rows), -1, np.int8)
    kernels = np.flatnonzero(trace.above("kernel_details", -1, text=True)[rows])
    planes = max(len(trace.planes), 1)
    plane_of = trace.lanes["plane"].to_numpy(np.int64)[trace.events.lane[rows[kernels]]]
    code, seen = pd.factorize(trace.events.name[rows[kernels]].astype(np.int64) * planes + plane_of)
    uses = np.zeros(len(seen), np.int8)
    for i, key in enumerate(seen.tolist()):
        name, plane = divmod(key, planes)
        is_amd = trace.planes[plane].stats.get("device_vendor") == "AMD"
        uses[i] = tensorcores.uses_tensor_core(str(trace.names[name]), is_amd)
    result[kernels] = uses[code]
    return result
