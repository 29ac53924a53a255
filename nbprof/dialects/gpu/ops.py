"""Ops of PyTorch as a forest: runs with shapes, Python callers and launched device work."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import TorchCalls, TorchModules, TorchOps
from nbprof.core import nesting
from nbprof.core.callstacks import Stacks, chains
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int32s, Int64s
from nbprof.dialects.gpu.lanes import ANNOTATION, AROUND, CALL, OP, PYTHON
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.nest import Nest


class Forest:
    """Ops, annotations and runtime calls of host threads, nested by time as in `torch.profiler`.

    Parameters
    ----------
    links : Links
    """

    def __init__(self, links: Links) -> None:
        self.links = links
        self.trace = links.trace

    @cached_property
    def nest(self) -> Nest:
        """The events, nested."""
        return Nest(self.trace, self.links.rows(OP, ANNOTATION, CALL))

    @cached_property
    def python(self) -> Nest:
        """Calls of Python functions and of modules, nested; none where `with_stack` was off."""
        return Nest(self.trace, self.links.rows(PYTHON))

    def tables(self, activity: act.Activity) -> tuple[TorchOps, Stacks, TorchModules]:
        """The `torch_ops` table, its stacks, and the `torch_modules` table."""
        trace, links, nest = self.trace, self.links, self.nest
        rows, events = nest.rows, trace.events
        code = events.name[rows]
        op = np.zeros(len(trace.names), np.int32)
        for name_code in pd.unique(code).tolist():
            op[name_code] = activity.ops.code(str(trace.names[name_code]))
        stack, chain, stacks = self.stacks
        return (
            TorchOps(
                event=rows,
                host=links.host[rows],
                kind=_KIND[links.kind[rows]],
                start=events.start[rows],
                end=events.end[rows],
                parent=nest.parent.astype(np.int64),
                op=op[code],
                own=self.self_time,
                device_own=self._device(),
                shape=self._texts("Input Dims", activity),
                types=self._texts("Input type", activity),
                stack=stack,
                forward=self.forward,
                numbered=trace.arg("Sequence number")[rows] >= 0,
            ),
            stacks,
            self._modules(chain, stacks),
        )

    @cached_property
    def self_time(self) -> Int64s:
        """Time of each event without those directly in it, ps."""
        return np.maximum(
            nesting.self_times(self.nest.parent, self.trace.events.duration[self.nest.rows]), 0
        )

    def _device(self) -> Int64s:
        """Time of kernels, copies and fills that each op launched itself, ps."""
        links = self.links
        total = np.zeros(len(self.nest.rows), np.int64)
        has_op = links.work_op >= 0
        position = np.searchsorted(self.nest.rows, links.ops.rows[links.work_op[has_op]])
        np.add.at(total, position, self.trace.events.duration[links.work[has_op]])
        return total

    def _texts(self, arg: str, activity: act.Activity) -> Int32s:
        """Codes into `texts` of an arg on the inputs, such as their shapes; -1 for none."""
        trace = self.trace
        codes = trace.text_arg(arg)[self.nest.rows]
        table = np.full(len(trace.strings) + 1, -1, np.int32)
        for string_code in pd.unique(codes[codes >= 0]).tolist():
            # Some files have a number a line.
            table[string_code] = activity.texts.code(
                _SPACE.sub("", trace.strings[string_code]).replace(",", ", ")
            )
        return table[codes]

    @cached_property
    def stacks(self) -> tuple[Int32s, Int32s, Stacks]:
        """Chains of Python calls of events and of calls, from spans or from texts of old files."""
        trace, rows = self.trace, self.nest.rows
        python = self.python
        if len(python.rows):
            chain, stacks = chains(python.parent, trace.events.name[python.rows], trace.names)
            return np.append(chain, np.int32(-1))[python.around(rows)], chain, stacks
        codes = trace.text_arg("Call stack")[rows]
        used = pd.unique(codes[codes >= 0])
        position = np.full(len(trace.strings) + 1, -1, np.int32)
        position[used] = np.arange(len(used))
        return (
            position[codes],
            np.zeros(0, np.int32),
            Stacks.of_texts([trace.strings[c] for c in used.tolist()]),
        )

    def calls(self) -> TorchCalls:
        """The `torch_calls` table."""
        trace, python = self.trace, self.python
        # The codes are those of the stacks of `tables`, which come from the same calls.
        chain, _ = chains(python.parent, trace.events.name[python.rows], trace.names)
        table = TorchCalls(event=python.rows, parent=python.parent, stack=chain)
        # Calls around the program have separate lanes: nothing is inside them.
        around = np.zeros(len(table), np.bool_)
        if "side" in trace.lanes:
            around = (trace.lanes["side"] == AROUND).to_numpy()[python.lane]
        position = np.append(np.cumsum(~around) - 1, -1)
        return table.with_(parent=position[table.parent]).take(~around)

    def _modules(self, chain: Int32s, stacks: Stacks) -> TorchModules:
        """The `torch_modules` table: calls of modules."""
        events, python = self.trace.events, self.python
        module_calls = np.zeros(0, np.int64)
        if len(chain):
            module_calls = np.flatnonzero(stacks.is_module[chain])
        calls = Nest(self.trace, python.rows[module_calls])
        duration = events.duration[calls.rows]
        return TorchModules(
            event=calls.rows,
            host=self.links.host[calls.rows],
            start=calls.start,
            end=calls.start + duration,
            own=np.maximum(nesting.self_times(calls.parent, duration), 0),
            stack=chain[module_calls],
        )

    @cached_property
    def forward(self) -> Int64s:
        """The forward op of each op of the backward pass (-1: none), by PyTorch's numbers.

        Ops inside one of the backward pass belong where it does. The number counts ops that need a
        gradient, so that several nested ones have it; the one that began last before the backward
        op is the innermost.
        """
        trace, links, nest = self.trace, self.links, self.nest
        rows = nest.rows
        forward = np.full(len(rows), -1, np.int64)
        number, thread = trace.arg("Sequence number")[rows], trace.arg("Fwd thread id")[rows]
        ran = np.flatnonzero((number >= 0) & (thread <= 0))
        back = np.flatnonzero((number >= 0) & (thread > 0))
        if not len(ran) or not len(back):
            return forward
        host = links.host[rows].astype(np.int64)
        # Numbers and hosts to one dense key, then times: the last forward op of the same key that
        # began before.
        both = np.concatenate([ran, back])
        _, key = unique_rows(host[both], number[both])
        of_ran, of_back = key[: len(ran)], key[len(ran) :]
        order = np.lexsort((nest.start[ran], of_ran))
        ran, of_ran = ran[order], of_ran[order]
        base = int(nest.start.min())
        match = _last_before(of_ran, nest.start[ran] - base, of_back, nest.start[back] - base)
        forward[back[match >= 0]] = ran[match[match >= 0]]
        nesting.inherit(nest.parent, forward)
        return forward


_SPACE = re.compile(r"\s+")
_KIND = np.zeros(256, np.int8)
_KIND[[OP, ANNOTATION, CALL]] = act.TORCH_OP, act.TORCH_ANNOTATION, act.TORCH_CALL


def _last_before(keys: Int64s, times: Int64s, query_keys: Int64s, before: Int64s) -> Int64s:
    """Position of the last row of the same key that is not later, -1; rows are sorted by both."""
    # Ranks of time keep the combined key within int64 for traces of any length.
    every = np.unique(np.concatenate([times, before]))
    size = len(every) + 1
    have = keys * size + np.searchsorted(every, times)
    ask = query_keys * size + np.searchsorted(every, before)
    candidate = np.searchsorted(have, ask, side="right") - 1
    good = candidate >= 0
    good[good] = keys[candidate[good]] == query_keys[good]
    return np.where(good, candidate, -1)
