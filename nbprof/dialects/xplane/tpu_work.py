"""The step breakdown of TPU cores: ops of the `XLA Ops` line, by self time."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Work, marked
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.dialects.xplane import tpu as xplane_tpu
from nbprof.dialects.xplane.placed import Placed
from nbprof.dialects.xplane.work_spans import classified

OPS = "XLA Ops"
_NUMBER = re.compile(r"(\.\d+)+\Z")
COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "reduce-scatter",
    "collective",
    "ragged-all-to-all",
    "megascale",
)
COPIES = ("copy", "copy-start", "copy-done")
# Shapes with their layouts, whose memory space 5 is that of the host:
# "f32[5,256]{1,0:T(8,128)S(5)}".
_SHAPE = re.compile(r"\w+\[[^\]]*\](?:\{[^}]*\})?")
_HOST_MEMORY = "S(5)"
_HALF = re.compile(r"\b(bf16|f16)\[|half|bfloat16|float16")


def op_rows(placed: Placed) -> Int64s:
    """Ops of TPU cores, ascending."""
    lanes = placed.trace.lanes
    core = xplane_tpu.is_core(placed.trace)
    if not core.any():
        return np.zeros(0, np.int64)
    of_lane = core[lanes["plane"].to_numpy(np.int64)] & (lanes["line"].to_numpy() == OPS)
    return np.flatnonzero(of_lane[placed.trace.events.lane] & ~placed.unusable)


def core_work(placed: Placed, group: Int32s) -> Work:
    """Spans of ops of TPU cores by step class, without inner ops; `group` is the step (-1)."""
    trace = placed.trace
    events = trace.events
    rows = op_rows(placed)
    rows = rows[group[rows] >= 0]
    owner, start, end = self_spans(trace, rows)
    code, seen = pd.factorize(events.name[owner])
    if not len(seen):
        return Work.empty()
    classes = np.array([classify(trace, int(name)) for name in seen.tolist()], np.int16)
    spans = marked(events, owner, placed.host, group, placed.device)
    return classified(spans, classes[code]).with_(start=start, end=end)


def self_spans(trace: Trace, rows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Intervals of events without their direct children: (event, start, end), several per event.

    Parameters
    ----------
    trace : Trace
    rows : int64[n]
        Events, ascending; all that lie in one of them are among them.
    """
    events = trace.events
    start, end = events.start[rows], events.end[rows]
    parent = events.parent[rows].astype(np.int64)
    child = np.flatnonzero(parent >= 0)
    # In order of the parent and of time: a gap before each child, and one behind the last.
    child = child[np.lexsort((start[child], parent[child]))]
    above = parent[child]
    first = np.append(True, np.diff(above) != 0)[: len(child)]
    last = np.append(np.diff(above) != 0, True)[: len(child)]
    reached = np.where(first, events.start[above], np.append(0, end[child[:-1]])[: len(child)])
    has_child = np.zeros(len(events), np.bool_)
    has_child[above] = True
    innermost = ~has_child[rows]
    event = np.concatenate([rows[innermost], above, above[last]])
    low = np.concatenate([start[innermost], reached, end[child[last]]])
    high = np.concatenate([end[innermost], start[child], events.end[above[last]]])
    keep = high > low
    return event[keep], low[keep], high[keep]


def kinds_of(trace: Trace, code: int) -> tuple[str, tuple[str, str]]:
    """The expression of an op, and its name and category in lower case."""
    full, name = str(trace.names[code]), str(trace.display[code])
    if name in ("", full):
        name = full.partition(" = ")[0]
    category = str(trace.name_args.get("hlo_category", {}).get(code) or "")
    return full, (_NUMBER.sub("", name.lstrip("%").lower()), category.lower())


def classify(trace: Trace, code: int) -> int:
    """The step class of an op by its name in the program, its category and its expression."""
    full, kinds = kinds_of(trace, code)
    base, category = kinds
    shape = str(trace.name_args.get("shape_with_layout", {}).get(code) or "") or full

    def is_a(*starts: str) -> bool:
        return any(kind.startswith(starts) for kind in kinds)

    if is_a("infeed"):
        return act.DEVICE_WAIT_HOST
    if is_a("outfeed"):
        return act.DEVICE_TO_HOST
    if is_a(*COLLECTIVES):
        return act.DEVICE_COLLECTIVES
    host_transfer = "is_host_transfer=true" in full or "host" in category
    if is_a("send"):
        return act.DEVICE_TO_HOST if host_transfer else act.DEVICE_TO_DEVICE
    if is_a("recv"):
        return act.DEVICE_WAIT_HOST if host_transfer else act.DEVICE_WAIT_DEVICE
    if base in COPIES or category in COPIES:
        return copied(full)
    if _HALF.search(shape):
        return act.DEVICE_COMPUTE_16
    return act.DEVICE_COMPUTE_32


def copied(expression: str) -> int:
    """The step class of a copy by the memories of its first (to) and second (from) shape.

    That holds for ``dest copy(src)``, ``(dest, src, context) copy-start(src)`` and ``dest
    copy-done((dest, src, context))``.
    """
    shapes = _SHAPE.findall(expression)
    if "copy-done(" in expression:
        shapes = shapes[1:]
    if len(shapes) < 2:
        return act.DEVICE_TO_DEVICE
    to, origin = (_HOST_MEMORY in shape for shape in shapes[:2])
    if to == origin:
        return act.DEVICE_TO_DEVICE
    return act.DEVICE_TO_HOST if to else act.HOST_TO_DEVICE
