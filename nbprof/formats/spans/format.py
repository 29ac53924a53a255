"""Spans in CSV as a format: `*.spans`, with the columns name, thread, start_us and duration_us."""

from __future__ import annotations

from nbprof.formats.format import Format, Head, Kind
from nbprof.formats.names import SUFFIXES

NAME = "spans"
HEADER = b"name,thread,start_us,duration_us"


def sniff(head: Head) -> Kind | None:
    """The kind of a file with this header; None for other files."""
    return Kind(NAME, "spans in CSV") if head.text.startswith(HEADER) else None


FORMAT = Format(
    name=NAME,
    label="spans in CSV",
    sniff=sniff,
    reader="nbprof.formats.spans.spans:read",
    dialect="nbprof.dialects.chrome.chrome:interpret",
    suffixes=SUFFIXES["spans"],
)
