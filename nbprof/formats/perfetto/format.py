"""Perfetto's protobuf traces as a format: `*.pftrace`, `*.perfetto-trace`, of any recorder."""

from __future__ import annotations

import re
from dataclasses import replace

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.files import RunFiles
from nbprof.core.receipt import info
from nbprof.core.units import join_some
from nbprof.formats.format import PACKING, Format, Head, Here, Kind, is_text
from nbprof.formats.names import SUFFIXES

_NAME = "perfetto"
# Enough of a file to tell its kind.
_ENOUGH = 1 << 11
_TEXT = 22
_Shape = dict[int, "int | _Shape"]
_V, _L, _F64 = wire.VARINT, wire.LENGTH, wire.FIXED64
_PROCESS: _Shape = {1: _V, 2: _TEXT, 3: _V, 4: _V, 5: _V, 6: _TEXT, 7: _V, 8: _TEXT}
_THREAD: _Shape = {1: _V, 2: _V, 3: _V, 4: _V, 5: _TEXT, 6: _V, 7: _V, 8: _V}
_TRACK: _Shape = {
    1: _V,
    2: _TEXT,
    3: _PROCESS,
    4: _THREAD,
    5: _V,
    6: _L,
    7: _L,
    8: _L,
    9: _V,
    10: _TEXT,
    11: _V,
    12: _V,
}
_EVENT: _Shape = {
    1: _V,
    2: _V,
    3: _V,
    4: _L,
    9: _V,
    10: _V,
    11: _V,
    16: _V,
    22: _TEXT,
    23: _TEXT,
    30: _V,
    44: _F64,
    47: _F64,
    48: _F64,
}
_CLOCK: _Shape = {1: _V, 2: _V, 3: _V, 4: _V}
_SNAPSHOT: _Shape = {1: _CLOCK, 2: _V}
# A TracePacket: its own numbers, and the messages of which it is one.
_PACKET: _Shape = {
    **dict.fromkeys(
        (
            1,
            2,
            4,
            5,
            7,
            9,
            12,
            33,
            34,
            35,
            36,
            37,
            38,
            39,
            40,
            45,
            49,
            50,
            51,
            52,
            53,
            54,
            59,
            65,
            66,
            67,
            89,
            90,
            91,
            95,
        ),
        _L,
    ),
    **dict.fromkeys((3, 8, 10, 13, 41, 42, 58, 79, 87, 98), _V),
    6: _SNAPSHOT,
    11: _EVENT,
    43: _PROCESS,
    44: _THREAD,
    60: _TRACK,
}
# Fields that an XSpace does not have where a trace has packets, nor most other messages.
_TELLING = frozenset({8, 10, 11, 13, 33, 36, 42, 43, 44, 50, 58, 59, 60, 87, 89})
_BY_NAME = re.compile(r"\.(pftrace|perfetto-trace|perfetto)" + PACKING, re.IGNORECASE)


def sniff(head: Head) -> Kind | None:
    """The kind of a Perfetto trace; None for other files."""
    if head.json or head.data[0] != 0x0A:
        return None
    seen: set[int] = set()
    if not _packets(head.data[:_ENOUGH], seen):
        return None
    if seen & _TELLING:
        return Kind(_NAME, "a Perfetto trace")
    # Nothing is against it: large packets of the kernel at the front.
    if _BY_NAME.search(head.name):
        return Kind(_NAME, "a Perfetto trace", sure=False)
    return None


def _packets(data: bytes, seen: set[int]) -> bool:
    """True if the data consists of packets; `seen` gets their fields."""
    offset = 0
    try:
        while offset < len(data):
            tag, offset = wire.read_varint(data, offset, len(data))
            if tag != 0x0A:
                return False
            length, offset = wire.read_varint(data, offset, len(data))
            if not _fits(data, offset, offset + length, _PACKET, seen):
                return False
            offset += length
    except ReadError:
        # Cut off at the end of the head.
        pass
    return True


def _fits(data: bytes, offset: int, end: int, shape: _Shape, seen: set[int] | None = None) -> bool:
    """True if the fields of a message have the types of a shape; of a message that runs past the
    head of the file, the part in the head is checked.
    """
    here = min(end, len(data))
    try:
        while offset < here:
            tag, offset = wire.read_varint(data, offset, here)
            number, kind = tag >> 3, tag & 7
            field_shape = shape.get(number)
            if number == 0 or kind not in (_V, _F64, _L, wire.FIXED32):
                return False
            if field_shape is not None and kind != (
                field_shape if field_shape in (_V, _F64) else _L
            ):
                return False
            if seen is not None and field_shape is not None:
                seen.add(number)
            if kind == _V:
                offset = wire.read_varint(data, offset, here)[1]
            elif kind != _L:
                offset += 8 if kind == _F64 else 4
            else:
                length, offset = wire.read_varint(data, offset, here)
                stop = offset + length
                if stop > end:
                    return False
                if field_shape == _TEXT and not is_text(data[offset : min(stop, here)]):
                    return False
                if isinstance(field_shape, dict) and not _fits(data, offset, stop, field_shape):
                    return False
                offset = stop
    except ReadError:
        return here < end
    return offset <= end


def is_copy(_name: str, stem: str, hosts: set[str]) -> bool:
    """True if a trace is one that XProf exported of a host next to it."""
    return stem in hosts


def gather(here: Here, before: list[RunFiles]) -> list[RunFiles]:
    """The runs that are there, of which some traces may be a copy, and each other trace as one."""
    members = here.of(_NAME)
    taken_files = {id(file) for run in before for file in run.files}
    stems = {member.stem for member in here.members if id(member.file) in taken_files}
    copies = [member.file.name for member in members if member.stem in stems]
    result = list(before)
    if copies:
        note = info(
            "same_recording",
            f"{join_some(copies, 4)} next to it is the same recording as a Perfetto trace; it was"
            " not read.",
        )
        result[0] = replace(result[0], notes=(*result[0].notes, note))
    for member in members:
        if member.stem not in stems:
            file = member.file
            result.append(RunFiles(member.stem, here.folder, (file,), file.modified, _NAME))
    return result


FORMAT = Format(
    name=_NAME,
    label="Perfetto traces (protobuf)",
    sniff=sniff,
    reader="nbprof.formats.perfetto.perfetto:read",
    dialect="nbprof.dialects.perfetto.perfetto:interpret",
    suffixes=SUFFIXES["perfetto"],
    names=_BY_NAME,
    gather=gather,
    is_copy=is_copy,
    bounded=True,
    separate_hosts=True,
)
