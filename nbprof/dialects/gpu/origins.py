"""The nn.Module and the line of code that device work comes from.

They are those of the call that launched it (for a node of a graph, of the captured call); on the
thread of the backward pass those of the op of the forward pass. PyTorch records the calls of Python
with the line in which each function begins. For kernels of `torch.compile`, inductor states the
exact lines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cached_property
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.core.callstacks import BETWEEN
from nbprof.core.trace import Int32s, Int64s
from nbprof.dialects.gpu import compiled
from nbprof.dialects.gpu.captures import Origin
from nbprof.dialects.gpu.lanes import KERNEL, OP
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.ops import Forest
from nbprof.formats.chrome.inductor import Kernel, Program

_INSTANCE = re.compile(r"_\d+(?=/|\Z)")
# Calls in inductor's graphs outside of ATen: torch/_prims, torch/_inductor/inductor_prims.py.
_PRIM = re.compile(
    r"(?:convert_element_type|iota|device_put|broadcast_in_dim|copy_strided|view_of(?:_dtype)?|fma|"
    r"rev|xor_sum|prepare_softmax_online|_low_memory_max_pool_\w+|inductor_\w+)\Z"
)


def _spaced(op: str) -> str:
    space = "prims" if _PRIM.match(op) else "aten"
    return f"{space}::{op}"


class _Texts:
    """Texts as codes; -1 is the empty one."""

    def __init__(self) -> None:
        self._names = act.Names()

    def codes(self, texts: npt.NDArray[np.object_]) -> Int64s:
        """The codes of some texts, and -1 behind them."""
        index, seen = pd.factorize(texts)
        table = np.full(len(seen) + 1, -1, np.int64)
        for position, text in enumerate(seen.tolist()):
            if text:
                table[position] = self._names.code(text)
        result: Int64s = table[np.append(index, -1)]
        return result

    def text(self, codes: Int64s) -> list[str]:
        """The texts of some codes."""
        result: list[str] = np.append(self._names.values, "")[codes].tolist()
        return result

    def into(
        self,
        activity: act.Activity,
        codes: Int64s,
        without: re.Pattern[str] | None = None,
        but: Collection[str] = (),
    ) -> Int32s:
        """Codes of the texts in an activity, without a pattern except in texts of `but`."""
        used = np.unique(codes[codes >= 0])
        table = np.full(len(self._names.codes) + 1, -1, np.int32)
        for code, text in zip(used.tolist(), self.text(used), strict=True):
            if without and text not in but:
                text = without.sub("", text)
            table[code] = activity.texts.code(text)
        return table[codes]


class Origins:
    """Modules and lines of a trace.

    Parameters
    ----------
    links : Links
    programs : sequence of Program
        Inductor's descriptions of the graphs that it compiled.
    """

    def __init__(self, links: Links, programs: Sequence[Program] = ()) -> None:
        self.links = links
        self.forest = Forest(links)
        self.modules, self.lines, self.fused_ops = _Texts(), _Texts(), _Texts()
        self._programs = programs

    @cached_property
    def _kernels(self) -> tuple[list[Kernel], Int64s]:
        return compiled.kernels(self.forest.nest, self._programs)

    @cached_property
    def _files(self) -> set[str]:
        """Files as the calls of Python name them: relative to the folder of the import path."""
        return {str(line).rpartition(":")[0] for line in self.forest.stacks[2].line}

    def _as_called(self, line: str) -> str:
        """A line of inductor, which names the full path, as the calls of Python name it."""
        path, _, number = line.rpartition(":")
        parts = re.split(r"[/\\]", path)
        for i in range(len(parts)):
            name = "/".join(parts[i:])
            if name in self._files:
                return f"{name}:{number}"
        return line

    @cached_property
    def _by_chain(self) -> tuple[Int64s, Int64s]:
        """Codes of module and line of each chain of calls, with a last -1 for no chain."""
        _, _, stacks = self.forest.stacks
        return self.modules.codes(stacks.path), self.lines.codes(stacks.line)

    @cached_property
    def _by_kernel(self) -> tuple[Int64s, Int64s]:
        """Codes of line and ATen ops of each kernel of inductor, with a last -1 for no kernel.

        The ops are those of its nodes. The kernel's name has the ops before their decomposition
        (`native_layer_norm`), and if several graphs share the code, only those of the first.
        """
        lines, ops = [], []
        for kernel in self._kernels[0]:
            lines.append(BETWEEN.join(map(self._as_called, kernel.lines)))
            fused = kernel.ops if compiled.is_fused(kernel) else ()
            ops.append(BETWEEN.join(map(_spaced, fused)))
        line_codes = self.lines.codes(np.array(lines, object))
        return line_codes, self.fused_ops.codes(np.array(ops, object))

    def of_events(self, events: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Codes of module, line and ATen ops (if compiled) of ops or calls, -1 if unknown."""
        position = np.searchsorted(self.forest.nest.rows, events)
        stack, _, _ = self.forest.stacks
        forward = self.forest.forward[position]
        chain = np.where(forward >= 0, stack[forward], stack[position])
        kernel = self._kernels[1][position]
        (module, line), (exact_line, ops) = self._by_chain, self._by_kernel
        return (
            module[chain],
            np.where(exact_line[kernel] >= 0, exact_line[kernel], line[chain]),
            ops[kernel],
        )

    def texts(self, events: Int64s) -> list[tuple[str, str, str]]:
        """Module, line and ATen ops of ops or calls as texts, empty if unknown."""
        module, line, ops = self.of_events(events)
        columns = (self.modules.text(module), self.lines.text(line), self.fused_ops.text(ops))
        return list(zip(*columns, strict=True))

    @cached_property
    def _of_work(self) -> tuple[Int64s, Int64s, Int64s]:
        """Module, line and ATen ops of each piece of device work, in codes."""
        links = self.links
        module, line, ops = np.full((3, len(links.work)), -1, np.int64)
        event = links.origin_call.copy()
        has_op = (event < 0) & (links.work_op >= 0)
        event[has_op] = links.ops.rows[links.work_op[has_op]]
        rows = np.flatnonzero(event >= 0)
        if len(rows):
            module[rows], line[rows], ops[rows] = self.of_events(event[rows])
        graphs = links.graphs
        for column, table, field in (
            (module, self.modules, "module"),
            (line, self.lines, "line"),
            (ops, self.fused_ops, "aten_ops"),
        ):
            texts_of_nodes = list(map(attrgetter(field), graphs.origin))
            codes = table.codes(np.array(texts_of_nodes, object))[graphs.node]
            column[graphs.positions[codes >= 0]] = codes[codes >= 0]
        annotation, texts = graphs.annotated
        modules = np.array([text.module for text in texts], object)
        noted = self.modules.codes(modules)[annotation]
        rows = np.flatnonzero((module[graphs.positions] < 0) & (noted >= 0))
        module[graphs.positions[rows]] = noted[rows]
        return module, line, ops

    @cached_property
    def _named(self) -> set[str]:
        """Modules that annotations call by their names in the model (`layers.0.mlp`)."""
        return {text.module for text in self.links.graphs.annotated[1] if text.module}

    def of_work(
        self, positions: Int64s, activity: act.Activity, *, instances: bool = False
    ) -> dict[str, Int32s]:
        """Codes of `module`, `source` and `aten_ops` of work at positions in `links.work`.

        With `instances`, modules keep the numbers of their instances.
        """
        module, line, ops = (codes[positions] for codes in self._of_work)
        without = None if instances else _INSTANCE
        return {
            "module": self.modules.into(activity, module, without, self._named),
            "source": self.lines.into(activity, line),
            "aten_ops": self.fused_ops.into(activity, ops),
        }

    def of_ops(self, activity: act.Activity) -> dict[str, Int32s]:
        """The columns `source` and `aten_ops` of the events of the forest, in codes."""
        _, line, ops = self.of_events(self.forest.nest.rows)
        return {
            "source": self.lines.into(activity, line),
            "aten_ops": self.fused_ops.into(activity, ops),
        }

    def shares(self) -> dict[str, float] | None:
        """Shares of kernel time (else of host op time) with a known op, module and line."""
        links, events = self.links, self.links.trace.events
        kernels = np.flatnonzero(links.kind[links.work] == KERNEL)
        if len(kernels):
            time = events.duration[links.work[kernels]]
            module, line, _ = (codes[kernels] >= 0 for codes in self._of_work)
            is_known = {"op": links.work_name[kernels] >= 0, "module": module, "line": line}
        else:
            nest = self.forest.nest
            is_op = np.flatnonzero(links.kind[nest.rows] == OP)
            time = self.forest.self_time[is_op]
            module, line, _ = (codes >= 0 for codes in self.of_events(nest.rows[is_op]))
            is_known = {"module": module, "line": line}
        total = int(time.sum())
        if not total:
            return None
        return {name: int(time[rows].sum()) / total for name, rows in is_known.items()}


def originated(links: Links, calls: Int64s, programs: Sequence[Program] = ()) -> list[Origin]:
    """Origins of some calls."""
    op_position = links.call_op[np.searchsorted(links.calls, calls)]
    names = links.trace.names[links.trace.events.name]
    origins = []
    texts_of_calls = Origins(links, programs).texts(calls)
    for position, texts in zip(op_position.tolist(), texts_of_calls, strict=True):
        op = "" if position < 0 else str(names[links.ops.rows[position]])
        origins.append(Origin(op, *texts))
    return origins
