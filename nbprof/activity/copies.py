"""The names by which recorders call copies and fills of memory: CUDA's two generations of names,
and ROCm's.
"""

from __future__ import annotations

import re
from functools import lru_cache

from nbprof.activity import activity as act

H2D, D2H, D2D, P2P, H2H, FILL, OTHER = "H2D", "D2H", "D2D", "P2P", "H2H", "memset", "other"

KINDS = (
    (re.compile(r"memcpy\s*(?:h2d|htod)|(?:memory_)?copy_?host_?to_?device"), H2D),
    (re.compile(r"memcpy\s*(?:d2h|dtoh)|(?:memory_)?copy_?device_?to_?host"), D2H),
    (re.compile(r"memcpy\s*(?:p2p|ptop)"), P2P),
    (re.compile(r"memcpy\s*(?:d2d|dtod)|(?:memory_)?copy_?device_?to_?device"), D2D),
    (re.compile(r"memcpy\s*(?:h2h|htoh)|(?:memory_)?copy_?host_?to_?host"), H2H),
    (re.compile(r"memset|fillbuffer"), FILL),
    (re.compile(r"memcpy|copybuffer|memory_copy"), OTHER),
)
"""By what a name in lower case begins with. ROCm writes `CopyDeviceToHost` (roctracer) or
`MEMORY_COPY_DEVICE_TO_HOST` (rocprofiler).
"""
CLASS = {
    H2D: act.HOST_TO_DEVICE,
    D2H: act.DEVICE_TO_HOST,
    D2D: act.DEVICE_TO_DEVICE,
    P2P: act.DEVICE_TO_DEVICE,
    H2H: act.HOST_TO_HOST,
    # A fill moves bytes within the device; no kernel computes in that time.
    FILL: act.DEVICE_TO_DEVICE,
    OTHER: act.DEVICE_TO_DEVICE,
}
"""The step class of a kind of copy."""
_HEADS = frozenset({"mem", "cop", "fil"})
# Kernels of ROCm's runtime that do what a copy engine does elsewhere.
_BLIT = re.compile(r"__amd_rocclr_(?:copy|fill)")


def kind(name: str) -> str:
    """`H2D` for "Memcpy HtoD (Pageable -> Device)", `other` for a copy that names no direction, ""
    for what has no name of one.
    """
    if name[:3].lower() not in _HEADS:
        return ""
    return _kind(name)


@lru_cache(maxsize=4096)
def _kind(name: str) -> str:
    low = name.lower()
    return next((kind for pattern, kind in KINDS if pattern.match(low)), "")


def blit(name: str) -> bool:
    """True if a kernel only copies or fills memory of its device: those of ROCm's runtime."""
    return name.startswith("__amd_") and bool(_BLIT.match(name))
