"""Notes on how a profile was read."""

from __future__ import annotations

from nbprof.schema.columns import Col, text

SCHEMA: dict[str, list[Col]] = {
    "receipt.notes": [
        text(
            "key",
            "Key",
            "The kind of note, such as lost_packets; it stays the same when the wording changes.",
            "code",
        ),
        text("level", "Level", "warning if figures are less reliable, else info."),
        text("text", "Note", "What was read, skipped or looks wrong."),
    ]
}
