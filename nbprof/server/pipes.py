"""Messages between the server and its processes: a head of JSON and a body of bytes, over a pipe.

Nothing is pickled: a process that reads foreign files is not trusted more than these files.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

AT_ONCE = 3
"""Requests that a process answers at a time, so that the view responds while a search runs."""

_LENGTHS = struct.Struct("<II")
_MOST_HEAD = 1 << 24


def take_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output of a process for messages only: other output goes to stderr."""
    answers: BinaryIO = os.fdopen(os.dup(1), "wb")
    requests: BinaryIO = os.fdopen(os.dup(0), "rb")
    # Nothing else may print or read there.
    os.dup2(2, 1)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return requests, answers


def write(pipe: BinaryIO, head: dict[str, Any], body: bytes = b"") -> None:
    """Send one message.

    Raises
    ------
    OSError
        The other end is closed.
    """
    text = json.dumps(head).encode()
    pipe.write(_LENGTHS.pack(len(text), len(body)))
    pipe.write(text)
    pipe.write(body)
    pipe.flush()


def read(pipe: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """The next message; None at the end, or if it is invalid."""
    lengths = pipe.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    head, body = _LENGTHS.unpack(lengths)
    if head > _MOST_HEAD:
        return None
    text = pipe.read(head)
    data = pipe.read(body) if body else b""
    if len(text) < head or len(data) < body:
        return None
    try:
        message = json.loads(text)
    except ValueError:
        return None
    return (message, data) if isinstance(message, dict) else None
