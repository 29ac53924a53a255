"""Snapshots of PyTorch's allocator as a profile of their own: a trace without events, and the snapshots beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from nbprof.core.errors import ReadError
from nbprof.core.files import SourceFile
from nbprof.core.trace import Events, Receipt, Trace
from nbprof.formats.torch_snapshot import memory as torch_memory
from nbprof.formats.torch_snapshot.snapshot import Snapshot

LANES = {
    "lane": "i8", "host": "object", "process": "object", "thread": "object", "line_id": "i8", "plane": "i8", "kind": "object",
    "device": "i8", "note": "object", "events": "i8", "order": "i8",
}  # fmt: skip


@dataclass
class SnapshotTrace(Trace):
    """A trace without events; `snapshots` are what its files hold."""

    snapshots: list[Snapshot] = field(default_factory=list)


def read(files: Sequence[SourceFile], progress: Callable[[str], None] | None = None) -> Trace:
    """The snapshots of one run.

    Raises
    ------
    ReadError
        A file is damaged, or is no snapshot.
    """
    receipt = Receipt()
    found = []
    for file in files:
        if progress:
            progress(f"reading {file.name}")
        found.append(torch_memory.read(file))
        for note in found[-1].notes:
            receipt.info(note)
        for warning in found[-1].warnings:
            receipt.warn(warning)
    receipt.events = sum(len(one.entries["action"]) for one in found)
    nothing = np.zeros(0, np.int64)
    names = np.zeros(0, object)
    return SnapshotTrace(
        events=Events(nothing.astype(np.int32), nothing.astype(np.int32), nothing, nothing),
        names=names,
        display=names,
        lanes=pd.DataFrame({name: np.zeros(0, kind) for name, kind in LANES.items()}),
        planes=[],
        args={},
        name_args={},
        strings=[],
        modules=[],
        hosts=[],
        epoch_ns=0,
        receipt=receipt,
        snapshots=found,
    )


def snapshots(trace: Trace, files: Sequence[SourceFile]) -> tuple[list[Snapshot], list[str]]:
    """The snapshots of a run, and a sentence about each file beside its trace that could not be read.

    Raises
    ------
    ReadError
        A snapshot that is a profile of its own has changed since.
    """
    if isinstance(trace, SnapshotTrace):
        return trace.snapshots, []
    found, doubts = [], []
    for file in files:
        try:
            found.append(torch_memory.read(file))
        except ReadError as error:
            doubts.append(f"{file.name} beside the trace could not be read: {error.reason}")
    return found, doubts
