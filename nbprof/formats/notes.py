"""Notes for the receipt that several formats share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nbprof.core.receipt import Note, info, warning

LONG_DURATIONS = "left out: duration of more than a week (an overflow of the profiler's counter)."
FAR_EVENTS = "left out: more than a week away from the rest of the trace."


def negative_durations(count: int, planes: str = "") -> Note:
    """Events of a file, or of some of its planes: `in P, Q`."""
    if planes:
        planes = f" {planes}"
    return warning(
        "negative_durations",
        f"Events{planes} that end before they start, treated as having zero duration: {count:,}.",
    )


def native_reader_missing(files: str, times: int, reason: str) -> Note:
    return info(
        "native_reader_missing",
        f"{files} are read about {times} times more slowly than usual, because nbprof's compiled"
        f" reader is missing: {reason}. Reinstall nbprof from a wheel for this platform, or with"
        " a C compiler on the PATH.",
    )


def unrelated_clocks() -> Note:
    return warning(
        "unrelated_clocks",
        "The clocks of this run's files are more than a week apart; each file is drawn from its"
        " own start.",
    )


def labelled(label: str, notes: Iterable[Note]) -> list[Note]:
    """Notes that begin with a label, such as the name of their file or host."""
    return [replace(note, text=label + note.text) for note in notes]
