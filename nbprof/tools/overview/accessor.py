"""`p.overview` and `p.advice`: a dict and a frame that display as the dashboard shows them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.tools.accessor import ShownByMarimo

if TYPE_CHECKING:
    from nbprof.tools.accessor import Shown


class Overview(ShownByMarimo, dict[str, Any]):
    """A dict that a notebook shows as the tab *Overview*. Copies of it, and what a pickle holds,
    are ordinary dicts.
    """

    def __init__(self, values: dict[str, Any], profile: Shown) -> None:
        super().__init__(values)
        self._profile = profile

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return deepcopy(dict(self), memo)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        return self._profile.mimebundle(views=["overview"])


class Advice(pd.DataFrame):
    """A `DataFrame` that a notebook shows as findings: text, evidence, and the code with a button
    that copies it.

    What is selected from it, or copied, is an ordinary frame, as is what a pickle of it holds.
    """

    # Set beside pandas' own attributes, so that no method carries the profile into another frame.
    _profile: Shown | None = None

    @classmethod
    def of(cls, frame: pd.DataFrame, profile: Shown) -> Advice:
        """The findings of a profile."""
        advice = cls(frame.copy())
        object.__setattr__(advice, "_profile", profile)
        return advice

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    def __reduce__(self) -> Any:
        return pd.DataFrame(self).__reduce__()

    def _display_(self) -> Any:
        if self._profile is None:
            return pd.DataFrame(self)
        from nbprof.display.marimo import frame

        return frame(self._repr_mimebundle_()[0]["text/html"])

    def _repr_mimebundle_(self, **_: Any) -> Any:
        if self._profile is None:
            return None
        payload = self._profile.payload()
        advice_only = replace(payload, overview=replace(payload.overview, only="advice"))
        return self._profile.mimebundle(views=["overview"], payload=advice_only, drawn=False)
