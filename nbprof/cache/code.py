"""The state of nbprof itself: what was made by other code is not used."""

from __future__ import annotations

import os
from pathlib import Path

import nbprof

# Folders of the package with the built front end, and with what Python makes of the modules.
_NOT_CODE = ("labextension", "static", "__pycache__")


def modules() -> list[tuple[str, int, int]]:
    """Path, size and time of each module of nbprof, so that who works on nbprof never meets the results of yesterday's code."""
    found: list[tuple[str, int, int]] = []
    below = [str(Path(nbprof.__file__).parent)]
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    found.append((entry.path, (state := entry.stat()).st_size, state.st_mtime_ns))
                elif entry.is_dir() and entry.name not in _NOT_CODE:
                    below.append(entry.path)
    return sorted(found)
