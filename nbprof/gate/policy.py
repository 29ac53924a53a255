"""How expectations are held in this process: what *unknown* means, and whether baselines are
written. The pytest plugin says it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nbprof.core.errors import NbprofError
from nbprof.gate.outcome import Outcome

UPDATES = ("new", "add")
"""What may be done to a baseline instead of comparing with it: write it, or add the step times of a
run to it.
"""
UNKNOWN = ("fail", "warn", "skip")
"""What an unknown figure does: fail, only say so, or skip the test."""


def usual() -> str:
    """What an unknown figure does where nothing else was said: on CI, where nobody reads warnings,
    it fails.
    """
    return "fail" if os.environ.get("CI", "").lower() not in ("", "0", "false") else "warn"


def checked(unknown: str) -> str:
    """The same text, if it is one of `UNKNOWN`.

    Raises
    ------
    NbprofError
        It is none of them.
    """
    if unknown not in UNKNOWN:
        raise NbprofError(
            f"what is unknown may {', '.join(UNKNOWN[:-1])} or {UNKNOWN[-1]}, not {unknown!r}"
        )
    return unknown


class Pending(Protocol):
    """An expectation that somebody else verifies."""

    outcomes: list[Outcome]

    @property
    def where(self) -> str:
        """The file and line that made it."""

    @property
    def verified(self) -> bool:
        """Whether its checks were made."""

    def verify(self) -> object:
        """Make the checks."""

    def abandon(self) -> None:
        """Forget the checks."""


@dataclass
class Policy:
    """What holds for expectations that do not say otherwise.

    Attributes
    ----------
    unknown : str
        One of `UNKNOWN`.
    update : str
        `new` writes baselines, `add` adds the step times of a run to them; '' compares.
    root : Path, optional
        The folder that paths of baselines are relative to; the working directory when left out.
    pending : list of Pending, optional
        Expectations that somebody else verifies; None where each is verified by whoever made it.
    written : set of Path
        Baselines that were written.
    """

    unknown: str = field(default_factory=usual)
    update: str = ""
    root: Path | None = None
    pending: list[Pending] | None = None
    written: set[Path] = field(default_factory=set)


_policies: list[Policy] = []


def current() -> Policy:
    """The policy that holds."""
    return _policies[-1] if _policies else Policy()


def push(policy: Policy) -> None:
    """Let a policy hold until `drop`."""
    _policies.append(policy)


def drop(policy: Policy) -> None:
    """Let the one before hold again."""
    if policy in _policies:
        _policies.remove(policy)
