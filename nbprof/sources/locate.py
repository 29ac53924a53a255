"""Location of profiles in files, run folders, logdirs, archives and URLs."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

from nbprof.core.confinement import Confinement, scan, state_of
from nbprof.core.errors import ReadError
from nbprof.core.files import (
    LIMIT_BYTES,
    LocalFile,
    Missing,
    RunFiles,
    SourceFile,
    could_not_open,
    no_file,
    printable,
)
from nbprof.core.receipt import Note
from nbprof.core.sidecar import SIDECAR
from nbprof.core.unfinished import Unfinished
from nbprof.core.units import join_some
from nbprof.formats import register
from nbprof.formats.format import Kind, Member
from nbprof.sources import detect, notes
from nbprof.sources.budget import Budget
from nbprof.sources.folders import BESIDE, Folder, Found, Listing, LocalFolder, Refused
from nbprof.sources.select_run import choose, kind_of, resolve
from nbprof.sources.sniff import HEAD, head_of, recognise
from nbprof.sources.urls import is_url, public_url

if TYPE_CHECKING:
    from nbprof.sources.archives import TarArchive, ZipArchive
    from nbprof.sources.remote import Storage

T = TypeVar("T")

_MOST_NOTES = 50
_MOST_COMPARED = 100_000

Source = Any
"""A path or URL (str, bytes, os.PathLike, a UPath), several of them, or a result of `runs`."""


@dataclass(frozen=True)
class OpenOptions:
    """Options for opening places.

    Attributes
    ----------
    storage_options : mapping
        Passed on to fsspec.
    limit_bytes : int
        Limit for a decompressed file.
    progress : callable or None
        Called with messages during downloads.
    confinement : Confinement or None
        The folders of this machine that all opened files must be in.
    budget : callable or None
        Creates the limits of each search of a folder of this machine.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict)
    limit_bytes: int = LIMIT_BYTES
    progress: Callable[[str], None] | None = None
    confinement: Confinement | None = None
    budget: Callable[[], Budget] | None = None


@dataclass
class _ArchiveFolder:
    """A folder inside an archive."""

    archive: ZipArchive | TarArchive
    at: str

    cheap = True

    @property
    def name(self) -> str:
        return printable(self.at.rpartition("/")[2]) or self.archive.name

    @property
    def label(self) -> str:
        return self.archive.below(self.at)

    def below(self, path: str) -> str:
        return self.archive.below("/".join(part for part in (self.at, path) if part))

    def close(self) -> None:
        self.archive.close()

    def listing(self) -> Listing:
        listing = self.archive.listing(self.at)
        if not self.at:
            return listing
        for file in listing.files:
            if file.at == self.at:
                raise _IsFile(file, listing)
        return listing.under(self.at)


class _IsFile(Exception):  # noqa: N818 - not an error
    """The place is a file, not a folder."""

    def __init__(self, file: Found, listing: Listing) -> None:
        super().__init__()
        self.found = file
        self.listing = listing


def runs(source: Source, options: OpenOptions | None = None) -> list[RunFiles]:
    """The runs at a place, newest first, without reading them.

    Raises
    ------
    ReadError
        The place does not exist, or may not be read.
    """
    return _runs(source, options or OpenOptions())[0]


def survey(source: Source, options: OpenOptions) -> tuple[list[RunFiles], Callable[[], ReadError]]:
    """The runs at a place as in `runs`, and a function that creates the error for no runs, without
    another search.

    Raises
    ------
    ReadError
        As in `runs`.
    """
    return _runs(source, options)


def find(
    source: Source, run: str | int | None = None, options: OpenOptions | None = None
) -> RunFiles:
    """The run to read at a place.

    Parameters
    ----------
    source : path, URL, several of them, or RunFiles
    run : str or int, optional
        Its name or the beginning of it; or its index, newest first: 0 the newest, -1 the oldest. By
        default the newest.
    options : OpenOptions, optional

    Raises
    ------
    ReadError
        The place does not exist, contains no profile, or no run has that name; the message says
        what was searched for, and what there is.
    """
    options = options or OpenOptions()
    if isinstance(source, RunFiles):
        return resolve(source, options.limit_bytes)
    candidates, nothing = _runs(source, options)
    if not candidates:
        raise nothing()
    if run is None:
        return resolve(_newest(candidates), options.limit_bytes)
    return resolve(choose(candidates, run, _label(source)), options.limit_bytes)


def _newest(candidates: list[RunFiles]) -> RunFiles:
    """The first of the sorted runs, with a line for its receipt about the choice."""
    newest = candidates[0]
    if len(candidates) == 1:
        return newest
    dated = all(run.dated for run in candidates)
    note = notes.newest_run(newest.name, len(candidates), dated=dated)
    return replace(newest, newest_of=len(candidates), notes=(note, *newest.notes))


def _runs(source: Source, options: OpenOptions) -> tuple[list[RunFiles], Callable[[], ReadError]]:
    """The runs, and a function that creates the error for no runs."""
    if _is_several(source):
        joined = _joined([find(part, None, options) for part in source])
        return [joined], lambda: ReadError("no file was given.")
    location = _open_source(source, options)
    if not hasattr(location, "listing"):
        head = head_of(location)
        kind = recognise(head, location.name)
        if kind.format != "archive":
            return _named(location, head)
        location = _ArchiveFolder(_archive(location, kind, options), "")
    folder = cast(Folder, location)
    try:
        return _below(folder)
    finally:
        folder.close()


def _below(folder: Folder) -> tuple[list[RunFiles], Callable[[], ReadError]]:
    try:
        listing = folder.listing()
    except _IsFile as is_file:
        file = is_file.found.file
        head = head_of(file)
        if recognise(head, file.name).format == "archive":
            raise ReadError(
                "archives inside archives are not opened. Unpack the outer one, and load this one.",
                path=file.label,
            ) from None
        sidecar = None
        for other in is_file.listing.files:
            if other.promise == BESIDE and other.parent == is_file.found.parent:
                sidecar = sidecar or other.file
        return _named(file, head, sidecar)
    sidecars = [f for f in listing.files if f.promise == BESIDE]
    runs_here = detect.runs(detect.candidates(folder, listing), sidecars, folder.name, folder.below)
    runs_here = _with_unread(runs_here, folder, listing)
    notes_by_folder = _notes_by_folder(folder, listing)
    unexported: list[str] = []
    written = {f.parent: f.file for f in sidecars}
    for recordings, claim in listing.claims.items():
        if not claim.sign:
            continue
        folder_runs, more = recordings.runs_at(folder, claim, written)
        unexported += more
        if folder_runs:
            # A timeline file next to the tables is part of the same run.
            labels = {file.label for run in folder_runs for file in run.files}
            other_runs = [run for run in runs_here if not _all_in(run, labels)]
            runs_here = sorted(
                other_runs + folder_runs, key=lambda run: (run.modified, run.name), reverse=True
            )
    with_notes = []
    for run in runs_here:
        about_folder = notes_by_folder.get(str(run.folder), [])
        about_unfinished = _unfinished(run, listing.unfinished)
        notes_on_run = (*run.notes, *about_folder, *listing.doubts, *about_unfinished)
        with_notes.append(replace(run, notes=notes_on_run))
    return with_notes, lambda: _nothing(folder, listing, unexported)


def _all_in(run: RunFiles, labels: set[str]) -> bool:
    return all(file.label in labels for file in run.files)


def _with_unread(found_runs: list[RunFiles], folder: Folder, listing: Listing) -> list[RunFiles]:
    """The runs with their unread files: files that are missing from them because they cannot be
    read. Other files with names of traces become notes of the listing.
    """
    by_folder: dict[str, list[int]] = {}
    for i, run in enumerate(found_runs):
        by_folder.setdefault(str(run.folder), []).append(i)
    refused_in: dict[str, list[Refused]] = {}
    for refused_file in listing.refused:
        refused_in.setdefault(refused_file.file.parent, []).append(refused_file)
    unread: dict[int, list[Missing]] = {}
    for parent, refused in refused_in.items():
        runs_here = by_folder.get(str(folder.below(parent)), [])
        # Each file is compared with each run of the folder. A job with a few damaged files does not
        # have very many of both.
        compared = len(refused) * len(runs_here) <= _MOST_COMPARED
        for file, note, named in refused:
            name = file.file.name
            lacking = []
            if compared:
                lacking = [i for i in runs_here if detect.lacks(found_runs[i], name)]
            reason = f"It {note.text.removeprefix(printable(file.at)).strip()}"
            for i in lacking:
                unread.setdefault(i, []).append(Missing(name, reason))
            if named and not lacking:
                listing.notes.append((parent, note))
    runs_with_unread = list(found_runs)
    for i, missing in unread.items():
        run = found_runs[i]
        runs_with_unread[i] = replace(run, unread=(*run.unread, *missing))
    return runs_with_unread


def _notes_by_folder(folder: Folder, listing: Listing) -> dict[str, list[Note]]:
    """The notes of a listing by their folder, with a limit per folder."""
    by_path: dict[str, list[Note]] = {}
    for path, note in listing.notes:
        by_path.setdefault(path, []).append(note)
    by_folder: dict[str, list[Note]] = {}
    for path, notes_here in by_path.items():
        limited = by_folder.setdefault(str(folder.below(path)), [])
        limited += notes_here[:_MOST_NOTES]
        more = len(notes_here) - _MOST_NOTES
        if more > 0:
            limited.append(notes.more_not_read(more))
    return by_folder


def _named(
    file: SourceFile, head: bytes, sidecar: SourceFile | None = None
) -> tuple[list[RunFiles], Callable[[], ReadError]]:
    """The run of a file that was named, or the error if it is not a profile."""
    try:
        run = _of_file(file, kind_of(file, head))
    except ReadError as error:
        no_profile = error
        return [], lambda: no_profile
    if sidecar is not None:
        run = replace(run, sidecar=sidecar)
    return [run], lambda: ReadError("")


def _is_several(source: Source) -> bool:
    return (
        isinstance(source, Iterable)
        and not isinstance(source, (str, bytes, os.PathLike))
        and not hasattr(source, "fs")
    )


def _joined(parts: list[RunFiles]) -> RunFiles:
    """One run of files that were named one by one, as its hosts."""
    if not parts:
        raise ReadError("no files were given: the list is empty.")
    formats = {part.format for part in parts}
    labels = [form.label for form in register.FORMATS if form.name in formats]
    if len(labels) > 1:
        odd = next(part for part in parts if part.format != parts[0].format)
        raise ReadError(
            f"the files have different formats: {' and '.join(labels)} cannot be one run. Load them"
            " separately.",
            path=odd.files[0].label,
        )
    folders = {str(part.folder) for part in parts}
    first = parts[0]
    if len(parts) == 1:
        return first
    name = ""
    if len(folders) == 1:
        name = printable(Path(first.folder).name)
    return RunFiles(
        name or first.name,
        first.folder,
        tuple(itertools.chain.from_iterable(part.files for part in parts)),
        max(part.modified for part in parts),
        first.format,
        _distinct(part.notes for part in parts),
        sidecar=first.sidecar,
        copies=_distinct(part.copies for part in parts),
        unread=_distinct(part.unread for part in parts),
    )


def _distinct(lists: Iterable[Iterable[T]]) -> tuple[T, ...]:
    """The items of all lists, each once."""
    return tuple(dict.fromkeys(itertools.chain.from_iterable(lists)))


def _label(source: Source) -> str:
    text = os.fsdecode(source) if isinstance(source, (str, bytes, os.PathLike)) else str(source)
    return public_url(text) if is_url(text) else printable(text)


def _open_source(source: Source, options: OpenOptions) -> SourceFile | Folder:
    """The file or folder at a path or URL."""
    if hasattr(source, "fs") and hasattr(source, "path") and not isinstance(source, (str, Path)):
        protocol = getattr(source, "protocol", None)
        if protocol not in ("", "file", "local"):
            from nbprof.sources.remote import Storage

            return _remote(
                Storage(
                    source.fs, str(getattr(source, "full_name", source)), options.storage_options
                ),
                str(source.path),
                options,
            )
        source = str(source.path)
    if not isinstance(source, (str, bytes, os.PathLike)):
        raise TypeError(f"expected a path, a URL or a list of them, not {type(source).__name__}")
    text = os.fsdecode(source)
    if not text.strip():
        raise ReadError("the path is empty.")
    if is_url(text) and not ("::" in text and os.path.lexists(text)):
        return _at_url(text, options)
    return _at_path(text, options)


def _at_path(text: str, options: OpenOptions) -> SourceFile | Folder:
    try:
        path = Path(text).expanduser()
        mode = state_of(path, options.confinement).st_mode
    except RuntimeError:
        raise ReadError("there is no home folder for this user.", path=printable(text)) from None
    except (FileNotFoundError, NotADirectoryError) as error:
        if "!/" in text:
            outer, _, inner = text.partition("!/")
            return _folder_in_archive(_at_path(outer, options), inner, options)
        raise _not_there(error, path, options.confinement) from None
    except (OSError, ValueError) as error:
        raise could_not_open(error, Path(text)) from None
    if stat.S_ISDIR(mode):
        budget = None
        if options.budget is not None:
            budget = options.budget()
        return LocalFolder(path, options.confinement, budget)
    if not stat.S_ISREG(mode):
        raise no_file(mode, printable(text))
    return LocalFile(path, confinement=options.confinement)


def _not_there(error: OSError, path: Path, confinement: Confinement | None) -> ReadError:
    reason = could_not_open(error, path)
    try:
        if path.is_symlink():
            return reason
        with scan(path.parent, confinement) as entries:
            near = difflib.get_close_matches(path.name, [entry.name for entry in entries], 1, 0.75)
    except OSError:
        near = []
    if not near:
        return reason
    return ReadError(f"{reason.reason} Did you mean {printable(near[0])}?", path=reason.path)


def _at_url(text: str, options: OpenOptions) -> SourceFile | Folder:
    chained = re.match(r"^(zip|tar)://(.*?)::(.+)$", text, re.DOTALL) or re.match(
        r"^(zip|tar)()::(.+)$", text, re.DOTALL
    )
    if chained:
        return _folder_in_archive(_open_source(chained[3], options), chained[2], options)
    if re.match(r"^(file|local)://", text):
        # As written, or with the escapes of a URL (%20) decoded.
        bare = text.partition("://")[2]
        if text.startswith("file://localhost/"):
            bare = urlsplit(text).path
        if os.name == "nt":
            bare = re.sub(r"^/([A-Za-z]:)", r"\1", bare)
        if not os.path.lexists(bare):
            bare = unquote(bare)
        return _at_path(bare, options)
    from nbprof.sources.remote import connect

    outer, mark, inner = text.partition("!/")
    storage, path = connect(outer, options.storage_options)
    location = _remote(storage, path, options)
    if mark:
        return _folder_in_archive(location, inner, options)
    return location


def _remote(storage: Storage, path: str, options: OpenOptions) -> SourceFile | Folder:
    from nbprof.sources.remote import RemoteFile, RemoteFolder

    folder = RemoteFolder(storage, path, options.limit_bytes, options.progress)
    if storage.http and path.endswith("/"):
        return folder
    with storage.errors(storage.label(path)):
        storage.fs.invalidate_cache()
        info = storage.fs.info(path)
    if info.get("type") == "directory":
        return folder
    file = RemoteFile(storage, path, info, options.limit_bytes, options.progress)
    # A web server returns a page for a folder; there is no other sign.
    if (
        storage.http
        and info.get("mimetype") == "text/html"
        and recognise(file.head(512)).what == "an HTML page"
    ):
        with storage.errors(storage.label(path)):
            below = path.rstrip("/") + "/"
            names = [str(entry["name"]) for entry in storage.fs.ls(below)]
            if any(name.startswith(below) for name in names):
                return folder
    return file


def _archive(file: SourceFile, kind: Kind, options: OpenOptions) -> ZipArchive | TarArchive:
    from nbprof.sources.archives import TarArchive, ZipArchive

    if kind.what == "a zip archive":
        return ZipArchive(file, options.limit_bytes, options.progress)
    return TarArchive(file, kind.packed, options.limit_bytes, options.progress)


def _folder_in_archive(outer: SourceFile | Folder, inner: str, options: OpenOptions) -> Folder:
    if hasattr(outer, "listing"):
        raise ReadError("this is a folder, not an archive.", path=outer.label)
    kind = recognise(outer.head(HEAD), outer.name)
    if kind.format != "archive":
        raise ReadError(f"this is {kind.what}, not a zip or tar archive.", path=outer.label)
    return _ArchiveFolder(
        _archive(outer, kind, options),
        "/".join(part for part in inner.split("/") if part not in ("", ".", "..")),
    )


def _of_file(file: SourceFile, kind: Kind) -> RunFiles:
    """The run of a single file."""
    folder: Path | str
    sidecar: SourceFile | None = None
    if isinstance(file, LocalFile):
        folder = file.path.parent
        sidecar = file.sibling(SIDECAR) if (folder / SIDECAR).is_file() else None
    elif (archive := getattr(file, "archive", None)) is not None:
        folder = archive.below(file.at.rpartition("/")[0])  # type: ignore[attr-defined]
    else:
        folder = file.label.rpartition("/")[0]
    member = Member(file, kind, register.stem(file.name))
    return RunFiles(
        member.stem,
        folder,
        (file,),
        file.modified,
        kind.format,
        register.by_name(kind.format).notes(member),
        sidecar=sidecar,
    )


def _unfinished(run: RunFiles, recordings: list[Unfinished]) -> list[Note]:
    """Notes on later unfinished recordings in the logdir of a run; a warning if it is one."""
    about: list[Note] = []
    for recording in recordings:
        if Path(run.folder).is_relative_to(recording.folder):
            about.append(notes.unfinished("warning", recording.sentence))
        elif recording.started > run.modified:
            about.append(notes.unfinished("info", recording.sentence))
    return about


def _nothing(folder: Folder, listing: Listing, unread: list[str]) -> ReadError:
    """The error for a place without a profile: what nbprof searched for, and what there is."""
    kind, how = "folder", "pass its path to load its contents"
    if isinstance(folder, _ArchiveFolder):
        kind, how = "archive", "unpack the outer one first"
    if (recordings := listing.claimed) is not None:
        return recordings.nothing(folder, unread)
    suffixes = [form.suffixes[0] for form in register.FORMATS if form.names is not None]
    patterns = " and ".join(f"*{suffix}" for suffix in suffixes)
    sentences = [
        f"there is no profile in this {kind}.",
        f"nbprof looks for {patterns} in it and its subfolders, where TensorBoard keeps them:",
        f"<logdir>/plugins/profile/<run>/<host>{suffixes[0]}.",
    ]
    top = sorted(printable(name) for name in listing.top)
    if listing.archives:
        sentences.append(
            f"It holds {join_some(sorted(map(printable, listing.archives)), 3)}, an archive: {how}."
        )
    elif not top:
        sentences.append(f"The {kind} is empty: was the profiler stopped without an error?")
    else:
        sentences.append(f"It holds {join_some(top, 5)}.")
    sentences[1:1] = [recording.sentence for recording in listing.unfinished]
    about_files = listing.doubts + [note for _, note in listing.notes]
    sentences += [note.text for note in about_files[:3]]
    return ReadError(" ".join(sentences), path=folder.label)
