"""Texts of XSpaces, of which some may be no UTF-8."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nbprof.core import wire
from nbprof.core.receipt import Receipt
from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.xspace import notes


class Strings:
    """Texts of all files, each once; counts those that are no UTF-8."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.broken = 0
        self.example = ""

    def decode(self, data: bytes | memoryview) -> str:
        """A text; bytes that are no UTF-8 become U+FFFD and are counted."""
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError:
            self.broken += 1
            text = str(data, "utf-8", "replace")
            self.example = self.example or text
            return text

    def decoded(self, texts: Sequence[bytes | memoryview]) -> list[str]:
        """Many texts, one by one."""
        try:
            return [str(text, "utf-8") for text in texts]
        except UnicodeDecodeError:
            return [self.decode(text) for text in texts]

    def numbered(self, texts: Sequence[str]) -> Int32s:
        """Codes of many texts."""
        codes = self.codes
        return np.array([codes.setdefault(text, len(codes)) for text in texts], np.int32)

    def table(self, texts: Sequence[bytes]) -> Int32s:
        """Codes of many texts that are still bytes."""
        return self.numbered(self.decoded(texts))

    def report(self, receipt: Receipt) -> None:
        """Says what was no UTF-8."""
        if self.broken:
            receipt.add(notes.invalid_utf8(self.broken, self.example[:60]))


def span_texts(buf: wire.Bytes, start: Int64s, end: Int64s, strings: Strings) -> list[str]:
    """Texts at many places, one by one."""
    data = buf.data
    return strings.decoded([data[a:b] for a, b in zip(start.tolist(), end.tolist(), strict=True)])
