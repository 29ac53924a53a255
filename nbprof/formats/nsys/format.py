"""Exports of Nsight Systems as a format: databases (SQLite) and folders of tables (Parquet)."""

from __future__ import annotations

import re

from nbprof.core.files import RunFiles
from nbprof.core.sqlite import MAGIC, tables_named
from nbprof.formats.format import Format, Head, Here, Kind
from nbprof.formats.names import SUFFIXES

NAME = "nsys"
PARQUET = b"PAR1"
FOLDER = re.compile(r"_(pqtdir|parqdir)$", re.IGNORECASE)

# Tables that Nsight Systems alone writes: nvprof called its tables of kernels by the name of
# CUPTI's records, too.
_OURS = re.compile(
    r"TARGET_INFO_\w+|META_DATA_(CAPTURE|EXPORT)|NVTX_EVENTS\w*|ENUM_NSYS_\w+"
    r"|CUPTI_ACTIVITY_KIND_(KERNEL|RUNTIME)|ANALYSIS_DETAILS"
)
_NVPROF = re.compile(r"CUPTI_ACTIVITY_KIND_(CONCURRENT_KERNEL|DRIVER|MARKER)|StringTable")
_TABLE = re.compile(
    r"((CUPTI|CUDA|NVTX|TARGET_INFO|ENUM|META_DATA|OSRT|GPU|MPI|SCHED|COMPOSITE|SAMPLING|PROFILER"
    r"|DIAGNOSTIC|CUBLAS|CUDNN|OPENACC|OPENMP)_\w+|"
    r"StringIds|ThreadNames|PROCESSES|ProcessStreams|ANALYSIS_\w+|EXPORT_\w+)\.parquet$"
)
_REPORT = re.compile(r"\.(nsys-rep|qdrep|qdstrm)$", re.IGNORECASE)


def sniff(head: Head) -> Kind | None:
    """The kind of a database of Nsight Systems, of one of its tables, or of a report that has to be
    exported first; None for other files.
    """
    if head.data.startswith(MAGIC):
        return _database(head)
    if head.data.startswith(PARQUET):
        if _TABLE.search(head.name):
            return Kind(NAME, "a table of Nsight Systems (Parquet)")
        return None
    if _REPORT.search(head.name):
        if head.name.lower().endswith(".qdstrm"):
            how = "Convert it with Nsight Systems' QdstrmImporter and load the result."
            return Kind("", "a raw recording of Nsight Systems", how)
        how = (
            f"Export it where Nsight Systems is installed:  nsys export --type sqlite {head.name} "
            " and load the resulting .sqlite file."
        )
        return Kind("", "a report of Nsight Systems", how, tool=NAME)
    return None


def _database(head: Head) -> Kind | None:
    tables = tables_named(head.data)
    if any(map(_OURS.fullmatch, tables)) and tables.isdisjoint(("StringTable", "Version")):
        return Kind(NAME, "an export of Nsight Systems (SQLite)")
    if any(map(_NVPROF.fullmatch, tables)):
        return Kind(
            "",
            "a profile of nvprof (SQLite)",
            "nbprof reads those of its successor: record with  nsys profile.",
        )
    # Packed, the pages that name the tables may be out of sight.
    if not tables and not head.whole and head.name.lower().endswith(".sqlite"):
        return Kind(NAME, "an export of Nsight Systems (SQLite)", sure=False)
    return None


def gather(here: Here, before: list[RunFiles]) -> list[RunFiles]:
    """Each database is a run, and the tables of a folder are one."""
    runs = list(before)
    tables = []
    for member in here.of(NAME):
        file = member.file
        if file.name.lower().endswith(".parquet"):
            tables.append(file)
        else:
            runs.append(RunFiles(member.stem, here.folder, (file,), file.modified, NAME))
    if tables:
        name = FOLDER.sub("", here.name) or here.name
        newest = max(file.modified for file in tables)
        runs.append(RunFiles(name, here.folder, tuple(tables), newest, NAME))
    return runs


FORMAT = Format(
    name=NAME,
    label="exports of Nsight Systems (SQLite, Parquet)",
    sniff=sniff,
    reader="nbprof.formats.nsys.nsys:read",
    dialect="nbprof.dialects.nsys.nsys:interpret",
    suffixes=SUFFIXES["nsys"],
    gather=gather,
)
