"""The runs that pages may request data of, by the key in a saved output.

A saved output holds the longest events. When it is opened again, it can show all of them if the run
is still in this kernel, or if its files exist where the output says or where they were last read.
Files are the same if their key is: sizes, names, and the bytes at sixteen places of each file.
Nothing is ever requested from another machine for it.
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
from nbprof.sources.locate import OpenOptions, find

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_SHOWN = 3
"""Limit on runs that stay in memory only because an output shows them."""

MOST_EVENTS = 20_000_000
"""Limit on their events; the last one always stays."""

MOST_FILES = 256
MOST_PATH = 1000

_KEY = re.compile(r"[0-9a-f]{1,16}-[0-9a-f]{32,40}")
# Limits for files that the user did not open: decompression bombs unpack to more, traces do not.
_MOST_PACKED = 64
_LEAST_LIMIT = 1 << 26

_NOT_HERE = (
    "This kernel does not have the profile, and its file has been moved or deleted, so the saved"
    " view is shown. Load the profile with nbprof.load(...) to see every event here."
)


def files(run: Run) -> list[str]:
    """The files of a run as paths below the working directory.

    None if a file is elsewhere, as an absolute path would reveal the user.
    """
    paths = []
    try:
        here = Path.cwd().resolve()
        for path, _, _ in run.source.local:
            paths.append(path.resolve().relative_to(here).as_posix())
    except (OSError, ValueError, RuntimeError):
        return []
    if len(paths) > MOST_FILES or not all(0 < len(path) <= MOST_PATH for path in paths):
        return []
    return paths


def inside(labels: object) -> list[Path]:
    """The files that a saved output names, if all are ordinary files below the working directory.

    The output may come from anybody: paths that leave the directory, by their parts or by a link,
    are not accessed.
    """
    if not isinstance(labels, list) or not 0 < len(labels) <= MOST_FILES:
        return []
    paths = []
    try:
        here = Path.cwd().resolve()
        for text in labels:
            if not isinstance(text, str) or not _is_safe(text):
                return []
            path = (here / text).resolve()
            if not path.is_relative_to(here) or not path.is_file():
                return []
            paths.append(path)
    except (OSError, ValueError, RuntimeError):
        return []
    return paths


def _is_safe(text: str) -> bool:
    """A relative path that stays below the folder that it is relative to, on any platform."""
    if not 0 < len(text) <= MOST_PATH or "\0" in text or "://" in text:
        return False
    # Accessing an anchor such as "//server/share" would already use the network.
    if PureWindowsPath(text).anchor or PurePosixPath(text).anchor:
        return False
    parts = {*PurePosixPath(text).parts, *PureWindowsPath(text).parts}
    return not parts & {"..", "~"}


class Registry:
    """The runs of this kernel by their keys."""

    def __init__(self) -> None:
        self.holds = False
        """Runs stay in memory for the outputs that show them; only if pages can send requests."""
        self._lock = threading.RLock()
        self._opening = threading.Lock()
        self._in_outputs: OrderedDict[str, Run] = OrderedDict()
        self._alive: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()
        self._others: list[weakref.ref[Run]] = []

    def note(self, run: Run) -> None:
        """Registers a run that was opened, so that it is found by its key while it is in memory."""
        with self._lock:
            self._others = [other for other in self._others if other() is not None]
            self._others.append(weakref.ref(run))

    def show(self, run: Run) -> str:
        """Registers a run that an output shows, and returns its key."""
        key = run.source.content_key()
        with contextlib.suppress(TypeError):
            with self._lock:
                self._alive[key] = run
            self._use(key, run)
        paths = [str(path) for path, _, _ in run.source.local]
        if paths:
            _remember(key, paths, run.source.limit_bytes)
        return key

    def get(self, key: str) -> Run | None:
        """The run of a key, if it is in memory."""
        with self._lock:
            run = self._alive.get(key)
            if run is None:
                for reference in self._others:
                    other = reference()
                    if other is not None and other.source.content_key() == key:
                        run = self._alive[key] = other
        if run is not None:
            self._use(key, run)
        return run

    def others(self, run: Run) -> list[Run]:
        """Other runs in memory, the last opened first; of two with the same files, the later."""
        with self._lock:
            noted = [other() for other in self._others]
            alive = list(self._alive.values())
        keys = {run.source.content_key()}
        result = []
        for other in [*reversed(noted), *alive]:
            key = other.source.content_key() if other is not None else ""
            if other is not None and key not in keys:
                keys.add(key)
                result.append(other)
        return result

    def open(self, key: object, files: object = None) -> Run:
        """The run of a key, from memory or from its files.

        These are `files`, which must be below the working directory, or where they were last read.

        Raises
        ------
        NbprofError
            The run is not available.
        """
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise NbprofError("This is not a profile key.")
        run = self.get(key)
        if run is not None:
            return run
        # One after the other, as two outputs of one profile would read it twice.
        with self._opening:
            run = self.get(key)
            if run is not None:
                return run
            for paths, limit in ((inside(files), 0), _remembered(key)):
                if not paths or fingerprint(paths) != key:
                    continue
                run = _read(paths, limit)
                if run is not None and run.source.content_key() == key:
                    with self._lock:
                        self._alive[key] = run
                    self._use(key, run)
                    return run
        raise NbprofError(_NOT_HERE)

    def _use(self, key: str, run: Run) -> None:
        if not self.holds:
            return
        with self._lock:
            self._in_outputs[key] = run
            self._in_outputs.move_to_end(key)
            while len(self._in_outputs) > 1 and self._is_over_limit():
                self._in_outputs.popitem(last=False)

    def _is_over_limit(self) -> bool:
        events = sum(int(run.as_read.receipt.events) for run in self._in_outputs.values())
        return len(self._in_outputs) > MOST_SHOWN or events > MOST_EVENTS


def _read(paths: list[Path], limit: int) -> Run | None:
    """The run in these files; None if they have none, or are an archive."""
    from nbprof.run.many import open_run

    limit_bytes = limit or max(
        _MOST_PACKED * sum(path.stat().st_size for path in paths), _LEAST_LIMIT
    )
    try:
        run_files = find(
            paths[0] if len(paths) == 1 else paths, options=OpenOptions(limit_bytes=limit_bytes)
        )
        if {path for path, _, _ in local_files(run_files.files)} != set(paths):
            return None
        return open_run(run_files)
    except (ReadError, OSError):
        return None


def _remember(key: str, paths: list[str], limit: int) -> None:
    if enabled():
        with contextlib.suppress(OSError, RuntimeError):
            Folder(location()).note(f"key-{key}", {"files": paths, "limit_bytes": limit})


def _remembered(key: str) -> tuple[list[Path], int]:
    """The files of a key when they were last shown here, and the limit for unpacking them."""
    if not enabled():
        return [], 0
    with contextlib.suppress(OSError, RuntimeError):
        folder = Folder(location())
        noted: Any = folder.noted(f"key-{key}") if folder.owned() else None
        paths = noted.get("files") if isinstance(noted, dict) else None
        if isinstance(paths, list) and all(isinstance(path, str) for path in paths):
            return [Path(path) for path in paths], int(noted.get("limit_bytes") or 0)
    return [], 0


registry = Registry()
