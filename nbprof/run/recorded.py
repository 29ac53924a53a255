"""What is known of how a run was recorded changes why something is missing in it."""

from __future__ import annotations

from collections.abc import Sequence

from nbprof.core import remedies
from nbprof.sources.recording import CaptureInfo


def sentence(unrecorded: Sequence[str]) -> str:
    """What was not recorded, as sentences; "" for nothing."""
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in unrecorded)


def missing(of_files: dict[str, str], capture: CaptureInfo) -> dict[str, str]:
    """Why views are empty, where the recording tells more of it than its files."""
    found = dict(of_files)
    if "ops" in found and capture.unrecorded:
        found["ops"] = f"No op was recorded. {sentence(capture.unrecorded)}"
    if (
        "memory" in found
        and capture.options.get("memory")
        and remedies.ALL_THREADS in capture.notes
    ):
        found["memory"] = (
            "This profile has no allocator events: the ops of all threads were recorded, without"
            " allocations."
        )
    elif "memory" in found and capture.unrecorded:
        found["memory"] = (
            "This profile has no allocator events: nothing was allocated on the recorded thread."
        )
    return found
