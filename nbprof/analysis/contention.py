"""Whether other processes made the steps slow that were recorded: said before any advice, for none
of it would help.
"""

from __future__ import annotations

from collections.abc import Mapping

from nbprof.activity.unit import MARKED, Unit

OTHERS = 0.2
"""Part of the cores that other processes kept busy, from which on it is said."""
WAITED_PERCENT = 10.0
"""Percent of the time in which threads were ready to run, but had no core."""
FULL = 0.9
"""Part of the cores that are busy where none is free."""


def sentence(measured: Mapping[str, float], least: float = OTHERS, unit: Unit = MARKED) -> str:
    """What other processes took while the profile was recorded; '' where they took little, or where
    it is not known.

    Parameters
    ----------
    measured : mapping
        What `nbprof.capture.contention.Contention.measured` gave.
    least : float
        The part of the cores from which on it is not little.
    unit : Unit
        What times are given per.
    """
    cores, own_cores, other_cores = (
        measured.get(key, 0.0) for key in ("cores", "own_cores", "other_cores")
    )
    waited = measured.get("waited_percent")
    if not cores or other_cores < least * cores:
        return ""
    part = (
        f"{other_cores:.1f} of the {cores:.0f} cores"
        if cores > 1
        else f"{100 * other_cores:.0f}% of the core"
    )
    timed, faster = (
        (unit.the, "a shorter recording") if unit.whole else (unit.plural, f"faster {unit.plural}")
    )
    used = f"Other processes used {part} while this was recorded"
    if waited is None:
        return (
            f"{used}, and this one {own_cores:.1f}; {timed} may be faster on an idle machine."
            if own_cores + other_cores >= FULL * cores
            else ""
        )
    if waited < WAITED_PERCENT:
        return ""
    ready = f"{waited:.0f}% of its runnable time"
    return (
        f"{used}, and this process waited for a free core {ready}; expect {faster} on an idle"
        " machine."
    )


def full(measured: Mapping[str, float]) -> bool:
    """Whether this process and its children alone kept the cores busy, so that one more would have
    had none.
    """
    cores = measured.get("cores", 0.0)
    return cores > 0 and measured.get("own_cores", 0.0) >= FULL * cores
