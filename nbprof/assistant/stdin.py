r"""Standard input as the SDK reads it: each message on it can be read, so that each has an answer.

JSON may escape half of a surrogate pair (`"\ud800"`), which is no text. The SDK drops a line with
one in it, and the client waits for ever. Here it becomes the replacement character, and the answer
is that there is nothing of that name.
"""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import BinaryIO

_PAIR = rb"u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = rb"u[dD][89a-fA-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"\\(?:%b|(%b)|.)" % (_PAIR, _HALF), re.DOTALL)


def readable(line: bytes) -> bytes:
    """A line of JSON with the replacement character for each half of a surrogate pair."""
    # From left to right, so that a backslash that is escaped itself begins nothing.
    return _ESCAPE.sub(lambda match: b"\\ufffd" if match[1] else match[0], line)


class Messages(io.BufferedIOBase):
    """A stream of lines of JSON, each made readable.

    Parameters
    ----------
    source : binary file
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source

    def readable(self) -> bool:
        """It is."""
        return True

    def read1(self, size: int = -1, /) -> bytes:  # noqa: ARG002 - a line has to be seen at once
        """The next line, of any length; nothing at the end."""
        return readable(self._source.readline())

    def read(self, size: int | None = -1, /) -> bytes:  # noqa: ARG002
        """The same."""
        return self.read1()


def claim() -> None:
    """Use such a stream as `sys.stdin`; other readers of standard input find its end."""
    messages = os.fdopen(os.dup(0), "rb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    sys.stdin = io.TextIOWrapper(Messages(messages), encoding="utf-8", errors="replace")
