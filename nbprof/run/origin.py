"""The program that recorded a run in this process, for what runs it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas as pd


class Origin(Protocol):
    """The program of a run.

    Attributes
    ----------
    refusal : str
        Why it cannot run again, as a sentence; empty if it can.
    rules : frozenset of str
        The rules of the advice that have an experiment.
    """

    refusal: str

    @property
    def rules(self) -> frozenset[str]:
        """The rules of the advice that have an experiment."""

    def busy(self) -> str:
        """Why it cannot run again now, as a sentence; empty if it can."""

    def attempt(
        self, run: Any, rule: str, budget_s: float, report: Callable[[str], object]
    ) -> dict[str, Any]:
        """Run experiments, and return `text` and `rows`, as `CaptureInfo.tried` holds them."""

    def variables(self) -> pd.DataFrame:
        """What keeps arrays alive in its process now."""

    def keep(self) -> None:
        """Store the results with the run, and show them where it is shown."""
