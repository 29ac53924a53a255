"""The answer in a few lines of plain text: verdict, average step with its largest parts, top op, figures, the first advice."""

from __future__ import annotations

from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np

from nbprof.activity.unit import Unit
from nbprof.display import wording
from nbprof.display.categories import CATEGORIES
from nbprof.tools.overview.ranges import SCOPES_TITLE

_BAR = 30
_RANGES = 4
_PART = 90
"""Characters of the name of a part."""


def lines(payload: dict[str, Any], most: int) -> list[str]:
    """So many lines at most: as many parts of the step as there is room for."""
    notice, overview = payload["meta"]["notice"], payload["overview"]
    if overview.get("only") == "advice":
        return _findings(overview)[:most]
    if overview.get("plain"):
        return [verdict(overview), overview["verdict"]["detail"], *(f"{label:<19} {value}" for label, value in overview["run"])][:most]
    head = [verdict(overview)]
    if notice and notice["kind"] != "no_steps":
        head.append(f"Note: {notice['title']} {notice['text']}")
    tail = [*_ranges(overview), *_top_op(overview), _figures(overview), *_advice(overview)]
    return [*head, _average(overview), *_parts(payload, most - len(head) - len(tail) - 1), *tail]


def verdict(overview: dict[str, Any]) -> str:
    """`Input-bound: 61% of step time is spent waiting for data (confidence high)`."""
    word, text = overview["verdict"]["word"], overview["verdict"]["text"]
    level = overview["confidence"]["level"]
    return f"{word}: {text}" + (f" (confidence {level})" if level != "none" else "") if text else word


def means(payload: dict[str, Any]) -> list[tuple[Any, float, float]]:
    """(category, ms per step, percent of the step), largest first; without warm-up steps and what was not recorded."""
    steps = payload["steps"]
    counted = np.asarray(steps.get("warmup", np.zeros(len(steps["step"])))) == 0
    total = float(np.nansum(steps["step_time_ms"][counted]))
    rows = []
    for category in CATEGORIES:
        if category.key in steps["categories"] and total > 0:
            part = float(np.nansum(steps["categories"][category.key][counted]))
            rows.append((category, part / int(counted.sum()), 100 * part / total))
    return sorted(rows, key=lambda row: -row[1])


class Row(NamedTuple):
    """A row of the breakdown: a category, or a part of the one above it.

    Attributes
    ----------
    label, colour : str
    ms, percent : float
        Per unit.
    part : bool
    """

    label: str
    colour: str
    ms: float
    percent: float
    part: bool


def breakdown(payload: dict[str, Any]) -> list[Row]:
    """The categories, largest first, each followed by the parts of the host's time in it that are known."""
    labels = payload["steps"].get("labels", {})
    rows = []
    for category, ms, percent in means(payload):
        rows.append(Row(labels.get(category.key, category.label), category.colour, ms, percent, part=False))
        parts = [part for part in payload["overview"].get("host_parts", []) if part["category"] == category.key]
        rows.extend(Row(part["text"], category.colour, part["ms"], part["percent"], part=True) for part in parts)
    return rows


def where_it_goes(unit: Unit) -> str:
    """The heading of the breakdown: "Where a step goes"."""
    return "Where the time goes" if unit.whole else f"Where {unit.a} goes"


def figure_text(figure: dict[str, Any]) -> str:
    """`6.20 ms ± 0.38` or `61.0%` or `–`."""
    value = wording.number(figure["value"], figure["digits"])
    unit = figure["unit"] if figure["value"] is not None else ""
    return value + (unit if unit == "%" else f" {unit}" if unit else "") + (f" {figure['spread']}" if figure.get("spread") else "")


def _average(overview: dict[str, Any]) -> str:
    average = overview["figures"][0]
    return f"{average['label']:<19} {figure_text(average)}" + (f", {average['note']}" if average["note"] else "")


def _parts(payload: dict[str, Any], most: int) -> list[str]:
    rows = [row for row in breakdown(payload) if row.ms > 0]
    return [_row(row) for row in rows[: max(most, 0)]]


def _row(row: Row) -> str:
    if row.part:
        label = shorten(row.label, _PART, placeholder="…")
        return f"    {wording.percent(row.percent):>7}  {label}"
    bar = "█" * round(row.percent * _BAR / 100)
    return f"  {row.label:<18}{wording.number(row.ms, 2):>9} ms {wording.percent(row.percent):>7}  {bar}".rstrip()


def _ranges(overview: dict[str, Any]) -> list[str]:
    """The outermost ranges of the program with the most time, in one line."""
    ranges = overview.get("ranges")
    if not ranges:
        return []
    data = ranges["table"]["data"]
    # Scopes of ops are layers of nearly every model: what is set in the program itself comes first.
    if ranges["groups"][0]["title"] == SCOPES_TITLE:
        return []
    first = ranges["groups"][1]["row"] if len(ranges["groups"]) > 1 else ranges["table"]["rows"]
    outer = [row for row in range(first) if data["_depth"][row] == 0]
    for side in ("host", "device"):
        times = {row: float(data.get(f"{side}_ms_per_step", [0] * first)[row]) for row in outer}
        largest = sorted((row for row in outer if times[row] > 0), key=lambda row: -times[row])[:_RANGES]
        if largest:
            names = ", ".join(f"{_name(data, row)} {wording.millis(times[row])}" for row in largest)
            return [f"{'Your ranges, ' + side:<19} {names}"]
    return []


def _name(data: dict[str, Any], row: int) -> str:
    name = data["name"]["values"][int(data["name"]["codes"][row])]
    return wording.tail(name, 30)


def _top_op(overview: dict[str, Any]) -> list[str]:
    table = overview["top_ops"]
    if not table["rows"]:
        return []
    op = table["data"]["op"]["values"][int(table["data"]["op"]["codes"][0])]
    where, share = overview["top_ops_where"], float(table["data"]["percent"][0])
    return [f"{'Top op on ' + where:<19} {wording.tail(op, 60)}, {wording.percent(share)} of {where} time"]


def _figures(overview: dict[str, Any]) -> str:
    return ", ".join(f"{figure['label']} {figure_text(figure)}" for figure in overview["figures"][1:])


def _advice(overview: dict[str, Any]) -> list[str]:
    notes = [text for text in (overview.get("contention"), (overview.get("probe") or {}).get("text")) if text]
    return [f"{'Note':<19} {text}" for text in notes] + [f"{'Do first':<19} {_finding(item)}" for item in overview["advice"][:1]]


def _findings(overview: dict[str, Any]) -> list[str]:
    """All of them, a line each."""
    notes = [text for text in (overview.get("contention"), (overview.get("probe") or {}).get("text")) if text]
    findings = [f"{item['severity'].capitalize()}: {_finding(item)}" for item in overview["advice"]]
    return notes + (findings or [overview["no_advice"]])


def _finding(item: dict[str, Any]) -> str:
    gain = wording.gain(item)
    return f"{item['title']} ({gain})" if gain else str(item["title"])
