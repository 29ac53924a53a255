"""Fingerprints of files: digests of their names, sizes, and parts of their content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from nbprof.core.confinement import Confinement
from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile

_BLOCK = 1 << 16
_BLOCKS = 16
_LEAST = 2
_IN_ALL = 256


def fingerprint(paths: Sequence[Path], confinement: Confinement | None = None) -> str | None:
    """Total size, and a digest of the names, sizes and up to sixteen blocks of each file.

    None if a file cannot be read. A digest of all bytes would take seconds. Traces differ in their
    times from the first event to the last, so a few blocks are enough.
    """
    blocks = min(_BLOCKS, max(_LEAST, _IN_ALL // max(len(paths), 1)))
    each: list[bytes] = []
    total = 0
    try:
        for path in paths:
            with LocalFile(path, confinement=confinement).open() as file:
                size = os.fstat(file.fileno()).st_size
                digest = hashlib.sha256(f"{path.name}\0{size}\0".encode("utf-8", "replace"))
                total += size
                last = max(size - _BLOCK, 0)
                offsets: Sequence[int] = range(0, size, _BLOCK)
                if len(offsets) > blocks:
                    offsets = [last * i // (blocks - 1) for i in range(blocks)]
                for offset in offsets:
                    file.seek(offset)
                    digest.update(file.read(_BLOCK))
                each.append(digest.digest())
    except (OSError, ReadError):
        return None
    # The order of the files does not matter.
    return f"{total:x}-{hashlib.sha256(b''.join(sorted(each))).hexdigest()[:40]}"
