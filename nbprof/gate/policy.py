"""The policy of this process: what an unknown figure does, and whether baselines are written.

The pytest plugin sets it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nbprof.core.errors import NbprofError
from nbprof.gate.outcome import Outcome

UPDATES = ("new", "add")
"""Actions instead of comparing with a baseline: write it, or add the step times of a run to it."""
UNKNOWN = ("fail", "warn", "skip")
"""Actions for an unknown figure: fail, warn, or skip the test."""


def default_unknown() -> str:
    """The default action for an unknown figure: it fails on CI, where nobody reads warnings."""
    on_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return "fail" if on_ci else "warn"


def checked(unknown: str) -> str:
    """Return the text if it is one of `UNKNOWN`.

    Raises
    ------
    NbprofError
        It is not.
    """
    if unknown not in UNKNOWN:
        raise NbprofError(
            f"what is unknown may {', '.join(UNKNOWN[:-1])} or {UNKNOWN[-1]}, not {unknown!r}"
        )
    return unknown


class Pending(Protocol):
    """An expectation that the plugin verifies."""

    outcomes: list[Outcome]

    @property
    def location(self) -> str:
        """The file and line that created it."""

    @property
    def verified(self) -> bool:
        """True once its checks were made."""

    def verify(self) -> object:
        """Make the checks."""

    def abandon(self) -> None:
        """Forget the checks."""


@dataclass
class Policy:
    """Defaults of expectations.

    Attributes
    ----------
    unknown : str
        One of `UNKNOWN`.
    update : str
        `new` writes baselines, `add` adds the step times of a run to them; '' compares.
    root : Path, optional
        The folder that paths of baselines are relative to; by default the working directory.
    pending : list of Pending, optional
        Expectations that the plugin verifies; None if each is verified by its creator.
    written : set of Path
        Baselines that were written.
    """

    unknown: str = field(default_factory=default_unknown)
    update: str = ""
    root: Path | None = None
    pending: list[Pending] | None = None
    written: set[Path] = field(default_factory=set)


_policies: list[Policy] = []


def current() -> Policy:
    """The current policy."""
    return _policies[-1] if _policies else Policy()


def push(policy: Policy) -> None:
    """Make a policy the current one until `drop`."""
    _policies.append(policy)


def drop(policy: Policy) -> None:
    """Restore the previous policy."""
    if policy in _policies:
        _policies.remove(policy)
