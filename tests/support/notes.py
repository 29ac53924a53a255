"""Notes of receipts by their keys."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nbprof.core.receipt import Note, Receipt


def of_key(notes: Receipt | Iterable[Note], key: str) -> list[Note]:
    """The notes with a key."""
    lines = notes.lines if isinstance(notes, Receipt) else notes
    return [note for note in lines if note.key == key]


def numbers(notes: Receipt | Iterable[Note], key: str) -> list[int]:
    """The whole numbers in the texts of the notes with a key: what they count."""
    texts = " ".join(note.text for note in of_key(notes, key))
    return [int(digits.replace(",", "")) for digits in re.findall(r"\b\d[\d,]*\b", texts)]
