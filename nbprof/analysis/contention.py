"""Contention for cores with other processes, reported before any advice, for none of it would
help.
"""

from __future__ import annotations

from collections.abc import Mapping

from nbprof.activity.unit import MARKED, Unit

OTHERS = 0.2
"""Fraction of the cores kept busy by other processes from which on it is reported."""
WAITED_PERCENT = 10.0
"""Percent of the runnable time of threads in which they had no core."""
FULL = 0.9
"""Fraction of the cores that are busy if none is free."""


def sentence(measured: Mapping[str, float], least: float = OTHERS, unit: Unit = MARKED) -> str:
    """A sentence on the cores that other processes took while the profile was recorded; '' if they
    took few, or if it is unknown.

    Parameters
    ----------
    measured : mapping
        The result of `nbprof.capture.contention.Contention.measured`.
    least : float
        The fraction of the cores from which on they are not few.
    unit : Unit
        The unit of the times.
    """
    cores, own_cores, other_cores = (
        measured.get(key, 0.0) for key in ("cores", "own_cores", "other_cores")
    )
    waited = measured.get("waited_percent")
    if not cores or other_cores < least * cores:
        return ""
    used = f"{100 * other_cores:.0f}% of the core"
    if cores > 1:
        used = f"{other_cores:.1f} of the {cores:.0f} cores"
    text = f"Other processes used {used} while this was recorded"
    if waited is None:
        if own_cores + other_cores < FULL * cores:
            return ""
        timed = unit.the if unit.is_recording else unit.plural
        return f"{text}, and this one {own_cores:.1f}; {timed} may be faster on an idle machine."
    if waited < WAITED_PERCENT:
        return ""
    faster = "a shorter recording" if unit.is_recording else f"faster {unit.plural}"
    return (
        f"{text}, and this process waited for a free core {waited:.0f}% of its runnable time;"
        f" expect {faster} on an idle machine."
    )


def full(measured: Mapping[str, float]) -> bool:
    """True if this process and its children alone kept the cores busy, so that no core was left for
    one more.
    """
    cores = measured.get("cores", 0.0)
    return cores > 0 and measured.get("own_cores", 0.0) >= FULL * cores
