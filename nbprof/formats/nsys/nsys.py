"""Reads exports of Nsight Systems into a `Trace`.

Tables and columns are those of the Exporter's SQLite schema
(https://docs.nvidia.com/nsight-systems/UserGuide/index.html, "SQLite Schema Reference"); times are
ns from the start of the session. What Kineto's traces have too is named as there: CUPTI is the
source of both.

A process that used a GPU is a host of the trace, as a rank's file is: its ids of launches and
ordinals of devices are its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import pandas as pd

from nbprof.core.errors import ReadError
from nbprof.core.factorize import unique_rows
from nbprof.core.files import LIMIT_BYTES, SourceFile, printable
from nbprof.core.receipt import Receipt
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.core.units import join_some
from nbprof.formats.build import Builder, Coded, Values
from nbprof.formats.nsys import facts, notes, nvtx, samples
from nbprof.formats.nsys.report import PID, Report
from nbprof.formats.nsys.tables import InDatabase, InFolder, Rows, Tables
from nbprof.formats.register import stem

KERNELS, GRAPHS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
COPIES, FILLS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
SYNCS, CALLS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_RUNTIME"
METRICS = "GPU_METRICS"
_DEVICE_TABLES = (KERNELS, GRAPHS, COPIES, FILLS, SYNCS)

_WHERE = (
    "start",
    "end",
    "deviceId",
    "contextId",
    "streamId",
    "correlationId",
    "globalPid",
    "graphNodeId",
    "graphId",
)
_SIDES = tuple(f"{shape}{axis}" for shape in ("grid", "block") for axis in "XYZ")
_SHARED = ("staticSharedMemory", "dynamicSharedMemory")
COLUMNS = {
    KERNELS: (*_WHERE, "demangledName", "shortName", "registersPerThread", *_SIDES, *_SHARED),
    GRAPHS: _WHERE,
    COPIES: (*_WHERE, "bytes", "copyKind", "srcKind", "dstKind"),
    FILLS: (*_WHERE, "bytes", "value", "memKind"),
    SYNCS: (*_WHERE, "syncType", "eventId"),
    CALLS: ("start", "end", "globalTid", "correlationId", "nameId", "returnValue"),
}
"""The columns that are read of the tables which tell the processes."""

# As CUPTI and the schema number them; `ENUM_*` tables of the file go before.
_DIRECTIONS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD",
    12: "DtoH",
    13: "DtoD",
}
_UNIFIED = (11, 12, 13)
_MEMORIES = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
}
_SYNCS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
# Said to be of the recorder, or of no use without what it belongs to.
_SILENT = (
    "ENUM_",
    "TARGET_INFO_",
    "META_DATA_",
    "EXPORT_",
    "ANALYSIS_",
    "StringIds",
    "ThreadNames",
    "PROCESSES",
    "ProcessStreams",
)
_CALLED = {"OSRT_API": "osrt", "PROFILER_OVERHEAD": "overhead"}


def read(
    files: Sequence[SourceFile],
    progress: Callable[[str], None] | None = None,
    limit_bytes: int = LIMIT_BYTES,
) -> Trace:
    """The trace of one run: of a database, of the tables of a folder, or of several of these, one a
    node.

    Parameters
    ----------
    files : sequence of SourceFile
    progress : callable, optional
        Called with a sentence as each export is begun.
    limit_bytes : int
        Not used: what is packed was unpacked before.

    Raises
    ------
    ReadError
        A file is damaged, or none of them has events.
    """
    del limit_bytes
    receipt = Receipt()
    builder = Builder(receipt)
    metadata: dict[str, object] = {}
    unread: list[str] = []
    of_host: dict[str, dict[str, object]] = {}
    for name, tables in _exports(files, progress):
        report = _report(name, tables, builder, taken=set(of_host))
        for pid, host in report.hosts.items():
            of_host[host] = report.facts.of_process(pid)
        metadata |= report.facts.versions
        _events(report)
        unread += report.nvtx_unread
        prefix = f"{name}: " if len(files) > 1 and not isinstance(tables, InFolder) else ""
        _fill_receipt(report, receipt, prefix)
    if not len(builder):
        raise ReadError(
            "this export of Nsight Systems has no events: the recording ended before the program"
            " ran, or nothing was traced. Record with  nsys profile --trace=cuda,nvtx,osrt.",
            path=files[0].label,
        )
    return builder.trace(
        list(of_host), {**metadata, "hosts": of_host, "nsys": True, "nvtx_unread": unread}
    )


def _exports(
    files: Sequence[SourceFile], progress: Callable[[str], None] | None
) -> list[tuple[str, Tables]]:
    reports: list[tuple[str, Tables]] = []
    folders: dict[str, list[SourceFile]] = {}
    for file in files:
        if file.name.lower().endswith(".parquet"):
            folders.setdefault(file.label.rpartition("/")[0], []).append(file)
            continue
        if progress:
            progress(f"reading {file.name}")
        reports.append((printable(stem(file.name)), InDatabase(file)))
    for folder, table_files in folders.items():
        if progress:
            progress(f"reading {len(table_files)} tables")
        reports.append((printable(folder.rpartition("/")[2]), InFolder(table_files)))
    return reports


def _report(name: str, tables: Tables, builder: Builder, taken: set[str]) -> Report:
    """An export, its strings, and which of its processes are hosts."""
    string_rows = Rows(tables, "StringIds", "id", "value")
    strings = dict(zip(string_rows.ints("id").tolist(), string_rows.texts("value"), strict=True))
    report = Report(tables, name, builder, facts.read(tables, strings), strings)
    used: list[int] = []
    counts = {table: tables.count(table) for table in tables.names}
    report.counts = {table: count for table, count in counts.items() if count}
    for table, columns in COLUMNS.items():
        rows = report.loaded[table] = Rows(tables, table, *columns)
        for ident in ("globalTid", "globalPid"):
            if ident in rows:
                used += pd.unique(rows.ints(ident, 0) >> 24 & PID).tolist()
    pids = list(dict.fromkeys(sorted(used))) or [0]
    machine = report.facts.machine or name
    for pid in pids:
        host = machine
        if len(pids) > 1:
            host = f"{machine} process {pid}"
        if host in taken:
            host = f"{host} ({name})"
        while host in taken:
            host += "'"
        taken.add(host)
        report.hosts[pid] = host
    return report


def _events(report: Report) -> None:
    _kernels(report)
    _graphs(report)
    _copies(report)
    _fills(report)
    _syncs(report)
    _calls(report)
    nvtx.add(report)
    _other_calls(report)
    samples.add(report)
    _metrics(report)


def _common(rows: Rows) -> dict[str, Values]:
    """Args of everything on a device."""
    return {
        "device": rows.masked("deviceId"),
        "context": rows.masked("contextId"),
        "stream": rows.masked("streamId"),
        "correlation": rows.masked("correlationId"),
        "graph id": rows.masked("graphId"),
        "graph node id": rows.masked("graphNodeId"),
    }


def _timed(report: Report, rows: Rows) -> tuple[Int64s, Int64s]:
    start = rows.ints("start", 0)
    return start + report.facts.start_ns, rows.ints("end", 0) - start


def _kernels(report: Report) -> None:
    rows = report.events(KERNELS)
    if not len(rows):
        return
    name = rows.ints("demangledName")
    name = np.where(name < 0, rows.ints("shortName"), name)
    args = _common(rows) | {
        "cat": "kernel",
        "registers per thread": rows.masked("registersPerThread"),
    }
    static, dynamic = _SHARED
    if static in rows or dynamic in rows:
        args["shared memory"] = rows.ints(static, 0) + rows.ints(dynamic, 0)
    for shape in ("grid", "block"):
        x, y, z = f"{shape}X", f"{shape}Y", f"{shape}Z"
        if x in rows:
            sides = _shape(report, rows.ints(x, 1), rows.ints(y, 1), rows.ints(z, 1))
            args[shape] = Coded(sides)
    report.builder.add(report.streams(rows), report.names(name), *_timed(report, rows), args)


def _shape(report: Report, x: Int64s, y: Int64s, z: Int64s) -> Int32s:
    first, code = unique_rows(x, y, z)
    sides = np.stack([x, y, z], axis=1)[first].tolist()
    return report.builder.codes(list(map(str, sides)))[code]


def _graphs(report: Report) -> None:
    """Graphs that were recorded as a whole, with none of their nodes."""
    rows = report.events(GRAPHS)
    if not len(rows):
        return
    names = report.by_code(
        rows.ints("graphId"), lambda ident: f"CUDA graph {ident}" if ident >= 0 else "CUDA graph"
    )
    report.builder.add(
        report.streams(rows), names, *_timed(report, rows), _common(rows) | {"cat": "kernel"}
    )
    report.builder.receipt.add(notes.graphs_without_kernels(len(rows)))


def _copies(report: Report) -> None:
    rows = report.events(COPIES)
    if not len(rows):
        return
    directions = report.facts.enum("ENUM_CUDA_MEMCPY_OPER", {})
    memories = report.facts.enum("ENUM_CUDA_MEM_KIND", _MEMORIES)
    kind, source, target = rows.ints("copyKind"), rows.ints("srcKind"), rows.ints("dstKind")
    first, code = unique_rows(kind, np.maximum(source, -1), np.maximum(target, -1))
    names = []
    for i in first.tolist():
        kind_of_copy = int(kind[i])
        begin = memories.get(int(source[i]), "Unknown")
        end = memories.get(int(target[i]), "Unknown")
        ends = f"{begin} -> {end}"
        if kind_of_copy in _UNIFIED:
            ends = "Unified"
        if kind_of_copy in _DIRECTIONS:
            names.append(f"Memcpy {_DIRECTIONS[kind_of_copy]} ({ends})")
        else:
            names.append(f"Memcpy ({directions.get(kind_of_copy, ends)})")
    start, duration = _timed(report, rows)
    size = rows.floats("bytes")
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(duration > 0, size / duration, np.nan)
    args = _common(rows) | {
        "cat": "gpu_memcpy",
        "bytes": rows.masked("bytes"),
        "memory bandwidth (GB/s)": rate,
    }
    report.builder.add(
        report.streams(rows), report.builder.codes(names)[code], start, duration, args
    )


def _fills(report: Report) -> None:
    rows = report.events(FILLS)
    if not len(rows):
        return
    memories = report.facts.enum("ENUM_CUDA_MEM_KIND", _MEMORIES)
    names = report.by_code(
        rows.ints("memKind"), lambda kind: f"Memset ({memories.get(kind, 'Unknown')})"
    )
    args = _common(rows) | {
        "cat": "gpu_memset",
        "bytes": rows.masked("bytes"),
        "value": rows.masked("value"),
    }
    report.builder.add(report.streams(rows), names, *_timed(report, rows), args)


def _syncs(report: Report) -> None:
    rows = report.events(SYNCS)
    if not len(rows):
        return
    names = report.by_code(rows.ints("syncType"), lambda kind: _SYNCS.get(kind, "Synchronization"))
    args = _common(rows) | {"cat": "cuda_sync", "event": rows.masked("eventId")}
    report.builder.add(report.streams(rows), names, *_timed(report, rows), args)


def _calls(report: Report) -> None:
    rows = report.events(CALLS)
    if not len(rows):
        return
    ids = rows.ints("nameId")
    # `cudaLaunchKernel_v7000`: a version of the interface, which Kineto does not write.
    name = report.by_code(
        ids, lambda ident: facts.unversioned(report.strings.get(ident, f"[{ident}]"))
    )

    def category(ident: int) -> str:
        is_runtime = report.strings.get(ident, "cuda").startswith("cuda")
        return "cuda_runtime" if is_runtime else "cuda_driver"

    failed = rows.ints("returnValue", 0)
    args: dict[str, Values] = {
        "cat": Coded(report.by_code(ids, category)),
        "correlation": rows.masked("correlationId"),
        "return value": np.ma.MaskedArray(failed, failed == 0),
    }
    report.builder.add(report.threads(rows.ints("globalTid", 0)), name, *_timed(report, rows), args)


def _other_calls(report: Report) -> None:
    """All other tables of activities of threads: calls of the operating system and of libraries,
    messages, the profiler's own work.
    """
    for table in report.counts:
        columns = report.tables.columns(table)
        text = "nameId" if "nameId" in columns else "textId"
        if table in report.read or not {"start", "end", "globalTid", text} <= set(columns):
            continue
        rows = report.events(table, "start", "end", "globalTid", text)
        rows = rows.only(~rows.null("globalTid"))
        if len(rows):
            args: dict[str, Values] = {
                "cat": _CALLED.get(table, table.lower().removesuffix("_events"))
            }
            report.builder.add(
                report.threads(rows.ints("globalTid")),
                report.names(rows.ints(text)),
                *_timed(report, rows),
                args,
            )


def _metrics(report: Report) -> None:
    """Samples of the GPUs' counters."""
    titles = report.rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")
    keys = zip(titles.ints("typeId").tolist(), titles.ints("metricId").tolist(), strict=True)
    named = dict(zip(keys, titles.texts("metricName"), strict=True))
    rows = report.rows(METRICS, "timestamp", "typeId", "metricId", "value")
    if not len(rows):
        return
    time, value = rows.ints("timestamp", 0) + report.facts.start_ns, rows.floats("value")
    kind, metric = rows.ints("typeId", 0), rows.ints("metricId", 0)
    first, code = unique_rows(np.maximum(kind, -1), np.maximum(metric, -1))
    order = np.argsort(code, kind="stable")
    bounds = np.searchsorted(code[order], np.arange(len(first) + 1))
    for i, row in enumerate(first.tolist()):
        samples = order[bounds[i] : bounds[i + 1]]
        gpu = f"GPU {int(kind[row]) & 0xFF}"
        lane = report.builder.lane(
            report.host(-1), gpu, "metrics", pid=gpu.removeprefix("GPU "), tid="metrics", labels=gpu
        )
        report.builder.counter(
            lane,
            named.get((int(kind[row]), int(metric[row])), f"metric {metric[row]}"),
            time[samples],
            value[samples],
        )


def _fill_receipt(report: Report, receipt: Receipt, prefix: str) -> None:
    counts = report.counts
    unread = [name for name in counts if name not in report.read and not name.startswith(_SILENT)]
    if unread:
        receipt.add(notes.unread_tables(prefix, {name: counts[name] for name in unread}))
    if counts.keys().isdisjoint(_DEVICE_TABLES) and CALLS in counts:
        # The dialect warns where a call launched something.
        receipt.add(notes.no_gpu_activity(prefix))
    if len(report.hosts) > 1:
        receipt.add(notes.processes_as_hosts(prefix, len(report.hosts)))
    if not report.facts.dated:
        receipt.add(notes.no_start_time(prefix))
    for table in report.nvtx_unread:
        columns = report.tables.columns(table)
        receipt.add(notes.unread_nvtx(prefix, table, counts[table], columns))
    for message in report.facts.messages:
        receipt.add(notes.recorder_message(prefix, _message(message, report)))


def _message(message: facts.Message, report: Report) -> str:
    """A message of Nsight Systems, with the process that it is about."""
    text = f"Nsight Systems said: {message.text}"
    if message.pid is not None:
        text = f"Nsight Systems said of {_process(message.pid, report)}: {message.text}"
    contradictions = ""
    for word, tables in (("NVTX", report.nvtx), ("CUDA", [KERNELS, CALLS])):
        if re.search(rf"\bno\b.*\b{word}\b", message.text, re.IGNORECASE):
            contradictions += _contradiction(word, tables, report)
    if message.pid is None and not contradictions and len(report.hosts) > 1:
        text += " It does not identify the process."
    return text + contradictions


def _contradiction(word: str, tables: Sequence[str], report: Report) -> str:
    """A sentence that there are events of a kind after all; empty if there are none."""
    count = sum(report.counts.get(table, 0) for table in tables)
    if not count:
        return ""
    pids = sorted(set(chain.from_iterable(_processes(table, report) for table in tables)) - {0})
    whose = ""
    if pids:
        whose = f", of {join_some([_process(pid, report) for pid in pids], 3)}"
    return f" The export has {count:,} {word} events{whose}."


def _process(pid: int, report: Report) -> str:
    name = report.facts.processes.get(pid)
    if not name:
        return f"process {pid}"
    return f"process {pid} ({name})"


def _processes(table: str, report: Report) -> list[int]:
    """The processes that a table has rows of."""
    rows = Rows(report.tables, table, "globalTid", "globalPid")
    ident = "globalTid" if "globalTid" in rows else "globalPid"
    pids: list[int] = pd.unique(rows.ints(ident, 0) >> 24 & PID).tolist()
    return pids
