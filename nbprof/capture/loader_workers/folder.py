"""Reports of the workers of loaders to a recording, through a folder.

The recording writes which of its windows is open; each worker replaces a file of its own with all
it knows. Nothing blocks either side, and what a worker that was killed had written stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

PREFIX = "nbprof-workers-"
"""Of the names of these folders."""
_STATE, _OWNER, _ASKED = "window", "owner", "asked"
MOST_BYTES = 1 << 20
"""Of one report."""
MOST_FILES = 1_000
"""Workers that report at the same time; others do not."""
PAUSED = 0
"""In place of the number of a window while none is open."""
_LISTS = ("batch_times", "lines", "slow")
"""What a report that is too large loses, half of it at a time."""

_ATTEMPTS = 10
"""To remove a folder into which a worker may just write its report."""

State = tuple[int, int, int]
"""What changes when a file is replaced: its number, time and size."""


class Folder:
    """One such folder.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._owner: int | None = None
        self._reports = False
        self._window: int | None = None
        self._seen: tuple[int, int] | None = None
        """The state of the file when the number of the window was read."""

    @classmethod
    def new(cls) -> Folder:
        """A new one, locked by this process for as long as it lives.

        Raises
        ------
        OSError
            The folder for temporary files cannot be written to.
        """
        folder = cls(Path(tempfile.mkdtemp(prefix=PREFIX)))
        folder._lock()
        return folder

    def _lock(self) -> None:
        # A folder whose owner is being locked is not taken for one that nobody owns.
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            new = self.path / f"{_OWNER}.new"
            self._owner = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.replace(self.path / _OWNER)

    def leave(self) -> None:
        """No longer hold the lock in this process; a fork leaves it to its parent."""
        owner, self._owner = self._owner, None
        if owner is not None:
            with contextlib.suppress(OSError):
                os.close(owner)

    def open(self, window: int) -> None:
        """Tell all workers the number of the window that is open; `PAUSED` for none."""
        _replace(self.path / _STATE, str(window))

    def window(self) -> int | None:
        """The window that is open; None once the recording is over."""
        file = self.path / _STATE
        try:
            stat = file.stat()
            seen = stat.st_ino, stat.st_mtime_ns
            # Workers ask often: the file is read when it was replaced.
            if seen != self._seen:
                self._window = int(file.read_text(encoding="ascii"))
                self._seen = seen
        except (OSError, ValueError):
            self._window = self._seen = None
        return self._window

    def ask(self) -> int | None:
        """Ask all workers for a report now; returns what these state as `asked`."""
        with contextlib.suppress(OSError):
            _replace(self.path / _ASKED, str(time.time_ns()))
        return self.asked()

    def asked(self) -> int | None:
        """When workers were last asked for a report; None if they were not."""
        with contextlib.suppress(OSError):
            return (self.path / _ASKED).stat().st_mtime_ns
        return None

    def report(self, process: int, values: dict[str, Any]) -> None:
        """Replace the report of a worker process. Never raises: a disk may be full."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            # Workers of one that does not clean up must not fill the disk.
            self._reports = self._reports or len(list(self.path.iterdir())) < MOST_FILES
            if self._reports:
                _replace(self.path / f"{process}.json", _bounded(values))

    def files(self) -> dict[int, tuple[Path, State]]:
        """The reports that there are, by process, without reading them."""
        files = {}
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                name, _, kind = entry.name.partition(".")
                if kind == "json" and name.isdecimal():
                    with contextlib.suppress(OSError):
                        stat = entry.stat(follow_symlinks=False)
                        state = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
                        files[int(name)] = (Path(entry.path), state)
        return files

    def remove(self) -> None:
        """Remove it with all files; a worker that still runs takes that for the end."""
        with contextlib.suppress(OSError):
            (self.path / _STATE).unlink()
        for _ in range(_ATTEMPTS):
            for file in list(self.path.glob("*")):
                with contextlib.suppress(OSError):
                    file.unlink()
            with contextlib.suppress(OSError):
                self.path.rmdir()
            if not self.path.exists():
                break
        self.leave()


def read(file: Path) -> dict[str, Any]:
    """A report; empty if it is damaged."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if file.stat().st_size <= MOST_BYTES:
            values = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(values, dict):
                return values
    return {}


def remove_leftovers() -> None:
    """Remove the folders of recordings whose process is gone. Never raises.

    A recording locks its folder, and the system drops the lock with the process, however that ends.
    Where files cannot be locked nothing is removed.
    """
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        with os.scandir(tempfile.gettempdir()) as entries:
            names = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
        for name in names:
            with contextlib.suppress(OSError):
                folder = Path(name)
                if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                    continue
                with (folder / _OWNER).open("rb+") as owner:
                    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    Folder(folder).remove()


def _bounded(values: dict[str, Any]) -> str:
    """The report as JSON of at most `MOST_BYTES`, with fewer rows if need be."""
    text = json.dumps(values)
    while len(text) > MOST_BYTES:
        longest = max(_LISTS, key=lambda name: len(values.get(name, ())))
        if not values.get(longest):
            break
        values = {**values, longest: values[longest][: len(values[longest]) // 2]}
        text = json.dumps(values)
    return text


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
