"""Base classes of the accessors of a Profile: frame, display, help and representation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, overload

import pandas as pd

from nbprof.tools import register
from nbprof.tools.plot import displayed

if TYPE_CHECKING:
    from anywidget import AnyWidget
    from bokeh.model import Model

    from nbprof.run.run import Run
    from nbprof.tools.payloads import Payload


def _summary(docstring: str) -> str:
    """The first paragraph without its end on the columns."""
    text = " ".join(docstring.partition("\n\n")[0].split())
    return text.partition("; the columns are")[0].rstrip(".")


class Shown(Protocol):
    """The profile that an accessor belongs to, as far as it needs it."""

    @property
    def run(self) -> Run:
        """Its frames."""

    def payload(self, events: int | None = None) -> Payload:
        """The payload of its dashboard."""

    def widget(self, **options: Any) -> AnyWidget:
        """Its dashboard as a widget."""

    def mimebundle(
        self, views: list[str] | None = None, *, payload: Payload | None = None, drawn: bool = True
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Its dashboard as the output of a cell."""


Held = TypeVar("Held")


class accessor(Generic[Held]):  # noqa: N801  used as `property` is
    """A read-only attribute. IPython asks a property for its own help and an attribute for that of
    its value: `p.steps?` is about steps.
    """

    def __init__(self, get: Callable[[Any], Held]) -> None:
        self.fget = get
        self.__doc__ = get.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Held: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Self | Held:
        return self if instance is None else self.fget(instance)

    def __set__(self, instance: object, value: object) -> None:
        raise AttributeError(f"{self._name} cannot be set")


class Helped:
    """Base of objects whose `?` in IPython lists their attributes and methods."""

    @classmethod
    def getdoc(cls) -> str:
        """The text that `?` shows in IPython: docstring, and one line per attribute and method."""
        members = [name for name in dir(cls) if not name.startswith("_") and name != "getdoc"]
        declared = [name for name in vars(cls) if name in members]
        inherited = [name for name in members if name not in declared]
        lines = [inspect.cleandoc(cls.__doc__ or ""), "", "Attributes and methods:", ""]
        for name in [*declared, *inherited]:
            member = inspect.getattr_static(cls, name)
            call = "()" if inspect.isroutine(member) else ""
            lines.append(f"    {name}{call}: {_summary(inspect.getdoc(member) or '')}")
        return "\n".join(lines)


_MOST_ROWS = 15
_MOST_COLUMNS = 8


def _printed(table: pd.DataFrame) -> str:
    """The first rows of a frame in plain text."""
    filled = table.head(_MOST_ROWS).dropna(axis="columns", how="all")
    return filled.to_string(
        index=False,
        na_rep="NA",
        max_cols=_MOST_COLUMNS,
        max_colwidth=40,
        float_format="{:,.2f}".format,
    )


class ShownByMarimo:
    """An object whose mime bundle marimo shows, too."""

    def _display_(self) -> Any:
        from nbprof.display.marimo import frame

        bundle = self._repr_mimebundle_()
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return frame(data["text/html"])

    def _repr_mimebundle_(self, **_: Any) -> Any:
        raise NotImplementedError


class View(Helped):
    """One view of a profile: its frame, its Bokeh figure and its widget. In a notebook it displays
    as the dashboard at that tab.
    """

    _none = ""
    """What to say where nothing is there and the tab is about more than this."""

    def __init__(self, profile: Shown, tab: str) -> None:
        self._profile = profile
        self._tab = tab

    def widget(self, **options: Any) -> AnyWidget:
        """A live widget of this view; its selected steps can be read and set from Python."""
        return self._profile.widget(**{"views": [self._tab], **options})

    def _figure(self, key: str, **options: Any) -> Model:
        figure: Model = register.tool(self._tab).figures[key](self._profile.run, **options)
        return displayed(figure, self)

    def _there(self) -> bool:
        """True if the profile has data for it; otherwise completion of `p.` leaves it out."""
        return register.tool(self._tab).has(self._profile.run)

    def _nothing(self) -> str:
        """Why there is nothing, in a sentence or two."""
        empty = None if self._none else register.tool(self._tab).payload(self._profile.run, 0).empty
        if not empty:
            return self._none or "This profile has no data for it."
        # A last sentence that leads to code on screen says nothing without it.
        return f"{empty.title.rstrip('.')}. {re.sub('[^.]*:$', '', empty.text)}".strip()

    def _display_(self) -> Any:
        # marimo asks this, and draws widgets.
        return self.widget() if self._there() else repr(self)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        if self._none and not self._there():
            return {"text/plain": repr(self)}
        data, about = self._profile.mimebundle(views=[self._tab])
        table = self._table()
        if table is not None:
            data["text/plain"] = repr(self)
            if len(table):
                data["text/plain"] += f"\n{_printed(table)}"
        return data, about

    def _table(self) -> pd.DataFrame | None:
        """The table that plain text shows; None shows the summary of the run."""
        return None

    def __repr__(self) -> str:
        name = self._name_of()
        if self._there():
            return f"<nbprof {name}>"
        return f"<nbprof {name}: {self._nothing()}>"

    def _name_of(self) -> str:
        return self._tab


class Framed(View):
    """A view with one main frame: `run.<frame>`, as "steps" or "programs.hlo"."""

    def __init__(self, profile: Shown, tab: str, frame: str) -> None:
        super().__init__(profile, tab)
        self._get = attrgetter(frame)
        self._name = frame.rpartition(".")[2]

    @property
    def frame(self) -> pd.DataFrame:
        """The view's data; the columns are those of `nbprof.frames.SCHEMA`."""
        frame: pd.DataFrame = self._get(self._profile.run)
        return frame.drop(columns=["group"], errors="ignore").copy()

    def _table(self) -> pd.DataFrame | None:
        return self.frame

    def _there(self) -> bool:
        return len(self._get(self._profile.run)) > 0

    def _name_of(self) -> str:
        return self._name

    def __repr__(self) -> str:
        rows = len(self.frame)
        text = f"{rows} rows; .frame is the DataFrame" if rows else f"no rows. {self._nothing()}"
        return f"<nbprof {self._name}: {text}>"


class OfPrograms(Framed):
    """A view of compiled programs."""

    @property
    def missing(self) -> str:
        """Why there is nothing, in a sentence; '' where there is something."""
        return self._profile.run.programs.hlo_missing

    def _there(self) -> bool:
        return not self._profile.run.programs.hlo_missing

    def _nothing(self) -> str:
        return self._profile.run.programs.hlo_missing
