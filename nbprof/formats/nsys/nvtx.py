"""Ranges and marks that a program annotated with NVTX."""

from __future__ import annotations

import re

import numpy as np

from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.build import Coded, Values
from nbprof.formats.chrome.slices import packed
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
            report.shown.add(table)
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
    open_ = rows.null("end") & np.isin(kind, (PUSH_POP, START_END)) & ~rows.null("start")
    if open_.any():
        text = (
            f"NVTX ranges without an end, drawn to the end of the last range: {int(open_.sum()):,}."
        )
        report.builder.receipt.warn(text)
    end = np.where(rows.null("end"), np.where(kind == MARK, start, last), rows.ints("end", 0))
    there = ~rows.null("start")
    for selected, cat in (
        (kind == PUSH_POP, "user_annotation"),
        (kind == MARK, "nvtx_mark"),
        (kind == START_END, "user_annotation"),
    ):
        kind_rows = np.flatnonzero(selected & there)
        if not len(kind_rows):
            continue
        if cat == "user_annotation" and kind[kind_rows[0]] == START_END:
            lanes = _free_lanes(report, tid[kind_rows], start[kind_rows], end[kind_rows])
        else:
            lanes = report.threads(tid[kind_rows])
        selected_args: dict[str, Values] = {
            key: _at(values, kind_rows) for key, values in args.items()
        }
        selected_args["cat"] = cat
        if cat == "nvtx_mark":
            selected_args["ph"] = "i"
        report.builder.add(
            lanes,
            name[kind_rows],
            start[kind_rows] + report.facts.start_ns,
            end[kind_rows] - start[kind_rows],
            selected_args,
        )


def _at(values: Values, index: Int64s) -> Values:
    return (
        Coded(values.codes[index])
        if isinstance(values, Coded)
        else values[index]
        if isinstance(values, np.ndarray)
        else values
    )


def _texts(report: Report, rows: Rows) -> Int32s:
    """Codes of what each is called: its own text, or a registered one; -1 where it has none."""
    result = np.full(len(rows), -1, np.int32)
    ids = rows.ints("textId")
    if "textId" in rows and (has_id := ids >= 0).any():
        result[has_id] = report.names(ids[has_id])
    if "text" in rows and len(own_rows := np.flatnonzero(~rows.null("text"))):
        result[own_rows] = report.builder.codes(rows.texts("text", own_rows))
    return result


def _args(report: Report, rows: Rows, name: Int32s) -> dict[str, Values]:
    """The domain and category of each, by name where they have one, and its payload."""
    kind, pid = rows.ints("eventType"), rows.ints("globalTid", 0) >> 24
    domain, category = rows.ints("domainId", 0), rows.ints("category", 0)
    titles: dict[tuple[int, ...], int] = {}
    for i in np.flatnonzero(np.isin(kind, (DOMAIN, CATEGORY)) & (name >= 0)).tolist():
        titles[
            (
                int(kind[i]),
                int(pid[i]),
                int(domain[i]),
                int(category[i]) if kind[i] == CATEGORY else 0,
            )
        ] = int(name[i])
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
            title = titles.get(
                (code, int(pid[i]), int(domain[i]), number if code == CATEGORY else 0), -1
            )
            of_run.append(
                title
                if title >= 0
                else report.builder.texts[f"{key} {number}"]
                if number > 0
                else -1
            )
        codes = np.repeat(np.array(of_run, np.int32), np.diff(np.append(begins, len(rows))))
        if (codes >= 0).any():
            result[key] = Coded(codes)
    for column in _PAYLOADS:
        if column in rows and not (null := rows.null(column)).all():
            result["payload"] = (
                rows.floats(column)
                if column.startswith(("double", "float"))
                else np.ma.MaskedArray(rows.ints(column), null)
            )
            break
    return result


def _free_lanes(report: Report, tid: Int64s, start: Int64s, end: Int64s) -> Int32s:
    """Lanes of ranges that need not nest: each has one for itself while it lasts."""
    result = np.zeros(len(tid), np.int32)
    pid = tid >> 24 & 0xFFFFFF
    for process in np.unique(pid).tolist():
        rows = np.flatnonzero(pid == process)
        places = packed([(int(start[i]), int(end[i]), i) for i in rows.tolist()])
        lanes = {
            number: report.builder.lane(
                report.host(process),
                report.facts.processes.get(process, str(process)),
                title := f"NVTX ranges {number + 1}" if number else "NVTX ranges",
                pid=str(process),
                tid=title,
                sort=_BEHIND,
            )
            for number in sorted(set(places.values()))
        }
        result[rows] = [lanes[places[i]] for i in rows.tolist()]
    return result
