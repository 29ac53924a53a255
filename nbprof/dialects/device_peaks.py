"""Device peaks: operations per second by architecture, and bytes per second of its memories.

Sources: NVIDIA's architecture white papers and the throughput table of the CUDA programming guide; AMD's CDNA white papers. As in XProf one
number is given for all precisions: the largest of fp32 and fp16 on the ordinary units and of TF32 and fp16 on TensorCores (matrix cores),
without sparsity.
"""

from __future__ import annotations

from collections.abc import Mapping

_NVIDIA: dict[tuple[int, int], int] = {
    (2, 0): 64,
    (3, 0): 384,
    (5, 0): 256,
    (6, 0): 256,
    (6, 1): 256,
    (7, 0): 1024,
    (7, 5): 1024,
    (8, 0): 2048,
    (8, 6): 1024,
    (8, 9): 1024,
    (9, 0): 4096,
    (10, 0): 8192,
}
"""Operations per multiprocessor and clock cycle, by compute capability."""
_AMD: dict[tuple[int, int], int] = {(9, 0): 1024, (9, 4): 2048, (9, 5): 4096}
"""Operations per compute unit and clock cycle, by the first two digits of the architecture: gfx90x, gfx94x, gfx95x."""


def peak_flops_per_second(stats: Mapping[str, object]) -> float | None:
    """The peak of a device from its plane's stats; None if they do not state enough.

    A GPU's is units x clock x operations per clock, for a compute capability that is not in the table by the one below it; a TPU states
    its own.
    """
    stated = stats.get("peak_teraflops_per_second")
    if isinstance(stated, (int, float)):
        return float(stated) * 1e12 or None
    major, minor, units, clock = (stats.get(key) for key in ("compute_cap_major", "compute_cap_minor", "core_count", "clock_rate"))
    if not (isinstance(major, int) and isinstance(minor, int) and isinstance(units, int) and isinstance(clock, int)):
        return None
    table = _AMD if stats.get("device_vendor") == "AMD" else _NVIDIA
    below = [known for known in table if known <= (major, minor)]
    return units * clock * 1e3 * table[max(below)] if below and units > 0 and clock > 0 else None


_HBM3_BYTES_PER_SECOND = {(9, 4): 5.3e12, (9, 5): 8.0e12}
"""Bandwidth of a whole AMD device with HBM3, gfx94x and gfx95x: AMD's data sheets of the MI300X and the MI350X."""


def peak_bytes_per_second(stats: Mapping[str, object]) -> float | None:
    """Peak bandwidth of the device's main memory; None if its plane does not state it.

    What XLA states of an AMD device is two transfers a clock over the width of the bus. HBM3 makes four at the clock that ROCm tells, so
    that ops of an MI300X would move up to 1.5 times the peak: there a figure that is near a half of the device's own is doubled.
    """
    gigabytes = stats.get("peak_hbm_bw_gigabytes_per_second")
    if isinstance(gigabytes, (int, float)):
        return float(gigabytes) * 1e9 or None
    stated = stats.get("memory_bandwidth")
    if not isinstance(stated, (int, float)):
        return None
    major, minor = stats.get("compute_cap_major"), stats.get("compute_cap_minor")
    if stats.get("device_vendor") == "AMD" and isinstance(major, int) and isinstance(minor, int):
        whole = _HBM3_BYTES_PER_SECOND.get((major, minor), 0.0)
        return float(stated) * (2 if stated < 0.75 * whole else 1) or None
    return float(stated) or None


_STATED = {
    "vmem_read": "peak_vmem_rd_bw_gigabytes_per_second",
    "vmem_write": "peak_vmem_wr_bw_gigabytes_per_second",
    "cmem_read": "peak_cmem_rd_bw_gigabytes_per_second",
    "cmem_write": "peak_cmem_wr_bw_gigabytes_per_second",
}


def on_chip_bytes_per_second(stats: Mapping[str, object]) -> dict[str, float]:
    """Peak bandwidth of on-chip memories, by the names of `nbprof.activity.given_peaks.ON_CHIP`, as far as the plane tells it.

    A TPU states its own. The shared memory of an NVIDIA multiprocessor has 32 banks of 4 bytes, read once a clock; of 8 bytes on Kepler
    (3.x), once every second clock on Fermi (2.x). The local data share of an AMD compute unit moves 128 bytes a clock, on gfx95x 256.

    Sources: the CUDA programming guide, "Shared memory" of each compute capability; AMD's CDNA 3 and CDNA 4 white papers.
    """
    found = {name: float(value) * 1e9 for name, stat in _STATED.items() if isinstance(value := stats.get(stat), (int, float)) and value > 0}
    major, minor, units, clock = (stats.get(key) for key in ("compute_cap_major", "compute_cap_minor", "core_count", "clock_rate"))
    if isinstance(major, int) and isinstance(minor, int) and isinstance(units, int) and isinstance(clock, int) and units > 0 and clock > 0:
        amd = stats.get("device_vendor") == "AMD"
        wide = (256 if (major, minor) >= (9, 5) else 128) if amd else {2: 64, 3: 256}.get(major, 128)
        found["shared_memory"] = units * clock * 1e3 * wide
    return found
