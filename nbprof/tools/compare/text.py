"""A comparison in words: on the console, and as Markdown for a pull request."""

from __future__ import annotations

from typing import Literal, NamedTuple

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis.compare.compare import STEP
from nbprof.analysis.compare.verdict import signed
from nbprof.display import wording
from nbprof.display.categories import BY_KEY
from nbprof.tools.compare.parts import (
    Compare,
    ComparedCalls,
    ComparedCategory,
    ComparedFigure,
    ComparedFinding,
    Pair,
)
from nbprof.tools.parts import Table

_OPS = 5
_OPS_MARKDOWN = 10


def plain(part: Compare) -> str:
    """The first pair as plain text: the answer, the evidence, figures, categories, the ops that
    changed most.
    """
    pair = part.pairs[0]
    lines = [
        f"nbprof compare · {part.runs[pair.before].label} → {part.runs[pair.after].label}",
        pair.headline,
    ]
    if pair.detail:
        lines.append(pair.detail)
    lines.append(f"{pair.title}:")
    for item in pair.evidence:
        lines.append(f"  {'+' if item.ok else '-'} {item.text}")
    for figure in pair.figures:
        clauses = filter(None, [values(figure), figure.note])
        lines.append(f"{figure.label:<19} {', '.join(clauses)}")
    for row in by_change(pair):
        if row.change_ms:
            times = (
                f"{ms(row.before_ms, pair):>10} → {ms(row.after_ms, pair):>8} ms"
                f" {signed(row.change_ms, pair.digits):>10}"
            )
            lines.append(f"  {label(row, unit_of(pair)):<18}{times}")
    if pair.findings_text:
        lines.append(pair.findings_text.replace("**", ""))
    for op in changed(pair, "ops", _OPS):
        rise = wording.rise(wording.micros(op.change_us), op.change_us)
        lines.append(f"  {rise:>12}  {wording.tail(op.name, 70)}{note(op)}")
    lines += _memory_lines(pair)
    return "\n".join(wording.one_line(line) for line in lines)


def markdown(pair: Pair) -> str:
    """One pair as Markdown with tables."""
    lines = [f"**{_safe(pair.headline)}**", ""]
    if pair.detail:
        lines += [_safe(pair.detail), ""]
    lines += [f"{pair.title}:", ""]
    lines += [f"- {'✓' if item.ok else '–'} {_safe(item.text)}" for item in pair.evidence]
    lines += ["", "| | Before | After | |", "|---|--:|--:|--:|"]
    for figure in pair.figures:
        head = ", ".join(filter(None, [figure.label, figure.unit]))
        was = wording.number(figure.before, figure.digits)
        now = wording.number(figure.after, figure.digits)
        lines.append(f"| {head} | {was} | {now} | {figure.note} |")
    rows = [row for row in by_change(pair) if row.before_ms or row.after_ms]
    if rows:
        lines += [
            "",
            f"| ms {unit_of(pair).per}{recorded(pair)} | Before | After | Change |",
            "|---|--:|--:|--:|",
        ]
        for row in rows:
            cells = [
                label(row, unit_of(pair)),
                ms(row.before_ms, pair),
                ms(row.after_ms, pair),
                change(row.change_ms, pair.digits),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    if pair.findings:
        lines += [
            "",
            f"| Advice, predicted gain {unit_of(pair).per} | | Before | After |",
            "|---|---|--:|--:|",
        ]
        for finding in pair.findings:
            cells = [_safe(finding.title), finding.state, *gains(finding)]
            lines.append(f"| {' | '.join(cells)} |")
        if pair.findings_text:
            lines += ["", pair.findings_text]
    ops = changed(pair, "ops", _OPS_MARKDOWN)
    if ops:
        lines += [
            "",
            f"| Op, self time in µs{per(pair)} | Before | After | Change |",
            "|---|--:|--:|--:|",
        ]
        for op in ops:
            cells = [
                _code(op.name) + note(op),
                wording.number(op.before_us, 1),
                wording.number(op.after_us, 1),
            ]
            lines.append(f"| {' | '.join(cells)} | {signed(op.change_us, 1)} |")
    lines += _memory_markdown(pair)
    return "\n".join(lines) + "\n"


def gains(finding: ComparedFinding) -> list[str]:
    """The gains that a finding predicts before and after."""
    gains = []
    for gain_ms in (finding.before_ms, finding.after_ms):
        if gain_ms is None:
            gains.append(wording.MISSING)
        else:
            gains.append(f"{finding.gain_is} {wording.millis(-gain_ms)}")
    return gains


def values(figure: ComparedFigure) -> str:
    """`6.20 → 3.20 ms`."""
    was, now = (
        wording.number(figure.before, figure.digits),
        wording.number(figure.after, figure.digits),
    )
    unit = figure.unit
    if unit not in ("", "%"):
        unit = f" {unit}"
    if figure.after is None:
        return f"{was}{unit} → {now}"
    return f"{was} → {now}{unit}"


def by_change(pair: Pair) -> list[ComparedCategory]:
    """The recorded categories, largest before or after first, without the step itself."""
    rows = []
    for row in pair.categories:
        if row.key != STEP and (row.before_ms is not None or row.after_ms is not None):
            rows.append(row)
    return sorted(rows, key=lambda row: -max(row.before_ms or 0.0, row.after_ms or 0.0))


class Changed(NamedTuple):
    """An op or a kernel whose time changed."""

    name: str
    state: str
    before_name: str
    before_us: float | None
    after_us: float | None
    change_us: float


def changed(pair: Pair, kind: Literal["ops", "kernels"], limit: int) -> list[Changed]:
    """The ops or kernels that changed most."""
    table, small, name_key = pair.kernels, pair.small_us.kernels, "kernel"
    if kind == "ops":
        table, small, name_key = pair.ops, pair.small_us.ops, "op"
    rows = []
    for row in range(min(table.rows, limit)):
        change_us = wording.real(table.cell("change_us", row))
        if not change_us or abs(change_us) < small:
            continue
        before_name = ""
        if kind == "ops":
            before_name = table.cell("before_op", row)
        op = Changed(
            name=table.cell(name_key, row),
            state=table.cell("state", row),
            before_name=before_name,
            before_us=wording.real(table.cell("before_us", row)),
            after_us=wording.real(table.cell("after_us", row)),
            change_us=change_us,
        )
        rows.append(op)
    return rows


def note(row: Changed) -> str:
    """The suffix of a name: new, gone, or its former name."""
    if row.state == "renamed":
        return f" (was {wording.tail(row.before_name, 40)})"
    if row.state in ("new", "gone"):
        return f" ({row.state})"
    return ""


class CallChange(NamedTuple):
    """A frame of a tree of calls whose self time changed."""

    path: list[str]
    """Names, its callers first."""
    state: str
    cells: list[str]
    """Self time before and after, the change, and half of its interval, in ms."""


def calls(tree: ComparedCalls, limit: int) -> list[CallChange]:
    """The frames whose self time changed most."""
    table = tree.calls
    by_change = []
    for row in range(table.rows):
        change_ms = wording.real(table.cell("self_change_ms", row))
        if change_ms:
            by_change.append((-abs(change_ms), row))
    changes = []
    for _, row in sorted(by_change)[:limit]:
        path: list[str] = []
        caller = row
        while caller >= 0:
            path.insert(0, table.cell("name", caller))
            caller = int(table.cell("_parent", caller))
        before_ms, after_ms, change_ms, margin_ms = (
            wording.real(table.cell(f"{key}_ms", row))
            for key in ("before_self", "after_self", "self_change", "self_margin")
        )
        cells = [wording.number(before_ms, 3), wording.number(after_ms, 3)]
        cells += [change(change_ms, 3), wording.number(margin_ms, 3)]
        state = table.cell("state", row)
        changes.append(CallChange(path, state.removeprefix("both"), cells))
    return changes


class MemoryChange(NamedTuple):
    """Memory of a role, or of the blocks of a stack."""

    name: str
    before_bytes: float | None
    after_bytes: float | None
    change_bytes: float | None

    @property
    def cells(self) -> list[str]:
        """Its bytes before and after, and the change with its sign."""
        change = wording.rise(wording.size(self.change_bytes), self.change_bytes)
        return [wording.size(self.before_bytes), wording.size(self.after_bytes), change]


def by_role(pair: Pair) -> list[MemoryChange]:
    """The memory of each role, the largest change first."""
    roles = pair.memory.roles
    names = [roles.cell("role", row).capitalize() for row in range(roles.rows)]
    return [_memory_change(roles, row, name) for row, name in enumerate(names)]


def by_stack(pair: Pair, limit: int) -> list[MemoryChange]:
    """Some stacks whose blocks in use changed most, by the line of the program."""
    stacks = pair.memory.stacks
    changes = []
    for row in range(min(stacks.rows, limit)):
        name, state = stacks.cell("location", row), stacks.cell("state", row)
        if state in ("new", "gone"):
            name += f" ({state})"
        change = _memory_change(stacks, row, name)
        if change.change_bytes:
            changes.append(change)
    return changes


def _memory_change(table: Table, row: int, name: str) -> MemoryChange:
    before, after, change = (
        wording.real(table.cell(f"{key}_bytes", row)) for key in ("before", "after", "change")
    )
    return MemoryChange(name, before, after, change)


def _memory_lines(pair: Pair) -> list[str]:
    """Memory by role and by stack, on the console."""
    lines = []
    for title, changes in (
        (f"Memory by role, {pair.memory.moment}:", by_role(pair)),
        ("Memory by stack, at the snapshot:", by_stack(pair, _OPS)),
    ):
        if changes:
            lines.append(title)
        for change in changes:
            was, now, difference = change.cells
            name = wording.tail(change.name, 70)
            lines.append(f"  {was:>12} → {now:>12} {difference:>13}  {name}")
    return [*lines, *filter(None, (pair.memory.reason, pair.memory.stacks_reason))]


def _memory_markdown(pair: Pair) -> list[str]:
    """Memory by role and by stack, as tables."""
    lines = []
    for title, changes, cell in (
        (f"Memory by role, {pair.memory.moment}", by_role(pair), _safe),
        ("Memory by stack, at the snapshot", by_stack(pair, _OPS_MARKDOWN), _code),
    ):
        if changes:
            lines += ["", f"| {title} | Before | After | Change |", "|---|--:|--:|--:|"]
        for change in changes:
            lines.append(f"| {cell(change.name)} | {' | '.join(change.cells)} |")
    for reason in filter(None, (pair.memory.reason, pair.memory.stacks_reason)):
        lines += ["", _safe(reason)]
    return lines


def label(row: ComparedCategory, unit: Unit = MARKED) -> str:
    """The name of a category."""
    if row.key in BY_KEY:
        return BY_KEY[row.key].label
    return unit.noun.capitalize()


def ms(value: float | None, pair: Pair) -> str:
    """A time of a category."""
    return wording.number(value, pair.digits)


def change(value: float | None, digits: int) -> str:
    """A change with its sign; – where it is not known."""
    return wording.MISSING if value is None else signed(value, digits)


def unit_of(pair: Pair) -> Unit:
    """The unit of the times of a pair."""
    return Unit(pair.unit.kind) if pair.unit else MARKED


def comparable(pair: Pair) -> bool:
    """True for a step time to compare, which runs in different units do not have."""
    return any(
        row.before_ms is not None or row.after_ms is not None
        for row in pair.categories
        if row.key == STEP
    )


def recorded(pair: Pair) -> str:
    """What says that categories are of recorded steps where the verdict is not."""
    return ", while recorded" if pair.bare else ""


def per(pair: Pair) -> str:
    """The divisor of op times, as the end of a heading: " per step"."""
    if pair.per_step:
        return f" {unit_of(pair).per}"
    return " in the profile"


def _safe(text: str) -> str:
    """Foreign text with its markup escaped."""
    text = wording.one_line(text)
    for mark in "\\`*_[]<>|#~":
        text = text.replace(mark, f"\\{mark}")
    return text


def _code(text: str) -> str:
    """A name as code within a table; a name with backticks as plain text."""
    text = wording.one_line(text)
    if "`" in text:
        return _safe(text)
    escaped = text.replace("|", r"\|")
    return f"`{escaped}`"
