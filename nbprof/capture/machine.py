"""Properties of the machine of a recording that affect step times, without its name or address."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from pathlib import Path


def machine() -> dict[str, str]:
    """The known properties.

    Returns
    -------
    dict
        `cpu` (the model), `cores` (that this process may run on), `bf16` (instructions with which
        the CPU multiplies matrices of bfloat16), `python`, and `driver` of NVIDIA's GPUs.
    """
    cores = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    cpu = _first(Path("/proc/cpuinfo"), r"^model name\s*:\s*(.+)$")
    driver = Path("/proc/driver/nvidia/version")
    facts = {
        "cpu": cpu or platform.processor() or platform.machine(),
        "cores": str(cores or ""),
        "bf16": ", ".join(_bf16()),
        "python": platform.python_version(),
        "driver": _first(driver, r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]*)"),
    }
    return {name: value for name, value in facts.items() if value}


def _bf16() -> list[str]:
    """Instructions for bfloat16, by Linux's names of them: those of x86 and of Arm."""
    flags = _first(Path("/proc/cpuinfo"), r"^(?:flags|Features)\s*:\s*(.+)$").split()
    return [flag for flag in ("amx_bf16", "avx512_bf16", "bf16") if flag in flags]


def _first(path: Path, pattern: str) -> str:
    with contextlib.suppress(OSError):
        match = re.search(pattern, path.read_text(errors="replace"), re.MULTILINE)
        if match:
            return match[1].strip()
    return ""
