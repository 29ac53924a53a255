"""What every view of a Profile can do: show itself, and hand out its frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from nbprof.profiles.parts_base import Shown
    from nbprof.profiles.widget import DashboardWidget


class View:
    """One view of a profile: its frame, its Bokeh figure and its widget. In a notebook it displays as the dashboard at that tab."""

    def __init__(self, profile: Shown, tab: str) -> None:
        self._profile = profile
        self._tab = tab

    def widget(self, **options: Any) -> DashboardWidget:
        """A live widget of this view; its selected steps can be read and set from Python."""
        return self._profile.widget(**{"views": [self._tab], **options})

    def _repr_mimebundle_(self, **_: Any) -> Any:
        return self._profile.mimebundle(views=[self._tab])


class Framed(View):
    """A view with one main frame."""

    def __init__(self, profile: Shown, tab: str, name: str) -> None:
        super().__init__(profile, tab)
        self._name = name

    @property
    def frame(self) -> pd.DataFrame:
        """The view's data; the columns are those of `nbprof.frames.SCHEMA`."""
        frame: pd.DataFrame = getattr(self._profile.run, self._name)
        return frame.drop(columns=["group"], errors="ignore").copy()

    def __repr__(self) -> str:
        frame = self.frame
        return f"<nbprof {self._name}: {len(frame)} rows; .frame is the DataFrame>"
