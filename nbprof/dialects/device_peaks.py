"""Peak operations, memory bandwidth and memory of devices, by architecture or by name.

Sources: NVIDIA's architecture white papers and the throughput table of the CUDA programming guide;
AMD's CDNA white papers. As in XProf one number is given for all precisions: the largest of fp32 and
fp16 on the ordinary units and of TF32 and fp16 on Tensor Cores (matrix cores), without sparsity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from nbprof.core.late_pattern import late_pattern

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
"""Operations per compute unit and clock cycle, by the first two digits of the architecture: gfx90x,
gfx94x, gfx95x.
"""


def peak_flops_per_second(stats: Mapping[str, object]) -> float | None:
    """The peak of a device from its plane's stats; None if they do not state enough.

    A GPU's is units x clock x operations per clock, for a compute capability that is not in the
    table by the one below it; a TPU states its own.
    """
    teraflops = stats.get("peak_teraflops_per_second")
    if isinstance(teraflops, (int, float)):
        return float(teraflops) * 1e12 or None
    units = _Units.stated_by(stats)
    if units is None:
        return None
    table = _AMD if stats.get("device_vendor") == "AMD" else _NVIDIA
    below = [capability for capability in table if capability <= units.capability]
    if not below:
        return None
    return units.per_second * table[max(below)]


class _Units(NamedTuple):
    """Compute units of a GPU: their compute capability, and clock cycles of all per second."""

    capability: tuple[int, int]
    per_second: float

    @classmethod
    def stated_by(cls, stats: Mapping[str, object]) -> _Units | None:
        """As a plane's stats state them; None if they do not."""
        major, minor = stats.get("compute_cap_major"), stats.get("compute_cap_minor")
        count, clock = stats.get("core_count"), stats.get("clock_rate")
        if not isinstance(major, int) or not isinstance(minor, int):
            return None
        if not isinstance(count, int) or not isinstance(clock, int) or count <= 0 or clock <= 0:
            return None
        return cls((major, minor), count * clock * 1e3)


_HBM3_BYTES_PER_SECOND: dict[tuple[object, object], float] = {(9, 4): 5.3e12, (9, 5): 8.0e12}
"""Bandwidth of a whole AMD device with HBM3, gfx94x and gfx95x: AMD's data sheets of the MI300X and
the MI350X.
"""


def peak_bytes_per_second(stats: Mapping[str, object]) -> float | None:
    """Peak bandwidth of the device's main memory; None if its plane does not state it.

    What XLA states of an AMD device is two transfers a clock over the width of the bus. HBM3 makes
    four at the clock that ROCm tells, so that ops of an MI300X would move up to 1.5 times the peak:
    there a figure that is near a half of the device's own is doubled.
    """
    gigabytes = stats.get("peak_hbm_bw_gigabytes_per_second")
    if isinstance(gigabytes, (int, float)):
        return float(gigabytes) * 1e9 or None
    bandwidth = stats.get("memory_bandwidth")
    if not isinstance(bandwidth, (int, float)):
        return None
    capability = stats.get("compute_cap_major"), stats.get("compute_cap_minor")
    hbm3 = _HBM3_BYTES_PER_SECOND.get(capability, 0.0)
    if stats.get("device_vendor") == "AMD" and bandwidth < 0.75 * hbm3:
        bandwidth *= 2
    return float(bandwidth) or None


_STATED = {
    "vmem_read": "peak_vmem_rd_bw_gigabytes_per_second",
    "vmem_write": "peak_vmem_wr_bw_gigabytes_per_second",
    "cmem_read": "peak_cmem_rd_bw_gigabytes_per_second",
    "cmem_write": "peak_cmem_wr_bw_gigabytes_per_second",
}


def on_chip_bytes_per_second(stats: Mapping[str, object]) -> dict[str, float]:
    """Peak bandwidth of on-chip memories, by the names of `nbprof.activity.given_peaks.ON_CHIP`.

    A TPU states its own. The shared memory of an NVIDIA multiprocessor has 32 banks of 4 bytes,
    read once a clock; of 8 bytes on Kepler (3.x), once every second clock on Fermi (2.x). The local
    data share of an AMD compute unit moves 128 bytes a clock, on gfx95x 256.

    Sources: the CUDA programming guide, "Shared memory" of each compute capability; AMD's CDNA 3
    and CDNA 4 white papers.
    """
    peaks: dict[str, float] = {}
    for name, stat in _STATED.items():
        value = stats.get(stat)
        if isinstance(value, (int, float)) and value > 0:
            peaks[name] = float(value) * 1e9
    units = _Units.stated_by(stats)
    if units is not None:
        width = {2: 64, 3: 256}.get(units.capability[0], 128)
        if stats.get("device_vendor") == "AMD":
            width = 256 if units.capability >= (9, 5) else 128
        peaks["shared_memory"] = units.per_second * width
    return peaks


class Named(NamedTuple):
    """Data sheet of a device without sparsity: tera operations and GB per second (0: none), and its
    memory in GiB.

    `capacity` is the total that the driver reports to programs, which is less than what is sold:
    of NVIDIA the lowest that PyTorch's messages of memory that ran out state for the device, with
    error correction.
    """

    half: float
    bfloat16: float
    tf32: float
    float32: float
    float64: float
    float8: float
    memory: float
    capacity: float


_H100 = Named(989.4, 989.4, 494.7, 66.9, 66.9, 1978.9, 3350, 79.1)
_A100 = Named(312, 312, 156, 19.5, 19.5, 0, 1555, 39.3)
_MI300X = Named(1307.4, 1307.4, 653.7, 163.4, 163.4, 2614.9, 5300, 191.9)
_NAMED: tuple[tuple[re.Pattern[str], Named], ...] = tuple(
    (late_pattern(rf"(?:NVIDIA |AMD |Tesla )*{pattern}\Z"), peaks)
    for pattern, peaks in (
        (r"P100-SXM2-16GB", Named(21.2, 0, 0, 10.6, 5.3, 0, 732, 15.9)),
        (r"P100-PCIE-16GB", Named(18.7, 0, 0, 9.3, 4.7, 0, 732, 15.9)),
        (r"V100-(?:SXM2|DGXS)-16GB", Named(125, 0, 0, 15.7, 7.8, 0, 900, 15.7)),
        (r"V100-(?:SXM2|DGXS)-32GB", Named(125, 0, 0, 15.7, 7.8, 0, 900, 31.7)),
        (r"V100-PCIE-16GB", Named(112, 0, 0, 14, 7, 0, 900, 15.7)),
        (r"V100-PCIE-32GB", Named(112, 0, 0, 14, 7, 0, 900, 31.7)),
        (r"V100S-PCIE-32GB", Named(130, 0, 0, 16.4, 8.2, 0, 1134, 31.7)),
        (r"T4", Named(65, 0, 0, 8.1, 0, 0, 320, 14.56)),
        (r"A[18]00-(?:SXM4-40GB|PCI[Ee]-40GB)", _A100),
        (r"A[18]00-SXM4?-80GB", _A100._replace(memory=2039, capacity=79.1)),
        (r"A[18]00 80GB PCIe", _A100._replace(memory=1935, capacity=79.1)),
        (r"A30", Named(165, 165, 82, 10.3, 10.3, 0, 933, 23.5)),
        (r"A40", Named(149.7, 149.7, 74.8, 37.4, 0, 0, 696, 44.3)),
        (r"A10", Named(125, 125, 62.5, 31.2, 0, 0, 600, 21.9)),
        (r"RTX A6000", Named(154.8, 154.8, 77.4, 38.7, 0, 0, 768, 47.4)),
        (r"L4", Named(121, 121, 60, 30.3, 0, 242.5, 300, 21.9)),
        (r"L40", Named(181, 181, 90.5, 90.5, 0, 362, 864, 44.3)),
        (r"L40S", Named(362, 362, 183, 91.6, 0, 733, 864, 44.3)),
        (r"RTX 6000 Ada Generation", Named(364.2, 364.2, 182.1, 91.1, 0, 728.5, 960, 47.3)),
        (r"GeForce RTX 3090", Named(71, 71, 35.6, 35.6, 0, 0, 936, 23.5)),
        (r"GeForce RTX 4090", Named(165.2, 165.2, 82.6, 82.6, 0, 330.3, 1008, 23.5)),
        (r"H100 80GB HBM3", _H100),
        (r"H100 PCIe", Named(756, 756, 378, 51, 51, 1513, 2000, 79.1)),
        (r"H100 NVL", Named(835, 835, 417, 60, 60, 1671, 3900, 93.0)),
        (r"H200", _H100._replace(memory=4800, capacity=139.8)),
        (r"GH200 480GB", _H100._replace(memory=4000, capacity=94.5)),
        (r"B200", Named(2250, 2250, 1100, 75, 37, 4500, 7700, 178.3)),
        (r"Instinct MI100", Named(184.6, 92.3, 0, 46.1, 11.5, 0, 1228.8, 31.9)),
        (r"Instinct MI210", Named(181, 181, 0, 45.3, 45.3, 0, 1638.4, 63.9)),
        # Each of the two dies of an MI250 is a device.
        (r"Instinct MI250", Named(181, 181, 0, 45.3, 45.3, 0, 1638.4, 63.9)),
        (r"Instinct MI250X", Named(191.5, 191.5, 0, 47.9, 47.9, 0, 1638.4, 63.9)),
        (r"Instinct MI300A", Named(980.6, 980.6, 490.3, 122.6, 122.6, 1961.2, 5300, 127.9)),
        (r"Instinct MI300X(?:_OAM)?", _MI300X),
        (r"Instinct MI325X", _MI300X._replace(memory=6000, capacity=255.9)),
        (r"Instinct MI350X", Named(2306.9, 2306.9, 0, 144.2, 72.1, 4614, 8000, 287.9)),
        (r"Instinct MI355X", Named(2516.6, 2516.6, 0, 157.3, 78.6, 5033, 8000, 287.9)),
    )
)
"""By the name that the driver gives a device. Source: the data sheets of NVIDIA and AMD; of AMD
those of the matrix cores.
"""


def by_name(name: str) -> dict[str, float]:
    """Peaks of a device by its name: operations per second by precision, and `memory`; else {}."""
    for pattern, peaks in _NAMED:
        if pattern.match(name):
            speeds = peaks._replace(capacity=0)._asdict()
            rates = {key: 1e12 * value for key, value in speeds.items() if value > 0}
            return {"float16": rates.pop("half"), **rates, "memory": 1e9 * peaks.memory}
    return {}


_SHORT = {
    "A100": "A100-SXM4-80GB",
    "A100-40GB": "A100-SXM4-40GB",
    "A100-80GB": "A100-SXM4-80GB",
    "A800": "A800-SXM4-80GB",
    "GH200": "GH200 480GB",
    "H100": "H100 80GB HBM3",
    "H100-80GB": "H100 80GB HBM3",
    "MI100": "Instinct MI100",
    "MI210": "Instinct MI210",
    "MI250": "Instinct MI250",
    "MI250X": "Instinct MI250X",
    "MI300A": "Instinct MI300A",
    "MI300X": "Instinct MI300X",
    "MI325X": "Instinct MI325X",
    "MI350X": "Instinct MI350X",
    "MI355X": "Instinct MI355X",
    "P100": "P100-PCIE-16GB",
    "RTX 3090": "GeForce RTX 3090",
    "RTX 4090": "GeForce RTX 4090",
    "RTX 6000 Ada": "RTX 6000 Ada Generation",
    "A6000": "RTX A6000",
    "V100": "V100-SXM2-16GB",
    "V100-16GB": "V100-SXM2-16GB",
    "V100-32GB": "V100-SXM2-32GB",
}
"""Names that people give devices, with the drivers'. Of several sizes, `A100` is that of 80 GB, and
`V100` the smaller one.
"""
SHORT_NAMES = sorted({*_SHORT, "A10", "A30", "A40", "B200", "H200", "L4", "L40", "L40S", "T4"})
"""Names for a message that lists the devices with known memory."""


def capacity_bytes(name: str) -> int | None:
    """Total memory of a device by its name, a driver's or a short one; None if it is unknown."""
    for pattern, peaks in _NAMED:
        if pattern.match(_SHORT.get(name, name)):
            return int(peaks.capacity * 2**30)
    return None
