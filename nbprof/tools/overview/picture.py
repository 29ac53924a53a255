"""The run as one picture for PDF, e-mail and every viewer that shows images only."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from nbprof.activity.unit import Unit
from nbprof.display import wording
from nbprof.display.categories import BY_KEY, CATEGORIES, OF_SIDE, OTHER, mix
from nbprof.tools.canvas import FAINT, INK, LINE, SOFT, TEXT, TRACK, WIDTH, Canvas
from nbprof.tools.common import unit_in
from nbprof.tools.overview.parts import Overview
from nbprof.tools.overview.text import Row, breakdown, gain_text, means, where_it_goes
from nbprof.tools.parts import Figure, Meta
from nbprof.tools.steps.parts import Steps

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_LEFT, _RIGHT = 40, WIDTH - 40
_HEIGHT = 2400
_GAP = 44
_GRAPH = 300
_SPLIT = 850
_LOGO = (("#CF4A1A", 0, 18), ("#23896A", 6, 24), ("#184A95", 0, 14))
"""Bars of the logo: colour, left, width."""


def png(payload: Payload) -> bytes:
    """A PNG, 1050 pixels wide (700 points at 1.5x), usually 40 to 60 kB.

    Verdict, average step, key figures, step graph beside the breakdown, top ops, what to do next.

    Parameters
    ----------
    payload : Payload
    """
    overview = payload.overview
    sheet = Canvas(WIDTH, _HEIGHT)
    y = _header(sheet, payload.meta, 32)
    y = _verdict(sheet, overview, y)
    if overview.plain:
        # Nothing is known of steps and ops: what the file is and holds stands in the place of
        # figures without values, as on screen.
        return sheet.png(_footer(sheet, payload.meta, _facts(sheet, overview.run, y + 24) + 28))
    parts = breakdown(payload)
    if parts:
        y = _average_bar(sheet, [row for row in parts if not row.part], y + 20)
    y = _figures(sheet, overview.figures, y + 24)
    if parts:
        mean = overview.figures[0].value
        unit = unit_in(payload.meta)
        y = max(_steps(sheet, payload, y + _GAP), _breakdown(sheet, parts, mean, y + _GAP, unit))
    y = max(_top_ops(sheet, overview, y + _GAP), _next_steps(sheet, overview, y + _GAP))
    return sheet.png(_footer(sheet, payload.meta, y + 28))


def steps_png(payload: Payload) -> bytes | None:
    """The steps alone, 450 points wide; None without steps."""
    if not means(payload):
        return None
    sheet = Canvas(_SPLIT + _LEFT, _GRAPH + 100)
    return sheet.png(_steps(sheet, payload, 0))


def _header(sheet: Canvas, meta: Meta, y: float) -> float:
    for row, (colour, left, width) in enumerate(_LOGO):
        top = y + 2 + 8 * row
        sheet.box(_LEFT + left, top, _LEFT + left + width, top + 5, colour)
    x = sheet.text(_LEFT + 44, y, "nbprof", 24, INK, bold=True)
    x = sheet.text(x + 22, y, sheet.fit(meta.label, 24, 500), 24, TEXT, bold=True)
    facts = " · ".join(["", *meta.facts]).strip()
    sheet.text(x + 10, y + 2, sheet.fit(facts, 22, _RIGHT - x - 10), 22, SOFT)
    sheet.rule(_LEFT, _RIGHT, y + 42)
    notice = meta.notice
    if not notice:
        return y + 66
    text = notice.title
    # The text of a notice leads to its snippet, which the picture lacks.
    if not notice.code:
        text += f" {notice.text}"
    return _paragraph(sheet, sheet.wrap(text, 22, _RIGHT - _LEFT, 2), y + 58) + 18


def _paragraph(sheet: Canvas, lines: list[str], y: float) -> float:
    """Lines of small text; gives the y below them."""
    for line in lines:
        sheet.text(_LEFT, y, line, 22, SOFT)
        y += 30
    return y


def _verdict(sheet: Canvas, overview: Overview, y: float) -> float:
    verdict = overview.verdict
    word, colour = verdict.word, INK
    if verdict.text:
        word += ":"
    if overview.bound:
        colour = BY_KEY[overview.bound].colour
    line = f"{word} {verdict.text}"
    size = next(
        (size for size in (42, 38, 34, 30) if sheet.measure(line, size) < _RIGHT - _LEFT - 20), 30
    )
    x = sheet.text(_LEFT, y, word, size, mix(colour, 88, "#000000"), bold=True) + 12
    sheet.text(x, y, sheet.fit(verdict.text, size, _RIGHT - x), size, INK, bold=True)
    y += 62
    for line in sheet.wrap(verdict.detail, 25, _RIGHT - _LEFT - 120, 3):
        sheet.text(_LEFT, y, line, 25)
        y += 36
    level = overview.confidence.level
    if level == "none":
        return y
    evidence = " · ".join(item.text for item in overview.confidence.evidence)
    x = sheet.text(_LEFT, y + 4, f"Confidence: {level}", 22, TEXT, bold=True) + 14
    sheet.text(x, y + 4, sheet.fit(evidence, 22, _RIGHT - x), 22, SOFT)
    return y + 36


def _average_bar(sheet: Canvas, rows: list[Row], y: float) -> float:
    """The average step as one bar, largest part first, the parts that have room labelled."""
    total = sum(row.percent for row in rows) or 1
    x, label_end = float(_LEFT), 0.0
    for row in rows:
        if not row.ms:
            continue
        right = x + (_RIGHT - _LEFT) * row.percent / total
        sheet.box(x, y, max(right - 2, x + 1), y + 40, row.colour)
        text = f"{wording.millis(row.ms)} · {wording.percent(row.percent, 0)}"
        room = sheet.measure(f"{row.label} {text}", 22) + 30
        if (
            x >= label_end
            and right - x > 40
            and x + room < _RIGHT + 30
            and (room < right - x or row.percent < 30)
        ):
            end = sheet.text(x, y + 48, row.label, 22, INK, bold=True)
            label_end = sheet.text(end + 8, y + 48, text, 22, SOFT) + 24
        x = right
    return y + 80


def _facts(sheet: Canvas, facts: list[tuple[str, str]], y: float) -> float:
    """Format and size of the file, one line each."""
    sheet.rule(_LEFT, _RIGHT, y)
    y += 20
    x = _LEFT + max((sheet.measure(label, 22) for label, _ in facts), default=0) + 30
    for label, value in facts:
        sheet.text(_LEFT, y, label, 22, SOFT)
        sheet.text(x, y, sheet.fit(value, 22, _RIGHT - x), 22, TEXT)
        y += 34
    return y


def _figures(sheet: Canvas, figures: list[Figure], y: float) -> float:
    sheet.rule(_LEFT, _RIGHT, y)
    width = (_RIGHT - _LEFT) / len(figures)
    for i, figure in enumerate(figures):
        x = _LEFT + i * width
        if i:
            x += 16
            sheet.box(x - 16, y, x - 14, y + 136, LINE)
        _figure(sheet, figure, x, y, width - 28)
    sheet.rule(_LEFT, _RIGHT, y + 144)
    return y + 146


def _figure(sheet: Canvas, figure: Figure, x: float, y: float, room: float) -> None:
    """A key figure in a column of some width: label, value, note and bar."""
    sheet.text(x, y + 16, sheet.fit(figure.label, 22, room), 22, SOFT)
    colour = INK
    if figure.hot:
        colour = mix(BY_KEY["input"].colour, 88, "#000000")
    value = wording.number(figure.value, figure.digits)
    end = sheet.text(x, y + 46, value, 36, colour, bold=True)
    unit, note = figure.unit, figure.note
    if figure.value is None:
        unit = ""
    if figure.spread:
        if sheet.measure(f"{unit} {figure.spread}", 22) <= x + room - end:
            unit = f"{unit} {figure.spread}"
        else:
            note = f"{figure.spread}, {note}"
    sheet.text(end + 6, y + 58, unit, 22, SOFT)
    if figure.key == "step_time":
        note = _clauses(sheet, note, room + 8)
    sheet.text(x, y + 92, sheet.fit(note, 20, room + 8), 20, SOFT)
    if not figure.bar:
        return
    sheet.box(x, y + 122, x + room - 8, y + 129, TRACK)
    for part in figure.bar:
        right = x + (room - 8) * min(part.percent, 100) / 100
        sheet.box(x, y + 122, right, y + 129, BY_KEY[part.category].colour)
        x = right


def _clauses(sheet: Canvas, note: str, room: float) -> str:
    """As many of the clauses of a note as there is room for, at least the first."""
    parts = note.split(", ")
    while len(parts) > 1 and sheet.measure(", ".join(parts), 20) > room:
        parts.pop()
    return ", ".join(parts)


def _middle(figure: Figure) -> list[str]:
    """Median and p95 from the note of the average, with their unit unless the axis has it."""
    parts = [part for part in figure.note.split(", ") if part.startswith(("median", "p95"))]
    if figure.unit == "ms":
        return parts
    return [f"{part} {figure.unit}" for part in parts]


def _borders(sheet: Canvas, steps: Steps, area: tuple[float, float, float]) -> str:
    """Dashed lines at boundaries between steps; their kinds, as the end of the caption."""
    left, top, right = area
    kinds: dict[str, None] = {}
    for border in steps.boundaries or []:
        x = left + (right - left) * border.row / len(steps.step)
        for dash in range(0, _GRAPH, 10):
            sheet.box(x - 1, top + dash, x + 1, top + min(dash + 6, _GRAPH), SOFT)
        kinds |= dict.fromkeys(re.sub(r" \(.*?\)", "", border.text).split(", "))
    if not kinds:
        return ""
    return f"; dashed: {', '.join(kinds)}"


def _steps(sheet: Canvas, payload: Payload, y: float) -> float:
    steps, unit, average = payload.steps, unit_in(payload.meta), payload.overview.figures[0]
    mean = average.value
    times = [float(t) for t in steps.step_time_ms]
    title = unit.time.capitalize()
    if unit.is_recording:
        title = "The recording"
    end = sheet.text(_LEFT, y, title, 25, INK, bold=True)
    about = ", ".join(_about_steps(steps, average, unit))
    sheet.text(end + 14, y + 3, sheet.fit(about, 22, _SPLIT - end - 14), 22, SOFT)
    top, left, right = y + 52, _LEFT + 66, _SPLIT
    ceiling, truncated = scale(times)
    for i in range((parts := _ticks(ceiling)) + 1):
        level = top + _GRAPH * (1 - i / parts)
        sheet.rule(left, right, level, TRACK)
        sheet.text(left - 12, level - 13, f"{ceiling * i / parts:,.10g}", 20, SOFT, align="r")
    sheet.rule(left, right, top + _GRAPH)
    _bars(sheet, steps, times, (left, top, right), ceiling)
    borders = _borders(sheet, steps, (left, top, right))
    if mean is not None and mean < ceiling and not unit.is_recording:
        sheet.rule(left, right, top + _GRAPH * (1 - mean / ceiling), SOFT, dash=6)
    below = top + _GRAPH + 10
    if unit.is_recording:
        caption = "the recording"
        if len(times) > 1:
            caption = "one bar per host"
    elif len(times) == 1:
        caption = f"{unit.noun} {steps.step[0]}"
    else:
        caption = f"{unit.noun} number"
        if truncated:
            caption = f"axis cut: longest {unit.noun} {wording.millis(max(times))}"
        sheet.text(left, below, str(steps.step[0]), 20, SOFT)
        sheet.text(right, below, str(steps.step[-1]), 20, SOFT, align="r")
    sheet.text((left + right) / 2, below, caption + borders, 20, SOFT, align="c")
    return top + _GRAPH + 40


def _about_steps(steps: Steps, average: Figure, unit: Unit) -> list[str]:
    """The small text behind the title: number of steps, their numbers, unit, median and p95."""
    count = len(steps.step_time_ms)
    scope = steps.count or wording.plural(count, unit.noun)
    # Recordings have no numbers: there is one, or one of each host.
    if unit.is_recording and count == 1:
        return ["ms"]
    if unit.is_recording:
        return [scope, "ms"]
    numbers = str(steps.step[0])
    if count > 1:
        numbers = f"{steps.prefix} {numbers}-{steps.step[-1]}".strip()
    return [scope, numbers, "ms", *_middle(average)]


def scale(times: list[float]) -> tuple[float, bool]:
    """The top of the axis (1, 2, 4, 5, 8 x 10^n) and whether steps reach beyond it.

    Where one step is over four times the median (the first one, which compiles), the axis follows
    the 95th percentile.
    """
    ordered = sorted(times)
    top = ordered[-1]
    truncated = len(ordered) > 2 and top > 4 * ordered[len(ordered) // 2] > 0
    if truncated:
        top = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
        truncated = top < ordered[-1]
    if top <= 0:
        return 1.0, False
    power = 10.0 ** math.floor(math.log10(top))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= top), truncated


def _ticks(ceiling: float) -> int:
    """Number of parts of an axis with round ticks: 5 for 1, 5 and 10, else 4."""
    first = f"{ceiling:e}"[0]
    return {"1": 5, "5": 5}.get(first, 4)


def _bars(
    sheet: Canvas,
    steps: Steps,
    times: list[float],
    area: tuple[float, float, float],
    ceiling: float,
) -> None:
    left, top, right = area
    # More steps than columns of 2 pixels: each column shows the longest of its steps.
    group = math.ceil(len(times) / ((right - left) / 3))
    drawn = []
    for first in range(0, len(times), group):
        drawn.append(max(range(first, min(first + group, len(times))), key=times.__getitem__))
    pitch = (right - left) / len(drawn)
    width = min(max(pitch * 0.82, 2), 64)
    recorded = [category for category in CATEGORIES if category.key in steps.categories]
    for position, step in enumerate(drawn):
        x = left + pitch * (position + 0.5) - width / 2
        stack = [(c.colour, float(steps.categories[c.key][step])) for c in recorded]
        base = 0.0
        for colour, value in stack or [(OTHER, times[step])]:
            if not value > 0:
                continue
            high = min(base + value, ceiling)
            high_y, base_y = (top + _GRAPH * (1 - ms / ceiling) for ms in (high, base))
            sheet.box(x, high_y, x + width, base_y, colour)
            base = high


def _breakdown(sheet: Canvas, rows: list[Row], mean: float | None, y: float, unit: Unit) -> float:
    left = _SPLIT + 56
    sheet.text(left, y, where_it_goes(unit), 25, INK, bold=True)
    sheet.text(1200, y + 3, "ms", 20, SOFT, align="r")
    percent = f"% of {unit.noun}"
    if unit.is_recording:
        percent = "%"
    sheet.text(_RIGHT, y + 3, percent, 20, SOFT, align="r")
    y += 44
    for row in rows:
        sheet.rule(left, _RIGHT, y - 5, TRACK)
        colour, indent = _row_colour(row), left + 48
        if not row.part:
            indent = left + 30
            swatch = row.colour
            if not row.ms:
                swatch = mix(swatch, 35)
            sheet.box(left, y + 6, left + 18, y + 24, swatch, 3)
        sheet.text(indent, y + 2, sheet.fit(row.label, 22, 1120 - indent), 22, colour)
        sheet.text(1200, y + 2, wording.number(row.ms, 2), 22, colour, align="r")
        sheet.text(_RIGHT, y + 2, wording.percent(row.percent).rstrip("%"), 22, colour, align="r")
        y += 37
    sheet.rule(left, _RIGHT, y - 5)
    sheet.text(left, y + 2, unit.noun.capitalize(), 22, INK, bold=True)
    sheet.text(1200, y + 2, wording.number(mean, 2), 22, INK, bold=True, align="r")
    return y + 36


def _row_colour(row: Row) -> str:
    if row.part:
        return SOFT
    if row.ms:
        return TEXT
    return FAINT


def _top_ops(sheet: Canvas, overview: Overview, y: float) -> float:
    table = overview.top_ops
    if not table.rows:
        return y - _GAP
    side = overview.top_ops_where
    end = sheet.text(_LEFT, y, f"Top ops on {side}", 25, INK, bold=True)
    sheet.text(end + 14, y + 3, "self time, idle excluded", 22, SOFT)
    sheet.text(700, y + 3, table.head("ms_per_step").label, 20, SOFT, align="r")
    sheet.text(_SPLIT, y + 3, "%", 20, SOFT, align="r")
    y += 44
    colour = OF_SIDE[side]
    shares = [table.cell("percent", i) for i in range(table.rows)]
    widest = max((share for share in shares if share > 0), default=1.0)
    for i in range(min(table.rows, 10)):
        sheet.rule(_LEFT, _SPLIT, y - 5, TRACK)
        name = wording.one_line(table.cell("op", i))
        sheet.text(_LEFT, y + 2, sheet.fit(name, 22, 540, keep_end=True), 22)
        sheet.text(700, y + 2, wording.number(table.cell("ms_per_step", i), 3), 22, align="r")
        if shares[i] > 0:
            sheet.box(716, y + 9, 716 + 60 * shares[i] / widest, y + 20, colour)
        sheet.text(_SPLIT, y + 2, wording.percent(shares[i]).rstrip("%"), 22, align="r")
        y += 37
    return y


def _next_steps(sheet: Canvas, overview: Overview, y: float) -> float:
    left = _LEFT
    if overview.top_ops.rows:
        left = _SPLIT + 56
    width = _RIGHT - left
    sheet.text(left, y, "Next steps", 25, INK, bold=True)
    y += 44
    if not overview.advice:
        for line in sheet.wrap(overview.no_advice, 22, width, 4):
            sheet.text(left, y, line, 22, SOFT)
            y += 31
        return y
    for item in overview.advice[:3]:
        sheet.rule(left, _RIGHT, y - 5, TRACK)
        sheet.text(left, y + 2, sheet.fit(item.title, 22, width), 22, INK, bold=True)
        y += 32
        sentences = filter(None, (gain_text(item), wording.plain(item.evidence)))
        for line in sheet.wrap(". ".join(sentences), 20, width, 3):
            sheet.text(left, y, line, 20, SOFT)
            y += 27
        y += 14
    return y


def _footer(sheet: Canvas, meta: Meta, y: float) -> float:
    foot = meta.footer
    sheet.rule(_LEFT, _RIGHT, y)
    left = f"{wording.plural(foot.events, 'event')}, {foot.dropped:,} dropped · {foot.file}"
    if foot.bytes is not None:
        left += f", {wording.size(foot.bytes)}"
    right = f"nbprof {meta.version} · {meta.created}".rstrip(" ·")
    sheet.text(_LEFT, y + 14, sheet.fit(left, 20, 900), 20, SOFT)
    sheet.text(_RIGHT, y + 14, sheet.fit(right, 20, 400), 20, SOFT, align="r")
    return y + 56
