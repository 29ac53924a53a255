"""Advice on the premapped buffer of a TPU: the memory of the host that transfers go through, from what the runtime wrote.

Source: the troubleshooting and performance pages of Cloud TPU. The buffer has 4 GiB unless `TPU_PREMAPPED_BUFFER_SIZE` says otherwise;
the size must be a multiple of 4,096 bytes. One that is too small fails, or copies larger transfers in pieces; a large one takes long to map
when the program starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np

from nbprof.analysis.advice.facts import Facts, Finding
from nbprof.core.trace import Trace

DEFAULT_BYTES = 4 * 2**30
PAGE = 4096
SLOW_START_S = 15.0

_EXHAUSTED = re.compile(r"premapped", re.IGNORECASE)
_FAILED = re.compile(r"RESOURCE_EXHAUSTED|out of memory|attempting to allocate", re.IGNORECASE)
_ASKED = re.compile(r"allocate\s+([\d.,]+)\s*([KMGT]i?B?|B|bytes)?\b", re.IGNORECASE)
_SIZE = re.compile(r"premapped buffer of size\s+([\d.,]+)\s*([KMGT]i?B?|B|bytes)?", re.IGNORECASE)
_START = re.compile(r"CreateTpuSystemState.*?took\s+([\d.]+)\s*s", re.IGNORECASE | re.DOTALL)
_START_EVENT = re.compile(r"CreateTpuSystemState\b|InitializeTpuSystem\b")
_SETTING = "+import os  # before JAX or TensorFlow starts\n+os.environ['TPU_PREMAPPED_BUFFER_SIZE'] = '{}'  # bytes, a multiple of 4096"
_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def speaks_of_it(texts: Iterable[str]) -> tuple[str, ...]:
    """Those of some texts that are about the premapped buffer or the start of the TPU system."""
    return tuple(text for text in texts if _EXHAUSTED.search(text) or "CreateTpuSystemState" in text)


def started(trace: Trace) -> float | None:
    """How long the start of the TPU system took, in s; None where no event is one."""
    codes = [code for code, name in enumerate(trace.names) if _START_EVENT.search(str(name))]
    if not codes:
        return None
    rows = np.flatnonzero(np.isin(trace.events.name, codes))
    return float(trace.events.duration[rows].max()) / 1e12 if len(rows) else None


def _bytes(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    number = found.group(1).replace(",", "").rstrip(".")
    unit = (found.group(2) or "").upper()
    unit = "" if unit.startswith("BYTE") else unit[:1]
    try:
        return int(float(number) * _UNITS[unit])
    except (ValueError, KeyError):
        return None


def _rounded(count: int) -> int:
    return -(-count // PAGE) * PAGE


def _text(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"


def findings(texts: Iterable[str], start_s: float | None = None) -> list[Finding]:
    """What the texts of a runtime (log lines, error messages, names of events) say of the buffer; none where they say nothing.

    Parameters
    ----------
    texts : iterable of str
    start_s : float, optional
        How long the start of the TPU system took, where that was measured.
    """
    out: list[Finding] = []
    lines = list(texts)
    size = next((found for line in lines if (found := _bytes(_SIZE.search(line)))), None)
    failed = [line for line in lines if _EXHAUSTED.search(line) and _FAILED.search(line)]
    if failed:
        asked = max((count for line in failed if (count := _bytes(_ASKED.search(line)))), default=0)
        times = f"**{len(failed)}** time{'s' if len(failed) > 1 else ''}"
        text = f"The premapped buffer, through which the host and the TPU exchange data, ran out {times}"
        if asked:
            text += f"; a transfer asked for **{_text(asked)}**"
        wanted = _rounded(max(2 * (size or DEFAULT_BYTES), 2 * asked))
        text += f". It has **{_text(size)}**." if size else f". It has **{_text(DEFAULT_BYTES)}** unless set otherwise."
        fix = f"{_SETTING.format(wanted)}\n+os.environ['TPU_PREMAPPED_BUFFER_TRANSFER_THRESHOLD_BYTES'] = '{wanted}'"
        out.append(
            Finding("premapped_small", "high", "Give transfers a larger premapped buffer", text, float("nan"), fix, "trace", "Trace")
        )
    took = max((float(said.group(1)) for line in lines if (said := _START.search(line))), default=start_s or 0.0)
    if took > SLOW_START_S and size and not failed:
        text = (
            f"The TPU system took **{took:.1f} s** to start: the larger the premapped buffer of the host, the longer that takes. It has "
            f"**{_text(size)}**."
        )
        lower = _rounded(max(size // 2, PAGE))
        fix = _SETTING.format(lower)
        out.append(Finding("premapped_large", "low", "Make the premapped buffer smaller", text, float("nan"), fix, "trace", "Trace"))
    return out


def _buffer(facts: Facts) -> list[Finding]:
    return findings(facts.evidence.texts, facts.evidence.tpu_start_s)


RULES: tuple[Callable[[Facts], list[Finding]], ...] = (_buffer,)
