"""Recognition of files by their first bytes; names only matter if these are ambiguous."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from nbprof.core import sqlite
from nbprof.core.files import SourceFile
from nbprof.core.packed import PACKINGS, unpack
from nbprof.formats import register
from nbprof.formats.format import Head, Kind, is_text

HEAD = 1 << 16
"""Bytes of a file that are examined. A torch trace of a large job may list its process groups
before its events, hence this many.
"""

REPORT_MARK = b'<meta name="generator" content="nbprof '
"""Part of the head of every report that `Profile.save` writes."""

_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"NVR\0", "a report of Nsight Compute", "nbprof does not read it."),
    (b"\x28\xb5\x2f\xfd", "a file compressed with zstd", "Unpack it first: unzstd FILE."),
    (b"\x04\x22\x4d\x18", "a file compressed with LZ4", "Unpack it first: lz4 -d FILE."),
    (
        b"7z\xbc\xaf\x27\x1c",
        "a 7-Zip archive",
        "Unpack it first; zip and tar can be read directly.",
    ),
    (b"Rar!", "a RAR archive", "Unpack it first; zip and tar can be read directly."),
    (b"\x89HDF\r\n", "an HDF5 file, as Keras saves weights in", ""),
    (b"\x93NUMPY", "a NumPy array", ""),
    (b"PAR1", "a Parquet file", ""),
    (b"\x7fELF", "a program", ""),
    (b"%PDF", "a PDF document", ""),
    (b"\x89PNG", "a picture", ""),
    (
        b"version https://git-lfs",
        "a Git LFS pointer, not the file itself",
        "Fetch the file: git lfs pull.",
    ),
)
_BY_NAME: tuple[tuple[str, str, str], ...] = (
    (".ncu-rep", "a report of Nsight Compute", "nbprof does not read it."),
    (".onnx", "an ONNX model", ""),
    (".prof", "a pprof or cProfile file, not a trace", "nbprof does not read it."),
)


def head_of(file: SourceFile) -> bytes:
    """The first `HEAD` bytes of a file; for a database, also the pages that declare its tables.

    Raises
    ------
    ReadError
    """
    data = file.head(HEAD)
    if data.startswith(sqlite.MAGIC) and len(data) == HEAD:
        with file.open() as opened:
            data += sqlite.schema(opened)
    return data


def recognise(data: bytes, name: str = "", *, complete: bool = False, named: bool = False) -> Kind:
    """The kind of a file, by its first bytes.

    Parameters
    ----------
    data : bytes
        The first `HEAD` bytes, or all of a shorter file.
    name : str
        Base name, which decides if the bytes are ambiguous.
    complete : bool
        True if `data` is the whole file.
    named : bool
        True if the file is part of a run that is read: then its name decides more.
    """
    if not data:
        return Kind(
            "", "empty", "The profiler was stopped before it wrote anything, or is still writing."
        )
    for magic, packing in PACKINGS:
        if data.startswith(magic):
            return _compressed(data, name, packing)
    if data[:4] in (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"):
        return _zip(data, name)
    if is_tar(data):
        return Kind("archive", "a tar archive")
    head = Head(data, name, complete, named)
    # Formats of whole folders first: some of their files can be profiles of another format, too.
    formats = sorted(register.FORMATS, key=lambda form: form.recordings is None)
    kinds = []
    for form in formats:
        kind = form.sniff(head)
        if kind:
            kinds.append(kind)
    for kind in sorted(kinds, key=lambda kind: not kind.sure):
        if kind.format:
            return kind
    return _by_magic(data) or next(iter(kinds), None) or _by_name(data, name)


def is_report(path: Path) -> bool:
    """True for a page that nbprof wrote: a report, or the page of a site of reports."""
    try:
        with path.open("rb") as file:
            return REPORT_MARK in file.read(4096)
    except OSError:
        return False


def _by_magic(head: bytes) -> Kind | None:
    """The kind of a file that is not a profile, by characteristic first bytes."""
    for magic, kind, remedy in _MAGIC:
        if head.startswith(magic):
            return Kind("", kind, remedy)
    if b"brain.Event:" in head[:64]:
        return Kind(
            "",
            "a TensorBoard event file (scalars and graphs), which contains no profile",
            "Name the logdir: the profile is in plugins/profile/<run> below it.",
        )
    if REPORT_MARK in head[:4096]:
        return Kind(
            "",
            "a report that nbprof saved, which holds what its tabs show and not the recording",
            "Open it in a browser; for anything else, name the recording that it was made of.",
        )
    start = head[:512].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return Kind(
            "",
            "an HTML page",
            "The server may have answered with its login page: check the address in a browser.",
        )
    if start.startswith(b"<"):
        return Kind("", "an XML document")
    return None


def is_tar(head: bytes) -> bool:
    """True for a tar archive, by its magic or, for the oldest kind, the checksum of its header."""
    if len(head) < 512 or not head[0]:
        return False
    if head[257:262] == b"ustar":
        return True
    try:
        checksum = int(head[148:156].strip(b" \0") or b"x", 8)
    except ValueError:
        return False
    return checksum == sum(head[:148]) + 8 * 32 + sum(head[156:512])


def _compressed(head: bytes, name: str, packing: str) -> Kind:
    inner = unpack(head, packing, HEAD)
    if not inner:
        return Kind(
            "",
            f"a {packing} file that is damaged or truncated at its very start",
            "Copy or record it again.",
        )
    bare = re.sub(r"\.(gz|bz2|xz)$", "", name, flags=re.IGNORECASE)
    kind = recognise(inner, bare)
    if kind.packed or kind.what.startswith("a zip"):
        return Kind("", f"{kind.what} compressed again with {packing}", "Unpack it once.")
    if not kind.format:
        return Kind("", f"{kind.what} packed with {packing}", kind.remedy, kind.source)
    return replace(kind, packed=packing)


def _zip(head: bytes, name: str) -> Kind:
    if (
        b"data.pkl" in head[:256]
        or b"archive/version" in head[:512]
        or name.endswith((".pt", ".pth"))
    ):
        return Kind("", "a model or tensor saved by torch.save", "")
    if name.endswith((".keras", ".npz", ".docx", ".xlsx", ".whl", ".jar")):
        return Kind("", f"a {name.rpartition('.')[2]} file", "")
    return Kind("archive", "a zip archive")


def _by_name(head: bytes, name: str) -> Kind:
    if head.startswith(sqlite.MAGIC):
        return Kind("", "an SQLite database that is not a profile", "")
    lower = name.lower()
    for suffix, kind, remedy in _BY_NAME:
        if lower.endswith(suffix):
            return Kind("", kind, remedy)
    if is_text(head[:4096]):
        return Kind("", "a text file")
    return Kind("", "not a profile format that nbprof knows")
