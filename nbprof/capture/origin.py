"""A recorded program that can run again for experiments, or the reason why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from nbprof.capture.experiments.program import Program
    from nbprof.capture.options import Options
    from nbprof.sources.recording import Recording

BLOCK = (
    "A block cannot run again. Put its code into a cell with %%nbprof, or into an ordinary function"
    " with @nbprof.profile, and try it on that profile."
)

PROCESSES = (
    "A cell whose processes were recorded cannot run again for experiments. Record it without"
    " children to try a remedy in its own process."
)


class Rerun:
    """A program that can run again.

    Parameters
    ----------
    make : callable
        Makes the program.
    options : Options
        Of the recording.
    recording : Recording
    busy : callable, optional
        Says why it cannot run now.
    show : callable, optional
        Shows the run again where it is shown.
    """

    refusal = ""

    def __init__(
        self,
        make: Callable[[], Program],
        options: Options,
        recording: Recording,
        *,
        busy: Callable[[], str] = str,
        show: Callable[[], object] = bool,
    ) -> None:
        self._make = make
        self._options = options
        self._recording = recording
        self._show = show
        self.busy = busy

    @cached_property
    def rules(self) -> frozenset[str]:
        """The rules of the advice that have an experiment."""
        from nbprof.capture.experiments.register import rules_of

        return rules_of(self._recording.info.backend)

    def attempt(
        self, run: Any, rule: str, budget_s: float, report: Callable[[str], object]
    ) -> dict[str, Any]:
        """Run the experiments of a rule, or of all findings; raises CaptureError of no rule."""
        from nbprof.capture.experiments.engine import try_remedies
        from nbprof.capture.experiments.requests import METHOD, check_try

        check_try(rule, budget_s, METHOD)
        return try_remedies(self._make, run, self._options, rule, budget_s, report)

    def variables(self) -> pd.DataFrame:
        """What keeps arrays alive in this process now."""
        return _variables()

    def keep(self) -> None:
        """Store the results with the run, and show them."""
        self._recording.keep()
        self._show()


class Unrepeatable:
    """A program that cannot run again.

    Parameters
    ----------
    refusal : str
        The reason, as a sentence.
    """

    rules: frozenset[str] = frozenset()

    def __init__(self, refusal: str) -> None:
        self.refusal = refusal

    def busy(self) -> str:
        """It is never asked."""
        return self.refusal

    def attempt(self, *_: Any) -> dict[str, Any]:
        """Nothing is tried."""
        return {"text": self.refusal, "rows": []}

    def variables(self) -> pd.DataFrame:
        """What keeps arrays alive in this process now."""
        return _variables()

    def keep(self) -> None:
        """There is nothing to keep."""


def _variables() -> pd.DataFrame:
    from nbprof.capture.variables.table import of_notebook

    return of_notebook()
