"""Preparation of the run to read: every file is examined, copies and other files are left out."""

from __future__ import annotations

import contextlib
import difflib
from dataclasses import replace
from typing import Any, NamedTuple

from nbprof.core.errors import RawError, ReadError
from nbprof.core.files import (
    LIMIT_BYTES,
    LocalFile,
    Missing,
    RunFiles,
    SourceFile,
    copies_of,
    printable,
)
from nbprof.core.packed import Unpacked
from nbprof.core.receipt import Note
from nbprof.core.sqlite import stated_bytes
from nbprof.core.units import join_some
from nbprof.formats import register
from nbprof.formats.format import Format, Kind
from nbprof.sources import notes
from nbprof.sources.sniff import HEAD, head_of, recognise


def choose(runs: list[RunFiles], run: str | int, label: str) -> RunFiles:
    """The run with a name, with a unique beginning of it, or at an index.

    Raises
    ------
    ReadError
        There is none, or several match; the message lists what there is.
    """
    names = [each.name for each in runs]
    if isinstance(run, int) and not isinstance(run, bool):
        if -len(runs) <= run < len(runs):
            return runs[run]
        raise ReadError(
            f"there is no run {run}: {_count(len(runs))} here, 0 the newest and -1 the oldest.",
            path=label,
        )
    text = str(run)
    if text in names:
        return runs[names.index(text)]
    begin = [candidate for candidate in runs if text and candidate.name.startswith(text)]
    if len(begin) == 1:
        return begin[0]
    if begin:
        matches = join_some([match.name for match in begin])
        raise ReadError(
            f"{len(begin)} runs begin with {text!r}: {matches}. Give more of the name.", path=label
        )
    near = difflib.get_close_matches(text, names, 1, 0.8)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ReadError(f"no run is called {text!r}; there are {join_some(names)}.{hint}", path=label)


def _count(number: int) -> str:
    return "one run is" if number == 1 else f"{number:,} runs are"


def resolve(run: RunFiles, limit: int = LIMIT_BYTES) -> RunFiles:
    """A run with the files that can be read.

    Raises
    ------
    ReadError
        None of the files is a profile; the message says what the first one is.
    """
    archives = {id(file.archive): file.archive for file in run.files if hasattr(file, "archive")}
    if register.by_name(run.format).recordings is not None:
        # Files of several kinds, which their reader examines.
        for archive in archives.values():
            archive.prepare(
                [file for file in run.files if getattr(file, "archive", None) is archive]
            )
        return replace(run, limit_bytes=limit)
    try:
        return _resolve(run, limit, list(archives.values()))
    finally:
        for archive in archives.values():
            archive.close()


def _resolve(run: RunFiles, limit: int, archives: list[Any]) -> RunFiles:
    kinds: list[tuple[SourceFile, Kind]] = []
    odd: list[Note] = []
    failed: list[tuple[SourceFile, ReadError]] = []
    for file in run.files:
        try:
            kinds.append((file, kind_of(file)))
        except ReadError as error:
            failed.append((file, error))
    if not kinds:
        raise failed[0][1]
    formats = [kind.format for _, kind in kinds]
    form = max(register.FORMATS, key=lambda form: formats.count(form.name))
    packing: dict[int, str] = {}
    fits: list[SourceFile] = []
    for file, kind in kinds:
        if kind.format == form.name:
            fits.append(file)
            packing[id(file)] = kind.packed
        else:
            odd.append(notes.other_kind(file.label, kind.what))
    originals, copies, twice = _once(fits)
    for archive in archives:
        archive.prepare([file for file in originals if getattr(file, "archive", None) is archive])
    files: list[SourceFile] = []
    for file in originals:
        packed = packing[id(file)]
        if packed and packed not in form.unpacks:
            file = Unpacked(file, packed, limit)
        files.append(file)
    return replace(
        run,
        files=tuple(files),
        format=form.name,
        notes=(*run.notes, *odd, *copies),
        limit_bytes=limit,
        copies=(*run.copies, *twice),
        unread=(*run.unread, *(Missing(file.name, error.reason) for file, error in failed)),
    )


def kind_of(file: SourceFile, head: bytes | None = None) -> Kind:
    """The kind of a file; pass its head if it is known already.

    Raises
    ------
    ReadError
        It is not a profile; the message says what it is.
    """
    head = head_of(file) if head is None else head
    kind = recognise(head, file.name, complete=len(head) < HEAD, named=True)
    if kind.format and kind.format != "archive":
        return kind
    if kind.what == "empty":
        form = register.telling(file.name) or Format
        raise ReadError(f"{form.empty}{_instead_of_empty(file)}", path=file.label)
    if kind.format == "archive":
        raise ReadError(
            f"this is {kind.what} inside a run. Load it on its own to see what is inside.",
            path=file.label,
        )
    if file.size is not None and file.size < (size := stated_bytes(head)):
        # The missing part may be what identifies it.
        raise ReadError(
            f"this SQLite database is truncated: {file.size:,} of its {size:,} bytes are present."
            " Copy or export it again.",
            path=file.label,
        )
    text = f"this is {kind.what}. {kind.remedy or _source(file, kind.source) or _readable()}"
    if kind.tool and isinstance(file, LocalFile):
        raise RawError(
            text, path=file.label, recorder=kind.what, recordings=[str(file.path)], tool=kind.tool
        )
    raise ReadError(text, path=file.label)


def _source(file: SourceFile, suffix: str) -> str:
    """Advice on the file that a file was created from; empty if unknown."""
    if not suffix:
        return ""
    names = _siblings(file, suffix)
    if not names:
        return f"Give the path of the *{suffix} that it was created from."
    if len(names) == 1:
        return f"Give the path of {names[0]} next to it."
    return f"Give the path of a *{suffix} next to it: {join_some(names)}."


def _instead_of_empty(file: SourceFile) -> str:
    """Advice on an empty XSpace: a profile that is too large for it is in parts next to it, or
    missing.
    """
    if ".xplane.pb" not in file.name.lower():
        return ""
    for name in _siblings(file, ".xplane.riegeli"):
        if register.stem(name) == register.stem(file.name):
            return f" Load {name} next to it."
    return " In the latter case, record fewer steps."


def _siblings(file: SourceFile, suffix: str) -> list[str]:
    """Names with a suffix in the folder of a local file."""
    if not isinstance(file, LocalFile):
        return []
    with contextlib.suppress(OSError):
        names = [path.name for path in file.path.parent.iterdir()]
        return sorted(printable(name) for name in names if name.lower().endswith(suffix))
    return []


def _readable() -> str:
    *labels, last = [form.label for form in register.FORMATS]
    return f"nbprof reads {', '.join(labels)}, and {last}."


class _Once(NamedTuple):
    """Files without copies of others, a note on each file that has copies, and the copies."""

    originals: list[SourceFile]
    notes: list[Note]
    copies: list[Missing]


def _once(files: list[SourceFile]) -> _Once:
    copies = copies_of(files, HEAD)
    by_original: dict[str, list[str]] = {}
    originals: list[SourceFile] = []
    missing: list[Missing] = []
    for file in files:
        original = copies.get(id(file))
        if original is None:
            originals.append(file)
        else:
            by_original.setdefault(original.label, []).append(file.label)
            missing.append(Missing(file.name, f"It is a copy of {original.name}, byte for byte."))
    about_copies = [notes.copied(original, labels) for original, labels in by_original.items()]
    return _Once(originals, about_copies, missing)
