"""Notes for the receipt on the compiled programs of a profile."""

from __future__ import annotations

from collections.abc import Sequence

from nbprof.core.receipt import Note, info, warning
from nbprof.display.wording import plural

_MOST_NAMED = 3


def damaged_program(name: str, reason: str) -> Note:
    """A program that could not be read."""
    text = (
        f"The compiled program {name} is damaged ({reason}): its ops are shown by their HLO names."
    )
    return warning("damaged_program", text)


def more_damaged_programs(count: int) -> Note:
    """Further programs that could not be read."""
    return warning("more_damaged_programs", f"{count:,} more compiled programs are damaged.")


def equal_program_ids(names: Sequence[str]) -> Note:
    """Programs with the id of another."""
    listed = ", ".join(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        listed += " …"
    text = (
        f"Another compiled program in the file has the same id as {listed}: ops are looked up in"
        " the first one."
    )
    return warning("equal_program_ids", text)


def missing_programs(count: int) -> Note:
    """Programs that ran, but are not in the file."""
    programs = plural(count, "compiled program that ran is", "compiled programs that ran are")
    its = "its" if count == 1 else "their"
    text = f"{programs} not in the file: {its} ops are shown by HLO name, not by framework name."
    return info("missing_programs", text)
