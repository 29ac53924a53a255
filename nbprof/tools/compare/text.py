"""A comparison in words: on the console, and as Markdown for a pull request."""

from __future__ import annotations

from typing import Any

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis.compare.compare import STEP
from nbprof.analysis.compare.verdict import signed
from nbprof.display import wording
from nbprof.display.categories import BY_KEY

_OPS = 5
_OPS_MARKDOWN = 10


def plain(payload: dict[str, Any]) -> str:
    """The first pair as plain text: the answer, the evidence, figures, categories, the ops that changed most."""
    part = payload["compare"]
    pair = part["pairs"][0]
    lines = [
        f"nbprof compare · {name(part, pair['before'])} → {name(part, pair['after'])}",
        pair["headline"],
        *([pair["detail"]] if pair["detail"] else []),
        f"{pair['title']}:",
        *(f"  {'+' if item['ok'] else '-'} {item['text']}" for item in pair["evidence"]),
        *(f"{figure['label']:<19} {values(figure)}" + (f", {figure['note']}" if figure["note"] else "") for figure in pair["figures"]),
    ]
    for row in by_change(pair):
        if row["change_ms"]:
            times = f"{ms(row, 'before_ms', pair):>10} → {ms(row, 'after_ms', pair):>8} ms {signed(row['change_ms'], pair['digits']):>10}"
            lines.append(f"  {label(row, unit_of(pair)):<18}{times}")
    lines += [pair["findings_text"].replace("**", "")] if pair["findings_text"] else []
    for op in changed(pair, "ops", _OPS):
        lines.append(f"  {wording.rise(wording.micros(op['change_us']), op['change_us']):>12}  {wording.tail(op['op'], 70)}{note(op)}")
    return "\n".join(wording.one_line(line) for line in lines)


def markdown(pair: dict[str, Any]) -> str:
    """One pair as Markdown with tables."""
    lines = [f"**{_safe(pair['headline'])}**", ""]
    lines += [_safe(pair["detail"]), ""] if pair["detail"] else []
    lines += [f"{pair['title']}:", ""]
    lines += [f"- {'✓' if item['ok'] else '–'} {_safe(item['text'])}" for item in pair["evidence"]]
    lines += ["", "| | Before | After | |", "|---|--:|--:|--:|"]
    for figure in pair["figures"]:
        unit = f", {figure['unit']}" if figure["unit"] else ""
        was, now = (wording.number(figure[key], figure["digits"]) for key in ("before", "after"))
        lines.append(f"| {figure['label']}{unit} | {was} | {now} | {figure['note']} |")
    rows = [row for row in by_change(pair) if row["before_ms"] or row["after_ms"]]
    if rows:
        lines += ["", f"| ms {unit_of(pair).per} | Before | After | Change |", "|---|--:|--:|--:|"]
        for row in rows:
            cells = [
                label(row, unit_of(pair)),
                ms(row, "before_ms", pair),
                ms(row, "after_ms", pair),
                change(row["change_ms"], pair["digits"]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    if pair["findings"]:
        lines += ["", f"| Advice, predicted gain {unit_of(pair).per} | | Before | After |", "|---|---|--:|--:|"]
        lines += [f"| {_safe(one['title'])} | {one['state']} | {' | '.join(gains(one))} |" for one in pair["findings"]]
        lines += ["", pair["findings_text"]] if pair["findings_text"] else []
    ops = changed(pair, "ops", _OPS_MARKDOWN)
    if ops:
        lines += ["", f"| Op, self time in µs{per(pair)} | Before | After | Change |", "|---|--:|--:|--:|"]
        for op in ops:
            cells = [_code(op["op"]) + note(op), *(wording.number(op[key], 1) for key in ("before_us", "after_us"))]
            lines.append(f"| {' | '.join(cells)} | {signed(op['change_us'], 1)} |")
    return "\n".join(lines) + "\n"


def name(part: dict[str, Any], run: int) -> str:
    """What a run is called."""
    return str(part["runs"][run]["label"])


def gains(finding: dict[str, Any]) -> list[str]:
    """What a finding predicts before and after."""
    told = ((finding["gain_is"], finding[key]) for key in ("before_ms", "after_ms"))
    return ["–" if ms is None else f"{kind} {wording.millis(-ms)}" for kind, ms in told]


def values(figure: dict[str, Any]) -> str:
    """`6.20 → 3.20 ms`."""
    was, now = (wording.number(figure[key], figure["digits"]) for key in ("before", "after"))
    unit = figure["unit"] if figure["unit"] in ("", "%") else f" {figure['unit']}"
    return f"{was}{unit} → {now}" if figure["after"] is None else f"{was} → {now}{unit}"


def by_change(pair: dict[str, Any]) -> list[dict[str, Any]]:
    """The categories of which anything is known, largest before or after first, without the step itself."""
    rows = [row for row in pair["categories"] if row["key"] != STEP and (row["before_ms"] is not None or row["after_ms"] is not None)]
    return sorted(rows, key=lambda row: -max(row["before_ms"] or 0.0, row["after_ms"] or 0.0))


def changed(pair: dict[str, Any], kind: str, most: int) -> list[dict[str, Any]]:
    """The rows of ops or kernels that changed most, as mappings."""
    table = pair[kind]
    small = pair["small_us"][kind]
    rows = [{key: cell(table, key, i) for key in table["data"]} for i in range(min(table["rows"], most))]
    return [row for row in rows if row["change_us"] and abs(row["change_us"]) >= small]


def cell(table: dict[str, Any], key: str, row: int) -> Any:
    """A text, or a number, None where it is missing."""
    values = table["data"][key]
    if isinstance(values, dict):
        return values["values"][int(values["codes"][row])]
    return wording.real(values[row])


def note(row: dict[str, Any]) -> str:
    """What stands behind a name: that it is new, gone, or was called otherwise."""
    state = row["state"]
    if state == "renamed":
        return f" (was {wording.tail(row['before_op'], 40)})"
    return f" ({state})" if state in ("new", "gone") else ""


def label(row: dict[str, Any], unit: Unit = MARKED) -> str:
    """The name of a category."""
    return BY_KEY[row["key"]].label if row["key"] in BY_KEY else unit.noun.capitalize()


def ms(row: dict[str, Any], key: str, pair: dict[str, Any]) -> str:
    """A time of a category."""
    return wording.number(row[key], pair["digits"])


def change(value: float | None, digits: int) -> str:
    """A change with its sign; – where it is not known."""
    return wording.MISSING if value is None else signed(value, digits)


def unit_of(pair: dict[str, Any]) -> Unit:
    """What the times of a pair are given per."""
    known = pair.get("unit")
    return Unit(str(known["kind"])) if known else MARKED


def comparable(pair: dict[str, Any]) -> bool:
    """Whether there is a time to compare: none of runs that are given per different units."""
    return any(row[key] is not None for row in pair["categories"] if row["key"] == STEP for key in ("before_ms", "after_ms"))


def per(pair: dict[str, Any]) -> str:
    """What times of ops are divided by."""
    unit = unit_of(pair)
    return f" {unit.per}" if pair["per_step"] else " in the profile"


def _safe(text: str) -> str:
    """Foreign text that makes no markup, table or link."""
    text = wording.one_line(text)
    for mark in "\\`*_[]<>|#~":
        text = text.replace(mark, f"\\{mark}")
    return text


def _code(text: str) -> str:
    """A name as code within a table; a name with backticks as plain text."""
    text = wording.one_line(text)
    return f"`{text.replace('|', chr(92) + '|')}`" if "`" not in text else _safe(text)
