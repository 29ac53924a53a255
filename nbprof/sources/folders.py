"""Listing of a folder by names only: files that may be profiles, and other content."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from nbprof.core.confinement import Confinement, real_path, scan
from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile, SourceFile, could_not_open, printable
from nbprof.core.receipt import Note
from nbprof.core.sidecar import SIDECAR, is_of_rank
from nbprof.core.unfinished import SCRATCH, Unfinished, look
from nbprof.formats import register
from nbprof.formats.format import Claim, Place, Recordings, within
from nbprof.sources import notes
from nbprof.sources.budget import Budget

MOST_FILES = 1_000_000
"""A folder with more files below it is not a logdir; scanning on would look like a hung kernel."""

NAMED, MAYBE, NAMELESS, BESIDE = range(4)
"""Classes of names: suffix of a format, another suffix that profiles can have, no suffix; and
sidecar files of nbprof.
"""

_ARCHIVE = re.compile(r"\.(zip|tar|tgz|tbz2?|txz|tar\.(gz|bz2|xz))$", re.IGNORECASE)
_NEVER = {
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "saved_model.pb",
    "keras_metadata.pb",
    "fingerprint.pb",
}
# Folders without profiles, some with very many files.
_PRUNED = {".git", "node_modules", "__pycache__", ".ipynb_checkpoints"}


@dataclass
class Found:
    """A file that may be a profile: its path below the folder, with slashes, the class of its name,
    and the file.

    `state` is its state at the time of the listing, if it was requested.
    """

    at: str
    promise: int
    file: SourceFile
    state: os.stat_result | None = None

    @property
    def modified(self) -> float:
        """Seconds since 1970."""
        return self.file.modified if self.state is None else self.state.st_mtime

    @property
    def size(self) -> int | None:
        """Bytes; None if unknown."""
        return self.file.size if self.state is None else self.state.st_size

    @property
    def parent(self) -> str:
        """Its folder, relative to the listed place; empty for the place itself."""
        return self.at.rpartition("/")[0]


class Refused(NamedTuple):
    """A file that is not a profile, and True if its name is that of a trace."""

    file: Found
    note: Note
    named: bool


@dataclass
class Listing:
    """The files of a place."""

    files: list[Found] = field(default_factory=list)
    top: set[str] = field(default_factory=set)
    """Names at the top level; folders end with a slash."""
    archives: list[str] = field(default_factory=list)
    claims: dict[Recordings, Claim] = field(default_factory=dict)
    """Recordings that are folders, by the `Recordings` of their format."""
    notes: list[tuple[str, Note]] = field(default_factory=list)
    """Notes on files that were not read, each with its folder."""
    refused: list[Refused] = field(default_factory=list)
    doubts: list[Note] = field(default_factory=list)
    """Warnings about the place as a whole, such as a truncated archive."""
    budget: Budget | None = None
    """Limits of the search; None if there is only `MOST_FILES`."""
    unfinished: list[Unfinished] = field(default_factory=list)
    """Unfinished recordings directly in the place."""
    also: str = ""
    """A file that is included whatever its name, because it was requested."""
    count: int = 0

    @classmethod
    def of(cls, parts: Sequence[str] = (), also: str = "") -> Listing:
        """An empty listing of a place, given the names of the folders of its path."""
        listing = cls(also=also)
        for form in register.FORMATS:
            if form.recordings is not None:
                claim = Claim(within=within(form.recordings.is_folder, parts))
                listing.claims[form.recordings] = claim
        return listing

    @property
    def within(self) -> bool:
        """True if the place is, or is inside, a recording that is a folder."""
        return any(claim.within for claim in self.claims.values())

    @property
    def claimed(self) -> Recordings | None:
        """Recordings that are folders, if there is a sign of one."""
        return next((recordings for recordings, claim in self.claims.items() if claim.sign), None)

    def add(
        self,
        path: str,
        file: Callable[[], SourceFile],
        state: Callable[[], os.stat_result] | None = None,
    ) -> None:
        """Add a file. `file` and `state` are only called if its name can be that of a profile."""
        first, slash, _ = path.partition("/")
        self.top.add(first + slash)
        self.count += 1
        if self.count > MOST_FILES:
            raise ReadError(
                f"it contains more than {MOST_FILES:,} files. Name the run's folder or its logdir."
            )
        name = path.rpartition("/")[2]
        promise = promised(name)
        if path == self.also:
            promise = max(promise, MAYBE)
        if promise >= 0:
            candidate = Found(path, promise, file())
            if state is not None:
                candidate.state = state()
            self.files.append(candidate)
        elif _ARCHIVE.search(name):
            self.archives.append(path)
        self.note(path)

    def note(self, path: str) -> None:
        """Check whether the name of a file is a sign of a recording that it was copied from."""
        name = path.rpartition("/")[2]
        for recordings, claim in self.claims.items():
            if not claim.sign and recordings.is_sign(name):
                claim.sign = path

    def enters(self, path: str) -> bool:
        """True if the files of a folder should be added."""
        name = path.rpartition("/")[2]
        if "/" not in path:
            self.top.add(name + "/")
        for recordings, claim in self.claims.items():
            if recordings.is_folder(path):
                claim.sign = path + "/"
                return False
        # Unfinished recordings are in hidden folders.
        return name not in _PRUNED and not name.startswith(SCRATCH)

    def take(self, path: str, file: Callable[[], SourceFile]) -> None:
        """Add a file of a place that lists full paths, unless it is in a folder that is not
        entered.
        """
        *parts, name = path.split("/")
        entered = all(self.enters("/".join(parts[: i + 1])) for i in range(len(parts)))
        if (entered and not self.within) or path == self.also:
            self.add(path, file)
        for recordings, claim in self.claims.items():
            private = False
            if claim.within or within(recordings.is_folder, parts):
                for i, part in enumerate(parts):
                    if recordings.counts(part):
                        claim.folders.add("/".join(parts[: i + 1]))
                private = any(map(recordings.is_private, parts))
            elif not entered:
                continue
            if recordings.is_read(name) and not private:
                claim.files[path] = file()

    def walks(self, path: str) -> bool:
        """True if a place that lists one folder at a time should list this one; in a recording,
        only folders that are read.
        """
        *parts, name = path.split("/")
        for recordings, claim in self.claims.items():
            if claim.within or within(recordings.is_folder, parts):
                if recordings.counts(name):
                    claim.folders.add(path)
                if recordings.is_private(name):
                    return False
        return self.enters(path) or any(recordings.is_folder(path) for recordings in self.claims)

    def under(self, subfolder: str) -> Listing:
        """The listing of one of its folders."""
        start = subfolder + "/"
        length = len(start)
        listing = Listing(doubts=self.doubts)
        for path, note in self.notes:
            if (path + "/").startswith(start):
                listing.notes.append((path[length:], note))
        listing.archives = [path[length:] for path in self.archives if path.startswith(start)]
        for file in self.files:
            if file.at.startswith(start):
                file = replace(file, at=file.at[length:])
                listing.files.append(file)
                name, slash, _ = file.at.partition("/")
                listing.top.add(name + slash)
        for recordings, claim in self.claims.items():
            files = {path: file for path, file in claim.files.items() if path.startswith(start)}
            listing.claims[recordings] = Claim(
                claim.sign,
                claim.within or within(recordings.is_folder, subfolder.split("/")),
                {path[length:]: file for path, file in files.items()},
                {folder[length:] for folder in claim.folders if folder.startswith(start)},
            )
        return listing


def promised(name: str) -> int:
    """The class of a file name, see `NAMED`; -1 for names of other files."""
    if name == SIDECAR:
        return BESIDE
    if is_of_rank(name):
        return -1
    if register.telling(name) is not None:
        return NAMED
    if _ARCHIVE.search(name) or name in _NEVER:
        return -1
    if register.possible(name):
        return MAYBE
    return -1 if "." in name else NAMELESS


class Folder(Place, Protocol):
    """A place whose files can be listed."""

    @property
    def cheap(self) -> bool:
        """True if examining many files is fast."""

    def listing(self) -> Listing:
        """All files below."""

    def close(self) -> None:
        """Close the files that are open for examination."""


@dataclass(frozen=True)
class LocalFolder:
    """A folder on a disk of this machine.

    Attributes
    ----------
    path : Path
    confinement : Confinement or None
        The folders that all opened files must be in; None for no restriction.
    budget : Budget or None
        Limits of the search; None if there is only `MOST_FILES`.
    """

    path: Path
    confinement: Confinement | None = None
    budget: Budget | None = None

    cheap = True

    @property
    def name(self) -> str:
        """Base name."""
        return printable(self.path.name or self.path.absolute().name)

    @property
    def label(self) -> str:
        """The path."""
        return printable(str(self.path))

    def close(self) -> None:
        """Do nothing: no file is open."""

    def below(self, path: str) -> Path:
        """The path of a folder below."""
        return self.path / path if path else self.path

    def listing(self) -> Listing:
        """All files below. Links to folders are followed, each folder is entered once, and pipes
        and sockets are ignored.

        Raises
        ------
        ReadError
            The folder may not be read, or there are too many files.
        """
        listing = Listing.of(self.path.absolute().parts)
        listing.budget = self.budget
        if listing.within:
            return listing
        try:
            entered = [real_path(self.path)]
        except OSError as error:
            raise could_not_open(error, self.path) from None
        try:
            links = self._walk(listing, "")
            while links:
                link = links.pop(0)
                try:
                    target = real_path(self.path / link)
                except OSError as error:
                    listing.notes.append((link.rpartition("/")[0], _unexamined(link, error)))
                    continue
                # The target may contain this folder, or be inside a folder that was listed already.
                if any(_contains(done, target) or _contains(target, done) for done in entered):
                    continue
                entered.append(target)
                links += self._walk(listing, link)
        except ReadError as error:
            raise ReadError(error.reason, path=self.label) from None
        return listing

    def _left(self, listing: Listing, path: str) -> bool:
        """True if a hidden folder contains files of a recording whose process was killed."""
        parent, _, name = path.rpartition("/")
        if not name.startswith(SCRATCH):
            return False
        recording = look(self.path / path)
        if not parent:
            listing.unfinished.append(recording)
        return recording.written and bool(recording.facts) and not recording.running

    def _walk(self, listing: Listing, start: str) -> list[str]:
        links: list[str] = []
        queue = [start]
        while queue and not (self.budget and self.budget.over):
            parent = queue.pop()
            folders: list[str] = []
            try:
                with scan(self.path / parent, self.confinement) as entries:
                    allowed = self.budget.entries(entries) if self.budget else entries
                    for entry in sorted(allowed, key=lambda entry: entry.name):
                        self._entry(listing, parent, entry, folders, links)
            except OSError as error:
                if not parent:
                    raise could_not_open(error, self.path) from None
                listing.notes.append((parent, _unexamined(parent, error)))
            for path in reversed(folders):
                if listing.enters(path) or self._left(listing, path):
                    queue.append(path)
        return links

    def _entry(
        self,
        listing: Listing,
        parent: str,
        entry: os.DirEntry[str],
        folders: list[str],
        links: list[str],
    ) -> None:
        path = f"{parent}/{entry.name}" if parent else entry.name
        try:
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif entry.is_symlink() and entry.is_dir():
                if listing.enters(path):
                    links.append(path)
            elif entry.is_file():
                # The state of a confined file takes several calls later; its folder is open here.
                confined = self.confinement is not None and not entry.is_symlink()
                state = entry.stat if confined else None
                listing.add(
                    path, lambda: LocalFile(self.path / path, confinement=self.confinement), state
                )
            else:
                if not parent:
                    listing.top.add(entry.name)
                if entry.is_symlink() and promised(entry.name) == NAMED:
                    listing.notes.append((parent, notes.broken_link(path)))
        except OSError as error:
            listing.notes.append((parent, _unexamined(path, error)))


def _unexamined(path: str, error: OSError) -> Note:
    return notes.could_not_examine(path, f"{error.strerror}.")


def _contains(folder: str, other: str) -> bool:
    return other == folder or other.startswith(folder.rstrip(os.sep) + os.sep)
