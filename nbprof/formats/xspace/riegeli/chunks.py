"""The chunks of a Riegeli file from front to back, across the headers of its 64 KiB blocks, and how
to go on where they are damaged.

The format is described at
https://github.com/google/riegeli/blob/master/doc/riegeli_records_file_format.md. Its checksums
(HighwayHash) are not verified. A damaged header is found because its sizes are impossible or
contradict the block headers; damaged content when it is decompressed and decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from nbprof.core.errors import ReadError
from nbprof.core.files import BLOCK as PART
from nbprof.core.files import Buffer

BLOCK = 1 << 16
RECORDS, TRANSPOSED = ord("r"), ord("t")
MOST_RECORDS = 1 << 24
_FILE_METADATA = ord("m")
_BLOCK_HEADER, _CHUNK_HEADER = 24, 40
_USABLE = BLOCK - _BLOCK_HEADER
# A larger size is damage: no file is that long.
_MOST_BYTES = 1 << 48
_DAMAGED_HEADER = "its header is damaged"


@dataclass
class Chunk:
    """A chunk, and where it is in the file."""

    begin: int
    end: int
    kind: int
    records: int
    decoded: int
    data: memoryview


@dataclass
class Damage:
    """Bytes that were skipped, and the reason."""

    begin: int
    end: int
    reason: str


@dataclass
class _Block:
    """A block header, and where the chunk that it interrupts begins and ends."""

    offset: int
    begin: int
    end: int

    @property
    def possible(self) -> bool:
        """Whether a chunk can begin and end there."""
        is_inside = 0 <= self.begin <= self.offset < self.end < self.offset + _MOST_BYTES
        return is_inside and _may_begin(self.begin) and (self.end - 1) % BLOCK >= _BLOCK_HEADER


class _Missing(Exception):  # noqa: N818 - no error, if it is between two chunks
    """The file ends here."""


class _Lost(Exception):  # noqa: N818 - reading goes on elsewhere
    """The next chunk is at an unknown place, or at `resume`."""

    def __init__(self, reason: str, resume: int | None = None) -> None:
        super().__init__(reason)
        self.resume = resume


class Chunks:
    """The chunks of one file in their order, with the damage between them.

    Parameters
    ----------
    file : binary file
        It is read forward only.
    limit : int
        Bytes that one chunk may have.
    """

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._limit = limit
        self._offset = 0
        self._begin = 0
        self._end: int | None = None
        """Of the current chunk, once its header is known."""
        self._into: Callable[[memoryview], int] = file.readinto  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[Chunk | Damage]:
        while True:
            # A chunk that begins at a block header begins in front of it.
            self._begin = self._offset - (
                _BLOCK_HEADER if self._offset % BLOCK == _BLOCK_HEADER else 0
            )
            self._end = None
            try:
                chunk = self._chunk()
            except _Missing:
                if self._offset > self._begin:
                    yield Damage(self._begin, self._offset, "the file ends inside of it")
                return
            except _Lost as lost:
                begin = self._begin
                there = self._find() if lost.resume is None else self._skip_to(lost.resume)
                yield Damage(begin, self._offset, str(lost))
                if not there:
                    return
                continue
            if chunk is not None:
                yield chunk

    def _chunk(self) -> Chunk | Damage | None:
        """The next chunk; None for one without records."""
        header = bytearray(_CHUNK_HEADER)
        self._read(memoryview(header))
        checksum, size, _, kind_and_records, decoded = struct.unpack("<5Q", header)
        kind, records = kind_and_records & 0xFF, kind_and_records >> 8
        # A part of the file that was never written is zeros, also where a checksum would be.
        if not checksum or max(size, decoded) > _MOST_BYTES or records > MOST_RECORDS:
            raise _Lost(_DAMAGED_HEADER)
        begin = self._begin
        end = self._end = max(_behind(begin, _CHUNK_HEADER + size), _boundary(begin + records))
        if kind not in (RECORDS, TRANSPOSED):
            # Signature, metadata and padding have no records; unknown types are damage only if they
            # have some.
            self._pass_to(end)
            is_unknown = records and kind != _FILE_METADATA
            if is_unknown:
                return Damage(begin, end, f"its type, {kind}, is unknown")
            return None
        if size > self._limit:
            # The next block header contradicts a damaged size.
            self._pass_to(begin + BLOCK + 1)
            raise ReadError(
                f"a chunk says that it has {size:,} bytes, more than is allowed", offset=begin
            )
        data = self._data(size)
        self._pass_to(end)
        return Chunk(begin, end, kind, records, decoded, data)

    def _data(self, size: int) -> memoryview:
        try:
            # Its pages are set aside when they are written to: a header may claim what is not
            # there.
            buffer = Buffer(size)
        except (OSError, MemoryError, OverflowError):
            raise ReadError(
                f"a chunk says that it has {size:,} bytes, more than there is memory",
                offset=self._begin,
            ) from None
        self._read(buffer.data)
        return buffer.data

    def _read(self, target: memoryview) -> None:
        """Fills `target` with the next bytes of the chunk."""
        done = 0
        while done < len(target):
            in_block = self._offset % BLOCK
            if in_block == 0:
                self._block_header()
                continue
            count = min(len(target) - done, BLOCK - in_block)
            self._fill(target[done : done + count])
            done += count

    def _pass_to(self, end: int) -> None:
        """Skips the rest of the chunk."""
        while self._offset < end:
            in_block = self._offset % BLOCK
            if in_block == 0:
                self._block_header()
            else:
                self._skip(min(end - self._offset, BLOCK - in_block))

    def _block_header(self) -> None:
        """Reads a block header; one that contradicts the chunk says that the chunk is damaged or
        was never completed.
        """
        if self._offset == self._begin:
            self._skip(_BLOCK_HEADER)
            return
        block = self._read_block()
        if not block.possible or block.end == self._end:
            # A damaged block header is no loss while the chunks are read one after the other.
            return
        if block.begin == self._begin:
            if self._end is None:
                return
            raise _Lost(_DAMAGED_HEADER, _near(block))
        if block.begin == block.offset:
            raise _Lost("another begins inside of it", block.offset)
        raise _Lost("another one is where it should go on", _near(block))

    def _read_block(self) -> _Block:
        """The block header that begins here."""
        offset, header = self._offset, bytearray(_BLOCK_HEADER)
        self._fill(memoryview(header))
        _, before, after = struct.unpack("<3Q", header)
        return _Block(offset, offset - before, offset + after)

    def _find(self) -> bool:
        """Goes to the next chunk that a block header points to; False at the end of the file."""
        self._end = None
        try:
            while True:
                self._skip(-self._offset % BLOCK)
                block = self._read_block()
                if not block.possible:
                    continue
                if block.begin == block.offset:
                    return True
                # The last of the block headers inside a chunk points to its end; a damaged one may
                # point anywhere.
                resume = _near(block)
                if resume is not None:
                    return self._skip_to(resume)
        except _Missing:
            return False

    def _skip_to(self, offset: int) -> bool:
        """Goes on to a byte, False where the file ends before; one in front of the block header
        that was just read counts as reached.
        """
        try:
            self._skip(max(offset - self._offset, 0))
        except _Missing:
            return False
        return True

    def _skip(self, count: int) -> None:
        scratch = bytearray(min(count, PART))
        while count:
            part = min(count, len(scratch))
            self._fill(memoryview(scratch)[:part])
            count -= part

    def _fill(self, target: memoryview) -> None:
        while target:
            count = self._into(target)
            if not count:
                raise _Missing
            self._offset += count
            target = target[count:]


def _near(block: _Block) -> int | None:
    """The end of the chunk that a block header interrupts, if it is within the block."""
    return block.end if block.end - block.offset <= BLOCK else None


def _overhead(begin: int, size: int) -> int:
    """How many block headers are among some bytes of chunks that begin at a byte."""
    return (size + (begin + _USABLE - 1) % BLOCK) // _USABLE


def _behind(begin: int, size: int) -> int:
    return begin + size + _overhead(begin, size) * _BLOCK_HEADER


def _may_begin(offset: int) -> bool:
    """Whether a chunk may begin at a byte: not in a block header, nor right behind one."""
    return not offset % BLOCK or offset % BLOCK > _BLOCK_HEADER


def _boundary(offset: int) -> int:
    """The first byte from this one on where a chunk may begin."""
    if _may_begin(offset):
        return offset
    return offset - offset % BLOCK + _BLOCK_HEADER + 1
