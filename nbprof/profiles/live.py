"""Which profile does an output show? The runs that a page may ask about, by a key that a saved
output carries.

An output that was saved holds the longest events. When it is looked at again it may have all of
them: the run is still in this kernel, or its files are there, where the output says or where they
were last read from. They count as the same if their key is: sizes, names, and the bytes at sixteen
places of each file. Nothing is ever asked of another machine for it.
"""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from collections import OrderedDict
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from nbprof.core.errors import NbprofError, ReadError
from nbprof.run.cache.folder import Folder, enabled, location
from nbprof.run.source import local_files
from nbprof.sources.fingerprint import fingerprint
from nbprof.sources.locate import Ways, find

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_SHOWN = 3
"""Runs that stay in memory only because an output shows them."""

MOST_EVENTS = 20_000_000
"""How many events these may have together; the last one always stays."""

MOST_FILES = 256
MOST_PATH = 1000

_KEY = re.compile(r"[0-9a-f]{1,16}-[0-9a-f]{32,40}")
# A file that nobody asked to open may unpack to this many times its size, which no trace needs and
# every bomb does.
_MOST_PACKED = 64
_LEAST_LIMIT = 1 << 26

_NOT_HERE = (
    "This kernel does not have the profile, and its file has been moved or deleted, so the saved"
    " view is shown. Load the profile with nbprof.load(...) to see every event here."
)


def files(run: Run) -> list[str]:
    """The files of a run as paths below the working directory; none where one is elsewhere: an
    absolute path tells of its owner.
    """
    out = []
    try:
        here = Path.cwd().resolve()
        for path, _, _ in run.source.local:
            out.append(path.resolve().relative_to(here).as_posix())
    except (OSError, ValueError, RuntimeError):
        return []
    return out if len(out) <= MOST_FILES and all(0 < len(path) <= MOST_PATH for path in out) else []


def inside(given: object) -> list[Path]:
    """The files that a saved output names, if each is an ordinary file in the working directory or
    below it; else none.

    The output may be anybody's: a path that leaves the directory, by its parts or by a link, is not
    looked at.
    """
    if not isinstance(given, list) or not 0 < len(given) <= MOST_FILES:
        return []
    out = []
    try:
        here = Path.cwd().resolve()
        for text in given:
            if (
                not isinstance(text, str)
                or not 0 < len(text) <= MOST_PATH
                or "\0" in text
                or "://" in text
            ):
                return []
            parts = {*PurePosixPath(text).parts, *PureWindowsPath(text).parts}
            # The anchor of "//server/share" would be asked over the network as soon as it is looked
            # at.
            if (
                PureWindowsPath(text).anchor
                or PurePosixPath(text).anchor
                or ".." in parts
                or "~" in parts
            ):
                return []
            path = (here / text).resolve()
            if not path.is_relative_to(here) or not path.is_file():
                return []
            out.append(path)
    except (OSError, ValueError, RuntimeError):
        return []
    return out


class Registry:
    """The runs of this kernel by their keys."""

    def __init__(self) -> None:
        self.holds = False
        """Whether runs stay in memory for the outputs that show them: only if a page can send
        requests.
        """
        self._lock = threading.RLock()
        self._opening = threading.Lock()
        self._shown: OrderedDict[str, Run] = OrderedDict()
        self._alive: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()
        self._others: list[weakref.ref[Run]] = []

    def note(self, run: Run) -> None:
        """A run was opened; it is found by its key as long as somebody has it."""
        with self._lock:
            self._others = [other for other in self._others if other() is not None]
            self._others.append(weakref.ref(run))

    def show(self, run: Run) -> str:
        """A run was shown: an output may ask for it as long as it is there. Returns its key."""
        known = run.source.content_key()
        with contextlib.suppress(TypeError):
            with self._lock:
                self._alive[known] = run
            self._use(known, run)
        if where := [str(path) for path, _, _ in run.source.local]:
            _remember(known, where, run.source.limit_bytes)
        return known

    def get(self, wanted: str) -> Run | None:
        """The run of a key, if it is in memory."""
        with self._lock:
            run = self._alive.get(wanted)
            for other in [] if run is not None else [o() for o in self._others]:
                if other is not None and other.source.content_key() == wanted:
                    run = self._alive[wanted] = other
        if run is not None:
            self._use(wanted, run)
        return run

    def others(self, run: Run) -> list[Run]:
        """The runs in memory besides this one, the one that was opened last first; of two with the
        same files, the later one.
        """
        with self._lock:
            noted = [other() for other in self._others]
            shown = list(self._alive.values())
        known = {run.source.content_key()}
        out = []
        for other in [*reversed(noted), *shown]:
            if other is not None and (key := other.source.content_key()) not in known:
                known.add(key)
                out.append(other)
        return out

    def open(self, wanted: object, given: object = None) -> Run:
        """The run of a key: in memory, or from the files that are `given` (below the working
        directory) or remembered.

        Raises
        ------
        NbprofError
            It is not to be had here.
        """
        if not isinstance(wanted, str) or not _KEY.fullmatch(wanted):
            raise NbprofError("This is not a profile key.")
        if (run := self.get(wanted)) is not None:
            return run
        # One after the other: two outputs of one profile would read it twice.
        with self._opening:
            if (run := self.get(wanted)) is not None:
                return run
            for paths, limit in ((inside(given), 0), _remembered(wanted)):
                if (
                    paths
                    and fingerprint(paths) == wanted
                    and (run := _read(paths, limit)) is not None
                    and run.source.content_key() == wanted
                ):
                    with self._lock:
                        self._alive[wanted] = run
                    self._use(wanted, run)
                    return run
        raise NbprofError(_NOT_HERE)

    def _use(self, known: str, run: Run) -> None:
        if not self.holds:
            return
        with self._lock:
            self._shown[known] = run
            self._shown.move_to_end(known)
            while len(self._shown) > 1 and (
                len(self._shown) > MOST_SHOWN or sum(map(_size, self._shown.values())) > MOST_EVENTS
            ):
                self._shown.popitem(last=False)


def _size(run: Run) -> int:
    return int(run.as_read.receipt.events)


def _read(paths: list[Path], limit: int) -> Run | None:
    """The run in these files; None where they hold none, or are an archive."""
    from nbprof.run.many import opened

    most = limit or max(_MOST_PACKED * sum(path.stat().st_size for path in paths), _LEAST_LIMIT)
    try:
        found = find(paths[0] if len(paths) == 1 else paths, ways=Ways(limit_bytes=most))
        if {path for path, _, _ in local_files(found.files)} != set(paths):
            return None
        return opened(found)
    except (ReadError, OSError):
        return None


def _remember(known: str, where: list[str], limit: int) -> None:
    if enabled():
        with contextlib.suppress(OSError, RuntimeError):
            Folder(location()).note(f"key-{known}", {"files": where, "limit_bytes": limit})


def _remembered(known: str) -> tuple[list[Path], int]:
    """Where the files of a key were when they were last shown on this machine, and what they may
    unpack to.
    """
    if not enabled():
        return [], 0
    with contextlib.suppress(OSError, RuntimeError):
        folder = Folder(location())
        noted: Any = folder.noted(f"key-{known}") if folder.owned() else None
        if (
            isinstance(noted, dict)
            and isinstance(where := noted.get("files"), list)
            and all(isinstance(path, str) for path in where)
        ):
            return [Path(path) for path in where], int(noted.get("limit_bytes") or 0)
    return [], 0


registry = Registry()
