"""Notes for the receipt on the files of a place, before they are read."""

from __future__ import annotations

from collections.abc import Sequence

from nbprof.core.files import printable
from nbprof.core.receipt import Level, Note, info, warning
from nbprof.core.units import join_some


def could_not_examine(path: str, reason: str | None) -> Note:
    """A file or folder that the system, or its content, does not let read."""
    return info("unexamined_files", f"{printable(path)} could not be examined: {reason}")


def unknown_names(count: int) -> Note:
    """Files with names of no format, beyond those that are examined."""
    return info("unexamined_files", f"{count:,} more files with unknown names were not examined.")


def more_not_read(count: int) -> Note:
    """The rest of a long list of files that were not read."""
    text = f"{count:,} more files here could not be read, or are not profiles."
    return info("unexamined_files", text)


def not_examined(reason: str) -> Note:
    """A search that ended early."""
    text = f"{reason[:1].upper()}{reason[1:]}; the rest was not examined. Name the folder of a run."
    return warning("incomplete_search", text)


def newest_traces(count: int, limit: int) -> Note:
    """More traces than a search examines."""
    text = f"Of {count:,} traces here the newest {limit:,} were examined. Name the folder of a run."
    return warning("incomplete_search", text)


def many_subfolders(limit: int) -> Note:
    """More folders of a web server than a search lists."""
    text = f"There are more than {limit:,} subfolders; the rest were not examined."
    return warning("incomplete_search", text)


def broken_link(path: str) -> Note:
    """A link to a file that does not exist."""
    return info("broken_link", f"{printable(path)} is a broken link.")


def link_in_archive(path: str) -> Note:
    """A link in a tar archive."""
    return info(
        "link_in_archive", f"{printable(path)} in the archive is a link, and was not followed."
    )


def no_end_marker() -> Note:
    """A tar archive that may be truncated."""
    return warning(
        "truncated_archive",
        "The archive has no end marker: it may be truncated, and files may be missing.",
    )


def no_profile(path: str, kind: str) -> Note:
    """A file that is something else."""
    return info("not_a_profile", f"{printable(path)} is {kind}, not a profile.")


def other_kind(label: str, kind: str) -> Note:
    """A file of a run that has another format than the others."""
    text = f"{label} is {kind} among files of another kind; it was not read."
    return warning("not_a_profile", text)


def copied(original: str, copies: Sequence[str]) -> Note:
    """Files with the content of another one."""
    if len(copies) == 1:
        text = (
            f"{copies[0]} is a copy of {original}, byte for byte; it was read once. Was one host's"
            " file copied over another's?"
        )
    else:
        text = (
            f"{len(copies):,} files are copies of {original}, byte for byte:"
            f" {join_some(copies, 3)}; it was read once. Was one host's file copied over the"
            " others'?"
        )
    return warning("copied_file", text)


def newest_run(name: str, count: int, *, dated: bool) -> Note:
    """The choice of a run among several."""
    by = "when they were recorded"
    if not dated:
        by = "when their files were last changed, because not all have a recording time"
    text = (
        f"{name} is the newest of {count:,} runs here, by {by}. nbprof.runs lists them, and run="
        " opens another."
    )
    return info("newest_run", text)


def unfinished(level: Level, sentence: str) -> Note:
    """A recording that did not end; a warning for the run itself."""
    return Note(level, sentence, "unfinished_recording")
