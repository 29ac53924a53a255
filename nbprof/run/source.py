"""Where does a profile come from? Its files, the reader and dialect of their format, and the facts
shown about them.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.core.confinement import Confinement
from nbprof.core.errors import ReadError
from nbprof.core.files import LIMIT_BYTES, LocalFile, RunFiles, SourceFile, join_some
from nbprof.core.packed import Unpacked
from nbprof.core.trace import Trace
from nbprof.core.units import size_text
from nbprof.formats.register import by_name
from nbprof.sources.fingerprint import fingerprint

if TYPE_CHECKING:
    from nbprof.activity.activity import Activity
    from nbprof.sources.recording import CaptureInfo

Reader = Callable[[Sequence[SourceFile], Callable[[str], None] | None], Trace]
Dialect = Callable[[Trace], "Activity"]

_MOST_HOSTS = 8
"""Hosts that the facts name."""


@dataclass
class RunSource:
    """Where a profile came from: path of the run, its name, its file or files, their size, when it
    was made, and how long reading took.

    `local` are the paths of the files, absolute, with size and time of change (ns) as they were
    read; empty where one of them is in an archive or behind a URL. `limit_bytes` is what they were
    allowed to unpack to.
    """

    path: str
    name: str
    file: str
    bytes: int | None
    created: str
    analysed_s: float | None = None
    local: tuple[tuple[Path, int, int], ...] = ()
    limit_bytes: int = LIMIT_BYTES
    confinement: Confinement | None = None
    """What its files were read in, and their content is looked at in again."""
    _key: str = field(default="", init=False, repr=False)
    _keys: threading.Lock = field(
        default_factory=threading.Lock, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, files: RunFiles, analysed_s: float) -> RunSource:
        """The source that the files of one run are."""
        first = files.files[0].name
        packed = files.files[0].packed if isinstance(files.files[0], Unpacked) else files.files[0]
        more = f" and {len(files.files) - 1} more" if len(files.files) > 1 else ""
        sizes = [f.size for f in files.files]
        return cls(
            path=str(files.folder),
            name=files.name,
            file=f"{first}{more}",
            bytes=None if None in sizes else sum(s for s in sizes if s is not None),
            created=_when(files.modified),
            analysed_s=analysed_s,
            local=local_files(files.files),
            limit_bytes=files.limit_bytes,
            confinement=getattr(packed, "confinement", None),
        )

    def content_key(self) -> str:
        """The key by which a saved output identifies the run: from the content of its files, or for
        this process only if not on disk.
        """
        with self._keys:
            if not self._key:
                same = self.local and all(_unchanged(*file) for file in self.local)
                found = (
                    fingerprint([path for path, _, _ in self.local], self.confinement)
                    if same
                    else None
                )
                self._key = found or f"0-{uuid.uuid4().hex}"
            return self._key


def local_files(pieces: Sequence[SourceFile]) -> tuple[tuple[Path, int, int], ...]:
    """Path, size and time of change (ns) of the files on this machine that the pieces are, packed
    or not; empty if one is none.
    """
    out = []
    for piece in pieces:
        file = piece.packed if isinstance(piece, Unpacked) else piece
        if not isinstance(file, LocalFile):
            return ()
        try:
            state = file.stat()
        except ReadError:
            return ()
        out.append((file.path.absolute(), state.st_size, state.st_mtime_ns))
    return tuple(out)


def _unchanged(path: Path, size: int, changed_ns: int) -> bool:
    try:
        state = path.stat()
    except OSError:
        return False
    return (state.st_size, state.st_mtime_ns) == (size, changed_ns)


def _when(seconds: float) -> str:
    """Local time in ISO form; the empty text where it is not known or no time that a file can
    have.
    """
    try:
        return datetime.fromtimestamp(seconds).isoformat(timespec="seconds") if seconds > 0 else ""
    except (OverflowError, ValueError, OSError):
        return ""


def reader(files: RunFiles) -> Reader:
    """The reader of a run's files: it returns a Trace."""
    form = by_name(files.format)
    return lambda pieces, progress: form.read(pieces, progress, files.limit_bytes)


def dialect(form: str) -> Dialect:
    """The dialect of a format: it derives an Activity from a Trace."""
    return by_name(form).interpret


def facts(
    source: RunSource,
    capture: CaptureInfo | None,
    overview: dict[str, Any],
    devices: pd.DataFrame,
    hosts: list[str],
) -> list[tuple[str, str]]:
    """Facts about a run for the overview, as (name, text).

    When it was recorded is told by the file's own clock, or not at all: a file may have been copied
    or unpacked since.
    """
    device = overview["device_kind"] or "–"
    if len(devices):
        memory_bytes = devices["memory_bytes"].iloc[0]
        if pd.notna(memory_bytes) and memory_bytes:
            device += f", {size_text(float(memory_bytes))}"
        if len(devices) > 1:
            device += f", {len(devices)} devices"
    out = [
        ("Device", device),
        ("Host", join_some(hosts, _MOST_HOSTS) or "–"),
        ("Framework", overview["framework"] or "–"),
    ]
    if capture is not None:
        # How long it took is in the header, as the trace draws it; the clock of the capture begins
        # and ends elsewhere.
        out.append(("Captured", capture.started[:19].replace("T", " ")))
    else:
        if started := overview["environment"]["start_time"]:
            out.append(("Recorded", str(started)[:19].replace("T", " ") + " UTC"))
        if source.created:
            out.append(("File written", source.created.replace("T", " ")))
    size = f", {size_text(source.bytes)}" if source.bytes else ""
    out.append(("Profile", f"{Path(source.path).name}/{source.file}{size}"))
    return out
