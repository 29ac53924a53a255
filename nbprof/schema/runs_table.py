"""The table of `nbprof.runs`, which is of no profile."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, size, text

COLUMNS: list[Col] = [
    text("run", "Run", "Its name, to pass to `nbprof.load(..., run=...)`."),
    text("label", "Recorded as", "Notebook and cell, where nbprof recorded it."),
    count("hosts", "Hosts", "Files that are hosts or ranks of it."),
    text("format", "Format", "xspace, chrome, msprof or torch_memory."),
    size("bytes", "Size", "Total size of its files.", "Int64"),
    Col("modified", "datetime64[ns]", "", "Modified", "Local time.", "text", None),
    text("path", "Path", "Path to pass to `nbprof.load`."),
]
