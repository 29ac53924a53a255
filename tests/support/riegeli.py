"""Writes Riegeli files as the recorder of JAX does, and cuts an XSpace into the records that it
cuts one of over 2 GB into.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nbprof.formats.xspace.riegeli import SIGNATURE
from tests.support import xspace_proto
from tests.support.xspace import varint

BLOCK, _BLOCK_HEADER, _CHUNK_HEADER = 1 << 16, 24, 40
_USABLE = BLOCK - _BLOCK_HEADER
RECORDS, TRANSPOSED, METADATA, PADDING = ord("r"), ord("t"), ord("m"), ord("p")
_CHECKSUM = 1
"""In the place of each HighwayHash, which nbprof does not verify."""


def packing(name: str) -> tuple[int, Callable[[bytes], bytes]]:
    """The byte that stands for a packing, and the function that packs."""
    if name == "none":
        return 0, bytes
    import cramjam

    pack = {
        "brotli": lambda data: cramjam.brotli.compress(data, level=6),
        "zstd": cramjam.zstd.compress,
        "snappy": cramjam.snappy.compress_raw,
    }[name]
    return ord(
        {"brotli": "b", "zstd": "z", "snappy": "s"}[name]
    ), lambda data: varint(len(data)) + bytes(pack(data))


def simple(records: Sequence[bytes], packed: str = "none") -> bytes:
    """The content of a chunk of whole records."""
    kind, pack = packing(packed)
    sizes = pack(b"".join(varint(len(record)) for record in records))
    return bytes((kind,)) + varint(len(sizes)) + sizes + pack(b"".join(records))


class File:
    """A file that chunks are added to; `out` is what is written of it."""

    def __init__(self) -> None:
        self.out = bytearray(SIGNATURE)
        self.out += struct.pack("<QQQQ", 0, _CHECKSUM, ord("s"), 0)

    def chunk(self, kind: int, data: bytes, records: int, decoded: int) -> int:
        """Adds a chunk; returns the byte that it begins at."""
        begin = len(self.out)
        head = struct.pack("<QQQQ", len(data), _CHECKSUM, kind | records << 8, decoded)
        body = struct.pack("<Q", _CHECKSUM) + head + data
        end = begin + len(body)
        end += (len(body) + (begin + _USABLE - 1) % BLOCK) // _USABLE * _BLOCK_HEADER
        # Of a number of records that nobody would write, the file is not as long.
        least = begin + records % (1 << 20)
        if 0 < least % BLOCK <= _BLOCK_HEADER:
            least += _BLOCK_HEADER + 1 - least % BLOCK
        end = max(end, least)
        body += bytes(end - begin - len(body))
        at = 0
        while len(self.out) < end:
            if not len(self.out) % BLOCK:
                block = struct.pack("<QQ", len(self.out) - begin, end - len(self.out))
                self.out += struct.pack("<Q", _CHECKSUM) + block
            part = min(BLOCK - len(self.out) % BLOCK, end - len(self.out))
            self.out += body[at : at + part]
            at += part
        return begin

    def records(self, *records: bytes, packed: str = "none") -> int:
        """Adds a chunk of records."""
        return self.chunk(RECORDS, simple(records, packed), len(records), sum(map(len, records)))

    def pad(self) -> bytes:
        """Fills the last block, as a file is left that another may be put behind; returns all of
        it.
        """
        if rest := -len(self.out) % BLOCK:
            room = rest - _CHUNK_HEADER if rest >= _CHUNK_HEADER else rest + _USABLE - _CHUNK_HEADER
            self.chunk(PADDING, bytes(room), 0, 0)
        return bytes(self.out)


def written(records: Sequence[bytes], packed: str = "none", together: int = 1) -> bytes:
    """A file of records, so many of them in each chunk."""
    file = File()
    for at in range(0, len(records), together):
        file.records(*records[at : at + together], packed=packed)
    return file.pad()


def by_array_record(path: Path, records: Sequence[bytes], options: str) -> bytes:
    """The same by the library of ArrayRecord: without the footer that is its own, it writes Riegeli
    files.
    """
    from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

    from nbprof.formats.xspace.riegeli.chunks import Chunk, Chunks

    writer = ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    assert ArrayRecordReader(str(path)).read_all() == list(records)
    left, end = len(records), 64
    with path.open("rb") as file:
        for chunk in Chunks(file, 1 << 40):
            if left <= 0:
                break
            assert isinstance(chunk, Chunk)
            left, end = left - chunk.records, chunk.end
    return path.read_bytes()[:end]


def in_parts(data: bytes, most: int) -> list[bytes]:
    """An XSpace cut as `DestructiveChunkXSpace` of OpenXLA cuts it: no part has more than `most`
    bytes beside what all repeat.
    """
    space: Any = xspace_proto.parse(data)
    if len(data) <= most:
        return [data]
    planes = list(space.planes)
    del space.planes[:]
    out = [space.SerializeToString()]
    for plane in planes:
        for part in _planes(plane, most):
            new = type(space)(
                hostnames=space.hostnames,
                errors=space.errors,
                warnings=space.warnings,
                planes=[part],
            )
            out.append(new.SerializeToString())
    return out


def _planes(plane: Any, most: int) -> list[Any]:
    if plane.ByteSize() <= most or not plane.lines:
        return [plane]
    lines = list(plane.lines)
    del plane.lines[:]
    size = plane.ByteSize()
    out, current, held = [plane], type(plane)(), size
    current.CopyFrom(plane)
    for line in lines:
        if line.ByteSize() + size > most:
            if current.lines:
                out.append(current)
                current, held = _like(plane), size
            for part in _lines(line, most - size):
                out.append(_like(plane))
                out[-1].lines.append(part)
            continue
        if held + line.ByteSize() > most:
            out.append(current)
            current, held = _like(plane), size
        current.lines.append(line)
        held += line.ByteSize()
    return [*out, current] if current.lines else out


def _like(message: Any) -> Any:
    out = type(message)()
    out.CopyFrom(message)
    return out


def _lines(line: Any, most: int) -> list[Any]:
    if line.ByteSize() <= most or not line.events:
        return [line]
    events = list(line.events)
    del line.events[:]
    size = line.ByteSize()
    out, current, held = [line], _like(line), size
    for event in events:
        if held + event.ByteSize() > most and current.events:
            out.append(current)
            current, held = _like(line), size
        current.events.append(event)
        held += event.ByteSize()
    return [*out, current] if current.events else out
