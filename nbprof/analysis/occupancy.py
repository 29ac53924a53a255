"""Theoretical occupancy of NVIDIA kernels: how many of a kernel's warps fit on a multiprocessor,
from the resources of a block.

Sources: the tables of technical specifications by compute capability in the CUDA C++ programming
guide, and the rules of allocation in the CUDA occupancy calculator (registers by warp in units of
256, warps over four partitions, shared memory in units, one KiB of it kept by the system for each
block from compute capability 8.0 on).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

WARP = 32
_REGISTERS = 65536
_REGISTER_UNIT = 256
_PARTITIONS = 4
_KIB = 1024


class Limits(NamedTuple):
    """Limits of a multiprocessor: warps, blocks, bytes of shared memory, and allocation
    granularity.
    """

    warps: int
    blocks: int
    shared_bytes: int
    shared_unit: int
    reserved_bytes: int = 0


LIMITS: dict[tuple[int, int], Limits] = {
    (5, 0): Limits(64, 32, 64 * _KIB, 256),
    (5, 2): Limits(64, 32, 96 * _KIB, 256),
    (5, 3): Limits(64, 32, 64 * _KIB, 256),
    (6, 0): Limits(64, 32, 64 * _KIB, 256),
    (6, 1): Limits(64, 32, 96 * _KIB, 256),
    (6, 2): Limits(64, 32, 64 * _KIB, 256),
    (7, 0): Limits(64, 32, 96 * _KIB, 256),
    (7, 2): Limits(64, 32, 96 * _KIB, 256),
    (7, 5): Limits(32, 16, 64 * _KIB, 256),
    (8, 0): Limits(64, 32, 164 * _KIB, 128, _KIB),
    (8, 6): Limits(48, 16, 100 * _KIB, 128, _KIB),
    (8, 7): Limits(48, 16, 164 * _KIB, 128, _KIB),
    (8, 9): Limits(48, 24, 100 * _KIB, 128, _KIB),
    (9, 0): Limits(64, 32, 228 * _KIB, 128, _KIB),
    (10, 0): Limits(64, 32, 228 * _KIB, 128, _KIB),
    (10, 3): Limits(64, 32, 228 * _KIB, 128, _KIB),
    (12, 0): Limits(48, 24, 100 * _KIB, 128, _KIB),
    (12, 1): Limits(48, 24, 100 * _KIB, 128, _KIB),
}
"""By compute capability; for one that is not listed, occupancy is unknown rather than taken from a
similar one.
"""


@lru_cache(maxsize=64)
def limits(capability: object) -> Limits | None:
    """The limits of a compute capability given as "8.6"; None if unknown."""
    major, _, minor = str(capability).partition(".")
    if major.isdecimal() and minor.isdecimal():
        return LIMITS.get((int(major), int(minor)))
    return None


def theoretical_percent(
    capability: Sequence[object], threads: Floats, registers: Floats, shared_bytes: Floats
) -> Floats:
    """Occupancy in percent of each launch shape: warps of the blocks that fit on a multiprocessor,
    of the warps that it can hold.

    Parameters
    ----------
    capability : sequence of str, n
        Compute capability of the device, as "8.6".
    threads, registers, shared_bytes : float64[n]
        Threads of a block, registers of a thread, bytes of shared memory of a block (static and
        dynamic); NaN where not known.

    Returns
    -------
    float64[n]
        NaN where an input is not known, or the block does not fit.
    """
    return np.where(
        fits := warps(capability, threads, registers, shared_bytes), 100 * fits, np.nan
    ) / _max_warps(capability)


def achieved_percent(
    capability: Sequence[object],
    threads: Floats,
    registers: Floats,
    shared_bytes: Floats,
    blocks: Floats,
    cores: Floats,
) -> Floats:
    """The theoretical occupancy, or less where the grid has too few blocks to fill the device: what
    PyTorch estimates as achieved.

    Parameters
    ----------
    capability, threads, registers, shared_bytes
        As in `theoretical_percent`.
    blocks, cores : float64[n]
        Blocks of the grid, multiprocessors of the device.
    """
    maximum = warps(capability, threads, registers, shared_bytes)
    warps_given = np.ceil(threads / WARP) * blocks / cores
    return np.where(maximum > 0, 100 * np.minimum(maximum, warps_given), np.nan) / _max_warps(
        capability
    )


def _max_warps(capability: Sequence[object]) -> Floats:
    known_limits = [limits(c) for c in capability]
    return np.array([np.nan if k is None else k.warps for k in known_limits], np.float64)


def warps(
    capability: Sequence[object], threads: Floats, registers: Floats, shared_bytes: Floats
) -> Floats:
    """Warps of each launch shape that a multiprocessor can hold; 0 if a block does not fit, NaN if
    an input is unknown.
    """
    known_limits = [limits(c) for c in capability]

    def column(index: int) -> Floats:
        return np.array([np.nan if k is None else k[index] for k in known_limits], np.float64)

    most_warps, most_blocks, shared, unit, reserved = (column(i) for i in range(5))
    with np.errstate(divide="ignore", invalid="ignore"):
        of_block = np.ceil(threads / WARP)
        a_warp = np.ceil(registers * WARP / _REGISTER_UNIT) * _REGISTER_UNIT
        by_registers = np.floor(
            np.floor(_REGISTERS / _PARTITIONS / a_warp) * _PARTITIONS / of_block
        )
        # A block has no more registers than a multiprocessor, however they lie in the partitions.
        by_registers = np.where(a_warp * of_block > _REGISTERS, 0, by_registers)
        taken = np.ceil((shared_bytes + reserved) / unit) * unit
        by_shared = np.where(taken > 0, np.floor(shared / taken), np.inf)
        by_shared = np.where(np.isnan(taken), np.nan, by_shared)
        blocks = np.minimum.reduce(
            [most_blocks, np.floor(most_warps / of_block), by_registers, by_shared]
        )
    percent: Floats = np.where(threads > 0, blocks * of_block, np.nan)
    return percent
