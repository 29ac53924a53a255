"""The run that is going to be read: every file of it looked into, what is no profile left out, and copies read once."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import replace
from typing import Any

from nbprof.core.errors import ReadError
from nbprof.core.files import LIMIT_BYTES, Piece, RunFiles, join_some
from nbprof.core.packed import Unpacked
from nbprof.formats import register
from nbprof.formats.format import Kind
from nbprof.sources.sniff import HEAD, recognise


def choose(found: list[RunFiles], run: str | int, label: str) -> RunFiles:
    """The run of that name, of that beginning, or of that number.

    Raises
    ------
    ReadError
        There is none, or several begin so; says which there are.
    """
    names = [one.name for one in found]
    if isinstance(run, int) and not isinstance(run, bool):
        if -len(found) <= run < len(found):
            return found[run]
        raise ReadError(f"there is no run {run}: {_count(len(found))} here, 0 the newest and -1 the oldest.", path=label)
    text = str(run)
    if text in names:
        return found[names.index(text)]
    begin = [one for one in found if one.name.startswith(text)] if text else []
    if len(begin) == 1:
        return begin[0]
    if begin:
        raise ReadError(
            f"{len(begin)} runs begin with {text!r}: {join_some([one.name for one in begin])}. Say more of the name.", path=label
        )
    near = difflib.get_close_matches(text, names, 1, 0.8)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ReadError(f"no run is called {text!r}; there are {join_some(names)}.{hint}", path=label)


def _count(number: int) -> str:
    return "one run is" if number == 1 else f"{number:,} runs are"


def settled(run: RunFiles, limit: int = LIMIT_BYTES) -> RunFiles:
    """A run with the files that can be read.

    Raises
    ------
    ReadError
        None of the files is a profile; says what it is.
    """
    archives = {id(piece.archive): piece.archive for piece in run.files if hasattr(piece, "archive")}
    if register.by_name(run.format).recordings is not None:
        # Files of several kinds; their reader looks into each.
        for archive in archives.values():
            archive.prepare([piece for piece in run.files if getattr(piece, "archive", None) is archive])
        return replace(run, limit_bytes=limit)
    try:
        return _settled(run, limit, list(archives.values()))
    finally:
        for archive in archives.values():
            archive.close()


def _settled(run: RunFiles, limit: int, archives: list[Any]) -> RunFiles:
    kinds: list[tuple[Piece, Kind]] = []
    warnings = list(run.warnings)
    failed: list[ReadError] = []
    for piece in run.files:
        try:
            kinds.append((piece, kind_of(piece)))
        except ReadError as error:
            failed.append(error)
    if not kinds:
        raise failed[0]
    formats = [kind.format for _, kind in kinds]
    form = max(register.FORMATS, key=lambda form: formats.count(form.name))
    fits = [(piece, kind) for piece, kind in kinds if kind.format == form.name]
    warnings += [f"A file was left out, and its host is not in the numbers: {error}" for error in failed]
    warnings += [
        f"{piece.label} is {kind.what} among files of another kind; it was not read." for piece, kind in kinds if kind.format != form.name
    ]
    kept, copies = _once([piece for piece, _ in fits])
    packing = {id(piece): kind.packed for piece, kind in fits}
    for archive in archives:
        archive.prepare([piece for piece in kept if getattr(piece, "archive", None) is archive])
    files = tuple(
        Unpacked(piece, packing[id(piece)], limit) if packing[id(piece)] and packing[id(piece)] not in form.unpacks else piece
        for piece in kept
    )
    return replace(run, files=files, format=form.name, warnings=tuple(warnings + copies), limit_bytes=limit)


def kind_of(piece: Piece, head: bytes | None = None) -> Kind:
    """What a file is, whose head may be known already.

    Raises
    ------
    ReadError
        It is no profile; says what it is.
    """
    head = piece.head(HEAD) if head is None else head
    kind = recognise(head, piece.name, whole=len(head) < HEAD, named=True)
    if kind.format and kind.format != "archive":
        return kind
    if kind.what == "empty":
        raise ReadError("the file is empty: the profiler was stopped before it wrote anything.", path=piece.label)
    if kind.format == "archive":
        raise ReadError(f"this is {kind.what} inside a run. Name it alone to load what is inside.", path=piece.label)
    raise ReadError(f"this is {kind.what}. {kind.remedy or _readable()}", path=piece.label)


def _readable() -> str:
    *others, last = [form.label for form in register.FORMATS]
    return f"nbprof reads {', '.join(others)}, and {last}."


def _once(pieces: list[Piece]) -> tuple[list[Piece], list[str]]:
    """The files without those that are a copy of another, byte for byte; and a line for each that was left out."""
    by_size: dict[int, list[Piece]] = {}
    for piece in pieces:
        size = piece.size
        if size is not None and len(pieces) > 1:
            by_size.setdefault(size, []).append(piece)
    copy_of: dict[int, Piece] = {}
    for group in by_size.values():
        heads: dict[bytes, list[Piece]] = {}
        for piece in group if len(group) > 1 else []:
            heads.setdefault(piece.head(HEAD), []).append(piece)
        for alike in heads.values():
            first: dict[bytes, Piece] = {}
            for piece in alike if len(alike) > 1 else []:
                # Two hosts never write the same head, times are in it: so this second reading is rare.
                digest = hashlib.blake2b(piece.read().data).digest()
                if digest in first:
                    copy_of[id(piece)] = first[digest]
                else:
                    first[digest] = piece
    lines = [
        f"{piece.label} is a copy of {copy_of[id(piece)].label}, byte for byte; it was read once. "
        "Was one host's file copied over another's?"
        for piece in pieces
        if id(piece) in copy_of
    ]
    return [piece for piece in pieces if id(piece) not in copy_of], lines
