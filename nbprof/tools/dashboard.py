"""The whole dashboard as one payload: the parts of the views and what surrounds them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from nbprof.activity.unit import STEP, Unit
from nbprof.core.errors import NbprofError
from nbprof.core.garbage import collection_paused
from nbprof.core.guard import collecting, guarded
from nbprof.core.strings import python_strings
from nbprof.core.version import __version__
from nbprof.display import wording
from nbprof.display.categories import BY_KEY
from nbprof.display.payload import Part
from nbprof.run.stated import NeedsHostError
from nbprof.tools import drawn, register
from nbprof.tools.common import unit_of
from nbprof.tools.header import created, facts, label, notice
from nbprof.tools.names import NAMES, by_word
from nbprof.tools.overview import payload as overview
from nbprof.tools.parts import (
    Column,
    Empty,
    Footer,
    HostDevices,
    Meta,
    ReceiptLine,
    Tab,
    TabHead,
    UnitWords,
)
from nbprof.tools.payloads import Payload
from nbprof.tools.tool import MOST_EVENTS, Tool, ask

if TYPE_CHECKING:
    from nbprof.core.receipt import Note
    from nbprof.run.run import Run

MANY_EVENTS = 200_000
"""From this number on, the analysis takes half a second or more longer than the first picture."""


_VALUE_LENGTH = 61
"""Letters of a wrong value in the sentence about it, with the ellipsis."""


@python_strings()
@collection_paused()
def dashboard(
    run: Run,
    views: Iterable[str] | None = None,
    events: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Payload:
    """The payload of a run, ready for `nbprof.display.codec.pack`.

    Parameters
    ----------
    run : Run
    views : iterable of str, optional
        The tabs to show, by the ids and words of `nbprof.tools.names`. By default, those that have
        something to show. Data of tabs that are not shown are left out, but for the overview and
        the steps, on which the static report stands.
    events : int, optional
        How many events of the trace to hold; 20,000 by default, 0 for none.
    progress : callable, optional
        Called with what is being analysed, and how far it is.

    Raises
    ------
    NbprofError
        Unknown view, or `events` is not a number of events.
    """
    limit = budget(events)
    requested = chosen(views)
    run.read_ahead()
    with collecting(run.memo.failures):
        visible = requested if views else _with_data(run, requested)
        parts = _parts(run, requested, limit, progress)
        # Last, because it states how long the analysis took.
        return _in_units(_payload(meta(run, visible, limit), parts), unit_of(run))


def _with_data(run: Run, tabs: list[str]) -> list[str]:
    """The tabs that have something to show."""
    visible = []
    for tab in tabs:
        if ask(register.tool(tab).has, run, otherwise=True, part=_title(tab)):
            visible.append(tab)
    if alone := register.alone(run):
        return alone.tabs
    return visible


def _parts(
    run: Run, requested: list[str], limit: int, progress: Callable[[str], None] | None
) -> dict[str, Tab]:
    """The parts of all tabs by id; of those that are not requested empty ones."""
    tools = register.tools()
    parts: dict[str, Tab] = {}
    # The overview last: for many hosts, other processes compute its advice in the meantime.
    order = sorted(tools, key=lambda tab: tab == "overview")
    for done, tab in enumerate(order, 1):
        tool, label = tools[tab], NAMES[tab].label
        included = tab in requested or tool.always
        if progress is not None and included:
            progress(f"analysing, {done} of {len(tools)}: {label}")
        supporting = f"Supporting data of the tab {label}"
        parts |= ask(tool.extra_parts, run, otherwise={}, part=supporting)
        parts[tab] = _part(run, tab, tool, limit) if included else _left_out(tool)
    return parts


def _title(tab: str) -> str:
    return f"The tab {NAMES[tab].label}"


def _payload(meta: Meta, parts: Mapping[str, Any]) -> Payload:
    """A payload of the parts of all tabs, by id."""
    return Payload(meta=meta, **parts)


def _part(run: Run, tab: str, tool: Tool, limit: int) -> Tab:
    """The part of a tab; where it fails, an empty one that says so."""

    def failed(sentence: str) -> Tab:
        part = tool.nothing()
        if tool.fallback:
            part = tool.fallback(run, sentence)
        return replace(part, empty=Empty(title="This view could not be computed", text=sentence))

    try:
        return guarded(_title(tab), lambda: tool.payload(run, limit), failed)
    except NeedsHostError:
        return _of_one_host(tool)


def spoken(run: Run) -> Payload:
    """The payload of the tabs that plain text is made from."""
    with_text = [
        tab
        for tab, tool in register.tools().items()
        if tool.text is not Tool.text and ask(tool.has, run, otherwise=True)
    ]
    return dashboard(run, with_text, 0)


def large(run: Run) -> bool:
    """True if the profile is so large that a first picture is shown before the analysis ends."""
    return run.as_read.receipt.events >= MANY_EVENTS


@python_strings()
@collection_paused()
def early(run: Run) -> Payload | None:
    """The overview alone, to be shown during the analysis: verdict, figures, step bar and step
    chart, but no advice.

    Its receipt has the notes on reading the files; those on the relations of events take longer.

    None for a run without steps, or one that is first looked at in another tab.
    """
    tools = register.tools()
    if run.steps.empty or register.alone(run):
        return None
    if any(ask(tool.first, run, otherwise=False) for tool in tools.values()):
        return None
    tab = TabHead(id="overview", label=NAMES["overview"].label, count=None, flag=None)
    parts = {name: tool.nothing() for name, tool in tools.items()}
    parts |= tools["input"].extra_parts(run)
    parts["overview"] = overview.early(run)
    around = replace(_around(run), tabs=[tab], pending="analysing…")
    return _in_units(_payload(around, parts), unit_of(run))


def _in_units(payload: Payload, unit: Unit) -> Payload:
    """A payload whose columns speak of the unit of work; one of steps is as it was."""
    if unit.kind == STEP:
        return payload
    for column in _columns(payload):
        column.label, column.help = unit.reword(column.label), unit.reword(column.help)
    return replace(payload, meta=replace(payload.meta, unit=UnitWords(**unit.words)))


def _columns(part: Any) -> Iterator[Column]:
    """The columns of all tables in a part of a payload."""
    if isinstance(part, Column):
        yield part
    elif isinstance(part, (Part, dict)):
        for _, value in part.items():
            yield from _columns(value)
    elif isinstance(part, list):
        for value in part:
            yield from _columns(value)


def budget(events: Any) -> int:
    """The number of trace events in a report, from `events=`: None, or a whole number of any type
    (`1e5`).

    Raises
    ------
    NbprofError
        Not a whole number, or less than 0.
    """
    if events is None:
        return MOST_EVENTS
    count = -1
    is_number = isinstance(events, Real) and not isinstance(events, bool | np.bool_)
    if is_number:
        with suppress(ValueError, OverflowError):
            count = int(events)
    if count < 0 or count != events:
        raise NbprofError(
            "events= takes the number of trace events to keep, a whole number of 0 or more, not"
            f" {_short(events)}"
        )
    return min(count, int(np.iinfo(np.int64).max))


def _short(value: Any) -> str:
    text = repr(value)
    if isinstance(value, np.generic):
        text = str(value)
    return wording.shortened(text, _VALUE_LENGTH)


def select(payload: Payload, views: Iterable[str] | None) -> Payload:
    """A payload with fewer tabs and without the data of the others, as `dashboard` would have made
    it.
    """
    visible = chosen(views)
    heads = {tab.id: tab for tab in payload.meta.tabs}
    tabs = []
    for tab in visible:
        if tab in heads:
            tabs.append(heads[tab])
        elif views:
            # A tab that is requested by name is there, if only to say why it is empty.
            tabs.append(TabHead(id=tab, label=NAMES[tab].label, count=None, flag=None))
    if list(heads) != [tab for tab in NAMES if tab in heads]:
        # The tab that has to be looked at first stays first.
        first = next(iter(heads))
        tabs.sort(key=lambda tab: tab.id != first)
    dropped: dict[str, Any] = {
        tab: _left_out(tool)
        for tab, tool in register.tools().items()
        if not tool.always and tab not in visible
    }
    return replace(payload, meta=replace(payload.meta, tabs=tabs), **dropped)


def chosen(views: Iterable[str] | None) -> list[str]:
    """The tabs in their fixed order; an unknown one is an error that names those there are."""
    if isinstance(views, str):
        views = [view for view in re.split(r"[,\s]+", views) if view]
    tab_of = by_word()
    requested = set()
    for name in views or NAMES:
        if name not in tab_of:
            raise NbprofError(f"unknown view {name!r}; the views are {', '.join(NAMES)}")
        requested.add(tab_of[name])
    return [tab for tab in NAMES if tab in requested]


def _left_out(tool: Tool) -> Tab:
    """A part that was not requested: empty, with a note."""
    text = "This view was not included in the report."
    return replace(tool.nothing(), empty=Empty(title="Not in this report", text=text))


def _of_one_host(tool: Tool) -> Tab:
    """A part that needs the events of a host."""
    text = (
        "It needs the events of a single host, which are not loaded when many hosts are read:"
        " p.rank(0) opens the first host."
    )
    return replace(tool.nothing(), empty=Empty(title="Shown for one host at a time", text=text))


def meta(run: Run, visible: list[str], limit: int = MOST_EVENTS) -> Meta:
    """Header, tabs, notice, footer and receipt."""
    tools = register.tools()
    visible = sorted(visible, key=lambda tab: not ask(tools[tab].first, run, otherwise=False))
    bound = run.first_answer.get("bound")
    followed = register.followed(run, bound) if bound in BY_KEY else None
    return replace(
        _around(run),
        tabs=[_tab(run, tab, tools[tab], bound if tab == followed else None) for tab in visible],
        receipt=_lines(run.receipt.lines) + _omissions(run, limit),
    )


def _around(run: Run) -> Meta:
    """The part of `meta` that does not depend on the tabs."""
    source, receipt = run.source, run.as_read.receipt
    return Meta(
        version=__version__,
        label=label(run),
        facts=facts(run),
        created=created(run),
        framework=str(run.first_answer.get("framework") or ""),
        has_device=len(run.devices) > 0,
        notice=notice(run),
        heads=drawn.heads(),
        hosts=sorted(run.hosts, key=wording.natural) if len(run.hosts) > 1 else None,
        devices=_devices(run),
        footer=Footer(
            events=receipt.events,
            dropped=receipt.dropped,
            analysed_s=source.analysed_s,
            file=wording.one_line(source.file or ""),
            bytes=source.bytes,
        ),
        receipt=_lines(receipt.lines),
        tabs=[],
    )


def _devices(run: Run) -> list[HostDevices] | None:
    """The devices of each host that has several; None if no host has."""
    several = []
    for host, numbers in run.devices.groupby("host", sort=False)["device"]:
        unique = sorted({int(number) for number in numbers})
        if len(unique) > 1:
            several.append(HostDevices(host=str(host), devices=unique))
    return several or None


def _lines(notes: list[Note]) -> list[ReceiptLine]:
    return [ReceiptLine(level=note.level, text=note.text) for note in notes]


def _tab(run: Run, tab: str, tool: Tool, flag: str | None) -> TabHead:
    return TabHead(
        id=tab,
        label=ask(tool.label, run, otherwise=None) or NAMES[tab].label,
        count=ask(tool.count, run, otherwise=None),
        flag=flag,
    )


def _omissions(run: Run, limit: int) -> list[ReceiptLine]:
    """Receipt lines for what the payload, not the analysis, leaves out."""
    lines: list[ReceiptLine] = []
    for tool in register.tools().values():
        lines += _lines(ask(tool.omissions, run, limit, otherwise=[]))
    return lines
