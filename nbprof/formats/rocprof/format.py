"""Files of AMD's rocprofv3 as a format: `*_results.json`, rocpd's `*_results.db`, and tables in
CSV.
"""

from __future__ import annotations

from collections.abc import Mapping

from nbprof.core.files import LocalFile, RunFiles, SourceFile, printable
from nbprof.core.receipt import Note, info
from nbprof.core.sqlite import tables_named
from nbprof.core.units import join_some
from nbprof.formats.format import Format, Head, Here, Kind, Member, is_text
from nbprof.formats.names import SUFFIXES
from nbprof.formats.rocprof.headers import kind_of, prefix_of

NAME = "rocprof"
_ROOT = b'"rocprofiler-sdk-tool"'
_RPD = "rocpd_api_ops"
"""A table of rocmProfileData, whose other tables are called as those of rocprofv3."""
_V1_TABLES = {"KERN", "A", "HIP", "HSA", "OPS", "COPY", "rocTX"}
_RECORD_ANEW = "record with  rocprofv3 --runtime-trace."
_V1_REMEDY = (
    "nbprof shows the .json of the same recording as a timeline, where rocprof wrote one; for"
    f" tables and steps {_RECORD_ANEW}"
)
_DETAIL = {"csv": 0, "json": 1, "db": 2}
_TOGETHER_S = 1800.0
"""Processes of one job end about together; what was written later is of another."""


def sniff(head: Head) -> Kind | None:
    """The kind of a file of rocprofv3, by its content; None for other files."""
    if head.json:
        if _ROOT in head.text[:256]:
            return Kind(NAME, "a recording of rocprofv3 (JSON)")
        return None
    tables = tables_named(head.data)
    if any(name.startswith("rocpd_") for name in tables):
        if _RPD in tables:
            return Kind(
                "",
                "a database of rocmProfileData (RPD)",
                f"nbprof does not read it: {_RECORD_ANEW}",
            )
        return Kind(NAME, "a recording of rocprofv3 (database of rocpd)")
    if not _V1_TABLES.isdisjoint(tables) and b"BeginNs" in head.data:
        return Kind("", "a database of rocprof (v1)", _V1_REMEDY)
    if tables or not is_text(head.data[:4096]):
        return None
    return _table(head.data[:8192].partition(b"\n")[0])


def _table(line: bytes) -> Kind | None:
    """Name of the table with a header, if one of AMD's profilers writes it."""
    kind = kind_of(line)
    if kind == "v1":
        return Kind("", "a table of rocprof (v1)", _V1_REMEDY)
    if kind == "v1_stats":
        return Kind("", "a summary of rocprof (v1)", _V1_REMEDY)
    if kind == "stats":
        return Kind(
            "",
            "a summary of rocprofv3 (CSV)",
            "Load the tables *_trace.csv of the same recording: they contain everything that it"
            " summarizes.",
        )
    return Kind(NAME, "a table of rocprofv3 (CSV)") if kind else None


def _rank(file: SourceFile) -> int:
    """Rank by detail of files of the same recording: tables lack the bytes of copies."""
    return _DETAIL.get(file.name.lower().rpartition(".")[2], 0)


def gather(here: Here, before: list[RunFiles]) -> list[RunFiles]:
    """The processes in a folder are the ranks of one run, unless they were written at another
    time.
    """
    processes: dict[str, list[SourceFile]] = {}
    for member in here.of(NAME):
        processes.setdefault(prefix_of(member.file.name), []).append(member.file)
    left_out: list[str] = []
    for files in processes.values():
        best = max(map(_rank, files))
        left_out += [file.name for file in files if _rank(file) < best]
        files[:] = [file for file in files if _rank(file) == best]
    notes: tuple[Note, ...] = ()
    if left_out:
        text = (
            f"{join_some(left_out, 4)} next to it is the same recording in another format; it was"
            " not read."
        )
        notes = (info("same_recording", text),)
    result = list(before)
    groups = _written_together(processes)
    for group in groups:
        name = group[0] or here.name
        if len(group) > 1 and len(groups) == 1 and not before:
            name = here.name
        files = [file for prefix in sorted(group) for file in processes[prefix]]
        result.append(RunFiles(name, here.folder, tuple(files), _modified(files), NAME, notes))
    return result


def _written_together(processes: Mapping[str, list[SourceFile]]) -> list[list[str]]:
    """Prefixes of processes in groups that were written within half an hour of each other."""
    modified = {prefix: _modified(files) for prefix, files in processes.items()}
    groups: list[list[str]] = []
    last = 0.0
    for prefix in sorted(modified, key=lambda prefix: (modified[prefix], prefix)):
        if not groups or modified[prefix] - last > _TOGETHER_S:
            groups.append([])
        last = modified[prefix]
        groups[-1].append(prefix)
    return groups


def _modified(files: list[SourceFile]) -> float:
    return max(file.modified for file in files)


def _notes(member: Member) -> tuple[Note, ...]:
    """A note on one table that is loaded alone: there are others."""
    if not isinstance(member.file, LocalFile) or not member.file.name.lower().endswith(".csv"):
        return ()
    path = member.file.path
    prefix = prefix_of(path.name)
    names = []
    for other in path.parent.glob("*.csv"):
        if other.name != path.name and prefix_of(other.name) == prefix:
            names.append(printable(other.name))
    if not names:
        return ()
    are = "are other tables"
    if len(names) == 1:
        are = "is another table"
    text = (
        f"{join_some(sorted(names), 3)} next to it {are} of the same recording: load the folder to"
        " include all."
    )
    return (info("other_tables", text),)


FORMAT = Format(
    name=NAME,
    label="recordings of rocprofv3 (JSON, CSV, rocpd databases)",
    sniff=sniff,
    reader="nbprof.formats.rocprof.rocprof:read",
    dialect="nbprof.dialects.rocprof.rocprof:interpret",
    suffixes=SUFFIXES["rocprof"],
    gather=gather,
    notes=_notes,
)
