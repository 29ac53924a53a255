"""What machine a run was recorded on, as far as it bears on step times. It has no name and no address in it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from pathlib import Path


def machine() -> dict[str, str]:
    """`cpu` (its model), `cores` (that this process may run on), `python`, and `driver` of NVIDIA's GPUs; without what is not known."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = {
        "cpu": _first(Path("/proc/cpuinfo"), r"^model name\s*:\s*(.+)$") or platform.processor() or platform.machine(),
        "cores": str(len(affinity(0)) if affinity is not None else os.cpu_count() or ""),
        "python": platform.python_version(),
        "driver": _first(Path("/proc/driver/nvidia/version"), r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]*)"),
    }
    return {name: value for name, value in found.items() if value}


def _first(path: Path, pattern: str) -> str:
    with contextlib.suppress(OSError):
        found = re.search(pattern, path.read_text(errors="replace"), re.MULTILINE)
        return found[1].strip() if found else ""
    return ""
