"""The outcome of a check."""

from __future__ import annotations

from typing import NamedTuple

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"


class Outcome(NamedTuple):
    """The outcome of one check.

    Attributes
    ----------
    check : str
        The name of the method.
    outcome : str
        `pass`, `fail` or `unknown`.
    text : str
        A sentence with both values, or with the reason.
    value, limit : float or None
        Step times are in ms.
    changed : tuple of str
        Kernels or ops that changed since the baseline, if the check failed.
    unknown : str
        Action for an unknown outcome: `fail`, `warn` or `skip`.
    steps_are : str
        Of a step time: `bare`, if it is of steps that ran without the profiler, or `recorded`; ''
        of other checks, and where it is not known.
    """

    check: str
    outcome: str
    text: str
    value: float | None = None
    limit: float | None = None
    changed: tuple[str, ...] = ()
    unknown: str = "warn"
    steps_are: str = ""

    @property
    def failed(self) -> bool:
        """True if the check is not met, or is unknown and that fails."""
        return self.outcome == FAIL or (self.outcome == UNKNOWN and self.unknown == "fail")

    def __str__(self) -> str:
        head = f"{self.outcome}: {self.text}"
        return "\n".join([head, *(f"    {line}" for line in self.changed)])
