"""Profiles inside zip and tar archives, read without unpacking them to a disk.

Names of members (`../../x`, links, absolute paths) can do no harm, because they are only shown and
compared. Archives inside archives are reported, not opened.
"""

from __future__ import annotations

import contextlib
import re
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, BinaryIO, cast

from nbprof.core.errors import ReadError
from nbprof.core.files import (
    LIMIT_BYTES,
    Buffer,
    LocalFile,
    SourceFile,
    Stamp,
    printable,
    too_large,
)
from nbprof.core.packed import DAMAGED, allowed, as_file, encrypted, in_archive, opened, read_all
from nbprof.core.units import size_text
from nbprof.sources import notes
from nbprof.sources.folders import NAMED, Listing, promised
from nbprof.sources.sniff import HEAD

Progress = Callable[[str], None] | None

_SUFFIX = re.compile(r"(\.tar)?\.(zip|tar|tgz|tbz2?|txz|gz|bz2|xz)$", re.IGNORECASE)


@dataclass(frozen=True)
class Member:
    """A file in an archive."""

    archive: ZipArchive | TarArchive
    at: str
    size: int | None
    modified: float
    key: Any

    @property
    def name(self) -> str:
        """Base name."""
        return printable(self.at.rpartition("/")[2])

    @property
    def label(self) -> str:
        """`runs.zip!/a/b.xplane.pb`."""
        return f"{self.archive.label}!/{printable(self.at)}"

    def stamp(self) -> Stamp | None:
        """The state of the archive, and the position in it."""
        if not hasattr(self.archive.source, "stamp"):
            return None
        state = self.archive.source.stamp()
        if not isinstance(state, Stamp):
            return None
        is_zip = isinstance(self.key, zipfile.ZipInfo)
        offset = self.key.header_offset if is_zip else self.key.offset
        return Stamp((*state.facts, self.at, int(offset)), state.changed_ns)

    def head(self, count: int) -> bytes:
        """The first bytes."""
        return self.archive.head(self, count)

    def read(self) -> Buffer:
        """All bytes."""
        return self.archive.read(self)

    def open(self) -> BinaryIO:
        """The bytes as a file."""
        return as_file(self.read())


class _Archive:
    """Base class of zip and tar archives."""

    cheap = True

    def __init__(
        self, source: SourceFile, limit: int = LIMIT_BYTES, progress: Progress = None
    ) -> None:
        self.source = source
        self.limit = limit
        self.progress = progress
        self._lock = threading.RLock()
        self._seen = (source.size, source.modified)

    @property
    def name(self) -> str:
        """Base name without the suffix."""
        return _SUFFIX.sub("", self.source.name)

    @property
    def label(self) -> str:
        """Label of the archive's file."""
        return self.source.label

    def below(self, path: str) -> str:
        """The label of a folder in it."""
        return f"{self.label}!/{printable(path)}" if path else self.label

    def close(self) -> None:
        """Close the file; it is opened again when a member is read."""

    def prepare(self, members: Sequence[Member]) -> None:
        """Announce the members to read, so that it is fetched and unpacked once for all."""

    def _unchanged(self) -> None:
        if (self.source.size, self.source.modified) != self._seen:
            raise ReadError(
                "the archive changed while being read; load it again once it is complete.",
                path=self.label,
            )


def _clean(name: str) -> str:
    return "/".join(
        part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")
    )


class ZipArchive(_Archive):
    """A zip archive; members are accessed directly."""

    _zip: zipfile.ZipFile | None = None
    _expected: frozenset[str] = frozenset()

    def listing(self, also: str = "") -> Listing:
        """All members, from its directory; the member `also` is listed whatever its name."""
        listing = Listing.of([self.name], also)
        with in_archive(self.label):
            for info in self._directory().infolist():
                if info.filename and not info.is_dir():
                    listing.take(_clean(info.filename), partial(self._member, info))
        return listing

    def prepare(self, members: Sequence[Member]) -> None:
        """Announce the members to read, so that the archive is fetched once for all."""
        self._expected = frozenset(member.at for member in members)

    def close(self) -> None:
        """Close the file; a remote one stays open until all announced members are read."""
        with self._lock:
            if self._expected and not isinstance(self.source, LocalFile):
                return
            archive, self._zip = self._zip, None
            if archive is not None:
                file = archive.fp
                archive.close()
                if file is not None:
                    file.close()

    def _directory(self) -> zipfile.ZipFile:
        # The directory of a large archive takes a while to read, so it is read once.
        with self._lock:
            if self._zip is None:
                file = self.source.open()
                try:
                    self._zip = zipfile.ZipFile(file)
                except BaseException:
                    file.close()
                    raise
            return self._zip

    def _member(self, info: zipfile.ZipInfo) -> Member:
        modified = 0.0
        with contextlib.suppress(ValueError, OverflowError):
            modified = time.mktime((*info.date_time, 0, 0, -1))
        return Member(self, _clean(info.filename), info.file_size, modified, info)

    @contextlib.contextmanager
    def _opened(self, member: Member) -> Iterator[IO[bytes]]:
        info: zipfile.ZipInfo = member.key
        with in_archive(member.label):
            if info.flag_bits & 1:
                raise encrypted(member.label)
            with self._directory().open(info) as content:
                yield content

    def head(self, member: Member, count: int) -> bytes:
        """The first bytes of a member."""
        with self._opened(member) as content:
            return content.read(count)

    def read(self, member: Member) -> Buffer:
        """All bytes of a member."""
        try:
            with self._lock, self._opened(member) as content:
                buffer = read_all(
                    content,
                    member.label,
                    allowed(member.key.compress_size, self.limit),
                    member.size,
                )
        finally:
            self._expected -= {member.at}
            self.close()
        self._unchanged()
        return buffer


class TarArchive(_Archive):
    """A tar archive. In a compressed one everything before a member must be decompressed, so the
    heads of all members are stored in the first pass.

    Parameters
    ----------
    source : SourceFile
    packing : str
        `gzip`, `bzip2`, `xz`, or the empty text.
    """

    def __init__(
        self,
        source: SourceFile,
        packing: str = "",
        limit: int = LIMIT_BYTES,
        progress: Progress = None,
    ) -> None:
        super().__init__(source, limit, progress)
        self.packing = packing
        self._heads: dict[int, bytes] = {}
        self._expected: dict[int, Member] = {}
        self._ready: dict[int, Buffer] = {}
        self._fetched: Buffer | None = None

    def listing(self, also: str = "") -> Listing:
        """All members, in one pass; the member `also` is listed whatever its name."""
        listing = Listing.of([self.name], also)
        with in_archive(self.label), self._opened() as archive:
            for info in archive:
                path = _clean(info.name)
                if info.isdir() or not path:
                    continue
                if not info.isreg():
                    if promised(path.rpartition("/")[2]) == NAMED:
                        note = notes.link_in_archive(path)
                        listing.notes.append((path.rpartition("/")[0], note))
                    continue
                before = len(listing.files)
                listing.take(path, partial(self._member, info, path))
                if self.packing and len(listing.files) > before:
                    self._heads[info.offset] = self._extracted(archive, info).read(HEAD)
            if not archive.has_end_marker:
                listing.doubts.append(notes.no_end_marker())
        return listing

    def _member(self, info: tarfile.TarInfo, path: str) -> Member:
        return Member(self, path, info.size, float(info.mtime), info)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[_Tar]:
        with self._file() as file:
            if not self.packing:
                with _Tar.open(fileobj=file, mode="r:") as archive:
                    yield archive
                return
            with opened(file, self.packing) as content:
                stream = _Bounded(
                    content, self.label, allowed(self.source.size, self.limit, 4), self.progress
                )
                with _Tar.open(fileobj=cast(Any, stream), mode="r|", bufsize=1 << 20) as archive:
                    yield archive

    def _file(self) -> BinaryIO:
        # Each pass needs all of a compressed archive, so a remote one is fetched once.
        if not self.packing or isinstance(self.source, LocalFile):
            return self.source.open()
        if self._fetched is None:
            self._fetched = self.source.read()
        return as_file(self._fetched)

    def _extracted(self, archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
        content = archive.extractfile(info)
        assert content is not None, "only ordinary files become members"
        return content

    def head(self, member: Member, count: int) -> bytes:
        """The first bytes of a member."""
        head = self._heads.get(member.key.offset)
        if head is not None:
            return head[:count]
        with in_archive(member.label), self._opened() as archive:
            return self._extracted(archive, member.key).read(count)

    def prepare(self, members: Sequence[Member]) -> None:
        """Announce the members to read, so that it is fetched and unpacked once for all."""
        if self.packing:
            self._expected = {member.key.offset: member for member in members}
        self._heads.clear()

    def read(self, member: Member) -> Buffer:
        """All bytes of a member."""
        with self._lock:
            buffer = self._pass(member) if self.packing else self._direct(member)
        self._unchanged()
        return buffer

    def _direct(self, member: Member) -> Buffer:
        with in_archive(member.label), self._opened() as archive:
            return read_all(
                self._extracted(archive, member.key), member.label, self.limit, member.size
            )

    def _pass(self, member: Member) -> Buffer:
        offset = member.key.offset
        if offset not in self._ready:
            remaining = self._expected if offset in self._expected else {offset: member}
            remaining, self._expected = dict(remaining), {}
            with in_archive(self.label), self._opened() as archive:
                for info in archive:
                    expected = remaining.pop(info.offset, None)
                    if expected is not None:
                        self._ready[info.offset] = read_all(
                            self._extracted(archive, info), expected.label, self.limit, info.size
                        )
                    if not remaining:
                        break
            self._fetched = None
        if offset not in self._ready:
            raise ReadError(
                "the archive changed while being read; load it again once it is complete.",
                path=self.label,
            )
        return self._ready.pop(offset)


_NAME_TYPES = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    b"X",
)
"""Members that contain names of others, which tarfile loads into memory."""


class _Header(tarfile.TarInfo):
    """A header of a tar archive; a damaged one is an error, not the end as in tarfile."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        header = super().frombuf(buf, encoding, errors)
        if header.type in _NAME_TYPES and header.size > 1 << 20:
            raise ReadError(DAMAGED.format(f"a file name of {size_text(header.size)}"))
        return header

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> _Header:
        try:
            return super().fromtarfile(tarfile)
        except HEADER_ERRORS as error:
            if tarfile.offset:
                raise ReadError(DAMAGED.format(str(error)), offset=tarfile.offset) from None
            raise
        except EMPTY_HEADER:
            cast(_Tar, tarfile).has_end_marker = False
            raise


HEADER_ERRORS: Any = (
    tarfile.InvalidHeaderError,  # type: ignore[attr-defined]
    tarfile.TruncatedHeaderError,  # type: ignore[attr-defined]
    tarfile.SubsequentHeaderError,  # type: ignore[attr-defined]
)
EMPTY_HEADER: Any = tarfile.EmptyHeaderError  # type: ignore[attr-defined]


class _Tar(tarfile.TarFile):
    tarinfo = _Header
    has_end_marker = True
    """False once the archive has ended without the blocks of zeros that mark its end."""


class _Bounded:
    """A stream with a limit of bytes, beyond which it raises `ReadError`."""

    def __init__(self, file: BinaryIO, label: str, limit: int, progress: Progress) -> None:
        self._file = file
        self._label = label
        self._limit = limit
        self._progress = progress
        self._came = self._reported = 0

    def read(self, count: int = -1) -> bytes:
        data = self._file.read(count)
        self._came += len(data)
        if self._came > self._limit:
            raise too_large(self._label, self._limit)
        if self._progress and self._came - self._reported >= 1 << 28:
            self._reported = self._came
            self._progress(f"unpacking {self._label}: {size_text(self._came)}")
        return data
