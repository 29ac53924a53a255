"""The bytes of a trace that may be packed with gzip, whatever its name says, chunk by chunk."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module

from nbprof.core.files import Buffer, SourceFile, too_large
from nbprof.core.packed import allowed

CHUNK = 1 << 22
MAGIC = b"\x1f\x8b"


def _decompressor() -> Callable[[], zlib._Decompress]:
    """One that reads gzip: isal's where it is installed (twice as fast), else zlib's."""
    try:
        fast = import_module("isal.isal_zlib")
    except ImportError:
        return lambda: zlib.decompressobj(31)
    return lambda: fast.decompressobj(31)


class Source:
    """The text of a file in chunks, unpacked where it is packed.

    Attributes
    ----------
    trouble : str
        Set when a packed file ends too early or is damaged: what could be unpacked was given out
        before.
    read : int
        Bytes of text so far.
    """

    def __init__(self, file: SourceFile, limit_bytes: int) -> None:
        self.file = file
        self.limit = limit_bytes
        self.trouble = ""
        self.read = 0

    def chunks(self) -> Iterator[bytes]:
        """Yields the text.

        Raises
        ------
        ReadError
            The file can't be read, or unpacks to more than the limit.
        """
        buffer = self.file.read()
        packed = bytes(buffer.data[:2]) == MAGIC
        limit = allowed(buffer.size, self.limit)
        for chunk in self._unpacked(buffer) if packed else self._plain(buffer):
            self.read += len(chunk)
            if packed and self.read > limit:
                raise too_large(self.file.label, limit)
            if chunk:
                yield chunk

    def _plain(self, buffer: Buffer) -> Iterator[bytes]:
        for offset in range(0, buffer.size, CHUNK):
            yield bytes(buffer.data[offset : min(offset + CHUNK, buffer.size)])
            buffer.release(offset, offset + CHUNK)
            buffer.reached(min(offset + CHUNK, buffer.size))

    def _unpacked(self, buffer: Buffer) -> Iterator[bytes]:
        make = _decompressor()
        data, offset = buffer.data, 0
        while offset < buffer.size:
            begin, values = offset, 0
            unpack = make()
            feed: bytes | memoryview = b""
            while not unpack.eof:
                if not len(feed):
                    if offset >= buffer.size:
                        self.trouble = (
                            "The compressed file is truncated; what could be decompressed was read."
                        )
                        return
                    feed = data[offset : offset + CHUNK // 8]
                    offset += len(feed)
                    buffer.reached(offset)
                # isal and zlib raise errors of their own.
                try:
                    result = unpack.decompress(feed, CHUNK)
                except MemoryError:
                    raise
                except Exception as error:
                    self.trouble = (
                        f"The compressed file is damaged near byte {offset:,} ({error}); the part"
                        " before it was read."
                    )
                    yield from _salvaged(data[begin:offset], values)
                    return
                feed = unpack.unconsumed_tail
                values += len(result)
                yield result
            offset -= len(unpack.unused_data)
            # Members may follow one another; zeros are padding.
            while offset < buffer.size and data[offset] == 0:
                offset += 1
            if offset < buffer.size and bytes(data[offset : offset + 2]) != MAGIC:
                self.trouble = (
                    f"{buffer.size - offset:,} bytes after the compressed data are not gzip; they"
                    " were not read."
                )
                return


def _salvaged(data: memoryview, values: int) -> Iterator[bytes]:
    """What can be unpacked of a damaged member beyond the bytes that were given out before, in
    steps so small that little is lost.
    """
    unpack = zlib.decompressobj(31)
    feed: bytes | memoryview = data
    done = 0
    while len(feed) and not unpack.eof:
        try:
            result = unpack.decompress(feed, min(values - done, CHUNK) if done < values else 64)
        except zlib.error:
            return
        feed = unpack.unconsumed_tail
        done += len(result)
        if done > values:
            yield result
