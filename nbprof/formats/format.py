"""The interface of a file format: `Format`, with the arguments and results of its functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nbprof.core.confinement import Confinement
from nbprof.core.errors import ReadError
from nbprof.core.files import RunFiles, SourceFile
from nbprof.core.receipt import Note
from nbprof.core.strings import python_strings
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import UNKNOWN

if TYPE_CHECKING:
    from nbprof.core.trace import Trace

PACKING = r"(\.(gz|bz2|xz))?$"
"""How the names of possibly compressed files end, for the patterns of `Format.names`."""


@dataclass(frozen=True)
class Head:
    """The beginning of a file.

    Attributes
    ----------
    data : bytes
        Its first bytes, unpacked; never empty.
    name : str
        Base name, without the suffix of a packing.
    whole : bool
        Whether the file ends with them.
    named : bool
        Whether the file is going to be read as one of a run: then its name may decide what its
        bytes leave open.
    """

    data: bytes
    name: str = ""
    whole: bool = False
    named: bool = False

    @cached_property
    def text(self) -> bytes:
        """The bytes without the mark of UTF-8 and blanks before them."""
        return self.data.removeprefix(b"\xef\xbb\xbf").lstrip()

    @cached_property
    def json(self) -> bool:
        """True if the file begins as JSON does; a brace may also be the first byte of something
        else (marshal, protobuf).
        """
        first, inner = self.text[:1], self.text[1:].lstrip()[:1]
        if first == b"[":
            return len(self.text) == 1 or (bool(inner) and inner in b'{]"[-0123456789tfn')
        return first == b"{" and inner in (b'"', b"}", b"")


@dataclass(frozen=True)
class Kind:
    """The kind of a file.

    Attributes
    ----------
    format : str
        Name of its `Format`, `archive`, or the empty text for what nbprof does not read.
    what : str
        A noun phrase for the user.
    remedy : str
        What to do instead, as a sentence; the empty text where there is nothing to say.
    source : str
        How the names of the files end that this one was made from, one of which is to be opened
        instead.
    packed : str
        `gzip`, `bzip2` or `xz` where the profile is inside one of these.
    sure : bool
        False where the bytes are not against it, but do not prove it: the file may be damaged, or
        be something else.
    rank, world_size : int or None
        The place of this process in its job, where the head states it.
    exporter : bool
        True for what an exporter writes beside another file of the same recording.
    tool : str
        The program that exports what can be read of it.
    clock : float or None
        When it was recorded by its own clock, in seconds since 1970, where the head states it.
    """

    format: str
    what: str = ""
    remedy: str = ""
    source: str = ""
    packed: str = ""
    sure: bool = True
    rank: int | None = None
    world_size: int | None = None
    exporter: bool = False
    tool: str = ""
    clock: float | None = None


@dataclass(frozen=True)
class Member:
    """A file that is a profile, as far as its name or its head tells.

    Attributes
    ----------
    file : SourceFile
    kind : Kind
    stem : str
        Its name without suffixes.
    parent : str
        The folder that it is in, below the place that was looked through.
    """

    file: SourceFile
    kind: Kind
    stem: str
    parent: str = ""


@dataclass(frozen=True)
class Here:
    """One folder with profiles in it.

    Attributes
    ----------
    members : list of Member
        Of all formats, by name.
    name : str
        What a run of the whole folder is called.
    folder : Path or str
        Its path, or its label.
    of_one_run : bool
        Whether it is for one run alone: `plugins/profile/<run>`.
    """

    members: list[Member]
    name: str
    folder: Path | str
    of_one_run: bool = False

    def of(self, form: str) -> list[Member]:
        """The files of one format."""
        return [member for member in self.members if member.kind.format == form]


@dataclass(frozen=True)
class Beside:
    """Folders beside each other whose files may be one run.

    Attributes
    ----------
    outer : str
        The folder that they are in.
    folders : list of str
    members : list of Member
        All files in them.
    """

    outer: str
    folders: list[str]
    members: list[Member]


class Place(Protocol):
    """A place with files below it: a folder, an archive, a URL."""

    @property
    def name(self) -> str:
        """Base name."""

    @property
    def label(self) -> str:
        """The name for errors and receipts."""

    def below(self, path: str) -> Path | str:
        """The path, or the label, of a folder below."""


@dataclass
class Claim:
    """Recordings that are folders: their files and folders, found by a walk over a place.

    Attributes
    ----------
    sign : str
        A file or folder that shows that there are some; empty where none was seen.
    within : str
        The folder of such a recording that the place itself is, or is in.
    files : dict of str to SourceFile
        In a place that lists whole paths: files that are read of them, by their paths below the
        place.
    folders : set of str
        And the folders of them whose names count.
    """

    sign: str = ""
    within: str = ""
    files: dict[str, SourceFile] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sign = self.sign or (f"{self.within}/" if self.within else "")


class Recordings(Protocol):
    """Finds the recordings of a format whose recordings are folders; a module can be one."""

    def is_folder(self, path: str) -> bool:
        """True if a folder of this name or path is such a recording, or a part of one. Nothing else
        is looked for in it.
        """

    def is_sign(self, name: str) -> bool:
        """True if a file of this name belongs to such a recording in any folder."""

    def is_read(self, name: str) -> bool:
        """True if a file of this name in a recording is read."""

    def counts(self, folder: str) -> bool:
        """True if the name of a folder states something about the recording that it is in."""

    def is_private(self, folder: str) -> bool:
        """True if nothing in a folder of this name in a recording is read."""

    def recording_of(self, parts: Sequence[str]) -> int:
        """Number of the folders of a file that lead to its recording."""

    def runs_in(
        self, folder: Path, *, near: bool = False, confinement: Confinement | None = None
    ) -> tuple[list[RunFiles], list[str]]:
        """The runs below a folder, newest first, and the paths of recordings that cannot be read
        yet; with `near` those right in it.
        """

    def runs_at(
        self, location: Place, claim: Claim, sidecars: Mapping[str, SourceFile]
    ) -> tuple[list[RunFiles], list[str]]:
        """The same of a place that has been walked over; `sidecars` are what nbprof wrote, by the
        folder that it is in.
        """

    def not_yet(self, path: str) -> str:
        """The error for a recording at `path` that cannot be read yet."""

    def nothing(self, location: Place, unread: Sequence[str]) -> ReadError:
        """The error for a place in which there is nothing that can be read: how to get it."""


def _never(*_: object) -> bool:
    return False


def _nothing(*_: object) -> tuple[Note, ...]:
    return ()


def _unknown(*_: object) -> Framework:
    return UNKNOWN


@dataclass(frozen=True, eq=False)
class Format:
    """A file format: recognizes its files, groups them to runs, and names their reader and dialect.

    Its module is imported whenever files are looked for, so it imports no reader.

    Attributes
    ----------
    name : str
        In `nbprof.runs`, and in the cache.
    label : str
        What of it is read, for sentences.
    sniff : callable
        What a file is by its head: a `Kind` of this format; one without a format for what may be
        taken for it and is not; or None.
    reader : str
        `module:function` that makes a `Trace` of the files of a run.
    dialect : str
        `module:function` that makes an `Activity` of that trace.
    suffixes : tuple of str
        How names of its files may end, the usual one first.
    names : pattern, optional
        Names that are of this format only.
    by_folder : bool
        Files of such names are believed until they are read, and all in a folder are taken for the
        hosts of one run.
    empty : str
        The error for an empty file of such a name.
    gather : callable, optional
        The runs of a folder: those that formats before this one found there, and its own. Without
        it each file is a run.
    across : callable, optional
        Folders whose files may be one run together: each with the folder above them, and their
        files with stems that name the folder.
    is_copy : callable, optional
        Whether a file is, by its name and the stem of that, the same recording as the hosts in its
        folder, whose stems are given.
    lacks : callable, optional
        Whether a file that cannot be read is one that a run lacks: by its stem, and those of the
        run.
    notes : callable, optional
        What to say where one such file is read alone.
    recordings : Recordings, optional
        Of a format whose recordings are folders with files of several kinds: its reader looks into
        each.
    bounded : bool
        The reader unpacks, and takes `limit_bytes`.
    unpacks : frozenset of str
        Packings that the reader takes as they are.
    separate_hosts : bool
        Each file is a separate host, and can be read without the others.
    slow : bool
        To read a file takes longer than all that is made of it, so that nothing is gained by
        reading it once more later.
    says_decoded : bool
        The reader says how far decoding is.
    framework : callable, optional
        The framework that the name of a path shows; `UNKNOWN` if it shows none.
    """

    name: str
    label: str
    sniff: Callable[[Head], Kind | None]
    reader: str
    dialect: str
    suffixes: tuple[str, ...] = ()
    names: re.Pattern[str] | None = None
    by_folder: bool = False
    empty: str = "the file is empty: the profiler was stopped before it wrote anything."
    gather: Callable[[Here, list[RunFiles]], list[RunFiles]] | None = None
    across: Callable[[Mapping[str, list[Member]]], list[Beside]] = lambda _folders: []
    is_copy: Callable[[str, str, set[str]], bool] = _never
    lacks: Callable[[str, Sequence[str]], bool] = _never
    notes: Callable[[Member], tuple[Note, ...]] = _nothing
    recordings: Recordings | None = None
    bounded: bool = False
    unpacks: frozenset[str] = frozenset()
    separate_hosts: bool = False
    slow: bool = False
    says_decoded: bool = False
    framework: Callable[[Path], Framework] = _unknown

    def runs(self, here: Here, before: list[RunFiles]) -> list[RunFiles]:
        """The runs of a folder: those that formats before this one found there, and its own."""
        if self.gather is not None:
            return self.gather(here, before)
        return before + [
            RunFiles(member.stem, here.folder, (member.file,), member.file.modified, self.name)
            for member in here.of(self.name)
        ]

    @python_strings()
    def read(
        self, files: Sequence[SourceFile], progress: Callable[[str], None] | None, limit_bytes: int
    ) -> Trace:
        """The trace of one run.

        Raises
        ------
        ReadError
        """
        more = {"limit_bytes": limit_bytes} if self.bounded else {}
        trace: Trace = _entry(self.reader)(files, progress, **more)
        return trace

    @python_strings()
    def interpret(self, trace: Trace) -> Any:
        """The `Activity` of a trace."""
        return _entry(self.dialect)(trace)


def _entry(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def within(is_folder: Callable[[str], bool], parts: Sequence[str]) -> str:
    """The first of some folders, each in the one before, that is a recording or a part of one; the
    empty text where none is.
    """
    return next(
        (part for i, part in enumerate(parts) if is_folder("/".join(parts[max(i - 1, 0) : i + 1]))),
        "",
    )


def is_text(data: bytes) -> bool:
    """True if bytes are text in UTF-8; its last character may be incomplete."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3:
            return False
        text = data[: error.start].decode("utf-8")
    return not any(ord(c) < 32 and c not in "\t\n\r" for c in text)
