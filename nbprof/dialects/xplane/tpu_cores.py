"""Work of each TPU core: ops of Tensor Cores and SparseCores, and steps of SparseCores.

A SparseCore works next to the TensorCore of its chip (embeddings, collectives), with a separate
plane, steps and ops.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import CoreSpans, SparseSteps
from nbprof.core import wire
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects.xplane import tpu as xplane_tpu
from nbprof.dialects.xplane.placed import Placed
from nbprof.dialects.xplane.tpu_work import COLLECTIVES, COPIES, OPS, copied, kinds_of, self_spans

SPARSE = re.compile(r"/device:TPU:\d+ SparseCore(?: [A-Za-z]+)? (\d+)\Z")
_SPARSE_STEPS = ("Sparse Core Steps", xplane_tpu.STEPS)
_SPARSE_OPS = ("Sparse Core Ops", OPS)


def cores(trace: Trace) -> Int64s:
    """int64[planes]: -1 for a TensorCore, the number of a SparseCore, -2 for other planes."""
    core_of_plane = np.full(len(trace.planes), -2, np.int64)
    for number, plane in enumerate(trace.planes):
        if xplane_tpu.CORE.match(plane.name):
            core_of_plane[number] = -1
        elif sparse := SPARSE.match(plane.name):
            core_of_plane[number] = int(sparse.group(1))
    return core_of_plane


def sparse_cores(trace: Trace) -> pd.DataFrame:
    """The SparseCores that recorded: ``host device core``, in order."""
    number = cores(trace)
    sparse = []
    for plane, core in zip(trace.planes, number.tolist(), strict=True):
        if core >= 0:
            device = int(re.findall(r"TPU:(\d+)", plane.name)[0])
            sparse.append((plane.host, device, core))
    table = pd.DataFrame(sparse, columns=["host", "device", "core"]).drop_duplicates()
    return table.sort_values(["host", "device", "core"], kind="stable", ignore_index=True)


class Position(NamedTuple):
    """Position of a TensorCore: its chip on the host, and its number on it; None if not stated."""

    chip: int | None = None
    core: int | None = None


def position(stats: dict[str, object]) -> Position:
    """Position of a core by the `core_details` of its plane.

    Source: CoreDetails of XProf's op_stats.proto, whose field 3 is the core on the chip and field 4
    the chip on the host (left out for 0).
    """
    details = stats.get("core_details")
    if not isinstance(details, bytes) or not details:
        return Position()
    fields: dict[int, int] = {}
    for number, kind, value, _ in wire.fields(details, 0, len(details)):
        if kind == wire.VARINT:
            fields[number] = value
    return Position(int(fields.get(4, 0)), int(fields.get(3, 0)))


def core_spans(placed: Placed) -> CoreSpans:
    """When each core ran ops, without those inside: the table `core_spans`."""
    trace = placed.trace
    events = trace.events
    rows, core = _rows(placed, (OPS,), _SPARSE_OPS)
    if not len(rows):
        return CoreSpans.empty()
    of_event = np.full(len(events), -2, np.int64)
    of_event[rows] = core
    owner, start, end = self_spans(trace, rows)
    code, seen = pd.factorize(events.name[owner])
    kind = np.array([_kind(trace, int(name)) for name in seen.tolist()], np.int8)
    # The same program has other name codes on each core.
    op, _ = pd.factorize(trace.names[seen])
    return CoreSpans(
        event=owner,
        host=placed.host[owner],
        device=placed.device[owner],
        core=of_event[owner],
        start=start,
        end=end,
        kind=kind[code],
        op=op[code],
    )


def sparse_steps(placed: Placed) -> SparseSteps:
    """The steps that SparseCores have by themselves: the table `sparse_steps`."""
    events = placed.trace.events
    rows, core = _rows(placed, (), _SPARSE_STEPS)
    return SparseSteps(
        event=rows,
        host=placed.host[rows],
        device=placed.device[rows],
        core=core,
        start=events.start[rows],
        end=events.start[rows] + events.duration[rows],
    )


def _rows(
    placed: Placed, of_tensor: tuple[str, ...], of_sparse: tuple[str, ...]
) -> tuple[Int64s, Int64s]:
    """Events of some lines of Tensor Cores and SparseCores, and the core of each in `cores`."""
    lanes = placed.trace.lanes
    if "line" not in lanes:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    core = cores(placed.trace)[lanes["plane"].to_numpy(np.int64)]
    line = lanes["line"].astype(str)
    used = ((core == -1) & line.isin(of_tensor)) | ((core >= 0) & line.isin(of_sparse))
    lane = placed.trace.events.lane
    rows = np.flatnonzero(used.to_numpy(np.bool_)[lane] & ~placed.unusable)
    return rows, core[lane[rows]]


def _kind(trace: Trace, code: int) -> int:
    """Index into CORE_KINDS of an op."""
    full, kinds = kinds_of(trace, code)

    def is_a(*starts: str) -> bool:
        return any(kind.startswith(starts) for kind in kinds)

    of_host = "is_host_transfer=true" in full or "host" in kinds[1]
    name = "compute"
    if is_a(*COLLECTIVES):
        name = "all_reduce"
    elif not set(kinds).isdisjoint(COPIES):
        if copied(full) != act.DEVICE_TO_DEVICE:
            name = "host_transfer"
    else:
        for start in ("infeed", "outfeed", "send", "recv"):
            if is_a(start):
                name = start
        if of_host and name in ("send", "recv"):
            name = "host_transfer"
    return act.CORE_KINDS.index(name)
