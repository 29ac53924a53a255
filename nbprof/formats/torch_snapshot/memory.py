"""Reads snapshots of PyTorch's caching allocator (`torch.cuda.memory._dump_snapshot`) into columns,
beside a trace or as a profile alone.

The pickle is read by a machine that knows plain data only (`plain_pickle`); what it puts into lists
goes to columns at once, so a file with millions of entries never is millions of dicts. Frames and
stacks are kept once each.

Format: torch/cuda/memory.py and torch/csrc/cuda/Module.cpp of PyTorch. Files of PyTorch before 2.0
hold only the list of segments, and blocks have `history` in place of `frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from nbprof.core.errors import ReadError
from nbprof.core.files import SourceFile
from nbprof.core.receipt import Note, Receipt
from nbprof.core.trace import Events, Trace
from nbprof.formats.torch_snapshot import notes
from nbprof.formats.torch_snapshot.machine import LIMITS, MAX_FRAMES, Machine, codes_of, text_of
from nbprof.formats.torch_snapshot.snapshot import INACTIVE, UNKNOWN, Int64s, Snapshot

_MOST_BYTES, _MOST_ADDRESS = 1 << 42, 1 << 58
LANES = {
    "lane": "i8",
    "host": "object",
    "process": "object",
    "thread": "object",
    "line_id": "i8",
    "plane": "i8",
    "kind": "object",
    "device": "i8",
    "note": "object",
    "events": "i8",
    "order": "i8",
}


_SIZES = {"small": 0, "large": 1}
_SEGMENT_NUMBERS = {
    "device": "device",
    "address": "address",
    "size": "total_size",
    "allocated": "allocated_size",
    "active": "active_size",
    "requested": "requested_size",
    "stream": "stream",
}


@dataclass
class SnapshotTrace(Trace):
    """A trace without events; `snapshots` are what its files hold."""

    snapshots: list[Snapshot] = field(default_factory=list)


def read(files: Sequence[SourceFile], progress: Callable[[str], None] | None = None) -> Trace:
    """Reads the snapshots of one run.

    Raises
    ------
    ReadError
        A file is damaged, or is not a snapshot.
    """
    receipt = Receipt()
    snapshots: list[Snapshot] = []
    for file in files:
        if progress:
            progress(f"reading {file.name}")
        snapshots.append(snapshot_in(file))
        receipt.add(*snapshots[-1].notes)
    receipt.events = sum(len(snapshot.entries["action"]) for snapshot in snapshots)
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
        snapshots=snapshots,
    )


def snapshots(trace: Trace, files: Sequence[SourceFile]) -> tuple[list[Snapshot], list[Note]]:
    """Snapshots of a run, and a note on each file next to its trace that is unreadable.

    Raises
    ------
    ReadError
        A snapshot that was loaded as a profile has changed since.
    """
    if isinstance(trace, SnapshotTrace):
        return trace.snapshots, []
    result, unread = [], []
    for file in files:
        try:
            result.append(snapshot_in(file))
        except ReadError as error:
            unread.append(notes.unread_snapshot(file.name, error.reason))
    return result, unread


def snapshot_in(file: SourceFile) -> Snapshot:
    """Reads the snapshot in a file.

    Raises
    ------
    ReadError
        It is not a snapshot, is damaged, or asks for something other than plain data; names the
        file and the byte.
    """
    with file.open() as opened:
        try:
            return snapshot_from(opened.read)
        except ReadError as error:
            raise ReadError(
                error.reason, path=error.path or file.label, offset=error.offset
            ) from None


def snapshot_from(read: Callable[[int], bytes]) -> Snapshot:
    """The snapshot in a pickle; `read` gives its next bytes, at most so many.

    Raises
    ------
    ReadError
        As `snapshot_in`, without the name of a file.
    """
    machine = Machine(read)
    return _Result(machine).snapshot(machine.load(), truncated=machine.truncated)


class _Result:
    """The snapshot that was read."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._notes: list[Note] = []

    def snapshot(self, top: Any, *, truncated: bool) -> Snapshot:
        """Everything as columns."""
        machine = self._machine
        if type(top) is list and (not top or (type(top[0]) is dict and "blocks" in top[0])):
            top = {"segments": top}
        if type(top) is not dict or {"segments", "device_traces"}.isdisjoint(top):
            if truncated:
                raise _nothing_read()
            raise ReadError(
                "the pickle is not a snapshot of PyTorch's allocator: it has neither segments nor"
                " device_traces."
            )
        entries = self._entries(_list(top.get("device_traces")))
        segments, blocks = self._segments(_list(top.get("segments")))
        if truncated and not machine.entries.count and not machine.blocks.count:
            raise _nothing_read()
        self._tell(
            truncated=truncated, complete="allocator_settings" in top or "device_traces" in top
        )
        settings = {}
        for key, value in _dict(top.get("allocator_settings")).items():
            if isinstance(value, (str, int, float, bool)):
                settings[str(key)] = value
        return Snapshot(
            segments,
            blocks,
            entries,
            list(machine.frames),
            list(machine.stacks),
            list(machine.categories),
            settings,
            self._annotations(_list(top.get("external_annotations"))),
            traced=type(top.get("device_traces")) is list,
            cut=truncated,
            notes=self._notes,
        )

    def _tell(self, *, truncated: bool, complete: bool) -> None:
        machine = self._machine
        if truncated:
            missing = "segments, and the whole history"
            if complete:
                missing = "the last entries of the history"
            self._notes.append(notes.truncated(machine.opcodes.offset, missing))
        if machine.invalid:
            self._notes.append(notes.invalid_numbers(machine.invalid))
        if machine.deep:
            self._notes.append(notes.clipped_stacks(machine.deep, MAX_FRAMES))

    def _entries(self, traces: list[Any]) -> dict[str, Int64s]:
        machine = self._machine

        rows, devices = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for device, trace in enumerate(traces):
            for first, count in machine.rows_of(trace, machine.entries):
                rows.append(np.arange(first, first + count))
                devices.append(np.full(count, device, np.int64))
        columns = machine.entries.joined()
        order = np.concatenate(rows)
        if len(order) != machine.entries.count or (np.diff(order) != 1).any():
            columns = {name: column[order] for name, column in columns.items()}
        return {"device": np.concatenate(devices), **columns}

    def _segments(self, listed: list[Any]) -> tuple[dict[str, Int64s], dict[str, Int64s]]:
        machine = self._machine

        dicts = [segment for segment in listed if type(segment) is dict]
        rows = [np.zeros(0, np.int64)]
        counts = np.zeros(len(dicts), np.int64)
        for i, segment in enumerate(dicts):
            for first, count in machine.rows_of(segment.get("blocks"), machine.blocks):
                rows.append(np.arange(first, first + count))
                counts[i] += count
        columns = machine.blocks.joined()
        order = np.concatenate(rows)
        blocks = {name: column[order] for name, column in columns.items()}
        segments = machine.integers(dicts, _SEGMENT_NUMBERS)
        segments["large"] = codes_of(dicts, "segment_type", _SIZES, UNKNOWN)
        segments["pool"], segments["pool_b"] = machine.pools(dicts, "segment_pool_id")
        expandable = [segment.get("is_expandable") is True for segment in dicts]
        segments["expandable"] = np.array(expandable, np.int64)
        segments["stack"] = machine.stack_codes(dicts)
        segments["first"], segments["blocks"] = np.cumsum(counts) - counts, counts
        return self._placed(segments, blocks)

    def _placed(
        self, segments: dict[str, Int64s], blocks: dict[str, Int64s]
    ) -> tuple[dict[str, Int64s], dict[str, Int64s]]:
        """With the address of each block, which old files state only of the segment, and sizes that
        are sizes.
        """
        bad = (
            (segments["size"] < 0)
            | (segments["address"] < 0)
            | (segments["size"] > _MOST_BYTES)
            | (segments["address"] > _MOST_ADDRESS)
        )
        if bad.any():
            self._notes.append(notes.impossible_segments(int(bad.sum())))
        owner = np.repeat(np.arange(len(bad)), segments["blocks"])
        room = segments["size"][owner]
        keep = ~bad[owner] & (blocks["size"] >= 0) & (blocks["size"] <= room)
        size = np.where(keep, blocks["size"], 0)
        before = np.cumsum(size) - size
        # Sizes of the blocks before each in its segment.
        within = before - before[segments["first"][owner]]
        address = np.where(
            blocks["address"] >= 0, blocks["address"], segments["address"][owner] + within
        )
        offset = address - np.where(bad, 0, segments["address"])[owner]
        keep &= (offset >= 0) & (offset <= room - size)
        outside = int((~keep & ~bad[owner]).sum())
        if outside:
            self._notes.append(notes.blocks_outside_segments(outside))
        # Free blocks state 0; old files state nothing, and a block holds what was asked for and its
        # rounding.
        asked = blocks["requested"]
        requested = np.where((asked >= 0) & (asked <= blocks["size"]), asked, blocks["size"])
        requested[blocks["state"] == INACTIVE] = 0
        blocks = {**blocks, "address": address, "requested": requested}
        counts = np.bincount(owner[keep], minlength=len(bad))[~bad].astype(np.int64)
        segments = {name: column[~bad] for name, column in segments.items()}
        segments["blocks"], segments["first"] = counts, np.cumsum(counts) - counts
        segments["device"] = np.maximum(segments["device"], 0)
        segments["stream"] = np.maximum(segments["stream"], 0)
        return segments, {name: column[keep] for name, column in blocks.items()}

    @staticmethod
    def _annotations(listed: list[Any]) -> list[tuple[str, str, int, int]]:
        result = []
        for note in map(_dict, listed):
            time, device = note.get("time_us"), note.get("device")
            if type(time) is not int or not 0 <= time <= LIMITS.max:
                continue
            if type(device) is not int:
                device = UNKNOWN
            result.append((text_of(note.get("name")), text_of(note.get("stage")), device, time))
        return result


def _list(value: object) -> list[Any]:
    return value if type(value) is list else []


def _dict(value: object) -> dict[Any, Any]:
    return value if type(value) is dict else {}


def _nothing_read() -> ReadError:
    return ReadError(
        "the file is truncated before the first segment: copy it again, or take the snapshot again."
    )
