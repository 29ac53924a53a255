"""Loads the library that `compile.py` builds when nbprof is installed.

It has a plain C interface and knows nothing of Python, so that one file fits every version of it.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

ABI_VERSION = 3
"""That of `api.h`."""

NAMES = {"win32": "nbprof.dll", "darwin": "libnbprof.dylib"}
"""File of the library by `sys.platform`, where it is not `libnbprof.so`."""


class Loaded(NamedTuple):
    """The library, or why there is none: a clause."""

    library: ctypes.CDLL | None
    reason: str = ""


@cache
def load() -> Loaded:
    """The library; looked for once in a process."""
    return _load(Path(__file__).with_name(NAMES.get(sys.platform, "libnbprof.so")))


def _load(path: Path) -> Loaded:
    if not path.is_file():
        return Loaded(None, "it was not built when nbprof was installed")
    try:
        library = ctypes.CDLL(str(path))
        version = library.nbprof_abi_version()
    except (OSError, AttributeError) as error:
        return Loaded(None, f"it cannot be loaded ({error})")
    if version != ABI_VERSION:
        return Loaded(None, "it belongs to another version of nbprof")
    return Loaded(library)
