"""A comparison as one picture: the answer, figures, step times as dots, both average steps,
categories.
"""

from __future__ import annotations

import math
from typing import Any

from nbprof.analysis.compare.compare import STEP
from nbprof.display import wording
from nbprof.display.categories import BY_KEY, mix
from nbprof.tools.canvas import FAINT, INK, LINE, SOFT, TEXT, TRACK, WIDTH, Canvas
from nbprof.tools.compare import text as words
from nbprof.tools.compare.parts import Compare, ComparedCategory, ComparedFigure, Pair
from nbprof.tools.overview import picture
from nbprof.tools.parts import Meta

_LEFT, _RIGHT, _SPLIT = 40, WIDTH - 40, 690
_HEIGHT = 1800
_BEFORE, _AFTER = "#7A7A7A", "#1976D2"
_MOST_DOTS = 2000


def png(part: Compare, meta: Meta) -> bytes:
    """A PNG of the first pair, 1050 pixels wide (700 points at 1.5x)."""
    pair = part.pairs[0]
    before, after = part.runs[pair.before], part.runs[pair.after]
    sheet = Canvas(WIDTH, _HEIGHT)
    x = sheet.text(_LEFT, 32, "nbprof", 24, INK, bold=True)
    runs = f"{before.label} → {after.label}"
    sheet.text(x + 22, 32, sheet.fit(runs, 24, _RIGHT - x - 22), 24, TEXT, bold=True)
    sheet.rule(_LEFT, _RIGHT, 74)
    y = _verdict(sheet, pair, 96)
    y = _figures(sheet, pair.figures, y + 16)
    times = [before.times_ms, after.times_ms]
    if pair.bare:
        times = [before.bare_ms, after.bare_ms]
    rows = words.by_change(pair)
    unit = words.unit_of(pair)
    # Times of a call and of a recording are not drawn together.
    if any(len(each) for each in times) and words.comparable(pair):
        y += 40
        title = f"{unit.average}{words.recorded(pair)}"
        left = _average(sheet, rows, _dots(sheet, times, y, pair) + 36, title)
        y = max(left, _categories(sheet, pair, rows, y))
    return sheet.png(picture._footer(sheet, meta, y + 28))


def _verdict(sheet: Canvas, pair: Pair, y: float) -> float:
    width = _RIGHT - _LEFT - 20
    sizes = (size for size in (42, 38, 34) if sheet.measure(pair.headline, size) < width)
    size = next(sizes, 30)
    sheet.text(_LEFT, y, sheet.fit(pair.headline, size, _RIGHT - _LEFT), size, INK, bold=True)
    y += 62
    for line in sheet.wrap(pair.detail, 25, _RIGHT - _LEFT - 120, 3):
        sheet.text(_LEFT, y, line, 25)
        y += 36
    x = sheet.text(_LEFT, y + 4, pair.title, 22, TEXT, bold=True) + 14
    evidence = " · ".join(("" if item.ok else "! ") + item.text for item in pair.evidence)
    for i, line in enumerate(sheet.wrap(evidence, 22, _RIGHT - x, 3)):
        sheet.text(x, y + 4 + 30 * i, line, 22, SOFT)
        y += 30 * (i > 0)
    return y + 36


def _figures(sheet: Canvas, figures: list[ComparedFigure], y: float) -> float:
    sheet.rule(_LEFT, _RIGHT, y)
    width = (_RIGHT - _LEFT) / max(len(figures), 1)
    for i, figure in enumerate(figures):
        x = _LEFT + i * width + (16 if i else 0)
        if i:
            sheet.box(x - 16, y, x - 14, y + 126, LINE)
        unit = f", {figure.unit}" if figure.unit else ""
        sheet.text(x, y + 16, sheet.fit(figure.label + unit, 22, width - 28), 22, SOFT)
        was, now = (wording.number(value, figure.digits) for value in (figure.before, figure.after))
        text = f"{was} > {now}"
        size = next((size for size in (34, 30, 26) if sheet.measure(text, size) < width - 28), 22)
        sheet.text(x, y + 48, sheet.fit(text, size, width - 28), size, INK, bold=True)
        sheet.text(x, y + 92, sheet.fit(figure.note, 20, width - 20), 20, SOFT)
    sheet.rule(_LEFT, _RIGHT, y + 126)
    return y + 128


def _dots(sheet: Canvas, times: list[Any], y: float, pair: Pair) -> float:
    unit = words.unit_of(pair)
    title, legend = f"{unit.time.capitalize()}s", f"one dot per {unit.noun}, line = mean, ms"
    if pair.bare:
        legend = f"without recording, {legend}"
    if unit.is_recording:
        title, legend = "Durations", "ms"
    end = sheet.text(_LEFT, y, title, 25, INK, bold=True)
    sheet.text(end + 14, y + 3, legend, 22, SOFT)
    left, right, top = _LEFT + 90, _SPLIT, y + 50
    ceiling, truncated = picture.scale([float(t) for each in times for t in each])
    parts = picture._ticks(ceiling)
    for i in range(parts + 1):
        x = left + (right - left) * i / parts
        sheet.box(x, top, x + 2, top + 116, LINE if i == 0 else TRACK)
        sheet.text(x, top + 124, f"{ceiling * i / parts:,.10g}", 20, SOFT, align="c")
    rows = (("Before", _BEFORE, times[0]), ("After", _AFTER, times[1]))
    for row, (name, colour, each) in enumerate(rows):
        middle = top + 28 + 60 * row
        sheet.text(_LEFT, middle - 12, name, 20, SOFT)
        stride = math.ceil(len(each) / _MOST_DOTS) or 1
        for i, value in enumerate(each[::stride].tolist()):
            if value <= ceiling:
                # Spread vertically, so that equal steps remain visible.
                x, dy = left + (right - left) * value / ceiling, (i * 7 % 11 - 5) * 3
                sheet.box(x - 4, middle + dy - 4, x + 4, middle + dy + 4, mix(colour, 60), 4)
        if len(each) and each.mean() <= ceiling:
            x = left + (right - left) * float(each.mean()) / ceiling
            sheet.box(x - 2, middle - 26, x + 2, middle + 26, INK)
    if truncated:
        text = f"axis cut: slower {unit.plural} are not shown"
        sheet.text(right, top + 148, text, 20, SOFT, align="r")
    return top + 150 + 24 * truncated


def _average(sheet: Canvas, rows: list[ComparedCategory], y: float, title: str) -> float:
    sheet.text(_LEFT, y, title, 25, INK, bold=True)
    left, right, y = _LEFT + 90, _SPLIT, y + 46
    bars = {
        "Before": [row.before_ms or 0.0 for row in rows],
        "After": [row.after_ms or 0.0 for row in rows],
    }
    longest = max(*map(sum, bars.values()), 1e-12)
    for name, times_ms in bars.items():
        sheet.text(_LEFT, y + 8, name, 20, SOFT)
        x = float(left)
        for row, time_ms in zip(rows, times_ms, strict=True):
            end = x + (right - left) * time_ms / longest
            if end > x:
                sheet.box(x, y, max(end - 2, x + 1), y + 40, BY_KEY[row.key].colour)
            x = end
        y += 52
    return y


def _categories(sheet: Canvas, pair: Pair, rows: list[ComparedCategory], y: float) -> float:
    left = _SPLIT + 60
    columns = (left + 330, left + 430, left + 550)
    sheet.text(left, y, f"By category{words.recorded(pair)}", 25, INK, bold=True)
    for x, head in zip(columns, ("Before", "After", "Change"), strict=True):
        sheet.text(x, y + 3, head, 20, SOFT, align="r")
    y += 44
    step = [row for row in pair.categories if row.key == STEP]
    for row in [*rows, *step]:
        is_category = row.key in BY_KEY
        has_time = bool(row.before_ms or row.after_ms)
        ink, rule, x = TEXT, LINE, left
        if not has_time:
            ink = FAINT
        if is_category:
            rule = TRACK
            colour = BY_KEY[row.key].colour
            if not has_time:
                colour = mix(colour, 35)
            sheet.box(left, y + 6, left + 18, y + 24, colour, 3)
            x += 30
        sheet.rule(left, _RIGHT, y - 5, rule)
        name = words.label(row, words.unit_of(pair))
        sheet.text(x, y + 2, name, 22, ink, bold=not is_category)
        texts = (
            words.ms(row.before_ms, pair),
            words.ms(row.after_ms, pair),
            words.change(row.change_ms, pair.digits),
        )
        for x, text in zip(columns, texts, strict=True):
            sheet.text(x, y + 2, text, 22, ink, bold=not is_category, align="r")
        y += 37
    return y
