"""With which levels did TensorFlow record? Some versions (2.21) take the options that they are given and record with their own."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import cast

from nbprof.core import wire
from nbprof.core.errors import ReadError

# Numbers of fields: XSpace.planes; XPlane.name, .stat_metadata, .stats; XStat.metadata_id, .bytes_value; ProfileOptions.
_PLANES, _NAME, _STAT_NAMES, _STATS, _ID, _BYTES, _HOST_LEVEL, _PYTHON_LEVEL = 1, 2, 5, 6, 1, 6, 2, 4
_PLANE, _STAT = b"Task Environment", b"profile_options"


def of_file(path: Path) -> tuple[int, int] | None:
    """Host level and level of Python calls that an XSpace file says it was recorded with; None where it does not say so.

    Parameters
    ----------
    path : Path
        Only the heads of its planes are read, but for the one that tells.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _of(cast("wire.Data", data))
    except (OSError, ValueError, ReadError, IndexError):
        return None


def _of(data: wire.Data) -> tuple[int, int] | None:
    for number, kind, start, end in wire.fields(data, 0, len(data)):
        # The name is among the first fields; in a plane of events the others are a million.
        if (number, kind) == (_PLANES, wire.LENGTH) and _PLANE in bytes(data[start : min(end, start + 64)]):
            options = _stat(data, start, end)
            if options is not None:
                values = {field: value for field, kind, value, _ in wire.fields(options, 0, len(options)) if kind == wire.VARINT}
                return values.get(_HOST_LEVEL, 0), values.get(_PYTHON_LEVEL, 0)
    return None


def _stat(data: wire.Data, start: int, end: int) -> bytes | None:
    """The value of the plane's stat that holds the options."""
    wanted, values = 0, {}
    for number, kind, at, stop in wire.fields(data, start, end):
        if kind != wire.LENGTH or number not in (_STAT_NAMES, _STATS):
            continue
        inner = {field: (value, upto) for field, _, value, upto in wire.fields(data, at, stop)}
        if number == _STAT_NAMES and _STAT in bytes(data[at:stop]):
            wanted = inner.get(_ID, (0, 0))[0]
        elif number == _STATS and _BYTES in inner:
            values[inner.get(_ID, (0, 0))[0]] = bytes(data[slice(*inner[_BYTES])])
    return values.get(wanted)
