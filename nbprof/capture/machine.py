"""What machine a run was recorded on, as far as it bears on step times. It has no name and no
address in it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from pathlib import Path


def machine() -> dict[str, str]:
    """What is known of: `cpu` (its model), `cores` (that this process may run on), `python`, and
    `driver` of NVIDIA's GPUs.

    `bf16` names the instructions with which the CPU multiplies matrices of bfloat16.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    found = {
        "cpu": _first(Path("/proc/cpuinfo"), r"^model name\s*:\s*(.+)$")
        or platform.processor()
        or platform.machine(),
        "cores": str(len(affinity(0)) if affinity is not None else os.cpu_count() or ""),
        "bf16": ", ".join(_bf16()),
        "python": platform.python_version(),
        "driver": _first(
            Path("/proc/driver/nvidia/version"), r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]*)"
        ),
    }
    return {name: value for name, value in found.items() if value}


def _bf16() -> list[str]:
    """Instructions for bfloat16, by Linux's names of them: those of x86 and of Arm."""
    flags = _first(Path("/proc/cpuinfo"), r"^(?:flags|Features)\s*:\s*(.+)$").split()
    return [flag for flag in ("amx_bf16", "avx512_bf16", "bf16") if flag in flags]


def _first(path: Path, pattern: str) -> str:
    with contextlib.suppress(OSError):
        found = re.search(pattern, path.read_text(errors="replace"), re.MULTILINE)
        return found[1].strip() if found else ""
    return ""
