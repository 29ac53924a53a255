"""Advice that the recording shows to be followed already, by its settings and Keras's precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

_PRIVATE = "os.environ['TF_GPU_THREAD_MODE']"
_Settings = Mapping[str, str]


def _allocator(settings: _Settings) -> bool:
    """True if the allocator of any framework is set up against fragmentation."""
    expandable = any(
        "expandable_segments:true" in text.lower()
        for name, text in settings.items()
        if name.startswith("PYTORCH_")
    )
    allocators = (
        settings.get("TF_GPU_ALLOCATOR", ""),
        settings.get("XLA_PYTHON_CLIENT_ALLOCATOR", ""),
    )
    return expandable or any("async" in text for text in allocators)


def _threads(settings: _Settings, cores: float) -> bool:
    """True if an op may use as many threads as there are cores."""
    count = settings.get("torch.get_num_threads", "")
    return count.isdecimal() and 0 < cores <= int(count)


def without(
    findings: pd.DataFrame, settings: _Settings, precision: str, cores: float
) -> pd.DataFrame:
    """The findings without those whose remedy is set already, and without the lines of code that
    are.

    Parameters
    ----------
    found : DataFrame
        `p.advice`.
    settings : mapping
        As `nbprof.capture.settings` has them.
    precision : str
        The dtype policy of Keras; "" where it is not known.
    cores : float
        Cores that the process may use; 0 where that is not known.
    """
    done: dict[str, Callable[[], bool]] = {
        "fragmentation": lambda: _allocator(settings),
        "idle_cores": lambda: _threads(settings, cores),
        "mixed_precision": lambda: precision.startswith("mixed_"),
    }
    if not len(findings):
        return findings
    remaining = findings[[rule not in done or not done[rule]() for rule in findings["rule"]]]
    result = remaining if len(remaining) == len(findings) else remaining.reset_index(drop=True)
    if (
        settings.get("TF_GPU_THREAD_MODE") == "gpu_private"
        and result["fix"].astype(str).str.contains(_PRIVATE, regex=False).any()
    ):
        result = result.assign(fix=[_without_threads(str(fix)) for fix in result["fix"]])
    return result


def _without_threads(fix: str) -> str:
    if _PRIVATE not in fix:
        return fix
    return "\n".join(
        line for line in fix.splitlines() if _PRIVATE not in line and line != "+import os"
    )
