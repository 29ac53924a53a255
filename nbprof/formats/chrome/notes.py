"""What the receipt says of a Chrome trace."""

from __future__ import annotations

from nbprof.core.receipt import Note, info, warning

NO_TIME = "left out: no time (ts)."
INVALID_TIME = "left out: time (ts) is not a number or is out of range."
LOST_TIME = "left out: at time 0 while all others are much later (the profiler lost their times)."
INVALID_DURATION = "left out: duration is not a number."
NO_PHASE = "left out: no valid phase (ph)."
NO_BEGIN = "left out: ends of slices without a begin (ph E without B)."
NO_ASYNC_BEGIN = "left out: ends of async slices without a begin (ph e without b)."


def damaged(offset: int, name: str) -> str:
    return f"left out: damaged, the first at byte {offset:,} of {name}."


def unknown_phase(letter: str) -> str:
    return f"left out: of an unknown phase (ph {letter})."


def damaged_file(label: str, text: str) -> Note:
    return warning("damaged_file", label + text)


def no_events(label: str) -> Note:
    return warning(
        "no_events",
        f"{label}The list of events is empty: the profiler recorded nothing, or was stopped"
        " immediately.",
    )


def metadata_only(label: str) -> Note:
    return warning(
        "metadata_only",
        f"{label}The file has names of processes and threads, but no events: the profiler"
        " recorded nothing, or the events are in another file.",
    )


def exporter_limit(label: str, count: int, remedy: str) -> Note:
    return warning(
        "exporter_limit",
        f"{label}The file contains exactly {count:,} events, at which XLA's exporter stops"
        f" writing: later ones are missing. {remedy}",
    )


def strange_entries(label: str, count: int) -> Note:
    return warning(
        "strange_entries",
        f"{label}Entries in the event list that are not events, left out: {count:,}.",
    )


def open_list(label: str) -> Note:
    return info(
        "open_event_list", f"{label}The event list is not closed; every event in it was read."
    )


def invalid_metadata(label: str, offset: int) -> Note:
    return warning("invalid_metadata", f"{label}The metadata at byte {offset:,} could not be read.")


def several_lists(label: str, count: int) -> Note:
    return warning("several_event_lists", f"{label}There are {count} event lists; all were read.")


def rounded_times(count: int) -> Note:
    return info("rounded_times", f"Times with digits below a picosecond, rounded: {count:,}.")


def unused_phase(events: str, letter: str, count: int) -> Note:
    return info(
        "unused_events",
        f"Not shown, because no figure uses them: {events} (ph {letter}), {count:,}.",
    )


def unused_metadata(names: dict[str, int]) -> Note:
    listed = ", ".join(f"{name} ({count:,})" for name, count in sorted(names.items())[:8])
    return info("unused_metadata", f"Metadata events that are not used: {listed}.")


def far_marks(count: int) -> Note:
    return info(
        "far_marks",
        f"Trace-wide marks far outside all slices are not drawn: {count:,}.",
    )


def no_end(count: int) -> Note:
    return warning(
        "begins_without_end",
        f"Slices without an end (ph B without E), drawn to the end of the trace: {count:,}.",
    )


def no_async_end(count: int) -> Note:
    return warning(
        "async_begins_without_end",
        f"Async slices without an end (ph b without e), drawn to the end of the trace: {count:,}.",
    )


def counter_texts(count: int) -> Note:
    return info("counter_texts", f"Counter values that are not numbers, left out: {count:,}.")


def zero_times(count: int) -> Note:
    return warning(
        "zero_times", f"Events at time 0, whose times the profiler may have lost: {count:,}."
    )


def all_times_zero() -> Note:
    return warning("zero_times", "All events have time 0: the profiler lost their times.")


def no_duration(count: int) -> Note:
    return warning(
        "events_without_duration",
        f"Complete events without a duration, taken as 0: {count:,}.",
    )
