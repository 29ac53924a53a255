"""All files of a run, which are renamed, deleted and downloaded together.

These functions wait for disks, so they are called on threads.
"""

from __future__ import annotations

import os
import re
import stat
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbprof.core.confinement import ConfinedError, Confinement, real_path, scan, state_of
from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.core.sidecar import SIDECAR
from nbprof.formats.register import by_name, stem
from nbprof.server.on_disk import OnDisk
from nbprof.server.paths import (
    RefusedError,
    confinement_of,
    could_not,
    join,
    locate,
    nameable,
    reaches,
)
from nbprof.server.runs import Search, is_run_folder
from nbprof.sources.folders import BESIDE, NAMED, promised

BLOCK = 1 << 20
"""Bytes that are read at a time."""

_TABLE = re.compile(
    r"\.(memory_profile\.json|input_pipeline\.pb|overview_page\.pb|kernel_stats\.pb"
    r"|tensorflow_stats\.pb|op_stats(_v\d+)?\.pb|hlo_proto\.pb"
    r"|SSTABLE|memory_snapshot\.pickle)(\.gz)?$",
)
"""Files that TensorBoard, XProf and old TensorFlow write next to a profile, and the snapshot of
PyTorch's allocator.
"""
_IN_RUN_FOLDER = re.compile(
    r"(\.(pb|json|SSTABLE)(\.(gz|bz2|xz))?|^cache_version\.txt|\.perfetto-trace"
    r"|\.memory_snapshot\.pickle)$"
)
"""Such files in a folder that is for one run only, with any names."""
_RUBBISH = {".ipynb_checkpoints", ".DS_Store"}
_MOST_NAME = 200
_PACKED = re.compile(r"\.(gz|bz2|xz|zip)$", re.IGNORECASE)


@dataclass(frozen=True)
class CompleteRun:
    """A run with all its files.

    Attributes
    ----------
    path : str
        Path of the file or folder in the file browser.
    real : Path
    home : Path
        The folder that the path is in, on the disk.
    confinement : Confinement or None
        Confines files to the folder that Jupyter serves; None if links may lead out of it.
    folder : bool
    names : tuple of str
        Names of its files, in the folder or next to the file.
    alone : bool
        It is a folder without other files.
    """

    path: str
    real: Path
    home: Path
    confinement: Confinement | None
    folder: bool
    names: tuple[str, ...]
    alone: bool

    @property
    def parent(self) -> str:
        """Path of the folder of its files in the file browser."""
        return self.path if self.folder else self.path.rpartition("/")[0]

    @property
    def paths(self) -> list[str]:
        """Paths of its files in the file browser."""
        return [join(self.parent, name) for name in self.names]


def complete_run(
    root: str,
    path: str,
    *,
    follow_links: bool = False,
    hidden: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> CompleteRun:
    """The run at a path of the file browser, with all its files; `stop` cancels the search.

    Raises
    ------
    RefusedError
        The path may not be opened, or is not a run.
    """
    browser_path, top, real = locate(root, path, follow_links=follow_links, hidden=hidden)
    try:
        confinement = confinement_of(None if follow_links else top, hidden=hidden)
        now = state_of(real, confinement)
        search = Search(top, hidden=hidden, follow_links=follow_links, stop=stop)
        results = search.below(browser_path, real)
        runs = [each for each in results if isinstance(each, OnDisk) and each.path == browser_path]
        if not runs:
            raise _not_a_run(browser_path, searched=search.complete)
        home = Path(real_path(top / browser_path.rpartition("/")[0]))
        if stat.S_ISDIR(now.st_mode):
            hosts = {file.name for file in runs[0].files}
            names, alone = _in_folder(
                real, hosts, confinement, lambda link: _reaches(link, top, follow_links, hidden)
            )
            if by_name(runs[0].format).recordings is None:
                # Each rank may have its folder.
                for file in runs[0].files:
                    if file.parent.parent == real:
                        names.append(file.relative_to(real).as_posix())
            return CompleteRun(browser_path, real, home, confinement, True, tuple(names), alone)
        names = _same_recording(runs[0].files[0], confinement)
        return CompleteRun(browser_path, real, home, confinement, False, tuple(names), False)
    except (OSError, ValueError) as error:
        raise could_not(error, browser_path) from None


def _not_a_run(path: str, *, searched: bool) -> RefusedError:
    if searched:
        text = (
            "it is not a run: neither a profile nor a folder with the files of one. Use the file"
            " browser."
        )
    else:
        text = (
            "there are too many files below it to determine which belong to the run. Use the file"
            " browser."
        )
    return RefusedError(422, text, path=path)


def _reaches(link: Path, top: Path, follow_links: bool, hidden: bool) -> bool:
    try:
        return reaches(Path(real_path(link)), top, follow_links=follow_links, hidden=hidden)
    except OSError:
        return False


def _in_folder(
    folder: Path, hosts: set[str], confinement: Confinement | None, may: Callable[[Path], bool]
) -> tuple[list[str], bool]:
    for_one_run, alone = is_run_folder(folder), True
    names = []
    with scan(folder, confinement) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            belongs = (
                entry.name in hosts
                or promised(entry.name) in (NAMED, BESIDE)
                or (_IN_RUN_FOLDER if for_one_run else _TABLE).search(entry.name)
            )
            if not belongs or entry.name.startswith(".") or not entry.is_file():
                alone = alone and entry.name in _RUBBISH
            elif entry.is_symlink() and not may(folder / entry.name):
                alone = False
            else:
                names.append(entry.name)
    return names, alone


def _same_recording(file: Path, confinement: Confinement | None) -> list[str]:
    """The file, and files of the same recording next to it: JSON that JAX exports, tables, and the
    sidecar if there is no other profile.
    """
    name = stem(file.name)
    names, has_other_profiles = [file.name], False
    with scan(file.parent, confinement) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.name == file.name or entry.is_symlink() or not entry.is_file():
                continue
            profile = promised(entry.name) == NAMED
            if entry.name.startswith(f"{name}.") and (
                (profile and stem(entry.name) == name) or _TABLE.search(entry.name)
            ):
                names.append(entry.name)
            else:
                has_other_profiles = has_other_profiles or profile
    if not has_other_profiles and (file.parent / SIDECAR).is_file():
        names.append(SIDECAR)
    return names


def renamed(run: CompleteRun, name: object) -> list[tuple[str, str]]:
    """Old and new paths of all files to move, the run itself first.

    Parameters
    ----------
    run : CompleteRun
    name : str
        New name of the folder or file; the suffixes of a file stay.

    Raises
    ------
    RefusedError
        The name is invalid or taken.
    """
    new_name = _name(name, run.path)
    above = run.path[: run.path.rfind("/") + 1]
    if run.folder:
        moves = [(run.path, above + new_name)]
    else:
        file = run.names[0]
        base = stem(file)
        suffix = file[len(base) :]
        if new_name != stem(new_name) and new_name.endswith(suffix):
            new_name = stem(new_name)
        moves = []
        for old in run.names:
            if old != SIDECAR:
                moves.append((above + old, above + new_name + old.removeprefix(base)))
    for before, after in moves:
        # Names that differ only in case may be the same file: Jupyter decides.
        if before.casefold() != after.casefold() and os.path.lexists(
            run.home / after.rpartition("/")[2]
        ):
            raise RefusedError(409, "this name is already taken. Choose another one.", path=after)
    return [move for move in moves if move[0] != move[1]]


def _name(name: object, path: str) -> str:
    text = name.strip() if isinstance(name, str) else ""
    if not nameable(text):
        raise RefusedError(400, "the name has characters that file names cannot have.", path=path)
    if not text or len(text) > _MOST_NAME or len(os.fsencode(text)) > _MOST_NAME:
        raise RefusedError(400, f"a name must have from 1 to {_MOST_NAME} characters.", path=path)
    if set(text) & set("/\\\0") or any(ord(c) < 32 for c in text):
        raise RefusedError(
            400,
            "a name cannot contain slashes or control characters: the run stays in its folder.",
            path=path,
        )
    if text.startswith(".") or text.endswith("."):
        raise RefusedError(
            400,
            "a name cannot start or end with a dot: the run would be hidden, or the name invalid.",
            path=path,
        )
    if set(text) & set(':*?"<>|'):
        raise RefusedError(
            400,
            'a name cannot contain : * ? " < > |, which Windows and zip archives do not allow.',
            path=path,
        )
    return text


def blocks(file: Path, confinement: Confinement | None) -> Iterator[bytes]:
    """The bytes of a file in blocks.

    Raises
    ------
    ReadError, OSError
        It cannot be read, or has become a link out of the folder that Jupyter serves.
    """
    if confinement is not None:
        try:
            confinement.check(file)
        except ConfinedError as error:
            raise could_not(error, file.name) from None
    with LocalFile(file, confinement=confinement).open() as opened:
        left = os.fstat(opened.fileno()).st_size
        while left:
            block = opened.read(min(BLOCK, left))
            if not block:
                raise ReadError("it was truncated while it was read.", path=file.name)
            left -= len(block)
            yield block


def zipped(run: CompleteRun) -> Iterator[bytes]:
    """The files of a folder as a zip archive in blocks.

    Raises
    ------
    ReadError, OSError
        As `blocks`.
    """
    stream = _Out()
    output: Any = stream
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in run.names:
            file = run.real / name
            info = _entry(
                f"{run.real.name}/{name}", LocalFile(file, confinement=run.confinement).stat()
            )
            # A profile that is being written may grow beyond 4 GB.
            with archive.open(info, "w", force_zip64=True) as entry:
                for block in blocks(file, run.confinement):
                    entry.write(block)
                    yield stream.taken()
    yield stream.taken()


def _entry(name: str, state: os.stat_result) -> zipfile.ZipInfo:
    """The entry of an archive for a file in this state. `ZipInfo.from_file` would use its path,
    which may have become a link.
    """
    times = time.localtime(state.st_mtime)[:6]
    # The format has no other years.
    info = zipfile.ZipInfo(name, min(max(times, (1980, 1, 1, 0, 0, 0)), (2107, 12, 31, 23, 59, 58)))
    info.external_attr = (state.st_mode & 0xFFFF) << 16
    info.file_size = state.st_size
    info.compress_type = zipfile.ZIP_STORED if _PACKED.search(name) else zipfile.ZIP_DEFLATED
    return info


class _Out:
    """The output of an archive. It is not seekable, so the archive has sizes after the files."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Store some bytes."""
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing."""

    def taken(self) -> bytes:
        """The bytes since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)
