"""Notes for the receipt on snapshots of PyTorch's allocator."""

from __future__ import annotations

from nbprof.core.receipt import Note, info, warning


def truncated(offset: int, missing: str) -> Note:
    return warning(
        "file_read_in_part",
        f"The file is truncated at byte {offset:,}: the program was killed while writing, or the"
        f" copy is incomplete. What comes before was read; {missing} are missing.",
    )


def invalid_numbers(count: int) -> Note:
    return warning(
        "invalid_numbers",
        f"{count:,} values of the snapshot should be numbers but are not, or are too large:"
        " treated as unknown.",
    )


def clipped_stacks(count: int, limit: int) -> Note:
    return info(
        "clipped_stacks",
        f"{count:,} stacks are deeper than {limit} frames; only their innermost frames were kept.",
    )


def impossible_segments(count: int) -> Note:
    return warning(
        "impossible_segments",
        f"{count:,} segments have an impossible size or address and were left out.",
    )


def unread_snapshot(file: str, reason: str) -> Note:
    return info("unread_snapshot", f"{file} next to the trace could not be read: {reason}")


def blocks_outside_segments(count: int) -> Note:
    return warning(
        "blocks_outside_segments", f"Blocks outside their segment were left out: {count:,}."
    )
