"""The contract of a tab: the fields that the folders next to this module fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from nbprof.core.codec.records import record
from nbprof.core.guard import guarded
from nbprof.display.codec import Delta
from nbprof.run.stated import NeedsHostError
from nbprof.timeline.arrows import Arrows
from nbprof.tools.parts import Tab

if TYPE_CHECKING:
    from nbprof.core.receipt import Note
    from nbprof.run.run import Run
    from nbprof.tools.payloads import Payload

Html = str
AnyTab = TypeVar("AnyTab", bound=Tab)
MOST_EVENTS = 20_000
"""Events of the trace that a report holds where nobody says how many."""

# Parts are cached, and these are types of their own that they hold.
record(Delta)
record(Arrows)


def cached(run: Run, part: str, compute: Callable[[Run], AnyTab]) -> AnyTab:
    """A part from the cache, if the run has one. It may also depend on how the run was recorded."""
    origin = "found" if run.capture is None else "recorded"
    key = f"view {part}, {run.first_answer.get('framework')}, {origin}"
    return run.persist(key, partial(compute, run))


def cached_part(part: str, compute: Callable[[Run], AnyTab]) -> Callable[[Run, int], AnyTab]:
    """The `payload` of a tool whose part is cached, if the run has a cache."""
    return lambda run, _events: cached(run, part, compute)


class Alone(NamedTuple):
    """Tabs and facts of a profile whose data is that of a single tool.

    Parameters
    ----------
    tabs : list of str
        The tabs that it has.
    facts : list of str
        What follows the label, in place of steps and length; empty where these are known.
    device : str
        What to call a device that the profile does not name.
    """

    tabs: list[str]
    facts: list[str]
    device: str = ""


class Top(NamedTuple):
    """The first rows of a frame in one line, for a brief.

    Parameters
    ----------
    title : str
        What they are.
    call : str
        What gives the frame: its path under `p`, as in "kernels.by_name()".
    name : str
        The column that names a row.
    figures : tuple of str
        The columns with its figures; a row in which all of them are missing is left out.
    most : int
        How many rows.
    query : str
        What holds for a row, as `DataFrame.query` takes it; empty for all.
    largest : str
        The column by which the largest come first; empty where the frame is in that order.
    late : bool
        Whether it comes after the tops of all tools that are not late.
    line : str
        The column with the number of a line, where the name is that of a file; else empty.
    """

    title: str
    call: str
    name: str
    figures: tuple[str, ...]
    most: int = 3
    query: str = ""
    largest: str = ""
    late: bool = False
    line: str = ""


@dataclass(frozen=True)
class Tool:
    """All of one tab that is not analysis. `nbprof/tools/<id>/tool.py` has one as `TOOL`; what most
    tabs lack has a default.

    `Payload` is what `nbprof.tools.dashboard.dashboard` returns: text and static HTML are built
    from it, so that they agree with the page. The part of the tab is the field of the payload with
    the tab's id.

    Parameters
    ----------
    payload : callable
        (run, events) -> the part of the tab; `events` is how many events of the trace a report
        holds.
    nothing : callable
        The same part with nothing in it, for a report that leaves the tab out.
    fallback : callable
        (run, sentence) -> the part in place of `nothing` where it could not be computed; `sentence`
        says what failed.
    has : callable
        Whether the tab is there for a run, unless it is asked for by name.
    always : bool
        Whether the part is in every payload.
    extra_parts : callable
        Further parts, which are in every payload.
    label, count, follows : callable
        What is on the tab: its name, where that depends on the run; a number; and whether this
        shows what a verdict is about, which is given as a category of the step: the first tab that
        does is where it is followed up.
    first : callable
        Whether the run has to be looked at here first.
    alone, only : callable
        How a run, and whether a payload, is shown as one of this tool and nothing else.
    omissions : callable
        (run, events) -> notes for the receipt on what the payload leaves out of what the analysis
        has.
    text : callable
        (payload, limit) -> at most so many lines of the summary on the console.
    picture : callable
        A PNG of the payload, where this is the tool that has the picture of the run.
    chart : callable
        The part of that picture that its static HTML does not say in words; None where there is
        none.
    lead, static : callable
        What a reader without scripts sees, above and below the picture.
    figures : mapping
        Bokeh figures of a run, by key.
    brief : tuple of Top
        What a brief says of it.
    """

    payload: Callable[[Run, int], Tab]
    nothing: Callable[[], Tab]
    fallback: Callable[[Run, str], Tab] | None = None
    has: Callable[[Run], bool] = lambda _run: True
    always: bool = False
    extra_parts: Callable[[Run], Mapping[str, Tab]] = lambda _run: {}
    label: Callable[[Run], str | None] = lambda _run: None
    count: Callable[[Run], int | None] = lambda _run: None
    follows: Callable[[Run, str], bool] = lambda _run, _bound: False
    first: Callable[[Run], bool] = lambda _run: False
    alone: Callable[[Run], Alone | None] = lambda _run: None
    only: Callable[[Payload], bool] = lambda _payload: False
    omissions: Callable[[Run, int], list[Note]] = lambda _run, _events: []
    text: Callable[[Payload, int], list[str]] = lambda _payload, _limit: []
    picture: Callable[[Payload], bytes] | None = None
    chart: Callable[[Payload], bytes | None] = lambda _payload: None
    lead: Callable[[Payload], Html] = lambda _payload: ""
    static: Callable[[Payload], Html] = lambda _payload: ""
    figures: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    brief: tuple[Top, ...] = ()


def ask(
    tell: Callable[..., Any], *args: Any, otherwise: Any, part: str = "A part of the dashboard"
) -> Any:
    """The answer of a function of a tool; `otherwise` if it fails, or needs the events of hosts
    that were read separately.
    """
    try:
        return guarded(part, partial(tell, *args), lambda _: otherwise)
    except NeedsHostError:
        return otherwise
