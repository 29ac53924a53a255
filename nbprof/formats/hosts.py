"""Hosts that are missing, judging by the names of the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from nbprof.core.files import SourceFile, printable
from nbprof.core.receipt import Note, warning
from nbprof.core.units import join_some


def with_folders(names: Sequence[str], files: Sequence[SourceFile]) -> list[str]:
    """The names of hosts by their files, with the folder of the file where several have one name:
    `rank0/trace`, `rank1/trace`.
    """
    count = Counter(names)
    result = []
    for name, file in zip(names, files, strict=True):
        folders = re.split(r"[/\\]", file.label)[:-1]
        if count[name] > 1 and folders and folders[-1]:
            name = f"{printable(folders[-1])}/{name}"
        result.append(name)
    return result


def hosts_missing(names: Iterable[str]) -> list[str]:
    """Names that are missing in a series of names that differ by one number: 0, 1, 3 lacks 2."""
    split = [re.split(r"(\d+)", name) for name in names]
    if len(split) < 2 or len(set(map(len, split))) != 1:
        return []
    columns = list(zip(*split, strict=True))
    differ = [i for i, texts in enumerate(columns) if len(set(texts)) > 1]
    # The odd parts are the numbers.
    if len(differ) != 1 or differ[0] % 2 == 0:
        return []
    position = differ[0]
    texts = columns[position]
    numbers = set(map(int, texts))
    # A series from 0 or 1 is a count of hosts; process ids and ports are not.
    if (
        min(numbers) > 1
        or len(numbers) < len(split)
        or max(numbers) - min(numbers) + 1 > 2 * len(numbers)
    ):
        return []
    lacking = sorted(set(range(min(numbers), max(numbers))) - numbers)
    # Numbers of one length are filled up with zeros.
    same_length = len(set(map(len, texts))) == 1
    width = same_length * len(texts[0])
    before, after = "".join(split[0][:position]), "".join(split[0][position + 1 :])
    return [f"{before}{str(number).zfill(width)}{after}" for number in lacking]


def about_missing(names: Iterable[str]) -> tuple[Note, ...]:
    """The line for the receipt of a run whose hosts have these names; none where none is
    missing.
    """
    gaps = hosts_missing(names)
    if not gaps:
        return ()
    text = f"Host names suggest that {join_some(gaps, 4)} is missing; its data is not included."
    return (warning("missing_hosts", text),)
