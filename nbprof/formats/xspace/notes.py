"""What the receipt says of an XSpace."""

from __future__ import annotations

from collections.abc import Sequence

from nbprof.core.receipt import Note, info, warning
from nbprof.display.wording import plural

DISTANT_TIMES = "have times more than a week from the start: damaged, left out."
_MOST_PLANES = 4


def in_planes(planes: Sequence[str]) -> str:
    """The words `in P, Q`: the first few planes."""
    text = ", ".join(planes[:_MOST_PLANES])
    if len(planes) > _MOST_PLANES:
        text += f" and {len(planes) - _MOST_PLANES:,} more"
    return f"in {text}"


def distant_times(planes: str) -> str:
    """Why events are skipped."""
    return f"{planes} {DISTANT_TIMES}"


def unnamed_events(planes: str, count: int) -> Note:
    return warning(
        "unnamed_events",
        f"{plural(count, 'event')} {planes} have no name there; they are shown by number.",
    )


def truncated(offset: int, planes: int) -> str:
    """The end of a file, and the part that is shown: so many planes, or some of the first (0)."""
    before = f"{planes:,} planes before that are complete and"
    if planes == 1:
        before = "1 plane before that is complete and"
    if not planes:
        before = "events of its first plane before that are"
    return (
        f"it ends inside the field at byte {offset:,}. The {before} shown; what comes after is"
        " missing. Copy the file again, or record again."
    )


def profiler_error(text: str) -> Note:
    return warning("profiler_error", f"The profiler reported an error: {text}")


def profiler_message(text: str) -> Note:
    return warning("profiler_message", f"The profiler reported: {text}")


def more_profiler_errors(count: int) -> Note:
    return warning("more_profiler_errors", f"The profiler reported an error: {count:,} more.")


def more_profiler_messages(count: int) -> Note:
    return warning("more_profiler_messages", f"The profiler reported: {count:,} more.")


def equal_hosts(host: str, label: str) -> Note:
    return warning(
        "equal_host_names",
        f"Two files name the same host, {host}; the second is shown as {label}. A run has one file"
        " per host: if these are separate recordings, open them separately, because their figures"
        " are mixed here.",
    )


def aggregated_events(count: int) -> Note:
    text = f"{count:,} aggregated events have a count but no start: they are"
    if count == 1:
        text = "1 aggregated event has a count but no start: it is"
    return info("aggregated_events", f"{text} on no lane; see trace.aggregated.")


def valueless_stats(count: int) -> Note:
    verb = "has" if count == 1 else "have"
    return info("valueless_stats", f"{plural(count, 'stat')} {verb} no value.")


def clock_far_ahead(host: str) -> Note:
    return warning(
        "clock_far_ahead",
        f"The clock of {host} is more than a week ahead; its times are relative to its own start.",
    )


def invalid_utf8(count: int, example: str) -> Note:
    return warning(
        "invalid_utf8",
        f"{plural(count, 'string')} with invalid UTF-8, such as {example!r}; the invalid bytes are"
        " shown as \N{REPLACEMENT CHARACTER}. The file may be damaged.",
    )
