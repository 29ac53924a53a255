"""The cache: a profile that has been opened before opens again almost instantly.

Decoded and computed data is stored in the platform's cache directory and found by the content of
the profile: a changed file is read again, one that was only touched, moved or copied is not. The
cache holds only derived data; deleting it is always safe. Entries of other versions of nbprof are
never used. When the cache is full, entries that were not opened for the longest time are deleted.

>>> print(nbprof.cache.info())           # doctest: +SKIP
>>> nbprof.cache.clear()                 # doctest: +SKIP

Environment variables, read each time a profile is loaded: `NBPROF_CACHE=0` turns the cache off,
`NBPROF_CACHE_DIR` sets its folder, `NBPROF_CACHE_SIZE` (500M, 2G) its maximum size; by default
4 GiB, or 5 % of the free disk if that is less.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbprof.core.units import size_text
from nbprof.run.cache.folder import Folder, enabled, location

__all__ = ["Info", "clear", "info"]


@dataclass(frozen=True, repr=False)
class Info:
    """The contents of the cache.

    Attributes
    ----------
    folder : str
    enabled : bool
    runs : int
        Number of runs with data in it.
    bytes : int
    limit : int
        Maximum size in bytes.
    """

    folder: str
    enabled: bool
    runs: int
    bytes: int
    limit: int

    def __str__(self) -> str:
        off = "" if self.enabled else "; it is turned off (NBPROF_CACHE)"
        runs = f"{self.runs:,} {'run' if self.runs == 1 else 'runs'}"
        return (
            f"{runs}, {size_text(self.bytes)} of at most {size_text(self.limit)}, in"
            f" {self.folder}{off}"
        )

    def __repr__(self) -> str:
        return f"<nbprof cache: {self}>"


def info() -> Info:
    """Folder, contents and maximum size of the cache."""
    folder = Folder(location())
    entries = folder.entries()
    size = sum(entry.bytes for entry in entries)
    return Info(str(folder.path), enabled(), len(entries), size, folder.limit())


def clear() -> int:
    """Empty the cache and return the number of bytes freed. Open profiles are not affected."""
    from nbprof.run.cache import background

    background.finish()
    return Folder(location()).clear()
