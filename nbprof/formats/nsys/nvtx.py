"""Ranges and marks that a program annotated with NVTX."""

from __future__ import annotations

import re

import numpy as np

from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.build import Coded, Values
from nbprof.formats.chrome.slices import packed
from nbprof.formats.nsys import notes
from nbprof.formats.nsys.report import Report
from nbprof.formats.nsys.tables import Rows

# Types of events, as `ENUM_NSYS_EVENT_TYPE` numbers them.
CATEGORY, MARK, PUSH_POP, START_END, DOMAIN = 33, 34, 59, 60, 75
_COLUMNS = (
    "start",
    "end",
    "eventType",
    "text",
    "textId",
    "globalTid",
    "endGlobalTid",
    "category",
    "domainId",
)
# Behind all threads of a process.
_BEHIND = 1 << 30
# The columns of a table of NVTX events that is called so, and of one with any other name.
_NAMED, _ANY = {"start", "eventType"}, {"start", "end", "eventType", "globalTid"}
_TEXTS, _OF_NVTX = {"text", "textId"}, {"domainId", "rangeId", "category"}
_PAYLOADS = ("int64Value", "uint64Value", "int32Value", "uint32Value", "doubleValue", "floatValue")


def add(report: Report) -> None:
    """Adds the ranges of a report: those of a thread to its lane; those that may begin and end
    anywhere to lanes of their own.

    Tables are known by their columns: versions of Nsight Systems may call them otherwise than
    `NVTX_EVENTS`.
    """
    for table in report.counts:
        columns = set(report.tables.columns(table))
        named = "NVTX" in table.upper()
        if (
            (_NAMED if named else _ANY) <= columns
            and columns & _TEXTS
            and (named or columns & _OF_NVTX)
        ):
            _add(report, table)
        elif named and any(re.search("start|time", name, re.IGNORECASE) for name in columns):
            report.read.add(table)
            report.nvtx_unread.append(table)


def _add(report: Report, table: str) -> None:
    rows = report.rows(table, *_COLUMNS, *_PAYLOADS)
    kind = rows.ints("eventType")
    if not np.isin(kind, (CATEGORY, MARK, PUSH_POP, START_END, DOMAIN)).any():
        report.nvtx_unread.append(table)
        return
    report.nvtx.append(table)
    last = int(np.maximum(rows.ints("start", 0), rows.ints("end", 0)).max())
    name, tid = _texts(report, rows), rows.ints("globalTid", 0)
    args = _args(report, rows, name)
    name = np.where(name < 0, report.builder.texts[""], name).astype(np.int32)
    start = rows.ints("start", 0)
    is_open = rows.null("end") & np.isin(kind, (PUSH_POP, START_END)) & ~rows.null("start")
    if is_open.any():
        report.builder.receipt.add(notes.open_ranges(int(is_open.sum())))
    end = np.where(rows.null("end"), np.where(kind == MARK, start, last), rows.ints("end", 0))
    there = ~rows.null("start")
    for of_kind, cat in (
        (kind == PUSH_POP, "user_annotation"),
        (kind == MARK, "nvtx_mark"),
        (kind == START_END, "user_annotation"),
    ):
        kind_rows = np.flatnonzero(of_kind & there)
        if not len(kind_rows):
            continue
        if cat == "user_annotation" and kind[kind_rows[0]] == START_END:
            lanes = _free_lanes(report, tid[kind_rows], start[kind_rows], end[kind_rows])
        else:
            lanes = report.threads(tid[kind_rows])
        args_of_kind: dict[str, Values] = {
            key: _rows_of(values, kind_rows) for key, values in args.items()
        }
        args_of_kind["cat"] = cat
        if cat == "nvtx_mark":
            args_of_kind["ph"] = "i"
        report.builder.add(
            lanes,
            name[kind_rows],
            start[kind_rows] + report.facts.start_ns,
            end[kind_rows] - start[kind_rows],
            args_of_kind,
        )


def _rows_of(values: Values, rows: Int64s) -> Values:
    if isinstance(values, Coded):
        return Coded(values.codes[rows])
    if isinstance(values, np.ndarray):
        return values[rows]
    return values


def _texts(report: Report, rows: Rows) -> Int32s:
    """Codes of the names of events: their own texts, or registered ones; -1 for those without."""
    result = np.full(len(rows), -1, np.int32)
    ids = rows.ints("textId")
    has_id = ids >= 0
    result[has_id] = report.names(ids[has_id])
    with_text = np.flatnonzero(~rows.null("text"))
    result[with_text] = report.builder.codes(rows.texts("text", with_text))
    return result


def _args(report: Report, rows: Rows, name: Int32s) -> dict[str, Values]:
    """The domain and category of each, by name where they have one, and its payload."""
    kind, pid = rows.ints("eventType"), rows.ints("globalTid", 0) >> 24
    domain, category = rows.ints("domainId", 0), rows.ints("category", 0)
    titles: dict[tuple[int, ...], int] = {}
    for i in np.flatnonzero(np.isin(kind, (DOMAIN, CATEGORY)) & (name >= 0)).tolist():
        number = int(category[i]) * (kind[i] == CATEGORY)
        titles[int(kind[i]), int(pid[i]), int(domain[i]), number] = int(name[i])
    result: dict[str, Values] = {}
    for key, code, values in (("domain", DOMAIN, domain), ("category", CATEGORY, category)):
        # One look-up for each run of rows that agree.
        begins = np.flatnonzero(
            (np.diff(values, prepend=-2) != 0)
            | (np.diff(pid, prepend=-2) != 0)
            | (np.diff(domain, prepend=-2) != 0)
        )
        of_run = []
        for i in begins.tolist():
            number = int(values[i])
            key_of_title = (code, int(pid[i]), int(domain[i]), number * (code == CATEGORY))
            title = titles.get(key_of_title, -1)
            if title < 0 < number:
                title = report.builder.texts[f"{key} {number}"]
            of_run.append(max(title, -1))
        codes = np.repeat(np.array(of_run, np.int32), np.diff(np.append(begins, len(rows))))
        if (codes >= 0).any():
            result[key] = Coded(codes)
    for column in _PAYLOADS:
        if column in rows and not (null := rows.null(column)).all():
            if column.startswith(("double", "float")):
                result["payload"] = rows.floats(column)
            else:
                result["payload"] = np.ma.MaskedArray(rows.ints(column), null)
            break
    return result


def _free_lanes(report: Report, tid: Int64s, start: Int64s, end: Int64s) -> Int32s:
    """Lanes of ranges that need not nest: each has one for itself while it lasts."""
    result = np.zeros(len(tid), np.int32)
    pid = tid >> 24 & 0xFFFFFF
    for process in np.unique(pid).tolist():
        rows = np.flatnonzero(pid == process)
        places = packed(
            list(zip(start[rows].tolist(), end[rows].tolist(), rows.tolist(), strict=True))
        )
        lanes = {}
        for number in sorted(set(places.values())):
            title = "NVTX ranges"
            if number:
                title = f"NVTX ranges {number + 1}"
            lanes[number] = report.builder.lane(
                report.host(process),
                report.facts.processes.get(process, str(process)),
                title,
                pid=str(process),
                tid=title,
                sort=_BEHIND,
            )
        result[rows] = [lanes[places[i]] for i in rows.tolist()]
    return result
