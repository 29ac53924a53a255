"""Input of the Ascend rules, and their measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import pandas as pd

from nbprof.analysis.rule import Rule, Target, Threshold

ASCEND = Target("ascend", "Ascend")
NO_OPS = "No op_summary was recorded: enable task_trace."


@dataclass
class Facts:
    """Input of the rules; a frame that was not recorded is None.

    Attributes
    ----------
    iterations, summary : DataFrame
        Of `ascend_iterations`.
    ops, types : DataFrame
        Of `ascend_ops`.
    pmu : DataFrame
        Of `ascend_pmu.frame`.
    waits : DataFrame
        Of `ascend_waits.frame`.
    fusion, api : DataFrame
        Of `ascend_tables`.
    ai_cores : dict
        Cores for matrices of a device, by (recording, device).
    vector_cores : dict
        Its vector cores.
    """

    iterations: pd.DataFrame | None = None
    summary: pd.DataFrame | None = None
    ops: pd.DataFrame | None = None
    types: pd.DataFrame | None = None
    pmu: pd.DataFrame | None = None
    waits: pd.DataFrame | None = None
    fusion: pd.DataFrame | None = None
    api: pd.DataFrame | None = None
    ai_cores: dict[tuple[str, int], int] = field(default_factory=dict)
    vector_cores: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def main(self) -> pd.DataFrame | None:
        """The summary of the main model of each device, where it has iterations that are not
        warm-up.
        """
        if self.summary is None or not len(self.summary):
            return None
        rows = self.summary[
            self.summary["main"]
            & (self.summary["counted"] > 0)
            & self.summary["iteration_ms"].notna()
        ]
        return rows if len(rows) else None


@dataclass(frozen=True)
class Measured:
    """A rule's measurement, whether or not it is a finding.

    Attributes
    ----------
    value : float or None
        Against the number `limit` of the threshold, in the unit of the rule.
    found : bool
    evidence : str
    ops : iterable of str
        Names of ops, most time first.
    share : float, optional
        Part of the device's time that it concerns.
    """

    value: float | None
    found: bool
    evidence: str
    ops: Iterable[str] = ()
    share: float | None = None


AscendCheck: TypeAlias = Callable[[Facts, Threshold], Measured | None]
AscendRule: TypeAlias = Rule[Facts, Measured]
"""A rule of `p.ascend.rules`."""


def percent(value: float) -> str:
    """A fraction as a percentage, for evidence."""
    return f"{100 * value:.1f}%"
