"""Texts of a Perfetto trace as codes of the trace that is built."""

from __future__ import annotations

import numpy as np

from nbprof.core import wire
from nbprof.core.distinct import distinct
from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.build import Builder
from nbprof.formats.perfetto.sequences import Sequences
from nbprof.formats.xspace.texts import Strings


class Texts:
    """Codes of texts; bytes that are no UTF-8 are counted."""

    def __init__(self, builder: Builder) -> None:
        self._texts = builder.texts
        self.strings = Strings()
        self._tables: dict[int, list[int]] = {}

    @property
    def listed(self) -> list[str]:
        """All texts by code."""
        return list(self._texts)

    def code(self, text: str) -> int:
        """The code of one text."""
        return self._texts[text]

    def numbered(self, label: str, numbers: Int64s) -> Int32s:
        """Codes for what has a number only: `name 7`."""
        idents, inverse = np.unique(numbers, return_inverse=True)
        codes = [self.code(f"{label} {ident}") for ident in idents.tolist()]
        return np.array(codes, np.int32)[inverse.reshape(-1)]

    def spans(self, buf: wire.Bytes, start: Int64s, end: Int64s) -> Int32s:
        """Codes of texts in the file."""
        codes, texts = distinct(buf, start, end - start)
        return self._codes_of(texts)[codes]

    def of_table(self, sequences: Sequences, table: int) -> list[int]:
        """Codes of the interned texts of one table."""
        if table not in self._tables:
            entries = sequences.tables.get(table, {})
            self._tables[table] = self._codes_of(list(entries.values())).tolist()
        return self._tables[table]

    def _codes_of(self, texts: list[bytes]) -> Int32s:
        return np.array([self._texts[self.strings.decode(text)] for text in texts], np.int32)
