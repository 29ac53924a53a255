"""The contents of a folder, by names alone: which files may be profiles, and what else is there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from nbprof.core.confinement import Confinement, real_path, scan
from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile, SourceFile, could_not_open, printable
from nbprof.core.sidecar import SIDECAR
from nbprof.core.unfinished import SCRATCH, Unfinished, look
from nbprof.formats import register
from nbprof.formats.format import Claim, Place, Recordings, within
from nbprof.sources.budget import Budget

MOST_FILES = 1_000_000
"""A folder with more files below it is not a logdir; scanning on would look like a hung kernel."""

NAMED, MAYBE, NAMELESS, BESIDE = range(4)
"""How likely a name is a profile: the suffix of a format, another suffix that profiles have, no
suffix; and nbprof's own files.
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
# Of these folders nothing is a profile, and some hold very many files.
_PRUNED = {".git", "node_modules", "__pycache__", ".ipynb_checkpoints"}


@dataclass
class Found:
    """A file that may be a profile: where it is below the folder, with slashes; what its name
    promises; and the file.

    `state` is what the file system said of it when it was listed, where that was asked for.
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
        """Bytes, None where unknown."""
        return self.file.size if self.state is None else self.state.st_size

    @property
    def parent(self) -> str:
        """The folder that it is in, below the place that was listed; the empty text for that place
        itself.
        """
        return self.at.rpartition("/")[0]


@dataclass
class Listing:
    """The result of walking a place."""

    files: list[Found] = field(default_factory=list)
    top: set[str] = field(default_factory=set)
    """Names at the top level; folders end with a slash."""
    archives: list[str] = field(default_factory=list)
    claims: dict[Recordings, Claim] = field(default_factory=dict)
    """Recordings that are folders, by the function with which their format finds them."""
    notes: list[tuple[str, str]] = field(default_factory=list)
    """Sentences about files that were not read, each with its folder."""
    refused: list[tuple[Found, str, bool]] = field(default_factory=list)
    """Files that are not profiles, a sentence about each, and whether their name says trace."""
    doubts: list[str] = field(default_factory=list)
    """Sentences about the place as a whole, such as a truncated archive."""
    budget: Budget | None = None
    """What may be looked at; None where nothing but `MOST_FILES` bounds it."""
    unfinished: list[Unfinished] = field(default_factory=list)
    """Recordings right in the place that are not finished."""
    also: str = ""
    """A file that is included whatever its name, because it was requested."""
    count: int = 0

    @classmethod
    def of(cls, parts: Sequence[str] = (), also: str = "") -> Listing:
        """One of a place that is the last of some folders, each in the one before."""
        kinds = [form.recordings for form in register.FORMATS if form.recordings is not None]
        return cls(
            also=also,
            claims={
                recordings: Claim(within=within(recordings.is_folder, parts))
                for recordings in kinds
            },
        )

    @property
    def within(self) -> bool:
        """Whether the place itself is, or lies in, a recording that is a folder."""
        return any(claim.within for claim in self.claims.values())

    @property
    def claimed(self) -> Recordings | None:
        """Those of which there is a sign."""
        return next((recordings for recordings, claim in self.claims.items() if claim.sign), None)

    def add(
        self,
        path: str,
        file: Callable[[], SourceFile],
        state: Callable[[], os.stat_result] | None = None,
    ) -> None:
        """Takes in a file, which is made, and its state asked for, only if the name says that it
        may be a profile.
        """
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
            self.files.append(Found(path, promise, file(), state() if state is not None else None))
        elif _ARCHIVE.search(name):
            self.archives.append(path)
        self.note(path)

    def note(self, path: str) -> None:
        """Sees whether the name of a file shows that there is a recording of which it was taken."""
        name = path.rpartition("/")[2]
        for recordings, claim in self.claims.items():
            if not claim.sign and recordings.is_sign(name):
                claim.sign = path

    def enters(self, path: str) -> bool:
        """Whether the files of a folder are to be added."""
        name = path.rpartition("/")[2]
        if "/" not in path:
            self.top.add(name + "/")
        for recordings, claim in self.claims.items():
            if recordings.is_folder(path):
                claim.sign = path + "/"
                return False
        # A recording that was never finished lies in a folder of its own, hidden.
        return name not in _PRUNED and not name.startswith(SCRATCH)

    def take(self, path: str, file: Callable[[], SourceFile]) -> None:
        """Takes in a file of a place that lists whole paths, unless it is in a folder that is not
        entered.
        """
        *parts, name = path.split("/")
        entered = all(self.enters("/".join(parts[: i + 1])) for i in range(len(parts)))
        if (entered and not self.within) or path == self.also:
            self.add(path, file)
        for recordings, claim in self.claims.items():
            ours = bool(claim.within or within(recordings.is_folder, parts))
            if not ours and not entered:
                continue
            for i, part in enumerate(parts if ours else []):
                if recordings.counts(part):
                    claim.folders.add("/".join(parts[: i + 1]))
            if recordings.is_read(name) and not (ours and any(map(recordings.is_private, parts))):
                claim.files[path] = file()

    def walks(self, path: str) -> bool:
        """Whether a place that shows one folder at a time is to be asked for this one; of a
        recording, for those that are read.
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
        """What is below one of its folders, as a listing of that folder."""
        start = subfolder + "/"
        listing = Listing(doubts=self.doubts)
        listing.notes = [
            (path[len(start) :], text)
            for path, text in self.notes
            if (path + "/").startswith(start)
        ]
        listing.archives = [path[len(start) :] for path in self.archives if path.startswith(start)]
        listing.files = [
            replace(file, at=file.at[len(start) :])
            for file in self.files
            if file.at.startswith(start)
        ]
        for recordings, claim in self.claims.items():
            listing.claims[recordings] = Claim(
                claim.sign,
                claim.within or within(recordings.is_folder, subfolder.split("/")),
                {
                    path[len(start) :]: file
                    for path, file in claim.files.items()
                    if path.startswith(start)
                },
                {folder[len(start) :] for folder in claim.folders if folder.startswith(start)},
            )
        listing.top = {f.at.partition("/")[0] + ("/" if "/" in f.at else "") for f in listing.files}
        return listing


def promised(name: str) -> int:
    """How much the name of a file promises, see `NAMED`; -1 for the name of something else."""
    if name == SIDECAR:
        return BESIDE
    if register.telling(name) is not None:
        return NAMED
    if _ARCHIVE.search(name) or name in _NEVER:
        return -1
    if register.possible(name):
        return MAYBE
    return -1 if "." in name else NAMELESS


class Folder(Place, Protocol):
    """A place with files below it that can be walked over."""

    @property
    def cheap(self) -> bool:
        """Whether looking into many files costs little."""

    def listing(self) -> Listing:
        """Everything below, in one walk."""

    def close(self) -> None:
        """Lets go of what was kept open to look into files."""


@dataclass(frozen=True)
class LocalFolder:
    """A folder on a disk of this machine.

    Attributes
    ----------
    path : Path
    confinement : Confinement or None
        The folders that everything that is opened must be in; None where it may be anywhere.
    budget : Budget or None
        What may be looked at; None where nothing but `MOST_FILES` bounds it.
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
        """Nothing is kept open."""

    def below(self, path: str) -> Path:
        """The path of a folder below."""
        return self.path / path if path else self.path

    def listing(self) -> Listing:
        """Everything below. Links to folders are followed, each folder is entered once, and pipes
        and sockets are left alone.

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
                # What the link points to may hold this folder, or lie in one that has been walked
                # already.
                if any(_contains(done, target) or _contains(target, done) for done in entered):
                    continue
                entered.append(target)
                links += self._walk(listing, link)
        except ReadError as error:
            raise ReadError(error.reason, path=self.label) from None
        return listing

    def _left(self, listing: Listing, path: str) -> bool:
        """Whether a hidden folder is that of a recording that ended before its profile was
        complete, and has files.
        """
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
                    for entry in sorted(
                        self.budget.entries(entries) if self.budget else entries,
                        key=lambda e: e.name,
                    ):
                        self._entry(listing, parent, entry, folders, links)
            except OSError as error:
                if not parent:
                    raise could_not_open(error, self.path) from None
                listing.notes.append((parent, _unexamined(parent, error)))
            queue += [
                path
                for path in reversed(folders)
                if listing.enters(path) or self._left(listing, path)
            ]
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
                # Asking a confined file takes several looks; its folder is open here.
                state = (
                    entry.stat if self.confinement is not None and not entry.is_symlink() else None
                )
                listing.add(
                    path, lambda: LocalFile(self.path / path, confinement=self.confinement), state
                )
            else:
                if not parent:
                    listing.top.add(entry.name)
                if entry.is_symlink() and promised(entry.name) == NAMED:
                    listing.notes.append((parent, f"{printable(path)} is a broken link."))
        except OSError as error:
            listing.notes.append((parent, _unexamined(path, error)))


def _unexamined(path: str, error: OSError) -> str:
    return f"{printable(path)} could not be examined: {error.strerror}."


def _contains(folder: str, other: str) -> bool:
    return other == folder or other.startswith(folder.rstrip(os.sep) + os.sep)
