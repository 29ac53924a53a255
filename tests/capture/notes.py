"""The notes of a recording by their keys."""

from __future__ import annotations

from collections.abc import Sequence

from nbprof.core.receipt import Note


def keys(notes: Sequence[Note]) -> list[str]:
    return [note.key for note in notes]


def text_of(notes: Sequence[Note], key: str) -> str:
    """The text of the only note with a key."""
    texts = [note.text for note in notes if note.key == key]
    assert len(texts) == 1, notes
    return texts[0]
