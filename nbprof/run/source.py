"""The source of a profile: its files, the reader and dialect of their format, facts about them."""

from __future__ import annotations

import contextlib
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
from nbprof.core.files import LIMIT_BYTES, LocalFile, RunFiles, SourceFile
from nbprof.core.packed import Unpacked
from nbprof.core.trace import Trace
from nbprof.core.units import join_some, size_text
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
    """The source of a profile: its files, their size and age, and how long reading took.

    `local` are the absolute paths of the files, with size and modification time (ns) when they were
    read; empty if one of them is in an archive or behind a URL. `limit_bytes` limits the size to
    which they unpack.
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
    """The sandbox in which its files were read, and are hashed."""
    _key: str = field(default="", init=False, repr=False)
    _keys: threading.Lock = field(
        default_factory=threading.Lock, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, files: RunFiles, analysed_s: float) -> RunSource:
        """The source of the files of one run."""
        first = files.files[0]
        name = first.name
        if len(files.files) > 1:
            name += f" and {len(files.files) - 1} more"
        size: int | None = 0
        for file in files.files:
            if size is not None:
                size = None if file.size is None else size + file.size
        return cls(
            path=str(files.folder),
            name=files.name,
            file=name,
            bytes=size,
            created=_local_time(files.modified),
            analysed_s=analysed_s,
            local=local_files(files.files),
            limit_bytes=files.limit_bytes,
            confinement=getattr(_stored(first), "confinement", None),
        )

    def content_key(self) -> str:
        """The key by which a saved output identifies the run.

        It follows from the content of its files; of files that are not on disk or have changed, it
        is random and valid in this process only.
        """
        with self._keys:
            if not self._key:
                key = None
                if self.local and all(_unchanged(*file) for file in self.local):
                    key = fingerprint([path for path, _, _ in self.local], self.confinement)
                self._key = key or f"0-{uuid.uuid4().hex}"
            return self._key


def local_files(pieces: Sequence[SourceFile]) -> tuple[tuple[Path, int, int], ...]:
    """Path, size and modification time (ns) of the files of the pieces, packed or not.

    Empty if one of them is not a file on this machine.
    """
    result = []
    for piece in pieces:
        file = _stored(piece)
        if not isinstance(file, LocalFile):
            return ()
        try:
            state = file.stat()
        except ReadError:
            return ()
        result.append((file.path.absolute(), state.st_size, state.st_mtime_ns))
    return tuple(result)


def _stored(piece: SourceFile) -> SourceFile:
    """The file itself of one that is unpacked while it is read."""
    return piece.packed if isinstance(piece, Unpacked) else piece


def _unchanged(path: Path, size: int, changed_ns: int) -> bool:
    try:
        state = path.stat()
    except OSError:
        return False
    return (state.st_size, state.st_mtime_ns) == (size, changed_ns)


def _local_time(seconds: float) -> str:
    """Local time in ISO form; empty if it is unknown or out of range."""
    if seconds > 0:
        with contextlib.suppress(OverflowError, ValueError, OSError):
            return datetime.fromtimestamp(seconds).isoformat(timespec="seconds")
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

    The time of the recording comes from inside the file only, as files are copied and unpacked.
    """
    device = overview["device_kind"] or "–"
    if len(devices):
        memory_bytes = devices["memory_bytes"].iloc[0]
        if pd.notna(memory_bytes) and memory_bytes:
            device += f", {size_text(float(memory_bytes))}"
        if len(devices) > 1:
            device += f", {len(devices)} devices"
    result = [
        ("Device", device),
        ("Host", join_some(hosts, _MOST_HOSTS) or "–"),
        ("Framework", overview["framework"] or "–"),
    ]
    if capture is not None:
        # The header has the duration of the trace; that of the capture differs from it.
        result.append(("Captured", capture.started[:19].replace("T", " ")))
    else:
        if started := overview["environment"]["start_time"]:
            result.append(("Recorded", str(started)[:19].replace("T", " ") + " UTC"))
        if source.created:
            result.append(("File written", source.created.replace("T", " ")))
    file = f"{Path(source.path).name}/{source.file}"
    if source.bytes:
        file += f", {size_text(source.bytes)}"
    result.append(("Profile", file))
    return result
