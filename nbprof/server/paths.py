"""Resolution of paths of the file browser, and rules for opening them."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from nbprof.core.confinement import ConfinedError, Confinement, real_path, state_of
from nbprof.core.errors import ReadError
from nbprof.core.units import size_text

SERVED = "the folder that Jupyter serves"


class RefusedError(ReadError):
    """A refused request, with its HTTP status."""

    def __init__(self, status: int, message: str, *, path: str = "") -> None:
        super().__init__(message, path=path)
        self.status = status


@dataclass(frozen=True)
class Place:
    """A file or a run folder that may be opened.

    Attributes
    ----------
    browser_path : str
        Path in the file browser.
    real : Path
        Path on the disk, without links.
    root : Path or None
        The folder that all files must be in; None if links may lead out of it.
    bytes : int
    version : str
        Changes when the file changes. Empty for a folder before one of its runs is chosen.
    folder : bool
    hidden : bool
        Names in the root that begin with a dot may be read.
    run : str
        Name of the run of a folder.
    before : Place or None
        The run that this one is compared with.
    scheduler : str
        Address of the Dask scheduler whose workers read the files of many hosts; empty if the
        server reads them.
    """

    browser_path: str
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
    """The place at a path of the file browser.

    Parameters
    ----------
    root : str
        The folder that Jupyter serves.
    path : str
        Below the root, with slashes.
    follow_links : bool
        Links may lead out of the root.
    hidden : bool
        Names that begin with a dot may be opened.
    largest : int, optional
        Maximum size in bytes.

    Raises
    ------
    RefusedError
        It is outside of the root, hidden, missing, neither file nor folder, or too large.
    """
    browser_path, top, real = locate(root, path, follow_links=follow_links, hidden=hidden)
    confined = None if follow_links else top
    confinement = confinement_of(confined, hidden=hidden)
    try:
        now = state_of(real, confinement)
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
    """The confinement of opened files to the root; None if links may lead out of it."""
    return None if root is None else Confinement((str(root),), hidden, SERVED)


def too_large(browser_path: str, count: int, largest: int) -> RefusedError:
    """The error for a profile that is larger than the option allows."""
    return RefusedError(
        413,
        f"it has {size_text(count)}, and the server opens up to {size_text(largest)}. "
        "Load it in a notebook with nbprof.load, or raise c.NbprofServer.largest.",
        path=browser_path,
    )


def locate(
    root: str, path: str, *, follow_links: bool = False, hidden: bool = False, top_too: bool = False
) -> tuple[str, Path, Path]:
    """Normalized path of the file browser, the root without links, and the target without links.

    With `top_too`, the empty path is the root itself. The other parameters are those of `resolve`.

    Raises
    ------
    RefusedError
        It is outside of the root, or hidden.
    """
    parts = [part for part in path.split("/") if part]
    browser_path = "/".join(parts)
    # Backslashes and drives have a meaning on Windows.
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
    if not follow_links and not is_within(real, top):
        raise RefusedError(
            403,
            "it is, or is inside, a link that points outside the folder that Jupyter serves. Copy"
            " the profile, or set c.NbprofServer.follow_links = True in jupyter_server_config.py.",
            path=browser_path,
        )
    # A link to a hidden place inside the root does not make it visible.
    if (
        not hidden
        and is_within(real, top)
        and any(part.startswith(".") for part in real.relative_to(top).parts)
    ):
        raise RefusedError(
            404,
            "it points to a hidden file: Jupyter does not open names that start with a dot.",
            path=browser_path,
        )
    return browser_path, top, real


def nameable(text: str) -> bool:
    """True if the system can have a file of that name; JSON can contain other texts."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def reaches(target: Path, top: Path, *, follow_links: bool, hidden: bool) -> bool:
    """True if a link may be followed to `target`: it is in the root and not hidden, by default."""
    if not is_within(target, top):
        return follow_links
    return hidden or not any(part.startswith(".") for part in target.relative_to(top).parts)


def is_within(path: Path, root: Path) -> bool:
    """True if a path without links is a folder or is in it."""
    return path == root or root in path.parents


def join(folder: str, name: str) -> str:
    """A path of the file browser; either part may be empty."""
    return "/".join(filter(None, (folder, name)))


def could_not(error: Exception, browser_path: str) -> RefusedError:
    """The error for a file that the system did not open."""
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
    reason = getattr(error, "strerror", None) or str(error)
    return RefusedError(422, f"it cannot be opened ({reason}).", path=browser_path)
