"""The whole dashboard as one payload: the parts of the views and what surrounds them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from nbprof.activity.unit import STEP, Unit
from nbprof.core.errors import NbprofError
from nbprof.core.guard import collecting, guarded
from nbprof.core.strings import python_strings
from nbprof.core.version import __version__
from nbprof.display import wording
from nbprof.display.categories import BY_KEY
from nbprof.run.stated import NeedsHostError
from nbprof.tools import drawn, register
from nbprof.tools.common import unit_of
from nbprof.tools.header import created, facts, label, notice
from nbprof.tools.names import NAMES, by_word
from nbprof.tools.overview import payload as overview
from nbprof.tools.tool import MOST_EVENTS, Tool, asked

if TYPE_CHECKING:
    from nbprof.core.trace import Receipt
    from nbprof.run.run import Run

MANY_EVENTS = 200_000
"""From so many on the whole takes half a second or more longer than the first picture of it."""
_MOST_SHOWN = 60
"""Letters of a wrong value in the sentence about it."""


@python_strings()
def dashboard(
    run: Run, views: Iterable[str] | None = None, events: int | None = None, progress: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """The `Payload` of js/lib/payload.ts, ready for `nbprof.display.codec.pack`.

    Parameters
    ----------
    run : Run
    views : iterable of str, optional
        The tabs to show, by the ids and words of `nbprof.tools.names`. By default, those that have something to show. Data of tabs that
        are not shown are left out, but for the overview and the steps, on which the static report stands.
    events : int, optional
        How many events of the trace to hold; 20,000 by default, 0 for none.
    progress : callable, optional
        Called with what is being analysed, and how far it is.

    Raises
    ------
    NbprofError
        Unknown view, or `events` is not a number of events.
    """
    most = budget(events)
    wanted, tools = chosen(views), register.tools()
    run.read_ahead()
    with collecting(run.memo.failures):
        return _dashboard(run, wanted, tools, most, views=bool(views), progress=progress)


def _dashboard(
    run: Run, wanted: list[str], tools: dict[str, Tool], most: int, *, views: bool, progress: Callable[[str], None] | None
) -> dict[str, Any]:
    shown = [tab for tab in wanted if views or asked(tools[tab].has, run, otherwise=True, part=_named(tab))]
    if not views and (alone := register.alone(run)):
        shown = alone.tabs
    payload: dict[str, Any] = {}
    # The overview last: of many hosts, other processes make its advice while the rest is drawn.
    for done, (tab, tool) in enumerate(sorted(tools.items(), key=lambda one: one[0] == "overview"), 1):
        if progress is not None and (tab in wanted or tool.always):
            progress(f"analysing, {done} of {len(tools)}: {NAMES[tab].label}")
        payload |= asked(tool.beside, run, otherwise={}, part=f"Supporting data of the tab {NAMES[tab].label}")
        payload[tab] = _part(run, tab, tool, most) if tab in wanted or tool.always else _left_out(tool)
    # Last, because it states how long the analysis took.
    return _in_units({"meta": meta(run, shown, most), "overview": payload.pop("overview"), **payload}, unit_of(run))


def _part(run: Run, tab: str, tool: Tool, most: int) -> dict[str, Any]:
    """The part of a tab; where it fails, an empty one that says so."""

    def failed(sentence: str) -> dict[str, Any]:
        return {**tool.nothing(), **tool.fallback(run, sentence), "empty": {"title": "This view could not be computed", "text": sentence}}

    try:
        return guarded(_named(tab), lambda: tool.payload(run, most), failed)
    except NeedsHostError:
        return _of_one_host(tool)


def _named(tab: str) -> str:
    return f"The tab {NAMES[tab].label}"


def spoken(run: Run) -> dict[str, Any]:
    """As much of it as plain text is made of."""
    told = [tab for tab, tool in register.tools().items() if tool.text is not Tool.text and asked(tool.has, run, otherwise=True)]
    return dashboard(run, told, 0)


def large(run: Run) -> bool:
    """Whether the first picture is there so much sooner than the whole that it is shown."""
    return run.as_read.receipt.events >= MANY_EVENTS


@python_strings()
def early(run: Run) -> dict[str, Any] | None:
    """The overview alone, to be shown while the rest is made: verdict, figures, step bar, step chart, but no advice.

    Of the receipt it has what was known when the files had been read: how the events hang together takes longer to tell.

    None of a run that is not looked at there first, or has no steps.
    """
    tools = register.tools()
    if run.steps.empty or register.alone(run) or any(asked(tool.first, run, otherwise=False) for tool in tools.values()):
        return None
    tab = {"id": "overview", "label": NAMES["overview"].label, "count": None, "flag": None}
    made = {
        "meta": {**_around(run), "tabs": [tab], "pending": "analysing…"},
        **{tab: tool.nothing() for tab, tool in tools.items()},
        **tools["input"].beside(run),
        "overview": overview.early(run),
    }
    return _in_units(made, unit_of(run))


def _in_units(payload: dict[str, Any], unit: Unit) -> dict[str, Any]:
    """A payload whose columns speak of the unit of work; one of steps is as it was."""
    if unit.kind == STEP:
        return payload
    for head in _columns(payload):
        head |= {key: unit.reword(head[key]) for key in ("label", "help")}
    return {**payload, "meta": {**payload["meta"], "unit": unit.words}}


def _columns(part: Any) -> Iterator[dict[str, Any]]:
    """The heads of all tables in a part of a payload."""
    if isinstance(part, dict):
        if "label" in part and "help" in part:
            yield part
        else:
            for value in part.values():
                yield from _columns(value)
    elif isinstance(part, list):
        for value in part:
            yield from _columns(value)


def budget(events: Any) -> int:
    """How many trace events a report has, from what the user gave: None, or a whole number of any type (`1e5`).

    Raises
    ------
    NbprofError
        It is no whole number, or less than 0.
    """
    if events is None:
        return MOST_EVENTS
    whole = -1
    number = isinstance(events, Real) and not isinstance(events, bool | np.bool_)
    if number:
        with suppress(ValueError, OverflowError):
            whole = int(events)
    if whole < 0 or whole != events:
        raise NbprofError(f"events= takes the number of trace events to keep, a whole number of 0 or more, not {_short(events)}")
    return min(whole, int(np.iinfo(np.int64).max))


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, np.generic) else repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def select(payload: dict[str, Any], views: Iterable[str] | None) -> dict[str, Any]:
    """A payload with fewer tabs and without the data of the others, as `dashboard` would have made it."""
    shown = chosen(views)
    known = {tab["id"]: tab for tab in payload["meta"]["tabs"]}
    # A tab that is asked for by name is there, if only to say why it is empty.
    tabs = [known.get(tab) or {"id": tab, "label": NAMES[tab].label, "count": None, "flag": None} for tab in shown if views or tab in known]
    if list(known) != [tab for tab in NAMES if tab in known]:
        # What has to be looked at first stays there.
        first = next(iter(known))
        tabs.sort(key=lambda tab: tab["id"] != first)
    dropped = {tab: _left_out(tool) for tab, tool in register.tools().items() if not tool.always and tab not in shown}
    return {**payload, **dropped, "meta": {**payload["meta"], "tabs": tabs}}


def chosen(views: Iterable[str] | None) -> list[str]:
    """The tabs in their fixed order; an unknown one is an error that names those there are."""
    if isinstance(views, str):
        views = [view for view in re.split(r"[,\s]+", views) if view]
    known = by_word()
    names = list(views or NAMES)
    if unknown := [name for name in names if name not in known]:
        raise NbprofError(f"unknown view {unknown[0]!r}; the views are {', '.join(NAMES)}")
    wanted = {known[name] for name in names}
    return [tab for tab in NAMES if tab in wanted]


def _left_out(tool: Tool) -> dict[str, Any]:
    """A part that was not requested: empty, with a note."""
    return {**tool.nothing(), "empty": {"title": "Not in this report", "text": "This view was not included in the report."}}


def _of_one_host(tool: Tool) -> dict[str, Any]:
    """A part that needs the events of a host."""
    text = "It needs the events of a single host, which are not loaded when many hosts are read: p.rank(0) opens the first host."
    return {**tool.nothing(), "empty": {"title": "Shown for one host at a time", "text": text}}


def meta(run: Run, shown: list[str], most: int = MOST_EVENTS) -> dict[str, Any]:
    """What surrounds the views: header, tabs, notice, footer, receipt."""
    tools = register.tools()
    shown = sorted(shown, key=lambda tab: not asked(tools[tab].first, run, otherwise=False))
    around = _around(run)
    told = _lines(run.receipt) + _omissions(run, most)
    return {**around, "tabs": [_tab(run, tab, tools[tab]) for tab in shown], "receipt": told}


def _around(run: Run) -> dict[str, Any]:
    """What surrounds the views, as far as it does not depend on them."""
    source, receipt = run.source, run.as_read.receipt
    return {
        "version": __version__,
        "label": label(run),
        "facts": facts(run),
        "created": created(run),
        "framework": str(run.first_answer.get("framework") or ""),
        "has_device": len(run.devices) > 0,
        "notice": notice(run),
        "heads": drawn.heads(),
        **({"hosts": sorted(run.hosts, key=wording.natural)} if len(run.hosts) > 1 else {}),
        "footer": {
            "events": receipt.events,
            "dropped": receipt.dropped,
            "analysed_s": source.analysed_s,
            "file": wording.one_line(source.file or ""),
            "bytes": source.bytes,
        },
        "receipt": _lines(receipt),
    }


def _lines(receipt: Receipt) -> list[dict[str, str]]:
    return [{"level": line.level, "text": line.text} for line in receipt.lines]


def _tab(run: Run, tab: str, tool: Tool) -> dict[str, Any]:
    bound = run.first_answer.get("bound")
    flag = bound if bound in BY_KEY and register.followed(run, bound) == tab else None
    return {
        "id": tab,
        "label": asked(tool.label, run, otherwise=None) or NAMES[tab].label,
        "count": asked(tool.count, run, otherwise=None),
        "flag": flag,
    }


def _omissions(run: Run, most: int) -> list[dict[str, str]]:
    """Receipt lines for what the payload, not the analysis, leaves out."""
    return [
        {"level": "info", "text": text} for tool in register.tools().values() for text in asked(tool.omissions, run, most, otherwise=[])
    ]
