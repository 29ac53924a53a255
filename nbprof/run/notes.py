"""Notes for the receipt that follow from a run as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from nbprof.core.receipt import Note, info, warning
from nbprof.display.wording import plural


def crowded_steps(crowded: str) -> Note:
    """Steps with several times the batches of the others."""
    return info("crowded_steps", f"Averages exclude {crowded}.")


def given_peaks(peaks: Mapping[str, float]) -> Note:
    """Peaks of the devices that the user gave."""
    values = ", ".join(f"{name} {value:.4g}" for name, value in peaks.items())
    text = f"Device peaks given by the user, in operations and bytes per second: {values}."
    return info("given_peaks", text)


def compiled_programs(count: int) -> Note:
    """Programs of XLA in the files."""
    programs = plural(count, "compiled XLA program is", "compiled XLA programs are")
    text = f"{programs} in the profile: framework op names and buffer assignments come from there."
    return info("compiled_programs", text)


def other_snapshots(count: int) -> Note:
    """Several snapshots of the allocator in one run."""
    return info(
        "other_snapshots",
        f"{count} snapshots were found; the one with the longest history is shown.",
    )


def overlapping_host_ops(overlapping: int, host_ops: int) -> Note:
    """Ops that are not nested; a warning if they are more than one in a hundred."""
    text = (
        f"{overlapping:,} of {host_ops:,} host ops partly overlap another op on their thread: that"
        " time is attributed to the later one."
    )
    if overlapping > host_ops // 100:
        return warning("overlapping_host_ops", text)
    return info("overlapping_host_ops", text)


def steps_not_shown(count: int) -> Note:
    """Steps that the recording cut off, or whose framework was not recorded."""
    them = "it" if count == 1 else "them"
    text = (
        f"Not shown: {plural(count, 'marked step')} at the start or end of the recording, as no"
        f" compute was recorded in {them}."
    )
    return info("steps_not_shown", text)


def equal_host_names(count: int) -> Note:
    """Files that are shown under their names because they name the same host."""
    remedy = "If these are separate recordings, open them separately."
    if count == 1:
        text = "1 file has the same host name as another file and is shown under its file name."
    else:
        text = (
            f"{count:,} files have the same host names as other files and are shown under their"
            " file names."
        )
    return warning("equal_host_names", f"{text} {remedy}")
