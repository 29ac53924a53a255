"""Everything that belongs to a run, so that it is renamed, deleted and downloaded together.

What waits for disks here is called on threads.
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

from nbprof.core.confinement import ConfinedError, Confinement, real_path, scan
from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.core.sidecar import SIDECAR
from nbprof.formats.register import by_name, stem
from nbprof.server.found import OnDisk
from nbprof.server.paths import RefusedError, confinement_of, could_not, locate, nameable, reaches
from nbprof.server.runs import Search, is_run_folder
from nbprof.sources.folders import BESIDE, NAMED, promised

BLOCK = 1 << 20
"""Bytes that are read at a time."""

# What TensorBoard, XProf and old TensorFlow write beside a profile, and the snapshot of PyTorch's
# allocator.
_TABLE = re.compile(
    r"\.(memory_profile\.json|input_pipeline\.pb|overview_page\.pb|kernel_stats\.pb|tensorflow_stats\.pb|op_stats(_v\d+)?\.pb|hlo_proto\.pb"
    r"|SSTABLE|memory_snapshot\.pickle)(\.gz)?$",
)
_BESIDE = re.compile(
    r"(\.(pb|json|SSTABLE)(\.(gz|bz2|xz))?|^cache_version\.txt|\.perfetto-trace|\.memory_snapshot\.pickle)$"
)
"""The same in a folder that is for one run alone, where their names may be any."""
_RUBBISH = {".ipynb_checkpoints", ".DS_Store"}
_MOST_NAME = 200
_PACKED = re.compile(r"\.(gz|bz2|xz|zip)$", re.IGNORECASE)


@dataclass(frozen=True)
class Whole:
    """A run with all its files.

    Attributes
    ----------
    path : str
        As the file browser calls the file, or the folder.
    real : Path
    home : Path
        The folder that the path is in, on the disk.
    confinement : Confinement or None
        What holds everything that is read in the folder that Jupyter serves; None where links may
        lead out of it.
    folder : bool
    names : tuple of str
        Of the files that belong to it, in the folder or beside the file.
    alone : bool
        A folder that holds nothing else.
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
        """The folder that its files are in, as the file browser calls it."""
        return self.path if self.folder else self.path.rpartition("/")[0]

    @property
    def paths(self) -> list[str]:
        """Its files, as the file browser calls them."""
        return [f"{self.parent}/{name}" if self.parent else name for name in self.names]


def whole(
    root: str,
    path: str,
    *,
    follow_links: bool = False,
    hidden: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Whole:
    """The run that a path of the file browser means, with all that belongs to it; `stop` says
    whether nobody waits any more.

    Raises
    ------
    RefusedError
        The path may not be opened, or it is no run.
    """
    browser_path, top, real = locate(root, path, follow_links=follow_links, hidden=hidden)
    try:
        confinement = confinement_of(None if follow_links else top, hidden=hidden)
        now = real.stat() if confinement is None else confinement.stat(real)
        search = Search(top, hidden=hidden, follow_links=follow_links, stop=stop)
        runs = [
            result
            for result in search.below(browser_path, real)
            if isinstance(result, OnDisk) and result.path == browser_path
        ]
        if not runs and not search.complete:
            raise RefusedError(
                422,
                "there are too many files below it to determine which belong to the run. Use the"
                " file browser.",
                path=browser_path,
            )
        if not runs:
            raise RefusedError(
                422,
                "it is not a run: neither a profile nor a folder with the files of one. Use the"
                " file browser.",
                path=browser_path,
            )
        home = Path(real_path(top / browser_path.rpartition("/")[0]))
        if stat.S_ISDIR(now.st_mode):
            hosts = {file.name for file in runs[0].files}
            names, alone = _in_folder(
                real, hosts, confinement, lambda link: _reaches(link, top, follow_links, hidden)
            )
            if by_name(runs[0].format).recordings is None:
                # Ranks may be in folders of their own.
                names += [
                    file.relative_to(real).as_posix()
                    for file in runs[0].files
                    if file.parent.parent == real
                ]
            return Whole(browser_path, real, home, confinement, True, tuple(names), alone)
        return Whole(
            browser_path,
            real,
            home,
            confinement,
            False,
            tuple(_beside(runs[0].files[0], confinement)),
            False,
        )
    except (OSError, ValueError) as error:
        raise could_not(error, browser_path) from None


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
                or (_BESIDE if for_one_run else _TABLE).search(entry.name)
            )
            if not belongs or entry.name.startswith(".") or not entry.is_file():
                alone = alone and entry.name in _RUBBISH
            elif entry.is_symlink() and not may(folder / entry.name):
                alone = False
            else:
                names.append(entry.name)
    return names, alone


def _beside(file: Path, confinement: Confinement | None) -> list[str]:
    """The file, and what is the same recording beside it: JSON that JAX exports, tables, and the
    sidecar where no other file needs it.
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


def renamed(run: Whole, name: object) -> list[tuple[str, str]]:
    """The paths of what is moved and where to, the run itself first.

    Parameters
    ----------
    run : Whole
    name : str
        Of the folder, or of the file; the suffixes of a file stay.

    Raises
    ------
    RefusedError
        It is no name of a file, or is taken.
    """
    new_name = _name(name, run.path)
    above = run.path.rpartition("/")[0]
    if run.folder:
        moves = [(run.path, f"{above}/{new_name}" if above else new_name)]
    else:
        old = run.names[0]
        base = stem(old)
        new_name = (
            stem(new_name)
            if new_name != stem(new_name) and new_name.endswith(old[len(base) :])
            else new_name
        )
        pairs = [(each, new_name + each[len(base) :]) for each in run.names if each != SIDECAR]
        moves = [(f"{above}/{a}" if above else a, f"{above}/{b}" if above else b) for a, b in pairs]
    for before, after in moves:
        # Another case of the same letters may be the same file; what may not is for Jupyter to see.
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
    """The bytes of a file, some at a time.

    Raises
    ------
    ReadError, OSError
        It cannot be read, or has become a link that leads out of the folder that Jupyter serves.
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


def zipped(run: Whole) -> Iterator[bytes]:
    """The files of a folder as a zip archive, some bytes at a time.

    Raises
    ------
    ReadError, OSError
        As `blocks`.
    """
    stream = _Out()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:  # type: ignore[call-overload]
        for name in run.names:
            file = run.real / name
            info = _entry(
                f"{run.real.name}/{name}", LocalFile(file, confinement=run.confinement).stat()
            )
            # A profile that is still being written may grow past 4 GB.
            with archive.open(info, "w", force_zip64=True) as entry:
                for block in blocks(file, run.confinement):
                    entry.write(block)
                    yield stream.taken()
    yield stream.taken()


def _entry(name: str, state: os.stat_result) -> zipfile.ZipInfo:
    """What an archive says of a file in this state; `ZipInfo.from_file` would ask its path, which
    may have become a link.
    """
    times = time.localtime(state.st_mtime)[:6]
    # The format has no other years.
    info = zipfile.ZipInfo(name, min(max(times, (1980, 1, 1, 0, 0, 0)), (2107, 12, 31, 23, 59, 58)))
    info.external_attr = (state.st_mode & 0xFFFF) << 16
    info.file_size = state.st_size
    info.compress_type = zipfile.ZIP_STORED if _PACKED.search(name) else zipfile.ZIP_DEFLATED
    return info


class _Out:
    """What an archive is written to: it cannot be sought, so sizes come behind the files."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Takes some bytes."""
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def taken(self) -> bytes:
        """What has come since."""
        parts, self._parts = self._parts, []
        return b"".join(parts)
