"""Time in tiles of 512 bins of 2**level ns, from the origin of the profile on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.core.errors import NbprofError
from nbprof.core.trace import Int64s

TILE = 512
"""Bins of a tile."""

LEVELS = (-10, 44)
"""From bins of about a picosecond to tiles of 104 days, the range of int64 ps."""

_LAST = 2**63 - 1


class Bins:
    """Bins of one zoom level, counted from the origin of the profile.

    Attributes
    ----------
    level : int
        A bin is 2**level ns.
    tile : int
        ps of a tile; an integer at every level.
    width : float
        ps of a bin.
    least : int
        The least duration that is a bin or more, ps.

    Raises
    ------
    NbprofError
        The level does not exist.
    """

    def __init__(self, level: object, origin: int) -> None:
        low, high = LEVELS
        if not isinstance(level, int) or isinstance(level, bool) or not low <= level <= high:
            raise NbprofError(
                f"The level of tiles is an integer from {low} to {high}, not {str(level)[:40]}."
            )
        self.level = level
        self.origin = origin
        self.tile = TILE * 1000 << level if level > 0 else TILE * 1000 >> -level
        self.width = 1000 * 2.0**level
        self.least = -(-self.tile // TILE)
        # Edges between picoseconds: what starts at the next whole one is behind them.
        edges = np.arange(TILE + 1)
        self._offsets: Int64s = edges * self.least if level >= 0 else -(-self.tile * edges // TILE)

    def clip(self, tile: int, tile_to: int, first: int, end: int) -> range:
        """The tiles of tile…tile_to that overlap `first` to `end` ps."""
        return range(
            max(tile, (first - self.origin) // self.tile),
            min(tile_to, (end - self.origin) // self.tile) + 1,
        )

    def start(self, tile: int) -> int:
        """Start of a tile, ps."""
        return self.origin + tile * self.tile

    def edges(self, start: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_] | None]:
        """int64[k, 513] ps: bin edges of tiles; a mask of those beyond int64, or None."""
        if int(start.max()) + self.tile <= _LAST:
            return start[:, None] + self._offsets, None
        beyond = self._offsets > (_LAST - np.maximum(start, 0))[:, None]
        with np.errstate(over="ignore"):
            return np.where(beyond, _LAST, start[:, None] + self._offsets), beyond


def since(time: Int64s, start: Int64s) -> npt.NDArray[np.float32]:
    """Times as ns from a tile's start, or from several; as floats where int64 cannot hold the
    difference.
    """
    exact = time - start
    if not len(time):
        return exact.astype(np.float32)
    farthest = max(int(time.max()) - int(start.min()), int(start.max()) - int(time.min()))
    if farthest <= _LAST:
        return (exact / 1000).astype(np.float32)
    wrapped = ((time >= start) & (exact < 0)) | ((time < start) & (exact > 0))
    result = np.where(wrapped, time.astype(np.float64) - start, exact)
    return (result / 1000).astype(np.float32)
