"""The JSON files that Ascend's tools write after they looked through a recording: communication and
its matrix, and msprof's advice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pandas as pd

from nbprof.core.errors import ReadError
from nbprof.core.files import SourceFile, printable
from nbprof.core.receipt import Note
from nbprof.core.trace import Table
from nbprof.formats.msprof import notes
from nbprof.formats.msprof.tables import newest

_MOST_BYTES = 1 << 28
_MB = 1024.0 * 1024.0
_TOTAL = "Total Op Info"


def tables(
    files: Sequence[SourceFile], host: int, rank: int | None
) -> tuple[dict[str, list[Table]], list[Note]]:
    """The tables in the files, by kind, and lines for the receipt."""
    result: dict[str, list[Table]] = {}
    messages: list[Note] = []
    for file in newest(files)[0]:
        name = printable(file.name)
        if file.size == 0:
            messages.append(notes.empty_file(name))
            continue
        if (file.size or 0) > _MOST_BYTES:
            messages.append(notes.oversized_file(name, _MOST_BYTES))
            continue
        try:
            content = json.loads(bytes(file.read().data))
        except (ReadError, ValueError, RecursionError):
            messages.append(notes.damaged_file(name))
            continue
        for kind, rows in _rows(file.name, content).items():
            if rows:
                result.setdefault(kind, []).append(_table(kind, rows, host, rank, file.name))
    return result, messages


def _rows(name: str, content: object) -> dict[str, list[dict[str, Any]]]:
    if name.startswith("prof_rule"):
        return {"prof_rule": list(_rules(content))}
    if name.startswith("communication_matrix"):
        return {"communication_matrix": list(_matrix(content))}
    operations, bandwidth = [], []
    for head, facts in _operations(content):
        timed = _dict(facts.get("Communication Time Info"))
        operations.append(
            {
                **head,
                "start_us": timed.get("Start Timestamp(us)"),
                "elapse_ms": _number(timed.get("Elapse Time(ms)")),
                "transit_ms": _number(timed.get("Transit Time(ms)")),
                "wait_ms": _number(timed.get("Wait Time(ms)")),
                "synchronization_ms": _number(timed.get("Synchronization Time(ms)")),
                "idle_ms": _number(timed.get("Idle Time(ms)")),
                "wait_ratio": _number(timed.get("Wait Time Ratio")),
                "synchronization_ratio": _number(timed.get("Synchronization Time Ratio")),
            }
        )
        for transport, moved in _dict(facts.get("Communication Bandwidth Info")).items():
            sent = _dict(moved)
            bandwidth.append(
                {
                    **head,
                    "transport": str(transport),
                    "transit_bytes": _number(sent.get("Transit Size(MB)")) * _MB,
                    "transit_ms": _number(sent.get("Transit Time(ms)")),
                    "gb_per_second": _number(sent.get("Bandwidth(GB/s)")),
                    "large_packet_ratio": _number(sent.get("Large Packet Ratio")),
                }
            )
    return {"communication": operations, "communication_bandwidth": bandwidth}


def _operations(content: object) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The step, kind, name and group of each collective, and its facts."""
    for step, kinds in _dict(content).items():
        for kind, tables in _dict(kinds).items():
            for title, facts in _dict(tables).items():
                if title != _TOTAL:
                    op, _, group = str(title).partition("@")
                    head = {"step": str(step), "kind": str(kind), "name": op, "group": group}
                    yield head, _dict(facts)


def _matrix(content: object) -> Iterator[dict[str, Any]]:
    for head, links in _operations(content):
        for pair, facts in links.items():
            match = re.fullmatch(r"(\d{1,6})-(\d{1,6})", str(pair))
            sent = _dict(facts)
            if match:
                yield {
                    **head,
                    "source": int(match[1]),
                    "target": int(match[2]),
                    "transport": str(sent.get("Transport Type", "")),
                    "transit_bytes": _number(sent.get("Transit Size(MB)")) * _MB,
                    "transit_ms": _number(sent.get("Transit Time(ms)")),
                    "gb_per_second": _number(sent.get("Bandwidth(GB/s)")),
                    "op_name": str(sent.get("Op Name", "")),
                }


def _rules(content: object) -> Iterator[dict[str, Any]]:
    data = _dict(content).get("data")
    parts = data if isinstance(data, dict) else {"": data}
    for part, rules in parts.items():
        for fields in map(_dict, _list(rules)):
            # Before 2022 the rule was the finding.
            for finding in map(_dict, _list(fields.get("result", [fields]))):
                if finding.get("Rule Suggestion"):
                    yield {
                        "part": str(part),
                        "rule_type": str(finding.get("Rule Type", "")),
                        "description": str(finding.get("Rule Description", "")),
                        "subtype": str(finding.get("Rule Subtype", "")),
                        "suggestion": str(finding["Rule Suggestion"]),
                        "tuning_data": json.dumps(finding.get("Tuning Data")),
                    }


def _table(
    kind: str, rows: list[dict[str, Any]], host: int, rank: int | None, source: str
) -> Table:
    frame = pd.DataFrame(rows)
    base = 0
    if kind == "communication":
        moments = list(map(_moment, frame.pop("start_us")))
        base = min(filter(None, moments), default=0) // 1000
        # Only what is left of them after that fits int64.
        since = [None if moment is None else moment - base * 1000 for moment in moments]
        frame["start_ps"] = pd.array(since, dtype="Int64")
    return Table(kind, None, rank, frame, [], source, [], host, base)


def _moment(value: object) -> int | None:
    """Decimal µs as ps."""
    try:
        us = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    if not us.is_finite() or not 0 < us < 10**17:
        return None
    return int(us * 1_000_000)


def _dict(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return float("nan")
    try:
        return float(value)
    except ValueError:
        return float("nan")
