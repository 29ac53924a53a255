"""The nn.Module and the line of code that device work comes from.

They are those of the call that launched it or, of a node of a graph, of the call that was captured
as it; on the thread of the backward pass those of the op of the forward pass. PyTorch records the
calls of Python with the line in which each function begins. Of what `torch.compile` made, inductor
knows the very lines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cached_property

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
# What inductor's graphs call beside ATen: torch/_prims and torch/_inductor/inductor_prims.py.
_PRIM = re.compile(
    r"(?:convert_element_type|iota|device_put|broadcast_in_dim|copy_strided|view_of(?:_dtype)?|fma|"
    r"rev|xor_sum|prepare_softmax_online|_low_memory_max_pool_\w+|inductor_\w+)\Z"
)


def _spaced(op: str) -> str:
    return f"{'prims' if _PRIM.match(op) else 'aten'}::{op}"


class _Texts:
    """Texts as codes; -1 is the empty one."""

    def __init__(self) -> None:
        self._known = act.Names()

    def codes(self, texts: npt.NDArray[np.object_]) -> Int64s:
        """The codes of some texts, and -1 behind them."""
        place, seen = pd.factorize(texts)
        table = np.array(
            [*(self._known.code(text) if text else -1 for text in seen.tolist()), -1], np.int64
        )
        out: Int64s = table[np.append(place, -1)]
        return out

    def text(self, codes: Int64s) -> list[str]:
        """The texts of some codes."""
        out: list[str] = np.append(self._known.values, "")[codes].tolist()
        return out

    def into(
        self,
        out: act.Activity,
        codes: Int64s,
        without: re.Pattern[str] | None = None,
        but: Collection[str] = (),
    ) -> Int32s:
        """Codes as those of the texts of an activity, of which a pattern may be left out, `but` of
        some texts.
        """
        used = np.unique(codes[codes >= 0])
        table = np.full(len(self._known.codes) + 1, -1, np.int32)
        for code, text in zip(used.tolist(), self.text(used), strict=True):
            table[code] = out.texts.code(
                without.sub("", text) if without and text not in but else text
            )
        return table[codes]


class Origins:
    """Modules and lines of a trace.

    Parameters
    ----------
    links : Links
    programs : sequence of Program
        What inductor says of the graphs that it compiled.
    """

    def __init__(self, links: Links, programs: Sequence[Program] = ()) -> None:
        self.links = links
        self.forest = Forest(links)
        self.modules, self.lines, self.made = _Texts(), _Texts(), _Texts()
        self._programs = programs

    @cached_property
    def _kernels(self) -> tuple[list[Kernel], Int64s]:
        return compiled.kernels(self.forest.nest, self._programs)

    @cached_property
    def _files(self) -> set[str]:
        """Files as the calls of Python name them: without the folder that modules are found in."""
        return {str(line).rpartition(":")[0] for line in self.forest.stacks[2].line}

    def _as_called(self, line: str) -> str:
        """A line of inductor, which names the whole path of the file, as the calls of Python name
        it.
        """
        path, _, number = line.rpartition(":")
        parts = re.split(r"[/\\]", path)
        return next(
            (
                f"{name}:{number}"
                for i in range(len(parts))
                if (name := "/".join(parts[i:])) in self._files
            ),
            line,
        )

    @cached_property
    def _by_chain(self) -> tuple[Int64s, Int64s]:
        """Module and line of each chain of calls, in codes, and -1 behind them: of no chain."""
        _, _, stacks = self.forest.stacks
        return self.modules.codes(stacks.path), self.lines.codes(stacks.line)

    @cached_property
    def _by_kernel(self) -> tuple[Int64s, Int64s]:
        """Line and ATen ops of each kernel of inductor, in codes, and -1 behind them.

        The ops are those of its nodes. A kernel's name does not tell them: it has the ops before
        these were taken apart (`native_layer_norm`), and those of the first place only where
        several are compiled to the same code.
        """
        known = self._kernels[0]
        made = [
            BETWEEN.join(map(_spaced, one.ops)) if compiled.is_fused(one) else "" for one in known
        ]
        lines = [BETWEEN.join(map(self._as_called, one.lines)) for one in known]
        return self.lines.codes(np.array(lines, object)), self.made.codes(np.array(made, object))

    def of(self, events: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Module and line of ops or calls, and the ATen ops that a kernel of inductor was made of:
        codes, -1 for what is not known.
        """
        at = np.searchsorted(self.forest.nest.rows, events)
        stack, _, _ = self.forest.stacks
        forward = self.forest.forward[at]
        chain = np.where(forward >= 0, stack[forward], stack[at])
        kernel = self._kernels[1][at]
        (module, line), (known_line, made) = self._by_chain, self._by_kernel
        return (
            module[chain],
            np.where(known_line[kernel] >= 0, known_line[kernel], line[chain]),
            made[kernel],
        )

    def texts(self, events: Int64s) -> list[tuple[str, str, str]]:
        """The same as texts, empty for what is not known."""
        columns = [
            table.text(codes)
            for table, codes in zip(
                (self.modules, self.lines, self.made), self.of(events), strict=True
            )
        ]
        return list(zip(*columns, strict=True))

    @cached_property
    def _of_work(self) -> tuple[Int64s, Int64s, Int64s]:
        """Module, line and ATen ops of each piece of device work, in codes."""
        links = self.links
        module, line, made = (np.full(len(links.work), -1, np.int64) for _ in range(3))
        event = links.made_by.copy()
        known = (event < 0) & (links.work_op >= 0)
        event[known] = links.ops.rows[links.work_op[known]]
        rows = np.flatnonzero(event >= 0)
        if len(rows):
            for out, codes in zip((module, line, made), self.of(event[rows]), strict=True):
                out[rows] = codes
        graphs = links.graphs
        for out, table, which in (
            (module, self.modules, 1),
            (line, self.lines, 2),
            (made, self.made, 3),
        ):
            said = table.codes(np.array([origin[which] for origin in graphs.origin], object))
            given = said[graphs.node]
            out[graphs.at[given >= 0]] = given[given >= 0]
        said, texts = graphs.annotated
        noted = self.modules.codes(np.array([one.module for one in texts], object))[said]
        rows = np.flatnonzero((module[graphs.at] < 0) & (noted >= 0))
        module[graphs.at[rows]] = noted[rows]
        return module, line, made

    @cached_property
    def _named(self) -> set[str]:
        """Modules that annotations call by their names in the model (`layers.0.mlp`), which number
        no instances.
        """
        return {one.module for one in self.links.graphs.annotated[1] if one.module}

    def of_work(
        self, at: Int64s, out: act.Activity, *, instances: bool = False
    ) -> dict[str, Int32s]:
        """Columns of work at some positions in `links.work`, in codes: `module`, with the numbers
        of instances or not, and the others.
        """
        module, line, made = (codes[at] for codes in self._of_work)
        return {
            "module": self.modules.into(out, module, None if instances else _INSTANCE, self._named),
            "source": self.lines.into(out, line),
            "aten_ops": self.made.into(out, made),
        }

    def of_ops(self, out: act.Activity) -> dict[str, Int32s]:
        """The columns `source` and `aten_ops` of the events of the forest, in codes."""
        _, line, made = self.of(self.forest.nest.rows)
        return {"source": self.lines.into(out, line), "aten_ops": self.made.into(out, made)}

    def shares(self) -> dict[str, float] | None:
        """Parts of the time of kernels of which `op`, `module` and `line` are known; of ops on the
        host where there are no kernels.
        """
        links, events = self.links, self.links.trace.events
        kernels = np.flatnonzero(links.kind[links.work] == KERNEL)
        if len(kernels):
            time = events.duration[links.work[kernels]]
            module, line, _ = (codes[kernels] >= 0 for codes in self._of_work)
            known = {"op": links.work_name[kernels] >= 0, "module": module, "line": line}
        else:
            nest = self.forest.nest
            mine = np.flatnonzero(links.kind[nest.rows] == OP)
            time = self.forest.own[mine]
            module, line, _ = (codes >= 0 for codes in self.of(nest.rows[mine]))
            known = {"module": module, "line": line}
        whole = int(time.sum())
        return (
            {what: int(time[which].sum()) / whole for what, which in known.items()}
            if whole
            else None
        )


def originated(links: Links, calls: Int64s, programs: Sequence[Program] = ()) -> list[Origin]:
    """Where some calls come from."""
    at = links.call_op[np.searchsorted(links.calls, calls)]
    names = links.trace.names[links.trace.events.name]
    ops = ["" if op < 0 else str(names[links.ops.rows[op]]) for op in at.tolist()]
    return [
        Origin(op, *place)
        for op, place in zip(ops, Origins(links, programs).texts(calls), strict=True)
    ]
