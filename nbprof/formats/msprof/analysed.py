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
    for step, kind, op, group, facts in _operations(content):
        timed = _dict(facts.get("Communication Time Info"))
        head = {"step": step, "kind": kind, "name": op, "group": group}
        operations.append(
            {
                **head,
                "start_us": timed.get("Start Timestamp(us)"),
                **{
                    f"{key}_ms": _number(timed.get(f"{title} Time(ms)"))
                    for key, title in (
                        ("elapse", "Elapse"),
                        ("transit", "Transit"),
                        ("wait", "Wait"),
                        ("synchronization", "Synchronization"),
                        ("idle", "Idle"),
                    )
                },
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


def _operations(content: object) -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    for step, kinds in _dict(content).items():
        for kind, tables in _dict(kinds).items():
            for title, facts in _dict(tables).items():
                if title != _TOTAL:
                    op, _, group = str(title).partition("@")
                    yield str(step), str(kind), op, group, _dict(facts)


def _matrix(content: object) -> Iterator[dict[str, Any]]:
    for step, kind, op, group, links in _operations(content):
        for pair, facts in links.items():
            match = re.fullmatch(r"(\d{1,6})-(\d{1,6})", str(pair))
            sent = _dict(facts)
            if match:
                yield {
                    "step": step,
                    "kind": kind,
                    "name": op,
                    "group": group,
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
    parts = data.items() if isinstance(data, dict) else [("", data)]
    for part, rules in parts:
        for rule in rules if isinstance(rules, list) else []:
            fields = _dict(rule)
            # Before 2022 the rule was the finding.
            results = fields.get("result", [fields])
            for result in results if isinstance(results, list) else []:
                finding = _dict(result)
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
        moments = [_moment(value) for value in frame.pop("start_us")]
        first = min((m for m in moments if m is not None), default=0)
        base = first // 1000
        frame["start_ps"] = pd.array(
            [None if m is None else m - base * 1000 for m in moments], dtype="Int64"
        )
    return Table(kind, None, rank, frame, [], source, [], host, base)


def _moment(value: object) -> int | None:
    """Decimal µs as ps."""
    try:
        us = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return int(us * 1_000_000) if us.is_finite() and 0 < us < 10**17 else None


def _dict(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return float("nan")
    try:
        return float(value)
    except ValueError:
        return float("nan")
