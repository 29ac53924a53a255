"""The cache: a profile that has been opened before opens again almost instantly.

What was decoded and computed is kept in the platform's cache directory, beside nothing that is
yours, and found again by the content of the profile: a file that changed is read anew, one that was
only touched, moved or copied is not. Entries of other versions of nbprof are never used. When the
cache is full, what was not opened for the longest time goes.

>>> print(nbprof.cache.info())           # doctest: +SKIP
>>> nbprof.cache.clear()                 # doctest: +SKIP

Environment variables, read each time a profile is loaded: `NBPROF_CACHE=0` turns the cache off,
`NBPROF_CACHE_DIR` puts it elsewhere, `NBPROF_CACHE_SIZE` (500M, 2G) says how large it may get; by
default 4 GiB, or 5 % of the free disk where that is less.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbprof.core.units import size_text
from nbprof.run.cache.folder import Folder, enabled, location

__all__ = ["Info", "clear", "info"]


@dataclass(frozen=True, repr=False)
class Info:
    """What is in the cache.

    Attributes
    ----------
    folder : str
    enabled : bool
    runs : int
        Number of runs that it has data of.
    bytes : int
    limit : int
        How many bytes it may hold.
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
    """Where the cache is, what it has and how large it may get."""
    folder = Folder(location())
    entries = folder.entries()
    return Info(
        str(folder.path), enabled(), len(entries), sum(e.bytes for e in entries), folder.limit()
    )


def clear() -> int:
    """Empty the cache and return how many bytes that freed. Open profiles are not affected."""
    from nbprof.run.cache import background

    background.finish()
    return Folder(location()).clear()
