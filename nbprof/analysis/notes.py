"""The notes of the receipt that come from analyses."""

from __future__ import annotations

from collections.abc import Sequence

from nbprof.core.receipt import Note, info, warning
from nbprof.display import wording

_MOST_RANKS = 8
_MOST_REPEATED = 4


def uncompared_hosts(hosts: Sequence[str]) -> Note:
    """Hosts without device activity where others have it."""
    subject = "They only coordinate, or their recordings are incomplete; they are"
    if len(hosts) == 1:
        subject = "It only coordinates, or its recording is incomplete; it is"
    return info(
        "uncompared_hosts",
        f"{', '.join(hosts)}: no device activity, unlike the other hosts. {subject} not compared.",
    )


def steps_do_not_match(host: str, chief: str) -> Note:
    """A host that has neither times nor step numbers in common with the chief."""
    return warning(
        "steps_do_not_match",
        f"The steps of {host} and {chief} do not overlap in time and have no step numbers in"
        f" common, so {host} is not compared.",
    )


def steps_matched_by_number(host: str, chief: str) -> Note:
    """A host whose steps do not overlap in time with those of the chief."""
    return warning(
        "steps_matched_by_number",
        f"The steps of {host} and {chief} do not overlap in time: they are compared by step"
        " number.",
    )


def steps_matched_by_time(step: str, chief_step: str, has_offsets: bool) -> Note:
    """Two hosts that count the same steps by different numbers."""
    text = f"Steps are matched by time: {step} is {chief_step}"
    condition = "" if has_offsets else ", if their clocks agree"
    return info("steps_matched_by_time", f"{text}{condition}.")


def no_common_step() -> Note:
    """Hosts that have no step in common."""
    return warning(
        "no_common_step", "No step was recorded by all hosts, so the hosts cannot be compared."
    )


def steps_not_compared(count: int) -> Note:
    """Steps that only some hosts recorded."""
    verb, them = ("step is", "it") if count == 1 else ("steps are", "them")
    return info(
        "steps_not_compared",
        f"{count:,} {verb} excluded from the comparison of hosts: not all of them recorded {them}.",
    )


def different_step_counts(fewest: str, most: str) -> Note:
    """Ranks that recorded different numbers of steps: each a number and its host."""
    return warning(
        "different_step_counts",
        f"The hosts recorded different numbers of steps, from {fewest} to {most}: only steps that"
        " several hosts recorded are compared.",
    )


def missing_ranks(processes: object, ranks: Sequence[int]) -> Note:
    """A job of which only some ranks are in the profile."""
    listed = _first(list(map(str, ranks)), _MOST_RANKS)
    here = f"rank {listed} is" if len(ranks) == 1 else f"ranks {listed} are"
    return warning(
        "missing_ranks",
        f"The job had {processes} ranks; only {here} here. What the others waited for is unknown.",
    )


def repeated_ranks(hosts: Sequence[str]) -> Note:
    """Files with the rank of an earlier one."""
    return warning(
        "repeated_ranks",
        "Several files have the same rank: only the first of each is compared, not"
        f" {_first(hosts, _MOST_REPEATED)}.",
    )


def unmatched_collectives(calls: int, ranks: int) -> Note:
    """Collectives of which the ranks recorded different numbers."""
    return warning(
        "unmatched_collectives",
        f"{calls:,} collective calls on {ranks} ranks could not be matched: the ranks have"
        " different numbers of them in the same step, as in recordings of different length. Their"
        " waiting time is unknown.",
    )


def launched_before_recording(events: int, of_hosts: str, busy: str, *, in_steps: bool) -> Note:
    """Device work that was launched before the recording began."""
    verb, they_have = ("was", "it has") if events == 1 else ("were", "they have")
    text = (
        f"{wording.plural(events, 'device event')}{of_hosts} ({busy}) {verb} launched before the"
        " recording began"
    )
    if in_steps:
        text += (
            f": not counted in any step; the first step begins when {they_have} ended"
            " (p.steps.backlog)"
        )
    return info("launched_before_recording", f"{text}.")


def empty_memory_columns(allocators: Sequence[str], columns: Sequence[str]) -> Note:
    """Figures that the profiler does not record for some allocators."""
    names = allocators[0]
    if len(allocators) > 1:
        names += f" and {len(allocators) - 1} more"
    return info(
        "empty_memory_columns",
        f"Allocator events of {names} do not include {wording.listed(columns)}: these columns are"
        " empty.",
    )


def no_allocation_history(module: str) -> Note:
    """A snapshot of PyTorch's allocator without history."""
    return info(
        "no_allocation_history",
        f"The snapshot has no history: {module}.memory._record_memory_history() was not called"
        " before it was taken, so only the moment of the snapshot is known, not the peak.",
    )


def allocation_history_starts_late(device: str, reserved_bytes: int) -> Note:
    """A history that begins with memory in use."""
    return info(
        "allocation_history_starts_late",
        f"The history of {device} starts with {wording.size(reserved_bytes)} already reserved;"
        " earlier allocations are unknown. Recording was started late, or max_entries was exceeded"
        " and the oldest entries were dropped.",
    )


def _first(names: Sequence[str], limit: int) -> str:
    listed = ", ".join(names[:limit])
    return f"{listed} …" if len(names) > limit else listed
