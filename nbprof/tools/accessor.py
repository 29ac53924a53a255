"""What every accessor of a Profile can do: return its frame and display itself."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from nbprof.tools import register

if TYPE_CHECKING:
    from anywidget import AnyWidget
    from bokeh.model import Model

    from nbprof.run.run import Run


class Shown(Protocol):
    """The profile that an accessor belongs to, as far as it needs it."""

    @property
    def run(self) -> Run:
        """Its frames."""

    def payload(self, events: int | None = None) -> dict[str, Any]:
        """What its dashboard draws."""

    def widget(self, **options: Any) -> AnyWidget:
        """Its dashboard as a widget."""

    def mimebundle(
        self, views: list[str] | None = None, *, payload: dict[str, Any] | None = None, drawn: bool = True
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Its dashboard as the output of a cell."""


class View:
    """One view of a profile: its frame, its Bokeh figure and its widget. In a notebook it displays as the dashboard at that tab."""

    def __init__(self, profile: Shown, tab: str) -> None:
        self._profile = profile
        self._tab = tab

    def widget(self, **options: Any) -> AnyWidget:
        """A live widget of this view; its selected steps can be read and set from Python."""
        return self._profile.widget(**{"views": [self._tab], **options})

    def _figure(self, key: str, **options: Any) -> Model:
        figure: Model = register.tool(self._tab).figures[key](self._profile.run, **options)
        return figure

    def _repr_mimebundle_(self, **_: Any) -> Any:
        return self._profile.mimebundle(views=[self._tab])


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

    def __repr__(self) -> str:
        frame = self.frame
        return f"<nbprof {self._name}: {len(frame)} rows; .frame is the DataFrame>"


class OfPrograms(Framed):
    """A view of compiled programs."""

    @property
    def missing(self) -> str:
        """Why there is nothing, in a sentence; '' where there is something."""
        return self._profile.run.programs.hlo_missing
