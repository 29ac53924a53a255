"""Ops among NVTX or ROCTx ranges: PyTorch writes one around each op, with facts in its text.

`emit_nvtx` (and `nsys profile --pytorch=autograd-nvtx`) write `aten::mm, seq = 12, op_id = 340,
sizes = [[8, 8], [8, 8]]`: see `getNvtxStr` in torch/csrc/profiler/util.cpp.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import MutableMapping
from typing import cast

import numpy as np

from nbprof.core.trace import INT, TEXT, ArgColumn, Events, Trace
from nbprof.dialects.gpu.lanes import ANNOTATION, OP, Kinds

_TEXT = re.compile(
    r"(?P<name>.+?)(?:, seq = (?P<seq>\d+))?(?:, op_id = (?P<op>\d+))?(?:, sizes ="
    r" (?P<sizes>\[.*?\]))?(?:, input_op_ids = \[.*\])?\Z",
    re.DOTALL,
)
_SPACE = re.compile(r"[A-Za-z_]\w*::\w")


def name(trace: Trace, kind: Kinds) -> None:
    """Renames ranges to the ops that they are, in `kind` as well; the rest of the text is args."""
    codes = np.unique(trace.events.name[kind == ANNOTATION]).tolist()
    matches: dict[int, re.Match[str]] = {}
    for code in codes:
        text = str(trace.names[code])
        if (", seq = " in text or ", op_id = " in text or text.startswith("aten::")) and (
            match := _TEXT.match(text)
        ):
            matches[code] = match
    if not matches:
        return
    names = {str(text): i for i, text in enumerate(trace.names.tolist())}
    table = np.arange(len(trace.names), dtype=np.int32)
    is_op = np.zeros(len(trace.names), np.bool_)
    numbers, shapes = np.full(len(table), -1, np.int64), np.full(len(table), -1, np.int64)
    strings = list(trace.strings)
    for code, match in matches.items():
        table[code] = names.setdefault(match["name"], len(names))
        # A range of the user's own is numbered as well: it stays an annotation.
        is_op[code] = _SPACE.match(match["name"]) is not None or match["seq"] is not None
        if match["seq"] is not None and len(match["seq"]) < 19:
            numbers[code] = int(match["seq"])
        if match["sizes"] is not None:
            shapes[code] = len(strings)
            strings.append(match["sizes"])
    events = trace.events
    ranges = np.flatnonzero(kind == ANNOTATION).astype(np.int32)
    name_codes = events.name[ranges]
    kind[ranges[is_op[name_codes]]] = OP
    added = {}
    for key, values, of_kind in (("Sequence number", numbers, INT), ("Input Dims", shapes, TEXT)):
        rows = ranges[values[name_codes] >= 0]
        added[key] = ArgColumn(rows, of_kind, values[events.name[rows]])
    trace.args = ChainMap(added, cast("MutableMapping[str, ArgColumn]", trace.args))
    trace.strings = strings
    trace.names = trace.display = np.array([*names, ""], object)[:-1]
    renamed = events.name.copy()
    renamed[ranges] = table[name_codes]
    trace.events = Events(events.lane, renamed, events.start, events.duration)
