"""Which file of the disk a path of the file browser means, and whether it may be opened."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from nbprof.core.confinement import ConfinedError, Confinement, real_path
from nbprof.core.errors import ReadError
from nbprof.core.units import size_text

SERVED = "the folder that Jupyter serves"


class RefusedError(ReadError):
    """A request that is not answered; `status` is the one of HTTP, the text says what to do
    instead.
    """

    def __init__(self, status: int, message: str, *, path: str = "") -> None:
        super().__init__(message, path=path)
        self.status = status


@dataclass(frozen=True)
class Place:
    """A file or a run folder that may be opened.

    Attributes
    ----------
    shown : str
        As the file browser calls it.
    real : Path
        On the disk, without links.
    root : Path or None
        The folder that everything that is read must be in; None where links may lead out of it.
    bytes : int
    version : str
        Another one when the file has changed. A folder has none before one of its runs is chosen.
    folder : bool
    hidden : bool
        Whether names in the root that begin with a dot may be read.
    run : str
        Name of the run of a folder.
    before : Place or None
        The run that this one is compared with.
    scheduler : str
        Address of the Dask scheduler whose workers read the files of many hosts; empty where the
        server does.
    """

    shown: str
    real: Path
    root: Path | None
    bytes: int
    version: str
    folder: bool = False
    hidden: bool = True
    run: str = ""
    before: Place | None = None
    scheduler: str = ""


def resolve(
    root: str,
    path: str,
    *,
    follow_links: bool = False,
    hidden: bool = False,
    largest: int | None = None,
) -> Place:
    """The place that a path of the file browser means.

    Parameters
    ----------
    root : str
        The folder that Jupyter serves.
    path : str
        Below it, with slashes.
    follow_links : bool
        Whether links may lead out of the root.
    hidden : bool
        Whether names that begin with a dot may be opened.
    largest : int, optional
        Bytes.

    Raises
    ------
    RefusedError
        It is outside of the root, hidden, not there, neither file nor folder, or too large.
    """
    browser_path, top, real = locate(root, path, follow_links=follow_links, hidden=hidden)
    confined = None if follow_links else top
    confinement = confinement_of(confined, hidden=hidden)
    try:
        now = real.stat() if confinement is None else confinement.stat(real)
    except (OSError, ValueError) as error:
        raise could_not(error, browser_path) from None
    if not stat.S_ISREG(now.st_mode) and not stat.S_ISDIR(now.st_mode):
        raise RefusedError(422, "it is neither a file nor a folder.", path=browser_path)
    if stat.S_ISDIR(now.st_mode):
        return Place(browser_path, real, confined, 0, "", folder=True, hidden=hidden)
    if largest is not None and now.st_size > largest:
        raise too_large(browser_path, now.st_size, largest)
    state = (str(real), now.st_size, now.st_mtime_ns, now.st_ino)
    version = hashlib.sha256(repr(state).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return Place(browser_path, real, confined, now.st_size, version, hidden=hidden)


def confinement_of(root: Path | None, *, hidden: bool) -> Confinement | None:
    """What holds everything that is opened in the root; None where links may lead out of it."""
    return None if root is None else Confinement((str(root),), hidden, SERVED)


def too_large(browser_path: str, count: int, largest: int) -> RefusedError:
    """The refusal of what has more bytes than the option allows."""
    return RefusedError(
        413,
        f"it has {size_text(count)}, and the server opens up to {size_text(largest)}. "
        "Load it in a notebook with nbprof.load, or raise c.NbprofServer.largest.",
        path=browser_path,
    )


def locate(
    root: str, path: str, *, follow_links: bool = False, hidden: bool = False, top_too: bool = False
) -> tuple[str, Path, Path]:
    """Where a path of the file browser leads: as the browser calls it, the root without links, and
    the place without links.

    With `top_too`, the empty path is the root itself. The other parameters are those of `resolve`.

    Raises
    ------
    RefusedError
        It is outside of the root, or hidden.
    """
    parts = [part for part in path.split("/") if part]
    browser_path = "/".join(parts)
    # A backslash or a drive would have a meaning of its own on Windows.
    foreign = not nameable(path) or (
        os.name == "nt" and any(set(part) & set('\\:*?"<>|') for part in parts)
    )
    if not (parts or top_too) or foreign or any(part in (".", "..") for part in parts):
        raise RefusedError(
            404,
            "this path is not below the folder that Jupyter serves. Open a profile from the file"
            " browser.",
            path=browser_path,
        )
    if not hidden and any(part.startswith(".") for part in parts):
        raise RefusedError(
            404,
            "it is hidden, or in a hidden folder: Jupyter does not open names that start with a"
            " dot.",
            path=browser_path,
        )
    try:
        top = Path(real_path(Path(root).expanduser()))
        real = Path(real_path(top.joinpath(*parts)))
    except (OSError, ValueError) as error:
        raise could_not(error, browser_path) from None
    if not follow_links and not inside(real, top):
        raise RefusedError(
            403,
            "it is, or is inside, a link that points outside the folder that Jupyter serves. Copy"
            " the profile, or set c.NbprofServer.follow_links = True in jupyter_server_config.py.",
            path=browser_path,
        )
    # A link to a hidden place inside the root does not make it visible.
    if (
        not hidden
        and inside(real, top)
        and any(part.startswith(".") for part in real.relative_to(top).parts)
    ):
        raise RefusedError(
            404,
            "it points to a hidden file: Jupyter does not open names that start with a dot.",
            path=browser_path,
        )
    return browser_path, top, real


def nameable(text: str) -> bool:
    """Whether the system could have a file of that name; JSON can bring what it could not."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def reaches(target: Path, top: Path, *, follow_links: bool, hidden: bool) -> bool:
    """Whether a link may be followed to a place without links: it neither leads out of the root,
    nor to something hidden in it.
    """
    if not inside(target, top):
        return follow_links
    return hidden or not any(part.startswith(".") for part in target.relative_to(top).parts)


def inside(path: Path, root: Path) -> bool:
    """Whether a path without links is a folder or lies in it."""
    return path == root or root in path.parents


def could_not(error: Exception, browser_path: str) -> RefusedError:
    """The refusal of what the system did not open."""
    if isinstance(error, FileNotFoundError):
        return RefusedError(
            404,
            "the file no longer exists. Was it moved or deleted? Open it from its new location.",
            path=browser_path,
        )
    if isinstance(error, ConfinedError):
        return RefusedError(403, f"{error.strerror}.", path=browser_path)
    if isinstance(error, PermissionError):
        return RefusedError(
            403, "the server may not read it. Change its permissions.", path=browser_path
        )
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return RefusedError(422, f"it cannot be opened ({reason}).", path=browser_path)
