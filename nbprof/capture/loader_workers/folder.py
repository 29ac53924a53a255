"""Reports of the workers of loaders to a recording, through a folder.

The recording writes which of its windows is open; each worker replaces a file of its own with all
it knows. Nothing blocks either side, and what a worker that was killed had written stays.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

_STATE = "window"
MOST_BYTES = 1 << 22
PAUSED = 0
"""In place of the number of a window while none is open."""


class Folder:
    """One such folder.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def open(self, window: int) -> None:
        """Tell all workers the number of the window that is open; `PAUSED` for none."""
        _replace(self.path / _STATE, str(window))

    def window(self) -> int | None:
        """The window that is open; None once the recording is over."""
        try:
            text = (self.path / _STATE).read_text(encoding="ascii")
            return int(text)
        except (OSError, ValueError):
            return None

    def report(self, name: str, values: dict[str, Any]) -> None:
        """Replace the report of a worker. Never raises: a disk may be full."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            _replace(self.path / f"{name}.json", json.dumps(values))

    def reports(self) -> list[dict[str, Any]]:
        """The reports of all workers, by name."""
        reports = []
        for file in sorted(self.path.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, RecursionError):
                if file.stat().st_size <= MOST_BYTES:
                    values = json.loads(file.read_text(encoding="utf-8"))
                    if isinstance(values, dict):
                        reports.append(values)
        return reports

    def remove(self) -> None:
        """Remove it with all files; a worker that still runs takes that for the end."""
        with contextlib.suppress(OSError):
            (self.path / _STATE).unlink()
        for file in list(self.path.glob("*")):
            with contextlib.suppress(OSError):
                file.unlink()
        with contextlib.suppress(OSError):
            self.path.rmdir()


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
