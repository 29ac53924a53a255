"""The records of a Riegeli file, chunk by chunk: no more of it is in memory than one chunk, packed
and unpacked.

Brotli, Zstandard and Snappy are decompressed by `cramjam`, which is installed on request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from nbprof.core import wire
from nbprof.core.errors import NbprofError, ReadError
from nbprof.core.files import LIMIT_BYTES, Buffer, too_large
from nbprof.core.packed import allowed
from nbprof.core.trace import Int64s
from nbprof.formats.xspace.riegeli.chunks import MOST_RECORDS, TRANSPOSED, Chunk, Chunks, Damage

_NONE = 0
_PACKINGS = {0x62: "brotli", 0x7A: "Zstandard", 0x73: "Snappy"}
_TRANSPOSED = (
    "its records are transposed, which nbprof does not read and JAX does not write. Write the file"
    " again without the option `transpose` of the Riegeli writer."
)


class _MissingError(NbprofError):
    """The library that unpacks is not installed."""


@dataclass
class Record:
    """One record, and the bytes of its chunk."""

    begin: int
    end: int
    buffer: Buffer


def records(file: BinaryIO, label: str, limit: int = LIMIT_BYTES) -> Iterator[Record | Damage]:
    """The records of a file in their order, and the damage that was skipped.

    Parameters
    ----------
    file : binary file
    label : str
        The name of the file in errors.
    limit : int
        The most bytes that all of it may unpack to.

    Raises
    ------
    ReadError
        It is larger than that, its records are transposed, or they are packed with what is not
        installed.
    """
    done = 0
    for chunk in Chunks(file, limit):
        if isinstance(chunk, Damage):
            yield chunk
            continue
        if chunk.kind == TRANSPOSED:
            raise ReadError(_TRANSPOSED, path=label, offset=chunk.begin)
        try:
            ends, content = _sizes(chunk)
            fits = done + chunk.decoded <= allowed(chunk.end, limit)
            values = _values(chunk, content) if fits else None
        except _MissingError as error:
            raise ReadError(str(error), path=label, offset=chunk.begin) from None
        except ReadError as error:
            yield Damage(chunk.begin, chunk.end, error.reason)
            continue
        if values is None:
            raise too_large(label, limit)
        done += chunk.decoded
        for buffer in _split(values, ends):
            yield Record(chunk.begin, chunk.end, buffer)


def _sizes(chunk: Chunk) -> tuple[Int64s, memoryview]:
    """Where each record of a chunk ends, and the packed records, of which all sizes agree."""
    if not len(chunk.data):
        raise ReadError("it has no content")
    if chunk.records > min(MOST_RECORDS, chunk.end):
        raise ReadError(f"it says that it holds {chunk.records:,} records")
    kind = chunk.data[0]
    size, begin = wire.read_varint(chunk.data, 1, len(chunk.data))
    if begin + size > len(chunk.data):
        raise ReadError("the sizes of its records run over its end")
    sizes = _unpacked(kind, chunk.data[begin : begin + size], 10 * chunk.records)
    span = np.array([0], np.int64), np.array([len(sizes)], np.int64)
    lengths, _, complete = wire.packed(wire.buffer(bytes(sizes)), *span)
    if (
        not complete.all()
        or len(lengths) != chunk.records
        or (lengths < 0).any()
        or (lengths > chunk.decoded).any()
    ):
        raise ReadError("the sizes of its records make no sense")
    if int(lengths.sum()) != chunk.decoded:
        raise ReadError("the sizes of its records are not those of its content")
    content = chunk.data[begin + size :]
    unpacked_size, _ = _unpacked_size(kind, content)
    if unpacked_size != chunk.decoded:
        raise ReadError(f"it holds {unpacked_size:,} bytes where {chunk.decoded:,} are expected")
    return np.cumsum(lengths), content


def _values(chunk: Chunk, content: memoryview) -> Buffer:
    values = Buffer(chunk.decoded)
    _unpack(chunk.data[0], content, values.data)
    return values


def _split(values: Buffer, ends: Int64s) -> list[Buffer]:
    if len(ends) == 1:
        return [values]
    begins = [0, *ends.tolist()]
    return [
        Buffer.of(values.data[begin:end]) for begin, end in zip(begins, ends.tolist(), strict=False)
    ]


def _unpacked_size(kind: int, data: memoryview) -> tuple[int, int]:
    """How many bytes packed ones say that they are, and where they begin.

    Raises
    ------
    ReadError
        The packing is unknown, or the number is not complete.
    """
    if kind == _NONE:
        return len(data), 0
    if kind not in _PACKINGS:
        raise ReadError(f"its packing, {kind}, is unknown")
    return wire.read_varint(data, 0, len(data))


def _unpacked(kind: int, data: memoryview, limit: int) -> memoryview:
    """Unpacks `data`, which may have up to `limit` bytes then.

    Raises
    ------
    ReadError
        It is damaged, or too large.
    _MissingError
    """
    size, _ = _unpacked_size(kind, data)
    if size > limit:
        raise ReadError(f"a part of it says that it unpacks to {size:,} bytes")
    if kind == _NONE:
        return data
    buffer = Buffer(size)
    _unpack(kind, data, buffer.data)
    return buffer.data


def _unpack(kind: int, data: memoryview, target: memoryview) -> None:
    """Unpacks `data` into `target`, which it must fill.

    Raises
    ------
    ReadError
        It is damaged, or of another size.
    _MissingError
    """
    size, begin = _unpacked_size(kind, data)
    if kind == _NONE:
        target[:] = data
        return
    try:
        count = _decompressor(kind)(data[begin:], target) if size or begin < len(data) else 0
    except _MissingError:
        raise
    except Exception as error:
        raise ReadError(f"{_PACKINGS[kind]} cannot be unpacked ({error})") from None
    if count != size:
        raise ReadError(f"{count:,} of {size:,} bytes could be unpacked")


def _decompressor(kind: int) -> Any:
    try:
        import cramjam
    except ImportError:
        raise _MissingError(
            f"it is packed with {_PACKINGS[kind]}, which needs one package more: pip install"
            " nbprof[riegeli], then load it again."
        ) from None
    return {
        0x62: cramjam.brotli.decompress_into,
        0x7A: cramjam.zstd.decompress_into,
        0x73: cramjam.snappy.decompress_raw_into,
    }[kind]
